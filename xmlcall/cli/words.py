"""The texts that `run` and `chat` show to a person, in each language. Messages of exceptions are always in English.

They are in `words_LANG.toml`, with the same keys and the same placeholders in each (tests/cli/test_cli_words.py). Among them is
what is wrong with a call that cannot run.
"""

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from ..errors import FOR_THE_MODEL, ISSUES
from ..turn.asking import REASONS
from ..types.calls import Issue
from .plain import shortened, visible

Say = Callable[..., str]  # returns the text of a key, with its placeholders filled in
_WIDTH = 300  # characters
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


def issue_line(issue: Issue, lang: str = "en") -> str:
    """Describe an issue in one line, with its place unless the sentence names it."""
    where = issue.path.removeprefix("$").removeprefix(".")
    text = _text(issue, lang)
    text = text if not where or repr(where) in text else speaker(lang)("with_text", label=where, text=text)
    return shortened(visible(text), lines=1, width=_WIDTH)


def _text(issue: Issue, lang: str) -> str:
    """Describe an issue by its code; most messages in English say it more exactly."""
    say, key = speaker(lang), f"issue_{issue.code}"
    if key not in texts_of(lang) or (lang == "en" and issue.code not in FOR_THE_MODEL):
        return issue.why
    parts = {"expected": issue.expected, "got": issue.got, "readings": say("or").join(issue.readings)}
    return say(key) + "".join(say(f"issue_{name}", text=part) for name, part in parts.items() if part)
