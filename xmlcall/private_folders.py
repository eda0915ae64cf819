"""The user's own folders: where they are, and how one is made that only its owner can open."""

import os
from pathlib import Path
from typing import Final, Literal

_MODE: Final = 0o700


def user_path(kind: Literal["cache", "config", "data", "state"], name: str, variable: str = "") -> Path:
    """Return where something is kept: the path in an environment variable, else `name` in the user's folder of that kind."""
    if chosen := os.environ.get(variable):
        return Path(chosen).expanduser()
    import platformdirs

    place: Path = getattr(platformdirs, f"user_{kind}_path")("xmlcall")
    return place / name


def make_private(path: Path) -> bool:
    """Create a folder and its missing parents, closed to other users whatever the umask; return whether it was missing.

    An existing folder stays as it is.
    """
    if path.is_dir():
        return False
    if path.parent != path:
        make_private(path.parent)
    path.mkdir(mode=_MODE, exist_ok=True)  # another program may have just created it
    path.chmod(_MODE)  # a umask may remove the owner's permissions, too
    return True
