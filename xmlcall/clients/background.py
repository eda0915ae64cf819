"""An event loop in a thread of its own, for clients that have none.

The thread does not keep the program alive: a program that forgets to close a client still ends.
"""

import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from .asgi import AppError

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """An event loop in a thread, from `start` to `close`; it may be started again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None
        self._stack = ExitStack()

    def start(self) -> None:
        """Begin, if it does not run."""
        with self._lock:
            if self._portal is None:
                self._portal = self._stack.enter_context(start_blocking_portal(name="xmlcall"))

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run a coroutine function there and wait for what it returns; an interrupted wait cancels it.

        Args:
            function: to run.
            arguments: of it.

        Raises:
            AppError: the loop does not run.
        """
        with self._lock:
            if self._portal is None:
                raise AppError("the transport was closed")
            future = self._portal.start_task_soon(function, *arguments)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Run a last coroutine function, then end; do nothing if it does not run.

        Args:
            last: to run.
        """
        with self._lock:
            if self._portal is None:
                return
            portal, self._portal = self._portal, None
            stack = self._stack.pop_all()
        with stack:
            portal.call(last)
