"""`xmlcall serve` as a process, for tests that look at it from the outside."""

import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from cli_harness import SECONDS, environment
from cli_process import begin
from servers.fake_openai import Step, chunk

__all__ = ["CHAT", "ENDLESS", "TOOL", "Serving"]

CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "f"}}
ENDLESS: list[Step] = [chunk({"content": "Hello"}), 60.0]
"""A stream that begins and does not end."""


class Serving:
    """A running proxy; `with` kills it at the end if it still runs."""

    def __init__(self, *arguments: str, home: Path, env: Mapping[str, str] | None = None) -> None:
        self._errors = home / "stderr"
        command = ["serve", "--port", "0", *arguments]
        with self._errors.open("w") as errors:
            streams = (subprocess.DEVNULL, subprocess.PIPE, errors.fileno())
            self.process = begin(command, streams, home=home, env=environment(home, env))
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def __enter__(self) -> "Serving":
        assert self.url, self.errors
        assert self.get("/health").json()["status"] == "ok"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def errors(self) -> str:
        """What it wrote to standard error until now."""
        return self._errors.read_text()

    def rest(self) -> str:
        """Read standard output to its end."""
        assert self.process.stdout is not None
        return str(self.process.stdout.read())

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Ask for a path, by way of this machine's address."""
        return httpx.get(self.here + path, headers=headers, timeout=SECONDS)

    def ask(self, text: str = "Hi", headers: Mapping[str, str] | None = None, **fields: Any) -> httpx.Response:
        """Ask the model."""
        body = {"model": "any", "messages": [{"role": "user", "content": text}], **fields}
        return httpx.post(self.here + CHAT, json=body, headers=headers, timeout=SECONDS)

    @property
    def here(self) -> str:
        """The address, where it listens on all of them."""
        return str(self.url.replace("0.0.0.0", "127.0.0.1"))

    def end(self, number: signal.Signals) -> tuple[int, float]:
        """Send a signal; give the exit code and the seconds until it ended."""
        begun = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(SECONDS), time.monotonic() - begun
