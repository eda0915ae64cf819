"""Detects calls that must wait for a result: a later call of a reply, with a value that the model can only have made up.

Models write two calls in one reply although the second needs the result of the first, and invent it: an id, a path, a price. Such
a value is neither in the conversation nor in the tool's schema. But models also know things (a country's currency) and write
texts of their own, so not every such value is a sign. The signs are:

| value | a sign |
|---|---|
| holds a placeholder (`{{result}}`, `your_city`) or speaks of a result ("2% of the value you find"), not yet said | yes |
| of a parameter that may be left out | no |
| found in the conversation, in the schema, or in an earlier call of the same reply | no |
| true, false, null, empty, 0, 1 | no |
| of a parameter for words of the model's own (`body`, `query`, `code`) | no |
| a number | yes |
| a text of several lines, or longer than a name | no |
| a text with a digit, or with the marks of a path or an address; a name in capital letters | yes |
| any one word, for a parameter that is named as an id (`order_id`, `path`) | yes |
| a bare name for an address (`to`), where a call before it looks that name up | yes, though it was said |

A call waits only for calls of other tools: several calls of one tool each have their own values.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ..tools.catalog import words_of_name
from ..tools.outline import is_required
from ..types.calls import Tool, ToolCall
from .provenance import SaidIndex, values_in

_LONGEST_NAME: Final = 4  # words
_LONGEST: Final = 200  # characters of a path or an address
_WORDS: Final = tomllib.loads(Path(__file__).with_name("parameter_words.toml").read_text("utf-8"))
OWN_WORDS: Final = frozenset(_WORDS["own_words"])
IDS: Final = frozenset(_WORDS["ids"])
_ADDRESSEES: Final = frozenset(_WORDS["addressees"])
_MARKED: Final = re.compile(r"[0-9]|[^\s]@[^\s]|[/\\]|^[#@]\S")
_CODE: Final = re.compile(r"[(){}=<>*;|^\[\]]")
_NAME: Final = re.compile(r"[A-Z][\w'.-]*(?: (?:of |the |de |van )?[A-Z][\w'.-]*){0,3}")

# Placeholders inside a text; a lone word in brackets may be markup, a list or a template key.
_PLACEHOLDER: Final = re.compile(
    r"\{\{[\w .,|()'\[\]-]{1,80}\}\}|\$\{[a-z][\w.\[\]]{0,40}(?:result|output|response)[\w.\[\]]{0,40}\}"
    r"|\$\[[a-z][\w ]{0,60}\]|[\[<](?:your|insert|enter)[ _-][\w ]{1,60}[\]>]"
    r"|[\[<][a-z]{1,40}_\w{1,40}[\]>]|\b(?:your|insert|enter)_\w{1,60}|\b\w{1,60}_(?:here|placeholder)\b"
    r"|[(（](?:required|optional|必填|可选)[)）]"  # as the prompt marks a parameter
    r"|\bxyz\b|\b(?:project|company|user|customer|client|product|team|item) abc\b|\babc (?:corp|inc|company|ltd|project)\b",
    re.IGNORECASE,
)
_ALONE: Final = re.compile(
    r"\[[a-z][\w' -]{0,60}\]|<{1,2}[a-z][\w' -]{0,60}>{1,2}|\$?\{[^\W\d][\w .\[\]]{0,60}\}"
    r"|\$\w{0,40}(?:result|output|response)\w{0,20}|[\[<（(【]\w{0,20}结果[\]>）)】]|\.{2,9}|…|\?{1,9}(?: ?\([^()]{0,60}\))?",
    re.IGNORECASE,
)
_OF_RESULT: Final = re.compile(r"[{\[<$（(【].{0,80}(?:result|output|response|结果)", re.IGNORECASE)
_RESULT: Final = re.compile(
    r"\byou (?:find|found|get|got|obtain)\b"
    r"|\b(?:result|output|value|answer)s? (?:of|from|returned|obtained)\b"
    r"|\b(?:previous|above|earlier|first|last) (?:call|step|result|tool|search|query|function)\b"
    r"|\b(?:returned|obtained|retrieved|fetched|calculated|computed) (?:by|from|in|above)\b"
    r"|(?:上一步|前一步|第一步|上面|之前)(?:调用|查询|搜索|得到)?的?(?:结果|返回值|输出)|(?:查询|查到|得到|返回)的(?:结果|值)",
    re.IGNORECASE,
)


def waiting_values(
    call: ToolCall, tool: Tool, earlier: Sequence[ToolCall], said: Callable[[], SaidIndex], text: Callable[[], str]
) -> tuple[str, ...]:
    """Return the JSON paths of a call's values that need the result of an earlier call."""
    if all(each.name == call.name for each in earlier):
        return ()
    known = {_fold(value) for each in earlier for _, _, value in values_in(each.arguments)}
    values = [each for each in values_in(call.arguments) if _fold(each[2]) not in known]
    named = [each for each in values if is_required(each[1], tool) and _may_be_result(*each[1:])]
    index = said() if named else SaidIndex()
    found = {path for path, name, value in named if index.source_of(value, tool, name).kind == "invented"}
    found |= {path for path, _, value in values if _stands_for_result(value, text)}
    looked_up = {_fold(value) for each in earlier if each.name != call.name for _, _, value in values_in(each.arguments)}
    for path, name, value in values_in(call.arguments):
        is_bare = isinstance(value, str) and bool(value.strip()) and not _MARKED.search(value)
        if is_bare and is_addressee(name) and _fold(value) in looked_up:
            found.add(path)
    return tuple(path for path, _, _ in values_in(call.arguments) if path in found)


def is_addressee(name: str) -> bool:
    """Say whether a parameter is whom something is sent to: `to`, but not `to_currency`."""
    words = words_of_name(name)
    return not _ADDRESSEES.isdisjoint(word for at, word in enumerate(words, 1) if word != "to" or at == len(words))


def _stands_for_result(value: Any, text: Callable[[], str]) -> bool:
    if not isinstance(value, str) or len(value) > _LONGEST:
        return False
    signs = [*placeholders(value), *([value] if _RESULT.search(value) else [])]
    return any(sign.casefold() not in text() for sign in signs)


def _fold(value: Any) -> Any:
    return value.casefold().strip() if isinstance(value, str) else repr(value)


def _may_be_result(name: str, value: Any) -> bool:
    """Say whether a value is of a kind that comes from results, rather than one that models write themselves."""
    words = {*words_of_name(name)}
    if isinstance(value, bool) or words & OWN_WORDS:
        return False
    if isinstance(value, int | float):
        return value not in (0, 1)
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST or "\n" in value:
        return False
    if len(value.split()) > _LONGEST_NAME or _CODE.search(value):
        return False
    return bool(_MARKED.search(value) or (words & IDS and " " not in value) or (len(value) > 3 and _NAME.fullmatch(value)))


def stands_for_result(text: str) -> bool:
    """Say whether a text holds a placeholder for a result, as `{{result}}`."""
    return any(map(_OF_RESULT.match, placeholders(text)))


def placeholders(text: str) -> Iterator[str]:
    yield from (match[0] for match in _PLACEHOLDER.finditer(text))
    if _ALONE.fullmatch(text):
        yield text
