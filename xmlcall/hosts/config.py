"""Read the `mcpServers` JSON that other MCP clients use.

No standard exists. The spellings of Claude, Cursor, VS Code, Cline, Roo, Windsurf and Gemini CLI are accepted (the tables below).
Messages and `repr` never show a value that came out of an environment variable: it may be a secret. Loading a file runs nothing;
opening its servers does.

Variables are expanded after JSON is parsed, in one pass, in `command`, `args`, `env`, `cwd`, `url`, `headers` and `oauth` only,
so a value can never add keys, arguments or further variables.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from ..errors import UsageError

__all__ = ["DEFAULT_TIMEOUT", "HttpServer", "OAuth", "ServerConfig", "StdioServer", "load_servers", "parse_servers"]

DEFAULT_TIMEOUT = 60.0
"""Seconds for one request to a server, if its configuration does not say."""

_ROOTS = ("mcpServers", "servers")  # VS Code says `servers`
_TRANSPORTS: dict[str, Literal["stdio", "http", "sse"]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}
# Our name -> the spellings of the clients. What is not listed lands in `extra`.
_SPELLINGS = {
    "type": ("type", "transport"),
    "url": ("url", "serverUrl", "httpUrl"),
    "auto_approve": ("autoApprove", "alwaysAllow"),
    "include_tools": ("includeTools",),
    "exclude_tools": ("excludeTools", "disabledTools"),
    "roots": ("roots",),
    "command": ("command",),
    "args": ("args",),
    "env": ("env",),
    "cwd": ("cwd",),
    "headers": ("headers",),
    "oauth": ("oauth", "auth"),
    "timeout": ("timeout",),
    "disabled": ("disabled",),
    "enabled": ("enabled",),
    "trust": ("trust",),
}
# The same for the keys of `oauth`; those in capitals are Cursor's.
_OAUTH_SPELLINGS = {
    "clientId": "client_id",
    "CLIENT_ID": "client_id",
    "clientSecret": "client_secret",
    "CLIENT_SECRET": "client_secret",
    "clientMetadataUrl": "client_metadata_url",
    "callbackPort": "callback_port",
    "scopes": "scopes",
    "issuer": "issuer",
    "grantType": "grant",
    "privateKey": "private_key",
    "signingAlgorithm": "signing_algorithm",
}
_GRANTS = ("authorization_code", "client_credentials")
_FLAGS = {"true": True, "false": False}
_SHAPES = {str: "a string", list: "a list", type(None): "nothing"}
_MAX_MILLISECONDS = 1e10  # 115 days
_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])')
_VARIABLE = re.compile(r"\$\{([^}]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


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
        name: for people and for `server__tool` names.
        command: the program; found on the PATH.
        args: its arguments.
        env: added to HOME, LOGNAME, PATH, SHELL, TERM and USER; nothing else of our environment reaches the child.
        cwd: working directory, ours if None.
        timeout: seconds for one request.
        include_tools: names or globs of the tools to offer.
        exclude_tools: names or globs of tools to leave out all the same.
        auto_approve: names or globs of tools that run without asking.
        roots: absolute paths of the folders that are named to the server if it asks where it may work.
        trust: whether to believe the server which of its tools may run twice; nothing runs unasked because of it.
        extra: keys that xmlcall does not know, as they were.
    """

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """What a message may show: the command, without arguments."""
        return self.command


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """What is known beforehand for signing in to a server; each part may be left out, and is then found out or asked for.

    Args:
        client_id: of a client that was registered at the authorization server; without it one is registered.
        client_secret: that belongs to it.
        client_metadata_url: of a document that describes the client, which a server may take in place of a registration.
        callback_port: of 127.0.0.1, to which the browser returns; 0 takes a free one.
        scopes: to ask for beside those that the server names.
        issuer: of the authorization server that the credentials belong to; they are sent nowhere else.
        grant: `authorization_code`, where a person signs in, or `client_credentials`, where the credentials are enough.
        private_key: in PEM, in place of a secret; only with `client_credentials`.
        signing_algorithm: that fits the key, such as `ES256`.
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
        url: its endpoint.
        headers: sent with each request.
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


def load_servers(path: str | os.PathLike[str], environ: Mapping[str, str] = os.environ) -> dict[str, ServerConfig]:
    """Read the servers of an `mcpServers` file; disabled ones are left out.

    Two spellings mean different things to different clients. `timeout` is in milliseconds here, as in most; Cline and Roo mean
    seconds. A `url` without a `type` is Streamable HTTP here; Gemini CLI means the older HTTP+SSE.

    Args:
        path: JSON; comments and trailing commas are accepted.
        environ: where `${VAR}` is looked up.

    Returns:
        The servers by name, in the order of the file.

    Raises:
        UsageError: no such file, not JSON, another shape, or a variable that is not set.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read the MCP configuration {os.fspath(path)!r}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{os.fspath(path)}: expected UTF-8 text, got byte {error.start} that is not") from error
    return parse_servers(text, environ, source=os.fspath(path))


def parse_servers(text: str, environ: Mapping[str, str], source: str = "configuration") -> dict[str, ServerConfig]:
    """Read the text of an `mcpServers` file.

    Args:
        text: JSON; comments and trailing commas are accepted.
        environ: where `${VAR}` is looked up.
        source: what messages call it.

    Raises:
        UsageError: as in `load_servers`.
    """
    document = _parse_json(text, source)
    root = next((key for key in _ROOTS if isinstance(document, dict) and key in document), None)
    if root is None or not isinstance(document[root], dict):
        raise UsageError(f'{source}: expected an object {{"mcpServers": {{name: server}}}}, got {_outline(document)}')
    readers = (_Reader(name, entry, environ, source) for name, entry in document[root].items())
    return {reader.name: reader.server() for reader in readers if reader.enabled()}


def _parse_json(text: str, source: str) -> Any:
    """Parse JSON; comments and trailing commas become blanks first, so that line and column stay those of the file."""
    blanked = _TRAILING_COMMA.sub(_blank, _COMMENT.sub(_blank, text))
    try:
        return json.loads(blanked, object_pairs_hook=lambda pairs: _unique(pairs, source))
    except json.JSONDecodeError as error:
        raise UsageError(f"{source}: not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except UsageError:
        raise
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of more than 4300 digits
        raise UsageError(f"{source}: not JSON that can be read: {error}") from error


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])


def _unique(pairs: list[tuple[str, Any]], source: str) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{source}: the key {repeated!r} stands twice in one object; keep one")
    return result


def _outline(value: Any) -> str:
    """Name the shape of a JSON value; the text of strings is not shown, as it may be a secret."""
    if isinstance(value, dict):
        return f"an object with the keys {', '.join(map(repr, list(value)[:8])) or '(none)'}"
    return _SHAPES[type(value)] if type(value) in _SHAPES else json.dumps(value)[:20]


def _scalar(value: Any) -> Any:
    """Write a number or a truth value as JSON does, which a person meant as a text; anything else stays."""
    return json.dumps(value) if isinstance(value, bool | int | float) else value


class _Reader:
    """Reads one server's entry; every message names `server.field`."""

    def __init__(self, name: str, entry: Any, environ: Mapping[str, str], source: str) -> None:
        self.name, self._environ, self._source = name, environ, source
        if not name:
            raise UsageError(f"{source}: a server has an empty name")
        if not isinstance(entry, dict):
            raise self._wrong("", "an object", entry)
        entry = {key: value for key, value in entry.items() if value is not None}  # null says that nothing is given
        known = {spelling: ours for ours, spellings in _SPELLINGS.items() for spelling in spellings}
        self._keys: dict[str, str] = {}  # our name -> as written, for messages
        for written in entry:
            if written in known and self._keys.setdefault(known[written], written) != written:
                raise UsageError(f"{source}: {name}.{written} and {name}.{self._keys[known[written]]} mean the same; keep one")
        self._entry = {known.get(key, key): value for key, value in entry.items()}
        self._extra = {key: value for key, value in entry.items() if key not in known}

    def enabled(self) -> bool:
        """Tell whether the server is to be used; asked before variables are expanded, as those of a disabled one may be unset."""
        return self._flag("enabled", default=True) and not self._flag("disabled", default=False)

    def server(self) -> ServerConfig:
        transport = self._transport()
        common: dict[str, Any] = {
            "name": self.name,
            "timeout": self._timeout(),
            "include_tools": self._strings("include_tools", default=("*",)),
            "exclude_tools": self._strings("exclude_tools"),
            "auto_approve": self._strings("auto_approve"),
            "roots": tuple(self._folder(path) for path in self._strings("roots")),
            "trust": self._flag("trust", default=False),
            "extra": self._extra,
        }
        if transport == "stdio":
            if "oauth" in self._entry:
                raise UsageError(
                    f'{self._where("oauth")}: only servers with a "url" are signed in to; give secrets to this one by "env"'
                )
            args = tuple(self._expand(value, "args") for value in self._strings("args", scalars=True))
            cwd = self._text("cwd") if "cwd" in self._entry else None
            return StdioServer(command=self._text("command"), args=args, env=self._mapping("env"), cwd=cwd, **common)
        return HttpServer(url=self._url(), headers=self._headers(), transport=transport, oauth=self._oauth(), **common)

    def _transport(self) -> Literal["stdio", "http", "sse", "either"]:
        if "type" not in self._entry:
            if ("command" in self._entry) == ("url" in self._entry):
                raise UsageError(f'{self._source}: {self.name}: expected either "command" or "url", got {_outline(self._entry)}')
            return "stdio" if "command" in self._entry else "either"
        written = self._entry["type"]
        transport = _TRANSPORTS.get(written) if isinstance(written, str) else None
        if transport is None:
            raise UsageError(f'{self._where("type")}: expected one of "stdio", "http", "sse", got {json.dumps(written)[:60]}')
        return transport

    def _url(self) -> str:
        url = self._text("url")
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not _CONTROL.search(url)
        except ValueError:
            usable = False
        if not usable:
            raise UsageError(f"{self._where('url')}: expected a URL that starts with http:// or https:// and names a host")
        return url

    def _headers(self) -> dict[str, str]:
        """Read headers; white space around a value is no part of it (RFC 9110, 5.5), and tokens from files end in a newline."""
        headers = {name: value.strip() for name, value in self._mapping("headers").items()}
        for name, value in headers.items():
            if _CONTROL.search(name + value) or not name.isascii() or not name:
                raise UsageError(f"{self._where('headers')}.{name!r:.40}: a header cannot hold control characters")
        return headers

    def _oauth(self) -> OAuth | None:
        """Read `oauth` (as in Claude Code) or `auth` (Cursor's object, FastMCP's word "oauth")."""
        value = self._entry.get("oauth", {})
        if value == "oauth" or value is True:
            return OAuth()
        if value is False:
            return None
        if not isinstance(value, dict):
            raise self._wrong("oauth", 'an object, "oauth", true or false (a token belongs into "headers")', value)
        if unknown := [key for key in value if key not in _OAUTH_SPELLINGS]:
            raise UsageError(f"{self._where('oauth')}: expected keys of {', '.join(_OAUTH_SPELLINGS)}, got {unknown[0][:60]!r}")
        given = {_OAUTH_SPELLINGS[key]: self._oauth_value(key, item) for key, item in value.items()}
        oauth = OAuth(**given)
        if oauth.grant == "client_credentials" and not (
            oauth.client_id and oauth.issuer and (oauth.client_secret or oauth.private_key)
        ):
            raise UsageError(f"{self._where('oauth')}: client_credentials need clientId, issuer, and clientSecret or privateKey")
        return oauth

    def _oauth_value(self, key: str, value: Any) -> Any:
        if key == "scopes":
            words = value.split() if isinstance(value, str) else value
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise self._wrong("oauth", "a string or a list of strings", value, key)
            return tuple(words)
        if key == "callbackPort":
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
                raise self._wrong("oauth", "a port", value, key)
            return value
        if not isinstance(value, str) or not value:
            raise self._wrong("oauth", "a string", value, key)
        text = self._expand(value, "oauth", key)
        if key == "grantType" and text not in _GRANTS:
            raise UsageError(f"{self._where('oauth', key)}: expected one of {', '.join(_GRANTS)}, got {text[:40]!r}")
        if key == "clientMetadataUrl" and not (text.startswith("https://") and urlsplit(text).path.strip("/")):
            raise UsageError(f"{self._where('oauth', key)}: expected an address that starts with https:// and has a path")
        return text

    def _timeout(self) -> float:
        """Read the timeout, which is in milliseconds as in most clients (Cline and Roo mean seconds)."""
        if "timeout" not in self._entry:
            return DEFAULT_TIMEOUT
        value = self._entry["timeout"]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MAX_MILLISECONDS:
            raise self._wrong("timeout", "a positive number of milliseconds", value)
        return value / 1000

    def _flag(self, key: str, default: bool) -> bool:
        value = self._entry.get(key, default)
        if isinstance(value, str):
            value = _FLAGS.get(value.strip().lower(), value)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def _text(self, key: str) -> str:
        value = self._entry.get(key)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "a string", value)
        return self._expand(value, key)

    def _strings(self, key: str, default: tuple[str, ...] = (), *, scalars: bool = False) -> tuple[str, ...]:
        value = self._entry.get(key, list(default))
        if scalars and isinstance(value, list):
            value = [_scalar(item) for item in value]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of strings", value)
        return tuple(value)

    def _folder(self, path: str) -> str:
        return os.path.abspath(os.path.expanduser(self._expand(path, "roots")))

    def _mapping(self, key: str) -> dict[str, str]:
        value = self._entry.get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, "an object of strings", value)
        given = {name: _scalar(item) for name, item in value.items() if item is not None}
        for name, item in given.items():
            if not isinstance(item, str):
                raise self._wrong(key, "a string", item, name)
        return {name: self._expand(item, key, name) for name, item in given.items()}

    def _expand(self, text: str, key: str, name: str = "") -> str:
        """Replace each `${...}`; an unset variable is an error, never a silent literal."""
        return _VARIABLE.sub(lambda match: self._variable(match, self._where(key, name)), text)

    def _variable(self, match: re.Match[str], where: str) -> str:
        written, closed = match.groups()
        if not closed:
            raise UsageError(f"{where}: '${{' without its '}}'")
        if written.startswith("input:"):
            raise UsageError(f"{where}: ${{{written}}} asks the person, which xmlcall does not; use an environment variable")
        values = (self._alternative(alternative.strip(), where) for alternative in re.split(r" \| ", written))
        found = next((value for value in values if value is not None), None)
        if found is None:
            raise UsageError(f"{where}: the variable {written!r} is not set; set it, or write ${{NAME:-default}}")
        return found

    def _alternative(self, written: str, where: str) -> str | None:
        """Return the value of `NAME`, `env:NAME`, `NAME:-default` (the shell's) or `value:literal`; None if it is not set."""
        if written.startswith("value:"):
            return written.removeprefix("value:")
        name, has_default, default = written.removeprefix("env:").partition(":-")
        if not _NAME.fullmatch(name):
            raise UsageError(f"{where}: expected ${{NAME}}, ${{env:NAME}} or ${{NAME:-default}}, got ${{{written}}}")
        if has_default:
            return self._environ.get(name) or default
        return self._environ.get(name)

    def _where(self, key: str, name: str = "") -> str:
        written = self._keys.get(key, key)
        return f"{self._source}: " + ".".join(part for part in (self.name, written, name) if part)

    def _wrong(self, key: str, expected: str, value: Any, name: str = "") -> UsageError:
        where = self._where(key, name) if key else f"{self._source}: {self.name}"
        return UsageError(f"{where}: expected {expected}, got {_outline(value)}")
