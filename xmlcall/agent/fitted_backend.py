"""A backend that is sent what fits into its model's context, whatever it is asked.

What is too long is known in two ways. The server says what its context holds, and the prompt is estimated to be longer: then it
is cut before it is sent. Or the server refuses it, before anything of the reply has come: then it is cut by the figures of the
refusal and sent again, a few times, since the estimate is corrected each time. Replies tell the prompt's true length, which
corrects the estimate, too, unless it has to follow from the request alone (`RequestScale`).

Room for the reply is kept free, because servers let a reply run into the context's end and end it there.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from ..backends.base import Around, Backend, KeptOpen, Tries, tries_of
from ..errors import BackendError, ContextOverflow
from ..prompting.fit_context import Fitted, estimate, estimate_tools, fit
from ..prompting.tokens import RequestScale, Scale
from ..types.calls import Message
from ..types.completion import Chunk, CompletionRequest

__all__ = ["FittedBackend"]

REFUSALS: Final = 3  # after which a shorter prompt is sent
REPLY_TOKENS: Final = 2048  # for which there is to be room, if the request does not say
NEAR: Final = 0.5  # of the room, by the estimate: from there on the rate is measured
PROBE_TOKENS: Final = 16  # requests for fewer ask about a prompt that is sent again: it has to be cut at the same places


class FittedBackend(Around, KeptOpen):
    """A backend whose prompts fit.

    Args:
        scale: what is known of the model's tokens: shared by all that is sent to it, or that of one request.
        lang: of the notes in the places of what is missing, `en` or `zh`.
        on_text: told each piece of text that comes, before it is passed on.
        measure: measures the rate of the scale; called before a prompt is sent that comes near what the context holds.

    Attributes:
        more: name of the tool that gives the rest of a result that was cut; "" for none.
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
        self._measure = measure
        self._scale, self._lang, self._on_cut, self._on_sent, self._on_text = scale, lang, on_cut, on_sent, on_text
        self.more = ""

    @property
    def context_length(self) -> int | None:
        """Tokens that prompt and reply share; None if that is not known."""
        return self._scale.context_length or self.capabilities.context_length

    def tries(self, request: CompletionRequest) -> Tries:
        """Return how a request is made.

        Raises:
            ContextOverflow: what has to be sent is too long; the message says what takes the room.
        """
        return _Fitting(self, request)

    def send(self, request: CompletionRequest) -> Tries:
        """Return how a request that fits is made."""
        self._on_sent(request.messages)
        return tries_of(self._backend, request)

    def hear(self, chunk: Chunk, size: float) -> None:
        """Take a piece of a reply to a prompt of this size."""
        if chunk.usage and chunk.usage.prompt_tokens:
            self._scale.learn(chunk.usage.prompt_tokens, size)
        if self._on_text is not None and chunk.text:
            self._on_text(chunk.text)

    def tell(self, fitted: Fitted) -> None:
        """Tell what a prompt lacks of which a reply comes."""
        if fitted.cuts or fitted.left_out:
            self._on_cut(fitted)

    async def first_cut(self, request: CompletionRequest) -> tuple[Fitted, CompletionRequest]:
        """Return what fits by what is known, with the rate measured where the prompt comes near the context."""
        length = self.context_length
        if self._measure is not None and length is not None and _size(request) > NEAR * (length - self._room(request, length)):
            await self._measure()
        return self._cut(request)

    async def shorter(
        self, request: CompletionRequest, refused: CompletionRequest, error: ContextOverflow
    ) -> tuple[Fitted, CompletionRequest, bool]:
        """Return what fits by a refusal, and whether that is so because it told what the context holds."""
        size, length = _size(refused), error.context_length or self.context_length
        if self._scale.refused(size, error.prompt_tokens, length):
            fitted, sent = await self.first_cut(request)
            if sent != refused:
                return fitted, sent, True
            self._scale.refused(size, error.prompt_tokens, length)
        return *self._cut(request, is_refused=True), False

    def _room(self, request: CompletionRequest, length: int) -> int:
        """Return the tokens that are left to the reply."""
        wanted = request.max_tokens or REPLY_TOKENS
        return min(REPLY_TOKENS if wanted < PROBE_TOKENS else wanted, length // 4)

    def _cut(self, request: CompletionRequest, *, is_refused: bool = False) -> tuple[Fitted, CompletionRequest]:
        """Return what fits, and the request for it; vLLM refuses also where not all of `max_tokens` would fit."""
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
        """Make the error for what cannot be cut any further."""
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
    """A request that is cut until it fits."""

    def __init__(self, model: FittedBackend, request: CompletionRequest) -> None:
        super().__init__(model, request)
        self._model, self._tries = model, Tries(model, request)
        self._fitted = Fitted(messages=request.messages)
        self._sent: CompletionRequest | None = None
        self._size = 0.0
        self._left, self._may_be_free, self._has_begun = REFUSALS, True, False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncGenerator[Chunk]]:
        """Send what fits."""
        if self._sent is None:
            self._send(*await self._model.first_cut(self._request))
        async with self._tries.opened() as chunks:
            self.hears = (*self._tries.hears, self._hear)
            yield chunks

    def _send(self, fitted: Fitted, sent: CompletionRequest) -> None:
        self._fitted, self._sent, self._size, self._has_begun = fitted, sent, _size(sent), False
        self._tries = self._model.send(sent)

    def _hear(self, chunk: Chunk) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._model.tell(self._fitted)
        self._model.hear(chunk, self._size)

    def ended(self) -> None:
        """Note that the reply was read to its end."""
        self._tries.ended()

    async def again(self, error: BackendError, *, begun: bool) -> BackendError | None:
        """Send less, if it was too long."""
        failed = await self._tries.again(error, begun=begun)
        refused = self._sent
        if not isinstance(failed, ContextOverflow) or self._has_begun or refused is None:
            return failed
        fitted, sent, is_free = await self._model.shorter(self._request, refused, failed)
        self._left -= not (is_free and self._may_be_free)
        self._may_be_free = self._may_be_free and not is_free
        if self._left < 0 or sent == refused:
            told = self._model.refusal(refused, failed)
            told.__cause__ = failed
            return told
        self._send(fitted, sent)
        return None


def _size(request: CompletionRequest) -> float:
    return estimate(request.messages) + estimate_tools(request.tools)
