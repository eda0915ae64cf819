"""From the text of a configuration to the entries of its servers: JSON, TOML and YAML, and the places where clients keep them.

No standard exists. Beside `mcpServers` there are VS Code's `servers`, Codex's `mcp_servers` in TOML, the `extensions` of goose
and the list of Continue in YAML, and the `projects` of Claude Code, each for one folder.
"""

import importlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from ..errors import UsageError

__all__ = ["SUFFIXES", "entries_in", "outline"]

SUFFIXES: Final = (".json", ".jsonc", ".toml", ".yaml", ".yml")
"""Of the files that are read; any other is taken for JSON."""

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
# Lists of names that choose among the servers of a file: where they stand, and whether they name those that are left out.
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
    """Return the entries of servers, by name, in the order of the file."""
    suffix = PurePath(source).suffix.lower()
    document = _PARSERS.get(suffix, _parse_json)(text, source)
    entries = _root(document, _YAML_ROOTS if suffix in (".yaml", ".yml") else _ROOTS)
    here, elsewhere = _of_projects(document)
    if not entries and not here and elsewhere:
        named = ", ".join(f"{folder} ({', '.join(map(str, servers))})" for folder, servers in list(elsewhere.items())[:_NAMED])
        raise UsageError(f"{source}: its servers belong to other folders, and none to this: {named}: run xmlcall in one of those")
    if entries is None and not here:
        raise UsageError(f'{source}: expected an object {{"mcpServers": {{name: server}}}}, got {outline(document)}')
    return _chosen(_named(entries or {}, source) | here, document)


def outline(value: Any) -> str:
    """Name the shape of a value; the text of strings is not shown, as it may be a secret."""
    if isinstance(value, dict):
        return f"an object with the keys {', '.join(map(repr, list(value)[:8])) or '(none)'}"
    return _SHAPES[type(value)] if type(value) in _SHAPES else json.dumps(value, default=lambda other: type(other).__name__)[:20]


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _root(document: Any, roots: tuple[tuple[str, ...], ...]) -> dict[Any, Any] | list[Any] | None:
    """Return what holds the servers: the first that is not empty, else an empty one; None if there is none."""
    found = [_at(document, path) for path in roots] + [_of_opencode(document)]
    usable: list[dict[Any, Any] | list[Any]] = [value for value in found if isinstance(value, dict) or _is_listing(value)]
    return next((value for value in usable if value), usable[0] if usable else None)


def _of_opencode(document: Any) -> Any:
    """Return the servers that opencode has right under `mcp`, where Gemini CLI has lists and VS Code an object of servers."""
    entries = _at(document, ("mcp",))
    is_one = isinstance(entries, dict) and all(isinstance(each, dict) and "type" in each for each in entries.values())
    return entries if is_one else None


def _is_listing(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


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
    """Return the servers of the folder that we are in, or of the nearest above it, and the names of others by their folders."""
    projects = _at(document, ("projects",))
    listed = projects.items() if isinstance(projects, dict) else ()
    held = {str(folder): project for folder, project in listed if _is_filled(_at(project, ("mcpServers",)))}
    here = os.path.join(os.getcwd(), "") if held else ""
    near = [folder for folder in held if os.path.isabs(folder) and here.startswith(os.path.join(folder, ""))]
    if not near:
        return {}, {folder: list(project["mcpServers"]) for folder, project in held.items()}
    project = held[max(near, key=len)]
    left_out = _at(project, ("disabledMcpServers",)) or ()
    return {str(name): entry for name, entry in project["mcpServers"].items() if name not in left_out}, {}


def _is_filled(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


def _chosen(entries: dict[str, Any], document: Any) -> dict[str, Any]:
    for path, leaves_out in _CHOICES:
        names = _at(document, path)
        if isinstance(names, list):
            entries = {name: entry for name, entry in entries.items() if (name in names) is not leaves_out}
    return entries


# -- formats -----------------------------------------------------------------------------------------------------------


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
    """Tell whether a document is too large to be looked through; aliases can make one of any size, or one without end."""
    waiting, count = [document], 0
    while waiting and count <= most:
        node = waiting.pop()
        inside = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
        count += len(inside)
        waiting += inside
    return count > most


_PARSERS: Final[Mapping[str, Any]] = {".toml": _parse_toml, ".yaml": _parse_yaml, ".yml": _parse_yaml}
