"""Lines of standard input, awaited without a thread.

A thread that reads standard input cannot be stopped: Ctrl-C would leave it behind, and the program would wait for it at its end.
So the descriptor is watched by the event loop and read when it has something. Regular files cannot be watched and never block.
"""

import asyncio
import os
import sys

from ..errors import UsageError

__all__ = ["LineReader", "forget_typed", "is_interactive"]

_MAX_LINE = 1 << 20


class LineReader:
    """Reads lines from a descriptor; nothing else may read from it meanwhile."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._read = b""
        self._ended = False

    async def line(self) -> str | None:
        """Wait for the next line; None at the end.

        Returns:
            The line without its end; bytes that are not UTF-8 are replaced.
        """
        while b"\n" not in self._read and not self._ended:
            if len(self._read) > _MAX_LINE:
                raise UsageError(f"expected lines of at most {_MAX_LINE} bytes on standard input, got a longer one")
            await self._readable()
            data = os.read(self._descriptor, 1 << 16)
            self._ended = not data
            self._read += data
        if not self._read:
            return None
        line, _, self._read = self._read.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r")

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except PermissionError:  # epoll's word for a regular file
            return
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)


def forget_typed() -> None:
    """Throw away what was typed so far, so that it does not answer a question that nobody had seen."""
    import termios  # not on every platform; where it is missing, so is the terminal that this is for

    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def is_interactive() -> bool:
    """Say whether there is a person to ask: one who types on standard input and sees standard error."""
    return sys.stdin.isatty() and sys.stderr.isatty()
