"""Finds a running proxy of ours and its models, or starts one for as long as it is needed."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn
from urllib.parse import quote

from ..errors import UsageError, XmlcallError
from ..systems import END_SIGNALS, on_signals
from .exits import complain
from .plain import plain, visible

SERVE_PORT: Final = 8485
_SECONDS: Final = 60.0  # seconds of silence: a listed model may have to be opened first
_BYTES: Final = 4 * 1024 * 1024  # the longest answer
_STOP_SECONDS: Final = 15.0
_TICK_SECONDS: Final = 0.1
_LAST_LINES: Final = 5
_APART: Final[int] = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)  # on Windows, so that Ctrl-C is for the client alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    url: str
    models: tuple[str, ...]
    key: str

    def model(self, name: str | None) -> tuple[str, int | None]:
        """Return the name by which a client asks for a model, and its context if known; without a name, those of the first."""
        for tried in (name,) if name else ("local", *self.models[:1]):  # a proxy that takes every name takes this one
            if not tried.isprintable():
                raise UsageError(f"expected a name of a model that can be printed, got {visible(tried[:80])}")
            status, said = _get(f"{self.url}/v1/models/{quote(tried, safe='')}", self.key)
            if status == 200:
                length = said.get("context_length")
                return tried, length if isinstance(length, int) else None
        raise UsageError(f"the proxy at {self.url} has no such model: {_message(said)}")


def proxy_at(url: str, key: str) -> Running | None:
    """Return the proxy at an address, None if nothing listens there; anything else there, or another key, is a `UsageError`."""
    try:
        status, said = _get(f"{url}/v1/models", key)
    except ConnectionError:
        return None
    if status == 401:
        raise UsageError(
            f"the program at {url} requires a key: set XMLCALL_API_KEY to that of your `xmlcall serve`, or choose a --port"
        )
    rows = said.get("data")
    listed = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if status != 200 or any(row.get("owned_by") != "xmlcall" for row in listed) or (not listed and "has_more" not in said):
        raise UsageError(f"the program at {url} is not `xmlcall serve`: choose another port with --port, or stop that program")
    models = tuple(str(row.get("id")) for row in listed)
    if not models:
        raise UsageError(f"the proxy at {url} has no model that this key may use: see its settings")
    return Running(url=url, models=models, key=key)


def _get(url: str, key: str) -> tuple[int, Mapping[str, Any]]:
    """Ask for JSON; a `ConnectionError` says that nothing listens there, the status 0 that it is another program."""
    import httpx2

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = bytearray()
    try:
        with httpx2.Client(trust_env=False, timeout=_SECONDS) as client, client.stream("GET", url, headers=headers) as response:
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _BYTES:
                    return 0, {}
        said = json.loads(body)
    except httpx2.ConnectError as error:
        raise ConnectionError(str(error)) from error
    except (httpx2.HTTPError, ValueError, RecursionError):  # not HTTP, or not JSON: another program
        return 0, {}
    return response.status_code, said if isinstance(said, dict) else {}


def _message(said: Mapping[str, Any]) -> str:
    error = said.get("error")
    return visible(str(error.get("message", ""))[:500]) if isinstance(error, dict) else "it does not say why"


@contextlib.contextmanager
def served(arguments: Sequence[str], log: Path, key: str) -> Iterator[Running]:
    """Start `xmlcall serve`, and stop it at the end; its output goes to a file, and until it listens also to standard error."""
    command, output = [sys.executable, "-m", "xmlcall", "serve", *arguments], log.with_suffix(".out")
    with log.open("wb") as errors, output.open("wb") as said, on_signals(END_SIGNALS, _end_by_signal):
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=errors, start_new_session=True, creationflags=_APART
        )
        try:
            url = _address(child, output, log)
            found = proxy_at(url, key) if url else None
            if found is None:
                raise XmlcallError("the proxy did not start")
            yield found
            if (code := child.poll()) is not None:
                complain(f"the proxy had ended with {code}; its last lines:")
                print(
                    plain("\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:])),
                    file=sys.stderr,
                )
        finally:
            _end(child)


def _address(child: "subprocess.Popen[bytes]", output: Path, log: Path) -> str:
    """Return the address that a proxy prints, "" if it ends before that; show its output until then."""
    shown = 0
    while True:
        has_ended = child.poll() is not None
        address, end, _ = output.read_text(encoding="utf-8").partition("\n")
        said = log.read_bytes()
        print(plain(said[shown:].decode(errors="replace")), end="", file=sys.stderr, flush=True)
        shown = len(said)
        if end or has_ended:
            return address.strip()
        time.sleep(_TICK_SECONDS)


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _end_by_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Exit, so that the proxy is stopped, too."""
    raise SystemExit(128 + number)
