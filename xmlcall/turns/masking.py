"""Masks the secrets in a turn. Names of parameters identify them, as in the audit; the same values are masked everywhere.

A mask and the secret it replaces differ in length, so the places in the text of a reply are moved accordingly. If a reply
contains the name of a secret but its value cannot be identified, the whole text of the reply is left out.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from ..records.secrets import MASK, is_secret, masked, secret_places, secrets_in, shows_secret
from ..types.calls import Span
from .record import TurnRecord, turn_to_json

__all__ = ["without_secrets"]

_PLACED = ("start", "end")
_KEPT = 65_536  # characters of a prompt that is kept to know it again


def without_secrets(turn: TurnRecord) -> dict[str, Any]:
    """Return a turn as a JSON object, with a mask in place of each secret."""
    data = turn_to_json(turn)
    known = frozenset(_known(data))
    if known or _has_any(data):
        for reply in data["replies"]:
            _mask_reply(reply, known)
        for name in ("question", "answer", "error"):
            data[name] = _text(data[name], known)
    return data


def _known(turn: dict[str, Any]) -> Iterator[str]:
    """Yield the secrets of a turn's calls."""
    for reply in turn["replies"]:
        for span in reply["spans"]:
            if span["kind"] == "value" and is_secret(span["about"]):
                yield reply["raw"][span["start"] : span["end"]].strip()
        for call in reply["calls"]:
            yield from secrets_in(call["arguments"] or {})
            yield from secrets_in(call["ran_with"] or {})


def _has_any(turn: dict[str, Any]) -> bool:
    prompts = (message["content"] for reply in turn["replies"] for message in reply["prompt"])
    return any(map(_shows_any, _texts(turn))) or any(map(_prompt_shows_any, prompts))


def _shows_any(text: str) -> bool:
    return bool(secret_places(text)) or shows_secret(text)


def _prompt_shows_any(text: str) -> bool:
    """Do the same for a message of a prompt; cached, because the description of the tools is the same in every turn."""
    return _shows_any_again(text) if len(text) <= _KEPT else _shows_any(text)


_shows_any_again = lru_cache(maxsize=32)(_shows_any)


def _texts(turn: dict[str, Any]) -> Iterator[str]:
    yield from (turn[name] for name in ("question", "answer", "error"))
    for reply in turn["replies"]:
        yield from (reply["raw"], reply["reasoning"])
        for call in reply["calls"]:
            yield from (call["text"], call["result"] or "", call["reason"], call["failure"])


def _text(text: str, known: frozenset[str]) -> str:
    return _Moved(text, secret_places(text, known)).text


class _Moved:
    """A masked text (`text`), and the new positions of its places."""

    def __init__(self, text: str, places: Sequence[Span]) -> None:
        ends = [0, *(end for _, end in places)]
        kept = [text[end:start] for end, (start, _) in zip(ends, places, strict=False)]
        self.text = "".join(piece + MASK for piece in kept) + text[ends[-1] :]
        self._starts = [start for start, _ in places]
        self._places = places
        self._shifts = [0, *accumulate(len(MASK) - (end - start) for start, end in places)]

    def of(self, place: int) -> int:
        """Return the new position of a place; a place inside a secret moves to the start of its mask."""
        count = bisect_right(self._starts, place - 1)
        if count and place < self._places[count - 1][1]:
            return self._places[count - 1][0] + self._shifts[count - 1]
        return place + self._shifts[count]


def _mask_reply(reply: dict[str, Any], known: frozenset[str]) -> None:
    spans = [(span["start"], span["end"]) for span in reply["spans"] if span["kind"] == "value" and is_secret(span["about"])]
    moved = _Moved(reply["raw"], _apart([*secret_places(reply["raw"], known), *spans]))
    if shows_secret(moved.text):
        reply["raw"], reply["spans"] = "", []
    else:
        reply["raw"] = moved.text
        reply["spans"] = [span for span in map(dict, reply["spans"]) if _move(span, moved) and span["start"] < span["end"]]
    prompts = [_Moved(message["content"], secret_places(message["content"], known)) for message in reply["prompt"]]
    for message, there in zip(reply["prompt"], prompts, strict=True):
        message["content"] = there.text
    reply["reasoning"] = _text(reply["reasoning"], known)
    for place in (reply, *reply["calls"]):
        for mark in (*place["repairs"], *place.get("issues", ())):
            _mask_mark(mark, known)
    for placed in _placed(reply):
        _move(placed, moved)
        if not reply["raw"]:
            placed["start"] = placed["end"] = None
    for call in reply["calls"]:
        _mask_call(call, known, prompts)


def _apart(places: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(place for place in places if place[0] < place[1]):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _placed(reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield everything that has a place in the text of a reply, except its spans."""
    yield from reply["repairs"]
    for call in reply["calls"]:
        yield call
        yield from (*call["repairs"], *call["issues"], *call["values"])


def _move(placed: dict[str, Any], moved: _Moved) -> bool:
    for name in _PLACED:
        placed[name] = None if placed[name] is None else moved.of(placed[name])
    return True


def _leads_to_secret(path: str) -> bool:
    return any(is_secret(part) for part in path.removeprefix("$.").replace("[", ".").split("."))


def _mask_mark(mark: dict[str, Any], known: frozenset[str]) -> None:
    hides = _leads_to_secret(mark["path"])
    for name in ("why", "expected", "got"):
        mark[name] = _text(mark[name], known)
    mark["got"] = MASK if hides and mark["got"] else mark["got"]
    mark["readings"] = [MASK if hides else _text(each, known) for each in mark["readings"]]


def _mask_call(call: dict[str, Any], known: frozenset[str], prompts: Sequence[_Moved]) -> None:
    text = _text(call["text"], known)
    call["text"] = "" if shows_secret(text) else text
    for name in ("arguments", "ran_with"):
        call[name] = None if call[name] is None else _value(masked(call[name]), known)
    for value in call["values"]:
        value["value"] = MASK if _leads_to_secret(value["path"]) else _value(value["value"], known)
        source = value["source"]
        if source and source["message"] is not None and source["message"] < len(prompts):
            _move(source, prompts[source["message"]])
    for name in ("reason", "failure"):
        call[name] = _text(call[name], known)
    call["result"] = None if call["result"] is None else _result(call["result"], known)


def _value(value: Any, known: frozenset[str]) -> Any:
    """Mask known secrets in a JSON value, whatever its name is."""
    if isinstance(value, dict):
        return {key: _value(part, known) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_value(part, known) for part in value]
    return _text(value, known) if isinstance(value, str) else value


def _result(result: str, known: frozenset[str]) -> str:
    """Mask a result; if it is JSON, by the names in it."""
    if result.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(result)
        except (ValueError, RecursionError):
            return _text(result, known)
        if any(True for _ in secrets_in(value)):
            return _text(json.dumps(masked(value), ensure_ascii=False), known)
    return _text(result, known)
