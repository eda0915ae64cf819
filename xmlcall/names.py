"""Names that a model spelled in its own way -> the declared name that was plainly meant.

A ladder: each rung allows one liberty more, and the first rung on which anything fits decides; if two names fit there, nothing
does. `get_weather` is meant by `functions.get_weather`, `server/get_weather`, `getWeather`, `GET-WEATHER`; `weather__get` by
`get` where no other tool ends in it.
"""

from collections.abc import Callable, Iterable

import regex

__all__ = ["match_name", "match_tool"]

_SEPARATOR = regex.compile(r"__|[.:/\-]")
_FOLDED = regex.compile(r"[\s_.:/\-]+")
_PREFIXES = ("functions.", "function.", "tools.", "tool.", "default_api.", "functions:", "mcp__", "mcp.")


def match_name(name: str, declared: Iterable[str]) -> str | None:
    """Find the one declared parameter that a name means but for case and separators.

    Args:
        name: as written.
        declared: the names that may be meant.
    """
    return _only(known for known in declared if _fold(known) == _fold(name))


def match_tool(name: str, declared: Iterable[str]) -> str | None:
    """Find the one declared tool that a name means.

    Args:
        name: as written.
        declared: the tools' names.
    """
    known = list(declared)
    bare = next((name[len(prefix) :] for prefix in _PREFIXES if name.startswith(prefix)), name)
    rungs: tuple[Callable[[str], bool], ...] = (
        lambda tool: tool == name,
        lambda tool: tool == bare,
        lambda tool: _fold(tool) == _fold(name) or _fold(tool) == _fold(bare),
        lambda tool: any(_fold(part) == _fold(tool) for part in _tails(bare)),
        lambda tool: any(_fold(part) == _fold(bare) for part in _tails(tool)),
    )
    for fits in rungs:
        found = [tool for tool in known if fits(tool)]
        if found:
            return _only(found)
    return None


def _tails(name: str) -> list[str]:
    """Return what follows each separator: of `server.files/read` these are `files/read` and `read`."""
    return [name[match.end() :] for match in _SEPARATOR.finditer(name) if name[match.end() :]]


def _fold(name: str) -> str:
    return _FOLDED.sub("", name).casefold()


def _only(found: Iterable[str]) -> str | None:
    names = list(found)
    return names[0] if len(names) == 1 else None
