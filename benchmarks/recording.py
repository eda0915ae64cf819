"""What recording costs the proxy: throughput and memory with and without it, before one scripted model server, in one run.

    python benchmarks/recording.py --markdown > benchmarks/results/recording.md
    python benchmarks/recording.py --quick    # few rounds, few turns

What recording alone costs is measured in one process, whose recorder is taken off and put on again between two loads: two
processes of one program differ by up to ten percent in speed. For what the page and a file cost, four servers run side by side:
`xmlcall serve` as it is; with the page (`--ui`), which records; the same while a page watches; and the same with a file of all
turns (`--record`). Every round starts all four anew, puts each load on each of them by turns, and begins with another one each
time, so that what disturbs the machine disturbs all.

A round gives a ratio to the server that records nothing; reported are the mean of these ratios and its 95 % interval (bootstrap
over rounds). At last more turns than are ever kept go through each server while its memory is measured.
"""

import argparse
import asyncio
import contextlib
import gc
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final

import httpx
from load_client import load, request_of
from proxy_load import Case, Measured, about, run
from scripted_upstream import SECONDS, Script, Target, await_port, end, upstream

OFF: Final = "off"
PAGE: Final = "recording"
WATCHED: Final = "page open"
WRITTEN: Final = "to a file"
LIMIT: Final = 3.0  # percent of the throughput that recording may take
TOKENS, WORKERS = 300, 50
# `xmlcall serve`, whose recorder a signal takes off and puts on again.
SWITCHED: Final = """
import signal, sys
from xmlcall.cli import main
from xmlcall.proxy.engine.engine import Engine
begin = Engine.__init__
def begun(engine, *given, recorder=None, **options):
    begin(engine, *given, recorder=recorder, **options)
    def switch(*_):
        engine.recorder = None if engine.recorder else recorder
    signal.signal(signal.SIGUSR1, switch)
Engine.__init__ = begun
sys.exit(main(sys.argv[1:]))
"""
REPEATS: Final = 3  # of a load in a round, after one that warms up and does not count
RESAMPLES: Final = 5000
KEPT_SAMPLES: Final = (0, 500, 1000, 2000, 5000, 10_000)

CASES: Final = (
    Case(title="tokens, passed on", with_tools=False, script=Script(tokens=TOKENS)),
    Case(title="tokens, read", with_tools=True, script=Script(tokens=TOKENS)),
    Case(title="tokens, read as a call", with_tools=True, script=Script(tokens=TOKENS, call=True)),
    Case(title="answers, passed on", with_tools=False, script=Script(tokens=5), each=20),
    Case(title="answers, read", with_tools=True, script=Script(tokens=5), each=10),
)


# -- the servers ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(name: str, model: str, *options: str, program: Sequence[str] = ("-m", "xmlcall")) -> Iterator[tuple[Target, Path]]:
    """Run our proxy; give what it writes to standard error, too."""
    command = [sys.executable, *program, "serve", "--model", f"{model}/v1", "--ask", "mode=xml", "--port", "0", *options]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("wb") as log:
        environment = os.environ | {"PYTHONHASHSEED": "1"}  # or each would lay out its tables in another way
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process:
            try:
                assert process.stdout is not None
                if not (url := process.stdout.readline().strip()):
                    raise SystemExit(f"{name} did not start: {(Path(folder) / 'log').read_text()}")
                await_port(url)
                yield Target(name=name, url=url, pid=process.pid), Path(folder) / "log"
            finally:
                end(process)


class Watching:
    """A page that is open: reads the events of a server until it is closed.

    Args:
        log: of the server, which has the address with the token.
    """

    def __init__(self, log: Path) -> None:
        self.bytes = 0
        self._address = self._find(log)
        self._client = httpx.Client(timeout=httpx.Timeout(SECONDS, read=None))
        self._client.get(self._address, follow_redirects=True).raise_for_status()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @staticmethod
    def _find(log: Path) -> str:
        limit = time.monotonic() + SECONDS
        while time.monotonic() < limit:
            if found := re.search(r"http://\S+/ui/\?token=\S+", log.read_text(encoding="utf-8")):
                return found[0]
            time.sleep(0.1)
        raise SystemExit("the server did not tell the address of its page")

    def _read(self) -> None:
        url = httpx.URL(self._address).copy_with(path="/ui/api/events", query=None)
        with contextlib.suppress(httpx.HTTPError), self._client.stream("GET", url) as response:
            response.raise_for_status()
            for piece in response.iter_raw():
                self.bytes += len(piece)
                if self._is_closed.is_set():
                    return

    def close(self) -> None:
        """Note that nobody reads any more; the server hangs up when it ends."""
        self._is_closed.set()


@contextlib.contextmanager
def servers(model: str, names: Sequence[str], written: list[int]) -> Iterator[list[Target]]:
    """Run all servers.

    Args:
        model: address of the model server.
        names: of the servers.
        written: given the number of turns in the file, at the end.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.callback(lambda: written.append(sum(each.read_bytes().count(b"\n") for each in Path(folder).glob("*.jsonl"))))
        options = {OFF: (), PAGE: ("--ui",), WATCHED: ("--ui",), WRITTEN: ("--ui", "--record", folder)}
        found = {name: stack.enter_context(serving(name, model, *options[name])) for name in names}
        if WATCHED in found:
            watching = Watching(found[WATCHED][1])
            stack.callback(watching.close)
        yield [target for target, _ in found.values()]
        if WATCHED in found and not watching.bytes:
            raise SystemExit("the page was told nothing")


# -- what is measured ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a server costs beside the one that records nothing, in percent.

    Args:
        mean: of the rounds.
        low: of the 95 % interval.
        high: of it.
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ({self.low:+.1f} to {self.high:+.1f})"


def cost(figures: Sequence[float], base: Sequence[float]) -> Cost:
    """Compare rounds in pairs.

    Args:
        figures: seconds of each round.
        base: those of the server that records nothing, in the same rounds.
    """
    ratios = [math.log(figure / other) for figure, other in zip(figures, base, strict=True)]
    chance = random.Random(1)
    means = sorted(fmean(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = means[round(RESAMPLES * 0.025)], means[round(RESAMPLES * 0.975) - 1]
    return Cost(**{name: (math.exp(value) - 1) * 100 for name, value in (("mean", fmean(ratios)), ("low", low), ("high", high))})


Found = dict[str, dict[str, list[tuple[float, float]]]]
"""Load -> server -> seconds and processor seconds of each round."""


def measure(targets: Sequence[Target], first: int, found: Found) -> None:
    """Put each load on all servers by turns.

    Args:
        first: number of the server that begins.
        found: what is found is added to it.
    """
    at = first % len(targets)
    for case in CASES:
        measured = {target.name: Measured() for target in targets}
        for repeat in range(REPEATS + 1):
            for target in (*targets[at:], *targets[:at]):
                run(case, target, measured[target.name] if repeat else Measured())
        for name, each in measured.items():
            found.setdefault(case.title, {}).setdefault(name, []).append((sum(each.seconds), sum(each.computed)))


def switched(model: str, rounds: int) -> dict[str, tuple[Cost, Cost]]:
    """Return what recording costs under each load, in time and in processor time, in one process."""
    found: dict[str, tuple[Cost, Cost]] = {}
    with serving("switched", model, "--ui", program=("-c", SWITCHED)) as (target, _):
        is_on = True
        for case in CASES:
            run(case, target, Measured())
            measured = {True: Measured(), False: Measured()}
            for number in range(rounds):
                for wanted in (True, False) if number % 2 else (False, True):
                    if wanted != is_on:
                        os.kill(target.pid, signal.SIGUSR1)
                        time.sleep(0.05)
                        is_on = wanted
                    run(case, target, measured[wanted])
            on, off = measured[True], measured[False]
            found[case.title] = cost(on.seconds, off.seconds), cost(on.computed, off.computed)
    return found


def grown(target: Target, samples: Sequence[int]) -> list[float]:
    """Return the memory of a server in MB after so many more turns."""
    script, sizes, done = Script(tokens=TOKENS), list[float](), 0
    request = request_of(target.url, script, with_tools=True)
    for count in samples:
        if each := (count - done) // WORKERS:
            asyncio.run(load(target.url, request, script, workers=WORKERS, each=each))
        done = count
        time.sleep(0.5)
        sizes.append(target.megabytes())
    return sizes


# -- the report ----------------------------------------------------------------------------------------------------------


_KINDS: Final = ("time", "processor time of the proxy")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def alone(found: Mapping[str, tuple[Cost, Cost]]) -> str:
    """Write what recording costs in one process, and whether that is little enough."""
    lines = ["Recording on, more than off, in one process, in percent (95 % interval):\n"]
    lines += [_row("load", *_KINDS, f"less than {LIMIT:g} % of the processor time"), "|---|---:|---:|---|"]
    for title, (elapsed, computed) in found.items():
        verdict = "met" if computed.high < LIMIT else "missed" if computed.low > LIMIT else "open: the limit is in the interval"
        lines.append(_row(title, str(elapsed), str(computed), verdict))
    return "\n".join(lines) + "\n"


def throughput(found: Found) -> str:
    """Return the tables of the four servers."""
    names = [name for name in next(iter(found.values())) if name != OFF]
    tables = list[str]()
    for place, kind in enumerate(_KINDS):
        rows = [f"{kind.capitalize()} of the same load, more than without recording, in percent (95 % interval):\n"]
        rows += [_row("load", "a second, off", *names), "|---|---:|" + "---:|" * len(names)]
        for case in CASES:
            figures = {name: [each[place] for each in rounds] for name, rounds in found[case.title].items()}
            compared = {name: cost(figures[name], figures[OFF]) for name in names}
            count = case.answers * REPEATS * (case.script.tokens if case.each == 1 else 1)
            rows.append(_row(case.title, f"{count / median(figures[OFF]):,.0f}", *map(str, compared.values())))
        tables.append("\n".join(rows))
    return "\n\n".join(tables) + "\n"


def memory(targets: Sequence[Target], samples: Sequence[int]) -> str:
    """Measure the memory while more and more turns go through."""
    lines = [_row("MB after so many turns", *(f"{count:,}" for count in samples)), "|---|" + "---:|" * len(samples)]
    for target in targets:
        lines.append(_row(target.name, *(f"{size:.0f}" for size in grown(target, samples))))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--markdown", action="store_true", help="with a heading, as benchmarks/results/recording.md")
    arguments.add_argument("--quick", action="store_true", help="two rounds instead of twelve, and a tenth of the turns")
    options = arguments.parse_args()
    rounds = 2 if options.quick else 12
    samples = tuple(count // 10 for count in KEPT_SAMPLES) if options.quick else KEPT_SAMPLES
    random.seed(1)
    gc.disable()  # pauses of this process would count as the proxies'
    found: Found = {}
    written: list[int] = []
    asked = rounds * (REPEATS + 1) * sum(case.answers for case in CASES) + samples[-1]
    with upstream() as model:
        print("# What recording costs\n\n" * options.markdown + about([model], rounds), flush=True)
        print(alone(switched(model.url, rounds * 2)), flush=True)
        for number in range(rounds):
            with servers(model.url, (OFF, PAGE, WATCHED, WRITTEN), written) as targets:
                measure(targets, number, found)
                if number == rounds - 1:
                    print(throughput(found), flush=True)
                    print(memory(targets, samples), flush=True)
    print(f"Of {asked:,} turns {sum(written):,} were written to the file.")


if __name__ == "__main__":
    main()
