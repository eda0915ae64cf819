"""Locates the records: in a folder that only its owner may read."""

import os
import stat
from pathlib import Path
from typing import Final

from ..errors import UsageError
from ..private_folders import make_private, user_path
from ..systems import user_id

FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_POLL_SECONDS: Final = 0.005  # between looks whether another program has written its line
_FILES: Final = ("conversations.db", "audit.jsonl", "page-secret")  # how their names begin


def private_folder() -> Path:
    """Return the folder of the user's records, `$XMLCALL_RECORDS` or one in their data folder; create it if it is missing.

    The default folder is closed to other users. A chosen folder that exists keeps its permissions, because others may work in it;
    the record files themselves are closed to them anyway. A file of another user under one of our names is refused.
    """
    path = user_path("data", "records", "XMLCALL_RECORDS")
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
        raise UsageError(
            f"{path / stranger} belongs to another user, who can read it: choose another folder with XMLCALL_RECORDS"
        )
    return path


def _stranger_in(path: Path) -> str:
    """Return the name of a record file that belongs to another user; "" if there is none."""
    us = user_id()
    with os.scandir(path) as entries:
        ours = (entry for entry in entries if entry.name.startswith(_FILES))
        owners = {entry.name: entry.stat(follow_symlinks=False).st_uid for entry in ours}
    return next((name for name, owner in owners.items() if us and owner not in (us, 0)), "")


def append_line(path: Path, line: str, *, durably: bool = False) -> None:
    """Append a line to a file, which is its owner's alone; begin it on a line of its own if the last one was cut.

    Each line is written under a lock. A durable one is on the disk when this returns.
    """
    from filelock import lock_descriptor

    data = f"{line}\n".encode()
    with open(path, "ab+", buffering=0, opener=lambda name, flags: os.open(name, flags, FILE_MODE)) as file:
        lock_descriptor(file.fileno(), poll_interval=_POLL_SECONDS)
        is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        if is_file and file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            data = data if file.read(1) == b"\n" else b"\n" + data
        while data:
            data = data[file.write(data) :]
        if is_file and durably:
            os.fsync(file.fileno())


def store_path() -> Path:
    return private_folder() / "conversations.db"


def audit_path() -> Path:
    return private_folder() / "audit.jsonl"
