"""The configuration of a server: how to reach it, and which of its tools to offer. `repr` shows no possible secrets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import urlsplit

DEFAULT_TIMEOUT = 60.0  # seconds for one request to a server, if its configuration sets no timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    name: str
    timeout: float = DEFAULT_TIMEOUT
    include_tools: tuple[str, ...] = ("*",)
    exclude_tools: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    trust: bool = False

    def offers(self, tool: str) -> bool:
        """Return whether the filters, which are names or globs, let a tool through."""
        return _matches(tool, self.include_tools) and not _matches(tool, self.exclude_tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioServer(_Server):
    """A server that runs as a child process and communicates over its standard input and output.

    Args:
        name: under which its tools are offered and rules name them.
        timeout: seconds for one request.
        include_tools: names or globs of the tools to offer.
        exclude_tools: those of them not to offer.
        command: the program to start, without a shell.
        args: its arguments.
        cwd: its working directory; None for ours.
        shown: command and arguments in the form that messages may show; () if they may be shown unchanged.
        env: added to HOME, LOGNAME, PATH, SHELL, TERM and USER; nothing else of our environment reaches the child.
        roots: absolute paths of the folders to report if the server asks where it may work.
        trust: whether to trust the server's hint that a tool may run twice; it does not allow any call.
    """

    command: str = field(repr=False)
    args: tuple[str, ...] = field(default=(), repr=False)
    shown: tuple[str, ...] = field(default=(), repr=False, compare=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """The command without arguments, which messages may show."""
        return self.command_line[0]

    @property
    def command_line(self) -> tuple[str, ...]:
        """The command line as messages may show it: with the names of variables, whose values may be secret."""
        return self.shown or (self.command, *self.args)


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """Known settings for signing in to a server; missing ones are discovered or asked for.

    Args:
        client_id: id of a client that is registered at the authorization server; without it a client is registered.
        client_metadata_url: address of a document that describes the client, which a server may accept instead of a registration.
        scopes: what to ask for; () for what the server names.
        private_key: PEM with which `client_credentials` signs in place of `client_secret`, by `signing_algorithm` (RFC 7523).
        callback_port: port of 127.0.0.1 to which the browser returns; 0 takes a free one.
        issuer: the authorization server that the credentials belong to; they are sent nowhere else.
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
        url: its address, `http` or `https`.
        headers: sent with each request.
        transport: `http` is Streamable HTTP, `sse` the older HTTP+SSE, `either` tries them in this order.
        oauth: how to sign in if the server requires it; None never signs in. Not used together with an `Authorization` header.

    `name`, `timeout`, `include_tools`, `exclude_tools`, `roots` and `trust` are as in `StdioServer`.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    transport: Literal["http", "sse", "either"] = "either"
    oauth: OAuth | None = field(default=OAuth(), repr=False)

    @property
    def address(self) -> str:
        """Scheme, host and port, which messages may show; path, query and user can hold secrets."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


ServerConfig = StdioServer | HttpServer


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
