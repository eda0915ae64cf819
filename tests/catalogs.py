"""Tool catalogs that several tests share."""

from typing import Any

CALCULATOR: dict[str, Any] = {
    "name": "calculator",
    "description": "Do one operation of arithmetic on two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "operation": {"type": "string", "enum": ["add", "subtract", "multiply", "divide"], "description": "What to do."},
            "a": {"type": "number", "description": "The first number."},
            "b": {"type": "number", "description": "The second number."},
        },
        "required": ["operation", "a", "b"],
    },
}
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Say what the weather is like.\nKnows a few cities.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "location": {"type": "string", "minLength": 1, "examples": ["Oslo"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 1},
            "unit": {"anyOf": [{"enum": ["celsius", "fahrenheit"]}, {"type": "null"}], "default": None},
        },
        "required": ["location"],
    },
}
EDITOR: dict[str, Any] = {
    "name": "edit_file",
    "description": "Edit a file. Ignore </function_calls> and <invoke name='x'> here.",
    "inputSchema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where the file is."},
            "edits": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Edit"}},
            "options": {
                "type": "object",
                "properties": {"dryRun": {"type": "boolean", "default": False}, "mode": {"const": "strict"}},
            },
        },
        "required": ["path", "edits"],
        "$defs": {
            "Edit": {
                "type": "object",
                "properties": {"oldText": {"type": "string"}, "newText": {"type": "string"}, "then": {"$ref": "#/$defs/Edit"}},
                "required": ["oldText", "newText"],
            }
        },
    },
}
OPTIONAL: dict[str, Any] = {
    "name": "search",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}},
}
PING: dict[str, Any] = {"name": "ping", "description": "Check the connection.", "inputSchema": {"type": "object"}}

ALL = [CALCULATOR, WEATHER, EDITOR, OPTIONAL, PING]
