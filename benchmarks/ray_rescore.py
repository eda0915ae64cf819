"""How fast kept replies are judged again on Ray, and what memory that takes: `xmlcall bench rescore --on ray` over a million.

    python benchmarks/ray_rescore.py                      # a million; writes benchmarks/results/ray-rescore.md
    python benchmarks/ray_rescore.py --replies 20000      # a trial; prints, and writes nothing

The replies are those of benchmarks/results/runs, single questions and conversations, repeated until there are enough: each run of
the copies holds what recorded runs of one suite and settings hold, with a number behind the id of each case. They lie in a
temporary folder. Memory is read of `/proc` twice a second: of the command, and of the largest of Ray's workers.
"""

import argparse
import contextlib
import datetime
import hashlib
import importlib.metadata
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from xmlcall.bench.store import open_file, read_about, read_run

HERE: Final = Path(__file__).resolve().parent
RUNS: Final = HERE / "results" / "runs"
RESULT: Final = HERE / "results" / "ray-rescore.md"
MILLION: Final = 1_000_000
WORKERS: Final = (1, 2)
OF_A_RUN: Final = 20_000  # replies, about
LOOK_SECONDS: Final = 0.5
QUARTERS: Final = 4


# -- many replies ------------------------------------------------------------------------------------------------------


def repeated(source: Path, folder: Path, times: int) -> int:
    """Write a run that holds a recorded run so many times; return how many replies it has."""
    about = read_about(source)
    with open_file(source, "cases.jsonl") as lines:
        cases = [json.loads(line) for line in lines]
    replies = read_run(source).replies
    folder.mkdir()
    hashed = hashlib.sha256(b"[")
    with open(folder / "cases.jsonl", "wb") as case_file, open(folder / "replies.jsonl", "wb") as reply_file:
        for number in range(times):
            for place, case in enumerate(cases):
                copy = case | {"id": f"{case['id']}@{number}"}
                hashed.update((b", " if number or place else b"") + json.dumps(copy, sort_keys=True).encode())
                case_file.write(_line(copy))
            for reply in replies:
                reply_file.write(_line(reply | {"case": f"{reply['case']}@{number}", "key": f"{reply['key']}@{number}"}))
    hashed.update(b"]")
    about["cases"] = hashed.hexdigest()[:16]
    (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
    return times * len(replies)


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def runs_of(count: int, folder: Path) -> tuple[list[Path], int]:
    """Write runs with at least so many replies in all; each recorded run has its share."""
    sizes = {source: count for source in sorted(RUNS.iterdir()) if (count := len(read_run(source).replies))}
    found, written = list[Path](), 0
    times = -(-count // sum(sizes.values()))
    for number in itertools.count():
        for source, size in sizes.items():
            if written >= count:
                return found, written
            most = max(OF_A_RUN // size, 1)
            if (left := times - number * most) > 0:
                found.append(folder / f"{source.name}-{number}")
                written += repeated(source, found[-1], min(most, left))
    raise AssertionError("not reached")


# -- the measurement ---------------------------------------------------------------------------------------------------


@dataclass
class Memory:
    """Resident memory in MB over time.

    Args:
        pid: of the command.
        command: of the command's process, a figure a look.
        worker: of the largest worker of Ray's.
    """

    pid: int
    command: list[float] = field(default_factory=list)
    worker: list[float] = field(default_factory=list)

    def look(self) -> None:
        """Note what is taken now; processes may end while we look."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            sizes = [_megabytes(pid) for pid in _judging(os.getsid(self.pid))]
            self.command.append(_megabytes(self.pid))
            self.worker.append(max(sizes, default=0.0))

    def quarters(self) -> Iterator[tuple[float, float]]:
        """Yield the largest figures of each quarter of the time."""
        size = max(len(self.command) // QUARTERS, 1)
        for start in range(0, size * QUARTERS, size):
            part = slice(start, start + size)
            yield max(self.command[part], default=0.0), max(self.worker[part], default=0.0)


def _megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _judging(session: int) -> Iterator[int]:
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if "_judge" in Path(f"/proc/{pid}/cmdline").read_text() and os.getsid(pid) == session:
                yield pid


def judged(runs: list[Path], workers: int, home: Path) -> tuple[float, Memory]:
    """Judge runs again with the command; return the seconds and the memory."""
    command = [sys.executable, "-m", "xmlcall", "bench", "rescore", "--on", "ray", "--workers", str(workers), *map(str, runs)]
    ours = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | ours
    over, started = threading.Event(), time.perf_counter()
    with (
        open(home / "log", "wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        memory = Memory(process.pid)
        looking = threading.Thread(target=_look, args=(memory, over))
        looking.start()
        code = process.wait()
        over.set()
        looking.join()
    if code:
        raise SystemExit((home / "log").read_text(encoding="utf-8", errors="replace")[-2000:])
    return time.perf_counter() - started, memory


def _look(memory: Memory, over: threading.Event) -> None:
    while not over.wait(LOOK_SECONDS):
        memory.look()


def scores_of(runs: list[Path]) -> str:
    """Hash all verdicts, to tell whether they are the same."""
    hashed = hashlib.sha256()
    for run in runs:
        hashed.update((run / "scores.json").read_bytes())
    return hashed.hexdigest()


def report(count: int, numbers: Sequence[int]) -> str:
    """Measure with each number of workers."""
    rows, hashes, rates = list[str](), set[str](), list[float]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs, written = runs_of(count, folder)
        for workers in numbers:
            seconds, memory = judged(runs, workers, folder)
            hashes.add(scores_of(runs))
            rates.append(written / seconds)
            quarters = " | ".join(f"{command:,.0f} / {worker:,.0f}" for command, worker in memory.quarters())
            rows.append(f"| {workers} | {rates[-1] / rates[0]:.2f} | {rates[-1]:,.0f} | {seconds:,.0f} | {quarters} |")
    if len(hashes) > 1:
        raise SystemExit("the verdicts differ")
    head = "| workers | times one worker | replies a second | seconds | MB, 1st quarter | 2nd | 3rd | 4th |\n|---|" + "---:|" * 7
    return "\n".join([_about(written, len(runs)), head, *rows, "", _NOTE])


_NOTE: Final = """\
MB: the most that the command had resident in each quarter of the time, and behind the stroke the largest worker. The seconds
hold the start of Ray. The verdicts of all rows are the same, byte for byte. Two copies of a case stand as far apart as the
recorded run is long, so what is kept of a case's tools (64 patterns) is mostly made anew, as for cases that differ.
"""


def _about(written: int, runs: int) -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
    today = datetime.datetime.now(datetime.UTC).date()
    machine = (
        f"{platform.system()} {platform.machine()}, {processor}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    )
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("xmlcall", "ray"))
    return f"`{' '.join(['python', *sys.argv])}`, {today}, {machine}; {written:,} replies in {runs} runs. {versions}.\n"


def main() -> None:
    """Print or write the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--replies", type=int, default=MILLION, metavar="N", help="at least (default: %(default)s)")
    arguments.add_argument("--workers", type=int, nargs="+", default=WORKERS, metavar="N", help="how many at once (default: 1 2)")
    options = arguments.parse_args()
    text = "# Judging again on Ray\n\n" + report(options.replies, options.workers)
    print(text)
    if options.replies >= MILLION and len(options.workers) > 1:
        RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
