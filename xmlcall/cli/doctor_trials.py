"""The requests of `xmlcall doctor`: the same question without tools, with the server's own function calling, and in our prompt.

It is the question with which `serve` in mode `auto` tests a server. Each request gets its share of the time that is left, so the
tests end within their limit, whatever a server does; what was not answered in time is reported as such.
"""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from ..agent.drive import drive, result_of
from ..backends.base import Around, Backend, KeptOpen, Relaying, Tries, chunks_of, tries_of
from ..backends.server_facts import Looking, ServerFacts, fingerprinted, recognized
from ..errors import BackendError, BackendStatusError
from ..profiles.profile import FoundProfile
from ..tools.catalog import Catalog
from ..turn.asking import TRIAL_ARGUMENTS, TRIAL_QUESTION, TRIAL_TOKENS, TRIAL_TOOL, Asking
from ..turn.attempts import RepairPolicy
from ..turn.events import ReplyEnded
from ..turn.generate import Binder, Generated
from ..turn.machine import Machine
from ..turn.native import NativeOptions, generate_native
from ..turn.opening import begin_turn
from ..types.completion import UNCUT, CompletionRequest
from .doctor_findings import LEAST_WRITTEN, Findings, Pace, Plain, Trial, read_call, speed
from .open_model import profile_words
from .waiting import SlowStatus

PLAIN_TOKENS: Final = 16
LONG_TOKENS: Final = 1024  # for a reply that was cut in its reasoning
LIKELIEST: Final = 5
LEAST_READ: Final = 50  # tokens of a prompt below which its speed is not measured
ANSWER_BYTES: Final = 100_000
T = TypeVar("T")


@dataclass(slots=True)
class _Clock:
    """The time that is left."""

    end: float

    @property
    def left(self) -> float:
        return max(self.end - time.monotonic(), 0.0)

    async def share(self, work: Coroutine[Any, Any, T], of: int) -> T:
        """Do work within its share of the remaining time, which is for `of` pieces of work."""
        async with asyncio.timeout(self.left / of):
            return await work


async def tested(
    backend: Backend, found: Findings, *, profile: FoundProfile | None, status: SlowStatus, seconds: float
) -> Findings:
    """Test an open backend within a number of seconds; `status` says what is being asked."""
    clock, watched = _Clock(time.monotonic() + seconds), _Watched(backend)
    status.start("asking the server what it is")
    facts = await recognized(backend, backend.model) if isinstance(backend, Looking) else ServerFacts()
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


def _asking(profile: FoundProfile | None) -> Asking:
    """Return how the model is asked in our prompt: by its profile, but without a threshold that must be measured first."""
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
    if not clock.left:
        return None
    trial = await _tried(watched, clock.share(ask(TRIAL_TOKENS), of))
    if trial.outcome == "thinking" and clock.left:
        longer = await _tried(watched, clock.share(ask(LONG_TOKENS), of))
        return trial if longer.is_late else longer
    return trial


async def _tried(watched: "_Watched", asked: Coroutine[Any, Any, Trial]) -> Trial:
    before = watched.count
    try:
        return await asked
    except TimeoutError:
        return Trial(is_late=True, text=watched.last.text if watched.count > before else "")
    except BackendStatusError as error:
        return Trial(error=_words_of(error), status=error.status_code)
    except BackendError as error:
        return Trial(error=_words_of(error))


def _words_of(error: BackendError) -> str:
    """Return the server's own words, or ours about it."""
    return error.body if isinstance(error, BackendStatusError) and error.body else str(error)


async def _natively(watched: "_Watched", tokens: int) -> Trial:
    request = CompletionRequest(messages=(TRIAL_QUESTION,), tools=(TRIAL_TOOL,), max_tokens=tokens, temperature=0.0)
    script = generate_native(request, Binder(catalog=Catalog([TRIAL_TOOL])), NativeOptions(server=watched.capabilities))
    return _trial_of(await result_of(Machine(script), watched))


async def _prompted(watched: "_Watched", asking: Asking) -> Trial:
    """Run a turn up to the end of its first reply, as `serve` does in mode `xml`."""
    limits = RepairPolicy(max_replies=1)
    turn = begin_turn([TRIAL_QUESTION], [TRIAL_TOOL], asking=asking, server=watched.capabilities, repair=limits)
    async with aclosing(drive(turn, watched)) as events:
        async for event in events:
            if isinstance(event, ReplyEnded):
                break
    return _trial_of(turn.generated) if turn.generated else Trial()


def _trial_of(generated: Generated) -> Trial:
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
    def count(self) -> int:
        """How many replies were requested."""
        return len(self._paces)

    @property
    def last(self) -> Pace:
        """The pace of the last reply; an empty one if no reply was requested."""
        return self._paces[-1] if self._paces else Pace(time.monotonic)

    @property
    def prompt_speed(self) -> float | None:
        """How many tokens the server reads in a second, measured on the longest prompt."""
        return speed(max((pace.read for pace in self._paces), default=(0, 0.0)), LEAST_READ)

    @property
    def reply_speed(self) -> float | None:
        """How many tokens the server writes in a second, measured on the longest reply."""
        return speed(max((pace.written for pace in self._paces), default=(0, 0.0)), LEAST_WRITTEN)
