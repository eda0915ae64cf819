"""How a server is reached, and what of it is offered. `repr` shows no value that may be a secret."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal
from urllib.parse import urlsplit

__all__ = ["DEFAULT_TIMEOUT", "HttpServer", "OAuth", "ServerConfig", "StdioServer"]

DEFAULT_TIMEOUT = 60.0
"""Seconds for one request to a server, if its configuration does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    name: str
    timeout: float = DEFAULT_TIMEOUT
    include_tools: tuple[str, ...] = ("*",)
    exclude_tools: tuple[str, ...] = ()
    auto_approve: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    trust: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def offers(self, tool: str) -> bool:
        """Tell whether the filters let a tool through; they are names or globs."""
        return _matches(tool, self.include_tools) and not _matches(tool, self.exclude_tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioServer(_Server):
    """A server that is started as a child process and spoken to over its standard input and output.

    Args:
        shown: command and arguments as a message may have them; () if that is how they are.
        env: added to HOME, LOGNAME, PATH, SHELL, TERM and USER; nothing else of our environment reaches the child.
        roots: absolute paths of the folders that are named to the server if it asks where it may work.
        trust: whether to believe the server which of its tools may run twice; nothing runs unasked because of it.
    """

    command: str = field(repr=False)
    args: tuple[str, ...] = field(default=(), repr=False)
    shown: tuple[str, ...] = field(default=(), repr=False, compare=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """What a message may show: the command, without arguments."""
        return self.command_line[0]

    @property
    def command_line(self) -> tuple[str, ...]:
        """What is shown of how it is started: variables of the environment by their names, as their values may be secrets."""
        return self.shown or (self.command, *self.args)


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """What is known beforehand for signing in to a server; each part may be left out, and is then found out or asked for.

    Args:
        client_id: of a client that was registered at the authorization server; without it one is registered.
        client_metadata_url: of a document that describes the client, which a server may take in place of a registration.
        callback_port: of 127.0.0.1, to which the browser returns; 0 takes a free one.
        issuer: of the authorization server that the credentials belong to; they are sent nowhere else.
        grant: `authorization_code`, where a person signs in, or `client_credentials`, where the credentials are enough.
    """

    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    client_metadata_url: str = ""
    callback_port: int = 0
    scopes: tuple[str, ...] = ()
    issuer: str = ""
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    private_key: str = field(default="", repr=False)
    signing_algorithm: str = "RS256"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServer(_Server):
    """A server that is reached over HTTP.

    Args:
        transport: `http` is Streamable HTTP, `sse` the older HTTP+SSE, `either` tries them in this order.
        oauth: how to sign in if the server wants it; None never signs in. Not used beside an `Authorization` header.

    The other fields are those of `StdioServer`.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    transport: Literal["http", "sse", "either"] = "either"
    oauth: OAuth | None = field(default=OAuth(), repr=False)

    @property
    def address(self) -> str:
        """What a message may show: scheme, host and port; path, query and user can hold secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


ServerConfig = StdioServer | HttpServer


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
