"""The front door of the core: text -> Reply, calls -> text.

`parse` is the parser and the binding, nothing more. `render` is its inverse and proves it: what it wrote is parsed again, and if
names or arguments differ, it refuses.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import regex

from ..binding.bind import bind
from ..dialects import DIALECTS, Dialect, select
from ..errors import UsageError
from ..tools.catalog import Catalog, Tools
from ..tools.parameters import admits_string, property_schema
from ..types.calls import Repair, Reply, Tool, ToolCall
from ..types.events import Event, ReasoningDelta, Repaired, TextDelta, ToolCallEnd
from .parser import Parser

__all__ = ["beginning", "parse", "render", "reply_of", "write"]

_ENTITIES = {ord("&"): "&amp;", ord("<"): "&#60;", ord(">"): "&#62;"}  # never `&lt;`, with which that format's tags begin
_TAGS = [tag for dialect in DIALECTS.values() for kind, tag in dialect.tags.items() if kind != "json_open"]
# Whatever could be read as structure inside a value, in any dialect, plus the openings of a CDATA section.
_STRUCTURE = regex.compile(r"<!\[CDATA\[|</?param(?:eter)?>|" + "|".join(_TAGS))


def parse(
    text: str,
    tools: Tools = (),
    *,
    dialect: str | Dialect = "auto",
    finish_reason: str = "stop",
    reasoning_open: bool = False,
) -> Reply:
    """Read a model's whole reply.

    Args:
        text: what the model wrote.
        tools: what was offered; without any, arguments stay the strings that were written.
        dialect: a wire format, or `auto` for all.
        finish_reason: the server's; other than `stop` and `tool_calls` counts as cut.
        reasoning_open: the prompt ended in an open `<think>`.

    Returns:
        Visible text, reasoning, calls and repairs.

    Raises:
        UsageError: unknown dialect, or `tools` are not tools; never because of the text.
    """
    catalog = Catalog.of(tools)
    parser = Parser(catalog, dialect=dialect, reasoning_open=reasoning_open)
    return reply_of([*parser.feed(text), *parser.close(finish_reason)], catalog, finish_reason=finish_reason)


def reply_of(events: Iterable[Event], tools: Tools = (), *, finish_reason: str = "stop") -> Reply:
    """Gather a parser's events into a Reply; calls that are not bound yet are bound now.

    Args:
        events: all events of one reply.
        tools: what was offered.
        finish_reason: the server's.
    """
    catalog = Catalog.of(tools)
    events = list(events)
    calls = tuple(event.call or bind(event.raw, catalog) for event in events if isinstance(event, ToolCallEnd))
    conversions = [repair for call in calls if isinstance(call, ToolCall) for repair in call.repairs[len(call.raw.repairs) :]]
    return Reply(
        text="".join(event.text for event in events if isinstance(event, TextDelta)),
        reasoning="".join(event.text for event in events if isinstance(event, ReasoningDelta)),
        calls=calls,
        repairs=(*(Repair(code=event.code, span=event.span) for event in events if isinstance(event, Repaired)), *conversions),
        finish_reason=finish_reason,
    )


def render(calls: Iterable[ToolCall | Mapping[str, Any]], tools: Tools = (), *, dialect: str | Dialect = "function_calls") -> str:
    """Write calls as a model should.

    Args:
        calls: ToolCalls, or `{"name": ..., "arguments": {...}}` as in MCP's `call`.
        tools: the tools they belong to; they decide which values need `type="json"`.
        dialect: the wire format.

    Returns:
        Text for which `parse(text, tools)` gives equal names and arguments.

    Raises:
        UsageError: the dialect cannot carry a call, for example a name with `<` in it.
    """
    chosen = select(dialect)[0]
    catalog = Catalog.of(tools)
    wanted = [_name_and_arguments(call) for call in calls]
    text = write(wanted, catalog, chosen)
    reply = parse(text, catalog, dialect=dialect)
    got = [(call.name, call.arguments) for call in reply.calls if isinstance(call, ToolCall)]
    if got != wanted or len(got) != len(reply.calls):
        reason = next((issue.message for call in reply.calls if not isinstance(call, ToolCall) for issue in call.issues), "")
        raise UsageError(f"these calls cannot be written so that they read back the same: {wanted!r:.200} {reason}".rstrip())
    return text


def write(calls: Iterable[tuple[str, Mapping[str, Any]]], catalog: Catalog, dialect: Dialect) -> str:
    """Write calls without the proof of `render`: for examples, whose values need not satisfy their schemas.

    Args:
        calls: name and arguments of each.
        catalog: the tools they belong to.
        dialect: the wire format.
    """
    invokes = [_call(name, arguments, catalog.get(name), dialect) for name, arguments in calls]
    if "block_open" not in dialect.written or dialect.is_json:
        return "\n".join(invokes)
    return "\n".join([dialect.written["block_open"], *invokes, dialect.written["block_close"]])


def beginning(dialect: Dialect, name: str = "") -> str:
    """Write how a reply with a call begins, up to the tool's name: for a model that is to go on from there.

    Args:
        dialect: the wire format.
        name: of the tool that is to be called, if that is settled.
    """
    block = dialect.written.get("block_open", "")
    call = '{"name": "{name}"' if dialect.is_json else dialect.written["call_open"]
    begun = _filled(call, name) + ("" if dialect.is_json else "\n") if name else call.partition("{name}")[0]
    return f"{block}\n{begun}" if block else begun


def _name_and_arguments(call: ToolCall | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(call, ToolCall):
        return call.name, call.arguments
    return call["name"], dict(call.get("arguments") or {})


def _call(name: str, arguments: Mapping[str, Any], tool: Tool | None, dialect: Dialect) -> str:
    written = dialect.written
    if dialect.is_json:
        lines = [
            written.get("block_open"),
            _json({"name": name, "arguments": dict(arguments)}, dialect),
            written.get("block_close"),
        ]
        return "\n".join(line for line in lines if line)
    if dialect.json_body:
        body = [written["body_open"] + _json(dict(arguments), dialect) + written["parameter_close"]]
    else:
        body = [_parameter(key, value, tool, dialect) for key, value in arguments.items()]
    return "\n".join([_filled(written["call_open"], name), *body, _filled(written["call_close"], name)])


def _parameter(name: str, value: Any, tool: Tool | None, dialect: Dialect) -> str:
    marked = not isinstance(value, str) and bool(dialect.json_written) and _reads_as_string(name, tool)
    opener = _filled(dialect.json_written if marked else dialect.written["parameter_open"], name)
    text = _string(value, dialect) if isinstance(value, str) else _json(value, dialect)
    if dialect.entities:
        text = text.translate(_ENTITIES)
    return f"{opener}{text}{_filled(dialect.written['parameter_close'], name)}"


def _filled(tag: str, name: str) -> str:
    return tag.replace("{name}", name)


def _reads_as_string(name: str, tool: Tool | None) -> bool:
    return tool is None or admits_string(property_schema(tool.input_schema, name), tool.input_schema)


def _json(value: Any, dialect: Dialect) -> str:
    """Write JSON, with `<` escaped where it could be markup."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"expected a JSON value, got {value!r:.80}: {error}") from error
    return text.replace("<", "\\u003c") if _has_structure(text, dialect) else text


def _has_structure(text: str, dialect: Dialect) -> bool:
    """Say whether a value holds what may be a tag; where parameters are elements, anything in `<` may be one."""
    return "<" in text if dialect.parameter_elements else _STRUCTURE.search(text) is not None


def _string(value: str, dialect: Dialect) -> str:
    """Write a string: raw, or as one CDATA section where it could be markup, if only for another dialect."""
    if _has_structure(value, dialect) and not dialect.entities:
        return f"<![CDATA[{value.replace(']]>', ']]]]><![CDATA[>')}]]>"
    before = "\n" if value.startswith(("\n", "\r\n")) else ""
    after = "\n" if value.endswith("\n") else ""
    return f"{before}{value}{after}"
