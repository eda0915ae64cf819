"""How a caller wants its answer generated, as a request to the model server."""

from collections.abc import Mapping
from typing import Any, Final

from ...types.calls import Message
from ...types.completion import CompletionRequest
from ..formats.contract import ChatRequest, Sampling

__all__ = ["completion_of"]

# Ollama's: with the first two it cuts a prompt that is too long, another value of the third loads the model anew.
_NOT_SENT_ON: Final = frozenset({"truncate", "shift", "num_ctx"})


def completion_of(request: ChatRequest, messages: tuple[Message, ...], *, wire: str) -> CompletionRequest:
    """Make a request to the model server.

    Args:
        request: the caller's.
        messages: as the model gets them.
        wire: the wire format of the model server, `openai` or `ollama`.
    """
    sampling = request.sampling
    return CompletionRequest(
        messages=messages,
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        seed=sampling.seed,
        stop=sampling.stop,
        extra=_extra(sampling, is_same=request.wire == wire, wire=wire),
    )


def _extra(sampling: Sampling, *, is_same: bool, wire: str) -> dict[str, Any]:
    """Return what the model server gets besides; fields of the caller's format, only where the server speaks that, too."""
    own = _sent_on(sampling.extra) if is_same else {}
    if wire != "ollama":
        return own | dict(sampling.options)
    return own | {"options": {**_sent_on(own.get("options", {})), **sampling.options}}


def _sent_on(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _NOT_SENT_ON}
