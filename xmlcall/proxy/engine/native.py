"""Answers whose calls the model server reads itself, and answers without tools: events are passed on as they come.

A call that the server left in the text is sent like its own ones; one that cannot run stays the text that it was.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from ...agent.generate import Binder, Generated
from ...agent.native import generate_native
from ...backends.base import Backend
from ...binding.echo import Sources
from ...tools.catalog import Catalog
from ...types.calls import InvalidCall, ToolCall
from ...types.completion import CompletionRequest
from ...types.events import ReasoningDelta, TextDelta
from ..formats.contract import ApiError, ReasoningPiece, ResponseEnded, ResponseEvent, TextPiece
from .call_stream import Sender

__all__ = ["native_answer", "plain_answer"]


async def plain_answer(backend: Backend, completion: CompletionRequest) -> AsyncGenerator[ResponseEvent]:
    """Generate an answer without tools.

    Args:
        backend: open.
        completion: how to generate.

    Raises:
        BackendError: the model server failed.
    """
    if backend.capabilities.reasoning_open:  # the text would begin inside the thinking; the server is to part them
        completion = replace(completion, extra={"reasoning_format": "auto", **completion.extra})
    async with aclosing(generate_native(backend, completion, Binder(catalog=Catalog()))) as events:
        async for event in events:
            if isinstance(event, Generated):
                yield ResponseEnded(finish_reason=event.reply.finish_reason, usage=event.usage)
            elif piece := _piece(event):
                yield piece


async def native_answer(
    backend: Backend, completion: CompletionRequest, catalog: Catalog, sources: Sources
) -> AsyncGenerator[ResponseEvent]:
    """Generate an answer with the server's own function calling; its calls are bound like any others.

    Args:
        backend: open.
        completion: how to generate.
        catalog: what is offered.
        sources: texts by others, from which a call must not be copied.

    Raises:
        ApiError: a call that the server read cannot run; nothing corrects it here.
        BackendError: the model server failed.
    """
    sender = Sender(catalog, stream_arguments=False)
    completion = replace(completion, tools=tuple(catalog))
    binder = Binder(catalog=catalog, sources=sources)
    async with aclosing(generate_native(backend, completion, binder, keep_ids=True)) as events:
        async for event in events:
            if not isinstance(event, Generated):
                if piece := _piece(event):
                    yield piece
                continue
            for call in event.reply.calls:
                for piece in _sent(call, sender):
                    yield piece
            reason = event.reply.finish_reason
            yield ResponseEnded(finish_reason="tool_calls" if sender.sent and reason == "stop" else reason, usage=event.usage)


def _sent(call: ToolCall | InvalidCall, sender: Sender) -> Iterable[ResponseEvent]:
    if isinstance(call, InvalidCall) and call.raw.dialect != "native":
        return [TextPiece(text=call.raw.text)]
    return sender.end(_valid(call), is_retry=False)


def _valid(call: ToolCall | InvalidCall) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    issues = " ".join(issue.message for issue in call.issues)
    message = f"the model's call of {call.name!r} cannot run: {issues} --mode xml lets a model correct its calls"
    raise ApiError(message, status=502, kind="server_error", code="invalid_tool_call")


def _piece(event: Any) -> ResponseEvent | None:
    match event:
        case TextDelta(text=text):
            return TextPiece(text=text)
        case ReasoningDelta(text=text):
            return ReasoningPiece(text=text)
    return None
