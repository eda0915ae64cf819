"""What is held in prose while it may still open a call: a fence's line, a wrapper, a call's tag, white space between them.

Held text is bounded, and what turns out not to open a call is released as text, character by character the same.
"""

from collections.abc import Callable, Iterator

import regex

from .scanner import Token

__all__ = ["Opening"]

_MAX_HELD = 256
# A tool's name, as gpt-oss writes it or plain, on a line of its own.
_NAME = regex.compile(r"\s*(?:(?:[a-z]{1,16} to=functions\.)?(?P<name>[A-Za-z_][\w.\-]{0,127})\s*(?:json\s*)?)?")


class Opening:
    """The tokens held, in order.

    Args:
        first: back-ticks at the start of a line, a wrapper's opener or a call's.
    """

    def __init__(self, first: Token) -> None:
        self.held = [first]

    @property
    def fence(self) -> int:
        """Back-ticks of the fence that it begins with, else 0."""
        return len(self.held[0].text) if self.held[0].kind == "ticks" else 0

    @property
    def on_fence_line(self) -> bool:
        """Whether the fence's own line goes on: what stands there names a language."""
        return bool(self.fence) and not any("\n" in part.text for part in self.held)

    def holds(self, *kinds: str) -> bool:
        """Say whether a token of one of these kinds is held."""
        return any(part.kind in kinds for part in self.held)

    def accept(self, text: Token, *, name: bool = False) -> bool:
        """Hold text if a call may still follow it: white space, the rest of a fence's line, or, if `name`, a tool's name."""
        if self._length() + len(text.text) > _MAX_HELD:
            return False
        if self.holds("block_open", "call_open"):
            accepted = not text.text.strip() if not name else bool(_NAME.fullmatch(self.after_block() + text.text, partial=True))
        else:
            _, newline, rest = "".join(part.text for part in [*self.held[1:], text]).partition("\n")
            accepted = not newline or not rest.strip()
        if accepted:
            self.held.append(text)
        return accepted

    def after_block(self) -> str:
        """Return the text that is held after the wrapper's opener."""
        at = next((place for place, part in enumerate(self.held) if part.kind == "block_open"), len(self.held))
        return "".join(part.text for part in self.held[at + 1 :])

    def name(self) -> str:
        """Return the tool's name that is held after the wrapper's opener, or ""."""
        match = _NAME.fullmatch(self.after_block())
        return (match["name"] or "") if match else ""

    def takes_name_line(self, text: Token, declared: Callable[[str], bool]) -> bool:
        """Say whether a declared name is complete and a JSON object follows it in this text."""
        head, brace, _ = text.text.partition("{")
        match = _NAME.fullmatch(self.after_block() + head)
        return bool(brace and match and match["name"] and self._length() + len(head) <= _MAX_HELD and declared(match["name"]))

    def name_call(self, dialect: str, text: Token | None = None) -> Token:
        """Make the wrapper's opener and the name after it the opener of a call.

        Args:
            dialect: of the call.
            text: the rest of the name and what follows it, if it is not held.

        Returns:
            What follows the name.
        """
        head, brace, tail = text.text.partition("{") if text else ("", "", "")
        at = next(place for place, part in enumerate(self.held) if part.kind == "block_open")
        first = self.held[at]
        whole = first.text + self.after_block() + head
        match = _NAME.fullmatch(self.after_block() + head)
        name = {"name": match["name"] if match else ""}
        self.held[at:] = [Token("call_open", whole, first.start, name, dialect, "call")]
        return Token("text", brace + tail, first.start + len(whole))

    def begins_json(self, text: Token) -> bool:
        """Say whether text is the first of a JSON object right after a wrapper."""
        right_after = self.holds("block_open") and not self.holds("call_open") and not self.after_block().strip()
        return right_after and self.begins_object(text)

    def begins_object(self, text: Token) -> bool:
        """Say whether a JSON object begins in text, before too much is held: as if its white space had come in pieces."""
        json = text.text.lstrip()
        return self._length() + len(text.text) - len(json) <= _MAX_HELD and json.startswith("{")

    def _length(self) -> int:
        return sum(len(part.text) for part in self.held)

    def wrapper(self) -> str:
        """Return the dialect of the wrapper that is held, or ""."""
        return next((part.dialect for part in self.held if part.kind == "block_open"), "")

    def call(self) -> Token:
        """Return the call's opener; one must be held."""
        return next(part for part in self.held if part.kind == "call_open")

    def before_call(self) -> Iterator[tuple[str, Token]]:
        """Yield what stands before the call, each part with the kind of markup that it is."""
        yield from self.parts(self.held.index(self.call()))

    def parts(self, end: int | None = None) -> Iterator[tuple[str, Token]]:
        """Yield what is held, up to a place, each part with the kind of markup that it is."""
        text = "fence" if self.fence else "space"
        for part in self.held[:end]:
            if part.kind == "block_open":
                text = "space"
            yield {"ticks": "fence", "block_open": "block_open"}.get(part.kind, text), part

    def after_call(self) -> list[Token]:
        """Return what stands after the call's opener."""
        return self.held[self.held.index(self.call()) + 1 :]
