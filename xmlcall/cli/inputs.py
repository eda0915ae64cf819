"""What commands read besides their arguments: texts and tool lists, from files or standard input.

All of it is hostile input: bounded in size, and checked before anything else sees it.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from ..errors import UsageError
from ..schema.validation import check_schema
from ..tools.catalog import Catalog, as_tool
from ..types.calls import Tool
from .exits import complain

_MAX_BYTES = 64 << 20
_SHAPES = '{"tools": [...]}, {"result": {"tools": [...]}} or a list of tools'


def read_bytes(path: str, what: str) -> bytes:
    """Read a file, or standard input for `-`."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise UsageError(f"expected {what} in {path!r}, cannot read it: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > _MAX_BYTES:
        raise UsageError(f"expected {what} of at most {_MAX_BYTES >> 20} MiB in {path!r}, got more")
    return data


def read_text(path: str, what: str) -> str:
    """Read a file, or standard input for `-`, as UTF-8."""
    try:
        return read_bytes(path, what).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"expected {what} as UTF-8 text in {path!r}, got byte {error.start} that is not") from error


def read_tools(path: str) -> Catalog:
    """Read a list of tools: the result of MCP's `tools/list`, whole or in part, or the `tools` of an OpenAI request."""
    text = read_text(path, "a JSON list of tools")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"expected a JSON list of tools in {path!r}, not valid JSON: {error.msg} at {where}") from error
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of more than 4300 digits
        raise UsageError(f"expected a JSON list of tools in {path!r}, cannot read it: {error}") from error
    catalog = Catalog(_tool(entry, path) for entry in _entries(document, path))
    for tool in catalog:
        if problem := check_schema(tool.input_schema):
            raise UsageError(f"{path}: tool {tool.name!r}: {problem}")
    for notice in catalog.notices:
        complain(notice)
    return catalog


def _entries(document: Any, path: str) -> list[Any]:
    if isinstance(document, dict) and isinstance(document.get("result"), dict):
        document = document["result"]
    entries = document.get("tools") if isinstance(document, dict) else document
    if isinstance(entries, list):
        return entries
    got = (
        f"an object with the keys {', '.join(map(repr, list(document)[:8]))}"
        if isinstance(document, dict)
        else "neither a list nor an object"
    )
    raise UsageError(f"expected {_SHAPES} in {path!r}, got {got}")


def _tool(entry: Any, path: str) -> Tool:
    inner = entry.get("function", entry) if isinstance(entry, Mapping) else entry
    if not isinstance(inner, Mapping) or not isinstance(inner.get("description") or "", str):
        raise UsageError(f"expected an MCP or OpenAI tool with text as its description in {path!r}, got {entry!r:.120}")
    return as_tool(entry)
