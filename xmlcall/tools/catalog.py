"""Tools by name, and the parameters that each one declares.

Every `tools` argument accepts a `Catalog`. Long-lived callers build one, so that each tool's validator is compiled once
(`validator`). `declarations` is a cache that only `outline.py` uses.

The schemas of its tools are repaired (`mending.py`), so that parser, prompt, conversion and validation all see the same schema.
"""

import functools
import inspect
import tomllib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import regex

from ..errors import UsageError
from ..schema.mending import mended, sentence
from ..schema.references import declared, nodes, size_of
from ..schema.validation import compiled
from ..text_forms import normalized, unescaped
from ..types.calls import MISSING, Tool, items_of

# -- names -------------------------------------------------------------------------------------------------------------
# A name as a model spelled it -> the declared name that was clearly meant.
#
# The rules form a ladder, on which each rung allows one more liberty. The first rung with a match decides; if two names match
# there, the name means none. `functions.get_weather`, `server/get_weather`, `getWeather`, `GET-WEATHER` and
# `functions_get_weather_1` all mean `get_weather`; `get` means `weather__get` if no other tool ends in it. A hyphen separates
# words, not a server from its tool: `delete` does not mean `undo-delete`.
#
# Cost: each Catalog builds the index once; a look-up takes a few steps, however many tools there are.


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


# -- tools by name -----------------------------------------------------------------------------------------------------


_MUCH: Final = 500  # parts of a schema
_MULTIPLYING: Final = frozenset({"$ref", "$dynamicRef", "pattern", "patternProperties"})


class Catalog:
    """A set of tools with unique names, in order.

    Args:
        tools: `Tool`s, plain MCP or OpenAI tool dicts, Python functions (see `Tool.from_function`), or a Catalog.

    Attributes:
        notices: one sentence for each tool whose schema was repaired: which tool, and what changed.

    Raises:
        UsageError: two tools have the same name, or an item is not a tool.
    """

    __slots__ = ("_declared", "_is_demanding", "_names", "_parameters", "_tools", "_validators", "declarations", "notices")

    def __init__(self, tools: "Tools" = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self.notices: list[str] = []
        for tool in map(as_tool, items_of(tools, "tools")):
            if tool.name in self._tools:
                raise UsageError(f"two tools are named {tool.name!r}; names must be unique")
            schema, notes = mended(tool.input_schema)
            self.notices += [sentence(tool.name, notes)] if notes else []
            self._tools[tool.name] = replace(tool, input_schema=schema) if notes else tool
        self._declared = {name: _declared(tool.input_schema) for name, tool in self._tools.items()}
        self._parameters = {name: _names(self._declared[name], tool) for name, tool in self._tools.items()}
        self._names = ToolNames(self._tools)
        self._validators: dict[str, Any] = {}
        self._is_demanding: bool | None = None
        self.declarations: dict[tuple[str, str], Any] = {}

    @classmethod
    def of(cls, tools: "Tools") -> "Catalog":
        """Return `tools` itself if it is a Catalog, else a new one."""
        return tools if isinstance(tools, Catalog) else cls(tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def get(self, name: str) -> Tool | None:
        """Return the tool with this name, or None if the catalog has none.

        Args:
            name: its exact name.
        """
        return self._tools.get(name)

    def meant_by(self, name: str) -> str | None:
        """Return the exact name of the one tool that a name means; None if it means no tool or several.

        Args:
            name: as a model wrote it, in any letter case, with any separators and prefixes.
        """
        return self._names.meant_by(name)

    def validator(self, name: str) -> Any:
        """Return the validator of a tool's arguments, compiled once; if its schema is unusable, a string with the reason.

        Args:
            name: the tool's exact name.

        Raises:
            KeyError: the catalog has no such tool.
        """
        if name not in self._validators:
            self._validators[name] = compiled(self._tools[name].input_schema)
        return self._validators[name]

    @property
    def is_demanding(self) -> bool:
        """Whether a call of some tool may take long to check, because its schema is large or has references or patterns."""
        if self._is_demanding is None:
            self._is_demanding = any(_is_demanding(tool.input_schema) for tool in self)
        return self._is_demanding

    def names(self) -> tuple[str, ...]:
        """Return the names in order."""
        return tuple(self._tools)

    def parameters(self, name: str) -> frozenset[str] | None:
        """Return the parameters that a tool declares; None if any name is possible (unknown tool, or none declared).

        Args:
            name: the tool's name, as a model wrote it.
        """
        return self._parameters.get(self.meant_by(name) or name)

    def declaration(self, name: str, parameter: str) -> Any:
        """Return the schema that a tool declares for a parameter; MISSING if it declares none.

        Args:
            name: the exact name of a tool in the catalog.
            parameter: any name.
        """
        return self._declared[name].get(parameter, MISSING)


Tools = Catalog | Iterable[Tool | Mapping[str, Any] | Callable[..., Any]]
"""What every `tools` argument accepts."""


def as_tool(tool: Tool | Mapping[str, Any] | Callable[..., Any]) -> Tool:
    """Return a Tool from a Tool, a plain MCP or OpenAI dict, or a Python function."""
    if isinstance(tool, Tool):
        return tool
    if inspect.isroutine(tool):
        return Tool.from_function(tool)
    if not isinstance(tool, Mapping):
        raise UsageError(f"expected a Tool, an MCP or OpenAI tool dict, or a Python function, got {tool!r:.80}")
    if "function" in tool or "parameters" in tool:
        return Tool.from_openai(tool)
    return Tool.from_mcp(tool)


def _declared(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema's declared properties by name; if a name is declared several times, the first declaration."""
    found: dict[str, Any] = {}
    for properties in declared(schema, schema):
        for name, part in properties.items():
            found.setdefault(name, part)
    return found


def _names(declared: Mapping[str, Any], tool: Tool) -> frozenset[str] | None:
    names = frozenset(name for name in declared if isinstance(name, str))
    return names if names or tool.input_schema.get("additionalProperties") is False else None


def _is_demanding(schema: Mapping[str, Any]) -> bool:
    return size_of(schema, _MUCH) >= _MUCH or any(node.keys() & _MULTIPLYING for node in nodes(schema))
