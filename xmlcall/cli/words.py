"""The texts that `run` and `chat` show to a person, in each language. Messages of exceptions are always in English.

They are in `words_LANG.toml`, with the same keys and the same placeholders in each (tests/cli/test_cli_words.py).
"""

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from ..errors import ISSUES
from ..turn.asking import REASONS

Say = Callable[..., str]  # returns the text of a key, with its placeholders filled in

LABELS = (
    *("call", "result", "error", "failed", "denied", "rejected", "waits", "cut", "retry", "decided", "repaired", "left out"),
    *("tokens", "log"),
)


@cache
def texts_of(lang: str) -> Mapping[str, str]:
    reasons = {f"way_{finding}": reason for finding, reason in REASONS.items()}
    issues = {f"issue_{code}": text for code, text in ISSUES.items()}
    return reasons | issues | tomllib.loads(Path(__file__).with_name(f"words_{lang}.toml").read_text(encoding="utf-8"))


def speaker(lang: str) -> Say:
    texts = texts_of(lang)
    return lambda key, **values: texts[key].format(**values)
