"""Messages, calls and tools as JSON objects, and back, so that a conversation can be gone on with and read again."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..types.calls import MISSING, Message, RawArgument, RawCall, Tool, ToolCall
from ..types.conversation import ToolReply, Written

__all__ = [
    "call_from_json",
    "call_to_json",
    "message_from_json",
    "message_to_json",
    "raw_from_json",
    "raw_to_json",
    "tool_to_json",
]


def message_to_json(message: Message) -> dict[str, Any]:
    """Return a message as a JSON object; fields without a value are left out.

    Args:
        message: of a conversation.
    """
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        told["tool_calls"] = [call_to_json(call) for call in message.tool_calls]
    for name in ("tool_call_id", "name", "images"):
        if value := getattr(message, name):
            told[name] = value
    if message.written is not None and message.written.replies and message.written.text == message.content:
        told["replies"] = [asdict(reply) for reply in message.written.replies]
    return told


def message_from_json(told: Mapping[str, Any]) -> Message:
    """Read what `message_to_json` wrote.

    Args:
        told: the object.
    """
    calls = tuple(call_from_json(call) for call in told.get("tool_calls", ()))
    named = {name: told[name] for name in ("role", "content", "tool_call_id", "name") if name in told}
    replies = tuple(ToolReply(**reply) for reply in told.get("replies", ()))
    written = Written(text=told["content"], replies=replies) if replies else None
    return Message(tool_calls=calls, images=tuple(told.get("images", ())), written=written, **named)


def call_to_json(call: ToolCall) -> dict[str, Any]:
    """Return a call as a JSON object, with what the model wrote.

    Args:
        call: as bound.
    """
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "raw": raw_to_json(call.raw)}


def call_from_json(told: Mapping[str, Any]) -> ToolCall:
    """Read a call; one that could not be read has no arguments.

    Args:
        told: as `call_to_json` wrote it.
    """
    return ToolCall(id=told["id"], name=told["name"], arguments=told.get("arguments") or {}, raw=raw_from_json(told["raw"]))


def raw_to_json(raw: RawCall) -> dict[str, Any]:
    """Return a call as the model wrote it, as a JSON object.

    Args:
        raw: not yet bound.
    """
    arguments = [
        {"name": each.name, "text": each.text} | ({} if each.value is MISSING else {"value": each.value})
        for each in raw.arguments
    ]
    return {"index": raw.index, "name": raw.name, "arguments": arguments, "dialect": raw.dialect, "text": raw.text}


def raw_from_json(told: Mapping[str, Any]) -> RawCall:
    """Read a call as the model wrote it.

    Args:
        told: the object.
    """
    arguments = tuple(
        RawArgument(name=each["name"], text=each["text"], value=each.get("value", MISSING)) for each in told["arguments"]
    )
    return RawCall(index=told["index"], name=told["name"], arguments=arguments, dialect=told["dialect"], text=told["text"])


def tool_to_json(tool: Tool) -> dict[str, Any]:
    """Return a tool as `Tool.from_mcp` reads it.

    Args:
        tool: as offered.
    """
    told = {"name": tool.name, "title": tool.title, "description": tool.description, "inputSchema": tool.input_schema}
    told |= {"outputSchema": tool.output_schema, "annotations": tool.annotations}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in told.items() if value is not None}
