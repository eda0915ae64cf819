"""Judge all recorded replies again, and tell which verdicts changed: `python benchmarks/rescore_all.py`, or `make rescore`.

A verdict from before is made by the code of a git revision: of `--against`, or else of the commit that made the run. A run that
names no commit, or one that is in this history no more, is judged by the last commit before it was started. The verdict of now is
made by the checkout that holds this file. Both judge copies in a temporary folder; nothing is written elsewhere, and no
model is needed.

    python benchmarks/rescore_all.py                   every run of benchmarks/results/runs, against the code that made it
    python benchmarks/rescore_all.py --against v1      ... against another revision: what a change of the code changes
    python benchmarks/rescore_all.py RUN RUN --json    these folders; for programs

Exit code 1 if a verdict changed.
"""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xmlcall.bench.store import open_file

HERE = Path(__file__).resolve().parents[1]
RUNS = HERE / "benchmarks" / "results" / "runs"


@dataclass(frozen=True)
class Change:
    """A verdict that is not what it was.

    Args:
        run: name of its folder.
        way: how tools were offered.
        case: its id.
        before: the failure, or "right".
        now: the same.
        difference: the first thing in which the verdicts differ.
    """

    run: str
    way: str
    case: str
    before: str
    now: str
    difference: str


def git(*words: str) -> bytes:
    """Return what a git command writes."""
    return subprocess.run(["git", *words], cwd=HERE, capture_output=True, check=True).stdout


def revision_of(about: Mapping[str, Any]) -> str:
    """Return the commit that made a run, or the last one before it."""
    named = about.get("commit")
    if named:
        try:
            return git("rev-parse", "--verify", "--quiet", f"{named}^{{commit}}").decode().strip()
        except subprocess.CalledProcessError:
            pass  # of a branch that was not kept
    return git("rev-list", "-1", f"--before={about['started']}", "HEAD").decode().strip()


def checked_out(revision: str, folder: Path) -> Path:
    """Return a folder with the package of a revision; made once."""
    tree = folder / revision
    if not tree.exists():
        with tarfile.open(fileobj=io.BytesIO(git("archive", revision, "xmlcall", "prompts"))) as archive:
            archive.extractall(tree, filter="data")
    return tree


def rescored(tree: Path, run: Path) -> list[dict[str, Any]]:
    """Judge a run by the code of a folder, which keeps its verdicts beside the run; return what changed since the last time.

    Raises:
        subprocess.CalledProcessError: that code cannot judge it; the message is in `stderr`.
    """
    argv = [sys.executable, "-m", "xmlcall", "bench", "rescore", "--json", str(run)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(argv, cwd=run, env=environment, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Name the first thing in which two verdicts differ: the failure, a stage that a reply reached, a repair."""
    if before["failure"] != now["failure"]:
        return "failure"
    for name in ("reached", "repairs"):
        gone, come = {*before.get(name, ())} - {*now.get(name, ())}, {*now.get(name, ())} - {*before.get(name, ())}
        if marks := [*(f"-{each}" for each in sorted(gone)), *(f"+{each}" for each in sorted(come))]:
            return f"{name}: {marks[0]}"
    return "how often a repair was made"


def unpacked(run: Path, copy: Path) -> Path:
    """Copy a run as it was written: older code reads no packed one."""
    copy.mkdir(parents=True)
    shutil.copy(run / "run.json", copy)
    for name in ("cases.jsonl", "replies.jsonl"):
        with open_file(run, name) as content, open(copy / name, "wb") as file:
            shutil.copyfileobj(content, file)
    return copy


def changes(run: Path, tree: Path, scratch: Path) -> tuple[int, list[Change]]:
    """Return how many verdicts a run has, and those that changed."""
    copy = unpacked(run, scratch / "run")
    try:
        rescored(tree, copy)
        count = sum(len(of_way) for of_way in json.loads((copy / "scores.json").read_text(encoding="utf-8")).values())
        found = [
            Change(
                run=run.name,
                way=each["way"],
                case=each["case"],
                before=each["before"]["failure"] or "right",
                now=each["now"]["failure"] or "right",
                difference=first_difference(each["before"], each["now"]),
            )
            for each in rescored(HERE, copy)
        ]
        return count, found
    finally:
        shutil.rmtree(copy)


def judged_again(runs: list[Path], against: str | None) -> Iterator[tuple[Path, str, int, list[Change]]]:
    """Yield each run with the revision that judged it before, how many verdicts it has, and those that changed."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for run in runs:
            about = json.loads((run / "run.json").read_text(encoding="utf-8"))
            revision = git("rev-parse", "--verify", f"{against}^{{commit}}").decode().strip() if against else revision_of(about)
            yield run, revision, *changes(run, checked_out(revision, scratch), scratch)


def main() -> int:
    """Print a line a run, then a row a changed verdict."""
    parser = argparse.ArgumentParser(description="Judge all recorded replies again, and tell which verdicts changed.")
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="folders of runs; all of benchmarks/results/runs")
    parser.add_argument("--against", metavar="REV", help="judge by this revision first, not by the commit of each run")
    parser.add_argument("--json", action="store_true", help="print changed verdicts as JSON")
    options = parser.parse_args()
    found: list[Change] = []
    for run, revision, count, changed in judged_again(options.runs or sorted(RUNS.iterdir()), options.against):
        found += changed
        if not options.json:
            print(f"{run.name}: {count} verdicts of {revision[:7]}, {len(changed)} changed", flush=True)
    if options.json:
        print(json.dumps([asdict(change) for change in found], ensure_ascii=False, indent=1))
    elif found:
        print("\n| run | way | case | before | now | first difference |\n|---|---|---|---|---|---|")
        for change in found:
            print("| " + " | ".join(asdict(change).values()) + " |")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
