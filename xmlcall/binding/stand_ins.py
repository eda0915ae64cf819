"""Texts that stand for a value which the writer does not have yet: placeholders, and words about a result that is to come.

Small models write `{{result}}`, `your_city` or "2% of the exact population value you find" where a value belongs.
"""

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["describes_result", "placeholders"]

# Inside a text; a word in brackets alone may be markup, a list or a key of a template.
_PLACEHOLDER: Final = re.compile(
    r"\{\{\s{0,9}[\w .]{1,60}?\s{0,9}\}\}|\$\[[a-z][\w ]{0,60}\]|[\[<](?:your|insert|enter)[ _-][\w ]{1,60}[\]>]"
    r"|[\[<][a-z]{1,40}_\w{1,40}[\]>]|\b(?:your|insert|enter)_\w{1,60}|\b\w{1,60}_(?:here|placeholder)\b"
    r"|[(（](?:required|optional|必填|可选)[)）]"  # as the prompt describes a parameter
    r"|\bxyz\b|\b(?:project|company|user|customer|client|product|team|item) abc\b|\babc (?:corp|inc|company|ltd|project)\b",
    re.IGNORECASE,
)
_ALONE: Final = re.compile(r"\[[a-z][\w' -]{0,60}\]|<[a-z][\w' -]{0,60}>|\.{2,9}|…|\?{1,9}(?: ?\([^()]{0,60}\))?", re.IGNORECASE)
_RESULT: Final = re.compile(
    r"\byou (?:find|found|get|got|obtain)\b"
    r"|\b(?:result|output|value|answer)s? (?:of|from|returned|obtained)\b"
    r"|\b(?:previous|above|earlier|first|last) (?:call|step|result|tool|search|query|function)\b"
    r"|\b(?:returned|obtained|retrieved|fetched|calculated|computed) (?:by|from|in|above)\b"
    r"|(?:上一步|前一步|第一步|上面|之前)(?:调用|查询|搜索|得到)?的?(?:结果|返回值|输出)|(?:查询|查到|得到|返回)的(?:结果|值)",
    re.IGNORECASE,
)


def placeholders(text: str) -> Iterator[str]:
    """Yield the placeholders of a text."""
    yield from (match[0] for match in _PLACEHOLDER.finditer(text))
    if _ALONE.fullmatch(text):
        yield text


def describes_result(text: str) -> bool:
    """Say whether a text speaks of a result in place of stating it."""
    return _RESULT.search(text) is not None
