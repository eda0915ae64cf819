"""Streams over replicas that are killed and started again at random: does each caller learn how its answer ended?

    python benchmarks/replicas_killed.py                  # 10,000 streams over 3 replicas; exit code 1 if something is wrong
    python benchmarks/replicas_killed.py --streams 500    # a first look

Each stream is drawn from a seed: the wire format, how long and how fast the reply is, whether it is a call, whether and when its
caller leaves. So are the kills: when, which replica, and how. SIGTERM with `--grace 0` lets the replica tell its callers, each in
its own format, that their answer is not whole. SIGKILL lets it tell nothing: the connection breaks off without the last HTTP
chunk, and a client has to take that for an error; `tests/cli/test_cli_serve_killed.py` has the official SDKs do so. A supervisor
starts what has ended; the last replica that is up is not killed. Callers take replicas in turn; one that refuses the connection
was asked nothing, so they ask the next.

Every answer is held against its script (`stream_checks.py`): it is whole, or it ends with an error, or it breaks off. At the end
no generation is open at the model server, and no replica holds more sockets, tasks or files than when it was young.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
import proxy_leaks
from proxy_load import about
from replica_fleet import GRACE, Fleet, Replica, fleet_of
from scripted_upstream import MODEL, SECONDS, Script, Target, question, upstream
from stream_checks import PATHS, TOOLS, Answer, verdict

CALLS: Final = 0.3  # of the streams
LEAVE: Final = 0.15
PACES: Final = (0.01, 0.03, 0.06)  # seconds between two tokens
GROWTH: Final = 40.0  # MB that a replica may have more than a young one: what it keeps of conversations has a bound
LEFT: Final = "the caller left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One stream.

    Args:
        path: of the wire format.
        script: of the reply.
        leaves: after so many bytes, None for never.
    """

    path: str
    script: Script
    leaves: int | None


def plans(seed: int, streams: int) -> Iterator[Plan]:
    """Draw what each stream does."""
    chance = random.Random(seed)
    for _ in range(streams):
        script = Script(tokens=chance.randint(1, 60), pace=chance.choice(PACES), call=chance.random() < CALLS)
        leaves = chance.randint(1, 4000) if chance.random() < LEAVE else None
        yield Plan(path=chance.choice(PATHS), script=script, leaves=leaves)


def body_of(plan: Plan) -> dict[str, Any]:
    """Write a question; where the reply is no call, no tool is offered to half of them."""
    messages = [{"role": "user", "content": question(plan.script)}]
    with_tools = plan.script.call or plan.script.tokens % 2
    body: dict[str, Any] = {"model": MODEL, "messages": messages, "stream": True}
    if plan.path == "/v1/responses":
        body["input"] = body.pop("messages")
    if plan.path == "/v1/messages":
        body["max_tokens"] = 4096
    return body | ({"tools": TOOLS[plan.path]} if with_tools else {})


# -- the callers -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Books:
    """What came of all streams.

    Attributes:
        ended: how, by wire format.
        wrong: what was not as scripted.
        refused: connections that were asked for at a replica that had just gone.
    """

    ended: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    wrong: list[str] = field(default_factory=list)
    refused: int = 0

    def total(self, ended: str) -> int:
        """Count the streams of all formats that ended so."""
        return sum(counts[ended] for counts in self.ended.values())


async def received(client: httpx.AsyncClient, url: str, plan: Plan) -> Answer | None:
    """Ask and read to the end; None if the caller left."""
    status, body = 0, b""
    try:
        async with client.stream("POST", url + plan.path, json=body_of(plan)) as response:
            status = response.status_code
            async for data in response.aiter_bytes():
                body += data
                if plan.leaves is not None and len(body) >= plan.leaves:
                    return None
    except (httpx.ConnectError, httpx.TimeoutException):
        raise
    except httpx.TransportError:
        return Answer(status=status, body=body, is_complete=False)
    return Answer(status=status, body=body, is_complete=True)


class Asked(Protocol):
    """Where callers ask: a replica, or what stands before some.

    Attributes:
        name: for messages.
        target: its address, if it takes connections.
        answered: streams that it was asked for.
    """

    name: str
    target: Target | None
    answered: int


class Stormed(Protocol):
    """A fleet that is asked and killed."""

    @property
    def replicas(self) -> Sequence[Asked]:
        """Where callers ask."""

    async def next(self) -> Asked:
        """Return where the next caller asks."""

    async def kill_at_random(self, every: float) -> None:
        """Kill a replica every so many seconds in the mean, until this is cancelled."""


async def ask(client: httpx.AsyncClient, fleet: Stormed, plan: Plan, books: Books) -> None:
    """Ask a replica, or the next one while connections are refused; note how it ended."""
    while True:
        replica = await fleet.next()
        if replica.target is None:
            continue
        replica.answered += 1
        try:
            answer = await received(client, replica.target.url, plan)
            break
        except httpx.ConnectError:
            books.refused += 1
            await asyncio.sleep(0.05)
        except httpx.TimeoutException:
            books.ended[plan.path]["wrong"] += 1
            books.wrong.append(f"{plan}: no end within {SECONDS:g} s")
            return
    ended, wrong = verdict(plan.path, plan.script, answer) if answer else (LEFT, "")
    books.ended[plan.path][ended] += 1
    if wrong:
        books.wrong.append(f"{plan}: {wrong}")


async def storm(fleet: Stormed, options: argparse.Namespace) -> Books:
    """Run all streams, some at a time, while replicas are killed."""
    books, waiting = Books(), plans(options.seed, options.streams)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(limits=limits, timeout=SECONDS, trust_env=False) as client:

        async def work() -> None:
            for plan in waiting:
                await ask(client, fleet, plan, books)

        killing = asyncio.create_task(fleet.kill_at_random(options.every))
        await asyncio.gather(*(work() for _ in range(options.together)))
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
    return books


# -- what stays behind -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a replica holds.

    Args:
        open: tasks, sockets and files, by what they are.
        megabytes: of resident memory.
        answered: streams that it was asked for.
    """

    open: Counter[str]
    megabytes: float
    answered: int


async def state_of(replica: Replica) -> State:
    """Count what a replica holds, after a question: with it the proxy closes what it kept too long."""
    target = replica.target
    assert target is not None
    plan = Plan(path="/v1/messages", script=Script(), leaves=None)
    async with httpx.AsyncClient(timeout=SECONDS, trust_env=False) as client:
        await received(client, target.url, plan)
    await asyncio.sleep(1)
    tasks = await asyncio.to_thread(proxy_leaks.tasks, target, replica.folder)
    found = tasks + proxy_leaks.sockets(target.pid) + Counter({"files": len(os.listdir(f"/proc/{target.pid}/fd"))})
    return State(open=found, megabytes=target.megabytes(), answered=replica.answered)


async def states(fleet: Fleet) -> dict[str, State]:
    """Count what each replica holds; all must be up."""
    found = await asyncio.gather(*(state_of(replica) for replica in fleet.replicas))
    return {replica.name: state for replica, state in zip(fleet.replicas, found, strict=True)}


async def warm(fleet: Stormed) -> None:
    """Ask each replica once in each format: what is made on first use is there before it is counted."""
    async with httpx.AsyncClient(timeout=SECONDS, trust_env=False) as client:
        for replica in fleet.replicas:
            for path in PATHS:
                plan = Plan(path=path, script=Script(call=True), leaves=None)
                assert replica.target is not None
                answer = await received(client, replica.target.url, plan)
                assert answer is not None
                if (ended := verdict(path, plan.script, answer)) != ("whole", ""):
                    raise SystemExit(f"{replica.name} does not answer on {path}: {ended}")


def counts_of(model: Target) -> dict[str, int]:
    """Return the books of the model server."""
    with urllib.request.urlopen(f"{model.url}/counts", timeout=SECONDS) as response:
        return dict(json.load(response))


def left_behind(before: dict[str, State], after: dict[str, State], model: dict[str, int]) -> list[str]:
    """Say what grew, and what is still open."""
    found = [f"{model[name]} {name} at the model server" for name in ("open", "connections") if model[name]]
    for name, state in after.items():
        more = state.open - before[name].open
        found += [f"{name}: {number} more {what}" for what, number in more.items()]
        if state.megabytes > before[name].megabytes + GROWTH:
            found.append(f"{name}: {before[name].megabytes:.0f} MB grew to {state.megabytes:.0f} MB")
    return found


# -- the report --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that a run found.

    Args:
        books: of the callers.
        kills: of replicas, by how.
        seconds: of the storm.
        before: what each replica held when it was young.
        after: and at the end.
        model: the model server's books at the end.
        exceptions: in the replicas' logs.
    """

    books: Books
    kills: Counter[str]
    seconds: float
    before: dict[str, State]
    after: dict[str, State]
    model: dict[str, int]
    exceptions: Counter[str]

    def faults(self) -> list[str]:
        """Return all that must not be."""
        logged = [f"{number} in the logs: {what}" for what, number in self.exceptions.items()]
        return self.books.wrong + left_behind(self.before, self.after, self.model) + logged


async def run(model: Target, folder: Path, options: argparse.Namespace) -> Outcome:
    """Start a fleet, count, let the storm pass, count again."""
    fleet = fleet_of(__file__, model.url, folder, options.replicas, random.Random(options.seed))
    async with fleet.running():
        await warm(fleet)
        before = await states(fleet)
        begun = time.monotonic()
        books = await storm(fleet, options)
        seconds = time.monotonic() - begun
        await fleet.all_up()
        await warm(fleet)
        await asyncio.sleep(proxy_leaks.REST)  # connections that are kept for a while are closed now
        counts = await asyncio.to_thread(counts_of, model)
        after = await states(fleet)
    exceptions: Counter[str] = Counter()
    for replica in fleet.replicas:
        exceptions += proxy_leaks.tracebacks(replica.folder / "log")
    return Outcome(
        books=books, kills=fleet.kills, seconds=seconds, before=before, after=after, model=counts, exceptions=exceptions
    )


def report_streams(books: Books, kills: Counter[str], seconds: float, options: argparse.Namespace) -> None:
    """Print how all streams ended."""
    killed = " and ".join(f"{number} {how}" for how, number in sorted(kills.items()))
    print(
        f"{options.streams:,} streams, {options.together} at a time, over {options.replicas} replicas, seed {options.seed}: "
        f"{seconds:.0f} s. Replicas were {killed}; {books.refused} connections were refused and asked for elsewhere.\n"
    )
    endings = sorted({ended for counts in books.ended.values() for ended in counts})
    print(f"| streams that ended | {' | '.join(PATHS)} | all |\n|---|{'---:|' * (len(PATHS) + 1)}")
    for ended in endings:
        cells = [f"{books.ended[path][ended]:,}" for path in PATHS]
        print(f"| {ended} | {' | '.join(cells)} | {books.total(ended):,} |")


def report_faults(faults: list[str]) -> None:
    """Print what must not be."""
    print("\n".join(f"- WRONG: {fault}" for fault in faults[:50]))
    print("Nothing was wrong, and nothing stayed behind." if not faults else f"{len(faults)} faults.")


def report(found: Outcome, options: argparse.Namespace) -> None:
    """Print the tables."""
    report_streams(found.books, found.kills, found.seconds, options)
    print("\n| replica | MB, young | MB, at the end | streams of its last process | files, young | at the end |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, state in found.after.items():
        young = found.before[name]
        figures = [f"{young.megabytes:.0f}", f"{state.megabytes:.0f}", f"{state.answered:,}"]
        print(f"| {name} | {' | '.join(figures)} | {young.open['files']} | {state.open['files']} |")
    generations = ", ".join(f"{number:,} {how}" for how, number in found.model.items())
    print(f"\nThe model server's books at the end: {generations}.")
    print(f"Exceptions in the replicas' logs: {', '.join(f'{n} {what}' for what, n in found.exceptions.items()) or 'none'}.\n")
    report_faults(found.faults())


def storm_options(about: str | None, *, together: int, every: float) -> argparse.ArgumentParser:
    """Declare what a storm is told: how many streams and kills."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--together", type=int, default=together, help="streams that are open at once")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--every", type=float, default=every, help="seconds between two kills, in the mean")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--markdown", action="store_true", help="with a heading, as in benchmarks/results")
    return parser


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = storm_options(__doc__, together=100, every=3.0)
    parser.add_argument("--serve", nargs=2, metavar=("MODEL", "FOLDER"), help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main() -> int:
    """Print the tables; return 1 if something is wrong."""
    options = arguments()
    if options.serve:
        return proxy_leaks.serve(options.serve[0], Path(options.serve[1]), "--grace", str(GRACE))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends this ends the replicas, too
    print("# Replicas that are killed\n\n" * options.markdown + about([], 1), flush=True)
    with tempfile.TemporaryDirectory() as folder, upstream() as model:
        found = asyncio.run(run(model, Path(folder), options))
        report(found, options)
    return 1 if found.faults() else 0


if __name__ == "__main__":
    raise SystemExit(main())
