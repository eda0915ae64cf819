"""A backend that is open already and stays so, whoever enters and leaves it; a base for those that change what comes through."""

from types import TracebackType
from typing import Self

from .base import Backend, Capabilities

__all__ = ["KeptOpen"]


class KeptOpen:
    """Everything of a backend but its `stream`, which a subclass adds.

    Args:
        backend: open.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def model(self) -> str:
        """The model's name."""
        return self._backend.model

    @property
    def capabilities(self) -> Capabilities:
        """What the backend said of itself."""
        return self._backend.capabilities

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
