"""A real Redis for tests: a process on a port of this machine, with a folder of its own."""

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

__all__ = ["RedisServer"]

WAIT = 10.0  # seconds


class RedisServer:
    """A Redis that can be ended and started again on the same port; a test that needs it is skipped where it is not installed.

    Args:
        folder: for its files.
        password: that clients have to say; "" for none.
    """

    def __init__(self, folder: Path, password: str = "") -> None:
        self._program = shutil.which("redis-server")
        if self._program is None:
            pytest.skip("redis-server is not installed: apt-get install redis-server")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._folder, self._password = folder, password
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, and wait until it listens; what it held is gone."""
        assert self._program is not None
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        secret = ["--requirepass", self._password] if self._password else []
        command = [self._program, *options, "--dir", str(self._folder), *secret]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + WAIT
        while time.monotonic() < until:
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError("redis-server did not start")

    def end(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT)
            self._process = None
