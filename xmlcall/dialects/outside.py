"""Wire formats from outside: rows in TOML files, and rows that installed packages declare as entry points.

A row is data, so a file is read strictly and nothing in it is executed. A row that could not be read, or that would capture
another format's calls, is refused with the reason; else a reply would silently become text or another format's call.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from ..errors import UsageError
from ..toml_file import read_toml
from .dialect import Body, Dialect, ResultForm, TypeMark, length_of_tag

GROUP: Final = "xmlcall.dialects"
"""The group of entry points; each one is a `Dialect`."""

_SAMPLE: Final = "read_file"
_BODIES: Final = {body.name.lower(): body for body in Body}
_OPENERS: Final = ("call_open", "block_open")


def read_row(file: Path) -> Dialect:
    """Read a row from TOML, whose keys are the arguments of `Dialect`; its errors name the file and what was expected."""
    data = read_toml(file, "a wire format")
    try:
        return Dialect(**_arguments(data))
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error


def _arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name: field for field in fields(Dialect)}
    if unknown := sorted(data.keys() - known):
        raise UsageError(f"expected keys of {', '.join(known)}, got {unknown[0]!r}; correct its name")
    needed = [name for name, field in known.items() if field.default is MISSING]
    if missing := [name for name in needed if name not in data]:
        raise UsageError(f"expected the keys {', '.join(needed)}; missing: {', '.join(missing)}; add them")
    return {name: _READERS.get(str(known[name].type), _text)(name, value) for name, value in data.items()}


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"expected a text as {name}, got {value!r:.80}")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"expected true or false as {name}, got {value!r:.80}")
    return value


def _texts(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise UsageError(f"expected a table of texts as {name}, got {value!r:.80}")
    return {key: _text(f"{name}.{key}", each) for key, each in value.items()}


def _pair(name: str, value: Any) -> tuple[str, str]:
    if not (isinstance(value, list) and len(value) == 2):
        raise UsageError(f"expected two texts as {name}, got {value!r:.80}")
    return _text(name, value[0]), _text(name, value[1])


def _body(name: str, value: Any) -> Body:
    if value not in _BODIES:
        raise UsageError(f"expected {', '.join(_BODIES)} as {name}, got {value!r:.80}")
    return _BODIES[value]


def _mark(name: str, value: Any) -> TypeMark:
    texts = _texts(name, value)
    if texts.keys() != {"written", "attribute", "value"}:
        raise UsageError(f"expected the keys written, attribute and value in {name}, got {', '.join(texts) or 'none'}")
    return TypeMark(written=texts["written"], attribute=texts["attribute"], value=texts["value"])


def _results(name: str, value: Any) -> ResultForm:
    texts, known = _texts(name, value), [field.name for field in fields(ResultForm)]
    if unknown := sorted(texts.keys() - set(known)):
        raise UsageError(f"expected keys of {', '.join(known)} in {name}, got {unknown[0]!r}; correct its name")
    if missing := sorted({"result_open", "result_close"} - texts.keys()):
        raise UsageError(f"expected the keys result_open and result_close in {name}, got no {missing[0]}; add it")
    return ResultForm(**texts)


_READERS: Final = {
    str(bool): _flag,
    str(dict[str, str]): _texts,
    str(tuple[str, str]): _pair,
    str(Body): _body,
    str(TypeMark | None): _mark,
    str(ResultForm): _results,
}
"""The type of an argument -> the function that reads its value; all other values are texts."""


def shadowed(row: Dialect, rows: Iterable[Dialect]) -> str:
    """Say why a row conflicts with others: it has the name of one, or reads its calls. Return "" if it does not.

    Rows may share a wrapper if the text after it distinguishes them, so only rows of different notations may share one.
    """
    for other in rows:
        if other.name == row.name:
            return f"expected a name that no other format has, got {row.name!r}; choose another one"
        for kind in _OPENERS:
            text = other.written.get(kind, "").replace("{name}", _SAMPLE)
            is_alike = kind in row.tags and (kind == "call_open" or other.body is row.body)
            if text and is_alike and length_of_tag(row.tags[kind], text):
                found = f"a {kind} that reads {text!r} of {other.name!r}"
                return f"expected tags of its own, got {found}; use that format, or narrow it"
    return ""


def installed_rows(points: Iterable[EntryPoint] | None = None) -> tuple[list[Dialect], list[str]]:
    """Return the rows that installed packages declare, and the reasons why others are refused."""
    rows, problems = list[Dialect](), list[str]()
    for point in entry_points(group=GROUP) if points is None else points:
        try:
            row = point.load()
        except (ImportError, AttributeError, UsageError) as error:
            problems.append(f"the wire format {point.name!r} of {point.value} is left out: {error}")
            continue
        if isinstance(row, Dialect):
            rows.append(row)
        else:
            problem = f"expected a Dialect, got {type(row).__name__}"
            problems.append(f"the wire format {point.name!r} of {point.value} is left out: {problem}")
    return rows, problems
