"""A name as a model spelled it -> the declared name that was clearly meant.

The rules form a ladder, on which each rung allows one more liberty. The first rung with a match decides; if two names match
there, the name means none. `functions.get_weather`, `server/get_weather`, `getWeather`, `GET-WEATHER` and
`functions_get_weather_1` all mean `get_weather`; `get` means `weather__get` if no other tool ends in it. A hyphen separates
words, not a server from its tool: `delete` does not mean `undo-delete`.

Cost: each Catalog builds the index once; a look-up takes a few steps, however many tools there are.
"""

import functools
from collections.abc import Container, Iterable, Mapping

import regex

from ..text_forms import normalized, unescaped

_SEPARATOR = regex.compile(r"__|[.:/]")
_FOLDED = regex.compile(r"[\s_.:/\-]+")
_PREFIXES = ("functions.", "function.", "tools.", "tool.", "default_api.", "functions:", "mcp__", "mcp.")
# Kimi K2 numbers its calls, `functions.f:0`; fine-tuned copies and stripped tokens omit the separators.
_COUNTED = regex.compile(r"(?:functions?[._:]?)?(?P<name>.+?):\d{1,6}|functions?[._:]?(?P<name>.+?)_?\d{1,6}")
_WORDS = regex.compile(r"\p{Lu}?(?:\p{Ll}\p{M}*)+|\p{Lu}+(?!\p{Ll})|[0-9]+|(?:[\p{Lo}\p{Lm}]\p{M}*)+")
_MAX_LENGTH = 256
_MAX_TAILS = 8  # of a name: a text may contain thousands of names, and every tail of each is looked up


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
        """Return the one declared tool that a name means, or None."""
        if name in self._exact:
            return name
        if not 0 < len(name) <= _MAX_LENGTH:
            return None
        name = name.partition("<|")[0].strip() or name  # gpt-oss: `get_weather<|channel|>commentary`
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
    """Return the one declared parameter that equals a name except for case, separators or entities, or None."""
    if len(name) > _MAX_LENGTH:
        return None
    known = _by_fold(frozenset(declared))
    for meant in dict.fromkeys((_fold(name), _fold(unescaped(name)))):
        if found := [each for each in known.get(meant, ()) if each not in taken]:
            return found[0] if len(found) == 1 else None
    return None


@functools.lru_cache(maxsize=16)
def _by_fold(declared: frozenset[str]) -> Mapping[str, list[str]]:
    """Return names by their folded form; cached, because many calls are compared with the same names."""
    found: dict[str, list[str]] = {}
    for name in declared:
        if len(name) <= _MAX_LENGTH:
            found.setdefault(_fold(name), []).append(name)
    return found


def words_of_name(name: str) -> list[str]:
    """Return the words of a tool's or a parameter's name, in lower case."""
    return [word.lower() for word in _WORDS.findall(name)]


def _tails(name: str) -> list[str]:
    """Return the text after each of the last separators: for `server.files/read`, `files/read` and `read`."""
    tails = [name[match.end() :] for match in _SEPARATOR.finditer(name)]
    return [tail for tail in tails[-_MAX_TAILS:] if tail]


def _fold(name: str) -> str:
    return _FOLDED.sub("", normalized("NFKC", name)).casefold()
