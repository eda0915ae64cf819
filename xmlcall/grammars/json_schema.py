"""JSON Schemas of calls as JSON objects, for servers that constrain a whole reply to one."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..schema.places import Places
from ..types.tool import Tool

__all__ = ["call_schema", "calls_schema"]


def call_schema(tool: Tool) -> dict[str, Any]:
    """Return the JSON Schema of a call of a tool, `{"name": ..., "arguments": {...}}`.

    Args:
        tool: as a catalog has it; a schema with references moves to the root's definitions.
    """
    return calls_schema([tool], parallel=False)


def calls_schema(tools: Iterable[Tool], *, parallel: bool) -> dict[str, Any]:
    """Return the JSON Schema of a call of one of some tools.

    Args:
        tools: as a catalog has them.
        parallel: whether it is a list of calls, of at least one.
    """
    definitions: dict[str, Any] = {}
    calls = [_call(tool, definitions) for tool in tools]
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    whole = {"type": "array", "items": schema, "minItems": 1} if parallel else schema
    return {**whole, "$defs": definitions} if definitions else whole


def _call(tool: Tool, definitions: dict[str, Any]) -> dict[str, Any]:
    referring = {id(node) for node in Places(tool.input_schema).schemas if isinstance(node.get("$ref"), str)}
    arguments: Any = tool.input_schema
    if referring:
        place = f"tool{len(definitions)}"
        definitions[place] = _moved(tool.input_schema, referring, f"#/$defs/{place}")
        arguments = {"$ref": f"#/$defs/{place}"}
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(node: Any, referring: set[int], place: str) -> Any:
    """Return a schema that stands elsewhere: its references lead to where its parts stand by then."""
    if isinstance(node, list):
        return [_moved(each, referring, place) for each in node]
    if not isinstance(node, Mapping):
        return node
    moved = {key: _moved(each, referring, place) for key, each in node.items()}
    if id(node) in referring and (node["$ref"] == "#" or node["$ref"].startswith("#/")):
        moved["$ref"] = place + node["$ref"][1:]
    return moved
