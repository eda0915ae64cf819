"""What the proxy costs, beside LiteLLM's and beside no proxy, before one scripted model server, on one machine in one run.

    python -m venv build/bench-litellm && build/bench-litellm/bin/python -m pip install 'litellm[proxy]==1.106.0'
    python benchmarks/proxy_load.py --markdown > benchmarks/results/proxy.md
    python benchmarks/proxy_load.py --quick    # few repeats; LiteLLM is left out where it is not installed

Every question is a streamed chat completion of 10 tools of real MCP servers or of none. With tools, xmlcall reads the text for
calls (`mode=xml`); LiteLLM passes tools on. Model server, proxies and this load generator are a process each; all on loopback,
connections are kept. The first token is the first text that arrives, counted from the sending of the question. Every answer
is checked: one that lacks a token ends the run. LiteLLM runs with its defaults, one worker, no key and no database. Nothing here
needs a network, so a root user can do without one: `unshare -n sh -c 'ip link set lo up; exec python benchmarks/proxy_load.py'`.
"""

import argparse
import asyncio
import contextlib
import datetime
import gc
import importlib.metadata
import json
import os
import platform
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from load_client import connected, load, request_of
from scripted_upstream import MODEL, Script, Target, await_port, end, running, upstream

HERE: Final = Path(__file__).resolve().parent
LITELLM: Final = HERE.parent / "build" / "bench-litellm" / "bin"
STREAMS: Final = 50
OPEN_STREAMS: Final = 200
SERVE: Final = (sys.executable, "-m", "xmlcall", "serve", "--port", "0")


# -- the servers -------------------------------------------------------------------------------------------------------


def xmlcall(model: str) -> contextlib.AbstractContextManager[Target]:
    """Run our proxy."""
    return running("xmlcall", [*SERVE, "--model", f"{model}/v1", "--ask", "mode=xml"])


def earlier(model: str, tree: str) -> contextlib.AbstractContextManager[Target]:
    """Run the proxy of another checkout. Before 0.3 the way of asking was an option of its own."""
    takes_mode = '"--mode"' in (Path(tree) / "xmlcall" / "cli" / "serve.py").read_text(encoding="utf-8")
    mode = ["--mode", "xml"] if takes_mode else ["--ask", "mode=xml"]
    path = os.pathsep.join(filter(None, [tree, os.environ.get("PYTHONPATH")]))
    return running("before", ["env", f"PYTHONPATH={path}", "PYTHONSAFEPATH=1", *SERVE, "--model", f"{model}/v1", *mode])


@contextlib.contextmanager
def litellm(model: str) -> Iterator[Target]:
    """Run LiteLLM's proxy: its defaults, but without the key that it demands and without what it fetches from the network."""
    row = {"model_name": MODEL, "litellm_params": {"model": f"openai/{MODEL}", "api_base": f"{model}/v1", "api_key": "none"}}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    switches = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true", "LITELLM_LOCAL_MODEL_COST_MAP": "true"}
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "wb") as log:
        config = Path(folder) / "config.yaml"
        config.write_text(json.dumps({"model_list": [row]}), encoding="utf-8")  # JSON is YAML
        command = [str(LITELLM / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        command += ["--num_workers", "1"]
        with subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | switches) as process:
            try:
                await_port(f"http://127.0.0.1:{port}")
                yield Target(name="LiteLLM", url=f"http://127.0.0.1:{port}", pid=process.pid)
            finally:
                end(process)


# -- what is measured --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind of load.

    Args:
        title: for the tables.
        with_tools: whether tools are offered.
        script: of each reply.
        stream: whether the answer is streamed.
        workers: connections that ask at the same time.
        each: questions a connection asks.
    """

    title: str
    with_tools: bool
    script: Script
    stream: bool = True
    workers: int = STREAMS
    each: int = 1

    @property
    def answers(self) -> int:
        """Answers of one round."""
        return self.workers * self.each


SHORT: Final = Script(tokens=5)
LONG: Final = Script(tokens=300)
LONG_CALL: Final = Script(tokens=300, call=True)
PACED: Final = Script(tokens=100, pace=0.05)  # 20 tokens a second
HELD: Final = Script(tokens=120, pace=1.0)  # so slow that streams take next to no time, so long that all get open
BOTH: Final = (False, True)
FIRSTS: Final = (
    *(Case(title="1 stream", with_tools=offered, script=SHORT, workers=1, each=201) for offered in BOTH),
    *(Case(title=f"{STREAMS} streams", with_tools=offered, script=PACED, each=5) for offered in BOTH),
    *(Case(title=f"{OPEN_STREAMS} streams", with_tools=offered, script=PACED, workers=OPEN_STREAMS, each=2) for offered in BOTH),
)
TOKENS: Final = (
    *(Case(title="tokens, text", with_tools=offered, script=LONG) for offered in BOTH),
    Case(title="tokens, a call", with_tools=True, script=LONG_CALL),
)
ANSWERS: Final = (
    *(Case(title="answers, whole", with_tools=offered, script=SHORT, stream=False, each=20) for offered in BOTH),
    *(Case(title="answers, streamed", with_tools=offered, script=SHORT, each=20) for offered in BOTH),
)


def sized(case: Case, rounds: int) -> Case:
    """Return the case, with fewer questions and shorter replies if there is one round only."""
    script = replace(case.script, tokens=min(case.script.tokens, 50))
    return case if rounds > 1 else replace(case, script=script, each=max(case.each // 8, min(case.each, 2)))


@dataclass(slots=True, kw_only=True)
class Measured:
    """What one target did in one case.

    Args:
        firsts: seconds to the first tokens, a list for each round.
        seconds: of each round.
        computed: processor seconds of each round.
    """

    firsts: list[list[float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)


def run(case: Case, target: Target, measured: Measured) -> None:
    """Put a load on a target once."""
    request = request_of(target.url, case.script, with_tools=case.with_tools, stream=case.stream)
    spread = case.script.tokens * case.script.pace
    started, computed = time.perf_counter(), target.processor_seconds()
    measured.firsts.append(
        asyncio.run(load(target.url, request, case.script, workers=case.workers, each=case.each, spread=spread))
    )
    measured.seconds.append(time.perf_counter() - started)
    measured.computed.append(target.processor_seconds() - computed)


def measure(case: Case, targets: Sequence[Target], rounds: int) -> dict[str, Measured]:
    """Measure all targets by turns, each round beginning with another: what disturbs the machine then disturbs them all."""
    found = {target.name: Measured() for target in targets}
    for number in range(rounds):
        first = number % len(targets)
        for target in (*targets[first:], *targets[:first]):
            run(case, target, found[target.name])
    return found


async def held_open(target: Target, *, with_tools: bool) -> float:
    """Return the memory of a target in MB while many streams are open."""
    request = request_of(target.url, HELD, with_tools=with_tools)
    connections = [await connected(target.url) for _ in range(OPEN_STREAMS)]
    answers = [connection.ask(request) for connection in connections]
    while not all(connection.first for connection in connections):
        await asyncio.sleep(0.05)
        if any(answer.done() for answer in answers):
            raise SystemExit(f"{target.name}: the first of {OPEN_STREAMS} streams ended before the last began")
    megabytes = target.megabytes()
    for connection in connections:
        connection.close()
    await asyncio.gather(*answers, return_exceptions=True)
    await asyncio.sleep(2)  # the target clears up
    return megabytes


# -- the report --------------------------------------------------------------------------------------------------------

Row = tuple[str, str, dict[str, float]]
"""What, with which tools, and the figure of each target."""


def _tools(case: Case) -> str:
    return "10" if case.with_tools else "none"


def memory(targets: Sequence[Target]) -> Iterator[Row]:
    """Measure the memory in MB."""
    yield "just started", "-", {target.name: target.megabytes() for target in targets}
    for offered, shown in zip(BOTH, ("none", "10"), strict=True):
        figures = {target.name: asyncio.run(held_open(target, with_tools=offered)) for target in targets}
        yield f"{OPEN_STREAMS} open streams", shown, figures


def times(targets: Sequence[Target], rounds: int) -> Iterator[Row]:
    """Measure the time to the first token in ms, medians of the rounds: the direct one, and what each proxy adds to it."""
    for case in (sized(case, rounds) for case in FIRSTS):
        found = measure(case, targets, rounds)
        for percent in (50, 99):
            figures = {name: _percentile(each.firsts, percent) * 1e3 for name, each in found.items()}
            base = figures["direct"]
            added = {name: figure - base for name, figure in figures.items()} | {"direct": base}
            yield f"{case.title}, p{percent}", _tools(case), added


def _percentile(rounds: Sequence[Sequence[float]], percent: int) -> float:
    return median(quantiles(each, n=100)[percent - 1] for each in rounds)


def rates(targets: Sequence[Target], rounds: int) -> tuple[list[Row], list[Row]]:
    """Measure how much goes through in a second, and the processor time of one token or answer in µs; medians of the rounds."""
    speeds, costs = list[Row](), list[Row]()
    for case in (sized(case, rounds) for case in (*TOKENS, *ANSWERS)):
        found, count = measure(case, targets, rounds), case.answers * (1 if case.script == SHORT else case.script.tokens)
        speeds.append((case.title, _tools(case), {name: count / median(each.seconds) for name, each in found.items()}))
        computed = {name: median(each.computed) / count * 1e6 for name, each in found.items()}
        costs.append((case.title, _tools(case), computed))
    return speeds, costs


def table(title: str, rows: Iterable[Row], *, above: str, digits: int = 0) -> str:
    """Write rows in Markdown.

    Args:
        title: of the first column.
        rows: of one table.
        above: what stands above the line of the ratio, `xmlcall` or `LiteLLM`; the other one stands below.
        digits: after the point.
    """
    rows = list(rows)
    names = list(rows[0][2])
    below = {"xmlcall": "LiteLLM", "LiteLLM": "xmlcall"}[above]
    ratio = [f"{above} / {below}"] if "LiteLLM" in names else []
    lines = [f"| {' | '.join([title, 'tools', *names, *ratio])} |", "|---|---|" + "---:|" * (len(names) + len(ratio))]
    for what, offered, figures in rows:
        cells = [f"{figures[name]:,.{digits}f}" for name in names]
        cells += [f"{figures[above] / figures[below]:,.1f}"] if ratio else []
        lines.append(f"| {' | '.join([what, offered, *cells])} |")
    return "\n".join(lines) + "\n"


def verdicts(held: Sequence[Row], firsts: Sequence[Row], speeds: Sequence[Row]) -> Iterator[str]:
    """Say of each target figure whether it was met, in its worst row."""
    wanted = [
        ("added to the first token at 50 streams, p50, ms", 3, _of(firsts, f"{STREAMS} streams, p50")),
        ("added to the first token at 50 streams, p99, ms", 15, _of(firsts, f"{STREAMS} streams, p99")),
        ("memory at 200 open streams, MB", 150, _of(held, f"{OPEN_STREAMS} open streams")),
    ]
    for what, limit, figures in wanted:
        worst = max(each["xmlcall"] for each in figures)
        yield f"- {what}: at most {limit} wanted, {worst:,.1f} measured: {'met' if worst <= limit else 'missed'}"
    if "LiteLLM" in speeds[0][2]:
        worst = min(each["xmlcall"] / each["LiteLLM"] for _, _, each in speeds)
        yield f"- throughput, times LiteLLM's: at least 3 wanted, {worst:,.1f} measured: {'met' if worst >= 3 else 'missed'}"


def _of(rows: Iterable[Row], title: str) -> list[dict[str, float]]:
    return [figures for what, _, figures in rows if what == title]


def about(targets: Sequence[Target], rounds: int) -> str:
    """Say when, where and with which versions."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("xmlcall", "uvicorn", "starlette", "httpx")]
    if any(target.name == "LiteLLM" for target in targets):
        script = "import importlib.metadata as m; print(m.version('litellm'))"
        versions.append("LiteLLM " + subprocess.check_output([LITELLM / "python", "-c", script], text=True).strip())
    today = datetime.datetime.now(datetime.UTC).date()
    machine = (
        f"{platform.system()} {platform.machine()}, {processor}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    )
    return f"`{' '.join(['python', *sys.argv])}`, {today}, {machine}; rounds: {rounds}. {', '.join(versions)}.\n"


NOTES: Final = """\
Time to the first token: through no proxy, and what each proxy adds to that. 1 stream: one question after the other. {streams}
streams: as many connections ask one question after the other, and each answer has {tokens} tokens, {speed:.0f} a second, so
that each new stream begins while the others are under way. Of a proxy that cannot keep up with that, it is the length of its
queue.
"""


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--markdown", action="store_true", help="with a heading, as benchmarks/results/proxy.md")
    arguments.add_argument("--quick", action="store_true", help="one round, fewer questions, shorter replies")
    arguments.add_argument("--rounds", type=int, default=3, metavar="N", help="default: %(default)s")
    arguments.add_argument("--without-litellm", action="store_true")
    arguments.add_argument(
        "--before", metavar="TREE", help="another checkout of xmlcall, whose proxy is measured by turns with ours"
    )
    options = arguments.parse_args()
    rounds = 1 if options.quick else options.rounds
    random.seed(1)
    gc.disable()  # pauses of this process would count as the proxies'
    with contextlib.ExitStack() as stack:
        direct = stack.enter_context(upstream())
        proxies = [stack.enter_context(xmlcall(direct.url))]
        if options.before:
            proxies.append(stack.enter_context(earlier(direct.url, options.before)))
        if (LITELLM / "litellm").exists() and not options.without_litellm:
            proxies.append(stack.enter_context(litellm(direct.url)))
        report(direct, proxies, rounds, heading=options.markdown)


def report(direct: Target, proxies: Sequence[Target], rounds: int, *, heading: bool) -> None:
    """Measure and print."""
    targets = [direct, *proxies]
    print("# The proxy under load\n\n" * heading + about(targets, rounds), flush=True)
    held = list(memory(proxies))
    firsts = list(times(targets, rounds))
    paced = sized(FIRSTS[-1], rounds).script
    print(NOTES.format(streams=STREAMS, tokens=paced.tokens, speed=1 / paced.pace))
    print(table("time to the first token, ms", firsts, above="LiteLLM", digits=2), flush=True)
    speeds, costs = rates(targets, rounds)
    print(f"What goes through in a second, {STREAMS} connections, a model server as fast as it can be:\n")
    print(table("a second", speeds, above="xmlcall"))
    print("Processor time of one token or answer, in µs:\n")
    print(table("µs", costs, above="LiteLLM"))
    print("Resident memory of the proxy in MB:\n")
    print(table("MB", held, above="LiteLLM"))
    print("\n".join(verdicts(held, firsts, speeds)))


if __name__ == "__main__":
    main()
