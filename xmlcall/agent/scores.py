"""A cache of answers that depend only on the model and the request: how the model begins a reply to our own messages.

Thresholds and habits are derived from them.
"""

import asyncio
import json
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from ..backends.base import Backend, chunks_of, tries_of
from ..errors import BackendStatusError
from ..turn.machine import FirstToken, Score
from ..types.completion import CompletionRequest, Usage

KEPT: Final = 500  # answers
_REFUSED: Final = frozenset({400, 404, 405, 415, 422, 501})  # statuses that mean that the server can never answer this


class Scores:
    """A cache of the first tokens of one model's replies, for each `Score` that may be kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, FirstToken | BackendStatusError] = OrderedDict()
        self._asking = asyncio.Lock()  # conversations that begin at the same time ask the same questions

    async def ask(self, backend: Backend, score: Score) -> FirstToken:
        if not score.keep:
            return await first_token(backend, score.request)
        async with self._asking:
            return await self._known(backend, score.request)

    async def _known(self, backend: Backend, request: CompletionRequest) -> FirstToken:
        said = [(message.role, message.content) for message in request.messages]
        key = json.dumps([said, dict(request.extra)], default=str)
        if key in self._kept:
            self._kept.move_to_end(key)
            if isinstance(known := self._kept[key], BackendStatusError):
                raise known.with_traceback(None)  # else the traceback grows each time
            return known
        try:
            token = await first_token(backend, request)
            self._kept[key] = replace(token, usage=Usage())
            return token
        except BackendStatusError as error:
            if error.status_code in _REFUSED:  # others may be temporary
                self._kept[key] = error
            raise
        finally:
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)


async def first_token(backend: Backend, request: CompletionRequest) -> FirstToken:
    token = FirstToken()
    async with aclosing(chunks_of(tries_of(backend, request))) as chunks:
        async for chunk in chunks:
            token = token.after(chunk)
            if token.lacks_candidates:
                break
    return token
