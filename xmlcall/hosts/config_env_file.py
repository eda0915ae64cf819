"""A file of environment variables, a `NAME=value` a line, as VS Code's `envFile` names it. Nothing in it is expanded."""

import re
from pathlib import Path
from typing import Final

from ..errors import UsageError

__all__ = ["read_env_file"]

_MOST_BYTES: Final = 1 << 20
_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")
_QUOTED: Final = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(path: str, where: str) -> dict[str, str]:
    """Read the variables of a file."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{where}: cannot read the file of variables: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
        ) from error
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{where}: expected a file of at most {_MOST_BYTES:,} bytes")
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
