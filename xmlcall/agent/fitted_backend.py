"""Shortens each prompt until it fits into the model's context.

A prompt is found to be too long in two ways. If the server reports the size of its context and the prompt is estimated to be
longer, the prompt is cut before it is sent. If the server refuses the prompt before any output, the prompt is cut according to
the figures in the refusal and sent again. This is repeated a few times, because each refusal corrects the estimate. Replies
report the true length of the prompt, which also corrects the estimate, unless the estimate has to follow from the request alone
(`RequestScale`).

Room for the reply is kept free, because a server ends a reply that reaches the end of the context.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from ..backends.base import Around, Backend, KeptOpen, Tries, tries_of
from ..errors import BackendError, ContextOverflow
from ..prompting.fit_context import Fitted, estimate, estimate_tools, fit
from ..prompting.system import RequestScale, Scale
from ..types.calls import Message
from ..types.completion import Chunk, CompletionRequest

REFUSALS: Final = 3  # refusals that are answered with a shorter prompt
REPLY_TOKENS: Final = 2048  # room for the reply, if the request does not say
NEAR: Final = 0.5  # share of the room: if the estimate exceeds it, the rate is measured
PROBE_TOKENS: Final = 16  # a request for fewer only probes a prompt that is sent again, which has to be cut at the same places


class FittedBackend(Around, KeptOpen):
    """A backend that shortens prompts until they fit; notes in `lang` replace what was cut.

    `measure` measures the rate of the scale, before a prompt is sent that nearly fills the context.
    """

    def __init__(
        self,
        backend: Backend,
        scale: Scale | RequestScale,
        *,
        lang: str = "en",
        on_cut: Callable[[Fitted], None] = lambda _: None,
        on_sent: Callable[[Sequence[Message]], None] = lambda _: None,
        on_text: Callable[[str], None] | None = None,
        measure: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(backend)
        self._scale, self._lang, self._measure = scale, lang, measure
        self.on_cut, self.on_sent, self.on_text = on_cut, on_sent, on_text
        self.more = ""  # name of the tool that reads the rest of a result that was cut; "" for none

    @property
    def context_length(self) -> int | None:
        """Tokens that prompt and reply share; None if unknown."""
        return self._scale.context_length or self.capabilities.context_length

    def tries(self, request: CompletionRequest) -> Tries:
        """Return the attempts to make a request; they fail with a `ContextOverflow` if it cannot be cut enough."""
        return _Fitting(self, self._backend, request)

    def hear(self, chunk: Chunk, size: float) -> None:
        """Process a piece of a reply to a prompt of this size."""
        if chunk.usage and chunk.usage.prompt_tokens:
            self._scale.learn(chunk.usage.prompt_tokens, size)
        if self.on_text is not None and chunk.text:
            self.on_text(chunk.text)

    async def first_cut(self, request: CompletionRequest) -> tuple[Fitted, CompletionRequest]:
        """Cut a request by the current estimate; measure the rate first if the prompt nearly fills the context."""
        length = self.context_length
        if self._measure is not None and length is not None and _size(request) > NEAR * (length - self._room(request, length)):
            await self._measure()
        return self._cut(request)

    async def shorter(
        self, request: CompletionRequest, refused: CompletionRequest, error: ContextOverflow
    ) -> tuple[Fitted, CompletionRequest, bool]:
        """Cut a request after a refusal; also return whether the refusal's own figures led to the new cut."""
        size, length = _size(refused), error.context_length or self.context_length
        if self._scale.refused(size, error.prompt_tokens, length):
            fitted, sent = await self.first_cut(request)
            if sent != refused:
                return fitted, sent, True
            self._scale.refused(size, error.prompt_tokens, length)
        return *self._cut(request, is_refused=True), False

    def _room(self, request: CompletionRequest, length: int) -> int:
        wanted = request.max_tokens or REPLY_TOKENS
        return min(REPLY_TOKENS if wanted < PROBE_TOKENS else wanted, length // 4)

    def _cut(self, request: CompletionRequest, *, is_refused: bool = False) -> tuple[Fitted, CompletionRequest]:
        """Cut a request until it fits; after a refusal lower `max_tokens`, because vLLM also refuses if not all would fit."""
        length = self.context_length
        if length is None:
            return Fitted(messages=request.messages), request
        room = self._room(request, length)
        (least, most), tools = self._scale.bounds, estimate_tools(request.tools)
        fitted = Fitted(messages=request.messages)
        if (estimate(request.messages) + tools) * least > length - room:
            fitted = fit(request.messages, (length - room) / most - tools, lang=self._lang, more=self.more)
        max_tokens = min(request.max_tokens, room) if is_refused and request.max_tokens else request.max_tokens
        return fitted, replace(request, messages=fitted.messages, max_tokens=max_tokens)

    def refusal(self, sent: CompletionRequest, error: ContextOverflow) -> ContextOverflow:
        """Make the error for a request that cannot be cut any further."""
        system = estimate(message for message in sent.messages if message.role == "system") + estimate_tools(sent.tools)
        said = estimate(message for message in sent.messages if message.role != "system")
        needed = error.prompt_tokens or round((system + said) * self._scale.bounds[0])
        share = round(needed * system / (system + said))
        length = self._scale.context_length  # it was set by the refusal
        tools = 'offer fewer tools ("includeTools" in the configuration of their servers)'
        what = f"shorten the system prompt, {tools}" if system > said else "shorten the message"
        message = (
            f"the prompt is too long for the model, also without older messages: it needs about {needed:,} tokens, {share:,} of "
            f"them for the system prompt with the tools; the context holds {length:,}, a part of "
            f"which is for the reply: {what}, or {error.advice}"
        )
        return error.said_as(message, context_length=length)


class _Fitting(Tries):
    def __init__(self, model: FittedBackend, backend: Backend, request: CompletionRequest) -> None:
        super().__init__(backend, request)
        self._model, self._tries = model, Tries(model, request)
        self._fitted = Fitted(messages=request.messages)
        self._sent: CompletionRequest | None = None
        self._size = 0.0
        self._left, self._may_be_free, self._has_begun = REFUSALS, True, False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncGenerator[Chunk]]:
        """Send the request, cut if necessary."""
        if self._sent is None:
            self._send(*await self._model.first_cut(self._request))
        async with self._tries.opened() as chunks:
            self.listeners = (*self._tries.listeners, self._hear)
            yield chunks

    def _send(self, fitted: Fitted, sent: CompletionRequest) -> None:
        self._fitted, self._sent, self._size, self._has_begun = fitted, sent, _size(sent), False
        self._model.on_sent(sent.messages)
        self._tries = tries_of(self._backend, sent)

    def _hear(self, chunk: Chunk) -> None:
        if not self._has_begun:
            self._has_begun = True
            if self._fitted.cuts or self._fitted.left_out:
                self._model.on_cut(self._fitted)
        self._model.hear(chunk, self._size)

    def ended(self) -> None:
        """Note that the reply was read to its end."""
        self._tries.ended()

    async def again(self, error: BackendError, *, begun: bool) -> BackendError | None:
        """Cut the request further if it was too long."""
        failed = await self._tries.again(error, begun=begun)
        refused = self._sent
        if not isinstance(failed, ContextOverflow) or self._has_begun or refused is None:
            return failed
        fitted, sent, is_free = await self._model.shorter(self._request, refused, failed)
        self._left -= not (is_free and self._may_be_free)
        self._may_be_free = self._may_be_free and not is_free
        if self._left < 0 or sent == refused:
            refusal = self._model.refusal(refused, failed)
            refusal.__cause__ = failed
            return refusal
        self._send(fitted, sent)
        return None


def _size(request: CompletionRequest) -> float:
    return estimate(request.messages) + estimate_tools(request.tools)
