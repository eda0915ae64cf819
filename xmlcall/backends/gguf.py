"""Reads the metadata at the beginning of a model's file, and chooses how large a context and how many threads the model gets.

A GGUF file begins with pairs of key and value. In files of llama.cpp's converter the description of the model comes first, and
the vocabulary after it. So the reader stops where the bytes end, and treats keys not found by then as missing. The file is
untrusted: no length in it is relied on, nothing is read beyond the given bytes, and the only arrays that are kept are short ones
of integers (some models have a number of heads for each layer).

Source: ggml, docs/gguf.md, versions 2 and 3, little-endian.
"""

import contextlib
import math
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

HEADER_BYTES: Final = 1024 * 1024
LONGEST_ARRAY: Final = 1024  # integers; no model has as many layers

Metadata = Mapping[str, int | str | tuple[int, ...]]

_INTEGERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 10: "Q", 11: "q"}
_SIZES: Final = {number: struct.calcsize(f"<{code}") for number, code in _INTEGERS.items()} | {6: 4, 7: 1, 12: 8}
_STRING: Final = 8
_ARRAY: Final = 9


class _ByteReader:
    """A position in the bytes; reading beyond their end raises `struct.error`."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def take(self, length: int) -> bytes:
        if length > len(self._data) - self._place:
            raise struct.error("the bytes end here")
        self._place += length
        return self._data[self._place - length : self._place]

    def integer(self, code: str) -> int:
        number: int = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]
        return number

    def text(self) -> str:
        return self.take(self.integer("Q")).decode("utf-8", "replace")

    def value(self, kind: int) -> int | str | tuple[int, ...] | None:
        """Read a value; None for types that are not used here."""
        if kind in _INTEGERS:
            return self.integer(_INTEGERS[kind])
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array(self.integer("I"), self.integer("Q"))
        self.take(_size_of(kind))
        return None

    def _array(self, kind: int, length: int) -> tuple[int, ...] | None:
        if kind in _INTEGERS and length <= LONGEST_ARRAY:
            return tuple(self.integer(_INTEGERS[kind]) for _ in range(length))
        if kind == _STRING:
            for _ in range(length):  # each has eight bytes at least, so the bytes end before long
                self.take(self.integer("Q"))
        else:
            self.take(_size_of(kind) * length)
        return None


def _size_of(kind: int) -> int:
    if kind not in _SIZES:  # also an array of arrays, which no model has
        raise struct.error(f"no such type: {kind}")
    return _SIZES[kind]


def read_metadata(data: bytes) -> Metadata:
    """Read integers, strings and short arrays of integers by their keys, up to the end of the bytes or an error."""
    reader, found = _ByteReader(data), dict[str, int | str | tuple[int, ...]]()
    with contextlib.suppress(struct.error):  # the end of what can be read; the pairs before it are whole
        if reader.take(4) != b"GGUF" or reader.integer("I") not in (2, 3):
            return found
        reader.integer("Q")  # tensors
        for _ in range(reader.integer("Q")):  # a pair has twelve bytes at least
            key = reader.text()
            value = reader.value(reader.integer("I"))
            if value is not None:
                found[key] = value
    return found


def trained_length(metadata: Metadata) -> int | None:
    """Return the context length that the model was trained with, in tokens; None if it is not given."""
    return _number(metadata, "context_length")


def cache_bytes_a_token(metadata: Metadata) -> int | None:
    """Return the bytes per token that llama.cpp's cache of keys and values takes; None if unknown.

    For models that keep less of a token in some layers (sliding windows), this is an overestimate.
    """
    layers, heads = _number(metadata, "block_count"), _number(metadata, "attention.head_count")
    width = _number(metadata, "embedding_length")
    kept = metadata.get(_key(metadata, "attention.head_count_kv"), heads)
    if layers is None or not isinstance(kept, int | tuple):
        return None
    default = width // heads if width and heads else None
    key_length = _number(metadata, "attention.key_length") or default
    value_length = _number(metadata, "attention.value_length") or default
    all_kept = sum(kept) if isinstance(kept, tuple) else layers * kept
    if key_length is None or value_length is None or all_kept < 1:
        return None
    return all_kept * (key_length + value_length) * 2  # in half precision


def _key(metadata: Metadata, name: str) -> str:
    return f"{metadata.get('general.architecture')}.{name}"


def _number(metadata: Metadata, name: str) -> int | None:
    value = metadata.get(_key(metadata, name))
    return value if isinstance(value, int) and value > 0 else None


# -- how large a context a model gets ----------------------------------------------------------------------------------
# llama.cpp allocates the cache of keys and values when it loads the model, so the context cannot grow with a conversation; its
# memory is taken at once. The cache may take a quarter of the memory left after loading the weights. Beyond `MOST`, reading the
# prompt alone takes minutes on a CPU; users who want that can set the length.


LEAST: Final = 8192
"""Tokens; also the default if neither file nor machine gives a limit. Tools, a few results and a reply fit."""

MOST: Final = 32768

_SHARE: Final = 4  # one part in four of the free memory
_PIECE: Final = 256  # llama.cpp rounds a context to multiples of it
_LONGEST_PATH: Final = 64  # folders of a control group that are checked


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
    """Return the bytes that this process may still allocate without swapping; None if unknown (not on Linux)."""
    known = [size for size in (_free(proc / "meminfo"), *_left(proc / "self" / "cgroup", groups)) if size is not None]
    return min(known, default=None)


def _free(meminfo: Path) -> int | None:
    kilobytes = _fields(meminfo).get("MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def _left(own: Path, groups: Path) -> Iterator[int | None]:
    """Yield the bytes left under the memory limit of this process's control group, and of each group around it."""
    for group in _control_groups(own, groups):
        limit, used = _read_text(group / "memory.max").strip(), _read_text(group / "memory.current").strip()
        if limit.isdecimal() and used.isdecimal():
            # The file cache counts as used, but is freed when memory is needed.
            yield max(int(limit) - int(used) + _fields(group / "memory.stat").get("inactive_file", 0), 0)


def _control_groups(own: Path, groups: Path) -> Iterator[Path]:
    """Yield the folder of this process's control group, and of each group around it."""
    name = next((line[3:] for line in _read_text(own).splitlines() if line.startswith("0::")), "/").strip("/")
    folder = groups / name
    for group in [folder, *folder.parents][:_LONGEST_PATH]:
        yield group
        if group == groups:
            return


def _fields(path: Path) -> dict[str, int]:
    rows = (line.split() for line in _read_text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _read_text(path: Path) -> str:
    """Return the text of a file of the kernel; nothing if there is none."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


# -- how many threads a model gets: one for each core that this program may use and that no other program keeps busy ------
# The threads of llama.cpp wait for each other at each step of a model, and spin meanwhile. With more threads than free cores each
# step waits for a thread that has no core, in all programs that compute.


def free_threads(root: Path = Path("/")) -> int | None:
    """Count the free cores, never fewer than half of the usable ones; None leaves it to llama.cpp, which takes all cores."""
    if not hasattr(os, "sched_getaffinity"):  # Linux only
        return None
    siblings = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings")
    cores = len({_read_text(each) for each in siblings}) or os.cpu_count() or 1
    usable = min(cores, len(os.sched_getaffinity(0)), *_quotas(root))
    average, *_, running, _ = (_read_text(root / "proc/loadavg") or "0 0 0 1/1 1").split()
    # Cores that are busy now and on average over a minute, so not for a load that is short or over; without this thread.
    busy = int(min(float(average), int(running.partition("/")[0]) - 1))
    threads = max(min(usable, cores - busy), usable // 2, 1)
    return threads if threads < cores else None


def _quotas(root: Path) -> Iterator[int]:
    """Yield the CPUs that the control groups of this process may use at a time."""
    for group in _control_groups(root / "proc/self/cgroup", root / "sys/fs/cgroup"):
        quota, _, period = _read_text(group / "cpu.max").strip().partition(" ")
        if quota.isdecimal() and period.isdecimal():
            yield max(math.ceil(int(quota) / int(period)), 1)
