"""How large a context a local model gets, where nobody says: as large as is of use and the memory bears.

llama.cpp allocates the cache of keys and values when it loads the model, so the context cannot grow with a conversation: what it
may need has to be taken at once. A quarter of the memory that is free beside the model's weights may go into the cache; beyond
`MOST` the prompt alone takes minutes to read on a CPU, and whoever wants that can say so.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .gguf import HEADER_BYTES, cache_bytes_a_token, read_metadata, trained_length

__all__ = ["LEAST", "MOST", "available_memory", "context_for"]

LEAST: Final = 8192
"""Tokens; also where the file or the machine does not tell. Tools, a few results and a reply fit."""

MOST: Final = 32768

_SHARE: Final = 4  # one part in four of the free memory
_PIECE: Final = 256  # llama.cpp rounds a context to multiples of it
_LONGEST_PATH: Final = 64  # folders of a control group that are looked at


def context_for(path: Path) -> int:
    """Choose the context of a model, in tokens."""
    with path.open("rb") as file:
        metadata = read_metadata(file.read(HEADER_BYTES))
    cost, memory = cache_bytes_a_token(metadata), available_memory()
    affordable = LEAST
    if cost and memory:
        affordable = (memory - path.stat().st_size) // (_SHARE * cost)
    trained = trained_length(metadata)
    wanted = max(LEAST, min(affordable, MOST)) // _PIECE * _PIECE
    return min(wanted, trained) if trained else LEAST


def available_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes that this process may still take, without swapping; None where that is not known (not Linux)."""
    known = [size for size in (_free(proc / "meminfo"), *_left(proc / "self" / "cgroup", groups)) if size is not None]
    return min(known, default=None)


def _free(meminfo: Path) -> int | None:
    kilobytes = _fields(meminfo).get("MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def _left(own: Path, groups: Path) -> Iterator[int | None]:
    """Yield what each limit leaves of the control group that this process is in, and of those around it."""
    name = next((line[3:] for line in _read(own).splitlines() if line.startswith("0::")), "/").strip("/")
    folder = groups / name
    for group in [folder, *folder.parents][:_LONGEST_PATH]:
        limit, used = _read(group / "memory.max").strip(), _read(group / "memory.current").strip()
        if limit.isdecimal() and used.isdecimal():
            # The cache of files counts as used, and goes where memory is needed.
            yield max(int(limit) - int(used) + _fields(group / "memory.stat").get("inactive_file", 0), 0)
        if group == groups:
            return


def _fields(path: Path) -> dict[str, int]:
    """Read lines of a name and a number."""
    rows = (line.split() for line in _read(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
