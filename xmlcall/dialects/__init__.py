"""Wire formats as data: one row a dialect, read by the scanner and by the renderer."""

from ..errors import UsageError
from .call_signs import attempts_call, opening_pattern
from .dialect import Dialect, element_tags, with_tools
from .json_family import JSON
from .tag_family import TAGS
from .tag_patterns import ARGUMENTS, INVISIBLE, NAMES, is_escaped

__all__ = [
    "ARGUMENTS",
    "DIALECTS",
    "INVISIBLE",
    "NAMES",
    "Dialect",
    "attempts_call",
    "element_tags",
    "is_escaped",
    "opening_pattern",
    "select",
    "with_tools",
]

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (*TAGS, *JSON)}


def select(dialect: str | Dialect) -> tuple[Dialect, ...]:
    """Return the dialects to read.

    Args:
        dialect: a name of `DIALECTS`, `auto` for all of them, or a Dialect.

    Raises:
        UsageError: there is none of this name.
    """
    if isinstance(dialect, Dialect):
        return (dialect,)
    if dialect == "auto":
        return tuple(DIALECTS.values())
    if dialect not in DIALECTS:
        raise UsageError(f"unknown dialect {dialect!r}; known: auto, {', '.join(DIALECTS)}")
    return (DIALECTS[dialect],)
