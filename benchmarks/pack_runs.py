"""Pack recorded runs: `python benchmarks/pack_runs.py build/my-run`

Moves runs of `xmlcall bench run` into benchmarks/results/runs, compresses their replies, and keeps their cases once for all runs
that have the same. A packed run is read, judged, shown and gone on with as before; `zless` shows its files. Verdicts
(`scores.json`) are left out: `xmlcall bench rescore` makes them again.
"""

import argparse
import gzip
import shutil
from pathlib import Path

from xmlcall.bench.store import read_run, shared_cases, write_whole

RUNS = Path(__file__).parent / "results" / "runs"


def main() -> None:
    """Move and pack each run that is named."""
    parser = argparse.ArgumentParser(description="Pack recorded runs into benchmarks/results.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run; one of results/runs is packed there")
    for run in parser.parse_args().runs:
        kept = RUNS / run.name
        if run.resolve() != kept.resolve():
            shutil.move(run, kept)
        pack(kept)
        (kept / "scores.json").unlink(missing_ok=True)
        print(f"{run.name}: {sum(file.stat().st_size for file in kept.iterdir()):,} bytes beside its cases")


def pack(folder: Path) -> None:
    """Compress a finished run, and keep its cases once for all runs that have the same."""
    run = read_run(folder)
    with run.locked():
        cases, replies = folder / "cases.jsonl", folder / "replies.jsonl"
        if cases.is_file():
            shared = shared_cases(folder)
            shared.parent.mkdir(exist_ok=True)
            _compress(cases, shared)
        if replies.is_file():
            _compress(replies, folder / "replies.jsonl.gz")
    (folder / "lock").unlink(missing_ok=True)


def _compress(file: Path, packed: Path) -> None:
    write_whole(packed, gzip.compress(file.read_bytes(), mtime=0))  # the same bytes whenever it is packed
    file.unlink()


if __name__ == "__main__":
    main()
