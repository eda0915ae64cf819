"""What the proxy on Ray Serve carries with 1, 2 and 4 replicas, beside `xmlcall serve`, before one scripted model server.

    python benchmarks/ray_serve.py            # writes benchmarks/results/ray-serve.md
    python benchmarks/ray_serve.py --quick    # fewer questions, one round; prints, and writes nothing

A question goes through Ray's HTTP proxy, Ray's router and a replica before it reaches the model server, and each piece of the
answer comes back the same way; `xmlcall serve` is one process. All stand on this machine. A replica is half a core by Ray's
count, so that four have a place on two cores. Load generator, model server and Ray's own processes use the same cores: figures
show what the engine costs on one machine, not how it grows over many. Every answer is checked, as in `proxy_load.py`.
"""

import argparse
import contextlib
import datetime
import gc
import importlib.metadata
import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from proxy_load import STREAMS, Case, Measured, measure, xmlcall
from scripted_upstream import Script, Target, end, upstream

RESULT: Final = Path(__file__).resolve().parent / "results" / "ray-serve.md"
REPLICAS: Final = (1, 2, 4)
ROUNDS: Final = 5
CALL: Final = Script(tokens=300, call=True)
CASES: Final = (
    Case(title="1 stream, first token, ms", with_tools=True, script=Script(tokens=5), workers=1, each=101),
    Case(title="answers a second, streamed, 5 tokens", with_tools=True, script=Script(tokens=5), each=10),
    Case(title="tokens a second, text", with_tools=True, script=Script(tokens=300), each=2),
    Case(title="tokens a second, a call", with_tools=True, script=CALL, each=2),
)

# Title of a figure -> what one answer is there.
ANSWERS: Final = dict(
    zip((case.title for case in CASES), ("5 tokens, alone", "5 tokens", "300 tokens", "300 tokens, a call"), strict=True)
)


# -- the program that holds the cluster --------------------------------------------------------------------------------


def serve_on_ray(model: str, replicas: int) -> None:
    """Start Ray on loopback, serve, print the address, and go on until standard input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints what its processes say
    import ray
    from ray import serve

    from xmlcall.integrations.ray import app

    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=2**27, log_to_driver=False, _node_ip_address="127.0.0.1")
    port = _free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
    sizes: dict[str, Any] = {"min_replicas": replicas, "max_replicas": replicas, "num_cpus": 0.5}
    limits: dict[str, Any] = {"max_ongoing_requests": 2 * STREAMS, "max_queued_requests": -1}
    serve.run(app(model=f"{model}/v1", mode="xml", **sizes, **limits))
    print(f"http://127.0.0.1:{port}", file=out, flush=True)
    sys.stdin.read()
    serve.shutdown()  # type: ignore[no-untyped-call]
    ray.shutdown()


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def on_ray(model: str, replicas: int) -> Iterator[Target]:
    """Run the proxy on Ray in processes of its own."""
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    environment["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"] = "xmlcall.integrations.ray_errors.middleware"
    command = [sys.executable, "-W", "ignore", __file__, "--serve", json.dumps([model, replicas])]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            if not (url := process.stdout.readline().strip()):
                raise SystemExit("Ray did not start")
            yield Target(name=f"Ray, {replicas}", url=url, pid=process.pid)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            end(process)


# -- what is measured --------------------------------------------------------------------------------------------------


def sized(case: Case, *, quick: bool) -> Case:
    """Return the case, with fewer questions and shorter replies for a trial."""
    script = replace(case.script, tokens=min(case.script.tokens, 50))
    return replace(case, script=script, each=max(case.each // 5, 2), workers=min(case.workers, 10)) if quick else case


def figure(case: Case, measured: Measured) -> float:
    """Return the figure of a row: ms to the first token, or what goes through in a second."""
    if case.workers == 1:
        return quantiles(measured.firsts, n=100)[49] * 1e3
    unit = 1 if "answers" in case.title else case.script.tokens
    return case.answers * unit / median(measured.seconds)


def cost(case: Case, measured: Measured) -> float:
    """Return the processor time of an answer in ms, of all processes of the target."""
    return median(measured.computed) / case.answers * 1e3


Row = tuple[str, dict[str, float]]


def rows_of(targets: Sequence[Target], *, quick: bool, rounds: int) -> tuple[list[Row], list[Row]]:
    """Measure all targets that are up, by turns; return figures and processor times."""
    figures, costs = list[Row](), list[Row]()
    for case in (sized(case, quick=quick) for case in CASES):
        found = measure(case, targets, rounds)
        figures.append((case.title, {name: figure(case, each) for name, each in found.items()}))
        costs.append((ANSWERS[case.title], {name: cost(case, each) for name, each in found.items()}))
    return figures, costs


def table(title: str, rows: Sequence[Row], *, digits: int) -> str:
    """Write rows in Markdown, each with what it is of the first column."""
    names = list(rows[0][1])
    lines = [f"| {' | '.join([title, *names])} |", "|---|" + "---:|" * len(names)]
    for what, figures in rows:
        base = figures[names[0]]
        cells = [
            f"{figures[name]:,.{digits}f}" + (f" ({figures[name] / base:.2f})" if name != names[0] else "") for name in names
        ]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def merged(parts: Sequence[list[Row]]) -> list[Row]:
    """Put columns that were measured with different clusters beside each other; the first column is the median of all."""
    found = []
    for same in zip(*parts, strict=True):
        figures = {name: value for _, each in same for name, value in each.items()}
        first = next(iter(same[0][1]))
        figures[first] = median(each[first] for _, each in same)
        found.append((same[0][0], figures))
    return found


def report(*, quick: bool) -> str:
    """Measure, one cluster after the other, each beside `xmlcall serve`."""
    rounds = 1 if quick else ROUNDS
    parts: list[tuple[list[Row], list[Row]]] = []
    with upstream() as direct, xmlcall(direct.url) as alone:
        alone = replace(alone, name="xmlcall serve")
        for replicas in REPLICAS:
            with on_ray(direct.url, replicas) as cluster:
                measure(sized(CASES[1], quick=True), [alone, cluster], 1)  # what is loaded on first use
                parts.append(rows_of([alone, cluster], quick=quick, rounds=rounds))
    figures, costs = merged([part[0] for part in parts]), merged([part[1] for part in parts])
    processor = "processor time of an answer, ms, all processes"
    return "\n".join([_about(rounds), table("", figures, digits=1), f"The {processor}:\n", table("ms", costs, digits=2)])


def _about(rounds: int) -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("xmlcall", "ray", "uvicorn"))
    today = datetime.datetime.now(datetime.UTC).date()
    machine = (
        f"{platform.system()} {platform.machine()}, {processor}, {os.cpu_count()} cores, CPython {platform.python_version()}"
    )
    return (
        f"`{' '.join(['python', *sys.argv])}`, {today}, {machine}; rounds: {rounds}; {STREAMS} connections. {versions}.\n\n"
        "In brackets: how many times the figure of `xmlcall serve`, one process, measured by turns with each cluster. "
        "The columns of Ray are named after the number of replicas.\n"
    )


def main() -> None:
    """Print or write the tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="a trial: fewer questions, one round; nothing is written")
    arguments.add_argument("--serve", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.serve:
        serve_on_ray(*json.loads(options.serve))
        return
    random.seed(1)
    gc.disable()  # pauses of this process would count as the proxies'
    text = "# The proxy on Ray Serve\n\n" + report(quick=options.quick)
    print(text)
    if not options.quick:
        RESULT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
