"""Where records are: in a folder that only its owner may read."""

import os
from pathlib import Path
from typing import Final

from ..errors import UsageError
from ..private_folders import make_private

__all__ = ["FILE_MODE", "audit_path", "folder", "private_folder", "store_path"]

FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_FILES: Final = ("conversations.db", "audit.jsonl", "page-secret")  # how their names begin


def folder() -> Path:
    """Say where the person's records are: `$XMLCALL_RECORDS`, else a folder of the user's data."""
    if chosen := os.environ.get("XMLCALL_RECORDS"):
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_data_path("xmlcall") / "records"


def private_folder() -> Path:
    """Return the folder of records, made if it is missing.

    The default folder is closed to others. One that was chosen and is there stays as it is, as others may work in it: what is in
    the records' files is closed to them, too.

    Raises:
        UsageError: it cannot be made or closed, or a file of somebody else's has the place of one of ours.
    """
    path = folder()
    try:
        make_private(path)
        if not os.environ.get("XMLCALL_RECORDS"):
            path.chmod(_FOLDER_MODE)
        stranger = _stranger_in(path)
    except OSError as error:
        raise UsageError(
            f"expected a folder for records at {path}: {error.strerror or error}. "
            "Choose another with XMLCALL_RECORDS; --no-record keeps nothing"
        ) from error
    if stranger:
        raise UsageError(f"{path / stranger} is somebody else's, who could read it: choose another folder with XMLCALL_RECORDS")
    return path


def _stranger_in(path: Path) -> str:
    """Return the name of a file of ours that another person made; "" if there is none."""
    us = os.geteuid()
    with os.scandir(path) as entries:
        ours = (entry for entry in entries if entry.name.startswith(_FILES))
        owners = {entry.name: entry.stat(follow_symlinks=False).st_uid for entry in ours}
    return next((name for name, owner in owners.items() if us and owner not in (us, 0)), "")


def store_path() -> Path:
    """Return where conversations are, in a folder that is there."""
    return private_folder() / "conversations.db"


def audit_path() -> Path:
    """Return where the audit is, in a folder that is there."""
    return private_folder() / "audit.jsonl"
