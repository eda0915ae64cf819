"""The tool lists that callers send, compiled and rendered once: a caller sends the same list with every request."""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from ...binding.echo import words_of
from ...prompting import system as prompt
from ...prompting.format import PromptFormat
from ...prompting.grades import Budget, ToolPrompt, tool_prompt_within
from ...tools.catalog import Catalog
from ...tools.outline import parameters_of
from ...types.calls import Tool

__all__ = ["Catalogs"]

LIMIT: Final = 32  # lists that are kept; the one that was not used for longest goes first


_Rendered = tuple[Catalog, Mapping[str, str], tuple[ToolPrompt, str]]


class Catalogs:
    """Catalogs by their tools.

    Args:
        say: told what was mended in a schema, once for each list.
        reminder: whether the person's messages end in a reminder of the tools.
    """

    def __init__(self, say: Callable[[str], None], *, reminder: bool) -> None:
        self._say = say
        self._reminder = reminder
        self._known: OrderedDict[str, tuple[Catalog, list[str]]] = OrderedDict()
        self._rendered: OrderedDict[tuple[int, PromptFormat], _Rendered] = OrderedDict()

    def of(self, tools: tuple[Tool, ...]) -> Catalog:
        """Return the catalog of a list of tools, the same one for the same list."""
        return self.with_words(tools)[0]

    def with_words(self, tools: tuple[Tool, ...]) -> tuple[Catalog, list[str]]:
        """Return the same with the words of the tools' descriptions, from which no call may be copied."""
        key = _key(tools)
        found = self._known.pop(key, None) or (Catalog(tools), [words_of(tool) for tool in tools])
        self._known[key] = found
        for notice in found[0].notices:
            self._say(notice)
        while len(self._known) > LIMIT:
            self._known.popitem(last=False)
        return found

    def knows(self, tools: tuple[Tool, ...]) -> bool:
        """Say whether a list was compiled before, so that it costs next to nothing.

        Args:
            tools: as for `of`.
        """
        return _key(tools) in self._known

    def prompts(
        self, catalog: Catalog, format: PromptFormat, instructions: Mapping[str, str], budget: Budget
    ) -> tuple[ToolPrompt, str]:
        """Return the tool prompt and the reminder; both are empty texts without tools.

        Args:
            catalog: one of these.
            format: of the prompt.
            instructions: server -> what it says about its tools.
            budget: what the description of the tools may take.
        """
        if not len(catalog):
            return ToolPrompt(catalog=catalog, grade="whole", system="", format=format), ""
        key = (id(catalog), format)
        found = self._rendered.get(key)
        if found is None or found[:2] != (catalog, instructions):
            found = self._rendered[key] = (catalog, instructions, self._texts(catalog, format, instructions, budget))
            while len(self._rendered) > LIMIT:
                self._rendered.popitem(last=False)
        return found[2]

    def _texts(
        self, catalog: Catalog, format: PromptFormat, instructions: Mapping[str, str], budget: Budget
    ) -> tuple[ToolPrompt, str]:
        offered = tool_prompt_within(budget, catalog, format, instructions=instructions)
        if offered.own:
            self._say(f"{len(catalog)} tools are shown to the model as {offered.grade} (see --tool-tokens)")
        for tool in catalog:
            if catalog.parameters(tool.name) and not parameters_of(tool):
                self._say(f"The tool {tool.name[:80]!r} is shown by its name and description alone: its schema is too large.")
        return offered, prompt.reminder(catalog, format) if self._reminder else ""


def _key(tools: tuple[Tool, ...]) -> str:
    return json.dumps([[tool.name, tool.description, tool.input_schema] for tool in tools], default=dict)
