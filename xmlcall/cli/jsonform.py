"""The values of xmlcall as JSON: each dataclass is an object with its fields, and with the name of its class under `type`."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ..errors import XmlcallError
from ..types.calls import MISSING

__all__ = ["json_text", "to_json"]

# What JSON leaves as it is and a terminal would act on, or UTF-8 cannot hold; it can stand in strings only.
_UNSAFE = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def to_json(value: Any) -> Any:
    """Turn a reply, an event or a part of one into a JSON value.

    Returns:
        Objects, lists and plain values; a field that is MISSING is left out, a number that JSON cannot hold becomes its name.
    """
    if is_dataclass(value):
        named = [(part.name, getattr(value, part.name)) for part in fields(value) if part.repr]
        return {"type": type(value).__name__} | {name: to_json(part) for name, part in named if part is not MISSING}
    if isinstance(value, Mapping):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """Write a value as JSON for people and programs: every script readable, nothing in it that a terminal would act on."""
    try:
        text = json.dumps(to_json(value), ensure_ascii=False, indent=indent)
    except RecursionError as error:
        raise XmlcallError("a value of the model or a server is nested too deeply to be written as JSON") from error
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
