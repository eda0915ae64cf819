"""Shows a catalog in grades: as much of each tool as a token budget allows, the same for all tools, and the rest on demand.

| grade | of each tool the prompt has |
|---|---|
| `whole` | everything |
| `signatures` | its name, its parameters and their types |
| `lines` | its name and the first sentence of its description |
| `names` | its name; the number of further tools if the budget does not allow all names |
| `sent` | nothing: with the server's own function calling, some tools are sent whole with a request, and the others on demand |

The tool prompt has the best grade that fits. It begins every request and does not depend on the question, so that a server's
prompt cache holds it. Everything that depends on the question comes last, after the person's last words: the tools that fit these
words best (`Ranking`), described whole. A model may call every tool, shown whole or not. If it does not know how, it can request
the description with a tool of ours, which is offered only if something is missing and has a name that no other tool has.

Earlier messages lose these descriptions again. So a conversation does not grow by them, and a server reprocesses only the text
since that message.

With the server's own function calling (`native_tools_within`) there is no prompt of ours. The tools that fit the person's last
words best are sent whole, before others those that were called before, and with them our own tool, which lists as many names as
there is room for. The tools that it describes are sent from the next request of the turn on, after all others, so that the
request begins like the one before.

Tokens are estimated (`tokens`). Cost: linear in the tools and, for those that cannot be shown whole, in the budget; the ranking's
index is built when it is first needed.
"""

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import regex

from ..tools.catalog import Catalog
from ..tools.outline import parameters_of
from ..tools.ranking import Ranking
from ..types.calls import Tool
from .format import PromptFormat
from .system import described, example_call, tool_prompt
from .tokens import CHARACTERS_A_TOKEN, tokens_of

Grade = Literal["whole", "signatures", "lines", "names", "sent"]

WHOLE: Final = 12_000
"""Tokens up to which all tools are shown whole by default: enough for a coding agent's tools, or some 80 tools of MCP servers."""

USUAL: Final = 4000
"""Default tokens for a catalog that is larger than that."""

FITTING: Final = 3
"""Number of tools described after the person's words; benchmarks/results/ranking.md has how often the right one is among them."""

SHARE: Final = 8  # one part in so many of the budget is for those descriptions
LISTED: Final = 4  # one part in so many of the budget is for names, if some tools are sent
FOUND: Final = 4  # one part in so many is for tools that the model asked for
DESCRIBED: Final = 5  # tools in one answer of the tool that describes them
LONGEST_KIND: Final = 60  # characters of a type in a signature
LONGEST_LINE: Final = 120  # characters of a first sentence
LONGEST_SIGNATURE: Final = 2000  # characters: a tool may have thousands of parameters

_OWN_NAME: Final = "describe_tools"
_SENTENCE = regex.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many tokens the description of tools may take, including what is added for one request."""

    whole: int
    parts: int


def budget_for(context_length: int | None, asked: int | None = None) -> Budget:
    """Choose how many tokens the description of tools may take: at most half of the context."""
    if asked is not None:
        return Budget(whole=asked, parts=asked)
    if context_length is None:
        return Budget(whole=WHOLE, parts=USUAL)
    half = context_length // 2
    return Budget(whole=min(half, max(WHOLE, context_length // 8)), parts=min(half, USUAL))


@dataclass(frozen=True, kw_only=True)
class ToolPrompt:
    """How tools are offered: the prompt that begins every request, and the text that is added for one."""

    catalog: Catalog  # the tools that may be called; our own tool, if there is one, comes last
    grade: Grade
    system: str
    format: PromptFormat
    room: int = 0  # tokens for what is added for one request
    room_found: int = 0  # tokens for the tools that the model asked for, if they are sent
    own: str = ""  # name of the tool that describes tools; "" if all are shown whole
    # The part of the prompt with tools and their servers' words, without our example; "" unless all are shown whole.
    listed: str = ""

    @property
    def describing(self) -> tuple[Tool, ...]:
        """Our own tool, if there is one."""
        return tuple(tool for tool in self.catalog if tool.name == self.own)

    def fitting(self, request: str, first: Iterable[str] = ()) -> str:
        """Render the tools that fit the person's words best, after `first`; "" if all are shown whole, or none fits."""
        if not self.own:
            return ""
        names = dict.fromkeys((*first, *self._ranking.best(request, FITTING)))
        frame = tokens_of(self._described(()))
        left, whole, brief = self.room - frame, list[Tool](), list[str]()
        for tool in filter(None, map(self.catalog.get, list(names)[:FITTING])):
            size = tokens_of(self._described([tool])) - frame
            if size <= left:
                whole.append(tool)
            elif (size := tokens_of(f"\n{(line := _brief(tool, _signature(tool)))}\n")) <= left:
                brief.append(line)
            else:
                continue
            left -= size
        return self._rendered("fitting", whole, lines=brief).strip() if whole or brief else ""

    def describe(self, arguments: Mapping[str, Any]) -> str:
        """Answer a call of our own tool: describe the named tools whole, and for unknown names those that fit them best."""
        tools, unknown = self._asked_for(arguments)
        return self._rendered("described", tools, unknown=unknown).strip()

    def found(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the tools that a call of our own tool describes."""
        return tuple(tool.name for tool in self._asked_for(arguments)[0] if tool.name != self.own)

    def _asked_for(self, arguments: Mapping[str, Any]) -> tuple[list[Tool], list[str]]:
        """Return the tools that a call of our own tool asks for, and the names in it that no tool has."""
        wanted = list(dict.fromkeys(arguments["names"]))[:DESCRIBED]
        known = [self.catalog.get(name) or self.catalog.get(self.catalog.meant_by(name) or "") for name in wanted]
        unknown = [name for name, tool in zip(wanted, known, strict=True) if tool is None]
        others = self._ranking.best(" ".join(unknown), FITTING) if unknown else ()
        tools = {tool.name: tool for tool in (*known, *map(self.catalog.get, others)) if tool is not None}
        return list(tools.values()), unknown

    def chosen(self, request: str, first: Iterable[str] = ()) -> frozenset[str]:
        """Choose the tools to send with a request: `first`, then those that fit the person's words best, then the others."""
        names, left = set[str](), float(self.room)
        for name in dict.fromkeys((*first, *self._ranking.best(request, len(self.catalog)), *self.catalog.names())):
            size = self._sizes.get(name)
            if size is not None and size <= left:
                names.add(name)
                left -= size
        return frozenset(names)

    def latest_found(self, found: Sequence[str], chosen: frozenset[str]) -> list[Tool]:
        """Return the tools to send that the model asked for, in this order: the latest that there is room for, at least one."""
        names, left = list[str](), float(self.room_found)
        for name in dict.fromkeys(reversed(found)):
            size = self._sizes.get(name)
            if name in chosen or size is None or (names and size > left):
                continue
            names.append(name)
            left -= size
        return [tool for name in reversed(names) if (tool := self.catalog.get(name))]

    @functools.cached_property
    def _sizes(self) -> dict[str, float]:
        """The tokens of each tool but our own as a server is sent it."""
        return {tool.name: _size(tool) for tool in self.catalog if tool.name != self.own}

    @functools.cached_property
    def _ranking(self) -> Ranking:
        return Ranking(tool for tool in self.catalog if tool.name != self.own)

    def _described(self, tools: Iterable[Tool]) -> str:
        return self._rendered("fitting", tools, lines=[])

    def _rendered(self, name: str, tools: Iterable[Tool], **values: Any) -> str:
        return self.format.render(name, tools=described(tools), catalog=self.catalog, **values)


def tool_prompt_within(
    budget: Budget, catalog: Catalog, format: PromptFormat, instructions: Iterable[tuple[str, str]] = ()
) -> ToolPrompt:
    """Render the tool prompt in the best grade within a budget; its frame and the servers' instructions stay whole."""
    told = dict(instructions)
    if not _is_too_long(catalog, budget.whole):
        system = tool_prompt(catalog, format, instructions=told)
        if tokens_of(system) <= budget.whole or not len(catalog):
            shown = system.partition(example_call(catalog, format))[0] if len(catalog) else ""
            return ToolPrompt(catalog=catalog, grade="whole", system=system, format=format, listed=shown)
    room = budget.parts // SHARE
    own = _describing(catalog, format)
    offered = Catalog([*catalog, own])

    fixed = {"tools": [], "catalog": offered, "count": len(catalog), "own": described([own])[0]}
    fixed |= {"example": example_call(catalog, format), "instructions": told}

    def rendered(grade: Grade, listed: str, left_out: int = 0) -> str:
        return format.render("system", grade=grade, listed=listed, left_out=left_out, **fixed)

    def prompt(grade: Grade, listed: str, left_out: int = 0) -> ToolPrompt:
        system = rendered(grade, listed, left_out)
        return ToolPrompt(catalog=offered, grade=grade, system=system, format=format, room=room, own=own.name)

    for grade, line in _LINES.items():
        left = budget.parts - room - tokens_of(rendered(grade, ""))
        if (listed := _list_within(map(line, catalog), left)) is not None:
            return prompt(grade, listed)
    left = budget.parts - room - tokens_of(rendered("names", "", len(catalog)))
    names = _that_fit(catalog.names(), left)
    return prompt("names", ", ".join(names), len(catalog) - len(names))


def native_tools_within(budget: Budget, catalog: Catalog, format: PromptFormat) -> ToolPrompt:
    """Offer tools to the server's own function calling: all of them, or some at a time if they exceed the budget."""
    if not _is_too_long(catalog, budget.whole) and sum(map(_size, catalog)) <= budget.whole:
        return ToolPrompt(catalog=catalog, grade="whole", system="", format=format)
    names = _that_fit(catalog.names(), budget.parts / LISTED)
    own = _describing(catalog, format, part="sent", names=names, count=len(catalog))
    room_found = budget.parts // FOUND
    room = max(round(budget.parts - room_found - _size(own)), 0)
    offered = Catalog([*catalog, own])
    return ToolPrompt(catalog=offered, grade="sent", system="", format=format, room=room, room_found=room_found, own=own.name)


def _size(tool: Tool) -> float:
    """Estimate the tokens of a tool as a server is sent it."""
    return tokens_of(json.dumps([tool.name, tool.description, tool.input_schema], ensure_ascii=False, default=dict))


def _is_too_long(catalog: Catalog, budget: int) -> bool:
    """Say whether tools certainly exceed the budget, by a lower bound of the estimate, so that rendering can be skipped."""
    lengths = itertools.accumulate(len(tool.name) + len(tool.description.strip()) for tool in catalog)
    return any(length > budget * CHARACTERS_A_TOKEN for length in lengths)


def _list_within(lines: Iterable[str], room: float) -> str | None:
    """Return lines as one text; None if they take more tokens than there is room for."""
    listed = []
    for line in lines:
        listed.append(line)
        room -= tokens_of(f"{line}\n")
        if room < 0:
            return None
    return "\n".join(listed)


def _that_fit(names: Iterable[str], room: float) -> list[str]:
    kept = []
    for name in map(_one_line, names):
        size = tokens_of(f"{name}, ")
        if size <= room:
            kept.append(name)
            room -= size
    return kept


def _signature(tool: Tool) -> str:
    parts = (f"{part.name}{'' if part.required else '?'}: {_cut(part.kind, LONGEST_KIND)}" for part in parameters_of(tool))
    return _cut(_one_line(f"{tool.name}({', '.join(parts)})"), LONGEST_SIGNATURE)


def _brief(tool: Tool, named: str) -> str:
    """Write a tool's name or signature and the first sentence of its description."""
    first = _SENTENCE.split(tool.description.strip()[: 4 * LONGEST_LINE], maxsplit=1)[0]
    sentence = _cut(_one_line(first), LONGEST_LINE)
    return f"- {named}{f': {sentence}' if sentence else ''}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _one_line(text: str) -> str:
    return " ".join(text.split())


_LINES: Final[Mapping[Grade, Callable[[Tool], str]]] = {
    "signatures": lambda tool: f"- {_signature(tool)}",
    "lines": lambda tool: _brief(tool, _one_line(tool.name)),
}


def free_name(name: str, catalog: Catalog) -> str:
    """Return a name for a tool of our own that means no other tool; a number is appended to a name that is taken."""
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if catalog.meant_by(each) is None)


def _describing(catalog: Catalog, format: PromptFormat, part: str = "tool", **values: Any) -> Tool:
    """Make the tool that describes tools, under a name that no other tool has."""
    name = free_name(_OWN_NAME, catalog)
    names = {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "description": format.render("describe_tools", part="names").strip(),
        "examples": [list(catalog.names()[:1])],
    }
    schema = {"type": "object", "properties": {"names": names}, "required": ["names"]}
    return Tool(name=name, description=format.render("describe_tools", part=part, **values).strip(), input_schema=schema)
