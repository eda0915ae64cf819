"""What a rule may ask of an argument: a path below a folder, the host of an address, a glob, one of some values.

A condition answers yes, no, or that it cannot tell: a relative path, since the folder that the server starts from is not known;
an address that programs read in different ways. A rule that allows needs a yes. A rule that asks or denies holds unless the
answer is no. So what cannot be told is never allowed by a condition, and never escapes one. Hosts are compared in one spelling
(`addresses`).

Paths are those of this machine, symbolic links followed as they are at this moment. A redirect of an address is not seen.
"""

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from ..addresses import host_readings

__all__ = ["CONDITIONS", "Condition", "holds"]

_LONGEST: Final = 10_000  # characters of a value; of a longer one nothing is told
_PLAIN_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\.?|\[[0-9a-f:.]+\]")
_WILD: Final = re.compile(r"[*?]|\[[^:]*\]")  # the brackets of an IPv6 address are none
_ODD_IN_ADDRESS: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\@]|[^\x00-\x7f]")

Condition = Callable[[Any], bool | None]
"""Says of a value, which is no list, whether it fits; None if that cannot be told."""


def holds(condition: Condition, value: Any) -> bool | None:
    """Say whether a value fits a condition; of a list, whether all items do.

    Returns:
        True, False, or None if that cannot be told, or if only some items fit. An empty list does not fit.
    """
    found = {condition(each) for each in value} if isinstance(value, list) else {condition(value)}
    return found.pop() if len(found) == 1 else None if found else False


def below(folders: Sequence[str]) -> Condition:
    """Make the condition that a path is one of some folders, or below one."""

    def fits(value: Any) -> bool | None:
        if not isinstance(value, str) or len(value) > _LONGEST or "\0" in value or not os.path.isabs(value):
            return None
        # Some programs drop `..` before they follow links, others behind that: both readings have to agree.
        readings = {os.path.realpath(value), os.path.realpath(os.path.normpath(value))}
        roots = [os.path.realpath(folder) for folder in folders]
        found = {any(_is_below(path, root) for root in roots) for path in readings}
        return found.pop() if len(found) == 1 else None

    return fits


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def host(globs: Sequence[str]) -> Condition:
    """Make the condition that a value is an http address whose host a glob matches."""
    wanted = [reading for glob in globs for reading in ((glob,) if _WILD.search(glob) else host_readings(glob))]

    def fits(value: Any) -> bool | None:
        name = _host_of(value)
        found = set() if name is None else {_matches(reading, wanted) for reading in host_readings(name)}
        return found.pop() if len(found) == 1 else None

    return fits


def _host_of(value: Any) -> str | None:
    """Return the host of an address; None where programs may differ about it."""
    if not isinstance(value, str) or len(value) > _LONGEST or _ODD_IN_ADDRESS.search(value.partition("?")[0].partition("#")[0]):
        return None
    try:
        parts = urlsplit(value)
        name = (parts.hostname or "").lower()
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not _PLAIN_HOST.fullmatch(name if ":" not in name else f"[{name}]"):
        return None
    return name


def like(globs: Sequence[str]) -> Condition:
    """Make the condition that a glob matches the whole of a string, capitals and small letters told apart."""

    def fits(value: Any) -> bool | None:
        return None if not isinstance(value, str) or len(value) > _LONGEST else _matches(value, globs)

    return fits


def _matches(text: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, glob) for glob in globs)


def one_of(values: Sequence[Any]) -> Condition:
    """Make the condition that a value is one of some."""

    def fits(value: Any) -> bool | None:
        if isinstance(value, list | dict):  # which of its values counts is the tool's matter
            return None if any(fits(each) is not False for each in _members(value)) else False
        return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values)

    return fits


def _members(value: list[Any] | dict[str, Any]) -> Iterator[Any]:
    """Yield the values in a list or object, at any depth."""
    stack: list[Any] = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, list | dict):
            stack += each.values() if isinstance(each, dict) else each
        else:
            yield each


CONDITIONS: Final[Mapping[str, Callable[[Sequence[Any]], Condition]]] = {
    "below": below,
    "host": host,
    "like": like,
    "one_of": one_of,
}
"""Key of a policy file -> what makes the condition of its values."""
