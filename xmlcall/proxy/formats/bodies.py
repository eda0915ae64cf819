"""Shared code of the formats for reading bodies: validation, contents made of parts, calls in a history.

Bodies are untrusted input, so a pydantic model validates each one; the model also describes it in the app's OpenAPI document. A
field that the proxy does not know is kept, and sent on if the caller and the model server use the same format.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ...errors import UsageError
from ...types.calls import RawCall, Tool, ToolCall
from .contract import ApiError

SHOWN_CHARACTERS = 80  # how much of a wrong value an error shows
TOOL_LIMIT = 1000  # as many as one MCP server may list

B = TypeVar("B", bound=BaseModel)

Parts = str | list[dict[str, Any]] | None  # a message's content, as most formats have it


class JsonBody(BaseModel):
    """A JSON object of a request: known fields have their types, others are kept."""

    model_config = ConfigDict(extra="allow", strict=True)


def read_body(kind: type[B], data: Mapping[str, Any]) -> B:
    """Validate a body."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = _path(first["loc"], data, missing=first["type"] == "missing")
        got = "nothing" if first["type"] == "missing" else _shown(first["input"])
        raise ApiError(f"{path}: {first['msg']}, got {got}", param=path) from None


def _path(steps: Sequence[int | str], data: Any, *, missing: bool) -> str:
    """Write a field's path, without the union branches that pydantic inserts."""
    path: list[str] = []
    for number, step in enumerate(steps):
        is_field = (isinstance(data, dict) and step in data) or (isinstance(data, list) and isinstance(step, int))
        if is_field or (missing and number == len(steps) - 1):
            path.append(str(step))
            data = data[step] if is_field else None
    return ".".join(path)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def extra_of(body: BaseModel, *, but: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields that a body's model does not declare."""
    dropped = set(but)
    return {name: value for name, value in (body.model_extra or {}).items() if name not in dropped}


def content_of(content: Parts, path: str) -> tuple[str, tuple[str, ...]]:
    """Read a content in OpenAI's form: its text, parts joined by newlines, and the URLs of its images."""
    if not isinstance(content, list):
        return content or "", ()
    texts, images = [], []
    for number, part in enumerate(content):
        kind, where = part.get("type"), f"{path}.{number}"
        if kind in ("text", "input_text", "output_text", "refusal"):
            texts.append(_string(part.get("text", part.get("refusal")), f"{where}.text"))
        elif kind in ("image_url", "input_image"):
            url = part.get("image_url")
            images.append(_string(url.get("url") if isinstance(url, dict) else url, f"{where}.image_url"))
        else:
            raise ApiError(f"{where}.type: expected text or image_url, got {_shown(kind)}", param=f"{where}.type")
    return "\n".join(texts), tuple(images)


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise ApiError(f"{path}: expected a string, got {_shown(value)}", param=path)
    return value


def arguments_of(text: str, path: str) -> dict[str, Any]:
    """Read the arguments of a call in a history, written as JSON text; an empty text means no arguments."""
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ApiError(f"{path}: expected the text of a JSON object, got {_shown(text)}", param=path)
    return value


def call_of(identity: str, name: str, arguments: Mapping[str, Any], index: int) -> ToolCall:
    """Make a `ToolCall` from a call in a history."""
    return ToolCall(id=identity, name=name, arguments=dict(arguments), raw=RawCall(index=index, name=name, dialect="native"))


def tools_of(listed: Iterable[Any], read: Callable[[Any], Tool], path: str = "tools") -> tuple[Tool, ...]:
    """Read the tools of a request, whose names must be unique."""
    items = list(listed)
    if len(items) > TOOL_LIMIT:
        raise ApiError(f"{path}: expected at most {TOOL_LIMIT} tools, got {len(items)}", param=path)
    tools: dict[str, Tool] = {}
    for number, item in enumerate(items):
        where = f"{path}.{number}"
        try:
            tool = read(item)
        except UsageError as error:
            raise ApiError(f"{where}: {error}", param=where) from None
        if not tool.name.strip():
            raise ApiError(f"{where}: expected a name, got only white space", param=where)
        if tool.name in tools:
            raise ApiError(f"{where}: two tools are named {tool.name!r}; names must be unique", param=where)
        tools[tool.name] = tool
    return tuple(tools.values())
