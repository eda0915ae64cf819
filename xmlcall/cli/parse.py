"""`xmlcall parse`: a model's text -> the reply, or the parser's events, as JSON.

`--explain` puts each event beside the text that it is about. The spans of the events tile the reply, so the pieces put together
are the reply. A repair is a remark on a place; it appears where it was noticed, without text of its own.
"""

import argparse
import codecs
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..errors import UsageError
from ..parsing.parser import Parser
from ..parsing.reply import parse
from ..tools.catalog import Catalog
from ..types.calls import Span
from ..types.events import (
    CallInReasoning,
    Event,
    Markup,
    ReasoningDelta,
    Repaired,
    TextDelta,
    ToolArgumentDelta,
    ToolCallEnd,
    ToolCallStart,
    coalesce,
)
from .exits import OK
from .inputs import read_bytes, read_tools
from .plain import json_text

DESCRIPTION = (
    "Parse the tool calls in a model's text. Prints the reply as one JSON object, with the reasons for calls that cannot run."
)
EPILOG = """examples:
  xmlcall parse reply.txt
  xmlcall tools --json > tools.json
  curl ... | xmlcall parse --tools tools.json
  ollama run gemma3 "..." | xmlcall parse --events
  xmlcall parse reply.txt --explain
"""

_LONGEST: Final = 60  # characters of a piece in a line; a longer one is shown by its two ends
_REMARKS: Final = (Repaired, CallInReasoning)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="the model's text (default: -, standard input)")
    parser.add_argument(
        "--tools",
        metavar="FILE",
        help="the offered tools, as MCP's tools/list or OpenAI's tools; they give the types of arguments",
    )
    parser.add_argument("--events", action="store_true", help="print the parser's events instead, one per line, as text arrives")
    parser.add_argument(
        "--explain", action="store_true", help="label each piece instead, one per line: text, reasoning, markup, value, repair"
    )
    parser.add_argument("--json", action="store_true", help="with --explain: the pieces as JSON")
    parser.add_argument(
        "--dialect", default="auto", help="the wire format, or a file with a row of one (default: %(default)s, any of them)"
    )
    parser.add_argument(
        "--finish-reason",
        default="stop",
        metavar="REASON",
        help="the server's finish reason; length means a cut reply (default: %(default)s)",
    )
    parser.add_argument("--reasoning-open", action="store_true", help="the prompt ended in an open <think>")


def execute(options: argparse.Namespace) -> int:
    if options.json and not options.explain:
        raise UsageError("--json is only for --explain: without it, the reply is printed as JSON anyway")
    tools = read_tools(options.tools) if options.tools else Catalog()
    if options.events:
        _print_events(options, tools)
        return OK
    text = read_bytes(options.file, "a model's text").decode("utf-8", "replace")
    if options.explain:
        _explain(options, text, tools)
        return OK
    reply = parse(
        text, tools, dialect=options.dialect, finish_reason=options.finish_reason, reasoning_open=options.reasoning_open
    )
    print(json_text(reply))
    return OK


def _explain(options: argparse.Namespace, text: str, tools: Catalog) -> None:
    parser = Parser(tools, dialect=options.dialect, reasoning_open=options.reasoning_open)
    events = coalesce([*parser.feed(text), *parser.close(options.finish_reason)])
    pieces = list(_explained(text, events))
    print(json_text(pieces) if options.json else "\n".join(_piece_lines(pieces)))


def _print_events(options: argparse.Namespace, tools: Catalog) -> None:
    parser = Parser(tools, dialect=options.dialect, reasoning_open=options.reasoning_open)
    for text in _pieces(options.file):
        _print(parser.feed(text))
    _print(parser.close(options.finish_reason))


def _pieces(path: str) -> Iterator[str]:
    """Give the text as it comes, so that events can be watched while a model writes."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    if path != "-":
        yield decoder.decode(read_bytes(path, "a model's text"), final=True)
        return
    while data := os.read(sys.stdin.fileno(), 1 << 16):
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


def _print(events: list[Event]) -> None:
    for event in events:
        print(json_text(event, indent=None), flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a reply; `--json` gives its name, as of every dataclass."""

    kind: str
    about: str  # the kind of markup, the tool, the parameter, the code
    text: str
    span: Span


_KINDS: Final[dict[type[Any], tuple[str, Callable[[Any], str]]]] = {
    TextDelta: ("text", lambda event: ""),
    ReasoningDelta: ("reasoning", lambda event: ""),
    Markup: ("markup", lambda event: event.kind),
    ToolCallStart: ("call", lambda event: f"{event.name}, {event.dialect}"),
    ToolArgumentDelta: ("value", lambda event: event.parameter or "all arguments"),
    ToolCallEnd: ("end of call", lambda event: _end(event)),
    Repaired: ("repair", lambda event: event.code),
    CallInReasoning: ("lost call", lambda event: f"{event.name}: the reasoning has no end"),
}


def _explained(text: str, events: Iterable[Event]) -> Iterator[Piece]:
    for event in events:
        kind, about = _KINDS[type(event)]
        piece = "" if isinstance(event, _REMARKS) else text[slice(*event.span)]
        yield Piece(kind=kind, about=about(event), text=piece, span=event.span)


def _end(event: ToolCallEnd) -> str:
    codes = [issue.code for issue in event.raw.issues]
    return ", ".join([event.raw.name, *codes] if codes else [event.raw.name])


def _piece_lines(pieces: Iterable[Piece]) -> Iterator[str]:
    for piece in pieces:
        start, end = piece.span
        shown = _shown(piece.text) if piece.text else ""
        yield f"{start:>6} {end:>6}  {piece.kind:<11}  {piece.about:<28}  {shown}".rstrip()


def _shown(text: str) -> str:
    """Write a text in one line, with what cannot be seen escaped."""
    half = _LONGEST // 2
    short = text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"
    return ascii(short) if not short.isprintable() and not short.isascii() else repr(short)
