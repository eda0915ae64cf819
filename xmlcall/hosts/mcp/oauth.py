"""OAuth for MCP servers (MCP 2025-11-25 and 2026-07-28, authorization), by the SDK's providers, which follow the specification.

The SDK discovers metadata, registers, makes PKCE and `resource`, checks `state` and `iss`, and refreshes. This module adds:

- Nothing happens before a server answers 401 or 403: no keyring is opened for servers that want no sign-in.
- Requests with a valid token do not wait for each other. The SDK's flow holds a lock from a request to its answer, so a slow call
  would delay even its own cancellation. Here the flow runs only for requests that were refused or have no valid token.
- Metadata and expiry times are kept with the tokens. A later run refreshes at the right server, and a refused token is refreshed
  before the user is asked.
- An authorization server without PKCE is refused, as are addresses that are neither https nor on this machine (both MUST).
- A flow that fails does not end the connection: the caller gets the refusal, and the log says why. The next flow waits a while.

No message contains secrets: quotes of answers are cut, and known secrets are masked.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import shlex
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from ...addresses import is_inside
from ...private_folders import make_private, user_path
from ..server import HttpServer, OAuth

# -- what is kept between two runs: in the system's keyring, or in a file that only its owner may read -----------------
# Each server has one text, under a key that reveals no secret. The keyring is whatever `keyring` finds (Secret Service,
# KWallet, macOS Keychain). A machine without one, such as a server, uses the file, as does an installation without the package
# `keyring`; `xmlcall login` says so. Nothing here is ever logged.

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
        self.path = path or user_path("data", "tokens.json")

    def in_file(self, key: str) -> bool:
        """Return whether the file, not the keyring, has the tokens of a key."""
        return key in self._read()

    def get(self, key: str) -> str | None:
        return self._read().get(key) or _in_keyring("get_password", key)

    def set(self, key: str, text: str) -> None:
        if _in_keyring("set_password", key, text) is None:
            with self._changed() as texts:
                texts[key] = text
        elif self.in_file(key):  # from a time without a keyring
            self._forget(key)

    def delete(self, key: str) -> bool:
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
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)  # with mode 0600
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
        port = self._oauth.callback_port or _free_port(port or 0)
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
        self.entry.client = client_info
        await self._write()


def _free_port(wanted: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind((HOST, wanted))
        except OSError:
            probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


# -- signing in --------------------------------------------------------------------------------------------------------


Ask = Callable[[str, str], Awaitable[bool]]
"""Asks the user to sign in, by the server's name and an address; returns whether the user agreed. The address is a server's text.
It MUST be shown in full, and opened only after the user has agreed."""

_LOOK_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 30.0  # after a flow that failed
_MAX_SAID: Final = 200
_MOST_READ: Final = 100_000  # characters of an error; an authorization server may answer with megabytes


async def _whatever_comes(answer: Awaitable[Any]) -> Any:
    return await answer


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """How to sign in to servers that require it.

    Args:
        ask: asks the user; None never asks, and only an earlier sign-in is used.
        tokens: where tokens are kept.
        patience: seconds to wait for the browser.
        may_ask: whether the user may be asked now.
        during: waits for the user while the answer is needed; None once it no longer is.
    """

    ask: Ask | None = None
    tokens: TokenStore = field(default_factory=SystemTokens)
    patience: float = 300.0
    may_ask: Callable[[], bool] = lambda: True
    during: Callable[[Awaitable[Any]], Awaitable[Any]] = _whatever_comes

    @property
    def asks(self) -> bool:
        """Whether the user can be asked now."""
        return self.ask is not None and self.may_ask()


class SignInLog(Protocol):
    """Receives the reason why a sign-in failed."""

    sign_in: str


class _NeedsPerson(OAuthFlowError):
    """The user has to sign in, but cannot be asked."""


def authorization(server: HttpServer, sign_in: SignIn, log: SignInLog) -> httpx2.Auth | None:
    """Make what signs requests in, for one HTTP client; None where the configuration has credentials or wants no sign-in."""
    return None if server.oauth is None or _has_credentials(server) else _Authorization(server, server.oauth, sign_in, log)


async def forget(server: HttpServer, tokens: TokenStore) -> bool:
    """Delete the tokens of a server, and the client registered for it; return whether there were any."""
    return await asyncio.to_thread(tokens.delete, key_of(server))


async def kept_in_file(server: HttpServer) -> Path | None:
    """Return the file that holds the tokens of a server if there is no keyring; None if they are elsewhere."""
    store = SystemTokens()
    return store.path if await asyncio.to_thread(store.in_file, key_of(server)) else None


async def wants_sign_in(server: HttpServer) -> bool:
    """Ask a server, for a few seconds, whether it wants a sign-in; False if one is kept that could serve."""
    oauth = server.oauth
    if oauth is None or oauth.grant == "client_credentials" or _has_credentials(server):
        return False
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Accept": "application/json, text/event-stream", **server.headers}
    try:
        async with (
            httpx2.AsyncClient(timeout=_LOOK_SECONDS) as http,
            http.stream("POST", server.url, json=ping, headers=headers) as answer,
        ):
            refused = answer.status_code == 401
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError):
        return False  # opening the server will report the reason
    return refused and await asyncio.to_thread(SystemTokens().get, key_of(server)) is None


def _has_credentials(server: HttpServer) -> bool:
    return any(name.lower() == "authorization" for name in server.headers)


class _Authorization(httpx2.Auth):
    """Signs requests in, with a provider of the SDK that is made at the first refusal."""

    def __init__(self, server: HttpServer, oauth: OAuth, sign_in: SignIn, log: SignInLog) -> None:
        self._server, self._oauth, self._sign_in, self._log = server, oauth, sign_in, log
        self._kept = KeptSignIn(server, oauth, sign_in.tokens)
        self._provider: OAuthClientProvider | None = None
        self._starting = asyncio.Lock()
        self._failed_at = -_AGAIN_SECONDS
        self._loopback: Loopback | None = None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request; if the server asks for sign-in, sign in and send it again."""
        refused: httpx2.Response | None = None
        if self._provider is None or self._add_valid_token(request):
            refused = yield request
            if not _wants_sign_in(refused):
                return
        if time.monotonic() < self._failed_at + _AGAIN_SECONDS:
            if refused is None:
                yield request
            return
        flow = self._flow(request, refused)
        outgoing = request
        try:
            outgoing = await anext(flow)
            while True:  # bounded by the SDK's flow
                outgoing = await flow.asend((yield outgoing))
        except StopAsyncIteration:
            self._log.sign_in = ""
            return
        except (OAuthFlowError, ValidationError, OSError, httpx2.StreamError) as error:
            if not isinstance(error, _NeedsPerson) or self._sign_in.ask is None:  # otherwise the user may be there next time
                self._failed_at = time.monotonic()
            self._log.sign_in = self._words(error)
        except GeneratorExit:  # a request got no answer: the connection ends, and the log names the server
            if outgoing is not request:
                self._log.sign_in = f"{_origin(outgoing.url)}, where you sign in to it, did not answer"
            raise
        finally:
            await flow.aclose()
        yield request  # the caller has to see its refusal, not an answer within the flow

    async def _flow(
        self, request: httpx2.Request, refused: httpx2.Response | None
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Run the SDK's flow for a refused request, unless another token has replaced the request's by now."""
        provider = await self._started()
        if not self._sign_in.asks and self._oauth.grant == "authorization_code" and self._kept.entry.tokens is None:
            raise _NeedsPerson  # so that no client is registered in vain
        before = request.headers.get("Authorization")
        flow, is_refreshed = provider.async_auth_flow(request), False
        try:
            outgoing = await anext(flow)
            while True:  # bounded by the SDK's flow
                if outgoing is not request:
                    _check_address(outgoing.url, self._server.url)
                    outgoing.headers["Accept-Encoding"] = "identity"
                    response = yield outgoing
                    await response.aread()  # bounded by the connection's `HttpTroubles`
                elif refused is not None and request.headers.get("Authorization") == before:
                    response, refused = refused, None
                else:
                    response = yield outgoing
                if outgoing is request and not is_refreshed and _may_refresh(provider, response):
                    is_refreshed = True
                    await flow.aclose()
                    flow = provider.async_auth_flow(request)
                    outgoing = await anext(flow)
                else:
                    outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()
            loopback, self._loopback = self._loopback, None
            if loopback is not None:
                await loopback.__aexit__()

    async def _started(self) -> OAuthClientProvider:
        async with self._starting:
            if self._provider is None:
                self._provider = await self._make_provider()
            else:
                await self._kept.catch_up()
            return self._provider

    def _add_valid_token(self, request: httpx2.Request) -> bool:
        """Sign a request in; False if there is no token, or only an expired one."""
        assert self._provider is not None
        context = self._provider.context
        if context.current_tokens is None or not context.is_token_valid():
            return False
        request.headers["Authorization"] = f"Bearer {context.current_tokens.access_token}"
        return True

    async def _make_provider(self) -> OAuthClientProvider:
        """Make the SDK's provider for the configured grant, and restore what was kept."""
        await self._kept.load()
        url, oauth, scope = self._server.url, self._oauth, " ".join(self._oauth.scopes) or None
        common: dict[str, Any] = {"client_id": oauth.client_id, "issuer": oauth.issuer, "scope": scope}
        provider: OAuthClientProvider
        if oauth.grant == "client_credentials" and oauth.private_key:
            key = SignedJWTParameters(
                issuer=oauth.client_id,
                subject=oauth.client_id,
                signing_key=oauth.private_key,
                signing_algorithm=oauth.signing_algorithm,
            )
            provider = PrivateKeyJWTOAuthProvider(url, self._kept, assertion_provider=key.create_assertion_provider(), **common)
        elif oauth.grant == "client_credentials":
            provider = ClientCredentialsOAuthProvider(url, self._kept, client_secret=oauth.client_secret, **common)
        else:
            provider = OAuthClientProvider(
                url,
                OAuthClientMetadata(redirect_uris=[self._kept.redirect], client_name="xmlcall", scope=scope),
                self._kept,
                self._redirect,
                self._returned,
                oauth.client_metadata_url or None,
            )
        self._kept.restore(provider.context)
        return provider

    async def _redirect(self, url: str) -> None:
        """Ask the user to open an address, while the server waits to which the browser returns."""
        assert self._provider is not None
        _check_address(httpx2.URL(url), self._server.url)
        metadata = self._provider.context.oauth_metadata
        if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise OAuthFlowError("its authorization server does not offer PKCE (S256), without which a sign-in is not safe")
        url = _with_scopes(url, (*self._oauth.scopes, *self._kept.entry.wanted))
        query = parse_qs(urlsplit(url).query)
        if not self._sign_in.asks or self._sign_in.ask is None:
            await self._kept.want(query.get("scope", [""])[0].split())
            raise _NeedsPerson
        loopback = Loopback(self._kept.redirect.port or 0, query["state"][0])
        try:
            self._loopback = await loopback.__aenter__()
        except OSError as error:
            raise OAuthFlowError(f"port {self._kept.redirect.port} of 127.0.0.1 for the browser's return is taken") from error
        if not await self._sign_in.during(self._sign_in.ask(self._server.name, url)):
            raise OAuthFlowError("the sign-in was declined")

    async def _returned(self) -> AuthorizationCodeResult:
        assert self._loopback is not None
        found: AuthorizationCodeResult | None = await self._sign_in.during(self._loopback.answer(self._sign_in.patience))
        if found is None:
            raise OAuthFlowError("no call waits for it any more")
        return found

    def _words(self, error: Exception) -> str:
        """Describe why signing in failed, in one line without secrets."""
        name = self._server.name
        if isinstance(error, _NeedsPerson):
            login = shlex.join(["xmlcall", "login", name, "--mcp", "FILE"])
            return f'{self._server.address} answered HTTP 401; sign in by "{login}", or give it a token in its "headers"'
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            said = f"its authorization server answers outside the protocol: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        else:
            said = str(error)[:_MOST_READ] or type(error).__name__
        for secret in self._kept.secrets():
            said = said.replace(secret, "***")
        return f"signing in to it failed: {''.join(c if c.isprintable() else ' ' for c in said)[:_MAX_SAID]}"


def _wants_sign_in(response: httpx2.Response) -> bool:
    """Return whether a sign-in can help: there is none, or its scope is too small (RFC 6750, 3.1)."""
    is_short = response.status_code == 403 and "insufficient_scope" in response.headers.get("WWW-Authenticate", "")
    return response.status_code == 401 or is_short


def _may_refresh(provider: OAuthClientProvider, response: httpx2.Response) -> bool:
    """Let the SDK refresh a refused token before it asks the user; it may have expired earlier than announced."""
    context = provider.context
    if response.status_code != 401 or not context.is_token_valid() or not context.can_refresh_token():
        return False
    context.token_expiry_time = 1.0  # long ago
    return True


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"


def _check_address(url: httpx2.URL, server: str) -> None:
    """Refuse addresses to which a server must not lead.

    All endpoints of an authorization server MUST be served over HTTPS (MCP 2025-11-25, authorization), except on this machine.
    A server elsewhere must not lead to this machine or its network either.
    """
    ours = httpx2.URL(server)
    if _origin(url) == _origin(ours):
        return
    if url.scheme != "https" and not (url.scheme == "http" and is_inside(url.host) and is_inside(ours.host)):
        raise OAuthFlowError(f"it leads to {_origin(url)}, which is neither https nor on this machine")
    if is_inside(url.host) and not is_inside(ours.host):
        raise OAuthFlowError(f"it leads to {_origin(url)}, an address of the own network")


def _with_scopes(url: str, scopes: tuple[str, ...]) -> str:
    """Add scopes, for which the SDK does not ask, to the address that the user opens."""
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    asked = [*" ".join(query.get("scope", [])).split(), *scopes]
    if not scopes:
        return url
    query["scope"] = [" ".join(dict.fromkeys(asked))]
    return urlunsplit(parts._replace(query=urlencode(query, doseq=True)))


# -- the small server on 127.0.0.1 to which the browser returns after a sign-in (RFC 8252, 7.3) -----------------------------
# It takes one answer, that with the expected `state`: any page that the browser shows can send requests here, and is refused.
# Waits, headers and connections are limited. The page that the user sees repeats nothing of the request.

_MAX_HEAD: Final = 16_384
_HEAD_SECONDS: Final = 10.0
# Failures of a connection that does not come from a working browser; the sign-in keeps waiting.
_NO_BROWSER: Final = (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
_MAX_CONNECTIONS: Final = 20
_DONE: Final = "Thank you. You can close this page and go back to xmlcall."
_REFUSED: Final = "The sign-in did not succeed. You can close this page; xmlcall says why."
_UNEXPECTED: Final = "Nothing is expected here."


class Loopback:
    """Waits for one answer; `async with` opens and closes it."""

    def __init__(self, port: int, state: str) -> None:
        self._port, self._state = port, state
        self._connections: set[asyncio.Task[None] | None] = set()

    async def __aenter__(self) -> "Loopback":
        self._answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._serve, HOST, self._port, limit=_MAX_HEAD)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        if not self._answer.cancel() and not self._answer.cancelled():
            self._answer.exception()  # asyncio logs an exception that nothing has retrieved
        await asyncio.gather(*(task for task in self._connections if task), return_exceptions=True)

    async def answer(self, seconds: float) -> AuthorizationCodeResult:
        try:
            async with asyncio.timeout(seconds):
                return await self._answer
        except TimeoutError:
            raise OAuthFlowError(f"no sign-in within {seconds:g} s") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._connections.add(task)
        try:
            if len(self._connections) <= _MAX_CONNECTIONS:
                with contextlib.suppress(*_NO_BROWSER):
                    await self._answered(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            status, text = self._read(head.decode("latin-1").split("\r\n")[0])
            fields = "Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\nConnection: close\r\n"
            writer.write(f"HTTP/1.1 {status}\r\n{fields}Content-Length: {len(text)}\r\n\r\n{text}".encode())
            await writer.drain()

    def _read(self, line: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.rpartition(" ")[0])
        if method != "GET" or target.path != PATH:
            return "404 Not Found", _UNEXPECTED
        given = {name: values[0] for name, values in parse_qs(target.query, max_num_fields=20).items() if len(values) == 1}
        if self._answer.done() or not secrets.compare_digest(given.get("state", "").encode(), self._state.encode()):
            return "400 Bad Request", _UNEXPECTED
        if "code" in given:
            self._answer.set_result(AuthorizationCodeResult(code=given["code"], state=self._state, iss=given.get("iss")))
            return "200 OK", _DONE
        why = ": ".join(filter(None, (given.get("error", "it gave no code"), given.get("error_description"))))
        self._answer.set_exception(OAuthFlowError(f"the authorization server refused the sign-in: {why}"))
        return "200 OK", _REFUSED
