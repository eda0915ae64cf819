"""The same call several times in one reply: it runs once, unless the person asked for so many.

A model that repeats itself writes a call twice or twenty times. Whether that was wanted cannot be known in general, so the words
of the request decide: where they hold the number of the calls, in digits, in English or in Chinese, each of them runs ("roll the
die three times"). The rest is reported as a repair, and the model is told that the call ran once.
"""

import json
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from typing import Final

import regex

from ..types.calls import InvalidCall, Repair, Reply, ToolCall

__all__ = ["identity", "is_asked_for", "once"]

_WORDS: Final[dict[str, int]] = {
    **dict(zip(["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], range(2, 11), strict=True)),
    **dict(zip("二三四五六七八九十", range(2, 11), strict=True)),
    "twice": 2,
    "thrice": 3,
    "两": 2,
}
_NUMBER = regex.compile(
    r"(?<![0-9.,])[0-9]{1,3}(?![0-9]|[.,][0-9])|\b(?:"
    + "|".join(word for word in _WORDS if word.isascii())
    + r")\b|[二三四五六七八九十两]",
    regex.IGNORECASE,
)


def identity(call: ToolCall | InvalidCall) -> Hashable:
    """Return what two calls share if they are the same: tool and arguments, or their text if they cannot run."""
    if isinstance(call, InvalidCall):
        return call.raw.text, call.raw.span if not call.raw.text else ()
    return call.name, json.dumps(call.arguments, sort_keys=True, default=str)


def is_asked_for(times: int, request: str) -> bool:
    """Say whether a person's words hold a number."""
    found = (match[0].lower() for match in _NUMBER.finditer(request))
    return any(_WORDS.get(word) == times or (word.isdecimal() and word.isascii() and int(word) == times) for word in found)


def once(reply: Reply, request: str) -> tuple[Reply, frozenset[str]]:
    """Leave out calls that stand in a reply before.

    Returns:
        The reply with each call once, or as often as the request says, a repair for each that was left out; and the ids of the
    """
    counts = Counter(map(identity, reply.calls))
    first: dict[Hashable, str] = {}
    kept: list[ToolCall | InvalidCall] = []
    left_out: list[ToolCall | InvalidCall] = []
    for call in reply.calls:
        same = identity(call)
        is_repeat = same in first and not is_asked_for(counts[same], request)
        first.setdefault(same, call.id)
        (left_out if is_repeat else kept).append(call)
    if not left_out:
        return reply, frozenset()
    repairs = tuple(Repair(code="repeated-call", span=call.raw.span) for call in left_out)
    reply = replace(reply, calls=tuple(kept), repairs=(*reply.repairs, *repairs))
    return reply, frozenset(first[identity(call)] for call in left_out)
