"""What a model would write next: one token, with the probabilities of those that could stand in its place.

Greedy, and without what a caller asked for besides (a stop string, a schema): the question is the model's own opinion.
"""

from dataclasses import replace
from typing import Final

from ..types.capabilities import Capabilities
from ..types.completion import CompletionRequest
from .machine import FirstToken, Score, Script

__all__ = ["ask_first_token"]

_EXTRA: Final = frozenset({"chat_template_kwargs", "keep_alive", "reasoning_effort", "think"})  # what may shape the first token


def ask_first_token(request: CompletionRequest, server: Capabilities, *, keep: bool = False) -> Script[FirstToken]:
    """Ask a model for the first token of its reply, or for the next one of a reply that was begun for it.

    Args:
        request: the conversation.
        server: what is known of it.
        keep: as of `Score`.

    Raises:
        BackendError: from the stream.
    """
    extra = {name: value for name, value in request.extra.items() if name in _EXTRA}
    asked = replace(request, max_tokens=1, temperature=0.0, stop=(), top_logprobs=server.most_logprobs, extra=extra)
    answers: tuple[FirstToken, ...] = yield Score(requests=(asked,), keep=keep)
    return answers[0]
