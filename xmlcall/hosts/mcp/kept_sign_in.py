"""What is kept of a sign-in between two runs: tokens, when they expire, where they are refreshed, and the client.

The SDK asks its `TokenStorage` for tokens and client alone. A later run would then neither know that a token has expired nor at
which server it is refreshed, so metadata and times are kept beside them and given back to its context.
"""

import asyncio
import hashlib

from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import AnyUrl, BaseModel, ValidationError

from ..config import HttpServer, OAuth
from .loopback import PATH, free_port, is_free
from .token_store import TokenStore

__all__ = ["KeptSignIn", "key_of"]


def key_of(server: HttpServer) -> str:
    """Name what is kept of a server; the address may hold secrets, so only its origin can be read."""
    return f"{server.address} {hashlib.sha256(server.url.encode()).hexdigest()[:16]}"


class _Entry(BaseModel):
    """What is kept of a server's sign-in between two runs."""

    tokens: OAuthToken | None = None
    expires_at: float | None = None
    client: OAuthClientInformationFull | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None
    wanted: tuple[str, ...] = ()


class KeptSignIn:
    """The `TokenStorage` of the SDK, and what it does not ask for."""

    def __init__(self, server: HttpServer, oauth: OAuth, store: TokenStore) -> None:
        self._oauth, self._store, self._key = oauth, store, key_of(server)
        self._entry = _Entry()
        self._context: OAuthContext
        self.redirect = AnyUrl("http://127.0.0.1/")  # once loaded, with port

    @property
    def wanted(self) -> tuple[str, ...]:
        """Scopes that a server asked for when nobody could be asked."""
        return self._entry.wanted

    @property
    def has_tokens(self) -> bool:
        """Whether there were tokens when last looked."""
        return self._entry.tokens is not None

    async def load(self) -> None:
        """Read what is kept, and choose where the browser returns to: where the client that was registered says, if it can."""
        self._entry = await self._read()
        client = self._entry.client
        port = client.redirect_uris[0].port if client is not None and client.redirect_uris else None
        if self._oauth.callback_port or port is None or not is_free(port):
            port = self._oauth.callback_port or free_port()
        self.redirect = AnyUrl(f"http://127.0.0.1:{port}{PATH}")
        if client is not None and self.redirect not in (client.redirect_uris or ()):
            self._entry.client = None

    async def _read(self) -> _Entry:
        text = await asyncio.to_thread(self._store.get, self._key)
        try:
            return _Entry.model_validate_json(text or "{}")
        except ValidationError:  # not ours: one signs in anew
            return _Entry()

    async def _write(self) -> None:
        await asyncio.to_thread(self._store.set, self._key, self._entry.model_dump_json(exclude_none=True))

    def restore(self, context: OAuthContext) -> None:
        """Give the SDK what it does not ask its storage for: when the token expires, and where it is refreshed."""
        self._context, entry = context, self._entry
        context.token_expiry_time = entry.expires_at
        context.oauth_metadata, context.protected_resource_metadata = entry.metadata, entry.resource
        if entry.resource is not None:
            context.auth_server_url = str(entry.resource.authorization_servers[0])

    async def catch_up(self) -> None:
        """Take tokens that another program has refreshed meanwhile: the older ones are worth nothing any more."""
        entry = await self._read()
        if entry.tokens is not None and self._context.current_tokens is not None and entry.tokens != self._entry.tokens:
            self._entry = entry
            self._context.current_tokens, self._context.token_expiry_time = entry.tokens, entry.expires_at

    async def want(self, scopes: list[str]) -> None:
        """Remember the scopes of a sign-in that nobody could be asked for."""
        self._entry.wanted = tuple(scopes)
        self._entry.tokens = None  # or the next sign-in would find that they are good enough
        await self._write()

    def secrets(self) -> list[str]:
        """Return what must not be shown."""
        tokens, client = self._entry.tokens, self._entry.client
        kept = [self._oauth.client_secret, self._oauth.private_key, client and client.client_secret]
        kept += [tokens.access_token, tokens.refresh_token] if tokens else []
        return [secret for secret in kept if secret]

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens (see `TokenStorage`)."""
        return self._entry.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens, and what is needed to refresh them."""
        context = self._context
        self._entry = _Entry(
            tokens=tokens,
            expires_at=context.token_expiry_time,
            client=self._entry.client,
            metadata=context.oauth_metadata,
            resource=context.protected_resource_metadata,
        )
        await self._write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client: that of the configuration, else the one that was registered."""
        if not self._oauth.client_id:
            return self._entry.client
        return OAuthClientInformationFull(
            client_id=self._oauth.client_id,
            client_secret=self._oauth.client_secret or None,
            redirect_uris=[self.redirect],
            token_endpoint_auth_method="client_secret_basic" if self._oauth.client_secret else "none",
            issuer=self._oauth.issuer or None,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the client that was registered."""
        self._entry.client = client_info
        await self._write()
