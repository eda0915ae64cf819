"""What was said in a conversation, read once: each call of it is looked up in what is known of the messages before.

A conversation grows at its end, and messages never change. So what was read of one is kept with its messages, and of a longer one
that begins with the same messages only the others are read. A few conversations are kept, those that were looked up last.

Cost: linear in what was not read before.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from ..binding.provenance import SaidIndex
from ..dialects.replies import said_by_whom
from ..invisible import INVISIBLE
from ..types.calls import Message
from .destinations import even, tokens
from .entries import entries_of

__all__ = ["TURNS", "Told", "ToldResult", "told_in"]

TURNS: Final = re.compile("[0-9][A-Za-z]+[0-9]|[A-Za-z][0-9]+[A-Za-z]")
"""Letters and digits that take turns, as they do in keys."""

_KEPT: Final = 4  # conversations, in this process
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{8,}")
_ESCAPE: Final = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|[bfnrt/\"\\])")  # of JSON
_BLANKS: Final = dict.fromkeys("bfnrt", " ")
_HIDDEN: Final = re.compile(f"{INVISIBLE.pattern}{{8,}}")  # longer than what emoji need


@dataclass(frozen=True)
class ToldResult:
    """A result, and what is known of it once it was asked for."""

    tool: str
    raw: str

    @cached_property
    def text(self) -> str:
        """The text, even and in small letters; if it has escapes of JSON, then once more without: a name may stand behind one."""
        plain = _ESCAPE.sub(_unescaped, self.raw)
        return even(self.raw if plain == self.raw else f"{self.raw}\n{plain}").lower()

    @cached_property
    def hides(self) -> bool:
        """Whether it has characters that only a model reads."""
        return _HIDDEN.search(self.raw) is not None

    @cached_property
    def keys(self) -> str:
        """The runs of letters and digits that may be of a key, each closed up, with a blank between them."""
        runs = (re.sub("[_-]", "", match[0]) for match in _KEY.finditer(self.raw))
        return " ".join(run for run in runs if TURNS.search(run))

    @cached_property
    def entries(self) -> frozenset[str]:
        """What stands in it as an entry of its own, not in running text."""
        return entries_of(self.raw)


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape["code"], 16)) if escape["code"] else _BLANKS.get(escape[0][1], escape[0][1])


@dataclass(slots=True)
class Told:
    """A conversation as far as it was read.

    Args:
        own: what the person and the program said, even and in small letters.
    """

    messages: list[Message] = field(default_factory=list)
    index: SaidIndex = field(default_factory=SaidIndex)
    own: str = ""
    own_words: set[str] = field(default_factory=set)
    own_run: str = ""
    results: list[ToldResult] = field(default_factory=list)
    called: dict[str, str] = field(default_factory=dict)

    def begins(self, conversation: Sequence[Message]) -> bool:
        """Say whether a conversation goes on from what was read."""
        return len(self.messages) <= len(conversation) and all(map(_is_same, self.messages, conversation))

    def read(self, conversation: Sequence[Message]) -> None:
        """Read what has come since."""
        start, own = len(self.messages), [self.own]
        for place, role, tool, text in said_by_whom(conversation[start:], self.called):
            self.index.add_said(start + place, role, tool, text)
            if tool is not None:
                self.results.append(ToldResult(tool, text))
            elif role in ("user", "system"):
                own.append(even(text).lower())
        self.messages += conversation[start:]
        runs = [*tokens("\n".join(own[1:]))]
        self.own = "\n".join(own)
        self.own_words.update(runs)
        self.own_run += "".join(runs)


def _is_same(one: Message, other: Message) -> bool:
    """Say whether two messages say the same, and were written from the same."""
    return one is other or (one == other and one.written == other.written)


_known: OrderedDict[int, Told] = OrderedDict()


def told_in(conversation: Sequence[Message]) -> Told:
    """Return what was said in a conversation; only what was not read before is read."""
    fitting = [told for told in [*_known.values()] if told.begins(conversation)]
    told = max(fitting, key=lambda told: len(told.messages), default=Told())
    if _known.pop(id(told), None) is None:  # it is read elsewhere just now
        told = Told()
    told.read(conversation)
    _known[id(told)] = told
    while len(_known) > _KEPT:
        _known.popitem(last=False)
    return told
