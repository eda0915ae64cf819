"""Folders for what is one person's alone."""

from pathlib import Path
from typing import Final

__all__ = ["make_private"]

_MODE: Final = 0o700


def make_private(path: Path) -> bool:
    """Make a folder and its missing parents, closed to others whatever the umask; an existing one stays as it is."""
    if path.is_dir():
        return False
    if path.parent != path:
        make_private(path.parent)
    path.mkdir(mode=_MODE, exist_ok=True)  # another program may be as far
    path.chmod(_MODE)  # a umask may also take from the owner
    return True
