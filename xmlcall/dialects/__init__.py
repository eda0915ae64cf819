"""Wire formats as data: one row a dialect, read by the scanner and the renderer.

Every quantifier in a pattern is bounded, so that a tag has one greatest length: a finished tag and an unfinished one are refused
by the same rule, and the answer does not depend on how the stream was cut.
"""

from dataclasses import dataclass

from ..errors import UsageError

__all__ = ["DIALECTS", "Dialect", "select"]

# Name, then a double-quoted, single-quoted or bare value.
_ATTRIBUTE = r"""\s{1,16}[A-Za-z_:][\w:.\-]{0,31}\s{0,4}=\s{0,4}(?:"[^"<>]{0,256}"|'[^'<>]{0,256}'|[^\s"'<>=/]{1,256})"""
_ATTRIBUTES = rf"(?:{_ATTRIBUTE}){{1,6}}\s{{0,16}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A wire format of the tag family.

    Args:
        name: also the folder of its templates in `prompts/`.
        tags: token kind -> regular expression of the whole tag. Kinds: `block_open`, `block_close`, `call_open`, `call_close`,
            `parameter_open`, `parameter_close`. Openers of calls and parameters carry the attribute `name`.
    """

    name: str
    tags: dict[str, str]


FUNCTION_CALLS = Dialect(
    name="function_calls",
    tags={
        "block_open": r"<function_calls\s{0,16}>",
        "block_close": r"</function_calls\s{0,16}>",
        "call_open": rf"<invoke{_ATTRIBUTES}/?>",
        "call_close": r"</invoke\s{0,16}>",
        "parameter_open": rf"<parameter{_ATTRIBUTES}/?>",
        "parameter_close": r"</parameter\s{0,16}>",
    },
)

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (FUNCTION_CALLS,)}


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
