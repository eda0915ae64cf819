"""How much work something is, in calls: a count is the same on any machine, where seconds are not."""

from collections.abc import Callable
from cProfile import Profile

__all__ = ["count_calls"]


def count_calls(work: Callable[[], object], is_known: bool = False) -> int:
    """Count the calls, of Python and of C functions, that work takes when it is done a second time.

    The first time compiles patterns and fills caches, which may take more calls than the work itself; `is_known` work had it.
    """
    if not is_known:
        work()
    profile = Profile(subcalls=False)
    profile.enable()
    try:
        work()
    finally:
        profile.disable()
    return sum(entry.callcount for entry in profile.getstats())
