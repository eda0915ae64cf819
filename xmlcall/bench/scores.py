"""The verdicts of a run as they were when it was made, so that a later reading can tell what it changed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .funnel import Verdict
from .store import RecordedRun, read_json, write_whole

__all__ = ["Scores", "changed", "changes", "keep", "keep_scores", "scores_of"]

_SCORE = {"type": "object", "required": ["failure"], "properties": {"failure": {"type": "string"}}}
_SCORES = {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": _SCORE}}

Scores = dict[str, dict[str, dict[str, Any]]]
"""Way -> id of a case -> the metrics that its reply reached, its failure and its repairs."""


def keep_scores(run: RecordedRun, verdicts: Mapping[str, Sequence[Verdict]]) -> None:
    """Write `scores.json` into the folder of a run."""
    keep(run.folder, scores_of(verdicts))


def keep(folder: Path, scores: Scores) -> None:
    """Write `scores.json` into a folder."""
    text = json.dumps(scores, ensure_ascii=False, indent=0)
    write_whole(folder / "scores.json", text + "\n")


def changes(run: RecordedRun, verdicts: Mapping[str, Sequence[Verdict]]) -> list[dict[str, Any]]:
    """Tell which verdicts differ from those that were kept.

    Returns:
        Per difference `way`, `case`, `before` and `now`: the metrics that a reply reached, and its failure.
    """
    return changed(run.folder, scores_of(verdicts))


def changed(folder: Path, now: Scores) -> list[dict[str, Any]]:
    """Tell which scores differ from those that were kept (see `changes`)."""
    file = folder / "scores.json"
    before = read_json(file, _SCORES, "remove it, and the next `xmlcall bench rescore` writes it anew") if file.exists() else {}
    return [
        {"way": way, "case": case, "before": before[way][case], "now": score}
        for way, scores in now.items()
        for case, score in scores.items()
        if case in before.get(way, {}) and before[way][case] != score
    ]


def scores_of(verdicts: Mapping[str, Sequence[Verdict]]) -> Scores:
    """Return what is kept of verdicts."""
    return {
        way: {
            verdict.case.id: {"reached": sorted(verdict.reached), "failure": verdict.failure, "repairs": sorted(verdict.repairs)}
            for verdict in of_way
        }
        for way, of_way in verdicts.items()
    }
