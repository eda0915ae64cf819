"""Removes from a reply what a model must not say: invented results, and lines of our own prompt.

Small models continue in the style of the prompt. Some write the frame in which they receive results, with invented content; some
repeat an instruction. Neither is an answer. This filter follows the parser: it reads the text of a reply, but not the values of
calls or the reasoning, and passes on what may be shown.

* *A frame* (`<function_results>`, or a line that begins with `<result name=` or with the result marks of any family) ends the
  reply. One exception: if the conversation contains exactly these results, nothing is invented. If the reply has no other text,
  they are then the answer, without the frame.
* *A line of ours*, alone on its line, is left out. It is recognized by the fixed words of the templates, whole sentences of at
  least `_LEAST` columns. Words from the catalog do not count, because a person may ask what a tool does.

Quotations stay: a frame's tag after a quotation mark or a back-tick, and in a code fence, which may contain any XML, everything
except `<function_results>`.

Text is held back only while it may still become one of these: the beginning of a tag, or of a line of ours, which has at most
`_LONGEST` characters. Decisions depend only on the text so far, so the chunks do not matter, and time is linear.
"""

import functools
import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

import regex

from ..dialects import DIALECTS, result_openers
from ..dialects.dialect import OWN_RESULTS, ResultForm
from ..dialects.write import replies_of
from ..types.calls import Message, Span
from ..types.events import Event, Markup, Repaired, TextDelta
from .format import ENGLISH, LANGUAGES, PromptFormat, source

Refusal = Literal["", "invented_results", "own_words", "unfounded", "undone", "repeated_answer", "no_access"]

_LEAST: Final = 20  # columns; a Chinese character fills two
_LONGEST: Final = 400  # characters
_LONGEST_FRAME: Final = 2000  # characters; longer results are not compared
_TEMPLATES: Final = (
    *("system", "reminder", "results", "retry", "no_answer", "repeated", "empty", "json_answer", "prefill", "must_call"),
    "fitting",
)
_MARKERS: Final = " \t\r\f\v-*>#()（）"  # around a sentence: list items, headings, quotation, brackets
_QUOTES: Final = tuple("`\"'“‘「")
_FENCE: Final = "```"

_RESULT: Final = "<result name="  # a model may omit the quotation mark
_CODE = regex.compile(r"\{%.*?%\}", regex.DOTALL)
_FORM = regex.compile(r"\{\{ form\.(?:block|tag|results) \}\}")
_SENTENCE_END = regex.compile(r"(?<=[.:!?])\s+|(?<=[。：！？；])\s*")


class Leaks:
    """Removes from a reply's text what must not be shown."""

    def __init__(self, results: Collection[str] = ()) -> None:
        self.found: Refusal = ""  # the most serious thing that was removed
        self.stopped = False  # whether the rest of the reply is ignored
        self.replaced: list[tuple[Span, str]] = []  # the removed spans of the reply, in order, each with its replacement
        self._results = results
        self._held = ""
        self._start = 0  # offset of the held text
        self._frame: ResultForm | None = None  # the form of the frame that is held
        self._forms, self._openers = _frames(tuple(DIALECTS))
        self._at_line_start = True  # nothing of this line was passed on
        self._head = ""  # how this line begins, without white space
        self._last = ""  # the last character of this line that was passed on
        self._fenced = False
        self._said = False  # text other than white space was passed on

    def pass_on(self, event: Event) -> list[Event]:
        """Read an event; return the events that may be shown by now."""
        if self.stopped:
            return []
        if not isinstance(event, TextDelta):
            before = self.close()
            if isinstance(event, Markup) and event.kind == "result" and not self.stopped:
                self.found, self.stopped = "invented_results", True
                self.replaced.append(((event.span[0], -1), ""))
            return before if self.stopped else [*before, event]
        if not self._held:
            self._start = event.span[0]
        self._held += event.text
        return self._read()

    def close(self) -> list[Event]:
        """Decide on the held text, because nothing more follows on its line."""
        if self._frame and not self.stopped:
            return self._end_frame(self._frame)
        return self._end_line(len(self._held)) if self._held else []

    def _read(self) -> list[Event]:
        if self._frame:
            return self._in_frame(self._frame)
        shown: list[Event] = []
        while self._held:
            end = self._held.find("\n") + 1
            opener = self._frame_in(self._held[:end] if end else self._held)
            if opener:
                return [*shown, *self._begin_frame(opener)]
            if not end:
                return [*shown, *self._open_line()]
            shown += self._end_line(end)
        return shown

    def _open_line(self) -> list[Event]:
        """Pass on the text that can no longer become a line of ours or the beginning of a frame."""
        at = max(self._held.rfind("<"), self._held.rfind("["))
        is_opener = at >= 0 and any(opener.startswith(self._held[at:]) for opener in self._forms)
        end = at if is_opener else len(self._held)
        if self._at_line_start and end <= _LONGEST and _may_be_ours(self._held[:end]):
            return []
        return self._release(end)

    def _end_line(self, end: int) -> list[Event]:
        line = self._held[:end]
        is_ours = self._at_line_start and len(line) <= _LONGEST and line.strip("\n" + _MARKERS) in _own_words()[0]
        shown = self._drop(end) if is_ours else self._release(end)
        if line.endswith("\n"):
            self._fenced = self._fenced != (self._head == _FENCE)
            self._at_line_start, self._head, self._last = True, "", ""
        return shown

    def _release(self, end: int) -> list[Event]:
        text, self._held = self._held[:end], self._held[end:]
        if not text:
            return []
        span = (self._start, self._start + len(text))
        self._start, self._at_line_start = span[1], False
        self._head, self._last = (self._head + text).lstrip()[: len(_FENCE)], text[-1]
        self._said = self._said or bool(text.strip())
        return [TextDelta(text=text, span=span)]

    def _drop(self, end: int) -> list[Event]:
        span = (self._start, self._start + end)
        self.replaced.append((span, ""))
        self.found = self.found or "own_words"
        self._held, self._start = self._held[end:], span[1]
        return [Repaired(code="own-words", span=span)]

    def _frame_in(self, line: str) -> "regex.Match[str] | None":
        for found in self._openers.finditer(line):
            before = line[: found.start()]
            is_frame = found[0] == OWN_RESULTS.opener and (self._last + before)[-1:] not in _QUOTES
            if is_frame or (found[0] != OWN_RESULTS.opener and not (self._fenced or self._head or before.strip())):
                return found
        return None

    def _begin_frame(self, opener: "regex.Match[str]") -> list[Event]:
        at = opener.start()
        before = self._held[:at]
        is_long_enough = _width(before) >= _LEAST and len(before) <= _LONGEST
        is_ours = self._at_line_start and is_long_enough and _may_be_ours(before)
        shown = self._drop(at) if is_ours else self._release(at)
        self._frame = self._forms[opener[0]]
        return [*shown, *(self._in_frame(self._frame) if self._results else self._end_frame(self._frame))]

    def _in_frame(self, form: ResultForm) -> list[Event]:
        end = self._held[:_LONGEST_FRAME].find(form.closer)
        if end < 0 and len(self._held) < _LONGEST_FRAME:
            return []
        self._held = self._held[: end + len(form.closer)] if end >= 0 else ""
        return self._end_frame(form)

    def _end_frame(self, form: ResultForm) -> list[Event]:
        """End the reply; if the results are true and the reply has no other text, they become the answer."""
        replies = [reply for reply in form.places(self._held) if not reply.is_error]
        texts = [reply.text_in(self._held).strip() for reply in replies if reply.is_ended]
        is_true = 0 < len(replies) == len(texts) and all(text and text in self._results for text in texts)
        answer = "\n".join(texts) if is_true and not self._said else ""
        span = (self._start, self._start + len(self._held))
        self.stopped, self._held = True, ""
        self.replaced.append(((span[0], -1), answer))
        if not is_true:
            self.found = "invented_results"
            return []
        shown = [TextDelta(text=answer, span=span)] if answer else []
        return [Repaired(code="results-frame", span=span), *shown]

    def kept(self, text: str, end: int) -> str:
        """Return a reply's text with the removed spans replaced."""
        parts, at = [], 0
        for (start, stop), instead in self.replaced:
            if start >= end:
                break
            parts += [text[at:start], instead]
            at = end if stop < 0 else stop
        return "".join([*parts, text[at:end]])


def refusal(kind: Refusal, format: PromptFormat = ENGLISH, values: Sequence[str] = ()) -> str:
    """Render why a model's last reply is not an answer, and what to do."""
    return format.render("no_answer", kind=kind, values=values).strip()


def results_in(messages: Iterable[Message]) -> frozenset[str]:
    """Return the texts of the results that a model received, exactly as sent, without errors and feedback."""
    found = ((message.content, reply) for message in messages if message.role == "user" for reply in replies_of(message))
    return frozenset(reply.text_in(content).strip() for content, reply in found if reply.is_ended and not reply.is_error)


@functools.lru_cache(maxsize=4)  # for each set of dialects, because a program may add some
def _frames(_: tuple[str, ...]) -> tuple[Mapping[str, ResultForm], regex.Pattern[str]]:
    """Return the forms of results by how they begin, and a pattern for all beginnings."""
    forms = {_RESULT: OWN_RESULTS, **result_openers()}
    return forms, regex.compile("|".join(map(regex.escape, forms)))


def _may_be_ours(line: str) -> bool:
    text, words = line.strip(_MARKERS), _own_words()[1]
    at = bisect_left(words, text)
    return at < len(words) and words[at].startswith(text)


@functools.cache
def _own_words() -> tuple[frozenset[str], list[str]]:
    """Return all runs of sentences in single lines of templates, as a set and as a sorted list."""
    lines = {line for lang in LANGUAGES for name in _TEMPLATES for line in _fixed_lines(source(lang, name))}
    words = {run for line in lines for run in _runs(line) if _width(run) >= _LEAST and len(run) <= _LONGEST}
    words |= {tag.strip(_MARKERS) for tag in (OWN_RESULTS.closer, OWN_RESULTS.result_close.strip())}
    return frozenset(words), sorted(words)


def _fixed_lines(text: str) -> Iterable[str]:
    """Yield a template's lines that have no inserted values, except for the tags of wire formats, which are filled in."""
    text = _CODE.sub("", text)
    forms = (PromptFormat(dialect=name) for name in DIALECTS)
    tags = {(form.block, form.tag, form.results): form for form in forms} if _FORM.search(text) else {(): ENGLISH}
    for form in tags.values():
        filled = text
        for name in ("block", "tag", "results"):
            filled = filled.replace(f"{{{{ form.{name} }}}}", getattr(form, name))
        yield from (line for line in filled.splitlines() if "{{" not in line)


def _runs(line: str) -> Iterable[str]:
    """Yield the runs of whole sentences in a line, without white space and list markers at their ends."""
    text = line.strip(_MARKERS)
    ends = [*(found.start() for found in _SENTENCE_END.finditer(text)), len(text)]
    starts = [0, *(found.end() for found in _SENTENCE_END.finditer(text))]
    yield from (text[start:end].strip(_MARKERS) for start in starts for end in ends if start < end)


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
