"""Stores a sign-in between two runs: in the system's keyring, or else in a file that only its owner may read.

Each server has one text, under a key that reveals no secret. The keyring is whatever `keyring` finds (Secret Service, KWallet,
macOS Keychain). A machine without one, such as a server, uses the file, as does an installation without the package `keyring`;
`xmlcall login` says so. Nothing here is ever logged.
"""

import asyncio
import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import AnyUrl, BaseModel, ValidationError

from ...private_folders import make_private
from ..server import HttpServer, OAuth

# -- where it is kept --------------------------------------------------------------------------------------------------

HOST: Final = "127.0.0.1"  # to which the browser returns
PATH: Final = "/callback"
_SERVICE: Final = "xmlcall"
_LOCK_SECONDS: Final = 10.0


class TokenStore(Protocol):
    """Keeps a text for each key; any method may block."""

    def get(self, key: str) -> str | None:
        """Return what is kept, None if nothing is."""

    def set(self, key: str, text: str) -> None:
        """Replace the text."""

    def delete(self, key: str) -> bool:
        """Delete the text; return whether there was one."""


class SystemTokens:
    """Keeps tokens in the system's keyring; if there is none, or it refuses, in a file with mode 0600."""

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
        """Return whether the file, not the keyring, has the tokens of a key."""
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
        """Forget a key; say whether anything was kept under it."""
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
        except (OSError, ValueError, RecursionError):  # missing, or not ours: the user signs in again
            return {}
        return {key: text for key, text in texts.items() if isinstance(text, str)} if isinstance(texts, dict) else {}

    @contextmanager
    def _changed(self) -> Iterator[dict[str, str]]:
        """Replace the file as a whole: another program reads the old one or the new one, and neither loses a key."""
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
    """Ask the keyring; None if there is none, it has nothing, or it refuses, as a locked one does."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:  # the extra `login`
        return None
    if getattr(keyring.get_keyring(), "priority", 0) <= 0:
        return None
    try:
        answer = getattr(keyring, method)(_SERVICE, key, *arguments)
    except (KeyringError, OSError):
        return None
    return True if arguments else answer


# -- what is kept of a sign-in -----------------------------------------------------------------------------------------
# The SDK stores only tokens and client. A later run would not know when a token expires or which server refreshes it, so metadata
# and times are kept as well and restored into its context.


def key_of(server: HttpServer) -> str:
    """Return the key of a server; its address may hold secrets, so only the origin is readable."""
    return f"{server.address} {hashlib.sha256(server.url.encode()).hexdigest()[:16]}"


class _Entry(BaseModel):
    tokens: OAuthToken | None = None
    expires_at: float | None = None
    client: OAuthClientInformationFull | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None
    wanted: tuple[str, ...] = ()  # scopes that the server requested while the user could not be asked


class KeptSignIn:
    """The `TokenStorage` of the SDK, with what the SDK itself does not store."""

    def __init__(self, server: HttpServer, oauth: OAuth, store: TokenStore) -> None:
        self._oauth, self._store, self._key = oauth, store, key_of(server)
        self.entry = _Entry()
        self._context: OAuthContext
        self.redirect = AnyUrl("http://127.0.0.1/")  # once loaded, with port

    async def load(self) -> None:
        """Read what is kept, and choose the port to which the browser returns: the registered client's, if it is free."""
        self.entry = await self._read()
        client = self.entry.client
        port = client.redirect_uris[0].port if client is not None and client.redirect_uris else None
        if self._oauth.callback_port or port is None or not _is_free(port):
            port = self._oauth.callback_port or _free_port()
        self.redirect = AnyUrl(f"http://{HOST}:{port}{PATH}")
        if client is not None and self.redirect not in (client.redirect_uris or ()):
            self.entry.client = None

    async def _read(self) -> _Entry:
        text = await asyncio.to_thread(self._store.get, self._key)
        try:
            return _Entry.model_validate_json(text or "{}")
        except ValidationError:  # not ours: the user signs in again
            return _Entry()

    async def _write(self) -> None:
        await asyncio.to_thread(self._store.set, self._key, self.entry.model_dump_json(exclude_none=True))

    def restore(self, context: OAuthContext) -> None:
        """Set when the SDK's token expires and where it is refreshed."""
        self._context, entry = context, self.entry
        context.token_expiry_time = entry.expires_at
        context.oauth_metadata, context.protected_resource_metadata = entry.metadata, entry.resource
        if entry.resource is not None:
            context.auth_server_url = str(entry.resource.authorization_servers[0])

    async def catch_up(self) -> None:
        """Take over tokens that another program has refreshed meanwhile, because the older ones are invalid."""
        entry = await self._read()
        if entry.tokens is not None and self._context.current_tokens is not None and entry.tokens != self.entry.tokens:
            self.entry = entry
            self._context.current_tokens, self._context.token_expiry_time = entry.tokens, entry.expires_at

    async def want(self, scopes: list[str]) -> None:
        """Remember the scopes of a sign-in for which the user could not be asked."""
        self.entry.wanted = tuple(scopes)
        self.entry.tokens = None  # otherwise the next sign-in would accept them
        await self._write()

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown."""
        tokens, client = self.entry.tokens, self.entry.client
        kept = [self._oauth.client_secret, self._oauth.private_key, client and client.client_secret]
        kept += [tokens.access_token, tokens.refresh_token] if tokens else []
        return [secret for secret in kept if secret]

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens (see `TokenStorage`)."""
        return self.entry.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens, and what is needed to refresh them."""
        context = self._context
        self.entry = _Entry(
            tokens=tokens,
            expires_at=context.token_expiry_time,
            client=self.entry.client,
            metadata=context.oauth_metadata,
            resource=context.protected_resource_metadata,
        )
        await self._write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client: that of the configuration, else the one that was registered."""
        if not self._oauth.client_id:
            return self.entry.client
        return OAuthClientInformationFull(
            client_id=self._oauth.client_id,
            client_secret=self._oauth.client_secret or None,
            redirect_uris=[self.redirect],
            token_endpoint_auth_method="client_secret_basic" if self._oauth.client_secret else "none",
            issuer=self._oauth.issuer or None,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the client that was registered."""
        self.entry.client = client_info
        await self._write()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
