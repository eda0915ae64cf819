"""What a person should know of a model before the first question to it."""

from collections.abc import Iterator

from ..backends.base import Backend
from .plain import visible
from .words import Say

__all__ = ["model_notices"]


def model_notices(backend: Backend, mode: str, say: Say) -> Iterator[str]:
    """Yield what is likely to go wrong with a model, and what to do about it."""
    if backend.capabilities.chat_template is False:
        yield say("no_template", model=visible(backend.model))
    if mode == "native" and backend.capabilities.native_tools is False:
        yield say("no_native")
