"""`xmlcall doctor`: why does it not call? One command that tests a model server with a few short requests, and says what to do.

This module reaches the server; what is asked of it is in `doctor_trials`, what the answers show in `doctor_findings`, what to do
about that, and the report, in `doctor_report`.
"""

import argparse
import asyncio
import base64
import os
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from ..errors import BackendError, BackendStatusError, BackendUnavailable, UsageError
from .doctor_findings import Barrier, Findings
from .doctor_report import lines_of, report_of
from .exits import FAILED, OK, run_async
from .open_model import connected, profile_of
from .options import add_profile_option, number
from .plain import json_text
from .words import speaker

DESCRIPTION = "Test why a model server does not call tools, and say what to do about it."
EPILOG = """examples:
  xmlcall doctor http://127.0.0.1:8080/v1
  xmlcall doctor ollama:gemma3:4b
  xmlcall doctor path/to.gguf
  xmlcall doctor http://127.0.0.1:5000/v1 --api-key-from TABBY_KEY --json

It asks one short question three times: without tools, with the server's own function calling, and with the tools in xmlcall's
prompt. The report has no keys, user names or home folders in it, so it can be pasted into an issue. Exit codes: 0 the server's
own function calling works, 1 it does not, even if xmlcall's prompt works, or the server cannot be reached (the report says what
to do), 2 wrong usage, 130 interrupted.
"""

PORT_SECONDS: Final = 0.3
PORTS: Final = {
    11434: "Ollama",
    8080: "llama.cpp or mlx-lm",
    8000: "vLLM",
    30000: "SGLang",
    1234: "LM Studio",
    5001: "KoboldCpp",
    5000: "tabbyAPI",
}
"""Where servers listen by default."""

_BARRIERS: Final[dict[int, Barrier]] = {401: "key", 403: "key", 404: "no model", 429: "loading", 503: "loading"}
_URL: Final = re.compile(r"https?://", re.IGNORECASE)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="URL|MODEL",
        nargs="?",
        default="local",
        help="the server's URL, ollama:NAME, FILE.gguf, or a name from `xmlcall models list` (default: local)",
    )
    parser.add_argument(
        "--context", type=number(int, least=1), metavar="N", help="context size in tokens, for a local file or Ollama"
    )
    add_profile_option(parser)
    parser.add_argument("--api-key-from", metavar="VARIABLE", help="the environment variable that holds the server's API key")
    parser.add_argument(
        "--timeout",
        type=number(float, above=0),
        default=120.0,
        metavar="SECONDS",
        help="limit for all requests together; downloading a model or loading a file does not count (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as a JSON object")


def execute(options: argparse.Namespace) -> int:
    return run_async(_run(options))


async def _run(options: argparse.Namespace) -> int:
    key = _key(options)
    found = await _findings(options, key)
    report = report_of(found, _secrets(options.model, key), str(Path.home()))
    if options.json:
        print(json_text(report))
    else:
        print("\n".join(lines_of(report)))
    return OK if report["works"] == "native" else FAILED


def _key(options: argparse.Namespace) -> str | None:
    if options.api_key_from is None:
        return None
    if key := os.environ.get(options.api_key_from, "").strip():
        return key
    # What was given is not repeated, because it may be the key itself.
    raise UsageError("--api-key-from: expected the name of an environment variable that holds a key, got no such name")


def _secrets(model: str, key: str | None) -> list[str]:
    """Return the texts that must not be in the report, whatever a server answers."""
    user = model.partition("://")[2].partition("/")[0].rpartition("@")[0] if _URL.match(model) else ""
    found = [key, os.environ.get("OPENAI_API_KEY"), os.environ.get("OLLAMA_API_KEY"), *_forms_of(user)]
    return [secret for secret in found if secret and len(secret) >= 4]  # a shorter one occurs by chance


def _forms_of(user: str) -> Iterator[str]:
    """Yield the secret of an address, and what a server may repeat of it: the password, or a token in place of both."""
    for text in {user, unquote(user)} - {""}:
        yield text.partition(":")[2] if ":" in text else text
        yield base64.b64encode(text.encode()).decode()


# -- the server --------------------------------------------------------------------------------------------------------


async def _findings(options: argparse.Namespace, key: str | None) -> Findings:
    from .doctor_trials import tested  # here, so that `--help` starts at once, and no import counts as time of the server
    from .waiting import OpeningStatus, SlowStatus, error_console

    say = speaker("en")
    opening = OpeningStatus(error_console(), say)
    backend = connected(options.model, options.context, opening, key)
    found = _named(options)
    async with AsyncExitStack() as stack:
        try:
            async with opening, asyncio.timeout(None if found.is_local else options.timeout):
                await stack.enter_async_context(backend)
        except TimeoutError:
            problem = f"it did not answer within {options.timeout:g} s: it may hang, or still be loading its model"
            return replace(found, barrier="no answer", problem=problem)
        except BackendError as error:
            barrier = "other" if found.is_local else _barrier(error)
            listening = await _listening(found) if barrier == "no connection" else ()
            return replace(found, barrier=barrier, problem=str(error), listening=listening)
        status = SlowStatus(error_console(), say, line=True)
        stack.callback(status.stop)
        profile = profile_of(options, backend.capabilities.fingerprints)
        return await tested(backend, found, profile=profile, status=status, seconds=options.timeout)


def _barrier(error: BackendError) -> Barrier:
    if isinstance(error, BackendStatusError):
        return _BARRIERS.get(error.status_code, "other")
    return "no connection" if isinstance(error, BackendUnavailable) else "no model"  # the server has no such API


def _named(options: argparse.Namespace) -> Findings:
    """Name the model as a command takes it, without secrets."""
    model, home = options.model.strip(), f"{Path.home()}/"
    more = {"key_variable": options.api_key_from or "", "context_option": options.context}
    if _URL.match(model):
        from httpx2 import URL

        from ..backends.http import plain_address

        url, _, name = model.partition("#")
        address = plain_address(URL(url).copy_with(query=None, fragment=None))
        user = "USER:PASSWORD@" if "@" in url.partition("://")[2].partition("/")[0] else ""
        named = address.replace("://", f"://{user}", 1) + (f"#{name}" if name else "")
        return Findings(named=named, address=address, model=name, is_first_model=not name, **more)
    if model.startswith("ollama:"):
        host = os.environ.get("OLLAMA_HOST") or "127.0.0.1:11434"
        scheme = f"{host.partition('://')[0]}://" if "://" in host else "http://"
        return Findings(named=model, address=f"{scheme}{host.rpartition('@')[2].rpartition('://')[2]}", model=model[7:], **more)
    return Findings(named=f"~/{model[len(home) :]}" if model.startswith(home) else model, is_local=True, model=model, **more)


async def _listening(found: Findings) -> tuple[tuple[str, str], ...]:
    """Return the usual server addresses of this machine at which something listens, if the given address is on this machine."""
    from urllib.parse import urlsplit

    from ..backends.http import is_loopback

    asked = urlsplit(found.address)
    if not is_loopback(asked.hostname or ""):
        return ()
    ports = [port for port in PORTS if port != asked.port]
    open_ports = await asyncio.gather(*(_listens(port) for port in ports))
    return tuple((f"http://127.0.0.1:{port}/v1", PORTS[port]) for port, is_open in zip(ports, open_ports, strict=True) if is_open)


async def _listens(port: int) -> bool:
    try:
        async with asyncio.timeout(PORT_SECONDS):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
