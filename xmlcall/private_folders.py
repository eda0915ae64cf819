"""Folders that only their owner can open."""

from pathlib import Path
from typing import Final

__all__ = ["make_private"]

_MODE: Final = 0o700


def make_private(path: Path) -> bool:
    """Create a folder and its missing parents, closed to other users whatever the umask. Leave an existing folder unchanged.

    Returns:
        Whether the folder was created.
    """
    if path.is_dir():
        return False
    if path.parent != path:
        make_private(path.parent)
    path.mkdir(mode=_MODE, exist_ok=True)  # another program may have just created it
    path.chmod(_MODE)  # a umask may remove the owner's permissions, too
    return True
