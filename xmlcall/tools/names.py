"""A name as a model spelled it -> the declared name that was clearly meant.

The rules form a ladder, on which each rung allows one more liberty. The first rung with a match decides; if two names match
there, the name means none. `functions.get_weather`, `server/get_weather`, `getWeather`, `GET-WEATHER` and
`functions_get_weather_1` all mean `get_weather`; `get` means `weather__get` if no other tool ends in it. A hyphen separates
words, not a server from its tool: `delete` does not mean `undo-delete`.

Cost: each Catalog builds the index once; a look-up takes a few steps, however many tools there are.
"""

import functools
import tomllib
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Final

import regex

from ..text_forms import normalized, unescaped
from ..types.calls import Tool

_SEPARATOR = regex.compile(r"__|[.:/]")
_FOLDED = regex.compile(r"[\s_.:/\-]+")
_PREFIXES = ("functions.", "function.", "tools.", "tool.", "default_api.", "functions:", "mcp__", "mcp.")
# Kimi K2 numbers its calls, `functions.f:0`; fine-tuned copies and stripped tokens omit the separators.
_COUNTED = regex.compile(r"(?:functions?[._:]?)?(?P<name>.+?):\d{1,6}|functions?[._:]?(?P<name>.+?)_?\d{1,6}")
_WORDS = regex.compile(r"\p{Lu}?(?:\p{Ll}\p{M}*)+|\p{Lu}+(?!\p{Ll})|[0-9]+|(?:[\p{Lo}\p{Lm}]\p{M}*)+")
_MAX_LENGTH = 256
_MAX_TAILS = 8  # most tails of a name, because a text may contain thousands of names, and every tail of each is looked up


class ToolNames:
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


# -- whether a tool changes something: whether it writes, sends, buys or deletes ---------------------------------------
# A server may state it (MCP 2025-11-25, ToolAnnotations). Most do not, so the tool's name decides, by its first verb:
# `get_order` reads, `order_pizza` does not. A server can lie, so this alone never permits a call.


_VERBS: Final = tomllib.loads(Path(__file__).with_name("verbs.toml").read_text("utf-8"))
_WRITES: Final = frozenset(_VERBS["writing"])
READING_VERBS: Final = frozenset(_VERBS["reading"])


def may_write(tool: Tool) -> bool:
    """Say whether a tool changes something, by its server's hints or else by its name."""
    hints = tool.annotations or {}
    if isinstance(reads := hints.get("readOnlyHint"), bool):
        return not reads
    if isinstance(destroys := hints.get("destructiveHint"), bool) and destroys:
        return True
    return bool(writing_verb(tool))


def only_reads(tool: Tool) -> bool:
    """Say whether a tool changes nothing, by its server's hints or else by its name; False if the name has no known verb."""
    if isinstance(reads := (tool.annotations or {}).get("readOnlyHint"), bool):
        return reads
    return next((word in READING_VERBS for word in words_of_name(tool.name) if word in READING_VERBS or word in _WRITES), False)


def writing_verb(tool: Tool) -> str:
    """Return the verb in a tool's name that changes something; "" if there is none or a reading verb comes first."""
    verb = next((word for word in words_of_name(tool.name) if word in READING_VERBS or word in _WRITES), "")
    return verb if verb in _WRITES else ""
