"""How many threads a model gets: one for each core that this program may use and that no other program keeps busy.

The threads of llama.cpp wait for each other at each step of a model, and spin meanwhile. With more threads than free cores each
step waits for a thread that has no core, in all programs that compute.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from .gguf import control_groups, read_text


def free_threads(root: Path = Path("/")) -> int | None:
    """Count the free cores, never fewer than half of the usable ones; None leaves it to llama.cpp, which takes all cores."""
    if not hasattr(os, "sched_getaffinity"):  # Linux only
        return None
    siblings = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings")
    cores = len({read_text(each) for each in siblings}) or os.cpu_count() or 1
    usable = min(cores, len(os.sched_getaffinity(0)), *_quotas(root))
    busy = _busy(root)
    threads = max(min(usable, cores - busy), usable // 2, 1)
    return threads if threads < cores else None


def _quotas(root: Path) -> Iterator[int]:
    """Yield the CPUs that the control groups of this process may use at a time."""
    for group in control_groups(root / "proc/self/cgroup", root / "sys/fs/cgroup"):
        quota, _, period = read_text(group / "cpu.max").strip().partition(" ")
        if quota.isdecimal() and period.isdecimal():
            yield max(math.ceil(int(quota) / int(period)), 1)


def _busy(root: Path) -> int:
    """Count the cores that others keep busy, now and on average over a minute: a load that is short or over does not count."""
    average, *_, running, _ = (read_text(root / "proc/loadavg") or "0 0 0 1/1 1").split()
    return int(min(float(average), int(running.partition("/")[0]) - 1))  # without this thread
