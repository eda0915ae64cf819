"""The JSON Schema of a call as a JSON object, for servers that constrain a whole reply to one."""

from collections.abc import Mapping
from typing import Any, Final

from ..types.tool import Tool
from .places import Places

__all__ = ["call_schema"]

_PLACE: Final = "#/$defs/arguments"  # of a schema with references: these count from the root of a document


def call_schema(tool: Tool) -> dict[str, Any]:
    """Return the JSON Schema of a call of a tool, `{"name": ..., "arguments": {...}}`.

    Args:
        tool: as a catalog has it; a schema with references moves to the root's definitions.
    """
    arguments: Any = tool.input_schema
    definitions: dict[str, Any] = {}
    referring = {id(node) for node in Places(tool.input_schema).schemas if isinstance(node.get("$ref"), str)}
    if referring:
        definitions = {"$defs": {"arguments": _moved(tool.input_schema, referring)}}
        arguments = {"$ref": _PLACE}
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
        **definitions,
    }


def _moved(node: Any, referring: set[int]) -> Any:
    """Return a schema that stands elsewhere: its references lead to where its parts stand by then."""
    if isinstance(node, list):
        return [_moved(each, referring) for each in node]
    if not isinstance(node, Mapping):
        return node
    moved = {key: _moved(each, referring) for key, each in node.items()}
    if id(node) in referring and (node["$ref"] == "#" or node["$ref"].startswith("#/")):
        moved["$ref"] = _PLACE + node["$ref"][1:]
    return moved
