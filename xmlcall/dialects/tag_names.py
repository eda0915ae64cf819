"""The names of a wire format's tags, for those who speak of them without writing a call."""

from typing import Final

import regex

from . import DIALECTS, Dialect

__all__ = ["block_closer", "ends_with_calls", "example_tag", "first_tag", "tag_names"]

_TAG_NAME: Final = regex.compile(r"<[^\s=>{]+")
_NAME: Final = regex.compile(r"(?:<|&lt;)/?(?:[A-Za-z]+:|\uff5c\w+\uff5c)?(\w+)")
_OPENER: Final = regex.compile(r"\A(<|&lt;)([^\s<>&]+).*?(>|&gt;)\s*\Z", regex.DOTALL)
_CALL: Final = ("block_open", "call_open", "parameter_open")


def first_tag(row: Dialect) -> str:
    """Return the tag with which a call begins; "" where it begins with no tag of fixed text."""
    first = next(iter(row.written.values()), "").partition("{name}")[0].partition("\n")[0]
    return first if first.endswith((">", ";")) else ""


def example_tag(row: Dialect) -> str:
    """Return a tag that is markup of a format, as an example of what a value may hold."""
    tag = _TAG_NAME.match(row.written.get("parameter_open", ""))
    return f"{tag[0]}>" if tag else "<b>"


def block_closer(dialect: str, opener: str) -> str:
    """Return what closes a wrapper of calls, behind the last of them.

    Args:
        opener: the tag that opened it, as the model wrote it; a format may have wrappers of several names.

    Returns:
        "" where the format has no wrapper, and for a name that is no wire format, such as `native`.
    """
    row = DIALECTS.get(dialect)
    if row is None or "block_close" not in row.written:
        return ""
    closer = _OPENER.sub(r"\1/\2\3", opener)
    is_like_opener = regex.fullmatch(row.tags["block_close"], closer) is not None
    return row.joint + (closer if is_like_opener else row.written["block_close"])


def ends_with_calls(row: Dialect) -> bool:
    """Say whether a wrapper has no closing tag, so that it ends with its calls."""
    return "block_open" in row.written and not (row.fence or "block_close" in row.tags)


def tag_names(row: Dialect) -> frozenset[str]:
    """Return the names of a format's wrapper, calls and parameters, without prefix; those of declared names are none."""
    found = (_NAME.match(row.written.get(kind, "")) for kind in _CALL)
    return frozenset(name[1] for name in found if name)
