"""How long do many users wait for the first token, and how many servers does that take? A simulation, and Erlang's formula.

    python benchmarks/queue_simulation.py --markdown > benchmarks/results/queue.md    # two minutes
    python benchmarks/queue_simulation.py --quick    # a first look

Nothing here is measured but what xmlcall itself takes (`--token-microseconds`, `--request-milliseconds` and
`--stream-kilobytes`, from `proxy_load.py` and `replicas_load.py`). All else is assumed, in one table, and every row of it can be
changed on the command line.

A question arrives at random (Poisson), at any user's. It takes some replies of the model, with a tool's work between them. A
reply waits for a free slot of a model server, keeps it while the part of its prompt that is not cached is read (then the first
token comes), and while its tokens are written. Four ways to choose the server are compared: any server, in one queue; the server
that has the user's prompt cached, in a queue for each; that one unless all its slots are taken, and that one unless two wait for
it, else the server with the fewest. A prompt that goes elsewhere takes that server's slot for longer, so the next ones go
elsewhere, too: whoever gives way at once is the first to lose all caches under load.

One queue with exponential times is Erlang's model, M/M/c: there the simulation must give what the formula gives, and
`tests/bench/test_queue_simulation.py` holds it to that. A million users are not simulated one by one. One cell of a hundredth is,
with its own servers, and the formula gives what one queue for everybody would take.
"""

import argparse
import datetime
import math
import platform
import random
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import quantiles
from typing import Any, Final

import simpy

__all__ = ["Assumed", "Found", "erlang_c", "erlang_slots", "servers_needed", "simulate"]

HOUR: Final = 3600.0
WARM: Final = 0.1  # of the time, before anything is counted: the queue has to fill
PROMPT_SHAPE: Final = 4.0  # of a gamma distribution: half of the prompts are between 0.6 and 1.3 times the mean
PATIENT: Final = 2  # that may wait at the server with the prompt before another one is taken
MOST: Final = 4  # times what the load alone takes: more servers than that are not tried


def _assumed(default: float, what: str) -> Any:
    return field(default=default, metadata={"what": what})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What is assumed; the words of each row are for the table and the command line."""

    questions: float = _assumed(6.0, "questions of a user in an hour, at the peak")
    replies: int = _assumed(2, "replies of the model to a question: a call, and an answer")
    tool_seconds: float = _assumed(1.0, "seconds that a tool works between two replies")
    prompt_tokens: float = _assumed(3000.0, "tokens of a prompt, in the mean: tools, conversation, results (gamma, shape 4)")
    cached: float = _assumed(0.85, "share of a prompt that is cached on the server that had the user's last turn")
    cached_elsewhere: float = _assumed(0.3, "share that is cached on any other: the tools, which all users have in common")
    reply_tokens: float = _assumed(150.0, "tokens of a reply, in the mean (exponential)")
    prompt_speed: float = _assumed(1500.0, "tokens of a prompt that a slot reads in a second")
    reply_speed: float = _assumed(30.0, "tokens of a reply that a slot writes in a second")
    slots: int = _assumed(8, "slots of a model server: replies that it writes at the same time")
    target: float = _assumed(5.0, "seconds until the first token that 99 of 100 replies have to keep")

    def reply_rate(self, users: int) -> float:
        """Return replies a second of so many users."""
        return users * self.questions * self.replies / HOUR

    def mean_service(self, cached: float) -> float:
        """Return the seconds that a slot is taken, in the mean."""
        return self.prompt_tokens * (1 - cached) / self.prompt_speed + self.reply_tokens / self.reply_speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What xmlcall takes, as measured.

    Args:
        token_microseconds: of a core for each token.
        request_milliseconds: of a core for each request.
        stream_kilobytes: of memory for each open stream.
        busy: share of its core that a replica is planned to take: above it waiting begins.
    """

    token_microseconds: float = 250.0
    request_milliseconds: float = 2.1
    stream_kilobytes: float = 115.0
    busy: float = 0.6

    def cores(self, replies: float, tokens: float) -> float:
        """Return the cores that so many replies a second of so many tokens take."""
        return replies * (self.request_milliseconds / 1e3 + tokens * self.token_microseconds / 1e6)

    def replicas(self, replies: float, tokens: float) -> int:
        """Return how many replicas that takes, and one more, so that one may be missing."""
        return math.ceil(self.cores(replies, tokens) / self.busy) + 1


# -- Erlang's formula --------------------------------------------------------------------------------------------------


def erlang_c(load: float, slots: int) -> float:
    """Return the chance that a request has to wait, in M/M/c.

    By the recursion of Erlang B, which stays within 0 and 1 where factorials would not (Cooper, Introduction to Queueing Theory).

    Args:
        load: arrivals a second times the mean service time, in Erlang.
        slots: that serve.
    """
    if load >= slots:
        return 1.0
    blocked = 1.0
    for number in range(1, slots + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked / (1 - load / slots * (1 - blocked))


def waits_longer(rate: float, service: float, slots: int, seconds: float) -> float:
    """Return the chance to wait longer than some seconds, in M/M/c: that of waiting at all falls exponentially."""
    if rate * service >= slots:
        return 1.0
    return erlang_c(rate * service, slots) * math.exp(-(slots / service - rate) * seconds)


def erlang_slots(rate: float, service: float, seconds: float) -> int:
    """Return the fewest slots of one queue with which 99 of 100 wait no longer than some seconds."""
    slots = math.floor(rate * service) + 1
    while waits_longer(rate, service, slots, seconds) > 0.01:
        slots += 1
    return slots


# -- the simulation ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """What a simulation found.

    Attributes:
        waits: seconds in the queue, of each reply.
        firsts: seconds until the first token.
        used: share of the slots that was taken, in the mean.
        at_home: share of the replies that got the server with their prompt.
    """

    waits: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    used: float = 0.0
    at_home: float = 0.0

    def first(self, percent: int) -> float:
        """Return a percentile of the time until the first token."""
        return quantiles(self.firsts, n=100)[percent - 1]

    def wait(self, percent: int) -> float:
        """Return a percentile of the wait for a slot."""
        return quantiles(self.waits, n=100)[percent - 1]


def _anywhere(servers: Sequence[simpy.Resource], home: int) -> int:
    return 0  # there is one queue, of all slots


def _home(servers: Sequence[simpy.Resource], home: int) -> int:
    return home


def _home_or_freest(servers: Sequence[simpy.Resource], home: int) -> int:
    return home if servers[home].count < servers[home].capacity else _freest(servers)


def _home_or_shortest(servers: Sequence[simpy.Resource], home: int) -> int:
    return home if len(servers[home].queue) < PATIENT else _freest(servers)


def _freest(servers: Sequence[simpy.Resource]) -> int:
    return min(range(len(servers)), key=lambda number: servers[number].count + len(servers[number].queue))


ROUTES: Final[dict[str, Callable[[Sequence[simpy.Resource], int], int]]] = {
    "any server, one queue": _anywhere,
    "the server with the prompt": _home,
    "that one, unless it is full": _home_or_freest,
    "that one, unless 2 wait there": _home_or_shortest,
}
BEST: Final = "that one, unless 2 wait there"


class _Simulation:
    """Users, model servers, and the way between them."""

    def __init__(self, assumed: Assumed, users: int, servers: int, route: str, seconds: float, seed: int) -> None:
        self._assumed, self._users, self._seconds = assumed, users, seconds
        self._chance, self._choose = random.Random(seed), ROUTES[route]
        self._clock = simpy.Environment()
        self._is_pooled = self._choose is _anywhere
        sizes = [servers * assumed.slots] if self._is_pooled else [assumed.slots] * servers
        self._servers = [simpy.Resource(self._clock, capacity=size) for size in sizes]
        self._slots = servers * assumed.slots
        self._taken, self._at_home, self.found = 0.0, 0, Found()

    def run(self) -> Found:
        """Run to the end of the time."""
        self._clock.process(self._arrivals())
        self._clock.run(until=self._seconds)
        self.found.used = self._taken / (self._slots * self._seconds * (1 - WARM))
        self.found.at_home = self._at_home / max(len(self.found.waits), 1)
        return self.found

    def _arrivals(self) -> Generator[simpy.Event, Any, None]:
        rate = self._users * self._assumed.questions / HOUR
        while True:
            yield self._clock.timeout(self._chance.expovariate(rate))
            self._clock.process(self._question(self._chance.randrange(self._users)))

    def _question(self, user: int) -> Generator[simpy.Event, Any, None]:
        for number in range(self._assumed.replies):
            if number:
                yield self._clock.timeout(self._assumed.tool_seconds)
            yield from self._reply(user % len(self._servers))

    def _reply(self, home: int) -> Generator[simpy.Event, Any, None]:
        assumed, chosen = self._assumed, self._choose(self._servers, home)
        is_home = chosen == home and not self._is_pooled
        asked = self._clock.now
        with self._servers[chosen].request() as slot:
            yield slot
            waited = self._clock.now - asked
            read, written = self._prompt_seconds(is_home), self._chance.expovariate(assumed.reply_speed / assumed.reply_tokens)
            self._count(self._clock.now, waited, read, written, is_home)
            yield self._clock.timeout(read + written)

    def _prompt_seconds(self, is_home: bool) -> float:
        assumed = self._assumed
        if not assumed.prompt_tokens:
            return 0.0
        tokens = self._chance.gammavariate(PROMPT_SHAPE, assumed.prompt_tokens / PROMPT_SHAPE)
        return tokens * (1 - (assumed.cached if is_home else assumed.cached_elsewhere)) / assumed.prompt_speed

    def _count(self, now: float, waited: float, read: float, written: float, is_home: bool) -> None:
        """Count a reply whose slot begins now; of those that reach over an edge of the counted time, the part within."""
        since = self._seconds * WARM
        self._taken += max(min(now + read + written, self._seconds) - max(now, since), 0.0)
        if now - waited >= since:
            self.found.waits.append(waited)
            self.found.firsts.append(waited + read)
            self._at_home += is_home


def simulate(assumed: Assumed, *, users: int, servers: int, route: str, seconds: float, seed: int = 1) -> Found:
    """Simulate.

    Args:
        assumed: of users and model servers.
        users: that ask.
        servers: that answer.
        route: one of `ROUTES`.
        seconds: of the users' time.
        seed: of all that is drawn.
    """
    return _Simulation(assumed, users, servers, route, seconds, seed).run()


def servers_needed(assumed: Assumed, *, users: int, route: str, seconds: float) -> tuple[int, Found] | None:
    """Find the fewest servers that keep the target; None where more servers do not help.

    Args:
        assumed: of users and model servers.
        users: that ask.
        route: one of `ROUTES`.
        seconds: of the users' time.
    """
    cached = assumed.cached_elsewhere if ROUTES[route] is _anywhere else assumed.cached
    least = math.floor(assumed.reply_rate(users) * assumed.mean_service(cached) / assumed.slots) + 1
    tried = {}

    def keeps(servers: int) -> bool:
        tried[servers] = simulate(assumed, users=users, servers=servers, route=route, seconds=seconds)
        return tried[servers].first(99) <= assumed.target

    needed = bisect_left(range(MOST * least), True, lo=least, key=keeps)  # waits fall with each server
    return (needed, tried[needed]) if needed < MOST * least else None


# -- the report --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is simulated.

    Args:
        hours: of 1,000 users.
        cell_hours: of one cell of a million users.
        cells: into which a million is cut.
    """

    hours: float = 3.0
    cell_hours: float = 0.4
    cells: int = 100


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table, with figures in all columns but the first."""
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def assumptions(assumed: Assumed, capacity: Capacity) -> str:
    """Write the table of what is put in."""
    rows = [[each.metadata["what"], f"{getattr(assumed, each.name):g}", "assumed"] for each in fields(assumed)]
    rows += [
        ["CPU time of xmlcall for a token that is read for calls, µs", f"{capacity.token_microseconds:g}", "measured"],
        ["CPU time of xmlcall for a request, ms", f"{capacity.request_milliseconds:g}", "measured"],
        ["memory of xmlcall for an open stream, KB", f"{capacity.stream_kilobytes:g}", "measured"],
        ["share of its core that a replica is planned to take", f"{capacity.busy:g}", "assumed"],
    ]
    return table(["what", "value", "from where"], rows)


def simulated(assumed: Assumed, users: int, hours: float) -> str:
    """Simulate each way of choosing a server, with as few servers as keep the target."""
    rows = []
    for route in ROUTES:
        needed = servers_needed(assumed, users=users, route=route, seconds=hours * HOUR)
        if needed is None:
            rows.append([route, "none is enough", *["-"] * 6])
            continue
        servers, found = needed
        seconds = [found.first(50), found.first(99), found.wait(50), found.wait(99)]
        figures = [*(f"{each:.2f}" for each in seconds), f"{found.used:.0%}", f"{found.at_home:.0%}"]
        rows.append([route, str(servers), *figures])
    head = [
        "which server",
        "servers",
        "first token, p50, s",
        "p99",
        "wait for a slot, p50, s",
        "p99",
        "slots taken",
        "with its prompt",
    ]
    return table(head, rows)


def by_formula(assumed: Assumed, populations: Sequence[int]) -> str:
    """Give what one queue would take for all of them, by Erlang C."""
    rows = []
    for users in populations:
        for cached in (assumed.cached_elsewhere, assumed.cached):
            rate, service = assumed.reply_rate(users), assumed.mean_service(cached)
            slots = erlang_slots(rate, service, assumed.target - assumed.prompt_tokens * (1 - cached) / assumed.prompt_speed)
            servers = math.ceil(slots / assumed.slots)
            rows.append([f"{users:,}", f"{cached:.0%}", f"{rate:,.1f}", f"{rate * service:,.0f}", f"{slots:,}", f"{servers:,}"])
    return table(["users", "cached", "replies a second", "slots taken, mean", "slots needed", "servers"], rows)


def replicas(assumed: Assumed, capacity: Capacity, populations: Sequence[int]) -> str:
    """Give what xmlcall takes in front of the model servers."""
    rows = []
    for users in populations:
        rate = assumed.reply_rate(users)
        open_streams = rate * assumed.mean_service(assumed.cached)
        needed = capacity.replicas(rate, assumed.reply_tokens)
        cores, megabytes = capacity.cores(rate, assumed.reply_tokens), open_streams * capacity.stream_kilobytes / 1024
        rows.append([f"{users:,}", f"{rate * assumed.reply_tokens:,.0f}", f"{open_streams:,.0f}", f"{cores:,.1f}"])
        rows[-1] += [f"{needed:,}", f"{megabytes / needed:,.1f}"]
    head = [
        "users",
        "tokens a second",
        "open streams",
        "cores of xmlcall",
        "replicas, one of them spare",
        "MB a replica for streams",
    ]
    return table(head, rows)


def busier(assumed: Assumed, hours: float) -> str:
    """Give the servers for 1,000 users who ask less and more than assumed."""
    rows = []
    for times in (0.5, 1.0, 2.0, 4.0):
        more = replace(assumed, questions=assumed.questions * times)
        needed = servers_needed(more, users=1000, route=BEST, seconds=hours * HOUR / times)
        told = [str(needed[0]), f"{needed[1].first(99):.2f}", f"{needed[1].used:.0%}"] if needed else ["none is enough", "-", "-"]
        rows.append([f"{more.questions:g}", *told])
    return table(["questions of a user in an hour", "servers", "first token, p99, s", "slots taken"], rows)


FORMULA: Final = """\
By formula (Erlang C), all users in one queue: no plan can do with less. The rows with the larger cached share would need every
server to have every user's prompt, so they are a bound that routing comes near to. Times count as exponential, which makes waits
longer than these would be; a prompt counts with its mean. The larger the queue, the less room it needs beside its load. A server
that fails and a peak that is no accident (a lecture begins) need room of their own, which is not in here.

"""


def options() -> argparse.Namespace:
    """Read the command line: an option for each row of the assumptions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="with a heading, as benchmarks/results/queue.md")
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    for each in fields(Assumed):
        parser.add_argument(
            f"--{each.name.replace('_', '-')}", type=type(each.default), default=each.default, help=each.metadata["what"]
        )
    for each in fields(Capacity):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=float, default=each.default)
    return parser.parse_args()


def main() -> None:
    """Print the tables."""
    given = options()
    assumed = Assumed(**{each.name: getattr(given, each.name) for each in fields(Assumed)})
    capacity = Capacity(**{each.name: getattr(given, each.name) for each in fields(Capacity)})
    begun = time.monotonic()
    today = datetime.datetime.now(datetime.UTC).date()
    print("# Many users: calculated\n\n" * given.markdown, end="")
    versions = f"CPython {platform.python_version()}, SimPy {simpy.__version__}"
    print(f"`{' '.join(['python', *sys.argv])}`, {today}, {versions}, seed 1.")
    print("**No line of this page was measured with so many users.**\n")
    print(assumptions(assumed, capacity), flush=True)
    report(assumed, capacity, Plan(hours=0.3, cell_hours=0.04) if given.quick else Plan())
    print(f"All of this took {time.monotonic() - begun:.0f} s.")


def report(assumed: Assumed, capacity: Capacity, plan: Plan) -> None:
    """Simulate, calculate and print."""
    cell = 1_000_000 // plan.cells
    populations = (1000, cell, 1_000_000)
    print(f"## 1,000 users\n\nSimulated, {plan.hours:g} hours of the peak; the fewest servers that keep the target:\n")
    print(simulated(assumed, 1000, plan.hours), flush=True)
    print(f"The same for users who ask less or more; {BEST}:\n\n" + busier(assumed, plan.hours), flush=True)
    print(f"## 1,000,000 users\n\nSimulated: one of {plan.cells} cells of {cell:,} users, which share nothing with the others,")
    print(f"{plan.cell_hours:g} hours of the peak. All cells take {plan.cells} times as many servers:\n")
    print(simulated(assumed, cell, plan.cell_hours), flush=True)
    print(FORMULA + by_formula(assumed, populations))
    print("## Replicas of xmlcall\n\nFrom the load and the measured times; any replica may answer any turn:\n")
    print(replicas(assumed, capacity, populations))


if __name__ == "__main__":
    main()
