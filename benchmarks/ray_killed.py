"""Streams over replicas of the proxy on Ray Serve that are killed at random: does each caller learn how its answer ended?

    python benchmarks/ray_killed.py --markdown > benchmarks/results/ray-killed.md    # 10,000 streams over 3 replicas
    python benchmarks/ray_killed.py --streams 500                                    # a first look

The same streams as in `replicas_killed.py`, held against their scripts in the same way. Here nobody but Ray starts what was
killed, and callers know one address, that of Ray's HTTP proxy. Replicas are killed with SIGKILL alone: they can tell nobody that
an answer is not whole. The middleware around Ray's HTTP proxy (`xmlcall.integrations.ray_errors`) has to.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import proxy_leaks
from proxy_load import about
from ray_serve import on_ray
from replicas_killed import counts_of, left_behind, report_faults, report_streams, storm, storm_options, warm
from scripted_upstream import Target, upstream

YOUNG_SECONDS: Final = 5.0  # of a replica's process that may not have begun to answer
WAIT_SECONDS: Final = 120.0  # for Ray to start what was killed
REPLICA: Final = "ray::ServeReplica"
PROXY: Final = "ray::ProxyActor"
HOW: Final = "killed (SIGKILL)"


def titled(cluster: Target, title: str) -> list[int]:
    """Return the processes of a cluster with a title of Ray's."""
    found = list[int]()
    for pid in cluster.processes():
        with contextlib.suppress(OSError):  # it ended just now
            if Path(f"/proc/{pid}/cmdline").read_text().startswith(title):
                found.append(pid)
    return found


@dataclass(slots=True)
class Door:
    """Where callers ask: in place of a replica of `replica_fleet.py`."""

    target: Target | None
    name: str = "Ray"
    answered: int = 0


class RayFleet:
    """Replicas that Ray starts, and whatever happens to them; what `replicas_killed.storm` needs of a fleet.

    Args:
        cluster: its address and the process that holds it.
        replicas: how many Ray keeps up.
        chance: draws when which replica is killed.

    Attributes:
        kills: how often, and how.
    """

    def __init__(self, cluster: Target, replicas: int, chance: random.Random) -> None:
        self.replicas, self.kills = [Door(cluster)], Counter[str]()
        self._cluster, self._count, self._chance = cluster, replicas, chance
        self._seen = dict[int, float]()

    async def next(self) -> Door:
        """Return the one address."""
        return self.replicas[0]

    def up(self) -> list[int]:
        """Return the replicas that have lived long enough to answer."""
        now = time.monotonic()
        pids = titled(self._cluster, REPLICA)
        self._seen = {pid: self._seen.get(pid, now) for pid in pids}
        return [pid for pid in pids if now - self._seen[pid] >= YOUNG_SECONDS]

    async def all_up(self) -> None:
        """Wait until as many replicas answer as there have to be."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.up()) < self._count:  # noqa: ASYNC110 - processes tell no event
                await asyncio.sleep(0.5)

    async def kill_at_random(self, every: float) -> None:
        """Kill a replica again and again, but not the last one that is up, until this is cancelled."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * every)
            if len(pids := self.up()) > 1:
                os.kill(self._chance.choice(pids), signal.SIGKILL)
                self.kills[HOW] += 1


async def run(model: Target, cluster: Target, options: argparse.Namespace) -> list[str]:
    """Let the storm pass, print what came of it, and return what must not be."""
    fleet = RayFleet(cluster, options.replicas, random.Random(options.seed))
    await fleet.all_up()
    for _ in range(options.replicas):
        await warm(fleet)
    (pid,) = titled(cluster, PROXY)
    proxy = Target(name="Ray's HTTP proxy", url=cluster.url, pid=pid)
    held, begun = [_held(proxy)], time.monotonic()
    books = await storm(fleet, options)
    report_streams(books, fleet.kills, time.monotonic() - begun, options)
    await fleet.all_up()
    await asyncio.sleep(proxy_leaks.REST)
    held.append(_held(proxy))
    counts = await asyncio.to_thread(counts_of, model)
    print("\n| Ray's HTTP proxy | before | at the end |\n|---|---:|---:|")
    for what, before, after in zip(("files", "MB"), *held, strict=True):
        print(f"| {what} | {before:.0f} | {after:.0f} |")
    print(f"\nThe model server's books at the end: {', '.join(f'{number:,} {how}' for how, number in counts.items())}.\n")
    return books.wrong + left_behind({}, {}, counts)


def _held(proxy: Target) -> tuple[int, float]:
    return len(os.listdir(f"/proc/{proxy.pid}/fd")), proxy.megabytes()


def main() -> int:
    """Print the tables; return 1 if something is wrong."""
    options = storm_options(__doc__, together=50, every=12.0).parse_args()
    print("# Replicas on Ray Serve that are killed\n\n" * options.markdown + about([], 1), flush=True)
    with upstream() as model, on_ray(model.url, options.replicas) as cluster:
        faults = asyncio.run(run(model, cluster, options))
        report_faults(faults)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
