"""The words of requests (`request_words.toml`): patterns of its tables, and what in a script other than Latin may be a name.

A value in Latin letters may stand for such a name (巴黎, Paris). A translation cannot be looked up, so all that is known is
whether the request has room for a name (docs/decisions/grounds.md).
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

WORDS: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("request_words.toml").read_text("utf-8"))
_MARKED: Final = re.compile(r"[0-9@\\]|^[/~.]")
_LATIN: Final = re.compile(r"[A-Za-z]")
_OTHER_SCRIPT: Final = re.compile(r"[\u0370-\u1fff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_MAY_BE_NAME: Final = re.compile(r"[\u3400-\u9fff]{2}|[\u0370-\u1fff\u3040-\u30ff\uac00-\ud7af]")
IN_ENGLISH: Final[Mapping[str, str]] = WORDS["in_english"]
_NO_NAME: Final = re.compile("|".join([*IN_ENGLISH, *WORDS["chinese"]["no_names"]]))


def pattern(name: str) -> re.Pattern[str]:
    row = WORDS[name]
    endings = f"(?:{'|'.join(row['endings'])})?" if "endings" in row else ""
    english = rf"\b(?:{'|'.join(row['english'])}){endings}\b"
    return re.compile(f"{english}|{row['other']}" if "other" in row else english, re.IGNORECASE)


_POINTS_BACK: Final = pattern("points_back")


def has_other_script(text: str) -> bool:
    """Say whether a text contains a script other than Latin."""
    return bool(_OTHER_SCRIPT.search(text))


def may_have_name(text: str) -> bool:
    """Say whether a text has what may be a name in a script other than Latin."""
    return has_other_script(text) and bool(_MAY_BE_NAME.search(_NO_NAME.sub(" ", text)))


def may_be_translation(value: str) -> bool:
    """Say whether a value may be a name in Latin letters; numbers, paths and addresses are not translated."""
    return bool(_LATIN.search(value) and not _MARKED.search(value))


def points_back(request: str) -> bool:
    """Say whether a request refers to what was said before it."""
    return bool(_POINTS_BACK.search(request))
