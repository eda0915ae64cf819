"""Converts messages, calls and tools to JSON objects and back, so that a conversation can be continued and read later."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, get_args

from ..types.calls import MISSING, Message, RawArgument, RawCall, Role, Tool, ToolCall, ToolReply, Written, WrittenCall

_WRITTEN: Final = {"replies": ToolReply, "calls": WrittenCall}  # fields of `Written`


def message_to_json(message: Message) -> dict[str, Any]:
    """Return a message as a JSON object; fields without a value are left out."""
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [call_to_json(call) for call in message.tool_calls]
    for name in ("tool_call_id", "name", "images"):
        if value := getattr(message, name):
            data[name] = value
    if message.written is not None and message.written.text == message.content:
        data |= {name: [asdict(each) for each in found] for name in _WRITTEN if (found := getattr(message.written, name))}
    return data


def message_from_json(data: Mapping[str, Any]) -> Message:
    """Read what `message_to_json` wrote; raise a ValueError, TypeError or KeyError if this is no message."""
    if not (data["role"] in get_args(Role) and isinstance(data["content"], str)):
        raise ValueError("no message has this role, or no text")
    calls = tuple(call_from_json(call) for call in data.get("tool_calls", ()))
    named = {name: data[name] for name in ("role", "content", "tool_call_id", "name") if name in data}
    found: dict[str, Any] = {name: tuple(make(**each) for each in data.get(name, ())) for name, make in _WRITTEN.items()}
    written = Written(text=data["content"], **found) if any(found.values()) else None
    return Message(tool_calls=calls, images=tuple(data.get("images", ())), written=written, **named)


def call_to_json(call: ToolCall) -> dict[str, Any]:
    """Return a call as a JSON object, with what the model wrote."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "raw": raw_to_json(call.raw)}


def call_from_json(data: Mapping[str, Any]) -> ToolCall:
    """Read a call; an invalid call has no arguments."""
    return ToolCall(id=data["id"], name=data["name"], arguments=data.get("arguments") or {}, raw=raw_from_json(data["raw"]))


def raw_to_json(raw: RawCall) -> dict[str, Any]:
    arguments = [
        {"name": each.name, "text": each.text} | ({} if each.value is MISSING else {"value": each.value})
        for each in raw.arguments
    ]
    return {"index": raw.index, "name": raw.name, "arguments": arguments, "dialect": raw.dialect, "text": raw.text}


def raw_from_json(data: Mapping[str, Any]) -> RawCall:
    arguments = tuple(
        RawArgument(name=each["name"], text=each["text"], value=each.get("value", MISSING)) for each in data["arguments"]
    )
    return RawCall(index=data["index"], name=data["name"], arguments=arguments, dialect=data["dialect"], text=data["text"])


def tool_to_json(tool: Tool) -> dict[str, Any]:
    """Return a tool as `Tool.from_mcp` reads it."""
    data = {"name": tool.name, "title": tool.title, "description": tool.description, "inputSchema": tool.input_schema}
    data |= {"outputSchema": tool.output_schema, "annotations": tool.annotations}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in data.items() if value is not None}
