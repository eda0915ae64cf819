"""Replies that the caller has begun: the last message of a request is the model's own, and the answer goes on with it.

Anthropic calls it prefill: the answer is what follows, without the beginning. Where the model server continues such a message, it
is sent as it is. Others write a new message, and some templates refuse (those of models that may think). There the person's
message asks the model to begin with these words, and they are taken off its reply.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from ...errors import BackendError
from ...turn.generate import is_refused_beginning
from ...types.calls import Message
from ...types.completion import CompletionRequest
from ..formats.contract import CallOpened, ChatRequest, ResponseEnded, ResponseEvent, TextPiece

__all__ = ["begun_by_caller", "continued_or", "with_beginning", "without_beginning"]


def begun_by_caller(request: ChatRequest) -> tuple[ChatRequest, str]:
    """Take the beginning of a reply off a conversation.

    Returns:
        The request without its last message and the text of that, if it begins a reply; else the request and "".
    """
    *before, last = request.messages
    if not before or last.role != "assistant" or last.tool_calls:
        return request, ""
    return replace(request, messages=tuple(before)), last.content if last.content.strip() else ""


def with_beginning(completion: CompletionRequest, begun: str) -> CompletionRequest:
    """Return a request with the beginning of the reply as its last message."""
    return replace(completion, messages=(*completion.messages, Message(role="assistant", content=begun)))


async def continued_or(
    going_on: AsyncGenerator[ResponseEvent], otherwise: Callable[[], AsyncGenerator[ResponseEvent]]
) -> AsyncGenerator[ResponseEvent]:
    """Pass on what continues a reply, or another answer where the server refuses to continue one."""
    said = False
    try:
        async with aclosing(going_on) as events:
            async for event in events:
                said = True
                yield event
        return
    except BackendError as error:
        if said or not is_refused_beginning(error):
            raise
    async with aclosing(otherwise()) as events:
        async for event in events:
            yield event


async def without_beginning(events: AsyncGenerator[ResponseEvent], begun: str) -> AsyncGenerator[ResponseEvent]:
    """Pass an answer on without its beginning, if it begins so; white space at either end of that does not matter."""
    wanted, met, decided = begun.lstrip(), 0, False  # so many characters of the beginning came
    async with aclosing(events):
        async for event in events:
            if isinstance(event, TextPiece) and not decided:
                text = event.text if met else event.text.lstrip()
                if len(text) < len(wanted) - met and wanted.startswith(text, met):
                    met += len(text)
                    continue
                decided = True
                yield TextPiece(text=_rest(wanted[:met] + text, wanted))
                continue
            if isinstance(event, ResponseEnded) and not decided and met:  # the whole reply was shorter
                yield TextPiece(text=wanted[:met])
            decided = decided or isinstance(event, CallOpened)  # the rest of the beginning was no text
            yield event


def _rest(said: str, wanted: str) -> str:
    whole = wanted if said.startswith(wanted) else wanted.rstrip()
    return said.removeprefix(whole)
