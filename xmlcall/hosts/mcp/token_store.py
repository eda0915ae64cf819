"""Where tokens of OAuth are kept between two runs: the system's keyring, else a file that only its owner may read.

A text a server, under a key that tells no secret. The keyring is whatever `keyring` finds (Secret Service, KWallet, macOS
Keychain); a machine without one, such as a server, gets the file, and whoever signs in is told so. Nothing here is ever logged.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from ...private_folders import make_private

__all__ = ["MemoryTokens", "SystemTokens", "TokenStore"]

_SERVICE: Final = "xmlcall"
_LOCK_SECONDS: Final = 10.0


class TokenStore(Protocol):
    """Keeps a text for each key; any method may block."""

    def get(self, key: str) -> str | None:
        """Return what is kept, None if nothing is."""

    def set(self, key: str, text: str) -> None:
        """Keep a text in place of another."""

    def delete(self, key: str) -> bool:
        """Forget; tell whether anything was kept."""


class MemoryTokens:
    """Keeps tokens for as long as the program runs."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        """Return what is kept, None if nothing is."""
        return self._texts.get(key)

    def set(self, key: str, text: str) -> None:
        """Keep a text in place of another."""
        self._texts[key] = text

    def delete(self, key: str) -> bool:
        """Forget; tell whether anything was kept."""
        return self._texts.pop(key, None) is not None


class SystemTokens:
    """Keeps tokens in the system's keyring; where there is none, or it refuses, in a file with mode 0600."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The file; it need not exist."""
        if self._path is None:
            import platformdirs

            self._path = platformdirs.user_data_path(_SERVICE) / "tokens.json"
        return self._path

    def in_file(self, key: str) -> bool:
        """Tell whether the file has the tokens of a key: the keyring did not take them."""
        return key in self._read()

    def get(self, key: str) -> str | None:
        """Return what is kept, None if nothing is."""
        return self._read().get(key) or _in_keyring("get_password", key)

    def set(self, key: str, text: str) -> None:
        """Keep a text in place of another."""
        if _in_keyring("set_password", key, text) is None:
            with self._changed() as texts:
                texts[key] = text
        elif self.in_file(key):  # from a time without a keyring
            self._forget(key)

    def delete(self, key: str) -> bool:
        """Forget; tell whether anything was kept."""
        was_kept = self.get(key) is not None
        _in_keyring("delete_password", key)
        if self.in_file(key):
            self._forget(key)
        return was_kept

    def _forget(self, key: str) -> None:
        with self._changed() as texts:
            texts.pop(key, None)

    def _read(self) -> dict[str, str]:
        try:
            texts = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):  # not there, or not ours: what it had is lost, and one signs in again
            return {}
        return {key: text for key, text in texts.items() if isinstance(text, str)} if isinstance(texts, dict) else {}

    @contextmanager
    def _changed(self) -> Iterator[dict[str, str]]:
        """Change the file as a whole: another program reads the old one or the new one, and neither loses a key."""
        from filelock import FileLock

        make_private(self.path.parent)
        with FileLock(f"{self.path}.lock", timeout=_LOCK_SECONDS, mode=0o600):
            texts = self._read()
            yield texts
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)  # of mode 0600
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(texts, file)
                os.replace(name, self.path)
            except BaseException:
                os.unlink(name)
                raise


def _in_keyring(method: str, key: str, *arguments: str) -> Any:
    """Ask the keyring; None where there is none, where it has nothing, and where it refuses, as a locked one does."""
    import keyring
    from keyring.errors import KeyringError

    if getattr(keyring.get_keyring(), "priority", 0) <= 0:
        return None
    try:
        answer = getattr(keyring, method)(_SERVICE, key, *arguments)
    except (KeyringError, OSError):
        return None
    return True if arguments else answer
