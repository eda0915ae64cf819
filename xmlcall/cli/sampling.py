"""A server asks for a completion (MCP 2025-11-25, sampling): the person sees and approves the request and the reply.

The model is the one of the run. It is asked without the tools and without the conversation: the server's messages are all that
it sees.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Final

from ..agent.server_sampling import completed
from ..backends.base import Backend
from ..errors import BackendError
from ..hosts.mcp.requests import SampleReply, SampleRequest
from .display import Display
from .lines import LineReader, forget_typed
from .plain import visible

__all__ = ["SamplingRequests"]

_ATTEMPTS: Final = 5
_YES: Final = frozenset({"y", "yes", "是"})
_NO: Final = frozenset({"n", "no", "否"})


class SamplingRequests:
    """Answers requests for completions."""

    def __init__(
        self, display: Display, terminal: asyncio.Lock | None, backend: Callable[[], Backend], max_tokens: int | None
    ) -> None:
        self._display, self._say = display, display.say
        self._terminal, self._backend, self._max_tokens = terminal, backend, max_tokens

    async def __call__(self, request: SampleRequest) -> SampleReply | None:
        """Ask, complete, and ask again; None where the person refuses or the model fails."""
        limit = min(request.max_tokens, self._max_tokens or request.max_tokens)
        shown = "\n".join(f"{message.role}: {message.content}" for message in request.messages)
        server = visible(request.server)
        if not await self._allowed(self._say("asks_to_complete", server=server, count=limit), shown, "complete"):
            return None
        try:
            reply = await completed(self._backend(), request, limit)
        except BackendError as error:
            self._display.notice(self._say("completion_failed", server=server, error=str(error)))
            return None
        if not await self._allowed(self._say("completed", server=server), reply.text, "send_completion"):
            return None
        return reply

    async def _allowed(self, title: str, text: str, question: str) -> bool:
        if self._terminal is None:
            return True
        async with self._terminal:
            self._display.settle()
            forget_typed()
            self._display.quote(title, text)
            lines = LineReader(sys.stdin.fileno())
            for _ in range(_ATTEMPTS):
                self._display.ask(self._say(question))
                word = await lines.line()
                if word is None or word.strip().lower() in _NO:
                    return False
                if word.strip().lower() in _YES:
                    return True
        return False
