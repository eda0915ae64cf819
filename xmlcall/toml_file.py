"""Read a person's TOML file, up to a size limit; each error names the file, what was expected, and what it contains."""

import tomllib
from pathlib import Path
from typing import Any, Final

from .errors import UsageError

__all__ = ["MOST_BYTES", "read_toml"]

MOST_BYTES: Final = 64 * 1024
_SHOWN: Final = 200  # characters of a message that others chose


def read_toml(file: Path, what: str) -> dict[str, Any]:
    """Read a TOML file without checking its content."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"expected {what} in {file}, got: {error.strerror or error}") from error
    if len(content) > MOST_BYTES:
        raise UsageError(f"expected {what} in {file}, of {MOST_BYTES:,} bytes at most, got more")
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"expected TOML in {file}, got: {str(error)[:_SHOWN]}") from error
