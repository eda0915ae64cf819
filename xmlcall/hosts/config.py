"""Read the configuration of servers that other MCP clients use.

The spellings of Claude, Cursor, VS Code, Cline, Roo, Windsurf, Gemini CLI, Codex, goose and Continue are accepted; the tables
are in `config_file` and `config_entry`. Loading a file runs nothing; opening its servers does.
"""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ..errors import UsageError
from .config_entry import EntryReader
from .config_file import entries_in
from .config_variables import Variables
from .server import DEFAULT_TIMEOUT, HttpServer, OAuth, ServerConfig, StdioServer

__all__ = ["DEFAULT_TIMEOUT", "HttpServer", "OAuth", "ServerConfig", "StdioServer", "load_servers", "parse_servers"]

log = logging.getLogger(__name__)

_MOST_BYTES: Final = 64 << 20  # Claude Code keeps what was typed in the same file


def load_servers(
    path: str | os.PathLike[str], environ: Mapping[str, str] = os.environ, tell: Callable[[str], None] = log.warning
) -> dict[str, ServerConfig]:
    """Read the servers of a file; disabled ones are left out, and so are those that cannot be used, if others can.

    Two spellings mean different things to different clients. A `timeout` below 1000 is in seconds here, as Cline and Roo mean,
    and from there on in milliseconds, as most do. A `url` without a `type` is Streamable HTTP here; Gemini CLI means the older
    HTTP+SSE.

    Args:
        path: JSON, with comments and trailing commas if need be; `.toml` and `.yaml` are read as such.
        environ: where `${VAR}` is looked up.
        tell: is given a sentence for each server that is left out, and for each key that limits a server and is not obeyed.

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
    """Read the text of a file."""
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
