"""Describes the mistakes of a call that cannot run to a person: what is wrong, what was expected, and what the model wrote."""

from ..errors import FOR_THE_MODEL
from ..types.calls import Issue
from .plain import shortened, visible
from .words import speaker, texts_of

_WIDTH = 300  # characters


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
