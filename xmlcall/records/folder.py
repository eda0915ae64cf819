"""Where records are: in a folder that only its owner may read."""

import os
from pathlib import Path
from typing import Final

from ..errors import UsageError

__all__ = ["FILE_MODE", "audit_path", "folder", "private_folder", "store_path"]

FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


def folder() -> Path:
    """Say where the person's records are: `$XMLCALL_RECORDS`, else a folder of the user's data."""
    if chosen := os.environ.get("XMLCALL_RECORDS"):
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_data_path("xmlcall") / "records"


def private_folder() -> Path:
    """Return the folder of records, made if it is missing, and closed to others if it is not.

    Raises:
        UsageError: it cannot be made or closed.
    """
    path = folder()
    try:
        path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        path.chmod(_FOLDER_MODE)
    except OSError as error:
        raise UsageError(
            f"expected a folder for records at {path}: {error.strerror or error}. "
            "Choose another with XMLCALL_RECORDS; --no-record keeps nothing"
        ) from error
    return path


def store_path() -> Path:
    """Return where conversations are, in a folder that is there."""
    return private_folder() / "conversations.db"


def audit_path() -> Path:
    """Return where the audit is, in a folder that is there."""
    return private_folder() / "audit.jsonl"
