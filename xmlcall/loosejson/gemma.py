"""Objects in the notation of Gemma 4 and FunctionGemma -> values: `{city:<|"|>Paris<|"|>,days:3,tags:[<|"|>a<|"|>]}`.

A string is between two marks (`<|"|>`, or `<escape>`) and has no escapes, so it may hold anything else; one in double quotes
is JSON. Keys are bare or a string. Repairs are single quotes, an equals sign for the colon, and no comma before a key. Round
brackets may surround all of it. A scalar without quotes is JSON, if it is; else it is a string that lacks its marks, which is
a repair, too. Its text is kept, because a schema may ask for a string: `zip:02134`.

Cost: linear; nesting is a list.
"""

import re
from typing import Any

from ..types.calls import MISSING
from .machine import MAX_DEPTH, Frame, LooseCall
from .reader import strict
from .strings import Refused

_PATTERN = r"""(?P<space>\s++)
      | <\|"\|>(?P<marked>.*?)<\|"\|>
      | <escape>(?P<escaped>.*?)<escape>
      | (?P<quoted>"(?:[^"\\]|\\.)*+")
      | '(?P<single>(?:[^'\\]|\\.)*+)'(?=\s*+(?:[]},)]|\Z))
      | (?P<mark>[{}\[\],:ROUND])
      | (?P<bare>[^\s{}\[\],:<"ROUND][^{}\[\],:<"ROUND]*+)
      | (?P<end>\Z)
      | (?P<other>.)"""
_TOKEN = re.compile(_PATTERN.replace("ROUND", ""), re.VERBOSE | re.DOTALL)
_ROUND_TOKEN = re.compile(_PATTERN.replace("ROUND", "()"), re.VERBOSE | re.DOTALL)
_EQUALS = re.compile(r"(?P<key>[A-Za-z_][\w.\-]{0,127})\s{0,4}=")
_KEY = re.compile(r"[A-Za-z_][\w.\-]{0,127}\s{0,4}[:=]")
_STRINGS = frozenset({"marked", "escaped", "quoted", "single"})
_ESCAPE = re.compile(r"\\(['\\])")


def read_gemma(text: str) -> list[LooseCall]:
    """Read one object, the arguments of a call; `texts` has the outermost values without quotes."""
    reader = _GemmaReader(text)
    return [LooseCall(name="", arguments=reader.run(), texts=reader.texts, repairs=tuple(reader.repairs))]


class _GemmaReader:
    """Reads one text; `_kind`, `_word` and `_start` are the token that comes next."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = self._start = 0
        self._token = _ROUND_TOKEN if text.startswith("(") else _TOKEN
        self._kind = self._word = ""
        self.texts: dict[str, str] = {}
        self.repairs: list[str] = []
        self._advance()

    def run(self) -> dict[str, Any]:
        """Return the values of the object."""
        if not self._is("{") and not self._is("("):
            raise Refused(self._start, "an object in { and }")
        closer = "}" if self._is("{") else ")"
        whole = Frame("{", self._start, closer=closer)
        stack = [whole]
        self._advance()
        self._begin(stack)
        while stack:
            self._member(stack)
        if self._kind != "end":
            raise Refused(self._start, "nothing after the object")
        return whole.members

    def _begin(self, stack: list[Frame]) -> None:
        """Read what comes first in a bracket: a key, an item, or its end."""
        if self._is(stack[-1].closer):
            self._close(stack)
        elif stack[-1].opener == "{":
            self._key(stack[-1])

    def _member(self, stack: list[Frame]) -> None:
        if self._kind == "mark" and self._word in "{[":
            if len(stack) == MAX_DEPTH:
                raise Refused(self._start, f"at most {MAX_DEPTH} levels")
            stack.append(Frame(self._word, self._start))
            self._advance()
            self._begin(stack)
            return
        stack[-1].put(self._scalar(stack))
        self._after(stack)

    def _after(self, stack: list[Frame]) -> None:
        frame = stack[-1]
        closer = frame.closer
        if self._is(","):
            self._advance()
            if not self._is(closer):
                if frame.opener == "{":
                    self._key(frame)
                return
        if not self._is(closer):
            if frame.opener != "{" or not _KEY.match(self._text, self._start):
                raise Refused(self._start, f"a comma or {closer}")
            self.repairs.append("json-missing-comma")
            self._key(frame)
            return
        self._close(stack)

    def _close(self, stack: list[Frame]) -> None:
        frame = stack.pop()
        self._advance()
        if stack:
            stack[-1].put(frame.value)
            self._after(stack)

    def _key(self, frame: Frame) -> None:
        if self._kind != "bare" and self._kind not in _STRINGS:
            raise Refused(self._start, "a key")
        start, frame.key = self._start, self._word
        if self._kind == "bare" and (sign := _EQUALS.match(self._text, start)):
            self.repairs.append("json-equals-sign")
            frame.key, self._position = sign["key"], sign.end()
            self._kind, self._word = "mark", ":"
        else:
            self._advance()
        if frame.key in frame.members:
            raise Refused(start, "a key once", "ambiguous")
        if not self._is(":"):
            raise Refused(self._start, "a colon after the key")
        self._advance()

    def _scalar(self, stack: list[Frame]) -> Any:
        kind, word = self._kind, self._word
        if kind not in _STRINGS and kind != "bare":
            raise Refused(self._start, "a value")
        value: Any = word if kind in _STRINGS else self._bare(word)
        if kind == "bare" and len(stack) == 1:
            self.texts[stack[0].key] = value if isinstance(value, str) else word
        self._advance()
        return value

    def _bare(self, word: str) -> Any:
        value = strict(word)
        if value is not MISSING:
            return value
        if len(word) > 1 and word[0] == word[-1] == "'":
            self.repairs.append("json-single-quotes")
            return word[1:-1]
        self.repairs.append("bare-string")
        return word

    def _is(self, mark: str) -> bool:
        return self._kind == "mark" and self._word == mark

    def _advance(self) -> None:
        while True:
            found = self._token.match(self._text, self._position)
            assert found  # `other` takes any character
            self._start, self._position = found.span()
            self._kind = str(found.lastgroup)
            self._word = found[self._kind].rstrip() if self._kind == "bare" else found[self._kind]
            if self._kind == "quoted":
                value = strict(self._word)
                if not isinstance(value, str):
                    raise Refused(self._start, "a string as JSON writes it")
                self._word = value
            elif self._kind == "single":
                self._word = _ESCAPE.sub(r"\1", self._word)
                self.repairs.append("json-single-quotes")
            if self._kind != "space":
                return
