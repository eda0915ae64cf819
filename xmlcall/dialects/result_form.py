"""The form in which a model receives results, as data: a frame around all of them, and marks around each.

    <function_results>
    <result name="add">
    3
    </result>
    </function_results>

is ours; families that were trained with a form of their own have it in their row. A form is only used if it has an end mark and
its marks are not everyday words, because one result must not pass for another, nor a person's text for a result. So families
whose results are a turn with a role of its own, a heading without an end, or one JSON list get our form.

Cost: reading a message is linear.
"""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import regex

from ..types.calls import ToolReply, Written

_TAG: Final = regex.compile(r"([<\[])/?+([/|\uff5c]*+)(\w[\w:\-]*+)")
_LONGEST_NAME: Final = 200  # characters

ERROR_WORDS: Final = {"en": "Error:", "zh": "错误："}
"""The word that begins a failed call's text in forms without a mark for errors, by language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultForm:
    """How results are written."""

    result_open: str
    result_close: str
    error_open: str = ""  # the mark before the text of a failed call; "" if a word in the text marks it
    frame_open: str = ""
    frame_close: str = ""

    @property
    def opener(self) -> str:
        """The text that begins a message of results."""
        return self.frame_open.strip() or self.result_opener

    @property
    def result_opener(self) -> str:
        """The text that begins each result, whatever the name of its tool."""
        return self.result_open.partition("{name}")[0].strip()

    @property
    def closer(self) -> str:
        """The text that ends a message of results; without a frame, the text that ends the first result."""
        return self.frame_close.strip() or self.result_close.strip()

    def write(self, items: Iterable[tuple[str, str, bool]]) -> Written:
        """Write results: each is a tool's name, a text without the form's marks, and whether the call failed."""
        parts, replies, is_named = [self.frame_open.lstrip()], list[ToolReply](), "{name}" in self.result_open
        size = len(parts[0])
        for name, text, failed in items:
            opened = (self.error_open if failed and self.error_open else self.result_open).replace("{name}", name)
            opened = opened if size else opened.lstrip()
            start = size + len(opened)
            replies.append(ToolReply(name=name, start=start, end=start + len(text), is_error=failed, is_named=is_named))
            parts += [opened, text, self.result_close]
            size = start + len(text) + len(self.result_close)
        return Written(text="".join([*parts, self.frame_close]).strip(), replies=tuple(replies))

    def places(self, text: str) -> Iterator[ToolReply]:
        """Yield the places of the results in a text that xmlcall did not write, in order."""
        openers = list(_opening(self).finditer(text))
        for found, following in zip_longest(openers, openers[1:]):
            start, limit = found.end(), following.start() if following else len(text)
            closer = text.find(self.result_close.strip(), start, limit)
            end = closer if closer >= 0 else limit
            failed = bool(found["failed"])
            yield ToolReply(
                name=(found["failed_name"] if failed else found["name"]) or "",
                start=start,
                end=end - (end > start and text[end - 1] == "\n"),  # the newline before a closing mark is markup
                is_error=failed or (not self.error_open and text.startswith(tuple(ERROR_WORDS.values()), start)),
                is_ended=closer >= 0,
            )

    def tag_words(self, bracket: str = "") -> frozenset[str]:
        """Return the names of the marks: all, or those directly after a bracket (`<` or `[`) or its slash."""
        written = f"{self.frame_open} {self.result_open} {self.error_open} {self.result_close} {self.frame_close}"
        return frozenset(name for begin, bar, name in _TAG.findall(written) if not bracket or (begin == bracket and not bar))


@functools.cache
def _opening(form: ResultForm) -> "regex.Pattern[str]":
    """Return a pattern for the opener of a result; models may omit the quotation marks around the name."""
    error = _pattern(form.error_open, "failed_name") if form.error_open else "(?!)(?P<failed_name>)"
    return regex.compile(rf"(?:(?P<failed>{error})|{_pattern(form.result_open, 'name')})\n?")


def _pattern(written: str, group: str) -> str:
    head, named, tail = (
        regex.escape(part, literal_spaces=True).replace('"', '"?') for part in written.strip().partition("{name}")
    )
    name = rf'(?P<{group}>[^\n<>"{{}}]{{0,{_LONGEST_NAME}}}+)' if named else f"(?P<{group}>)"
    return f"{head}{name}{tail}"


OWN_RESULTS: Final = ResultForm(
    frame_open="<function_results>\n",
    result_open='<result name="{name}">\n',
    error_open='<result name="{name}" error="true">\n',
    result_close="\n</result>\n",
    frame_close="</function_results>",
)

TOOL_RESPONSES: Final = ResultForm(result_open="<tool_response>\n", result_close="\n</tool_response>\n")
"""The form of Hermes and Qwen, in a turn of role `user`, and of GLM."""

BRACKETS: Final = ResultForm(result_open="[TOOL_RESULTS]", result_close="[/TOOL_RESULTS]")
"""The form of Mistral."""
