"""Answers that do not stand on what the turn found out: a value after nothing but failures, and an earlier answer once more.

A small model whose tool failed states a price all the same, and after a calculator's -27 it repeats "I like music." from the
beginning of the conversation. Either is asked for again, once in a turn; the second answer stays, whatever it says.

| the turn's calls | an answer that | is asked for again |
|---|---|---|
| all failed or returned nothing | has a number, a date, an address or a full name that nobody said | yes |
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

__all__ = ["found_nothing", "repeats", "unfounded"]

_LIST_NUMBER: Final = re.compile(r"^[ \t>*#-]{0,9}[0-9]{1,3}[.)、](?=\s)", re.MULTILINE)
_NAME: Final = re.compile(r"(?<![\w'])[A-Z][a-z]{1,30}(?: [A-Z][a-z]{1,30}){1,3}\b")
_NOTHING: Final = re.compile(
    r"(?:no|not|nothing|none|0)\b.{0,60}\b(?:found|results?|match(?:es)?|data)\b.{0,60}|(?:未|没有|无).{0,30}(?:找到|结果|数据).{0,30}",
    re.IGNORECASE,
)
_MOST: Final = 5  # values that are told


def found_nothing(outcomes: Sequence[str | None]) -> bool:
    """Say whether calls were made, and none gave a result that says anything.

    Args:
        outcomes: of each call of a turn that could run, the text of its result; None if it failed.
    """
    return bool(outcomes) and all(text is None or _is_empty(text) for text in outcomes)


def unfounded(text: str, said: Said) -> tuple[str, ...]:
    """Return the values of an answer that nobody said, in their order, a few of them.

    Args:
        text: the answer.
        said: what was said before.
    """
    read = _LIST_NUMBER.sub("", text)
    named = [match[0] for match in _NAME.finditer(read) if len({*match[0].casefold().split()} - said.words) > 1]
    named += [address for address in addresses(read) if address.casefold() not in said.text]
    numbers = [
        atom.text
        for atom in atoms(read)
        if any(letter.isdigit() for letter in atom.text) and not {atom.key, *atom.others} & said.keys
    ]
    return tuple(dict.fromkeys((*numbers, *named)))[:_MOST]


def repeats(text: str, earlier: Iterable[str], results: Sequence[str]) -> bool:
    """Say whether an answer is an earlier one word for word, although there is a new result, of which it has nothing.

    Args:
        text: the answer.
        earlier: answers of the conversation.
        results: of this turn.
    """
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
