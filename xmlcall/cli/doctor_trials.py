"""The requests of `xmlcall doctor`: the same question without tools, with the server's own function calling, and in our prompt.

It is the question with which `serve` in mode `auto` tests a server. Each request gets its share of the time that is left, so the
tests end within their limit, whatever a server does; what was not answered in time is reported as such.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from ..agent.drive import drive, result_of
from ..backends.base import Around, Backend, KeptOpen, Tries, chunks_of, tries_of
from ..backends.server_facts import recognized
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


@dataclass(slots=True)
class _Clock:
    end: float

    @property
    def left(self) -> float:
        return max(self.end - time.monotonic(), 0.0)

    def share(self, of: int) -> asyncio.Timeout:
        """Limit work to its share of the remaining time, which is for `of` pieces of work."""
        return asyncio.timeout(self.left / of)


async def tested(
    backend: Backend, found: Findings, *, profile: FoundProfile | None, status: SlowStatus, seconds: float
) -> Findings:
    """Test an open backend within a number of seconds; `status` says what is being asked."""
    clock, watched = _Clock(time.monotonic() + seconds), _Watched(backend)
    status.start("asking the server what it is")
    facts = await recognized(backend, backend.model)
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
    status.start("asking it with the server's own function calling")
    found = replace(found, native=await _trial(clock, 2, watched, lambda tokens: _natively(watched, tokens)))
    status.start("asking it with the tools in our prompt")
    found = replace(
        found, prompt=await _trial(clock, 1, watched, lambda tokens: _prompted(watched, replace(asking, max_tokens=tokens)))
    )
    read = max((pace.read for pace in watched.paces), default=(0, 0.0))  # of the longest prompt
    written = max((pace.written for pace in watched.paces), default=(0, 0.0))  # of the longest reply
    return replace(found, prompt_speed=speed(read, LEAST_READ), reply_speed=speed(written, LEAST_WRITTEN))


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
    has_logprobs: dict[str, Any] = {}
    try:
        try:
            async with clock.share(3):
                await _read(watched, LIKELIEST)
        except BackendStatusError as error:
            if not 400 <= error.status_code < 500:
                raise
            async with clock.share(3):
                await _read(watched, 0)
            has_logprobs = {"logprobs": False}
        return replace(watched.last.plain(), **has_logprobs)
    except TimeoutError:
        return replace(watched.last.plain(), is_late=True)
    except BackendError as error:
        return Plain(error=_words_of(error), streaming="no" if "expected a stream" in str(error) else "unknown")


async def _read(watched: "_Watched", likeliest: int) -> None:
    request = CompletionRequest(messages=(TRIAL_QUESTION,), max_tokens=PLAIN_TOKENS, temperature=0.0, top_logprobs=likeliest)
    async with aclosing(chunks_of(watched.tries(request))) as chunks:
        async for _ in chunks:
            pass


async def _trial(clock: _Clock, of: int, watched: "_Watched", ask: Callable[[int], Awaitable[Trial]]) -> Trial | None:
    """Ask with a tool; once more, with more tokens, if the reply was cut in its reasoning."""
    trial = None
    for tokens in (TRIAL_TOKENS, LONG_TOKENS):
        if not clock.left:
            return trial
        longer = await _tried(clock, of, watched, ask(tokens))
        if trial and longer.is_late:
            return trial
        trial = longer
        if trial.outcome != "thinking":
            return trial
    return trial


async def _tried(clock: _Clock, of: int, watched: "_Watched", asked: Awaitable[Trial]) -> Trial:
    before = len(watched.paces)
    try:
        async with clock.share(of):
            return await asked
    except TimeoutError:
        return Trial(is_late=True, text=watched.last.text if len(watched.paces) > before else "")
    except BackendError as error:
        return Trial(error=_words_of(error), status=error.status_code if isinstance(error, BackendStatusError) else None)


def _words_of(error: BackendError) -> str:
    return error.body if isinstance(error, BackendStatusError) and error.body else str(error)


async def _natively(watched: "_Watched", tokens: int) -> Trial:
    request = CompletionRequest(messages=(TRIAL_QUESTION,), tools=(TRIAL_TOOL,), max_tokens=tokens, temperature=0.0)
    script = generate_native(request, Binder(catalog=Catalog([TRIAL_TOOL])), NativeOptions(server=watched.capabilities))
    return _trial_of(await result_of(Machine(script), watched))


async def _prompted(watched: "_Watched", asking: Asking) -> Trial:
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
    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.paces: list[Pace] = []

    def tries(self, request: CompletionRequest) -> Tries:
        tries, pace = tries_of(self._backend, request), Pace(time.monotonic)
        tries.listeners = (*tries.listeners, pace.hear)
        self.paces.append(pace)
        return tries

    @property
    def last(self) -> Pace:
        """The pace of the last reply; an empty one if no reply was requested."""
        return self.paces[-1] if self.paces else Pace(time.monotonic)
