"""Fits a conversation into the model's context while losing as little of it as possible.

Only the messages that are sent are cut; the conversation itself stays whole. If it is too large, it is cut down to `KEPT` of the
room. These steps are taken in order, until it is small enough:

1. Results of earlier turns are shortened strongly, the longest first, and of these the oldest first. Their content is mostly in
   the answer that followed.
2. Results of this turn are shortened as far as needed, all to the same maximum length. Earlier turns leave them at least half of
   the room, because these tools have run and should not have to run again.
3. The oldest turns are summarized in a line each, all in one block, without asking a model.
4. The oldest calls of this turn are left out, with their results.
5. The oldest lines of that block are dropped, those with the person's standing instructions last.

System messages at the head, the person's last message and the newest results always stay. A shortened result keeps its beginning
and end (cut at line ends if they are near), its frame, and the instruction after the frame. A note says how much is missing, and
how to read on if the model can (`read_more`).

A server has to reprocess everything after the first difference from the previous request. So one cut makes room for many turns,
and the result stays the same until the next cut: all requests between two cuts begin with the same text. No state is stored for
that. The conversation alone determines the earlier cuts: it is replayed from its beginning, as if each of its requests were made
again. This also works in a proxy, whose callers send the whole conversation each time. The cost is linear in the conversation.

Tokens are estimated (`system`).

The block of earlier turns:

    [14 earlier messages of this conversation are left out: ...
    - Asked: "What is the weather in Oslo?" get_weather returned: "Light rain, 7 degrees"
    - Asked: "Thanks! From now on, use Fahrenheit." Answered: "All right."
    ]

A line has the beginning of the person's words and the called tools with the beginning of their results, or, if no tool was
called, the beginning of the answer. Sentences with standing instructions ("from now on") are kept word for word, wherever they
are; `STANDING` has the words that identify them.

The lines are in one of the person's messages, outside the frame of results. So text from tools and others is quoted, kept on one
line, and stripped of tags of ours and of chat templates.
"""

import bisect
import functools
import itertools
import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import regex

from ..dialects.call_signs import inert_frame
from ..dialects.write import named_results, replies_of
from ..types.calls import Message, Tool, ToolReply, Written
from .format import render
from .results import handle_of, line_end, line_start
from .system import tokens_of
from .writer import put_around

LENGTHS: Final = tuple(round(256 * (9 / 8) ** step) for step in range(150))
"""Lengths to which a result may be shortened, in characters."""

OLD_RESULT: Final = 1024
"""Characters that a result of an earlier turn keeps."""

KEPT: Final = 0.7
"""Share of the room beside the system messages that a cut leaves filled."""

EARLIER: Final = 0.2
"""Share of the same room that the lines of earlier turns may take. If they take more, they are reduced to half of it."""

TOKENS_A_MESSAGE: Final = 5
TOKENS_A_PICTURE: Final = 768
TOKENS_A_NOTE: Final = 60

ASKED: Final = 160
"""Characters of the person's words in a line, besides standing instructions."""

RETURNED: Final = 80
"""Characters of a result or an answer in a line."""

CALLS: Final = 3
"""Calls of a turn that a line lists one by one."""

STANDING: Final = regex.compile(
    r"\b(?:always|never|every time|whenever|from now on|from here on|in future|in the future|going forward|for the rest of|"
    r"remember|keep in mind|don't ever)\b"
    r"|从现在|从今以后|以后|今后|始终|总是|一律|永远|每次|每当|记住|牢记|不要再|别再|绝不",
    regex.IGNORECASE,
)
"""Words that mark a standing instruction."""

_SENTENCE: Final = regex.compile(r"[^.!?。！？；\n]*+[.!?。！？；\n]*+")
_PASTED: Final = 2000  # characters; a longer message is probably pasted text, in which such words mean nothing
_LONGEST_STANDING: Final = 300  # characters
_QUOTES: Final = str.maketrans({'"': "'", "“": "'", "”": "'"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A result that was shortened."""

    name: str
    characters: int
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A conversation as it is sent; `left_out` messages are missing or replaced by their turn's line."""

    messages: tuple[Message, ...]
    cuts: tuple[Cut, ...] = ()
    left_out: int = 0
    fits: bool = True


def estimate(messages: Iterable[Message]) -> int:
    return sum(map(_size, messages))  # integers, so the sum does not depend on the order


def _size(message: Message) -> int:
    text = tokens_of(message.content) + sum(tokens_of(call.name + _json(call.arguments)) for call in message.tool_calls)
    return TOKENS_A_MESSAGE + TOKENS_A_PICTURE * len(message.images) + math.ceil(text)


def estimate_tools(tools: Iterable[Tool]) -> float:
    """Estimate how many tokens tools take that are sent to a server's own function calling."""
    return sum(tokens_of(tool.name + tool.description + _json(tool.input_schema)) for tool in tools)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)


def fit(messages: Sequence[Message], limit: float, *, lang: str = "en", more: str = "") -> Fitted:
    """Return the conversation cut so that it fits; `more` is the tool that returns the rest of a result."""
    if estimate(messages) <= limit:
        return Fitted(messages=tuple(messages))
    head = next((place for place, message in enumerate(messages) if message.role != "system"), len(messages))
    view = _View(limit - estimate(messages[:head]), lang, more)
    for message in messages[head:]:
        if message.role == "assistant":  # a request was made with everything before it
            view.fit()
        view.add(message)
    view.fit()
    kept = (*messages[:head], *view.messages())
    return Fitted(messages=kept, cuts=view.cuts(), left_out=len(messages) - len(kept), fits=estimate(kept) <= limit)


@dataclass(slots=True)
class _Part:
    """A message, and the form in which it is sent, with results shortened to `length` characters."""

    whole: Message
    sent: Message
    size: int
    length: int
    cuts: tuple[Cut, ...] = ()


@dataclass(slots=True)
class _TurnPart:
    """A person's message and those that follow it; `parts` lacks the calls that are left out."""

    messages: list[Message] = field(default_factory=list)
    parts: list[_Part] = field(default_factory=list)
    size: int = 0

    @property
    def left_out(self) -> int:
        return len(self.messages) - len(self.parts)


class _View:
    """What is sent of a growing conversation; sizes are updated as parts change."""

    def __init__(self, room: float, lang: str, more: str) -> None:
        self._room, self._lang, self._shorter = room, lang, _Shorter(lang, more)
        self._turns: deque[_TurnPart] = deque()
        self._lines: deque[tuple[Line, int]] = deque()  # lines of earlier turns, with their sizes
        self._told = 0  # size of all lines
        self._gone = 0  # messages before the first turn
        self._size = 0

    def add(self, message: Message) -> None:
        if not self._turns or (message.role == "user" and not replies_of(message)):
            self._turns.append(_TurnPart())
        turn, size = self._turns[-1], _size(message)
        turn.messages.append(message)
        turn.parts.append(_Part(message, message, size, len(message.content)))
        self._grow(turn, size)

    def fit(self) -> None:
        """Cut if the conversation is larger than the room."""
        if self._size <= self._room or not self._turns:
            return
        now = self._turns[-1]
        goal = max(KEPT * self._room, (self._room + now.parts[0].size) / 2)  # a long question leaves less to cut
        self._shorten_old(goal)
        least = sum(self._shorter.part(part, LENGTHS[0]).size for part in now.parts)
        old = self._size - now.size
        for_now = min(now.size, max(goal - old, goal / 2, least))
        while len(self._turns) > 1 and self._size - now.size > goal - for_now:
            self._leave_turn_out()
        self._shorten_now(goal - (self._size - now.size))
        self._leave_calls_out(goal)
        if self._size > self._room:
            self._drop_lines(0)

    def messages(self) -> list[Message]:
        sent = [_with_note(turn, self._lang) for turn in self._turns]
        if self._gone and sent:
            first, *rest = sent[0]
            earlier = block([line for line, _ in self._lines], self._gone, self._lang)
            sent[0] = [put_around(first, before=f"{earlier}\n\n"), *rest]
        return list(itertools.chain.from_iterable(sent))

    def cuts(self) -> tuple[Cut, ...]:
        """Return how results are shortened."""
        return tuple(cut for turn in self._turns for part in turn.parts for cut in part.cuts)

    def _grow(self, turn: _TurnPart, size: int) -> None:
        turn.size += size
        self._size += size

    def _shorten_old(self, goal: float) -> None:
        """Shorten results of earlier turns, the longest first (by powers of two), and of these the oldest first."""
        parts = [(turn, part) for turn in itertools.islice(self._turns, len(self._turns) - 1) for part in turn.parts]
        long = [each for each in parts if each[1].length > OLD_RESULT and replies_of(each[1].whole)]
        for turn, part in sorted(long, key=lambda each: -each[1].length.bit_length()):
            if self._size <= goal:
                return
            self._shorten(turn, part, OLD_RESULT)

    def _shorten_now(self, room: float) -> None:
        """Shorten results of this turn as little as needed, all to the same maximum length."""
        turn = self._turns[-1]
        if turn.size <= room:
            return
        parts = [part for part in turn.parts if replies_of(part.whole)]
        others = turn.size - sum(part.size for part in parts)

        def size(length: int) -> int:
            return sum(self._shorter.part(part, length).size for part in parts)

        fitting = bisect.bisect_right(LENGTHS, room - others, key=size) if parts else 0
        for part in parts:
            self._shorten(turn, part, LENGTHS[max(fitting - 1, 0)])

    def _shorten(self, turn: _TurnPart, part: _Part, length: int) -> None:
        before, shorter = part.size, self._shorter.part(part, length)
        part.sent, part.size, part.length, part.cuts = shorter.sent, shorter.size, shorter.length, shorter.cuts
        self._grow(turn, part.size - before)

    def _leave_turn_out(self) -> None:
        """Replace the oldest turn by a line; if the lines take too much room, drop some of them."""
        turn = self._turns.popleft()
        if not self._gone:
            self._size += TOKENS_A_NOTE
        self._gone += len(turn.messages)
        line = line_of(turn.messages, self._lang)
        size = math.ceil(tokens_of(line.text)) + 1
        self._lines.append((line, size))
        self._told += size
        self._size += size - turn.size
        if self._told > EARLIER * self._room:
            self._drop_lines(EARLIER * self._room / 2)

    def _drop_lines(self, room: float) -> None:
        """Drop the oldest lines until the others fit, those with standing instructions last."""
        for is_standing in (False, True):
            kept: deque[tuple[Line, int]] = deque()
            for line, size in self._lines:
                if self._told > room and line.is_standing == is_standing:
                    self._told -= size
                    self._size -= size
                else:
                    kept.append((line, size))
            self._lines = kept

    def _leave_calls_out(self, goal: float) -> None:
        """Leave out the oldest replies of this turn with the results of their calls, but never the newest."""
        turn = self._turns[-1]
        replies = [place for place, part in enumerate(turn.parts[:-1]) if part.whole.role == "assistant" and place]
        had_note, end = bool(turn.left_out), 0
        for begin, end in itertools.pairwise(replies):
            if self._size <= goal:
                end = begin
                break
            self._grow(turn, -sum(part.size for part in turn.parts[begin:end]))
        if replies and end:
            del turn.parts[replies[0] : end]
        if turn.left_out and not had_note:
            self._grow(turn, TOKENS_A_NOTE)


def _with_note(turn: _TurnPart, lang: str) -> list[Message]:
    """Return the messages of a turn as they are sent, with a note after the first if calls are left out."""
    first, *rest = [part.sent for part in turn.parts]
    if turn.left_out:
        note = _words(lang, "left_out").format(count=f"{turn.left_out:,}")
        first = put_around(first, after=f"\n\n{note}")
    return [first, *rest]


@functools.cache
def _words(lang: str, template: str, *, kind: str = "", more: str = "") -> str:
    """Return words of ours with placeholders; cached, because rendering templates for thousands of lines is slow."""
    places = {name: f"{{{name}}}" for name in ("count", "name", "text", "handle", "start")}
    return render(lang, template, kind=kind, more=more, **places)


@dataclass(frozen=True, slots=True)
class _Shorter:
    """Shortens results; `more` is the tool that returns the rest of one."""

    lang: str
    more: str

    def part(self, part: _Part, length: int) -> _Part:
        """Shorten each result in a message to `length` characters; shorter ones stay unchanged."""
        if length >= part.length:
            return part
        cuts: list[Cut] = []
        sent = self._message(part.whole, length, cuts) if len(part.whole.content) > length else part.whole
        return _Part(part.whole, sent, _size(sent), length, tuple(cuts))

    def _message(self, message: Message, length: int, cuts: list[Cut]) -> Message:
        whole, parts, done, size, sent = message.content, list[str](), 0, 0, list[ToolReply]()
        for reply in replies_of(message):
            shorter = reply.text_in(whole)
            if reply.is_ended:
                shorter = self._head_and_tail(shorter, (reply.is_named and reply.name) or "a tool", length, cuts)
            parts += [whole[done : reply.start], shorter]
            begun = size + reply.start - done
            size, done = begun + len(shorter), reply.end
            sent.append(replace(reply, start=begun, end=size))
        text = "".join([*parts, whole[done:]])
        return replace(message, content=text, written=Written(text=text, replies=tuple(sent)))

    def _head_and_tail(self, text: str, name: str, length: int, cuts: list[Cut]) -> str:
        """Keep two thirds of `length` from the beginning and one third from the end; a text that is hardly longer stays."""
        tail = length // 3
        if len(text) <= length:
            return text
        head_end, tail_start = line_end(text, length - tail), line_start(text, len(text) - tail)
        gone, handle = tail_start - head_end, handle_of(text) if self.more else ""
        note = _words(self.lang, "shortened", more=self.more).format(count=f"{gone:,}", handle=handle, start=head_end)
        if gone <= len(note) + 2:
            return text
        cuts.append(Cut(name=name, characters=len(text), left_out=gone))
        return f"{text[:head_end].removesuffix(chr(10))}\n{note}\n{text[tail_start:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A turn, summarized in one line."""

    text: str
    is_standing: bool


def line_of(turn: Sequence[Message], lang: str) -> Line:
    asked = "" if turn[0].role == "assistant" else turn[0].content
    sentences = (found[0] for found in _SENTENCE.finditer(asked if len(asked) <= _PASTED else ""))
    standing = [_begin(sentence, _LONGEST_STANDING) for sentence in sentences if STANDING.search(sentence)]
    begin = _begin(asked.strip().partition("\n\n")[0], ASKED)  # of the first paragraph
    text = " ".join([begin, *(sentence for sentence in standing if sentence not in begin)])
    parts = [_part(lang, "asked").format(text=text)] if asked.strip() else ["-"]
    returned = list(_results_of(turn))
    parts += [_part(lang, "returned").format(name=_begin(name, RETURNED), text=text) for name, text in returned[:CALLS]]
    if len(returned) > CALLS:
        parts.append(_part(lang, "more").format(count=len(returned) - CALLS))
    answer = next((message.content for message in reversed(turn) if message.role == "assistant"), "")
    if answer and not returned:
        parts.append(_part(lang, "answered").format(text=_begin(answer, RETURNED)))
    return Line(text=" ".join(parts), is_standing=bool(standing))


def block(lines: Sequence[Line], count: int, lang: str) -> str:
    """Write the block that replaces messages that are left out."""
    begin = _part(lang, "begin").format(count=f"{count:,}")
    return "\n".join([begin, *(line.text for line in lines), _part(lang, "end")])


def _part(lang: str, kind: str) -> str:
    return _words(lang, "earlier", kind=kind).strip()


def _results_of(turn: Sequence[Message]) -> Iterator[tuple[str, str]]:
    names = {call.id: call.name for message in turn for call in message.tool_calls}
    for message in turn:
        called = names.get(message.tool_call_id or "", "tool")
        yield from ((name or called, _begin(text, RETURNED)) for name, text in named_results(message))


def _begin(text: str, length: int) -> str:
    """Return the beginning of a text on one line, without anything that could end the quotation or be read as a tag."""
    words = " ".join(text[: 4 * length].split()).translate(_QUOTES)
    return inert_frame(words if len(words) <= length else f"{words[:length].rstrip()}…")
