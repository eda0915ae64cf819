"""What opens the page: the token of the printed address, codes for one use, and sessions.

None of them is the secret that is kept in the folder of records; that signs sessions, and never leaves the program. So an open
page finds a program that was started again, and whoever saw an address or a session has it for a while, not for ever.

| what | where it stands | how long it holds |
|---|---|---|
| the token | in the address that is printed | as long as the program runs |
| a code | in the address that a browser is started with: everybody can see the arguments of programs | once, for minutes |
| a session | in a cookie; browsers send it to other programs of this machine, too: cookies know no ports | hours, for one port |
"""

import hashlib
import hmac
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..errors import UsageError
from ..records.folder import FILE_MODE

__all__ = ["SESSION_SECONDS", "Entry", "kept_secret"]

SESSION_SECONDS: Final = 8 * 3600  # a day's work
CODE_SECONDS: Final = 300.0  # for a browser to start
_BYTES: Final = 24  # of a secret, which has more characters
_SECRET: Final = re.compile("[A-Za-z0-9_-]+")
_NAME: Final = "page-secret"


def kept_secret(folder: Path) -> str:
    """Return what signs the sessions of a person's pages, made the first time.

    Args:
        folder: of their records; without the file `page-secret` in it, the next program has another secret.
    """
    path = folder / _NAME
    try:
        with suppress(FileExistsError), open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w") as file:
            file.write(secrets.token_urlsafe(_BYTES))
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="ascii") as file:
            about = os.fstat(file.fileno())
            kept = file.read(1024).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"expected the secret of the page in {path}: {error}; delete that file") from error
    is_ours = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
    if not is_ours or len(kept) < _BYTES or not _SECRET.fullmatch(kept):
        raise UsageError(f"expected the secret of the page in {path}, which nobody else may read; delete that file")
    return kept


class Entry:
    """What opens one page."""

    def __init__(self, port: int, secret: str = "") -> None:
        self.token = secrets.token_urlsafe(_BYTES)
        self.cookie = f"xmlcall_page_{port}"
        self._port, self._secret = port, (secret or secrets.token_urlsafe(_BYTES)).encode()
        self._codes: dict[str, float] = {}

    def code(self) -> str:
        """Make a code that opens the page once."""
        code = secrets.token_urlsafe(_BYTES)
        self._codes[code] = time.time() + CODE_SECONDS
        return code

    def opens(self, given: str) -> bool:
        """Say whether a text from an address opens the page; a code never does again."""
        found = next((code for code in self._codes if _is_same(code, given)), None)
        if found is not None:
            return time.time() < self._codes.pop(found)
        return _is_same(self.token, given)

    def session(self) -> str:
        """Begin a session."""
        ends = f"{int(time.time()) + SESSION_SECONDS}"
        return f"{ends}.{self._signed(ends)}"

    def is_session(self, given: str) -> bool:
        """Say whether a session was begun here, and holds."""
        ends, _, signature = given.partition(".")
        if not _is_same(self._signed(ends), signature):
            return False
        return time.time() < int(ends)

    def _signed(self, ends: str) -> str:
        said = f"xmlcall page, port {self._port}, until {ends}".encode("utf-8", "replace")
        return hmac.new(self._secret, said, hashlib.sha256).hexdigest()


def _is_same(ours: str, given: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), ours.encode())
