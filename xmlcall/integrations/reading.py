"""A model's text as the tool parser of an engine gives it on: visible text and calls, whoever runs the model.

Engines (vLLM, SGLang) have a parser for each request: it gets the text piece by piece and says which of it is text and which is
calls. What is the same for all of them is here, and knows no engine.

- A call goes out when it has ended: its name, and its arguments as JSON, by the tool's schema. Its beginning is not sent ahead,
  since nothing can be taken back once it is known that the call does not fit.
- A call that does not fit its tool's schema goes out with its arguments as the model wrote them: whoever runs it checks it and
  tells the model. A call that has no such form (no offered tool has its name, it was cut off, or it has two readings) stays
  visible as text. Both are logged. So no call is lost in silence, and none is guessed.
- No engine tells its parser why a reply ended. So every end counts as a cut: a call that has not been closed is none.
- Thoughts stay text, with their tags: engines have parsers of their own for them, which run before this one.
- White space around calls, and at the end of a reply that has calls, is not text.
"""

import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
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

__all__ = ["CallPiece", "EngineReplyReader", "EngineText", "Piece", "catalog_of", "may_have_calls", "read_whole"]

log = logging.getLogger("xmlcall.integrations")

# Two readings, or two values for one parameter: to take one of them would be a guess that runs.
_GUESSES: Final = frozenset({"ambiguous", "duplicate-argument"})
_LIST_OR_OBJECT: Final = regex.compile(r"(?m)^\s{0,64}[\[{]")  # as a call without any tag begins
_CUT: Final = "length"  # the reason for the end that promises least


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineText:
    """Visible text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPiece:
    """A whole call.

    Args:
        index: its number among the calls that went out, from 0.
        name: of an offered tool.
        arguments: a JSON object.
    """

    index: int
    name: str
    arguments: str


Piece = EngineText | CallPiece


class EngineReplyReader:
    """Reads one reply.

    Args:
        catalog: what the request offers; without any tool, all is text.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._parser = Parser(catalog)
        self._chunks: deque[str] = deque()  # from `_start` on: what events have not covered yet
        self._start = 0
        self._space: list[str] = []  # white space that is text only if text follows
        self._count = 0

    def feed(self, chunk: str) -> list[Piece]:
        """Read more text; return what is certain by now."""
        if not len(self._catalog):
            return [EngineText(text=chunk)] if chunk else []
        self._chunks.append(chunk)
        return _joined(self._pieces(self._parser.feed(chunk)))

    def finish(self) -> list[Piece]:
        """Read the end of the reply; return what was held back."""
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
                    log.warning("the model called %r in thinking that never ended, so nothing was called", name)
            self._covered(event.span[1])

    def _written(self, span: Span) -> str:
        return "".join(self._chunks)[span[0] - self._start : span[1] - self._start]

    def _covered(self, end: int) -> None:
        while self._chunks and self._start + len(self._chunks[0]) <= end:
            self._start += len(self._chunks.popleft())

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
        yield CallPiece(index=self._count, name=call.name, arguments=_json(call.arguments))
        self._count += 1


def _sent(raw: RawCall, catalog: Catalog) -> ToolCall | None:
    """Return a call as it goes out; None if it has no such form."""
    call = bind(raw, catalog)
    if isinstance(call, ToolCall):
        return call
    codes = sorted({issue.code for issue in call.issues})
    written = None if _GUESSES & set(codes) else as_written(call, catalog)
    went = "stays text" if written is None else "is passed on as it was written"
    log.warning("a call of %r does not fit its tool (%s) and %s", call.name, ", ".join(codes), went)
    return written


def _json(arguments: Mapping[str, Any]) -> str:
    """Write JSON that every server can encode: a lone surrogate, which a model can write as an escape, stays one."""
    text = json.dumps(arguments, ensure_ascii=False)
    return text if text.isascii() or _is_unicode(text) else json.dumps(arguments)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbouring texts."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and isinstance(piece, EngineText) and isinstance(joined[-1], EngineText):
            joined[-1] = EngineText(text=joined[-1].text + piece.text)
        else:
            joined.append(piece)
    return joined


def read_whole(text: str, catalog: Catalog) -> tuple[str, list[CallPiece]]:
    """Read a whole reply.

    Args:
        text: what the model wrote.
        catalog: what the request offers.

    Returns:
        The visible text, and the calls in order.
    """
    reader = EngineReplyReader(catalog)
    pieces = [*reader.feed(text), *reader.finish()]
    said = "".join(piece.text for piece in pieces if isinstance(piece, EngineText))
    return said, [piece for piece in pieces if isinstance(piece, CallPiece)]


def may_have_calls(text: str) -> bool:
    """Say whether it is worth while to look for calls: true for every text that has one, and for some that have none.

    Args:
        text: a whole reply; the tools are not known.
    """
    return "<" in text or _LIST_OR_OBJECT.search(text) is not None or attempts_call(text, select("auto"))


def catalog_of(tools: Iterable[Mapping[str, Any]]) -> Catalog:
    """Make a catalog of a request's tools.

    What is no function (a server's own search) is left out, as is a second tool of one name, and one that cannot be read; calls
    of these stay text.

    Args:
        tools: as in OpenAI's chat completions, or as in its Responses.
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
            log.warning("a second tool of the request is named %r; the first one counts", tool.name)
    catalog = Catalog(found.values())
    for notice in catalog.notices:
        log.info("%s", notice)
    return catalog
