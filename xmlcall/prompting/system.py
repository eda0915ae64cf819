"""Renders the prompt that offers tools, its reminder, and the short texts that request another reply."""

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import regex

from ..dialects.call_signs import inert_text
from ..dialects.write import write
from ..tools.catalog import Catalog, Tools, words_of_name
from ..tools.outline import example_arguments, parameters_of, rules_for
from ..tools.ranking import Ranking
from ..types.calls import Tool
from .format import ENGLISH, PromptFormat

# -- how many tokens a text has ----------------------------------------------------------------------------------------
# Estimates how many tokens a text has from its characters, and corrects the estimate by a server's own counts.
#
# No server's tokenizer is available here. `Scale` keeps what a server reports during a conversation. `RequestScale` is for
# proxies: many replicas of the proxy may serve one model server, and each turn of a conversation may reach another replica. The
# request alone must then determine where a prompt is cut: a replica that had learned from other requests would cut elsewhere,
# and the server would have to reprocess everything after that place. So, unlike `Scale`, it learns nothing from replies. Each
# request begins with the same facts (`CommonScale`): how many tokens the server counts in a constant text, and how many its
# context holds. A refusal corrects the rate within its own request, in steps of `STEP`. So a conversation that has grown by a
# turn, and is refused again, is cut at the same places.
#
# The context length that a refusal reports is a fact, too. The prompt is then cut as by a replica that knew it from the
# beginning.


CHARACTERS_A_TOKEN: Final = 3.2
"""For ASCII without digits; lower than for plain English, because code and markup have fewer."""

_DIGITS: Final = b"0123456789"
_SPOKEN: Final = regex.compile(r"[a-z]{3,20}(?: (?:[a-z]{3,20}|id)){0,2}")  # words of a parameter's name that a question may have
_NOT_ASCII: Final = bytes(range(128, 256))

STEP: Final = 1.125
MARGIN: Final = 1.05  # reserve on top of the rate that a refusal implies
MOST: Final = 8.0  # a server's count is untrusted
UNTOLD: Final = 1.2  # factor by which the rate grows if a refusal reports no count
SMALLER: Final = 0.75  # assumed context length, as a share of the refused prompt, if the refusal reports none


def tokens_of(text: str) -> float:
    """Estimate the tokens of a text: most tokenizers make one token of a digit, or of three non-ASCII bytes (a Han character)."""
    data = text.encode("utf-8", "surrogatepass")
    ascii_length = len(data.translate(None, _NOT_ASCII))
    digits = len(data) - len(data.translate(None, _DIGITS))
    return digits + (ascii_length - digits) / CHARACTERS_A_TOKEN + (len(data) - ascii_length) / 3


@dataclass(slots=True)
class Scale:
    """What a model server has reported about lengths."""

    # The server's tokens for each estimated one, a little above the measured ratio; None before the first report.
    rate: float | None = None
    # Tokens that prompt and reply share, as a refusal reported it or as guessed from one; None before that.
    context_length: int | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The lower and the upper bound of the rate.

        The lower bound decides whether a prompt is cut, because needlessly cut words are lost, while a server refuses a prompt
        that is too long at once. The upper bound decides how far it is cut, because then some words are lost anyway and the reply
        needs room.
        """
        return (0.8, 1.1) if self.rate is None else (self.rate, self.rate)

    def learn(self, counted: int, estimated: float) -> None:
        """Learn from a server's count of a prompt; an approximately right rate is kept, because a new one moves all cuts."""
        if estimated < 256 or counted < estimated / 2:  # the template's words weigh too much, or the cached part is not counted
            return
        measured = min(counted / estimated, 8.0)  # a server's count is untrusted
        if self.rate is None or not self.rate / 1.5 < measured <= self.rate:
            self.rate = measured * 1.1

    def refused(self, estimated: float, counted: int | None, context_length: int | None) -> bool:
        """Learn from a refusal; values that it does not report are guessed so that less is sent next time."""
        if counted:
            self.learn(counted, estimated)
        least = self.bounds[0]
        self.context_length = context_length or self.context_length or round(estimated * least * 0.75)
        if not counted:
            self.rate = 1.25 * max(least, self.context_length / max(estimated, 1.0))
        return False


@dataclass(slots=True)
class CommonScale:
    """Facts about the model server that are the same for all callers."""

    # The server's tokens for each estimated one in a constant text, rounded up a little; None if it was not, or cannot be,
    # measured.
    rate: float | None = None
    context_length: int | None = None  # tokens that prompt and reply share, as a refusal reported it; None before that


@dataclass(slots=True)
class RequestScale:
    facts: CommonScale
    _corrected: float | None = field(init=False, default=None)
    _guessed: int | None = field(init=False, default=None)

    @property
    def rate(self) -> float | None:
        """The server's tokens for each estimated one; None if unknown."""
        return self._corrected or self.facts.rate

    @property
    def context_length(self) -> int | None:
        """Tokens that prompt and reply share; None before a refusal reported or implied it."""
        return self.facts.context_length or self._guessed

    @property
    def bounds(self) -> tuple[float, float]:
        """The lower and the upper bound of the rate (see `Scale.bounds`)."""
        return Scale(rate=self.rate).bounds

    def learn(self, counted: int, estimated: float) -> None:
        """Ignore a server's count of a prompt, because it must not affect other requests."""

    def refused(self, estimated: float, counted: int | None, context_length: int | None) -> bool:
        """Learn from a refusal; return whether it reported a new context length: then the rate is not corrected yet."""
        if context_length and context_length != self.context_length:
            self.facts.context_length = context_length
            return True
        least = self.bounds[0]
        length = self.context_length
        if length is None:
            length = self._guessed = round(_step(estimated * least * SMALLER, math.floor))
        least_told = UNTOLD * max(least, length / max(estimated, 1.0))
        measured = min(counted / max(estimated, 1.0), MOST) if counted else least_told
        if not counted or self.rate is None or measured > self.rate:  # else there was no room for the reply
            self._corrected = _step(measured * MARGIN, math.ceil)
        return False


def _step(number: float, whole: Callable[[float], int]) -> float:
    return STEP ** whole(math.log(max(number, 0.01), STEP))


# -- the prompt --------------------------------------------------------------------------------------------------------


# Begins where a word does, and its first part does not backtrack, so the time is linear in the text.
_NAME = regex.compile(r"(?<!\S)[^\s/._\\@:]*+[/._\\@:]\S*[A-Za-z0-9/]")
_CHINESE = regex.compile(r"\p{Han}")
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_LATIN = regex.compile(r"\p{Latin}{2,}")

Step = Literal["", "ask", "look_up"]
"""The next step if a value is missing: `ask` the person, `look_up` with a tool, or "" to let the model choose."""


def system_prompt(
    tools: Tools,
    *,
    dialect: str = "function_calls",
    lang: str = "en",
    parallel: bool = True,
    family: str = "list",
    instructions: Mapping[str, str] | None = None,
) -> str:
    """Render the system prompt that offers tools.

    Args:
        tools: the catalog, in display order; if it is empty, the prompt says so.
        dialect: the wire format.
        lang: `en` or `zh`.
        parallel: whether one block may contain several calls.
        family: how tools are shown, one of `FAMILIES`.
        instructions: server name -> that server's instructions for its tools, shown as the server's words.

    Returns:
        The same text for the same arguments, so that a server's prompt cache can hold it.

    Raises:
        UsageError: unknown dialect, language or family.
    """
    format = PromptFormat(dialect=dialect, lang=lang, parallel=parallel, family=family)
    return tool_prompt(tools, format, instructions=instructions)


def tool_prompt(tools: Tools, format: PromptFormat, *, instructions: Mapping[str, str] | None = None) -> str:
    catalog = Catalog.of(tools)
    example = example_call(catalog, format)
    shown = {"tools": described(catalog), "catalog": catalog, "instructions": instructions or {}}
    return format.render("system", grade="whole", example=example, **shown)


def described(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return the data that templates show for tools."""
    return [{"tool": tool, "parameters": parameters_of(tool), "rules": rules_for(tool)} for tool in tools]


def example_call(catalog: Catalog, format: PromptFormat) -> str:
    """Write one call of the first tool; with a second call in the example, small models write both, whatever is asked."""
    unsaid = format.shows.unsaid
    calls = [(tool.name, _inert(example_arguments(tool, unsaid=unsaid), catalog)) for tool in list(catalog)[:1]]
    return write(calls, catalog, format.row)


def _inert(value: Any, catalog: Catalog) -> Any:
    if isinstance(value, str):
        return inert_text(value, catalog)
    if isinstance(value, dict):
        return {_inert(key, catalog): _inert(each, catalog) for key, each in value.items()}
    return [_inert(each, catalog) for each in value] if isinstance(value, list) else value


def language_of(text: str, otherwise: str) -> str:
    """Return the language for text after a person's words: the person's, if there are prompts in it, else `otherwise`.

    The model answers in the language that it reads last, whatever the person wrote. File names and addresses do not count,
    because they are Latin in any language. Japanese shares characters with Chinese, but has no prompts.
    """
    words = _NAME.sub(" ", text)
    chinese, latin = len(_CHINESE.findall(words)), len(_LATIN.findall(words))
    if _KANA.search(words) or not chinese + latin:
        return otherwise
    return "zh" if chinese >= latin else "en"


def reminder(
    tools: Tools,
    format: PromptFormat = ENGLISH,
    *,
    needs_tool: bool = True,
    unsaid: Sequence[str] = (),
    step: Step = "",
    has_failed: bool = False,
) -> str:
    """Render the short text that ends the prompt, after the person's words; empty without tools.

    If the request was found to need no tool, the text asks for plain words. `unsaid` are parameters of a call that was withdrawn
    because their values appear nowhere in the conversation; `has_failed` says that there was no valid call after all retries.
    """
    values = {"needs_tool": needs_tool, "unsaid": unsaid, "step": step, "has_failed": has_failed}
    catalog = Catalog.of(tools)
    return format.render("reminder", tools=list(catalog), catalog=catalog, **values).strip()


def question(format: PromptFormat, name: str) -> str:
    """Render the beginning of a question for a missing value; without it, a small model repeats the request or answers it.

    With the words of the parameter's name in it, the model does not ask for what it was asked ("Please tell me the weather").
    """
    words = " ".join(words_of_name(name))
    return format.render("question", name=words if _SPOKEN.fullmatch(words) else "").strip()


def demand(format: PromptFormat, name: str = "") -> str:
    """Render the message to a model that had to call a tool and did not."""
    return format.render("must_call", name=name).strip()


def after_empty(format: PromptFormat = ENGLISH) -> str:
    """Render the message to a model whose reply had neither text nor a call."""
    return format.render("empty").strip()


def json_answer(schema: Mapping[str, Any], format: PromptFormat = ENGLISH) -> str:
    """Render the request for an answer in JSON, used when tools are offered, too."""
    return format.render("json_answer", schema=json.dumps(schema, ensure_ascii=False)).strip()


def begin(begun: str, format: PromptFormat = ENGLISH) -> str:
    """Render the request for a reply that begins with the caller's words."""
    return format.render("prefill", begun=begun).strip()


# -- a catalog within a budget of tokens -------------------------------------------------------------------------------
# Shows a catalog in grades: as much of each tool as a token budget allows, the same for all tools, and the rest on demand.
#
# | grade | of each tool the prompt has |
# |---|---|
# | `whole` | everything |
# | `signatures` | its name, its parameters and their types |
# | `lines` | its name and the first sentence of its description |
# | `names` | its name; the number of further tools if the budget does not allow all names |
# | `sent` | nothing: with the server's own function calling, some tools are sent whole with a request, and the others on demand |
#
# The tool prompt has the best grade that fits. It begins every request and does not depend on the question, so that a server's
# prompt cache holds it. Everything that depends on the question comes last, after the person's last words: the tools that fit
# these words best (`Ranking`), described whole. A model may call every tool, shown whole or not. If it does not know how, it
# can request the description with a tool of ours, which is offered only if something is missing and has a name that no other
# tool has.
#
# Earlier messages lose these descriptions again. So a conversation does not grow by them, and a server reprocesses only the text
# since that message.
#
# With the server's own function calling (`native_tools_within`) there is no prompt of ours. The tools that fit the person's last
# words best are sent whole, before others those that were called before, and with them our own tool, which lists as many names as
# there is room for. The tools that it describes are sent from the next request of the turn on, after all others, so that the
# request begins like the one before.
#
# Tokens are estimated. Cost: linear in the tools and, for those that cannot be shown whole, in the budget; the ranking's
# index is built when it is first needed.


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
