"""What the files of a run must look like, as JSON Schemas.

A later version may add to all but the settings, which decide how a run is read.
"""

from collections.abc import Mapping
from typing import Any, Final, get_args, get_type_hints

from .ways import Settings

__all__ = ["ABOUT", "ADDED", "GONE", "REPLY", "conversation"]

GONE: Final = frozenset({"constrain"})
"""Settings of recorded runs that there are no more. How a reply is judged never hung on them."""


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


def _array(items: Mapping[str, Any], **more: int) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


_STRING, _NUMBER, _NUMBER_OR_NOT = {"type": "string"}, {"type": "number"}, {"type": ["number", "null"]}
_USAGE = {
    "type": ["object", "null"],
    "properties": {"is_estimated": {"type": "boolean"}},
    "additionalProperties": _NUMBER_OR_NOT,
}
_ROUND = _object(
    text=_STRING,
    reasoning=_STRING,
    calls=_array(_array(_STRING, minItems=2, maxItems=2)),
    finish_reason=_STRING,
    usage=_USAGE,
    need_usage=_USAGE,
    seconds=_NUMBER,
    first_event_seconds=_NUMBER,
    described=_array(_STRING),
    log_odds=_NUMBER_OR_NOT,
    score=_NUMBER_OR_NOT,
    moved=_NUMBER_OR_NOT,
    named=_NUMBER_OR_NOT,
    threshold=_NUMBER_OR_NOT,
)
_TURN = _object("replies", "calls", "stop_reason", replies=_array(_STRING), calls=_array(_object()), stop_reason=_STRING)
_OUTCOME = _object("valid", "error", "turns", valid={"type": "boolean"}, error=_STRING, turns=_array(_TURN, minItems=1))
_KEY = {"key": _STRING, "case": _STRING, "way": _STRING}
REPLY = _object(*_KEY, "rounds", **_KEY, rounds=_array(_ROUND, minItems=1), outcome=_OUTCOME)
_PLAYED_CALL = {**_object("name", name=_STRING, result=_STRING), "dependentRequired": {"result": ["is_error"]}}
_TALK_TURN = _object(
    *("calls", "answer", "stop_reason", "files", "usage", "seconds"),
    calls=_array(_PLAYED_CALL),
    answer=_STRING,
    files={"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    usage=_USAGE,
    seconds=_NUMBER,
)
ADDED = _object(*_KEY, **_KEY)  # what is needed of a line that another process added after the run was read
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_SETTINGS: dict[str, Any] = {
    name: {"type": [_JSON_TYPES[each] for each in get_args(hint) or (hint,) if each in _JSON_TYPES]}
    for name, hint in get_type_hints(Settings).items()
}
_SETTINGS["call_threshold"] = {"anyOf": [_NUMBER_OR_NOT, {"const": "auto"}]}
_SETTINGS |= {name: {} for name in GONE}
ABOUT = _object(
    *("ways", "settings"), ways=_array(_STRING, minItems=1), settings={**_object(**_SETTINGS), "additionalProperties": False}
)


def conversation(turns: int) -> dict[str, Any]:
    """Return the schema of a line of `replies.jsonl` that holds all that is needed to judge the turns of a conversation again."""
    played = _array(_TALK_TURN, minItems=turns, maxItems=turns)
    return _object("outcome", outcome=_object("folder", "turns", folder=_STRING, turns=played))
