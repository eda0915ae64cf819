"""Names that a model spelled in its own way -> the declared name that was plainly meant.

The rules form a ladder: each rung allows one liberty more. The first rung on which a name fits decides; if two names fit there,
none is meant. `get_weather` is meant by `functions.get_weather`, `server/get_weather`, `getWeather`, `GET-WEATHER`;
`functions_get_weather_1`; `weather__get` by `get` where no other tool ends in it. A hyphen separates words and not a server
from its tool: `delete` is not `undo-delete`.

Cost: the index is built once a Catalog; a look-up takes a few steps, however many tools there are.
"""

import functools
from collections.abc import Container, Iterable, Mapping

import regex

from ..text_forms import normalized, unescaped

__all__ = ["ToolNames", "match_name", "words_of_name"]

_SEPARATOR = regex.compile(r"__|[.:/]")
_FOLDED = regex.compile(r"[\s_.:/\-]+")
_PREFIXES = ("functions.", "function.", "tools.", "tool.", "default_api.", "functions:", "mcp__", "mcp.")
# Kimi K2 counts its calls, `functions.f:0`; fine-tuned copies and stripped tokens leave the separators out.
_COUNTED = regex.compile(r"(?:functions?[._:]?)?(?P<name>.+?):\d{1,6}|functions?[._:]?(?P<name>.+?)_?\d{1,6}")
_WORDS = regex.compile(r"\p{Lu}?(?:\p{Ll}\p{M}*)+|\p{Lu}+(?!\p{Ll})|[0-9]+|(?:[\p{Lo}\p{Lm}]\p{M}*)+")
_MAX_LENGTH = 256
_MAX_TAILS = 8  # of a name: a text may hold thousands of names, and each tail of each is looked up


class ToolNames:
    """The declared names of tools."""

    def __init__(self, names: Iterable[str]) -> None:
        self._exact = set(names)
        self._folded: dict[str, set[str]] = {}
        self._tails: dict[str, set[str]] = {}
        for name in self._exact:
            self._folded.setdefault(_fold(name), set()).add(name)
            for tail in _tails(name):
                self._tails.setdefault(_fold(tail), set()).add(name)

    def meant_by(self, name: str) -> str | None:
        """Find the one declared tool that a name means, or None."""
        if name in self._exact:
            return name
        if not 0 < len(name) <= _MAX_LENGTH:
            return None
        bare = next((name[len(prefix) :] for prefix in _PREFIXES if name.startswith(prefix)), name)
        rungs = (
            {bare} & self._exact,
            self._folded.get(_fold(name), set()) | self._folded.get(_fold(bare), set()),
            {tool for tail in _tails(bare) for tool in self._folded.get(_fold(tail), ())},
            self._tails.get(_fold(bare), set()),
            self._folded.get(_fold(counted["name"]), set()) if (counted := _COUNTED.fullmatch(name)) else set(),
        )
        found = next((rung for rung in rungs if rung), set())
        return next(iter(found)) if len(found) == 1 else None


def match_name(name: str, declared: Iterable[str], taken: Container[str] = ()) -> str | None:
    """Find the one declared parameter that a name means but for case and separators, or but for entities in it."""
    if len(name) > _MAX_LENGTH:
        return None
    known = _by_fold(frozenset(declared))
    for meant in dict.fromkeys((_fold(name), _fold(unescaped(name)))):
        if found := [each for each in known.get(meant, ()) if each not in taken]:
            return found[0] if len(found) == 1 else None
    return None


@functools.lru_cache(maxsize=16)
def _by_fold(declared: frozenset[str]) -> Mapping[str, list[str]]:
    """Return names by what is left of them: a call is held against the same ones again and again."""
    found: dict[str, list[str]] = {}
    for name in declared:
        if len(name) <= _MAX_LENGTH:
            found.setdefault(_fold(name), []).append(name)
    return found


def words_of_name(name: str) -> list[str]:
    """Return the words of a tool's or a parameter's name, in lower case."""
    return [word.lower() for word in _WORDS.findall(name)]


def _tails(name: str) -> list[str]:
    """Return what follows each of the last separators: of `server.files/read` these are `files/read` and `read`."""
    tails = [name[match.end() :] for match in _SEPARATOR.finditer(name)]
    return [tail for tail in tails[-_MAX_TAILS:] if tail]


def _fold(name: str) -> str:
    return _FOLDED.sub("", normalized("NFKC", name)).casefold()
