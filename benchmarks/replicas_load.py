"""What one and two replicas of `xmlcall serve` carry, in front of one scripted model server, on one machine in one run.

    python benchmarks/replicas_load.py --markdown > benchmarks/results/replicas.md    # 16 minutes, on a quiet machine
    python benchmarks/replicas_load.py --quick    # a first look, in 2 minutes

Replicas are processes that know nothing of each other. Whether two carry twice as much is a question to the machine, too: the
load generator and the model server need cores as well. So both are as cheap as they can be (`polling_client.py`,
`prepared_upstream.py`), and the share of each process is told from `/proc`. Beside the throughput stands what a replica does in a
second of its processor time: where that is the same with two, replicas take nothing from each other. Everything is measured
twice: `free`, where the kernel places the processes, and `pinned`, where each replica has a core of its own and the other
processes yield to it (nice 10). A loop of Python, alone and twice at once in the same way, says what the cores themselves give.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, linear_regression, median, quantiles, stdev
from typing import Final

from load_client import load, request_of
from polling_client import Streams
from prepared_upstream import Flow, prepared_upstream
from proxy_load import about
from scripted_upstream import Target, running

CONNECTIONS: Final = 50  # for each measurement, however many replicas there are
WARM_SECONDS: Final = 0.5
WINDOW_SECONDS: Final = 2.5
QUIET: Final = 0.15  # cores that other programs may take, the kernel's own threads among them
NICE: Final = 10  # of what yields
TOGETHER: Final = 50  # streams that begin at once, where their number and not their beginning is measured
SPEED: Final = 20.0  # tokens a second of one stream: about what a person reads, and more than many models write
HELD: Final = Flow(tokens=1000, pace=30.0)  # one word, and then as good as nothing
PACED: Final = Flow(tokens=100, pace=1 / SPEED)
STREAMS: Final = 200  # at once on one replica, for the verdict
ANSWERS: Final = 6  # of a stream, one after the other
# Where the first token is waited for: with tools?, streams at once.
CROWDS: Final = ((False, STREAMS), (True, 50), (True, 100), (True, 150), (True, STREAMS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind of load.

    Args:
        title: for the tables.
        with_tools: whether ten tools are offered, so that the text is read for calls.
        flow: of each reply.
        counts: `tokens` or `answers`.
    """

    title: str
    with_tools: bool
    flow: Flow
    counts: str = "tokens"


BULK, SINGLE, SHORT = Flow(tokens=300, burst=20), Flow(tokens=300), Flow(tokens=5)
CASES: Final = (
    Case(title="tokens, 20 in a write of the model server", with_tools=True, flow=BULK),
    Case(title="tokens, 20 in a write of the model server", with_tools=False, flow=BULK),
    Case(title="tokens, each a write of its own", with_tools=True, flow=SINGLE),
    Case(title="tokens, each a write of its own", with_tools=False, flow=SINGLE),
    Case(title="requests, answers of 5 tokens", with_tools=True, flow=SHORT, counts="answers"),
    Case(title="requests, answers of 5 tokens", with_tools=False, flow=SHORT, counts="answers"),
)


# -- the processes -----------------------------------------------------------------------------------------------------


def replica(model: str) -> contextlib.AbstractContextManager[Target]:
    """Run a replica."""
    command = [sys.executable, "-m", "xmlcall", "serve", "--model", f"{model}/v1", "--ask", "mode=xml", "--port", "0"]
    return running("xmlcall", command)


def starts(model: str, times: int) -> tuple[list[float], list[float]]:
    """Return the seconds that a replica takes to take connections, and its memory in MB, each of several starts."""
    seconds, megabytes = list[float](), list[float]()
    for _ in range(times):
        begun = time.perf_counter()
        with replica(model) as started:
            seconds.append(time.perf_counter() - begun)
            megabytes.append(started.megabytes())
    return seconds, megabytes


def pin(replicas: Sequence[Target], others: Sequence[int]) -> None:
    """Give each replica a core of its own, and have the others yield."""
    for target, core in zip(replicas, sorted(os.sched_getaffinity(0)), strict=False):
        os.sched_setaffinity(target.pid, {core})
    for pid in others:
        os.setpriority(os.PRIO_PROCESS, pid, NICE)


def machine_busy() -> float:
    """Return the processor seconds that all processes of the machine took since it started."""
    row = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(row) - row[3] - row[4]) / os.sysconf("SC_CLK_TCK")  # without idle and waiting for disks


_LOOP: Final = """\
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
end, count = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    for _ in range(1000):
        count += 1
print(count)
"""


def loops(cores: Sequence[int], seconds: float) -> int:
    """Count the rounds of plain loops, one on each core at the same time."""
    command = [sys.executable, "-c", _LOOP]
    processes = [subprocess.Popen([*command, str(core), str(seconds)], stdout=subprocess.PIPE, text=True) for core in cores]
    return sum(int(process.communicate(timeout=seconds + 30)[0]) for process in processes)


# -- throughput --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measurement.

    Args:
        rate: tokens or answers in a second.
        per_core: of them in a second of the replicas' processor time.
        replicas: cores that the replicas took.
        upstream: and the model server.
        generator: and the load generator.
        others: and what else runs on the machine.
    """

    rate: float
    per_core: float
    replicas: float
    upstream: float
    generator: float
    others: float


def measure(case: Case, upstream: Target, replicas: Sequence[Target]) -> Measured:
    """Put a load on replicas for a while."""
    request = request_of(replicas[0].url, case.flow, with_tools=case.with_tools)
    streams = Streams([target.url for target in replicas], request, count=CONNECTIONS, tokens=case.flow.tokens)
    try:
        streams.all_begun()
        streams.run(WARM_SECONDS)
        before = [sum(target.processor_seconds() for target in replicas), upstream.processor_seconds(), machine_busy()]
        counted = streams.run(WINDOW_SECONDS)
        after = [sum(target.processor_seconds() for target in replicas), upstream.processor_seconds(), machine_busy()]
    finally:
        streams.close()
    time.sleep(0.3)  # replicas see that their callers left
    took, model, busy = (late - early for early, late in zip(before, after, strict=True))
    count = counted.words if case.counts == "tokens" else counted.answers
    return Measured(
        rate=count / counted.seconds,
        per_core=count / took,
        replicas=took / counted.seconds,
        upstream=model / counted.seconds,
        generator=counted.computed / counted.seconds,
        others=(busy - took - model - counted.computed) / counted.seconds,
    )


@dataclass(slots=True, kw_only=True)
class Pair:
    """One replica and two in the same case, round by round."""

    one: list[Measured] = field(default_factory=list)
    two: list[Measured] = field(default_factory=list)

    def ratio(self) -> tuple[float, str]:
        """Return how many times more two carry than one: the mean of all rounds, and its 95 % interval (Student's t)."""
        ratios = [two.rate / one.rate for one, two in zip(self.one, self.two, strict=True)]
        if len(ratios) < 2:
            return ratios[0], ""
        from scipy.stats import t as students_t  # takes longer to load than all else

        half = float(students_t.ppf(0.975, len(ratios) - 1)) * stdev(ratios) / len(ratios) ** 0.5
        return fmean(ratios), f" ± {half:.2f}"

    def of(self, which: str, name: str) -> float:
        """Return the median of a figure.

        Args:
            which: `one` or `two`.
            name: of the figure.
        """
        return float(median(getattr(each, name) for each in getattr(self, which)))


def throughput(upstream: Target, replicas: Sequence[Target], rounds: int) -> dict[Case, Pair]:
    """Measure all cases, one replica and two by turns: what disturbs the machine then disturbs both."""
    found = {case: Pair() for case in CASES}
    for number in range(rounds):
        for case, pair in found.items():
            pair.one.append(measure(case, upstream, [replicas[number % len(replicas)]]))
            pair.two.append(measure(case, upstream, replicas))
    return found


# -- one replica -------------------------------------------------------------------------------------------------------


def memory(target: Target, counts: Sequence[int], *, with_tools: bool) -> list[float]:
    """Return the memory in MB at so many open streams."""
    request = request_of(target.url, HELD, with_tools=with_tools)
    streams = Streams([target.url], request, count=0, tokens=HELD.tokens)
    megabytes = []
    try:
        for count in counts:
            while len(streams.streams) < count:
                for _ in range(min(TOGETHER, count - len(streams.streams))):
                    streams.add(target.url, request)
                streams.all_begun()
            megabytes.append(target.megabytes())
    finally:
        streams.close()
    return megabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Firsts:
    """Times to the first token at many streams, in ms, and what the replica took for it.

    Args:
        direct: to the model server.
        through: to the replica.
        microseconds: of its processor, for each token.
        cores: that it took.
        others: cores that other programs took.
    """

    direct: list[float]
    through: list[float]
    microseconds: float
    cores: float
    others: float

    def added(self, percent: int) -> float:
        """Return what the replica adds to a percentile."""
        through, direct = (quantiles(each, n=100)[percent - 1] for each in (self.through, self.direct))
        return through - direct


def firsts(upstream: Target, target: Target, *, with_tools: bool, each: int, flow: Flow, streams: int = STREAMS) -> Firsts:
    """Measure times to the first token while other streams are under way."""
    spread = flow.tokens * flow.pace

    def times(server: Target) -> list[float]:
        request = request_of(server.url, flow, with_tools=with_tools)
        seconds = asyncio.run(load(server.url, request, flow, workers=streams, each=each, spread=spread))
        return [1e3 * first for first in seconds]

    direct = times(upstream)
    begun, took, all_took = time.perf_counter(), target.processor_seconds(), machine_busy()
    beside = upstream.processor_seconds() + time.process_time()
    through = times(target)
    passed, took = time.perf_counter() - begun, target.processor_seconds() - took
    beside = upstream.processor_seconds() + time.process_time() - beside
    return Firsts(
        direct=direct,
        through=through,
        microseconds=took / (streams * each * flow.tokens) * 1e6,
        cores=took / passed,
        others=(machine_busy() - all_took - took - beside) / passed,
    )


# -- the report --------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """Write a table whose first columns are words and the others figures."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * words + "---:|" * (len(head) - words)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def offered(with_tools: bool) -> str:
    """Say which tools."""
    return "10" if with_tools else "none"


def throughput_rows(found: dict[Case, Pair]) -> Iterator[list[str]]:
    """Give a row a case."""
    for case, pair in found.items():
        ratio, half = pair.ratio()
        rates = [f"{pair.of(which, 'rate'):,.0f}" for which in ("one", "two")]
        efficient = [f"{pair.of(which, 'per_core'):,.0f}" for which in ("one", "two")]
        yield [case.title, offered(case.with_tools), *rates, f"{ratio:.2f}{half}", *efficient]


def share_rows(found: dict[Case, Pair]) -> Iterator[list[str]]:
    """Give a row a case and number of replicas."""
    for case, pair in found.items():
        for which in ("one", "two"):
            shares = [f"{pair.of(which, name):.2f}" for name in ("replicas", "upstream", "generator", "others")]
            yield [case.title, offered(case.with_tools), which, *shares]


def disturbed(found: dict[Case, Pair]) -> float:
    """Return how many cores other programs took at most."""
    return max(pair.of(which, "others") for pair in found.values() for which in ("one", "two"))


def report_throughput(title: str, found: dict[Case, Pair]) -> None:
    """Print both tables of a placement."""
    head = ["a second", "tools", "one replica", "two", "two / one", "a CPU second, one", "two"]
    print(f"## Throughput, {title}\n\n" + table(head, throughput_rows(found), words=2))
    head = ["cores taken", "tools", "replicas", "by them", "model server", "load generator", "other programs"]
    print(table(head, share_rows(found), words=3), flush=True)
    if (others := disturbed(found)) > QUIET:
        print(f"**Other programs took up to {others:.2f} cores: the machine was not quiet, and these are no measurements.**\n")


def report_starts(model: str, times: int) -> None:
    """Print what a replica costs that does nothing."""
    seconds, megabytes = starts(model, times)
    print(
        f"## One replica\n\nA replica takes connections {median(seconds):.2f} s after its start (median of {times}; slowest "
        f"{max(seconds):.2f} s) and then has {median(megabytes):.0f} MB.\n",
        flush=True,
    )


def report_memory(targets: Sequence[Target], counts: Sequence[int]) -> None:
    """Print the memory of open streams, without and with tools on a replica each."""
    rows = []
    for with_tools, target in zip((False, True), targets, strict=False):
        found = memory(target, counts, with_tools=with_tools)
        slope = linear_regression(counts, found).slope * 1024
        rows.append([offered(with_tools), *(f"{each:.0f}" for each in found), f"{slope:.1f}"])
    print("Memory in MB while streams are open, of which each has said one word:\n")
    print(table(["tools", *(f"{count:,} streams" for count in counts), "KB a stream"], rows), flush=True)


def report_firsts(upstream: Target, *, each: int, flow: Flow) -> dict[tuple[bool, int], Firsts]:
    """Print what a replica adds to the first token, by tools and streams."""
    found = dict[tuple[bool, int], Firsts]()
    print(
        f"Streams at once on one replica, {SPEED:.0f} tokens a second each, each token a write of its own; {each} answers "
        "a stream. Time to the first token in ms, without the first answers of the streams, and the processor's time:\n"
    )
    rows = []
    for with_tools, streams in CROWDS:
        with replica(upstream.url) as target:
            times = firsts(upstream, target, with_tools=with_tools, each=each, flow=flow, streams=streams)
        found[with_tools, streams] = times
        direct = [quantiles(times.direct, n=100)[percent - 1] for percent in (50, 99)]
        figures = [f"{figure:.2f}" for figure in (*direct, times.added(50), times.added(99))]
        took = [f"{times.microseconds:.0f}", f"{times.cores:.2f}", f"{times.others:.2f}"]
        rows.append([offered(with_tools), f"{streams}", *figures, *took])
    head = ["tools", "streams", "direct, p50", "p99", "added, p50", "p99", "µs a token", "cores", "other programs"]
    print(table(head, rows), flush=True)
    return found


def verdicts(times: dict[tuple[bool, int], Firsts], pinned: dict[Case, Pair]) -> Iterator[str]:
    """Say of each target figure whether it was met."""
    for with_tools in (False, True):
        found = times[with_tools, STREAMS]
        what = f"added to the first token at {STREAMS} streams, tools: {offered(with_tools)}, p99, ms"
        yield f"- {what}: under 20 wanted, {found.added(99):.1f} measured: {_met(found.added(99) < 20, found.others)}"
    for case in CASES[:2]:
        ratio, _ = pinned[case].ratio()
        what = f"two / one, {case.title}, tools: {offered(case.with_tools)}: 1.8 wanted, {ratio:.2f} measured"
        yield f"- {what}: {_met(ratio >= 1.8, disturbed(pinned))}"


def _met(yes: bool, others: float) -> str:
    if others > QUIET:
        return f"open, since other programs took {others:.2f} cores"
    return "met" if yes else "missed"


NOTES: Final = f"""\
{CONNECTIONS} connections ask one question after the other, of one replica or spread over two; windows of {WINDOW_SECONDS} s, one
and two by turns. `a CPU second` is a second of the replicas' own processor time. Two replicas cannot carry twice as much where
model server and load generator need a part of the same cores: `cores taken` says how much that was. The interval is of 95 %
(Student's t over the rounds). With tools each reply is read for calls; without, its bytes are passed on.
"""


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--markdown", action="store_true", help="with a heading, as benchmarks/results/replicas.md")
    arguments.add_argument("--quick", action="store_true", help="one round instead of five, fewer streams")
    arguments.add_argument("--throughput", action="store_true", help="only the tables of throughput, of one replica and of two")
    arguments.add_argument("--first", action="store_true", help="only the table of times to the first token")
    options = arguments.parse_args()
    random.seed(1)
    gc.disable()  # pauses of this process would count as the replicas'
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(prepared_upstream())
        rounds = 1 if options.quick else 5
        print("# Replicas under load\n\n" * options.markdown + about([], rounds), flush=True)
        if options.first:
            report_firsts(upstream, each=ANSWERS if rounds > 1 else 2, flow=PACED)
            return
        report_starts(upstream.url, 1 if options.quick else 5)
        replicas = [stack.enter_context(replica(upstream.url)) for _ in range(2)]
        if options.throughput:
            measure_throughput(upstream, replicas, rounds)
        else:
            measure_all(upstream, replicas, rounds)
    print(f"\nAll of this took {(time.monotonic() - begun) / 60:.1f} minutes.")


def measure_all(upstream: Target, replicas: Sequence[Target], rounds: int) -> None:
    """Measure and print, what yields last: a process cannot take its niceness back."""
    report_memory(replicas, range(0, 2001, 500) if rounds > 1 else range(0, 201, 100))
    time.sleep(3)  # replicas clear up
    times = report_firsts(upstream, each=ANSWERS if rounds > 1 else 2, flow=PACED)
    pinned = measure_throughput(upstream, replicas, rounds)
    print("\n".join(verdicts(times, pinned)))


def measure_throughput(upstream: Target, replicas: Sequence[Target], rounds: int) -> dict[Case, Pair]:
    """Measure and print what one replica and two carry; return it for pinned ones."""
    print(NOTES, flush=True)
    report_throughput("free", throughput(upstream, replicas, max(rounds - 2, 1)))
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("one core only: two replicas cannot have one each")
    alone, both = loops(cores[:1], WINDOW_SECONDS), loops(cores[:2], WINDOW_SECONDS)
    pin(replicas, [upstream.pid, os.getpid()])
    pinned = throughput(upstream, replicas, rounds)
    report_throughput("pinned", pinned)
    print(f"Two loops of Python on two cores did {both / alone:.2f} times what one did.\n")
    return pinned


if __name__ == "__main__":
    main()
