"""`xmlcall` as a process that has its imports already: they take longer than most commands.

In `make test` one program per worker imports xmlcall once and forks a process for each command, which then does what
`python -m xmlcall` does: with its own streams, environment, folder, terminal, signals and exit code. In the deep profile a
command is started as a person starts it.

As a program this module takes commands on the socket whose descriptor it is given.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

__all__ = ["XMLCALL", "Forked", "Running", "begin"]

XMLCALL = [sys.executable, "-m", "xmlcall"]

_READY_SECONDS = 50.0

# The terminal becomes the process's own, so that Ctrl-C arrives as a signal; done here and not between fork and exec, since
# the tests have threads.
_OWN_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


def begin(
    arguments: Sequence[str],
    streams: tuple[int, int, int],
    *,
    home: Path,
    env: Mapping[str, str],
    own_terminal: bool = False,
) -> "Running":
    """Begin a command.

    Args:
        arguments: without the program's name.
        streams: standard input, output and error, each a descriptor or DEVNULL; PIPE for output that is read as text.
        home: where it runs.
        env: all of its environment.
        own_terminal: whether standard input is a terminal that becomes its own.
    """
    from profiles import is_deep  # of pytest; the program has no use for it

    if not is_deep():
        return Forked(arguments, streams, home=home, env=env, own_terminal=own_terminal)
    argv = [sys.executable, "-c", _OWN_TERMINAL, *XMLCALL] if own_terminal else XMLCALL
    named: dict[str, Any] = dict(zip(("stdin", "stdout", "stderr"), streams, strict=True))
    return subprocess.Popen([*argv, *arguments], **named, text=True, env=env, cwd=home, start_new_session=own_terminal)


class Forked:
    """A forked command; has of `subprocess.Popen` what the tests use."""

    def __init__(
        self, arguments: Sequence[str], streams: tuple[int, int, int], *, home: Path, env: Mapping[str, str], own_terminal: bool
    ) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self._news, telling = os.pipe()
        order = {"arguments": self.args, "home": str(home), "env": dict(env), "own_terminal": own_terminal}
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, telling)
            given = [self._descriptor(each, stack) for each in streams]
            written = stack.enter_context(tempfile.TemporaryFile("w+"))
            json.dump(order, written)
            written.flush()
            socket.send_fds(_program(), [b"!"], [*given, written.fileno(), telling])
        self.pid = int(self._told())

    def _descriptor(self, stream: int, stack: contextlib.ExitStack) -> int:
        if stream == subprocess.DEVNULL:
            stream = os.open(os.devnull, os.O_RDWR)
            stack.callback(os.close, stream)
        elif stream == subprocess.PIPE:
            reading, stream = os.pipe()
            stack.callback(os.close, stream)
            self.stdout = open(reading, encoding="utf-8")  # noqa: SIM115 - closed by `communicate`
        return stream

    def _told(self) -> str:
        """Read the next line of news: the number of the process, then its exit code."""
        line = b""
        while not line.endswith(b"\n"):
            if not (byte := os.read(self._news, 1)):
                raise RuntimeError("the program that forks commands has ended")
            line += byte
        return line.decode()

    def poll(self) -> int | None:
        """Give the exit code; None if it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; gives the exit code."""
        if self.returncode is None:
            if not select.select([self._news], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._told())
            os.close(self._news)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send the signal to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Read the output to its end, and wait."""
        said = self.stdout.read() if self.stdout and not self.stdout.closed else ""
        if self.stdout:
            self.stdout.close()
        self.wait(timeout)
        return said, None


Running = subprocess.Popen[str] | Forked


@functools.cache
def _program() -> socket.socket:
    """Start the program that forks commands; gives the socket on which it takes them."""
    from cli_harness import HOSTILE, call, environment, model_server

    ours, its = socket.socketpair()
    with tempfile.TemporaryDirectory() as folder, model_server(call("echo", text="hi"), "Done.") as (url, _):
        command = [sys.executable, __file__, str(its.fileno()), url, f"{shlex.quote(sys.executable)} {shlex.quote(HOSTILE)} good"]
        process = subprocess.Popen(
            command,
            pass_fds=[its.fileno()],
            env=environment(Path(folder)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        its.close()
        ours.settimeout(_READY_SECONDS)
        if ours.recv(1) != b"r":
            raise RuntimeError(f"the program that forks commands ended with {process.wait()}")
        ours.settimeout(None)
    atexit.register(process.wait)
    atexit.register(ours.close)  # which ends it; the last that is registered is done first
    return ours


# -- the program -------------------------------------------------------------------------------------------------------

_SKIPPED = ("xmlcall.__main__", "xmlcall.bench", "xmlcall.integrations", "xmlcall.clients")  # what few commands need
_LAZY = ("openai", "ollama", "uvicorn.protocols.http.h11_impl", "uvicorn.lifespan.on", "uvicorn.loops.auto", "rich.markdown")
_LATER = "prometheus_client"  # looks at the environment when it is imported


def _load() -> None:
    import xmlcall

    sys.modules[_LATER] = None  # type: ignore[assignment]
    for found in pkgutil.walk_packages(xmlcall.__path__, "xmlcall.", onerror=lambda _: None):
        if not found.name.startswith(_SKIPPED):
            with contextlib.suppress(ImportError):  # what it needs comes later, or is not installed
                importlib.import_module(found.name)
    del sys.modules[_LATER]
    for name in _LAZY:
        importlib.import_module(name)


def _take_commands(requests: socket.socket) -> list[int]:
    """Fork a process for each command until there are no more; gives its descriptors in such a process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for the commands
    while True:
        word, descriptors, _, _ = socket.recv_fds(requests, 1, 5)
        if not word:
            return []
        if os.fork():
            for each in descriptors:
                os.close(each)
            continue
        requests.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if not (process := os.fork()):
            return descriptors
        _wait_for(process, descriptors)


def _wait_for(process: int, descriptors: list[int]) -> NoReturn:
    *others, telling = descriptors
    for each in others:  # else their other sides would not see the end of the command
        os.close(each)
    os.write(telling, f"{process}\n".encode())
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(telling, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(descriptors: list[int]) -> None:
    """Become the command; what is still to be done is `main`."""
    *streams, written, telling = descriptors
    os.close(telling)
    with open(written, encoding="utf-8") as file:
        file.seek(0)
        order = json.load(file)
    if order["own_terminal"]:
        os.setsid()
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, each in enumerate(streams):
        os.dup2(each, number)
    for each in set(streams):
        os.close(each)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["home"])
    sys.argv = ["xmlcall", *order["arguments"]]
    sys.path[0] = order["home"]
    _renew_streams()


_before: list[Any] = []  # would close the descriptors if they were forgotten


def _renew_streams() -> None:
    """Open the streams as an interpreter does at its start: whether they are terminals is looked at then."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        old = getattr(sys, name)
        _before.append(old)
        buffering = 1 if name == "stderr" else -1
        new = open(number, mode, buffering, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _end(code: int) -> NoReturn:
    """End as an interpreter does, but for what it frees: that takes longer than many commands."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _use(model: str, server: str) -> None:
    """Answer a question, so that what is made at its first use is there, too."""
    from xmlcall.cli import main

    if code := main(["run", "--yes", "--model", model, "--mcp", server, "Go."]):
        sys.exit(code)


def _serve(descriptor: int, model: str, server: str) -> None:
    _load()
    _use(model, server)
    gc.collect()
    gc.freeze()  # so that the collector does not copy what processes share
    with socket.socket(fileno=descriptor) as requests:
        requests.send(b"r")
        descriptors = _take_commands(requests)
    if descriptors:
        from xmlcall.cli import main

        _become(descriptors)
        _end(main())


if __name__ == "__main__":
    _serve(int(sys.argv[1]), *sys.argv[2:])
