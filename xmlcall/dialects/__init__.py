"""Wire formats as data: one row for each dialect, used by the scanner and the renderer."""

import functools
import warnings
from collections.abc import Mapping
from pathlib import Path

from ..errors import UsageError
from .body_families import JSON, OBJECTS, PYTHON
from .dialect import OWN_RESULTS, Body, Dialect, ResultForm
from .outside import installed_rows, read_row, shadowed
from .tag_family import TAGS

__all__ = ["BUILT_IN", "DIALECTS", "Body", "Dialect", "add", "known", "result_form_of", "result_openers", "select"]

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (*TAGS, *OBJECTS, *PYTHON, *JSON)}
BUILT_IN = frozenset(DIALECTS)


def add(row: Dialect) -> None:
    """Add a format to those that this process reads and writes from now on."""
    if DIALECTS.get(row.name) == row:
        return
    if problem := shadowed(row, DIALECTS.values()):
        raise UsageError(f"the format {row.name!r} is not added: {problem}")
    DIALECTS[row.name] = row


def _add_installed() -> None:
    """Add the rows of installed packages; warn about those that cannot be added."""
    rows, problems = installed_rows()
    for row in rows:
        try:
            add(row)
        except UsageError as error:
            problems.append(str(error))
    for problem in problems:
        warnings.warn(problem, stacklevel=2)


_add_installed()


def result_form_of(text: str) -> ResultForm | None:
    """Return the result form of a message of role `user` that contains results; None if it has a person's words."""
    if not text.startswith(("<", "[")):  # every form begins so; most messages are a person's
        return None
    return next((form for opener, form in result_openers().items() if text.startswith(opener)), None)


def result_openers() -> Mapping[str, ResultForm]:
    """Return a mapping: the text that begins a message of results -> its form."""
    return _result_openers(tuple(DIALECTS))


@functools.cache
def _result_openers(_: tuple[str, ...]) -> Mapping[str, ResultForm]:
    forms = dict.fromkeys([OWN_RESULTS, *(row.results for row in DIALECTS.values())])
    return {form.opener: form for form in forms}


def select(dialect: str | Dialect) -> tuple[Dialect, ...]:
    """Return the dialects to read: of a name, of `auto`, of a row's path (`my_format.toml`); for untrusted names use `known`."""
    if isinstance(dialect, Dialect):
        return (dialect,)
    if dialect.endswith(".toml"):
        row = read_row(Path(dialect))
        add(row)
        return (row,)
    return known(dialect)


def known(dialect: str) -> tuple[Dialect, ...]:
    """Return the dialects of an untrusted name, without reading any file."""
    if dialect == "auto":
        return tuple(DIALECTS.values())
    if dialect in DIALECTS:
        return (DIALECTS[dialect],)
    if dialect.endswith(".toml"):
        raise UsageError(
            f"expected the name of a wire format, got {dialect!r:.80}: only --ask dialect=FILE and `parse` read a file"
        )
    raise UsageError(f"unknown dialect {dialect!r:.80}; known: auto, {', '.join(DIALECTS)}")
