"""How much work something is, in calls: a count is the same on any machine, where seconds are not."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["count_calls"]


def count_calls(work: Callable[[], object]) -> int:
    """Count the calls, of Python and of C functions, that work takes when it is done a second time.

    The first time compiles patterns and fills caches, which may take more calls than the work itself.
    """
    work()
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
