"""Reads answers that the SDK's message reader refuses, so that a call ends at once and keeps the output that arrived.

A text with half a surrogate pair, a raw control character, a result of null or an error that is a bare string is refused as a
whole, and the request that it answers would wait until its time is over. Nothing here raises; what cannot be read stays refused.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp.types import INTERNAL_ERROR, PARSE_ERROR
from mcp.types.jsonrpc import ErrorData, JSONRPCError, JSONRPCResponse
from pydantic import ValidationError

__all__ = ["Halves", "UnreadableAnswer", "read_refused", "sendable", "whole_escapes"]

_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_BEGUN = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?\Z|\\(?:u[0-9a-fA-F]{0,3})?\Z"
_HALF = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
# In this order: a pair that is whole, what the next piece may complete, a half, and any other escape, `\\` among them.
_ESCAPE = re.compile(rb"(?P<pair>%b)|(?P<begun>%b|%b\Z)|(?P<half>%b)|\\." % (_PAIR, _BEGUN, _HALF, _HALF), re.DOTALL)
_REPLACED: Final = rb"\ufffd"


class Halves:
    """Replaces halves of surrogate pairs by U+FFFD in JSON that arrives in pieces; at most one escape is held back."""

    def __init__(self) -> None:
        self._held = b""

    def mend(self, piece: bytes) -> bytes:
        """Return what is certain so far."""
        data, self._held = self._held + piece, b""
        return _ESCAPE.sub(self._one, data) if b"\\" in data else data

    def rest(self) -> bytes:
        """Return what was held back, at the end."""
        rest, self._held = self._held, b""
        return re.sub(_HALF, lambda match: _REPLACED, rest)

    def _one(self, match: re.Match[bytes]) -> bytes:
        if match["begun"]:
            self._held = match[0]
            return b""
        return _REPLACED if match["half"] else match[0]


def whole_escapes(line: bytes) -> bytes:
    """Replace halves of surrogate pairs in one JSON text by U+FFFD."""
    halves = Halves()
    return halves.mend(line) + halves.rest()


def sendable(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that UTF-8 can encode: a model can write halves of surrogate pairs in JSON."""
    try:
        text = json.dumps(arguments)
    except (TypeError, ValueError, RecursionError):  # their writer will report it
        return dict(arguments)
    is_odd = "\\ud" in text  # `json` writes small letters
    return dict(json.loads(whole_escapes(text.encode()))) if is_odd else dict(arguments)


@dataclass(frozen=True, slots=True)
class UnreadableAnswer:
    """The `data` of an error that replaces an answer outside the protocol."""


def read_refused(error: Exception) -> JSONRPCResponse | JSONRPCError | None:
    """Read an answer out of the SDK's refusal of it, or make an error that says what is wrong; None if it is no answer."""
    message = _refused(error)
    number = _number(message.get("id")) if isinstance(message, Mapping) and "method" not in message else None
    if number is None:
        return None
    if isinstance(message.get("result"), dict):
        return JSONRPCResponse(jsonrpc="2.0", id=number, result=message["result"])
    if isinstance(message.get("result"), str | list) and message["result"]:  # its content, most likely
        return JSONRPCResponse(jsonrpc="2.0", id=number, result={"content": message["result"]})
    return JSONRPCError(jsonrpc="2.0", id=number, error=_error_in(message))


def _refused(error: Exception) -> Any:
    """Return the message that was refused, as JSON's values; None if it was not JSON."""
    if not isinstance(error, ValidationError):
        return None
    value = error.errors(include_url=False, include_context=False)[0]["input"]
    if isinstance(value, str | bytes) and value.lstrip()[:1] in ("{", b"{"):
        try:
            value = json.loads(value, strict=False)  # raw control characters in strings
        except (ValueError, RecursionError):
            return None
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _number(value: Any) -> int | str | None:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _error_in(message: Mapping[str, Any]) -> ErrorData:
    error = message.get("error")
    said = error.get("message") if isinstance(error, Mapping) else error
    if isinstance(said, str) and said:
        code = error.get("code") if isinstance(error, Mapping) else None
        return ErrorData(code=code if type(code) is int else INTERNAL_ERROR, message=said)
    if error is not None:
        return ErrorData(code=PARSE_ERROR, message="its error is not an object with a message", data=UnreadableAnswer())
    what = f"its result is {json.dumps(message['result'])[:40]}, not an object" if "result" in message else "it has no result"
    return ErrorData(code=PARSE_ERROR, message=what, data=UnreadableAnswer())
