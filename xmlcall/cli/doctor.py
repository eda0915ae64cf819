"""`xmlcall doctor`: why does it not call? One command that tests a model server with a few short requests, and says what to do.

The same question is asked three times: without tools, with the server's own function calling, and with the tools in our prompt.
It is the question with which `serve` in mode `auto` tests a server. Each request gets its share of the time that is left, so the
command ends within its limit, whatever a server does; what was not answered in time is reported as such.
"""

import argparse
import asyncio
import base64
import json
import os
import re
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

from ..backends.base import Around, Backend, KeptOpen, Relaying, Tries, chunks_of, tries_of
from ..backends.server_facts import Looking, ServerFacts, fingerprinted, recognized
from ..errors import BackendError, BackendStatusError, BackendUnavailable, UsageError
from ..types.completion import UNCUT, CompletionRequest
from .doctor_findings import LEAST_WRITTEN, Barrier, Findings, Pace, Plain, Trial, read_call, speed
from .doctor_report import lines_of, report_of
from .exits import FAILED, OK, run_async
from .open_model import connected, profile_of, profile_words
from .options import add_profile_option, number
from .plain import json_text
from .words import speaker

if TYPE_CHECKING:
    from ..profiles.profile import FoundProfile
    from ..turn.asking import Asking
    from ..turn.generate import Generated
    from .waiting import SlowStatus

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

DESCRIPTION = "Test why a model server does not call tools, and say what to do about it."
EPILOG = """examples:
  xmlcall doctor http://127.0.0.1:8080/v1
  xmlcall doctor ollama:gemma3:4b
  xmlcall doctor path/to.gguf
  xmlcall doctor http://127.0.0.1:5000/v1 --api-key-from TABBY_KEY --json

It asks one short question three times: without tools, with the server's own function calling, and with the tools in xmlcall's
prompt. The report has no keys, user names or home folders in it, so it can be pasted into an issue. Exit codes: 0 the server's
own function calling works, 1 it does not or the server cannot be reached (the report says what to do), 2 wrong usage, 130
interrupted.
"""

PLAIN_TOKENS: Final = 16
LONG_TOKENS: Final = 1024  # for a reply that was cut in its reasoning
LIKELIEST: Final = 5
LEAST_READ: Final = 50  # tokens of a prompt below which its speed is not measured
ANSWER_BYTES: Final = 100_000
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
"""Where servers listen if they are not told otherwise."""

_BARRIERS: Final[dict[int, Barrier]] = {401: "key", 403: "key", 404: "no model", 429: "loading", 503: "loading"}
_URL: Final = re.compile(r"https?://", re.IGNORECASE)
T = TypeVar("T")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "model", metavar="URL|MODEL", nargs="?", default="local", help="as for `xmlcall run --model` (default: local)"
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
        help="time for all requests together, without that for a download or for loading a local file (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as a JSON object")


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
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
    """Return what must not be in the report, whatever a server answers."""
    user = model.partition("://")[2].partition("/")[0].rpartition("@")[0] if _URL.match(model) else ""
    found = [key, os.environ.get("OPENAI_API_KEY"), os.environ.get("OLLAMA_API_KEY"), *_forms_of(user)]
    return [secret for secret in found if secret and len(secret) >= 4]  # a shorter one occurs by chance


def _forms_of(user: str) -> Iterator[str]:
    """Yield the secret of an address, and what a server may repeat of it: the password, or a token in place of both."""
    for text in {user, unquote(user)} - {""}:
        yield text.partition(":")[2] if ":" in text else text
        yield base64.b64encode(text.encode()).decode()


# -- the server --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Clock:
    """The time that is left."""

    end: float

    @property
    def left(self) -> float:
        return max(self.end - time.monotonic(), 0.0)

    async def share(self, work: Coroutine[Any, Any, T], of: int) -> T:
        """Do work within its share of the time that is left for `of` pieces of work."""
        async with asyncio.timeout(self.left / of):
            return await work


async def _findings(options: argparse.Namespace, key: str | None) -> Findings:
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
        return await _tested(options, backend, found, status)


def _barrier(error: BackendError) -> Barrier:
    """Return why a server could not be tested."""
    if isinstance(error, BackendStatusError):
        return _BARRIERS.get(error.status_code, "other")
    return "no connection" if isinstance(error, BackendUnavailable) else "no model"  # no such API is there


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
    """Return the usual addresses of servers on this machine where something listens, if the one that was given is on it."""
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


# -- the tests ---------------------------------------------------------------------------------------------------------


async def _tested(options: argparse.Namespace, backend: Backend, found: Findings, status: "SlowStatus") -> Findings:
    clock, watched = _Clock(time.monotonic() + options.timeout), _Watched(backend)
    status.start("asking the server what it is")
    facts = await recognized(backend, backend.model) if isinstance(backend, Looking) else ServerFacts()
    profile = profile_of(options, backend.capabilities.fingerprints)
    asking = _asking(profile)
    found = replace(
        found,
        model=backend.model,
        known=backend.capabilities,
        facts=facts,
        profile=profile_words(asking, profile) if profile else "",
    )
    status.start("asking a question without tools")
    found = replace(found, plain=await _plain(clock, watched))
    if facts.kind == "mlx-lm" and isinstance(backend, Relaying):
        found = replace(found, facts=await _with_version(clock, backend, backend.model, facts))
    status.start("asking it with the server's own function calling")
    found = replace(found, native=await _trial(clock, 2, watched, lambda tokens: _natively(watched, tokens)))
    status.start("asking it with the tools in our prompt")
    found = replace(
        found,
        prompt=await _trial(clock, 1, watched, lambda tokens: _prompted(watched, replace(asking, max_tokens=tokens))),
    )
    return replace(found, prompt_speed=watched.prompt_speed, reply_speed=watched.reply_speed)


def _asking(profile: "FoundProfile | None") -> "Asking":
    """Return how the model is asked in our prompt: by its profile, but with no threshold that would have to be measured first."""
    from ..turn.asking import Asking

    usual = Asking(temperature=0.0)
    if profile is None or profile.profile is None or profile.profile.way != "xml":
        return usual
    kept = profile.profile
    threshold = None if isinstance(kept.call_threshold, str) else kept.call_threshold
    return replace(usual, dialect=kept.dialect, family=kept.family, call_threshold=threshold)


async def _plain(clock: _Clock, watched: "_Watched") -> Plain:
    """Ask without tools; without probabilities if the server refuses to report them."""
    try:
        try:
            await clock.share(_read(watched, LIKELIEST), 3)
        except BackendStatusError as error:
            if not 400 <= error.status_code < 500:
                raise
            await clock.share(_read(watched, 0), 3)
            return replace(watched.last.plain(), logprobs=False)
        return watched.last.plain()
    except TimeoutError:
        return replace(watched.last.plain(), is_late=True)
    except BackendError as error:
        return Plain(error=_words_of(error), streaming="no" if "expected a stream" in str(error) else "unknown")


async def _read(watched: "_Watched", likeliest: int) -> None:
    from ..turn.way import TRIAL_QUESTION

    request = CompletionRequest(messages=(TRIAL_QUESTION,), max_tokens=PLAIN_TOKENS, temperature=0.0, top_logprobs=likeliest)
    async with aclosing(chunks_of(watched.tries(request))) as chunks:
        async for _ in chunks:
            pass


async def _with_version(clock: _Clock, backend: Relaying, model: str, facts: ServerFacts) -> ServerFacts:
    """Ask mlx-lm for one token, because it reports its version nowhere else."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    try:
        answer = json.loads(await clock.share(_relayed(backend, json.dumps(body).encode()), 3))
    except (BackendError, TimeoutError, ValueError, RecursionError):
        return facts
    return fingerprinted(facts, answer.get("system_fingerprint")) if isinstance(answer, dict) else facts


async def _relayed(backend: Relaying, content: bytes) -> bytes:
    received = bytearray()
    async with backend.relay("POST", "/chat/completions", content) as relayed:
        async for piece in relayed.chunks:
            received += piece
            if len(received) > ANSWER_BYTES:
                break
    return bytes(received)


async def _trial(clock: _Clock, of: int, watched: "_Watched", ask: Callable[[int], Coroutine[Any, Any, Trial]]) -> Trial | None:
    """Ask with a tool; once more, with more tokens, if the reply was cut in its reasoning."""
    from ..turn.way import TRIAL_TOKENS

    if not clock.left:
        return None
    trial = await _tried(watched, clock.share(ask(TRIAL_TOKENS), of))
    if trial.outcome == "thinking" and clock.left:
        longer = await _tried(watched, clock.share(ask(LONG_TOKENS), of))
        return trial if longer.is_late else longer
    return trial


async def _tried(watched: "_Watched", asked: Coroutine[Any, Any, Trial]) -> Trial:
    try:
        return await asked
    except TimeoutError:
        return Trial(is_late=True, text=watched.last.text)
    except BackendStatusError as error:
        return Trial(error=_words_of(error), status=error.status_code)
    except BackendError as error:
        return Trial(error=_words_of(error))


def _words_of(error: BackendError) -> str:
    """Return the server's own words, or ours about it."""
    return error.body if isinstance(error, BackendStatusError) and error.body else str(error)


async def _natively(watched: "_Watched", tokens: int) -> Trial:
    from ..agent.drive import result_of
    from ..tools.catalog import Catalog
    from ..turn.generate import Binder
    from ..turn.machine import Machine
    from ..turn.native import NativeOptions, generate_native
    from ..turn.way import TRIAL_QUESTION, TRIAL_TOOL

    request = CompletionRequest(messages=(TRIAL_QUESTION,), tools=(TRIAL_TOOL,), max_tokens=tokens, temperature=0.0)
    script = generate_native(request, Binder(catalog=Catalog([TRIAL_TOOL])), NativeOptions(server=watched.capabilities))
    return _trial_of(await result_of(Machine(script), watched))


async def _prompted(watched: "_Watched", asking: "Asking") -> Trial:
    """Take a turn up to the end of its first reply, as `serve` does in mode `xml`."""
    from ..agent.drive import drive
    from ..turn.attempts import RepairPolicy
    from ..turn.events import ReplyEnded
    from ..turn.opening import begin_turn
    from ..turn.way import TRIAL_QUESTION, TRIAL_TOOL

    limits = RepairPolicy(max_replies=1)
    turn = begin_turn([TRIAL_QUESTION], [TRIAL_TOOL], asking=asking, server=watched.capabilities, repair=limits)
    async with aclosing(drive(turn, watched)) as events:
        async for event in events:
            if isinstance(event, ReplyEnded):
                break
    return _trial_of(turn.generated) if turn.generated else Trial()


def _trial_of(generated: "Generated") -> Trial:
    from ..turn.way import TRIAL_ARGUMENTS

    reply = generated.reply
    return Trial(
        text=generated.raw,
        reasoning=reply.reasoning,
        calls=tuple(read_call(call, TRIAL_ARGUMENTS) for call in reply.calls),
        is_cut=reply.finish_reason not in UNCUT,
        prompt_tokens=generated.usage.prompt_tokens,
    )


# -- how fast ----------------------------------------------------------------------------------------------------------


class _Watched(Around, KeptOpen):
    """A backend whose replies are timed."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._paces: list[Pace] = []

    def tries(self, request: CompletionRequest) -> Tries:
        """Return the attempts to make a request."""
        tries, pace = tries_of(self._backend, request), Pace(time.monotonic)
        tries.listeners = (*tries.listeners, pace.hear)
        self._paces.append(pace)
        return tries

    @property
    def last(self) -> Pace:
        """The pace of the last reply; of none if none was asked for."""
        return self._paces[-1] if self._paces else Pace(time.monotonic)

    @property
    def prompt_speed(self) -> float | None:
        """Tokens a second that the server reads, by its longest prompt."""
        return speed(max((pace.read for pace in self._paces), default=(0, 0.0)), LEAST_READ)

    @property
    def reply_speed(self) -> float | None:
        """Tokens a second that the server writes, by its longest reply."""
        return speed(max((pace.written for pace in self._paces), default=(0, 0.0)), LEAST_WRITTEN)
