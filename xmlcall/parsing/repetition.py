"""Detect a model that repeats itself: endless text, while it is written, and the same call several times in one reply.

`Runaway` detects two kinds of endless text. *Period*: the text ends in one unit repeated at least `_TIMES` times, over at least
`_LEAST` characters. The unit may be a character, a word, a line, or a whole call. For a long unit, such as a few calls in turn,
`_TIMES_LONG` times are enough. *Counter*: successive lines differ only in numbers that count up by one. A list does that
legitimately, so `_LINES` lines are needed, and they must contain words.

The limits leave room for what people ask for: a word fifty times, a table's rule, a row of empty cells.

The period is searched at fixed offsets, every `_STEP` characters, so the answer does not depend on how the text was cut. A
candidate is a distance, within the window, at which the last `_KEY` characters occurred before. A candidate costs at most one
comparison of the window, so time is linear in the text and memory is the window.

The same call several times in one reply runs once, unless the person asked for that number (`once`). The wording of the request
decides, because the intention cannot be known in general: if it contains the number of the calls, in digits, English or Chinese,
all of them run ("roll the die three times"). Otherwise each repetition is reported as a repair, and the model is notified that
the call ran once.
"""

import json
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from typing import Final

import regex

from ..types.calls import InvalidCall, Repair, Reply, ToolCall

_TIMES: Final = 6
_TIMES_LONG: Final = 3
_LONG: Final = 250  # characters of a unit
_LEAST: Final = 500  # characters
_LEAST_OTHER: Final = 250  # for scripts whose characters carry more meaning, such as Chinese
_LONGEST: Final = 1000  # characters of a unit
_LONGEST_LINE: Final = 400  # characters of a line with a counter
_STEP: Final = 32
_KEY: Final = 24
_WINDOW: Final = max((_TIMES + 1) * _LONG, (_TIMES_LONG + 1) * _LONGEST) + 2 * _STEP
_LINES: Final = 40
_LETTERS: Final = 8  # fewest letters of a line with a counter; "Line 7" may well be one of a hundred

_NUMBER = regex.compile(r"[0-9]+")

_NUMBER_WORDS: Final[dict[str, int]] = {
    **dict(zip(["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], range(2, 11), strict=True)),
    **dict(zip("二三四五六七八九十", range(2, 11), strict=True)),
    "twice": 2,
    "thrice": 3,
    "两": 2,
}
_ASKED_NUMBER = regex.compile(
    r"(?<![0-9.,a-wyz])[0-9]{1,3}(?![0-9a-wyz]|[.,][0-9])|\b(?:"  # not Q2 or 2nd, but 2x
    + "|".join(word for word in _NUMBER_WORDS if word.isascii())
    + r")\b|[二三四五六七八九十两]",
    regex.IGNORECASE,
)


class Runaway:
    """Watches a text for a repetition that will not end."""

    def __init__(self) -> None:
        self.end: int | None = None  # offset at which the repetition became certain
        self.start = 0  # offset at which the repetition begins
        self.period = 0  # characters of the repeated unit; for a counter, of its first line
        self._length = 0
        self._tail = ""
        self._line = ""  # text since the last line end; truncated once it is too long to count
        self._counter: tuple[list[str], list[int]] = ([], [])  # words and numbers of the last line
        self._lines = 0  # lines that count up, including the last one
        self._first = (0, 0)  # offset and length of the first of them

    def feed(self, chunk: str) -> bool:
        """Take more text; return whether it repeats endlessly. Once it does, further text is ignored."""
        at = 0
        while self.end is None and at < len(chunk):
            piece = chunk[at : at + _STEP - self._length % _STEP]
            at += len(piece)
            self._take(piece)
        return self.end is not None

    def _take(self, piece: str) -> None:
        """Take text that ends at or before the next offset at which the period is searched."""
        before = self._length
        self._length += len(piece)
        self._tail = (self._tail + piece)[-_WINDOW:]
        *ended, rest = piece.split("\n")
        for text in ended:
            before += len(text) + 1
            if self._counts(self._line + text, before):
                self.end, (self.start, self.period) = before, self._first
                return
            self._line = ""
        self._line = (self._line + rest)[: _LONGEST_LINE + 1]
        if self._length % _STEP == 0 and (period := _period(self._tail)):
            self.end, self.period = self._length, period
            self.start = self._length - _extent(self._tail, period)

    def _counts(self, line: str, end: int) -> bool:
        """Take a whole line that ends at this offset; say whether the counter has reached its limit. Ignore blank lines."""
        if not line.strip():
            return False
        words = _NUMBER.split(line) if len(line) <= _LONGEST_LINE else []
        numbers = [int(each) for each in _NUMBER.findall(line)] if words else []
        if words == self._counter[0] and _is_next(numbers, self._counter[1]):
            self._lines += 1
        else:
            self._lines, self._first = 1, (end - len(line) - 1, len(line) + 1)
        self._counter = (words, numbers)
        return self._lines >= _LINES and sum(map(str.isalpha, "".join(words))) >= _LETTERS


def _is_next(numbers: list[int], before: list[int]) -> bool:
    steps = {number - last for number, last in zip(numbers, before, strict=True)}
    return 1 in steps and steps <= {0, 1}


def _period(tail: str) -> int:
    """Return the length of the unit that the end of a text repeats; 0 if there is none."""
    key = tail[-_KEY:]
    lowest = max(len(tail) - _KEY - _LONGEST, 0)
    at = len(tail) - _KEY
    while (at := tail.rfind(key, lowest, at + _KEY - 1)) >= 0:
        period = len(tail) - _KEY - at
        times = _TIMES if period < _LONG else _TIMES_LONG
        least = max(times * period, _LEAST if tail[-period:].isascii() else _LEAST_OTHER)
        if least <= len(tail) and tail[-least + period :] == tail[-least:-period]:
            return period
    return 0


def _extent(tail: str, period: int) -> int:
    at = len(tail) - period
    while at and tail[at - 1] == tail[at - 1 + period]:
        at -= 1
    return len(tail) - at


def identity(call: ToolCall | InvalidCall) -> Hashable:
    """Return a key that equal calls share: tool and arguments, or the text of a call that cannot run."""
    if isinstance(call, InvalidCall):
        return call.raw.text, call.raw.span if not call.raw.text else ()
    return call.name, json.dumps(call.arguments, sort_keys=True, default=str)


def is_asked_for(times: int, request: str) -> bool:
    """Say whether a request contains this number."""
    found = (match[0].lower() for match in _ASKED_NUMBER.finditer(request))
    return any(_NUMBER_WORDS.get(word) == times or (word.isdecimal() and word.isascii() and int(word) == times) for word in found)


def once(reply: Reply, request: str) -> tuple[Reply, frozenset[str]]:
    """Leave out repeated calls, unless the request has their number; also return the ids of those that were repeated."""
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
