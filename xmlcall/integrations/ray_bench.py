"""`xmlcall bench run --on ray`: the cases of a run spread over several servers of one model, into the same file as from one.

Each server has an actor of Ray, which asks it one block of cases after the other, with the code that asks a single server
(`runner.execute`). The command alone writes: replies in the order of the cases, whichever server was faster. Blocks
that are ahead wait, and no block begins that is more than `AHEAD` before the first that is not whole.

| what fails                                         | what happens |
| -------------------------------------------------- | ------------ |
| a request                                          | it is tried again and then reported, as with one server |
| the process of an actor, or its node               | Ray starts it again and has it do its block again, `RETRIES` times |
| a server, several requests in a row; or its actor  | it gets no more blocks; others do what is left of its block |
| a block at `ATTEMPTS` servers, or all servers      | the run gives up, as with one server; the same command goes on with it |
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ..backends.connect import connect
from ..bench import runner
from ..bench.case import Case
from ..bench.runner import Failed
from ..bench.store import Run
from ..bench.subjects import model_subject
from ..bench.ways import Way, way_of
from ..errors import BackendError, UsageError
from .ray_cluster import imported, lost

__all__ = ["execute"]

CASES: Final = 4  # of a block, for each request that a server has at a time
AHEAD: Final = 4  # blocks for each server
RETRIES: Final = 2
ATTEMPTS: Final = 3

Failure = tuple[str, str, str]
"""The id of a case, the name of a way, and what the server said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Cases that go to a server together.

    Args:
        place: among the blocks.
        cases: of the run, in their order.
        done: keys of their requests that are answered.
        rows: answers that an earlier server gave.
        attempts: servers that failed over it.
    """

    place: int
    cases: Sequence[Case]
    done: frozenset[str]
    rows: tuple[dict[str, Any], ...] = ()
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What came of a block.

    Args:
        rows: answers, as `Run.add` takes them.
        failures: requests without an answer.
        is_given_up: the server fails.
    """

    rows: Sequence[dict[str, Any]] = ()
    failures: Sequence[Failure] = ()
    is_given_up: bool = False


class _Gathered(Run):
    """A run that keeps nothing but what is added to it, in the memory of the process that asks."""

    def add(self, reply: dict[str, Any]) -> None:
        """Keep a reply."""
        self.replies.append(reply)


class Asker:
    """Asks one server; an actor of Ray.

    Args:
        server: as for `connect`.
        about: of the run.
        concurrency: requests at a time.
    """

    def __init__(self, server: str, about: dict[str, Any], concurrency: int) -> None:
        self._server, self._about, self._concurrency = server, about, concurrency
        self._ways = [way_of(name) for name in about["ways"]]

    async def ask(self, cases: Sequence[Case], done: frozenset[str]) -> Asked:
        """Ask the cases of a block.

        Args:
            cases: of the run.
            done: keys of requests that are answered.
        """
        failures: list[Failure] = []
        run = _Gathered(Path(), self._about, list(cases), [{"key": key} for key in done])

        def failed(case: Case, way: Way, error: BackendError) -> None:
            failures.append((case.id, way.name, str(error)))

        try:
            async with connect(self._server) as backend:
                if backend.model != self._about["model"]:
                    raise UsageError(f"--server {self._server}: expected the model {self._about['model']}, got {backend.model}")
                subject = model_subject(backend)
                over = await runner.execute(run, self._ways, subject, concurrency=self._concurrency, failed=failed)
        except BackendError as error:  # it cannot be opened
            return Asked(failures=[("", "", str(error))], is_given_up=True)
        rows = sorted((row for row in run.replies if "case" in row), key=_order(cases, self._about["ways"]))
        return Asked(rows=rows, failures=failures, is_given_up=over is None)


def _order(cases: Sequence[Case], ways: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[int, int]]:
    """Return the order in which one request at a time would be answered."""
    places = {case.id: place for place, case in enumerate(cases)}
    return lambda row: (places[row["case"]], ways.index(row["way"]))


@dataclass(kw_only=True)
class _Blocks:
    """Who does what.

    Args:
        waiting: blocks that nobody is at.
        ahead: how many blocks may be begun before the first that is not whole.
    """

    waiting: deque[Block]
    ahead: int
    is_over: bool = False
    first: int = 0  # the first that is not whole
    under_way: int = 0
    whole: dict[int, Block] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self) -> Block | None:
        """Wait for a block; None if there is no more to do."""
        async with self.changed:
            await self.changed.wait_for(lambda: self._ready or self.is_over or not (self.waiting or self.under_way))
            if self.is_over or not self._ready:
                return None
            self.under_way += 1
            return self.waiting.popleft()

    @property
    def _ready(self) -> bool:
        return bool(self.waiting) and self.waiting[0].place < self.first + self.ahead

    async def put(self, block: Block, *, is_whole: bool) -> list[Block]:
        """Give a block back; give those that may be written now, in their order."""
        async with self.changed:
            self.under_way -= 1
            if is_whole:
                self.whole[block.place] = block
            else:
                self.waiting.appendleft(block)
                self.is_over = self.is_over or block.attempts >= ATTEMPTS
            written = []
            while self.first in self.whole:
                written.append(self.whole.pop(self.first))
                self.first += 1
            self.changed.notify_all()
        return written


async def execute(
    run: Run,
    ways: Sequence[Way],
    servers: Sequence[str],
    *,
    concurrency: int = 1,
    progress: Callable[[int], None] = lambda answered: None,
    failed: Failed = lambda case, way, error: None,
) -> int | None:
    """Answer what is not answered yet, as `runner.execute` does; Ray is connected.

    Args:
        run: open; replies are added to it.
        ways: of calling; those of the run.
        servers: of its model.
        concurrency: requests at the same time, at each.
        progress: told how many more requests are answered; first, how many were before.
        failed: told of each request that got no answer.

    Returns:
        How many requests got no answer; None if the run was given up.

    Raises:
        UsageError: a server has another model.
    """
    waiting = _cut(run, ways, CASES * concurrency)
    progress(len(run.done()))
    blocks = _Blocks(waiting=waiting, ahead=AHEAD * len(servers))
    failures = 0

    async def serve(server: str) -> None:
        nonlocal failures
        asker = _actor(server, run.about, concurrency)
        while (block := await blocks.take()) is not None:
            asked = await _ask(asker, block)
            block = replace(block, rows=(*block.rows, *asked.rows), attempts=block.attempts + asked.is_given_up)
            for case, way, message in asked.failures:
                if case and not asked.is_given_up:
                    failures += 1
                    failed(run.by_id[case], way_of(way), BackendError(message, backend=server))
            if asked.is_given_up:
                block = replace(block, done=block.done | {row["key"] for row in asked.rows})
            for whole in await blocks.put(block, is_whole=not asked.is_given_up):
                _write(run, whole, progress)
            if asked.is_given_up:
                told = asked.failures[-1][2] if asked.failures else "its process died"
                failed(block.cases[0], ways[0], BackendError(f"{server} gets no more cases: {told}", backend=server))
                return

    await runner.all_of(serve(server) for server in servers)
    for left in sorted((*blocks.whole.values(), *blocks.waiting), key=lambda block: block.place):
        _write(run, left, progress)  # after a run that was given up, what came nevertheless
    return None if blocks.is_over or blocks.waiting else failures


def _cut(run: Run, ways: Sequence[Way], size: int) -> deque[Block]:
    """Cut what is not answered yet into blocks."""
    answered: dict[str, set[str]] = {}
    for reply in run.replies:
        answered.setdefault(reply["case"], set()).add(reply["key"])
    cases = [case for case in run.cases if len(answered.get(case.id, ())) < len(ways)]
    parts = [cases[start : start + size] for start in range(0, len(cases), size)]
    return deque(
        Block(place=place, cases=part, done=frozenset(key for case in part for key in answered.get(case.id, ())))
        for place, part in enumerate(parts)
    )


def _actor(server: str, about: dict[str, Any], concurrency: int) -> Any:
    """Start what asks a server; it waits most of its time, so it takes no core from others."""
    options = {"num_cpus": 0, "max_restarts": RETRIES, "max_task_retries": RETRIES, "scheduling_strategy": "SPREAD"}
    return imported().remote(**options)(Asker).remote(server, about, concurrency)


async def _ask(asker: Any, block: Block) -> Asked:
    ray = imported()
    try:
        asked: Asked = await asker.ask.remote(block.cases, block.done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        if not lost(error):
            raise
        return Asked(is_given_up=True)
    return asked


def _write(run: Run, block: Block, progress: Callable[[int], None]) -> None:
    """Write the rows of a block in the order of its cases."""
    for row in sorted(block.rows, key=_order(block.cases, run.about["ways"])):
        run.add(row)
    progress(len(block.rows))
