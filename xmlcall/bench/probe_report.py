"""What a probe found, as a table, as sentences and as JSON."""

from dataclasses import asdict
from typing import Any, Final

from ..profiles.profile import Profile, Rate
from .halving import Pairs, pairs
from .probe import Finding, Native, Outcome

__all__ = ["found_json", "native_words", "sentences", "table_of_probe"]

LEAKING: Final = 0.2  # share of the replies from which on calls in the text are what is wrong


def table_of_probe(finding: Finding) -> tuple[list[str], list[list[str]]]:
    """Return the table of a probe: a row a way, the chosen one first."""
    header = ["way", "right calls", "rightly none", "gain over the default", "gain over the server's own"]
    yardstick = finding.yardstick if finding.yardstick and finding.yardstick.verdicts else None
    rows = [_row(each.figure().way, each, finding, yardstick) for each in _ranked(finding) if each.verdicts]
    if yardstick is not None:
        rows.append(_row("the server's own function calling", yardstick, finding, None))
    return header, rows


def _ranked(finding: Finding) -> list[Outcome]:
    others = [each for each in finding.outcomes if each is not finding.chosen]
    return [finding.chosen, *sorted(others, key=lambda each: -_against(finding.outcomes[0], each).gain)]


def _row(name: str, outcome: Outcome, finding: Finding, yardstick: Outcome | None) -> list[str]:
    figure, default = outcome.figure(), finding.outcomes[0]
    marks = [mark for mark, holds in (("chosen", outcome is finding.chosen), ("default", outcome is default)) if holds]
    gain = "" if outcome is default else _gain(_against(default, outcome))
    over = "" if yardstick is None else _gain(_against(yardstick, outcome))
    return [f"{name} ({', '.join(marks)})" if marks else name, _rate(figure.calls), _rate(figure.none), gain, over]


def _against(first: Outcome, second: Outcome) -> Pairs:
    return pairs(first.answers, second.answers)


def _rate(rate: Rate) -> str:
    if not rate.total:
        return "-"
    return f"{100 * rate.right / rate.total:.0f} % [{100 * rate.low:.0f}-{100 * rate.high:.0f}]  {rate.right}/{rate.total}"


def _gain(found: Pairs) -> str:
    if not found.total:
        return "-"
    return f"{100 * found.gain:+.0f} points of {found.total}, +{found.only_second} -{found.only_first}, p {found.p:.2g}"


def sentences(finding: Finding) -> list[str]:
    """Say what was chosen and why, and how the server's own function calling went."""
    best, test = finding.best.profile.words, finding.test
    proof = (
        f"on {test.total} cases that no choice was made by, {best} has {test.only_second} right that the default has wrong, "
        f"and {test.only_first} the other way round (p {test.p:.2g})"
    )
    verdict = f"chosen: {best}" if finding.won else "chosen: the default, since no other way is better by more than chance"
    failed = [f"{each.profile.words} was left out: {each.problem}" for each in finding.outcomes if each.problem]
    return [f"{verdict}: {proof}", f"the server's own function calling: {native_words(finding.native)}", *failed]


def native_words(native: Native) -> str:
    """Say why the server's own function calling works with a model, or why it does not."""
    if not native.offered:
        return native.reason
    told = f"of {native.calls} replies to questions that need a call, {native.told} came with calls"
    parts = [f"{told}, {native.leaked} left them in the text" if native.leaked else told]
    if native.calls and native.leaked >= LEAKING * native.calls:
        parts.append("the model does not write calls as its template says, so the server does not find them; xmlcall reads them")
    if native.results and native.again:
        parts.append(f"behind a result it calls once more, though words are due, in {native.again} of {native.results} cases")
    return "; ".join(parts)


def found_json(finding: Finding, profile: Profile) -> dict[str, Any]:
    """Return what a probe found, for `--json`.

    Returns:
        `chosen`, `won`, `test`, `ways` (with their rates and what each gains over the default), `native`, `profile`, `replies`.
    """
    default = finding.outcomes[0]
    return {
        "chosen": finding.chosen.profile.words,
        "won": finding.won,
        "test": {"way": finding.best.profile.words, **_pairs_json(finding.test)},
        "ways": [_outcome_json(each, default, finding.yardstick) for each in _ranked(finding)],
        "native": {**asdict(finding.native), "words": native_words(finding.native), "rates": _rates(finding.yardstick)},
        "profile": asdict(profile),
        "replies": finding.replies,
    }


def _outcome_json(outcome: Outcome, default: Outcome, yardstick: Outcome | None) -> dict[str, Any]:
    return {
        **asdict(outcome.figure()),
        "problem": outcome.problem,
        "over_default": _pairs_json(_against(default, outcome)),
        "over_native": _pairs_json(_against(yardstick, outcome)) if yardstick else None,
    }


def _rates(yardstick: Outcome | None) -> dict[str, Any] | None:
    return asdict(yardstick.figure()) if yardstick and yardstick.verdicts else None


def _pairs_json(found: Pairs) -> dict[str, Any]:
    return {**asdict(found), "gain": round(found.gain, 4), "p": round(found.p, 5)}
