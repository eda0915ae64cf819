"""Replicas of the proxy that are killed and started again: the processes, who supervises them, and who kills them."""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from scripted_upstream import Target

__all__ = ["GRACE", "Fleet", "Replica", "fleet_of"]

GRACE: Final = 0.0  # seconds for the answers under way: a replica that is told to stop cuts them off at once
START_SECONDS: Final = 120.0  # of a replica, on a machine that has much else to do
_HOW: Final = {signal.SIGKILL: "killed (SIGKILL)", signal.SIGTERM: "stopped (SIGTERM)"}


class Replica:
    """A place in the fleet, with one process after the other.

    Args:
        name: for the tables, and of the folder for its log.
        command: that serves and prints an address.

    Attributes:
        target: the process that takes connections now, if any.
        answered: streams that this process was asked for.
        folder: of its log.
        up: set while there is such a process.
    """

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name, self.folder, self.up = name, folder, asyncio.Event()
        self._command = command
        self.target: Target | None = None
        self.answered = 0

    async def supervise(self) -> None:
        """Run a process, and another one whenever it ends, until this is cancelled."""
        while True:
            process = await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.PIPE)
            try:
                assert process.stdout is not None
                url = (await process.stdout.readline()).decode().strip()
                if not url:
                    raise SystemExit(f"{self.name} did not start; see {self.folder / 'log'}")
                self.answered, self.target = 0, Target(name=self.name, url=url, pid=process.pid)
                self.up.set()
                await process.wait()
            finally:
                self.target = None
                self.up.clear()
                await _ended(process)

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal; say whether there was a process to get it."""
        if self.target is None:
            return False
        self.up.clear()  # until another one is: this one ends, though perhaps not at once
        with contextlib.suppress(ProcessLookupError):  # it ended just now, and its supervisor has not yet seen it
            os.kill(self.target.pid, number)
        return True


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Fleet:
    """Replicas, and whatever happens to them.

    Args:
        replicas: of one model server.
        chance: draws when which replica is killed, and how.

    Attributes:
        kills: how often, and how.
    """

    def __init__(self, replicas: list[Replica], chance: random.Random) -> None:
        self.replicas, self._chance = replicas, chance
        self.kills: Counter[str] = Counter()
        self._turn = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Fleet"]:
        """Start all; end all after the block, and fail if a supervisor did."""
        async with asyncio.TaskGroup() as group:
            supervisors = [group.create_task(replica.supervise()) for replica in self.replicas]
            await self.all_up()
            yield self
            for supervisor in supervisors:
                supervisor.cancel()

    async def all_up(self) -> None:
        """Wait until every replica takes connections."""
        async with asyncio.timeout(START_SECONDS):
            for replica in self.replicas:
                await replica.up.wait()

    async def next(self) -> Replica:
        """Return the next replica in turn that takes connections, as a balancer would."""
        async with asyncio.timeout(START_SECONDS):
            while True:
                for _ in self.replicas:
                    self._turn = (self._turn + 1) % len(self.replicas)
                    if self.replicas[self._turn].target:
                        return self.replicas[self._turn]
                await asyncio.sleep(0.05)

    async def kill_at_random(self, every: float) -> None:
        """Kill a replica again and again, but not the last one that is up, until this is cancelled.

        Args:
            every: seconds between two kills, in the mean.
        """
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * every)
            replica, number = self._chance.choice(self.replicas), self._chance.choice(list(_HOW))
            if sum(each.up.is_set() for each in self.replicas) > 1 and replica.signal(number):
                self.kills[_HOW[number]] += 1


def fleet_of(script: str, model: str, folder: Path, count: int, chance: random.Random) -> Fleet:
    """Make a fleet of a program that serves when it is called with `--serve MODEL FOLDER`.

    Args:
        script: the program.
        model: address of the model server.
        folder: for one folder a replica.
        count: of replicas.
        chance: draws the kills.
    """
    replicas = []
    for number in range(count):
        own = folder / f"replica-{number + 1}"
        own.mkdir()
        replicas.append(Replica(own.name, [sys.executable, script, "--serve", model, str(own)], own))
    return Fleet(replicas, chance)
