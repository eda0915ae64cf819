"""Split a model's text into visible text and calls, for the tool parser of any inference engine.

Engines (vLLM, SGLang) make a parser for each request, which gets the text piece by piece and separates text from calls. This
module holds the engine-independent part.

- A call goes out when it has ended, with its name and with its arguments as JSON, typed by the tool's schema. Its beginning is
  not sent ahead, because it could not be taken back if the call turned out not to fit.
- A call that does not fit its tool's schema goes out with its arguments as the model wrote them, because the program that runs it
  checks it and informs the model. A call without such a form (its tool is not offered, it was cut off, or it has two readings)
  stays visible as text. Both cases are logged. So no call is lost silently, and none is guessed.
- Engines do not report to their parser why a reply ended. So every end counts as a cut: a call that was not closed is not a call.
- Reasoning stays text, with its tags, because engines have parsers of their own for it, which run before this one.
- White space around calls, and at the end of a reply with calls, is not text.
"""

import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import regex

from xmlcall.binding.bind import as_written, bind
from xmlcall.dialects import select
from xmlcall.dialects.call_signs import attempts_call
from xmlcall.errors import UsageError
from xmlcall.parsing.parser import Parser
from xmlcall.tools.catalog import Catalog, as_tool
from xmlcall.types.calls import RawCall, Span, Tool, ToolCall
from xmlcall.types.events import CallInReasoning, Event, Markup, ReasoningDelta, TextDelta, ToolCallEnd

log = logging.getLogger("xmlcall.integrations")

# Two readings, or two values for one parameter: choosing one would be running a guess.
_GUESSES: Final = frozenset({"ambiguous", "duplicate-argument"})
_LIST_OR_OBJECT: Final = regex.compile(r"(?m)^\s{0,64}[\[{]")  # the beginning of a call without any tag
_CUT: Final = "length"  # the safest assumption about why the reply ended


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineText:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCall:
    """A whole call, its arguments as a JSON object; `index` counts the calls that went out, from 0."""

    index: int
    name: str
    arguments: str


Piece = EngineText | EngineCall


class EngineReplyReader:
    """Reads one reply; if the request offers no tools, everything is text."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._parser = Parser(catalog)
        self._chunks: deque[str] = deque()  # the text from `_start` on, which events have not covered yet
        self._start = 0
        self._space: list[str] = []  # white space that is text only if text follows
        self._count = 0

    def feed(self, chunk: str) -> list[Piece]:
        """Read more text and return what is certain so far."""
        if not len(self._catalog):
            return [EngineText(text=chunk)] if chunk else []
        self._chunks.append(chunk)
        return _joined(self._pieces(self._parser.feed(chunk)))

    def finish(self) -> list[Piece]:
        """Read the end of the reply and return what was held back."""
        if not len(self._catalog):
            return []
        pieces = list(self._pieces(self._parser.close(_CUT)))
        if self._space and not self._count:
            pieces.append(EngineText(text="".join(self._space)))
        return _joined(pieces)

    def _pieces(self, events: Iterable[Event]) -> Iterator[Piece]:
        for event in events:
            match event:
                case TextDelta(text=text):
                    yield from self._said(text)
                case ReasoningDelta(span=span) | Markup(kind="reasoning", span=span):
                    yield from self._said(self._written(span))
                case Markup(kind="stray", span=span) if "think" in self._written(span):  # the prompt had opened it
                    yield from self._said(self._written(span))
                case ToolCallEnd(raw=raw):
                    yield from self._called(raw)
                case CallInReasoning(name=name):
                    log.warning("the model called %r only in its thinking, so nothing was called", name)
            while self._chunks and self._start + len(self._chunks[0]) <= event.span[1]:
                self._start += len(self._chunks.popleft())

    def _written(self, span: Span) -> str:
        return "".join(self._chunks)[span[0] - self._start : span[1] - self._start]

    def _said(self, text: str) -> Iterator[Piece]:
        kept = text.rstrip()
        if kept:
            yield EngineText(text="".join([*self._space, kept]))
            self._space.clear()
        self._space.append(text[len(kept) :])

    def _called(self, raw: RawCall) -> Iterator[Piece]:
        call = _sent(raw, self._catalog)
        if call is None:
            yield from self._said(raw.text)
            return
        self._space.clear()
        yield EngineCall(index=self._count, name=call.name, arguments=_json(call.arguments))
        self._count += 1


def _sent(raw: RawCall, catalog: Catalog) -> ToolCall | None:
    """Return a call as it goes out; None if it must stay text."""
    call = bind(raw, catalog)
    if isinstance(call, ToolCall):
        return call
    codes = sorted({issue.code for issue in call.issues})
    written = None if _GUESSES & set(codes) else as_written(call, catalog)
    outcome = "stays text" if written is None else "is passed on as it was written"
    log.warning("a call of %r does not fit its tool (%s) and %s", call.name, ", ".join(codes), outcome)
    return written


def _json(arguments: Mapping[str, Any]) -> str:
    """Write JSON that every server can encode: a lone surrogate, which a model can write as an escape, stays escaped."""
    text = json.dumps(arguments, ensure_ascii=False)
    return json.dumps(arguments) if regex.search("[\ud800-\udfff]", text) else text


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        if joined and isinstance(piece, EngineText) and isinstance(joined[-1], EngineText):
            joined[-1] = EngineText(text=joined[-1].text + piece.text)
        else:
            joined.append(piece)
    return joined


def read_whole(text: str, catalog: Catalog) -> tuple[str, list[EngineCall]]:
    """Read a whole reply: return its visible text, and its calls in order."""
    reader = EngineReplyReader(catalog)
    return split([*reader.feed(text), *reader.finish()])


def split(pieces: Sequence[Piece]) -> tuple[str, list[EngineCall]]:
    said = "".join(piece.text for piece in pieces if isinstance(piece, EngineText))
    return said, [piece for piece in pieces if isinstance(piece, EngineCall)]


def may_have_calls(text: str) -> bool:
    """Return whether a reply may have calls: true for every text with a call, and for some without any."""
    return "<" in text or _LIST_OR_OBJECT.search(text) is not None or attempts_call(text, select("auto"))


def catalog_of(tools: Iterable[Mapping[str, Any]]) -> Catalog:
    """Make a catalog of a request's tools, as OpenAI's chat completions or its Responses write them.

    Skips tools that are not functions (a server's own search), a second tool of the same name, and tools that cannot be read;
    calls to them stay text.
    """
    found: dict[str, Tool] = {}
    for each in tools:
        if each.get("type", "function") != "function":
            continue
        try:
            tool = as_tool({"parameters": None, **each} if "function" not in each else each)
        except UsageError as error:
            log.warning("a tool of the request is left out: %s", error)
            continue
        if found.setdefault(tool.name, tool) is not tool:
            log.warning("the request has two tools named %r; the first one is used", tool.name)
    catalog = Catalog(found.values())
    for notice in catalog.notices:
        log.info("%s", notice)
    return catalog
