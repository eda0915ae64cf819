"""Finds the entries of servers in a configuration: in JSON, TOML or YAML, in the places where clients keep them.

No standard exists. Besides `mcpServers` there are VS Code's `servers`, Codex's `mcp_servers` in TOML, the `extensions` of goose
and the list of Continue in YAML, and the `projects` of Claude Code, each for one folder.
"""

import importlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from ..errors import UsageError

SUFFIXES: Final = (".json", ".jsonc", ".toml", ".yaml", ".yml")
"""Suffixes of the files that are read; any other file is treated as JSON."""

_ROOTS: Final = (
    ("mcpServers",),
    ("servers",),
    ("mcp_servers",),
    ("context_servers",),
    ("amp.mcpServers",),
    ("mcp", "servers"),
    ("mcp", "mcpServers"),
)
_YAML_ROOTS: Final = (*_ROOTS, ("extensions",))
# Lists of names that select servers of a file: their paths, and whether they name the servers to leave out.
_CHOICES: Final = (
    (("mcp", "allowed"), False),
    (("mcp", "excluded"), True),
    (("allowMCPServers",), False),
    (("excludeMCPServers",), True),
)
_SHAPES: Final = {str: "a string", list: "a list", type(None): "nothing"}
_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])')
_NAMED: Final = 8  # folders in a message
_MOST_VALUES: Final = 100_000


def entries_in(text: str, source: str) -> dict[str, Any]:
    suffix = PurePath(source).suffix.lower()
    document = _PARSERS.get(suffix, _parse_json)(text, source)
    entries = _root(document, _YAML_ROOTS if suffix in (".yaml", ".yml") else _ROOTS)
    here, elsewhere = _of_projects(document)
    if not entries and not here and elsewhere:
        named = ", ".join(f"{folder} ({', '.join(map(str, servers))})" for folder, servers in list(elsewhere.items())[:_NAMED])
        raise UsageError(f"{source}: its servers belong to other folders than this one: {named}: run xmlcall in one of those")
    if entries is None and not here:
        raise UsageError(f'{source}: expected an object {{"mcpServers": {{name: server}}}}, got {outline(document)}')
    return _chosen(_named(entries or {}, source) | here, document)


def outline(value: Any) -> str:
    """Describe the shape of a value without the text of strings, which may be secret."""
    if isinstance(value, dict):
        return f"an object with the keys {', '.join(map(repr, list(value)[:8])) or '(none)'}"
    return _SHAPES[type(value)] if type(value) in _SHAPES else json.dumps(value, default=lambda other: type(other).__name__)[:20]


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _root(document: Any, roots: tuple[tuple[str, ...], ...]) -> dict[Any, Any] | list[Any] | None:
    """Return the container of the servers: the first that is not empty, else an empty one; None if there is none."""
    found = [_at(document, path) for path in roots] + [_of_opencode(document)]
    usable: list[dict[Any, Any] | list[Any]] = [
        value
        for value in found
        if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value))
    ]
    return next((value for value in usable if value), usable[0] if usable else None)


def _of_opencode(document: Any) -> Any:
    """Return the servers that opencode keeps directly under `mcp`, where Gemini CLI has lists and VS Code an object."""
    entries = _at(document, ("mcp",))
    is_one = isinstance(entries, dict) and all(isinstance(each, dict) and "type" in each for each in entries.values())
    return entries if is_one else None


def _named(entries: dict[Any, Any] | list[Any], source: str) -> dict[str, Any]:
    """Give each entry its name; those of a list hold it themselves."""
    if isinstance(entries, dict):
        return {str(name): entry for name, entry in entries.items()}
    found: dict[str, Any] = {}
    for number, entry in enumerate(entries, 1):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name in found:
            raise UsageError(f'{source}: server {number}: expected a "name" that no other has')
        found[name] = {key: value for key, value in entry.items() if key != "name"}
    return found


def _of_projects(document: Any) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the servers of the working directory, or of the nearest folder above it, or else the names of others by folder."""
    projects = _at(document, ("projects",))
    listed = projects.items() if isinstance(projects, dict) else ()
    with_servers = ((folder, project, _at(project, ("mcpServers",))) for folder, project in listed)
    held = {str(folder): project for folder, project, servers in with_servers if servers and isinstance(servers, dict)}
    here = os.path.join(os.getcwd(), "") if held else ""
    near = [folder for folder in held if os.path.isabs(folder) and here.startswith(os.path.join(folder, ""))]
    if not near:
        return {}, {folder: list(project["mcpServers"]) for folder, project in held.items()}
    project = held[max(near, key=len)]
    left_out = _at(project, ("disabledMcpServers",)) or ()
    return {str(name): entry for name, entry in project["mcpServers"].items() if name not in left_out}, {}


def _chosen(entries: dict[str, Any], document: Any) -> dict[str, Any]:
    for path, leaves_out in _CHOICES:
        names = _at(document, path)
        if isinstance(names, list):
            entries = {name: entry for name, entry in entries.items() if (name in names) is not leaves_out}
    return entries


# -- formats -----------------------------------------------------------------------------------------------------------


def _parse_json(text: str, source: str) -> Any:
    """Parse JSON; comments and trailing commas become blanks first, so that lines and columns stay right in errors."""
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
        raise UsageError(f"{source}: the key {repeated!r} occurs twice in one object; keep one")
    return result


def _parse_toml(text: str, source: str) -> Any:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source}: not TOML: {str(error)[:200]}") from error


def _parse_yaml(text: str, source: str) -> Any:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        why = "YAML is read only where the package PyYAML is installed"
        raise UsageError(f"{source}: {why}: install it, or write the servers as JSON") from None
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UsageError(f"{source}: not YAML: {getattr(error, 'problem', None) or 'it cannot be read'}{place}") from error
    if _has_more_values_than(_MOST_VALUES, document):
        raise UsageError(f"{source}: expected at most {_MOST_VALUES:,} values, each counted as often as an alias repeats it")
    return document


def _has_more_values_than(most: int, document: Any) -> bool:
    """Return whether a document is too large to walk; aliases can make one of any size, or an endless one."""
    waiting, count = [document], 0
    while waiting and count <= most:
        node = waiting.pop()
        inside = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
        count += len(inside)
        waiting += inside
    return count > most


_PARSERS: Final[Mapping[str, Any]] = {".toml": _parse_toml, ".yaml": _parse_yaml, ".yml": _parse_yaml}


# -- variables: of the environment, and the names that editors know ----------------------------------------------------
# One pass: a value is never expanded again, so it can add neither keys nor arguments nor further variables. An unset variable is
# an error, never a literal or an empty text.


# `${{ secrets.NAME }}` of Continue; `${...}` of all; `$NAME` of Gemini CLI, which is read only where no shell would read it.
_VARIABLE: Final = re.compile(
    r"\$\{\{\s*(?:secrets|env|inputs)\.(?P<secret>[A-Za-z_][A-Za-z0-9_]*)\s*\}\}"
    r"|\$\{(?P<braced>[^}]*)(?P<closed>\}?)"
    r"|(?<![\w$\\])\$(?P<bare>[A-Za-z_][A-Za-z0-9_]*)"
)
_ENDS: Final = frozenset(("", *" =:/@,;?&\"'"))  # what delimits a part of a text
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROJECT_FOLDERS: Final = frozenset(
    {".amazonq", ".claude", ".codex", ".continue", ".cursor", ".gemini", ".kiro", ".roo", ".vscode", ".windsurf", ".zed"}
)
"""Folders of a project that hold its configuration files."""


class Variables:
    """The variables of a configuration; a `source` that is not a path counts as a file in the working directory."""

    def __init__(self, environ: Mapping[str, str], source: str) -> None:
        self._environ, self._file = environ, Path(source)

    def expand(self, text: str, where: str, *, may_be_bare: bool = False) -> str:
        def value(match: re.Match[str]) -> str:
            if match["secret"]:
                return self.variable(match["secret"], where)
            if match["bare"]:
                return self._bare(match, where) if may_be_bare else match[0]
            return self._braced(match["braced"], bool(match["closed"]), where)

        return _VARIABLE.sub(value, text)

    def shown(self, text: str, where: str) -> str:
        """Replace only the variables that editors know; those of the environment may be secrets."""

        def value(match: re.Match[str]) -> str:
            alternatives = (match["braced"] or "").split(" | ")
            is_known = all(each.strip().startswith(_OPEN) or each.strip() in _EDITORS for each in alternatives)
            return self.expand(match[0], where) if is_known else match[0]

        return _VARIABLE.sub(value, text)

    def variable(self, name: str, where: str) -> str:
        if name not in self._environ:  # a person may have written the secret itself, so only what looks like a name is shown
            shown = repr(name) if _NAME.fullmatch(name) and name.isupper() else "that is named here"
            raise UsageError(f"{where}: the variable {shown} is not set; set it, or write ${{NAME:-default}}")
        return self._environ[name]

    def get(self, name: str) -> str | None:
        """Return a variable of the environment; None if it is not set."""
        return self._environ.get(name)

    def path(self, text: str) -> str:
        """Replace `~` at the beginning of a path."""
        if text == "~" or text.startswith("~/"):
            return self.home() + text[1:]
        return os.path.expanduser(text)

    def folder(self, text: str) -> str:
        return os.path.abspath(self.path(text))

    def home(self) -> str:
        return self._environ.get("HOME") or os.path.expanduser("~")

    def workspace(self) -> str:
        """Return the folder of the project: the file's, if it is a project's file; else the working directory."""
        folder = self._folder()
        if folder.name in _PROJECT_FOLDERS and str(folder.parent) != self.home():
            return str(folder.parent)
        return str(folder) if self._file.name == ".mcp.json" else os.getcwd()

    def _folder(self) -> Path:
        return Path(os.path.abspath(self._file)).parent

    def _bare(self, match: re.Match[str], where: str) -> str:
        """Read `$NAME`. An unset one is an error if it is delimited; otherwise it may be part of a password."""
        name, text = match["bare"], match.string
        if name in self._environ:
            return self._environ[name]
        before, after = text[: match.start()][-1:], text[match.end() :][:1]
        if name.isupper() and before in _ENDS and after in _ENDS:
            what = f"the variable {name[:80]!r} is not set"
            raise UsageError(f"{where}: {what}; set it, or write ${{value:${name[:80]}}} if the text itself is meant")
        return match[0]

    def _braced(self, written: str, closed: bool, where: str) -> str:
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
        if editors := _EDITORS.get(written.partition(":")[0] if written.startswith("workspaceFolder:") else written):
            return editors(self)
        name, has_default, default = written.removeprefix("env:").partition(":-")
        if not _NAME.fullmatch(name):
            raise UsageError(f"{where}: expected ${{NAME}}, ${{env:NAME}} or ${{NAME:-default}}, got ${{{written}}}")
        if has_default:
            return self._environ.get(name) or default
        found = self._environ.get(name)
        return _UNSET[name](self) if found is None and name in _UNSET else found


# The names of VS Code, Cursor, Roo Code and Gemini CLI.
_EDITORS: Final[dict[str, Callable[[Variables], str]]] = {
    **dict.fromkeys(("workspaceFolder", "workspaceRoot", "fileWorkspaceFolder", "workspacePath"), Variables.workspace),
    "workspaceFolderBasename": lambda known: os.path.basename(known.workspace()),
    "cwd": lambda known: os.getcwd(),
    "userHome": Variables.home,
    **dict.fromkeys(("pathSeparator", "/"), lambda known: os.sep),
    **dict.fromkeys(("extensionPath", "__dirname"), lambda known: str(known._folder())),
}
_OPEN: Final = ("value:", "workspaceFolder:")  # how variables begin that are not of the environment
# What Claude Code sets for its servers.
_UNSET: Final[dict[str, Callable[[Variables], str]]] = {
    "CLAUDE_PROJECT_DIR": Variables.workspace,
    "CLAUDE_PLUGIN_ROOT": lambda known: str(known._folder()),
}


# -- a file of variables, one NAME=value a line, as VS Code's envFile names it; nothing in it is expanded --------------

_MOST_ENV_BYTES: Final = 1 << 20
_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")
_QUOTED: Final = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(path: str, where: str) -> dict[str, str]:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_ENV_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{where}: cannot read the file of variables: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
        ) from error
    if len(content) > _MOST_ENV_BYTES:
        raise UsageError(f"{where}: expected a file of at most {_MOST_ENV_BYTES:,} bytes")
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return dict(_assignment(line, f"{where}, line {number}") for number, line in lines if line and not line.startswith("#"))


def _assignment(line: str, where: str) -> tuple[str, str]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise UsageError(f"{where}: expected NAME=value")  # the line itself may hold a secret
    name, value = match.groups()
    if quoted := _QUOTED.match(value):
        plain, literal = quoted.groups()
        return name, literal if plain is None else re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), plain)
    return name, re.split(r"\s#", value, maxsplit=1)[0].strip()
