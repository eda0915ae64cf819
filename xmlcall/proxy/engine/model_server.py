"""The model server: how many tokens a prompt has there, and requests that fit into its context.

Cuts depend on the request alone, so all replicas of the proxy in front of one model server cut a conversation at the same places,
whatever they answered before (`prompting.tokens`). To make this possible, each replica asks the server once how many tokens it
counts in a fixed text. It asks when a prompt first comes near the context limit, so short conversations cost no extra request.

The log reports each cut, and each other correction of a request, once. Others cannot inject control characters or long texts.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ...agent.fitted_backend import FittedBackend
from ...backends.base import Around, Backend, KeptOpen, Tries, tries_of
from ...backends.retrying import Retrying
from ...errors import BackendError, BackendStatusError, ContextOverflow
from ...prompting.fit_context import Fitted, estimate
from ...prompting.system import CommonScale, RequestScale, Scale, tokens_of
from ...types.calls import Message
from ...types.completion import CompletionRequest
from ...wire.openai import count, message_dict, read_json

if TYPE_CHECKING:
    from ..observed.observer import Observing

log = logging.getLogger("xmlcall.proxy")

# -- its tokens ---------------------------------------------------------------------------------------

BYTES_A_TOKEN: Final = 4  # of English text, for an estimate
TOKENS_A_MESSAGE: Final = 4

# A mix of the kinds of text in conversations. It must be the same in all replicas, because the cuts of prompts depend on it.
REFERENCE: Final = Path(__file__).with_name("reference.txt").read_text(encoding="utf-8")


async def count_tokens(backend: Retrying, messages: Sequence[Message]) -> int:
    """Count the tokens of a prompt; estimate them if the model server does not count."""
    if counted := await _counted(backend, messages):
        return counted
    return sum(TOKENS_A_MESSAGE + len(message.content.encode("utf-8", "replace")) // BYTES_A_TOKEN for message in messages)


async def _counted(backend: Retrying, messages: Sequence[Message]) -> int | None:
    """Return the server's count of a prompt's tokens; None where it does not count (only llama.cpp is asked)."""
    if backend.capabilities.server != "llama.cpp":
        return None
    body = json.dumps({"messages": [message_dict(message) for message in messages]}).encode()
    async with backend.relay("POST", "/chat/completions/input_tokens", body) as relayed:
        answer = b"".join([chunk async for chunk in relayed.chunks])
    return count(read_json(answer.decode("utf-8", "replace")).get("input_tokens")) if relayed.status == 200 else None


async def _measured_rate(backend: Retrying) -> float | None:
    """Measure how many tokens the server counts, or uses for a prompt, per estimated token of a fixed text, plus a margin."""
    request = CompletionRequest(messages=(Message(role="user", content=REFERENCE),), max_tokens=1, temperature=0.0)
    counted = await _counted(backend, request.messages)
    if not counted:
        async with aclosing(backend.stream(request)) as chunks:
            async for chunk in chunks:
                counted = chunk.usage.prompt_tokens if chunk.usage and chunk.usage.prompt_tokens else counted
    scale = Scale()
    if counted:
        scale.learn(counted, estimate(request.messages))
    return scale.rate


# -- what is logged once --------------------------------------------------------------------------------------------------

NOTES_LIMIT: Final = 100  # notes about corrections that are logged
_SHOWN: Final = " :;,.\"'_-()$[]{}/#"  # characters that are logged as they are, besides letters and digits


class SaidOnce:
    """Logs each note and each cut once, for the operator of the proxy."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._cuts: deque[tuple[int, int, int]] = deque(maxlen=NOTES_LIMIT)

    def note(self, note: str) -> None:
        """Log a correction of a request, the first time it occurs."""
        if note not in self._said and len(self._said) < NOTES_LIMIT:
            self._said.add(note)
            log.info("%s", quote(note, safe=_SHOWN, errors="replace"))

    def cut(self, fitted: Fitted) -> None:
        """Log that a prompt was cut, once for each cut; no names are logged, because others choose them."""
        counts = len(fitted.cuts), sum(cut.left_out for cut in fitted.cuts), fitted.left_out
        if counts not in self._cuts:
            self._cuts.append(counts)
            what = "to fit the model's context: %d results lack %d characters, %d of the oldest messages are left out"
            log.info(what, *counts)


# -- requests that fit ----------------------------------------------------------------------------------------------------


class Fitting:
    """Makes a backend for each request; the notes that replace what was cut are in language `lang`."""

    def __init__(self, backend: Retrying, *, lang: str, said: SaidOnce) -> None:
        self._backend = backend
        self._facts = CommonScale()
        self._measuring = asyncio.Lock()
        self._is_measured = False
        self._fitted = partial(FittedBackend, lang=lang, on_cut=said.cut, measure=self._measure)

    def backend_for(self, heard: "Observing | None") -> Backend:
        """Return the backend for one request; `heard` observes what goes out and what comes back."""
        facts = self._facts
        if facts.context_length is None:
            facts.context_length = self._backend.capabilities.context_length
        fitted = partial(self._fitted, scale=RequestScale(facts))
        return fitted(self._backend) if heard is None else heard.backend(self._backend, fitted)

    async def _measure(self) -> None:
        """Measure the rate once; if the server fails, try again with the next long prompt."""
        async with self._measuring:
            if self._is_measured:
                return
            try:
                self._facts.rate = await _measured_rate(self._backend)
            except BackendError as error:  # the request itself will report the error
                if not isinstance(error, BackendStatusError) or error.status_code >= 500:
                    return
            self._is_measured = True

    def with_tools_told(self, error: ContextOverflow, system: str, count: int) -> ContextOverflow:
        """Add to an error how much of the context the tools take; an agent's tools often take more than half."""
        tokens = round(tokens_of(system) * RequestScale(self._facts).bounds[0])
        message = f"{error} (the {count} tools take about {tokens:,} tokens: fewer tools, or a larger context)"
        return error.said_as(message)


class WithWholeMessages(Around, KeptOpen):
    """A backend that sends the caller's messages unchanged, in the server's own format, followed by the added messages."""

    def __init__(self, backend: Backend, count: int, write: Callable[[Message], dict[str, Any]]) -> None:
        super().__init__(backend)
        self._count, self._write = count, write

    def tries(self, request: CompletionRequest) -> Tries:
        whole, added = request.extra.get("messages"), request.messages[self._count :]
        if isinstance(whole, list) and added:
            request = replace(request, extra={**request.extra, "messages": [*whole, *map(self._write, added)]})
        return tries_of(self._backend, request)
