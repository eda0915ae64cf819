"""What a person should know of a model before the first question to it."""

from collections.abc import Iterator

from ..backends.base import Backend
from .plain import visible

__all__ = ["model_notices"]


def model_notices(backend: Backend, mode: str) -> Iterator[str]:
    """Yield what is likely to go wrong with a model, and what to do about it.

    Args:
        backend: open.
        mode: of `--mode`.
    """
    if backend.capabilities.chat_template is False:
        yield (
            f"{visible(backend.model)} has no chat template: it looks like a base model, which continues text instead of "
            "answering; take an instruct version (names often end in -instruct, -it or -chat)"
        )
    if mode == "native" and backend.capabilities.native_tools is False:
        yield "the server says that this model has no function calling of its own; --mode xml works with any model"
