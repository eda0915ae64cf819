"""The values of xmlcall as JSON: each dataclass is an object with its fields, and with the name of its class under `type`."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ..types import MISSING

__all__ = ["to_json"]


def to_json(value: Any) -> Any:
    """Turn a reply, an event or a part of one into a JSON value.

    Args:
        value: a dataclass of xmlcall, or what its fields hold.

    Returns:
        Objects, lists and plain values; a field that is MISSING is left out, a number that JSON cannot hold becomes its name.
    """
    if is_dataclass(value):
        named = [(part.name, getattr(value, part.name)) for part in fields(value)]
        return {"type": type(value).__name__} | {name: to_json(part) for name, part in named if part is not MISSING}
    if isinstance(value, Mapping):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
