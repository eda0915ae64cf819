"""`xmlcall` as it is on Windows, on another system: `python tests/like_windows.py ARGUMENT ...` runs a command.

The package alone sees it: modules that Windows lacks cannot be imported, functions, signals and flags that it lacks are missing,
`sys.platform` is its own, and the event loop watches no descriptors and takes no signal handlers. The standard library and other
packages are left as they are here.
"""

import asyncio
import builtins
import os
import sys
import types
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

__all__ = ["MISSING"]

MISSING: Final = {
    "asyncio": {"AbstractChildWatcher", "open_unix_connection", "start_unix_server"},
    "os": {"O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "chown", "fork", "forkpty", "getegid", "geteuid", "getgid", "getloadavg"}
    | {"getpgid", "getuid", "killpg", "mkfifo", "nice", "openpty", "pread", "pwrite", "sched_getaffinity", "set_blocking"}
    | {"setpgid", "setsid", "statvfs", "sysconf", "ttyname", "uname", "wait3", "wait4"},
    "select": {"epoll", "kqueue", "poll", "select"},  # of sockets it has `select`; we watch none
    "signal": {"SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGWINCH", "alarm", "pthread_sigmask"}
    | {"set_wakeup_fd", "setitimer", "siginterrupt"},
    "socket": {"AF_UNIX", "recv_fds", "send_fds", "socketpair"},
    "sys": set[str](),
    "time": {"tzset"},
}
NO_MODULES: Final = {"curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}


class Seen:
    """A module without some of its names, and with others instead."""

    def __init__(self, real: types.ModuleType, missing: set[str], **instead: Any) -> None:
        vars(self).update(_real=real, _missing=missing, **instead)

    def __getattr__(self, name: str) -> Any:
        if name in self._missing:
            raise AttributeError(f"module {self._real.__name__!r} has no attribute {name!r} on Windows", name=name)
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


def console_module() -> Any:
    """Make a `msvcrt` that locks bytes as this system does, and has no console."""
    import fcntl

    made: Any = types.ModuleType("msvcrt")
    made.LK_NBLCK, made.LK_UNLCK = 2, 0

    def locking(descriptor: int, mode: int, count: int) -> None:
        if os.lseek(descriptor, 0, os.SEEK_CUR) >= 1 << 31:
            raise OSError(22, "Invalid argument")
        wanted = fcntl.LOCK_EX | fcntl.LOCK_NB if mode == made.LK_NBLCK else fcntl.LOCK_UN
        try:
            fcntl.lockf(descriptor, wanted, count, 0, os.SEEK_CUR)
        except BlockingIOError as error:
            raise PermissionError(*error.args) from error

    made.locking, made.kbhit, made.getwch = locking, lambda: False, lambda: ""
    return made


def hide() -> None:
    """Show the package a Windows."""
    instead = {"sys": {"platform": "win32"}, "os": {"name": "nt"}}
    seen: dict[str, Any] = {name: Seen(import_module(name), gone, **instead.get(name, {})) for name, gone in MISSING.items()}
    seen["msvcrt"] = console_module()
    real = builtins.__import__

    def imported(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level or not (globals or {}).get("__name__", "").startswith("xmlcall"):
            return real(name, globals, locals, fromlist, level)
        if name in NO_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} on Windows", name=name)
        return seen.get(name) or real(name, globals, locals, fromlist, level)

    builtins.__import__ = imported
    for name in ("add_reader", "add_writer", "remove_reader", "remove_writer", "add_signal_handler", "remove_signal_handler"):
        setattr(asyncio.SelectorEventLoop, name, _refused(getattr(asyncio.SelectorEventLoop, name)))


def _refused(method: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse a method to the package, as Windows' event loop does."""

    def refused(*arguments: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").startswith("xmlcall"):
            raise NotImplementedError
        return method(*arguments)

    return refused


if __name__ == "__main__":
    hide()
    from xmlcall.cli import main

    sys.exit(main(sys.argv[1:]))
