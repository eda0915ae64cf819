"""Answers that do not stand on what the turn found out: a value after nothing but failures, and an earlier answer once more.

A small model whose tool failed states a price all the same, and after a calculator's -27 it repeats "I like music." from the
beginning of the conversation. Either is asked for again, once in a turn; the second answer stays, whatever it says.

| the turn's calls | an answer that | is asked for again |
|---|---|---|
| all failed or returned nothing | has a number, a date, an address or a full name that nobody said | yes |
| only read, although the request asks for a change | says that it was made ("has been deleted") | yes |
| gave a new result | is an earlier answer word for word, and has nothing of the result | yes |
| any other | | no |

A short name is not looked at ("Canberra"): a model may know it. What was said is as in `binding.grounds`; numbers of a list do
not count. Cost: linear in the conversation.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ..binding.grounds import Said, addresses
from ..binding.provenance import keys_of_text
from ..binding.spellings import atoms

__all__ = ["claims_a_deed", "found_nothing", "repeats", "unfounded"]

_LIST_NUMBER: Final = re.compile(r"^[ \t>*#-]{0,9}[0-9]{1,3}[.)、](?=\s)", re.MULTILINE)
_NAME: Final = re.compile(r"(?<![\w'])[A-Z][a-z]{1,30}(?: [A-Z][a-z]{1,30}){1,3}\b")
_NOTHING: Final = re.compile(
    r"(?:no|not|nothing|none|0)\b.{0,60}\b(?:found|results?|match(?:es)?|data)\b.{0,60}|(?:未|没有|无).{0,30}(?:找到|结果|数据).{0,30}",
    re.IGNORECASE,
)
_DEED: Final = re.compile(
    r"\b(?:I(?:['’]ve| have)?|(?:has|have) (?:now |just )?been|was|were)(?: successfully| just| now)? (?P<done>sent|mailed"
    r"|e-?mailed|delivered|deleted|removed|moved|renamed|copied|paid|settled|booked|reserved|ordered|purchased|bought|created|saved|stored"
    r"|added|updated|changed|scheduled|rescheduled|cancell?ed|transferred|posted|published|shared|recorded|written)\b"
    r"|已(?:经)?(?:成功)?(?:为您|帮您|帮你|为你)?"
    r"(?P<zh>发送|寄出|删除|移动|移到|修改|改|支付|付|预订|预约|创建|保存|添加|更新|安排|取消|写入|记录|转)",
    re.IGNORECASE,
)
_NOT_DONE: Final = re.compile(
    r"\b(?:not|n['’]t|nothing|none|no|cannot|unable|could|would|if|once|after|before)\b|没|未|无法|不能|如果", re.IGNORECASE
)
_SENTENCE: Final = re.compile(r"[^.!?。！？\n]{1,500}")
_MOST: Final = 5  # values that are told


def found_nothing(outcomes: Sequence[str | None]) -> bool:
    """Say whether calls were made, and none gave a result that says anything.

    Args:
        outcomes: of each call of a turn that could run, the text of its result; None if it failed.
    """
    return bool(outcomes) and all(text is None or _is_empty(text) for text in outcomes)


def unfounded(text: str, said: Said) -> tuple[str, ...]:
    """Return the values of an answer that nobody said, in their order, a few of them."""
    read = _LIST_NUMBER.sub("", text)
    named = [match[0] for match in _NAME.finditer(read) if len({*match[0].casefold().split()} - said.words) > 1]
    named += [address for address in addresses(read) if address.casefold() not in said.text]
    numbers = [
        atom.text
        for atom in atoms(read)
        if any(letter.isdigit() for letter in atom.text) and not {atom.key, *atom.others} & said.keys
    ]
    return tuple(dict.fromkeys((*numbers, *named)))[:_MOST]


def claims_a_deed(text: str, results: Iterable[str]) -> bool:
    """Say whether an answer says that something was sent, changed or deleted, of which no result tells."""
    told = "\n".join(results).casefold()
    sentences = [match[0] for match in _SENTENCE.finditer(text) if not _NOT_DONE.search(match[0])]
    deeds = (match["done"] or match["zh"] for sentence in sentences for match in _DEED.finditer(sentence))
    return any(deed.casefold() not in told for deed in deeds)


def repeats(text: str, earlier: Iterable[str], results: Sequence[str]) -> bool:
    """Say whether an answer is an earlier one word for word, although there is a new result, of which it has nothing."""
    words = text.split()
    if not results or not words or all(each.split() != words for each in earlier):
        return False
    keys = frozenset(key for result in results for key in keys_of_text(result))
    return bool(keys) and not keys & frozenset(keys_of_text(text))


def _is_empty(text: str) -> bool:
    """Say whether a result says nothing: it is empty, JSON with nothing in it, or says that nothing was found."""
    if not text.strip() or _NOTHING.fullmatch(text.strip()):
        return True
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return value is None or (isinstance(value, dict | list | str) and not _has_value(value))


def _has_value(value: Any) -> bool:
    """Say whether a part of a value says something; beside an empty list its length of 0 does not."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return value not in (None, "", 0) if parts is None else any(map(_has_value, parts))
