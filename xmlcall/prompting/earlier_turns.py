"""Turns of a conversation that are no longer sent, in a line each; no model is asked for it.

    [14 earlier messages of this conversation are left out: ...
    - Asked: "What is the weather in Oslo?" get_weather returned: "Light rain, 7 degrees"
    - Asked: "Thanks! From now on, use Fahrenheit." Answered: "All right."
    ]

A line has the beginning of what the person said, the tools that were called with the beginning of what they returned, and
without a call the beginning of the answer. Sentences in which a person says how things are to be from then on are kept word for
word, wherever they stand: `STANDING` has the words by which they are known.

The lines stand in a message of the person's, outside the frame of results. So what tools and others said is quoted, stands in one
line, and holds no tag of ours or of a chat template.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import regex

from ..dialects.inert import inert_frame
from ..dialects.replies import named_results
from ..types.calls import Message
from .templates import render

__all__ = ["ASKED", "CALLS", "RETURNED", "STANDING", "Line", "block", "line_of"]

ASKED: Final = 160
"""Characters of the person's words that a line has, beside standing instructions."""

RETURNED: Final = 80
"""Characters of a result, or of an answer."""

CALLS: Final = 3
"""Calls of a turn that a line tells one by one."""

STANDING: Final = regex.compile(
    r"\b(?:always|never|every time|whenever|from now on|from here on|in future|in the future|going forward|for the rest of|"
    r"remember|keep in mind|don't ever)\b"
    r"|从现在|从今以后|以后|今后|始终|总是|一律|永远|每次|每当|记住|牢记|不要再|别再|绝不",
    regex.IGNORECASE,
)
"""Words of sentences that say how things are to be from then on."""

_SENTENCE: Final = regex.compile(r"[^.!?。！？；\n]*+[.!?。！？；\n]*+")
_PASTED: Final = 2000  # characters from which on a message is somebody's text, in which such words mean nothing
_LONGEST_STANDING: Final = 300  # characters
_QUOTES: Final = str.maketrans({'"': "'", "“": "'", "”": "'"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A turn in a line."""

    text: str
    is_standing: bool


def line_of(turn: Sequence[Message], lang: str) -> Line:
    """Tell a turn in a line."""
    asked = "" if turn[0].role == "assistant" else turn[0].content
    standing = _standing(asked)
    parts = [_part(lang, "asked").format(text=_asked(asked, standing))] if asked.strip() else ["-"]
    returned = list(_returned(turn))
    parts += [_part(lang, "returned").format(name=_begin(name, RETURNED), text=text) for name, text in returned[:CALLS]]
    if len(returned) > CALLS:
        parts.append(_part(lang, "more").format(count=len(returned) - CALLS))
    answer = next((message.content for message in reversed(turn) if message.role == "assistant"), "")
    if answer and not returned:
        parts.append(_part(lang, "answered").format(text=_begin(answer, RETURNED)))
    return Line(text=" ".join(parts), is_standing=bool(standing))


def block(lines: Sequence[Line], count: int, lang: str) -> str:
    """Write what stands in the place of messages that are left out."""
    begin = _part(lang, "begin").format(count=f"{count:,}")
    return "\n".join([begin, *(line.text for line in lines), _part(lang, "end")])


@functools.cache
def _part(lang: str, kind: str) -> str:
    """Return the words of a part, with places for what is filled in: templates are slow for thousands of lines."""
    return render(lang, "earlier", kind=kind, count="{count}", name="{name}", text="{text}").strip()


def _asked(text: str, standing: Sequence[str]) -> str:
    """Return the beginning of a person's first paragraph, and the standing instructions that do not stand in it."""
    begin = _begin(text.strip().partition("\n\n")[0], ASKED)
    return " ".join([begin, *(sentence for sentence in standing if sentence not in begin)])


def _standing(text: str) -> list[str]:
    if len(text) > _PASTED:
        return []
    sentences = (found[0] for found in _SENTENCE.finditer(text))
    return [_begin(sentence, _LONGEST_STANDING) for sentence in sentences if STANDING.search(sentence)]


def _returned(turn: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """Yield the tools that were called, each with the beginning of its result."""
    names = {call.id: call.name for message in turn for call in message.tool_calls}
    for message in turn:
        called = names.get(message.tool_call_id or "", "tool")
        yield from ((name or called, _begin(text, RETURNED)) for name, text in named_results(message))


def _begin(text: str, length: int) -> str:
    """Return how a text begins, in one line and with nothing in it that could end the quotation or be read as a tag."""
    words = " ".join(text[: 4 * length].split()).translate(_QUOTES)
    return inert_frame(words if len(words) <= length else f"{words[:length].rstrip()}…")
