"""Server processes of the tests: started on loopback, reachable when the block begins, gone when it ends."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from xmlcall.hosts.server import HttpServer, ServerConfig, StdioServer

from .node import node_server
from .run_server import free_port

__all__ = ["DEMO", "ProcessFiles", "demo_server", "everything_http", "everything_server", "is_alive", "printed_url", "until"]

DEMO = StdioServer(name="demo", command=sys.executable, args=("-m", "xmlcall.hosts.demo_server"))
START_SECONDS = 20.0


@contextlib.contextmanager
def process(argv: Sequence[str], **env: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a server; it is killed at the end."""
    with subprocess.Popen(argv, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


@contextlib.contextmanager
def printed_url(*arguments: str, **env: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run a Python server that prints its URL once it listens."""
    with process([sys.executable, *arguments], **env) as child:
        assert child.stdout is not None
        yield child.stdout.readline().strip(), child


@contextlib.contextmanager
def everything_http(transport: str) -> Iterator[str]:
    """Run server-everything, `streamableHttp` or `sse`."""
    port = free_port()
    with process(node_server("everything", transport), PORT=str(port)):
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            if time.monotonic() > deadline:
                raise RuntimeError("server-everything did not start")
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"


@contextlib.contextmanager
def demo_server(transport: str) -> Iterator[ServerConfig]:
    """Run the demo server on `stdio`, `http` or `sse` and yield how to reach it."""
    if transport == "stdio":
        yield DEMO
        return
    with printed_url("-m", "xmlcall.hosts.demo_server", f"--{transport}", "0") as (url, _):
        yield HttpServer(name="demo", url=url, transport="sse" if transport == "sse" else "http")


@contextlib.contextmanager
def everything_server(transport: str) -> Iterator[ServerConfig]:
    """Run server-everything on `stdio`, `http` or `sse` and yield how to reach it."""
    if transport == "stdio":
        command, *args = node_server("everything", "stdio")
        yield StdioServer(name="everything", command=command, args=tuple(args))
        return
    with everything_http("sse" if transport == "sse" else "streamableHttp") as url:
        yield HttpServer(name="everything", url=url, transport="sse" if transport == "sse" else "http")


class ProcessFiles:
    """The two files by which `hostile.py` lets a test look in."""

    def __init__(self, directory: Path) -> None:
        self._pids, self._record = directory / "pids", directory / "record"

    @property
    def env(self) -> dict[str, str]:
        """For the server's environment."""
        return {"PIDS": str(self._pids), "RECORD": str(self._record)}

    def pids(self) -> list[int]:
        """Every process that was started."""
        return [int(line) for line in self._pids.read_text().split()] if self._pids.exists() else []

    def received(self) -> str:
        """Every message that came in, a line each."""
        return self._record.read_text() if self._record.exists() else ""


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something has happened in another process."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and waits for its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
