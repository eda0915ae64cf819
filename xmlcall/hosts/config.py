"""Reads servers from the configuration files of other MCP clients.

The spellings of Claude, Cursor, VS Code, Cline, Roo, Windsurf, Gemini CLI, Codex, goose and Continue are accepted; `config_file`
finds the entries in a file, and this module reads an entry. Loading a file runs nothing; opening its servers does.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from ..errors import UsageError
from .config_file import Variables, entries_in, outline, read_env_file
from .server import DEFAULT_TIMEOUT, HttpServer, OAuth, ServerConfig, StdioServer

log = logging.getLogger(__name__)

_MOST_BYTES: Final = 64 << 20  # Claude Code keeps what was typed in the same file


def load_servers(
    path: str | os.PathLike[str], environ: Mapping[str, str] = os.environ, tell: Callable[[str], None] = log.warning
) -> dict[str, ServerConfig]:
    """Read the servers of a file, except disabled ones, and except unusable ones if others are usable.

    Two spellings mean different things to different clients. A `timeout` below 1000 is in seconds here, as Cline and Roo mean,
    and from there on in milliseconds, as most do. A `url` without a `type` is Streamable HTTP here; Gemini CLI means the older
    HTTP+SSE.

    Args:
        path: JSON, with comments and trailing commas if need be; `.toml` and `.yaml` are read as such.
        environ: where `${VAR}` is looked up.
        tell: receives a sentence for each server that is left out, and for each key that would limit a server but is ignored.

    Returns:
        The servers by name, in the order of the file.

    Raises:
        UsageError: no such file, not JSON, another shape, or none of its servers can be used.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read the MCP configuration {os.fspath(path)!r}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{os.fspath(path)}: expected UTF-8 text, got byte {error.start} that is not") from error
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{os.fspath(path)}: expected at most {_MOST_BYTES >> 20} MiB")
    return parse_servers(text, environ, source=os.fspath(path), tell=tell)


def parse_servers(
    text: str, environ: Mapping[str, str], source: str = "configuration", tell: Callable[[str], None] = log.warning
) -> dict[str, ServerConfig]:
    variables = Variables(environ, source)
    found: dict[str, ServerConfig] = {}
    failed: list[UsageError] = []
    notes: list[str] = []
    for name, entry in entries_in(text, source).items():
        try:
            reader = EntryReader(name, entry, variables, source)
            if reader.enabled():
                found[name] = reader.server()
                notes += reader.notes
        except UsageError as error:
            failed.append(error)
    if failed and not found:
        raise failed[0]
    for note in (*(f"{error}; this server is left out" for error in failed), *notes):
        tell(note)
    return found


# -- from one entry to a server: the spellings of many clients, checked; every message names server.field --------------
# Messages and `repr` never show the value of a variable, because it may be a secret. If an entry limits a server in a way that is
# not supported, the user is notified, and the server is used.

Transport = Literal["stdio", "http", "sse", "either"]

# In lower case, without the separators between words.
_WORDS: Final[dict[Transport, str]] = {
    "stdio": "stdio local command",
    "http": "http https httpstream streamable streamablehttp streaminghttp",
    "either": "remote",
    "sse": "sse httpsse",
}
_TRANSPORTS: Final = {word: transport for transport, words in _WORDS.items() for word in words.split()}
# Our name -> the spellings of the clients.
_SPELLINGS: Final = {
    "type": ("type", "transport", "transportType"),
    "url": ("url", "serverUrl", "serverURL", "httpUrl", "baseUrl", "uri"),
    "auto_approve": ("autoApprove", "alwaysAllow"),  # not obeyed, so nothing in it is a reason to refuse the server
    "include_tools": ("includeTools", "include_tools", "tools", "allowedTools", "enabledTools", "enabled_tools"),
    "exclude_tools": ("excludeTools", "exclude_tools", "excludedTools", "disabledTools", "disabled_tools", "blockedTools"),
    "roots": ("roots",),
    "command": ("command", "cmd"),
    "args": ("args",),
    "env": ("env", "envs", "environment"),
    "env_file": ("envFile", "env_file"),
    "passed_on": ("env_vars", "env_keys"),
    "cwd": ("cwd",),
    "headers": ("headers", "http_headers"),
    "header_variables": ("env_http_headers",),
    "token_variable": ("bearer_token_env_var",),
    "oauth": ("oauth", "auth"),
    "timeout": ("timeout",),
    "seconds": ("tool_timeout_sec",),
    "disabled": ("disabled",),
    "enabled": ("enabled", "isActive"),
    "trust": ("trust",),
}
_KNOWN: Final = {spelling: ours for ours, spellings in _SPELLINGS.items() for spelling in spellings}
_FLAGS: Final = {"true": True, "false": False, 1: True, 0: False}
# Values that mean null: empty fields of a form, and empty maps as languages without maps write them.
_EMPTY: Final[dict[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("type", "url", "cwd", "env_file", "timeout"), ("",)),
    **dict.fromkeys(("env", "headers", "oauth"), ("", [])),
    "args": ("", {}),
}
# Parts of the names of keys that limit what a server may do.
_RESTRICTS: Final = re.compile(
    r"allow|approv|block|deny|disable|enable|exclude|filter|forbid|include|permission|read_?only|restrict|sandbox|tools",
    re.IGNORECASE,
)
_MAX_MILLISECONDS: Final = 1e10  # 115 days
_LEAST_MILLISECONDS: Final = 1000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SPACE: Final = re.compile(r"\s")


class EntryReader:
    """Reads one server's entry; `notes` gets a sentence for each part of it that is ignored."""

    def __init__(self, name: str, entry: Any, variables: Variables, source: str) -> None:
        self.name, self.notes, self._variables, self._source = name, list[str](), variables, source
        if not name:
            raise UsageError(f"{source}: a server has an empty name")
        if not isinstance(entry, dict):
            raise self._wrong("", "an object", entry)
        flat = {str(key): value for key, value in _flat(entry).items() if value is not None}
        given = {key: value for key, value in flat.items() if value not in _EMPTY.get(_KNOWN.get(key, key), ())}
        if given.get("command") == "" and any(_KNOWN.get(key) == "url" for key in given):
            del given["command"]
        self._keys: dict[str, str] = {}  # our name -> as written, for messages
        for written, value in given.items():
            first = self._keys.setdefault(_KNOWN[written], written) if written in _KNOWN else written
            if first != written and given[first] != value:
                raise UsageError(f"{source}: {name}.{written} and {name}.{first} mean the same; keep one")
        self._entry = {_KNOWN.get(key, key): value for key, value in given.items()}
        self._unknown = {key: value for key, value in given.items() if key not in _KNOWN}

    def enabled(self) -> bool:
        """Return whether the server is enabled; called before variables are expanded, because a disabled one's may be unset."""
        return self._flag("enabled", default=True) and not self._flag("disabled", default=False)

    def server(self) -> ServerConfig:
        transport = self._transport()
        common: dict[str, Any] = {
            "name": self.name,
            "timeout": self._timeout(),
            "include_tools": self._tools("include_tools", default=("*",)),
            "exclude_tools": self._tools("exclude_tools"),
            "roots": tuple(self._variables.folder(self._expand(path, "roots")) for path in self._strings("roots")),
            "trust": self._flag("trust", default=False),
        }
        for key, value in self._unknown.items():
            if value and _RESTRICTS.search(key):
                self._note(key, "xmlcall does not know what it limits, and does not obey it")
        if transport == "stdio":
            return self._process(common)
        return HttpServer(url=self._url(), headers=self._headers(), transport=transport, oauth=self._oauth(), **common)

    def _process(self, common: dict[str, Any]) -> StdioServer:
        if "oauth" in self._entry and self._oauth() is not None:
            raise UsageError(
                f'{self._where("oauth")}: only servers with a "url" are signed in to; give secrets to this one by "env"'
            )
        args = tuple(self._expand(value, "args", may_be_bare=not _SPACE.search(value)) for value in self._args())
        cwd = self._path("cwd") if "cwd" in self._entry else None
        command = self._path("command")
        # Without values from the environment.
        name, *rest = (self._variables.shown(text, self._source) for text in (self._entry["command"], *self._args()))
        shown = (self._variables.path(name), *rest)
        return StdioServer(command=command, args=args, shown=shown, env=self._env(), cwd=cwd, **common)

    def _args(self) -> tuple[str, ...]:
        value = self._entry.get("args", [])
        return self._texts("args", [_scalar(item) for item in value] if isinstance(value, list) else value)

    def _env(self) -> dict[str, str]:
        """Read the variables of a process: its file's, those passed on, and its own; later ones take priority."""
        found: dict[str, str] = {}
        if "env_file" in self._entry:
            path = os.path.join(self._variables.workspace(), self._path("env_file"))
            found |= read_env_file(path, self._where("env_file"))
        passed_on = ((name, self._variables.get(name)) for name in self._strings("passed_on"))
        return found | {name: value for name, value in passed_on if value is not None} | self._mapping("env")

    def _transport(self) -> Transport:
        if "type" not in self._entry:
            if ("command" in self._entry) == ("url" in self._entry):
                raise UsageError(f'{self._source}: {self.name}: expected either "command" or "url", got {outline(self._entry)}')
            return "stdio" if "command" in self._entry else "either"
        written = self._entry["type"]
        transport = _TRANSPORTS.get(re.sub(r"[\s_+/-]", "", written[:60]).lower()) if isinstance(written, str) else None
        if transport is None:
            shown = json.dumps(written[:60]) if isinstance(written, str) else outline(written)
            raise UsageError(f'{self._where("type")}: expected one of "stdio", "http", "sse", got {shown}')
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
        """Read headers; white space around a value is not part of it (RFC 9110, 5.5), and tokens from files end in a newline."""
        given = self._mapping("headers")
        for name, variable in self._mapping("header_variables").items():
            given[name] = self._variables.variable(variable, self._where("header_variables", name))
        if "token_variable" in self._entry:
            token = self._variables.variable(self._text("token_variable"), self._where("token_variable"))
            given["Authorization"] = f"Bearer {token.strip()}"
        headers = {name: value.strip() for name, value in given.items()}
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
            raise self._wrong("oauth", 'an object, "oauth", true or false (a token belongs in "headers")', value)
        return read_oauth(value, self._where("oauth"), self._variables, self.notes)

    def _timeout(self) -> float:
        """Read the timeout in milliseconds, as in most clients; below 1000 it can only mean seconds, as in Cline and Roo."""
        key = "seconds" if "seconds" in self._entry else "timeout"
        if key not in self._entry:
            return DEFAULT_TIMEOUT
        value = self._entry[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MAX_MILLISECONDS:
            raise self._wrong(key, f"a positive number of {'seconds' if key == 'seconds' else 'milliseconds'}", value)
        return float(value) if key == "seconds" or value < _LEAST_MILLISECONDS else value / 1000

    def _flag(self, key: str, default: bool) -> bool:
        value = self._entry.get(key, default)
        if isinstance(value, str | int) and not isinstance(value, bool):
            value = _FLAGS.get(value.strip().lower() if isinstance(value, str) else value, value)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def _text(self, key: str) -> str:
        value = self._entry.get(key)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "a string", value)
        return self._expand(value, key, may_be_bare=True)

    def _path(self, key: str) -> str:
        return self._variables.path(self._text(key))

    def _tools(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Read a list of tool names, or one name; note any other value as ignored."""
        value, written = self._entry.get(key), self._keys.get(key, "")
        if isinstance(value, dict):
            self._note(written, "it is not a list of names, and is not obeyed")
            return default
        if isinstance(value, str) and written in ("tools", "allowedTools"):
            return (value,)
        return self._strings(key, default)

    def _strings(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        return self._texts(key, self._entry.get(key, list(default)))

    def _texts(self, key: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of strings", value)
        return tuple(value)

    def _mapping(self, key: str) -> dict[str, str]:
        value = self._entry.get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, "an object of strings", value)
        given = {str(name): _scalar(item) for name, item in value.items() if item is not None}
        for name, item in given.items():
            if not isinstance(item, str):
                raise self._wrong(key, "a string", item, name)
        return {name: self._expand(item, key, name, may_be_bare=True) for name, item in given.items()}

    def _expand(self, text: str, key: str, name: str = "", *, may_be_bare: bool = False) -> str:
        return self._variables.expand(text, self._where(key, name), may_be_bare=may_be_bare)

    def _note(self, written: str, what: str) -> None:
        self.notes.append(f"{self._source}: {self.name}.{written[:60]}: {what}")

    def _where(self, key: str, name: str = "") -> str:
        written = self._keys.get(key, key)
        return f"{self._source}: " + ".".join(part for part in (self.name, written, name) if part)

    def _wrong(self, key: str, expected: str, value: Any, name: str = "") -> UsageError:
        return _wrong(self._where(key, name) if key else f"{self._source}: {self.name}", expected, value)


def _flat(entry: Mapping[Any, Any]) -> dict[Any, Any]:
    """Lift up what some clients nest: commands as objects or lists, a transport as an object, headers."""
    found = dict(entry)
    command, transport, options = found.get("command"), found.get("transport"), found.get("requestOptions")
    if isinstance(command, dict) and "path" in command:
        found |= {key: value for key, value in command.items() if key != "path"} | {"command": command["path"]}
    if isinstance(command, list) and command and "args" not in found:
        found |= {"command": command[0], "args": command[1:]}
    if isinstance(transport, dict):
        del found["transport"]
        found = transport | found
    if isinstance(options, dict) and "headers" not in found:
        found["headers"] = options.get("headers")
    return found


def _scalar(value: Any) -> Any:
    """Write a number or a boolean, which was meant as text, as JSON does; anything else stays."""
    return json.dumps(value) if isinstance(value, bool | int | float) else value


# -- the key oauth of an entry: known settings for signing in -----------------------------------------------------------


# The spellings of Claude Code; those in capitals are Cursor's.
_OAUTH_SPELLINGS: Final = {
    **dict.fromkeys(("clientId", "client_id", "CLIENT_ID"), "client_id"),
    **dict.fromkeys(("clientSecret", "client_secret", "CLIENT_SECRET"), "client_secret"),
    "clientMetadataUrl": "client_metadata_url",
    "callbackPort": "callback_port",
    **dict.fromkeys(("scopes", "scope"), "scopes"),
    "issuer": "issuer",
    "grantType": "grant",
    "privateKey": "private_key",
    "signingAlgorithm": "signing_algorithm",
}
_GRANTS: Final = ("authorization_code", "client_credentials")


def read_oauth(value: dict[Any, Any], where: str, variables: Variables, notes: list[str]) -> OAuth | None:
    """Read the object; null and "" in it mean that nothing is given, and unknown keys are noted."""
    enabled = value.get("enabled")
    if enabled is not None and not isinstance(enabled, bool):
        raise _wrong(f"{where}.enabled", "true or false", enabled)
    if enabled is False:
        return None
    given = {str(key): item for key, item in value.items() if item not in (None, "") and key != "enabled"}
    if unknown := [key[:60] for key in given if key not in _OAUTH_SPELLINGS]:
        notes.append(f"{where}: ignored {', '.join(unknown[:8])}: known are {', '.join(_OAUTH_SPELLINGS)}")
    known = [key for key in given if key in _OAUTH_SPELLINGS]  # of two spellings of one field, the last counts
    oauth = OAuth(**{_OAUTH_SPELLINGS[key]: _oauth_value(key, given[key], f"{where}.{key}", variables) for key in known})
    is_whole = oauth.client_id and oauth.issuer and (oauth.client_secret or oauth.private_key)
    if oauth.grant == "client_credentials" and not is_whole:
        raise UsageError(f"{where}: client_credentials need clientId, issuer, and clientSecret or privateKey")
    return oauth


def _oauth_value(key: str, value: Any, where: str, variables: Variables) -> Any:
    if _OAUTH_SPELLINGS[key] == "scopes":
        words = value.split() if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise _wrong(where, "a string or a list of strings", value)
        return tuple(words)
    if key == "callbackPort":
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
            raise _wrong(where, "a port", value)
        return value
    if not isinstance(value, str) or not value:
        raise _wrong(where, "a string", value)
    text = variables.expand(value, where, may_be_bare=True)
    if key == "grantType" and text not in _GRANTS:
        raise UsageError(f"{where}: expected one of {', '.join(_GRANTS)}, got another text")
    if key == "clientMetadataUrl" and not (text.startswith("https://") and urlsplit(text).path.strip("/")):
        raise UsageError(f"{where}: expected an address that starts with https:// and has a path")
    return text


def _wrong(where: str, expected: str, value: Any) -> UsageError:
    return UsageError(f"{where}: expected {expected}, got {outline(value)}")
