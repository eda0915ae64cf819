"""Reads a person's TOML files, up to a size limit, and writes them. Errors name the file, what was expected and what it has."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from .errors import UsageError

MOST_BYTES: Final = 64 * 1024
_SHOWN: Final = 200  # characters of a message that others chose
_HALF: Final = re.compile(r"[\ud800-\udfff]")
_UNSAFE: Final = re.compile(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")  # of a string in JSON


def read_toml(file: Path, what: str) -> dict[str, Any]:
    """Read a TOML file without checking its content."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"expected {what} in {file}, got: {error.strerror or error}") from error
    if len(content) > MOST_BYTES:
        raise UsageError(f"expected {what} in {file}, of {MOST_BYTES:,} bytes at most, got more")
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"expected TOML in {file}, got: {str(error)[:_SHOWN]}") from error


def toml_text(table: Mapping[str, Any]) -> str:
    """Write strings, numbers, truth values, lists of them and tables; a list of tables becomes `[[...]]`."""
    return "\n".join(_lines(table, "")) + "\n"


def _lines(table: Mapping[str, Any], path: str) -> Iterator[str]:
    """Write the simple keys first: what follows a table's head belongs to that table."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping) or _has_tables(value)}
    yield from (f"{_key(key)} = {toml_value(value)}" for key, value in table.items() if key not in inner)
    for key, value in inner.items():
        name = f"{path}{_key(key)}"
        head = f"[{name}]" if isinstance(value, Mapping) else f"[[{name}]]"
        for each in [value] if isinstance(value, Mapping) else value:
            yield from ("", head, *_lines(each, f"{name}."))


def _has_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(each, Mapping) for each in value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)


def toml_value(value: Any) -> str:
    """Write a JSON value on one line; what TOML does not have (null, half characters) is left out or replaced."""
    if isinstance(value, Mapping):
        members = [f"{_key(str(key))} = {toml_value(each)}" for key, each in value.items() if each is not None]
        return f"{{ {', '.join(members)} }}" if members else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(each) for each in value if each is not None)}]"
    # JSON's strings are TOML's, except for some control characters; infinity and NaN have other names there.
    text = json.dumps(_HALF.sub("\ufffd", value) if isinstance(value, str) else value, ensure_ascii=False)
    text = _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(text, text)
