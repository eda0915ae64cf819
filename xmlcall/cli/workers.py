"""`serve --workers N`: processes that serve one port, begun again when they die, ended together.

The port is taken once; each worker is a fork that accepts from it, so the kernel deals connections out. uvicorn's own supervisor
is not used: it makes servers of its own, which know neither our time of grace nor the error with which our streams end.

Workers end with their parent, however it ends: they hear the end of a pipe that only it keeps open.

A worker that ends before it was ready would fail the same way again: then all end, with its exit code. One that dies later is
replaced, after a second at the least, so that one that always dies does not keep the machine busy.
"""

import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final

from .exits import FAILED, OK

__all__ = ["run_workers"]

POLL_SECONDS: Final = 0.2
AGAIN_SECONDS: Final = 1.0
ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

log = logging.getLogger("xmlcall.workers")

Ready = Callable[[], None]
Work = Callable[[Ready], int]


@dataclass(slots=True)
class _Worker:
    """A process.

    Args:
        pid: of it.
        pipe: from it; a byte says that it is ready, its end that it ended.
        is_ready: whether it has said so.
    """

    pid: int
    pipe: int
    is_ready: bool = False


class _Workers:
    """The processes of one port.

    Args:
        count: how many.
        work: what each does; it is given what to call when it is ready, and returns an exit code.
        ended: told the process number of one that ended.

    Attributes:
        failure: exit code of one that ended before it was ready.
    """

    def __init__(self, count: int, work: Work, ended: Callable[[int], None]) -> None:
        self._work, self._tell_ended = work, ended
        self._all: list[_Worker] = []
        self.is_ending, self.failure = False, OK
        self._life = os.pipe()
        for _ in range(count):
            self._all.append(self._begun())

    @property
    def are_ready(self) -> bool:
        """Whether each has said that it is ready."""
        return all(worker.is_ready for worker in self._all)

    @property
    def are_over(self) -> bool:
        """Whether none is left."""
        return not self._all

    def _begun(self) -> _Worker:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            return _Worker(pid, reading)
        os.close(reading)
        os.close(self._life[1])
        os._exit(_worked(self._work, writing, self._life[0]))

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to all."""
        self.is_ending = True
        for worker in self._all:
            os.kill(worker.pid, number)

    def watch(self) -> None:
        """Wait a moment for news of them."""
        readable, _, _ = select.select([worker.pipe for worker in self._all], [], [], POLL_SECONDS)
        for worker in [each for each in self._all if each.pipe in readable]:
            if os.read(worker.pipe, 1):
                worker.is_ready = True
            else:
                self._ended(worker)

    def _ended(self, worker: _Worker) -> None:
        """Take the end of a worker: another one begins, or all end."""
        _, status = os.waitpid(worker.pid, 0)
        os.close(worker.pipe)
        self._all.remove(worker)
        self._tell_ended(worker.pid)
        code = os.waitstatus_to_exitcode(status)
        if self.is_ending:
            return
        if not worker.is_ready:
            self.failure = code if code > 0 else FAILED
            self.end()
            return
        log.warning("worker %d ended with %d: another one begins", worker.pid, code)
        time.sleep(AGAIN_SECONDS)
        if not self.is_ending:  # a signal may have come meanwhile
            self._all.append(self._begun())


def _worked(work: Work, writing: int, life: int) -> int:
    """Do the work in a new process; return its exit code.

    Args:
        work: to be done.
        writing: takes the byte that says that it is ready.
        life: ends with the parent.
    """
    threading.Thread(target=_end_with_parent, args=(life,), daemon=True).start()
    for number in ENDS:
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    try:
        return work(lambda: _tell(writing))
    except BaseException as error:  # nothing may return into the parent's code
        log.critical("a worker failed", exc_info=error)
        return FAILED
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _end_with_parent(life: int) -> None:
    os.read(life, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _tell(writing: int) -> None:
    os.write(writing, b"r")


def run_workers(count: int, work: Work, *, ready: Ready, ended: Callable[[int], None], seconds: float) -> int:
    """Run workers until a signal comes; return the exit code.

    Args:
        count: how many.
        work: what each does: it is given what to call when it is ready, ends at SIGTERM, and returns an exit code.
        ready: called once, when all are.
        ended: told the process number of each that ended.
        seconds: that they have for their end; then they are killed.
    """
    workers = _Workers(count, work, ended)

    def end(number: int, frame: FrameType | None) -> None:
        workers.end()

    before = {number: signal.signal(number, end) for number in ENDS}
    is_told, until = False, 0.0
    try:
        while not workers.are_over:
            workers.watch()
            if workers.is_ending:
                until = until or time.monotonic() + seconds
                if time.monotonic() > until:
                    workers.end(signal.SIGKILL)
            elif workers.are_ready and not is_told:
                is_told = True
                ready()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return workers.failure
