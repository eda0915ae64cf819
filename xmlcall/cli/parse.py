"""`xmlcall parse`: a model's text -> the reply, for people or as JSON, or piece by piece.

`--explain` puts each event beside the text that it is about. The spans of the events tile the reply, so the pieces put together
are the reply. A repair is a remark on a place; it appears where it was noticed, without text of its own. So do the arguments of a
call, as they are bound to the tools, and why it cannot run.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..binding.bind import bind
from ..errors import REPAIRS, UsageError
from ..parsing.parser import Parser, parse
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, Reply, Span
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
from .plain import arguments_text, json_text, shortened, visible
from .words import issue_line

DESCRIPTION = (
    "Parse the tool calls in a model's text. Prints text, calls and repairs, and why a call cannot run. Exits with 0 also then."
)
EPILOG = """examples:
  xmlcall parse reply.txt
  xmlcall tools --json > tools.json
  curl ... | jq -r '.choices[0].message.content' | xmlcall parse --tools tools.json --json | jq '.calls[].arguments'
  xmlcall parse reply.txt --explain
"""

_LONGEST: Final = 60  # characters of a piece in a line; a longer one is shown by its two ends
_RESPONSES: Final = {
    ("choices", "model"): ".choices[0].message.content",
    ("message", "done"): ".message.content",
    ("response", "done"): ".response",
    ("content", "stop_reason"): ".content[].text // empty",
    ("output", "object"): ".output[].content[]?.text // empty",
}
"""Fields of a response of OpenAI, of Ollama (two), of Anthropic and of OpenAI's Responses -> where its text is, for jq."""
_REMARKS: Final = (Repaired, CallInReasoning)
_LINES, _WIDTH = 20, 400  # shown of the model's text, and of its reasoning


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="the model's text (default: -, standard input)")
    parser.add_argument(
        "--tools",
        metavar="FILE",
        help="the offered tools, as MCP's tools/list or OpenAI's tools; they give the types of arguments",
    )
    parser.add_argument(
        "--explain", action="store_true", help="label each piece instead, one per line: text, reasoning, markup, value, repair"
    )
    parser.add_argument("--json", action="store_true", help="print the reply as one JSON object, or with --explain the pieces")
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
    tools = read_tools(options.tools) if options.tools else Catalog()
    text = _text(options.file)
    if options.explain:
        _explain(options, text, tools)
        return OK
    reply = parse(
        text, tools, dialect=options.dialect, finish_reason=options.finish_reason, reasoning_open=options.reasoning_open
    )
    print(json_text(reply) if options.json else "\n".join(_reply_lines(reply)))
    return OK


def _text(path: str) -> str:
    text = read_bytes(path, "a model's text").decode("utf-8", "replace")
    try:
        found, end = json.JSONDecoder().raw_decode(text.strip())
    except (ValueError, RecursionError):
        return text
    where = next((where for keys, where in _RESPONSES.items() if isinstance(found, dict) and {*keys} <= found.keys()), "")
    if where and text.strip()[end:].lstrip()[:1] in ("", "{"):  # a stream has an object in each line
        raise UsageError(
            f"expected a model's text in {path!r}, got the JSON of a whole response: pass its text, by `jq -rj '{where}'` "
            "(the server has read the calls that stand beside it)"
        )
    return text


def _reply_lines(reply: Reply) -> Iterator[str]:
    for label, text in (("reasoning", reply.reasoning), ("text", reply.text)):
        if text.strip():
            yield _row(label, shortened(text, lines=_LINES, width=_WIDTH))
    repairs = [*reply.repairs]
    for number, call in enumerate(reply.calls, start=1):
        yield _row(f"call {number}", f"{visible(call.name)}({arguments_text(call, width=_WIDTH)})  {visible(call.raw.dialect)}")
        if isinstance(call, InvalidCall):
            yield from (_row("", f"cannot run: {issue_line(issue)}") for issue in call.issues)
        repairs += call.raw.repairs if isinstance(call, InvalidCall) else call.repairs
    if not reply.calls:
        yield _row("calls", "none")
    yield from (_row("repaired", f"{code}: {REPAIRS[code]}") for code in dict.fromkeys(repair.code for repair in repairs))
    if reply.finish_reason != "stop":
        yield _row("ended by", visible(reply.finish_reason))


def _row(label: str, text: str) -> str:
    return f"{label:<10} {text}".replace("\n", "\n" + " " * 11).rstrip()


def _explain(options: argparse.Namespace, text: str, tools: Catalog) -> None:
    parser = Parser(tools, dialect=options.dialect, reasoning_open=options.reasoning_open)
    events = coalesce([*parser.feed(text), *parser.close(options.finish_reason)])
    pieces = list(_explained(text, events, tools))
    print(json_text(pieces) if options.json else "\n".join(_piece_lines(pieces)))


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
    ToolCallEnd: ("end of call", lambda event: ", ".join([event.raw.name, *(issue.code for issue in event.raw.issues)])),
    Repaired: ("repair", lambda event: event.code),
    CallInReasoning: ("lost call", lambda event: f"{event.name}: the reasoning has no end"),
}


def _explained(text: str, events: Iterable[Event], tools: Catalog) -> Iterator[Piece]:
    for event in events:
        kind, about = _KINDS[type(event)]
        piece = "" if isinstance(event, _REMARKS) else text[slice(*event.span)]
        yield Piece(kind=kind, about=about(event), text=piece, span=event.span)
        if isinstance(event, ToolCallEnd) and len(tools):
            for kind, words in _bound(event, tools):
                yield Piece(kind=kind, about=words, text="", span=event.raw.span)


def _bound(end: ToolCallEnd, tools: Catalog) -> Iterator[tuple[str, str]]:
    """Bind a call, and yield the outcome as kind and words: its arguments and conversions, or why it cannot run."""
    call = bind(end.raw, tools)
    if isinstance(call, InvalidCall):
        yield from (("cannot run", issue_line(issue)) for issue in call.issues)
        return
    yield "runs as", f"{visible(call.name)}({arguments_text(call, width=_WIDTH)})"
    yield from (("repair", visible(f"{each.code} {each.path}".strip())) for each in call.repairs if each not in end.raw.repairs)


def _piece_lines(pieces: Iterable[Piece]) -> Iterator[str]:
    for piece in pieces:
        start, end = piece.span
        shown = _shown(piece.text) if piece.text else ""
        yield f"{start:>6} {end:>6}  {piece.kind:<11}  {piece.about:<28}  {shown}".rstrip()


def _shown(text: str) -> str:
    half = _LONGEST // 2
    short = text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"
    return ascii(short) if not short.isprintable() and not short.isascii() else repr(short)
