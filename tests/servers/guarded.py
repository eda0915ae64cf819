"""An MCP server and its authorization server on loopback: discovery, registration, PKCE (checked by the SDK), refresh, expiry.

The endpoints of OAuth are the SDK's own server pieces over `Grants`; the MCP endpoint answers each POST with JSON.
"""

import contextlib
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes, create_protected_resource_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .run_server import Stage, run_server

__all__ = ["Grants", "guarded_server"]


@dataclass
class Grants(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Who may do what; a test changes it while the server runs.

    Args:
        seconds: that a new token lives, as told to the client.
        refuses: whether the person on the page of consent says no.
        state: with which the browser is sent back in place of the right one.
        methods: of PKCE that the metadata tell of.
        wants: scopes that a call of the tool needs.
        long_metadata: whether the metadata never end.
    """

    seconds: int = 3600
    refuses: bool = False
    state: str | None = None
    methods: tuple[str, ...] | None = ("S256",)
    wants: str = "basic"
    long_metadata: bool = False
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    tokens: dict[str, AccessToken] = field(default_factory=dict)
    refreshing: dict[str, RefreshToken] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.events.append("register")
        client_info.scope = "basic write"
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.events.append(f"authorize {' '.join(params.scopes or [])}".strip())
        redirect, state = str(params.redirect_uri), self.state or params.state
        if self.refuses:
            return construct_redirect_uri(redirect, error="access_denied", error_description="No,\x1b[31m thanks", state=state)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(20),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(redirect, code=code.code, state=state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        self.events.append("exchange")
        del self.codes[authorization_code.code]
        return self._grant(client.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.events.append("refresh")
        del self.refreshing[refresh_token.token]
        return self._grant(client.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)

    def expire(self) -> None:
        """Let all tokens run out that were granted."""
        self.tokens.clear()

    def _grant(self, client: str, scopes: list[str]) -> OAuthToken:
        access, refresh = f"access-{secrets.token_urlsafe(20)}", f"refresh-{secrets.token_urlsafe(20)}"
        self.tokens[access] = AccessToken(token=access, client_id=client, scopes=scopes)
        self.refreshing[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=self.seconds, scope=" ".join(scopes))


@contextlib.contextmanager
def guarded_server(grants: Grants) -> Iterator[str]:
    """Serve an MCP server that wants OAuth, with its authorization server at another origin; gives the address of MCP."""
    mcp, auth = Stage(), Stage()
    with run_server(mcp) as url, run_server(auth) as issuer:
        options = ClientRegistrationOptions(enabled=True, valid_scopes=["basic", "write"], default_scopes=["basic"])
        routes = create_auth_routes(grants, AnyHttpUrl(issuer), client_registration_options=options)
        auth.app = Starlette(routes=[Route(METADATA, _Metadata(grants, routes).answer), *routes])
        resource = AnyHttpUrl(f"{url}/mcp")
        described = create_protected_resource_routes(resource, [AnyHttpUrl(issuer)], scopes_supported=["basic"])
        mcp.app = Starlette(routes=[Route("/mcp", _Mcp(grants, url).answer, methods=["POST"]), *described])
        yield f"{url}/mcp"


METADATA = "/.well-known/oauth-authorization-server"


class _Metadata:
    """The metadata of the authorization server, as the test wants them."""

    def __init__(self, grants: Grants, routes: list[Route]) -> None:
        self._grants = grants
        self._route = next(route for route in routes if route.path == METADATA)

    async def answer(self, request: Request) -> Response:
        import httpx

        async with httpx.AsyncClient(transport=httpx.ASGITransport(self._route.app), base_url=str(request.base_url)) as own:
            told = (await own.get(METADATA)).json()
        if self._grants.methods is None:
            del told["code_challenge_methods_supported"]
        if self._grants.long_metadata:
            told["service_documentation"] = "https://long.example/" + "a" * (2 << 20)
        return JSONResponse(told)


class _Mcp:
    """MCP 2025-11-25 with one tool, `add`."""

    def __init__(self, grants: Grants, url: str) -> None:
        self._grants, self._described = grants, f'resource_metadata="{url}/.well-known/oauth-protected-resource/mcp"'

    async def answer(self, request: Request) -> Response:
        token = self._grants.tokens.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        if token is None:
            self._grants.events.append("401")
            return Response(status_code=401, headers={"WWW-Authenticate": f"Bearer {self._described}"})
        message = await request.json()
        if message["method"] == "tools/call" and self._grants.wants not in token.scopes:
            error = f'Bearer error="insufficient_scope", scope="{self._grants.wants}", {self._described}'
            return Response(status_code=403, headers={"WWW-Authenticate": error})
        if "id" not in message:
            return Response(status_code=202)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"]} | _result(message))


def _result(message: dict[str, Any]) -> dict[str, Any]:
    if message["method"] == "initialize":
        info = {"name": "guarded", "version": "1"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
    if message["method"] == "tools/list":
        numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
        schema = {"type": "object", "properties": numbers, "required": ["a", "b"]}
        return {"result": {"tools": [{"name": "add", "inputSchema": schema}]}}
    if message["method"] == "tools/call":
        total = sum(message["params"]["arguments"].values())
        return {"result": {"content": [{"type": "text", "text": str(total)}]}}
    return {"error": {"code": -32601, "message": "Method not found"}}
