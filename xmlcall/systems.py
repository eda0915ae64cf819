"""What POSIX and Windows do differently: each function beside its twin. No other module uses anything that one of them lacks."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

END_SIGNALS: Final = tuple(each for each in signal.Signals if each.name in ("SIGTERM", "SIGHUP", "SIGBREAK"))
"""Signals that ask a program to end; where others have SIGHUP, Windows sends SIGBREAK for a window that is closed."""

READ_ONLY: Final[int] = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags to open a file without following a link or waiting for a pipe."""

if sys.platform == "win32":
    import msvcrt

    def hold_byte(descriptor: int, place: int) -> None:
        """Lock a byte, which a file need not have, against other programs; BlockingIOError if one has it."""
        os.lseek(descriptor, place % _PLACES, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from error

    def free_byte(descriptor: int, place: int) -> None:
        os.lseek(descriptor, place % _PLACES, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def typed_so_far() -> str:
        """Return what was typed but not read yet, including an unfinished line."""
        typed = ""
        while msvcrt.kbhit():
            typed += msvcrt.getwch()
        return typed

    def user_id() -> int:
        """Return the owner of new files; 0 where `stat` reports no owners, because access lists of folders decide."""
        return 0

    def open_files() -> int | None:
        """Return how many files and sockets the process may have open; None if nothing limits that."""
        return None

    def split_words(text: str) -> list[str]:
        """Split a command line; a backslash is a part of a path."""
        words = shlex.shlex(text, posix=True, punctuation_chars=False)
        words.whitespace_split, words.escape, words.commenters = True, "", ""
        return list(words)

    def assignment(name: str, value: str | None) -> str:
        """Write how a shell sets a variable, or unsets it."""
        quoted = (value or "").replace("'", "''")
        return f"Remove-Item Env:{name}" if value is None else f"$env:{name} = '{quoted}'"

    _PLACES: Final = 1 << 31  # what `locking` can reach

else:
    import fcntl
    import resource
    import termios

    def hold_byte(descriptor: int, place: int) -> None:
        """Lock a byte, which a file need not have, against other programs; BlockingIOError if one has it."""
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)

    def free_byte(descriptor: int, place: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, place)

    def typed_so_far() -> str:
        """Return what was typed but not read yet, including an unfinished line."""
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        at_once = [*before[:3], before[3] & ~termios.ICANON, *before[4:6], [*before[6]]]
        at_once[6][termios.VMIN] = at_once[6][termios.VTIME] = 0
        termios.tcsetattr(descriptor, termios.TCSANOW, at_once)
        try:
            return os.read(descriptor, 1 << 16).decode("utf-8", "replace")
        finally:
            termios.tcsetattr(descriptor, termios.TCSANOW, before)

    def user_id() -> int:
        """Return the owner of new files; 0 where `stat` reports no owners, because access lists of folders decide."""
        return os.geteuid()

    def open_files() -> int | None:
        """Return how many files and sockets the process may have open; None if nothing limits that."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if files == resource.RLIM_INFINITY else files

    def split_words(text: str) -> list[str]:
        """Split a command line as a shell does."""
        return shlex.split(text)

    def assignment(name: str, value: str | None) -> str:
        """Write how a shell sets a variable, or unsets it."""
        return f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"


def is_closed(mode: int) -> bool:
    """Return whether the mode of a file keeps other users out; Windows has no modes, but closes the user's own folders."""
    return sys.platform == "win32" or not mode & 0o077


@contextmanager
def on_signals(numbers: Iterable[signal.Signals], act: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Call a function on signals, on each system alike; in an event loop it uses `call_soon_threadsafe`."""
    before = {number: signal.signal(number, act) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
