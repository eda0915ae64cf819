"""How a command ends: its exit code, and one message that says what to do.

    0   done            1   it ran and failed            2   used wrongly            130   interrupted

Errors that xmlcall raises on purpose, and errors of files and pipes, become one line on standard error. Any other exception is a
bug and keeps its traceback.
"""

import asyncio
import contextlib
import io
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from ..errors import UsageError, XmlcallError
from ..systems import END_SIGNALS, on_signals
from .plain import visible

OK, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130


def complain(message: str) -> None:
    """Write one line to standard error, named after the program."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):  # standard error is closed
        line = f"xmlcall: {visible(message.strip())}"
        if sys.stderr.isatty():
            from .wrapping import wrapped  # only here: most commands need none of what it imports

            line = wrapped(line, shutil.get_terminal_size().columns)
        print(line, file=sys.stderr, flush=True)


def guarded(work: Callable[[], int]) -> int:
    """Run a command; turn every expected failure into a message and an exit code."""
    try:
        code = work()
        sys.stdout.flush()
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except UsageError as error:
        complain(str(error))
        return MISUSED
    except XmlcallError as error:
        complain(str(error))
        return FAILED
    except BrokenPipeError:  # the reader of our output has closed it: no failure
        _abandon_stdout()
        return FAILED
    except OSError as error:
        _abandon_stdout()
        complain(f"{error.filename}: {error.strerror}" if error.filename else f"cannot read or write: {error.strerror or error}")
        return FAILED
    return code


def _abandon_stdout() -> None:
    """Discard buffered output, because the interpreter would fail on it again when it exits."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def run_async(work: Coroutine[Any, Any, int]) -> int:
    """Run a command's coroutine; a signal to end cancels it as Ctrl-C does, so that no server process stays running."""
    try:
        return asyncio.run(_cancellable(work))
    except asyncio.CancelledError as error:
        raise KeyboardInterrupt from error


async def _cancellable(work: Coroutine[Any, Any, int]) -> int:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    is_main = threading.current_thread() is threading.main_thread()
    # Any other handler stays: `nohup` or an embedding program has set it on purpose.
    ours = [each for each in END_SIGNALS if is_main and signal.getsignal(each) is signal.SIG_DFL]
    with on_signals(ours, lambda *_: loop.call_soon_threadsafe(task.cancel)):
        return await work


def prepare_streams() -> None:
    """Make the standard streams usable: open those that were closed, and never fail on a character they cannot hold."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It takes the free descriptor, so that no file that is opened later becomes our output.
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for the rest of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_odd = sys.platform == "win32" and not stream.isatty()  # it has the system's code page, while files are UTF-8
            stream.reconfigure(encoding="utf-8" if is_odd else None, errors="backslashreplace")
