"""Downloads one large file of known size and hash from the first of its sources that delivers it.

Strategy: the bytes are collected in `TARGET.part`. Each source continues where the last one stopped; the complete file is hashed
and renamed. A source that fails is skipped with a note. The sources themselves are in `sources.py`.

Invariants:
* The part file should be a prefix of the file, whichever source wrote it. It is trusted only after the sha256 check, so no
  ETag is kept. A wrong hash deletes it; if the bytes came from several attempts, the same source starts over once.
* Nothing past the expected size is ever written.
* One writer: the caller holds a lock.

Cost: one pass over the network, one over the disk for the hash, a few hundred kB of memory.
"""

import errno
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import BackendUnavailable, UsageError, XmlcallError

GRACE_SECONDS = 120.0
MINIMUM_RATE = 32 * 1024  # bytes a second, on average after the grace period; a slower source has failed
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    done: int  # bytes received so far; fewer if a source has to start over
    total: int
    note: str = ""


ProgressCallback = Callable[[Progress], None]
"""Called at each step, many times a second; an exception that it raises (except OSError) ends the download and propagates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    target: Path
    size: int
    sha256: str
    progress: ProgressCallback | None = None

    @property
    def part(self) -> Path:
        """The file in which the bytes are collected."""
        return self._beside("part")

    @property
    def scratch(self) -> Path:
        """A folder for what a source has to unpack, on the disk whose space is checked."""
        return self._beside("unpack")

    @property
    def lock(self) -> Path:
        return self._beside("lock")

    @property
    def done(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def report(self, note: str = "", *, done: int | None = None) -> None:
        if self.progress is not None:
            self.progress(Progress(done=self.done if done is None else done, total=self.size, note=note))

    def _beside(self, suffix: str) -> Path:
        return self.target.with_name(f"{self.target.name}.{suffix}")


class Source(Protocol):
    """Something that a file can come from; its `str` names it for people."""

    def deliver(self, download: Download) -> None:
        """Append to the part file until it is complete, or raise SourceFailed; another source may then continue it."""


class SourceFailed(Exception):
    """A source did not deliver. Never leaves `fetch`."""


class _WrongContent(SourceFailed):
    """The part file is no prefix of the file."""


def fetch(download: Download, sources: Sequence[Source]) -> None:
    """Fetch the file, check it and put it in its place; its folder exists, and only the caller writes there."""
    failures = []
    for source in sources:
        try:
            _deliver_verified(source, download)
            os.replace(download.part, download.target)
        except SourceFailed as error:
            failures.append(one_line(f"{source}: {error}"))
            download.report(failures[-1])
        except OSError as error:
            raise disk_error(error, download) from error
        else:
            return
    raise BackendUnavailable(
        f"No source of {download.target.name} delivered it. {'; '.join(failures)}. Check the network and the proxy settings"
        f" and try again, or place the file (sha256 {download.sha256}) at {download.target} yourself."
    )


def disk_error(error: OSError, download: Download) -> XmlcallError:
    """Make the error for a file system failure; if the disk is full, delete what was downloaded."""
    if error.errno not in _DISK_FULL:
        return UsageError(f"Cannot write {download.target}: {error.strerror or error}. Set XMLCALL_MODELS to a folder of yours.")
    download.part.unlink(missing_ok=True)
    return BackendUnavailable(
        f"The disk filled up while fetching {download.target}: free some space or set XMLCALL_MODELS to a folder on another disk."
    )


def sha256_of(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_space(download: Download, *, extra: int = 0) -> None:
    needed = download.size - download.done + extra
    free = shutil.disk_usage(download.target.parent).free
    if free < needed:
        raise BackendUnavailable(
            f"Fetching {download.target.name} needs {needed / 1e6:,.1f} MB in {download.target.parent}, only {free / 1e6:,.1f} MB"
            " are free: free some space or set XMLCALL_MODELS to a folder on another disk."
        )


def append(chunks: Iterable[bytes], start: int, download: Download) -> None:
    """Write chunks into the part file from an offset on, never past the expected size."""
    deadline = deadline_for(download.size - start)
    done = start
    with open(download.part, "rb+" if start else "wb") as stream:
        stream.seek(start)
        for chunk in chunks:
            done += len(chunk)
            if done > download.size:
                raise _WrongContent(f"expected {download.size:,} bytes, the source sent more")
            stream.write(chunk)
            download.report(done=done)
            check_deadline(deadline)


def deadline_for(size: int) -> float:
    """Return the monotonic time by which so many bytes must have arrived, so that a slow source cannot take forever."""
    return time.monotonic() + GRACE_SECONDS + size / MINIMUM_RATE


def check_deadline(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise SourceFailed(f"slower than {MINIMUM_RATE // 1024} KiB/s, given up")


def one_line(text: str) -> str:
    """Make untrusted text safe for a terminal: no control characters, no password of a URL, limited length."""
    return re.sub(r"://[^/\s@]*@", "://***@", "".join(c if c.isprintable() else " " for c in text[:2000]))[:400]


def _deliver_verified(source: Source, download: Download) -> None:
    kept = download.done
    try:
        if kept < download.size:
            source.deliver(download)
        _verify(download)
    except _WrongContent as error:
        download.part.unlink(missing_ok=True)
        if not kept:
            raise
        download.report(one_line(f"{error}; what an earlier try had left may be to blame, starting again"))
        _deliver_verified(source, download)  # the last time: nothing is kept now


def _verify(download: Download) -> None:
    download.report("checking the sha256")
    if download.done != download.size:
        raise _WrongContent(f"expected {download.size:,} bytes, got {download.done:,}")
    with open(download.part, "rb+") as stream:
        os.fsync(stream.fileno())  # later checks look at the size alone: a power cut must not leave a hole under the final name
    if (found := sha256_of(download.part)) != download.sha256:
        raise _WrongContent(f"expected sha256 {download.sha256}, got {found}: not the right file, it was deleted")
