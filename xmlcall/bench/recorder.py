"""What is kept of a played conversation: the model's own words, its calls, and the tools that it called."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import Any

from ..backends.base import Backend, KeptOpen
from ..prompting.results import result_text
from ..tools.catalog import Catalog
from ..turn.events import CallDenied, CallFinished, CallRejected
from ..types.completion import Chunk, CompletionRequest

__all__ = ["ReplyRecorder", "kept_call", "kept_tools"]


class ReplyRecorder(KeptOpen):
    """A backend of which what the model writes is kept as it came, turn by turn; calls that the server parsed as it told them."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._replies: list[str] = []

    def begin_turn(self) -> list[str]:
        """Return the list that the replies from now on are added to."""
        self._replies = []
        return self._replies

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`)."""
        replies, text = self._replies, ""
        try:
            async with aclosing(self._backend.stream(request)) as stream:
                async for chunk in stream:
                    text += chunk.text + "".join(call.text for call in chunk.tool_calls)
                    yield chunk
        finally:
            if not request.top_logprobs:  # asking whether a tool is needed is no reply
                replies.append(text)


def kept_call(event: CallFinished | CallDenied | CallRejected, reply: int) -> dict[str, Any]:
    """Return a call as it is kept.

    Args:
        reply: the number of the reply that it came in, in its turn, from 1.

    Returns:
        A JSON object: `name`, `reply`, and `arguments` with `result` and `is_error`, `arguments` with `denied`, or `issues`.
    """
    told: dict[str, Any] = {"name": event.call.name, "reply": reply}
    match event:
        case CallFinished(call=call, result=result):
            return {**told, "arguments": call.arguments, "result": result_text(result), "is_error": result.is_error}
        case CallDenied(call=call, reason=reason):
            return {**told, "arguments": call.arguments, "denied": reason}
        case CallRejected(call=call):
            return {
                **told,
                "issues": [{"code": issue.code, "path": issue.path, "message": issue.message} for issue in call.issues],
            }


def kept_tools(catalog: Catalog, turns: Iterable[Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the tools that were called, so that it can be told which values come from their schemas."""
    called = dict.fromkeys(call["name"] for calls in turns for call in calls)
    tools = [tool for name in called if (tool := catalog.get(name))]
    return [{"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in tools]
