"""Tools by name, and the parameters that each one declares.

Every `tools` argument accepts a `Catalog`. Long-lived callers build one, so that each tool's validator is compiled once
(`validator`). `declarations` is a cache that only `parameters.py` uses.

The schemas of its tools are repaired (`mending.py`), so that parser, prompt, conversion and validation all see the same schema.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ..errors import UsageError
from ..schema.mending import mended, sentence
from ..schema.references import declared, nodes, size_of
from ..schema.validation import compiled
from ..types.calls import MISSING, Tool, items_of
from .names import ToolNames

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
