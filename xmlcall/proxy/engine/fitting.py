"""The model as one request asks it: with what fits into its context, cut at places that follow from the request alone.

Replicas of the proxy that stand before one model server cut a conversation at the same places, whatever they answered before
(`prompting.tokens`). For that they ask the server once how many tokens it counts in a text that is always the same, when a prompt
first comes near the context; short conversations cost no request.

What was cut, and what else was put right in a request, the log tells once, in words of which nobody else chooses signs or sizes.
"""

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ...agent.fitted_backend import FittedBackend
from ...backends.base import Backend
from ...backends.retrying import Retrying
from ...errors import BackendError, BackendStatusError, ContextOverflow
from ...prompting.fit_context import Fitted
from ...prompting.tokens import RequestScale, ServerFacts, tokens_of
from .probe import measured_rate

if TYPE_CHECKING:
    from ..observed.observer import Hearing

__all__ = ["NOTES_LIMIT", "Fitting", "SaidOnce"]

# -- what the log tells once ----------------------------------------------------------------------------------------------

NOTES_LIMIT: Final = 100  # of what was mended that are told
_SHOWN: Final = " :;,.\"'_-()$[]{}/#"  # in the log, besides letters and digits

log = logging.getLogger("xmlcall.proxy")


class SaidOnce:
    """Tells whoever runs the proxy."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._cuts: deque[tuple[int, int, int]] = deque(maxlen=NOTES_LIMIT)

    def note(self, note: str) -> None:
        """Log what was put right in a request, the first time."""
        if note not in self._said and len(self._said) < NOTES_LIMIT:
            self._said.add(note)
            log.info("%s", quote(note, safe=_SHOWN, errors="replace"))

    def cut(self, fitted: Fitted) -> None:
        """Tell that a prompt was cut, once for each cut; without names, which others chose."""
        told = len(fitted.cuts), sum(cut.left_out for cut in fitted.cuts), fitted.left_out
        if told not in self._cuts:
            self._cuts.append(told)
            what = "to fit the model's context: %d results lack %d characters, %d of the oldest messages are left out"
            log.info(what, *told)


class Fitting:
    """Makes a backend for each request.

    Args:
        lang: of the notes in the places of what is missing, `en` or `zh`.
    """

    def __init__(self, backend: Retrying, *, lang: str, said: SaidOnce) -> None:
        self._backend = backend
        self._facts = ServerFacts()
        self._measuring = asyncio.Lock()
        self._is_measured = False
        self._fitted = partial(FittedBackend, lang=lang, on_cut=said.cut, measure=self._measure)

    def backend_for(self, heard: "Hearing | None") -> Backend:
        """Return the model as a request asks it.

        Args:
            heard: told what goes out and what comes back, if anybody wants to hear.
        """
        facts = self._facts
        if facts.context_length is None:
            facts.context_length = self._backend.capabilities.context_length
        fitted = partial(self._fitted, scale=RequestScale(facts))
        return fitted(self._backend) if heard is None else heard.backend(self._backend, fitted)

    async def _measure(self) -> None:
        """Measure the rate, once; a server that fails now is asked again with the next long prompt."""
        async with self._measuring:
            if self._is_measured:
                return
            try:
                self._facts.rate = await measured_rate(self._backend)
            except BackendError as error:  # the request itself tells what is wrong
                if not isinstance(error, BackendStatusError) or error.status_code >= 500:
                    return
            self._is_measured = True

    def with_tools_told(self, error: ContextOverflow, system: str, count: int) -> ContextOverflow:
        """Add to an error what the tools take of the context; an agent's own are often more than half."""
        tokens = round(tokens_of(system) * RequestScale(self._facts).bounds[0])
        message = f"{error} (the {count} tools take about {tokens:,} tokens: fewer tools, or a larger context)"
        return error.said_as(message)
