"""Variables in the configuration of servers: of the environment, and the names that editors know.

One pass: a value is never expanded again, so it can add neither keys nor arguments nor further variables. What is not set is an
error, never a silent literal or an empty text.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ..errors import UsageError

__all__ = ["Variables"]

# `${{ secrets.NAME }}` of Continue; `${...}` of all; `$NAME` of Gemini CLI, which is read only where no shell would read it.
_VARIABLE: Final = re.compile(
    r"\$\{\{\s*(?:secrets|env|inputs)\.(?P<secret>[A-Za-z_][A-Za-z0-9_]*)\s*\}\}"
    r"|\$\{(?P<braced>[^}]*)(?P<closed>\}?)"
    r"|(?<![\w$\\])\$(?P<bare>[A-Za-z_][A-Za-z0-9_]*)"
)
_ENDS: Final = frozenset(("", *" =:/@,;?&\"'"))  # what stands before and behind a part of a text
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROJECT_FOLDERS: Final = frozenset(
    {".amazonq", ".claude", ".codex", ".continue", ".cursor", ".gemini", ".kiro", ".roo", ".vscode", ".windsurf", ".zed"}
)
"""In which the file of a project stands, one below the project."""


class Variables:
    """What can be written in a configuration for something else.

    Args:
        source: path of the file; a name that is no path counts as one in the working directory.
    """

    def __init__(self, environ: Mapping[str, str], source: str) -> None:
        self._environ, self._file = environ, Path(source)

    def expand(self, text: str, where: str, *, may_be_bare: bool = False) -> str:
        """Replace each variable."""

        def value(match: re.Match[str]) -> str:
            if match["secret"]:
                return self.variable(match["secret"], where)
            if match["bare"]:
                return self._bare(match, where) if may_be_bare else match[0]
            return self._braced(match["braced"], bool(match["closed"]), where)

        return _VARIABLE.sub(value, text)

    def shown(self, text: str, where: str) -> str:
        """Replace the variables that editors know; those of the environment stay as they are written, as they may be secrets."""

        def value(match: re.Match[str]) -> str:
            alternatives = (match["braced"] or "").split(" | ")
            is_known = all(each.strip().startswith(_OPEN) or each.strip() in _EDITORS for each in alternatives)
            return self.expand(match[0], where) if is_known else match[0]

        return _VARIABLE.sub(value, text)

    def variable(self, name: str, where: str) -> str:
        """Return a variable of the environment."""
        if name not in self._environ:
            raise UsageError(f"{where}: the variable {name[:80]!r} is not set; set it, or write ${{NAME:-default}}")
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
        """Return a folder as an absolute path."""
        return os.path.abspath(self.path(text))

    def home(self) -> str:
        """Return the person's folder."""
        return self._environ.get("HOME") or os.path.expanduser("~")

    def workspace(self) -> str:
        """Return the folder of the project: that of the file, if it stands where a project's does; else the working directory."""
        folder = self._folder()
        if folder.name in _PROJECT_FOLDERS and str(folder.parent) != self.home():
            return str(folder.parent)
        return str(folder) if self._file.name == ".mcp.json" else os.getcwd()

    def _folder(self) -> Path:
        return Path(os.path.abspath(self._file)).parent

    def _bare(self, match: re.Match[str], where: str) -> str:
        """Read `$NAME`. One that is not set is an error where it is a part of its own; else it may belong to a password."""
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
    "workspaceFolder": Variables.workspace,
    "workspaceRoot": Variables.workspace,
    "fileWorkspaceFolder": Variables.workspace,
    "workspacePath": Variables.workspace,
    "workspaceFolderBasename": lambda known: os.path.basename(known.workspace()),
    "cwd": lambda known: os.getcwd(),
    "userHome": Variables.home,
    "pathSeparator": lambda known: os.sep,
    "/": lambda known: os.sep,
    "extensionPath": lambda known: str(known._folder()),
    "__dirname": lambda known: str(known._folder()),
}
_OPEN: Final = ("value:", "workspaceFolder:")  # how variables begin that are not of the environment
# What Claude Code sets for its servers.
_UNSET: Final[dict[str, Callable[[Variables], str]]] = {
    "CLAUDE_PROJECT_DIR": Variables.workspace,
    "CLAUDE_PLUGIN_ROOT": lambda known: str(known._folder()),
}
