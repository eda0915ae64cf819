"""Answers as JSON that every browser reads: ASCII, so that half characters pass, and no number that JSON does not know."""

import json
import math
from typing import Any

from starlette.responses import Response

__all__ = ["json_answer", "json_text"]


def json_text(data: Any) -> str:
    """Write a value as JSON; what is infinite or no number is written as a string."""
    try:
        return json.dumps(data, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(data))


def json_answer(data: Any, status: int = 200) -> Response:
    """Answer with a value as JSON."""
    return Response(json_text(data), status, media_type="application/json")


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data
