"""Compile and render each caller's tool list once, because a caller sends the same list with every request."""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...binding.echo import Sources, words_of
from ...prompting import system as prompt
from ...prompting.format import PromptFormat
from ...prompting.grades import Budget, ToolPrompt, native_tools_within, tool_prompt_within
from ...tools.catalog import Catalog
from ...tools.outline import parameters_of
from ...types.calls import Message, Tool

LIMIT: Final = 32  # tool lists to keep; the least recently used is dropped first


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTools:
    """A list of tools as a model is shown it."""

    tools: tuple[Tool, ...]
    catalog: Catalog
    words: list[str]
    prompt: ToolPrompt
    reminder: str

    def sources(self, messages: Sequence[Message], results: Iterable[str] = (), described: Iterable[str] = ()) -> Sources:
        """Return the texts, not written by the model, from which a call must not be copied."""
        system = [message.content for message in messages if message.role == "system"]
        said = [message.content for message in messages if message.role in ("user", "tool")]
        return Sources(said=[*said, *results], described=[*self.words, *described], instructions=system)


_Rendered = tuple[Catalog, Mapping[str, str], tuple[ToolPrompt, str]]


class Catalogs:
    """A cache of catalogs and their prompts, by tool list."""

    def __init__(self, say: Callable[[str], None], *, reminder: bool) -> None:
        self._say = say
        self._reminder = reminder
        self._known: OrderedDict[str, tuple[Catalog, list[str]]] = OrderedDict()
        self._rendered: OrderedDict[tuple[int, PromptFormat], _Rendered] = OrderedDict()
        self._native: OrderedDict[tuple[int, PromptFormat, Budget], tuple[Catalog, ToolPrompt]] = OrderedDict()

    def of(self, tools: tuple[Tool, ...]) -> Catalog:
        """Return the catalog of a tool list; the same list gives the same catalog."""
        return self._found(tools, key_of(tools))[0]

    def _found(self, tools: tuple[Tool, ...], key: str) -> tuple[Catalog, list[str]]:
        found = self._known.pop(key, None) or (Catalog(tools), [words_of(tool) for tool in tools])
        self._known[key] = found
        for notice in found[0].notices:
            self._say(notice)
        while len(self._known) > LIMIT:
            self._known.popitem(last=False)
        return found

    def knows(self, key: str) -> bool:
        """Return whether a tool list is compiled already, so that it is cheap to use."""
        return key in self._known

    def offered(
        self, tools: tuple[Tool, ...], key: str, format: PromptFormat, instructions: Mapping[str, str], budget: Budget
    ) -> OfferedTools:
        """Return how a tool list is shown to the model; without tools, the prompt and the reminder are empty."""
        catalog, words = self._found(tools, key)
        shown, reminder = self._prompts(catalog, format, instructions, budget)
        return OfferedTools(tools=tools, catalog=catalog, words=words, prompt=shown, reminder=reminder)

    def natively(self, catalog: Catalog, format: PromptFormat, budget: Budget) -> ToolPrompt:
        """Return how a catalog is offered to the server's own function calling."""
        key = (id(catalog), format, budget)
        found = self._native.pop(key, None)
        if found is None or found[0] is not catalog:
            found = (catalog, native_tools_within(budget, catalog, format))
            if found[1].own:
                self._say(f"{len(catalog)} tools: those that fit are sent to the model server (see --ask tool_tokens)")
        self._native[key] = found
        while len(self._native) > LIMIT:
            self._native.popitem(last=False)
        return found[1]

    def _prompts(
        self, catalog: Catalog, format: PromptFormat, instructions: Mapping[str, str], budget: Budget
    ) -> tuple[ToolPrompt, str]:
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
            self._say(f"{len(catalog)} tools are shown to the model as {offered.grade} (see --ask tool_tokens)")
        for tool in catalog:
            if catalog.parameters(tool.name) and not parameters_of(tool):
                self._say(f"The tool {tool.name[:80]!r} is shown with its name and description only: its schema is too large.")
        return offered, prompt.reminder(catalog, format) if self._reminder else ""


def key_of(tools: tuple[Tool, ...]) -> str:
    """Return the cache key of a tool list; compute it once per request, because it is as long as the tools."""
    return json.dumps([[tool.name, tool.description, tool.input_schema] for tool in tools], default=dict)
