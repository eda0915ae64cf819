"""The ways of calling that are compared: how tools are offered to a model, and how its reply is read for calls.

Each way is a row. `xml` is the product's own prompt; a dialect's name is the same prompt with that format. `native` leaves both
to the server's function calling; `native+read` also reads calls that the server left in the text. `none` offers no tools.
`origin` is a reworded version of the prompts that browser extensions paste into a chat: many rules, a fenced block, and every
value a string.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ..agent.drive import result_of
from ..agent.scores import Scores
from ..backends.base import Backend
from ..backends.scripted import ScriptedBackend
from ..dialects import DIALECTS
from ..errors import UsageError
from ..profiles.profile import Profile
from ..prompting import system as prompt
from ..prompting.format import ENGLISH, PromptFormat
from ..prompting.results import results
from ..prompting.system import Budget, ToolPrompt, tool_prompt_within
from ..prompting.writer import PromptWriter, in_text, with_system
from ..tools.catalog import Catalog
from ..turn.asking import Asking, Mode, Sampling
from ..turn.generate import Binder, Generated, ReplyOptions, generate
from ..turn.machine import Machine
from ..turn.native import NativeOptions, generate_native
from ..turn.tool_need import ToolNeed, ask_tool_need
from ..types.calls import InvalidCall, Message, Tool, ToolCall
from ..types.completion import Capabilities, Chunk, CompletionRequest
from ..wire.openai import finish_reason_of, native_call
from .case import Case, messages_of

OF_WAY: Final = frozenset({"mode", "dialect"})  # fields of `Asking` that the way of calling sets, and a run does not
_USUAL: Final = (("family", ENGLISH.family), ("sampling", "greedy"))  # left out of a run's settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Asking):
    """How a model is asked in all ways of a run; the way sets mode and dialect (`asking_of`).

    Without `tool_tokens`, single questions show all tools in full.
    """

    max_tokens: int | None = 512
    sampling: Sampling = "greedy"
    seed: int | None = 1
    feedback: int = 0  # how often a reply without a valid call gets feedback on its errors
    whole_tokens: int | None = None  # tokens up to which all tools are shown whole; None takes `tool_tokens`

    def __post_init__(self) -> None:
        """Fill in the family and the temperature where an option was not given (None), and check the settings."""
        object.__setattr__(self, "family", self.family or ENGLISH.family)
        if self.sampling == "greedy" and self.temperature is None:
            object.__setattr__(self, "temperature", 0.0)  # recorded in each run
        Asking.__post_init__(self)

    def to_json(self) -> dict[str, Any]:
        """Return what is set, so that a run keeps the keys of its requests when a later version has one more setting."""
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in OF_WAY}
        return {name: value for name, value in settings.items() if value is not None and (name, value) not in _USUAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    name: str
    dialect: str  # the format that the prompt asks for; "" for the server's own function calling
    asked: frozenset[str] = frozenset()  # codes that are no repairs here, because the prompt asks for that form
    reads_text: bool = False  # whether calls count that the server's own function calling left in the text
    offers: bool = True

    @property
    def is_native(self) -> bool:
        """Whether the server offers the tools and finds the calls."""
        return not self.dialect

    @property
    def is_ours(self) -> bool:
        """Whether tools are offered in our prompt, with a reminder after the question."""
        return bool(self.dialect) and self.name != "origin"


_WAYS = {
    way.name: way
    for way in (
        Way(name="xml", dialect="function_calls"),
        Way(name="native", dialect=""),
        Way(name="native+read", dialect="", reads_text=True),
        Way(name="none", dialect="", offers=False),
        # Asks for a block in a fence, and for the attribute call_id.
        Way(name="origin", dialect="function_calls", asked=frozenset({"code-fence", "attribute-style"})),
        *(Way(name=name, dialect=name) for name in DIALECTS),
    )
}


def way_of(name: str) -> Way:
    if name not in _WAYS:
        raise UsageError(f"unknown way of calling {name!r}; known: {', '.join(_WAYS)}")
    return _WAYS[name]


def asked_by(profile: Profile, settings: Settings) -> tuple[Way, Settings]:
    asking = profile.asking
    if asking.is_native:
        return way_of("native+read"), settings
    name = "xml" if asking.dialect == ENGLISH.dialect else asking.dialect
    return way_of(name), replace(settings, family=asking.family, call_threshold=asking.call_threshold)


def asking_of(way: Way, settings: Settings) -> Asking:
    """Return how a model is asked in a way; with native function calling, calls are described as in `xml`."""
    mode: Mode = ("native" if way.reads_text else "native-only") if way.is_native else "xml"
    return replace(settings, mode=mode, dialect=way.dialect or ENGLISH.dialect)


def catalog_of(case: Case) -> Catalog:
    """Return the tools of a case; if two share a name, as in a few of BFCL's cases, only the first."""
    return Catalog({tool.name: tool for tool in reversed(case.tools)}.values())


@dataclass(frozen=True)
class AskedCase:
    """A case in the form in which a way asks it."""

    way: Way
    case: Case
    settings: Settings

    @property
    def format(self) -> PromptFormat:
        return asking_of(self.way, self.settings).format

    @property
    def unreminded(self) -> "AskedCase":
        """The same without a reminder after the question."""
        return replace(self, settings=replace(self.settings, reminder=False))

    @property
    def offered(self) -> ToolPrompt:
        catalog, settings = catalog_of(self.case), self.settings
        if settings.tool_tokens is not None and self.way.is_ours:
            budget = Budget(whole=settings.whole_tokens or settings.tool_tokens, parts=settings.tool_tokens)
            return tool_prompt_within(budget, catalog, self.format)
        return ToolPrompt(catalog=catalog, grade="whole", system=prompt.tool_prompt(catalog, self.format), format=self.format)

    @property
    def catalog(self) -> Catalog:
        """The tools that a reply may call: those of the case, and one of ours where those are shown in part."""
        return catalog_of(self.case) if self.settings.tool_tokens is None else self.offered.catalog

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages as the model gets them if nothing was decided about the question."""
        return self.conversation()

    def conversation(self, *, needs_tool: bool = True, describes: bool = True) -> tuple[Message, ...]:
        """Return the messages as the model gets them; `describes`: fitting tools are described after the question."""
        messages = messages_of(self.case.messages)
        if self.way.is_native:
            return tuple(messages)
        messages = in_text(messages, catalog_of(self.case), self.format)
        if self.way.name == "origin":
            return with_system(origin_prompt(catalog_of(self.case)), messages)
        offered, settings, follows = self.offered, self.settings, self._follows_result
        # After a result the question has a reminder only where nothing was decided about it.
        is_reminded = settings.reminder and not (follows and settings.call_threshold is not None)
        reminder = prompt.reminder(offered.catalog, offered.format, needs_tool=needs_tool) if is_reminded else ""
        writer = PromptWriter(offered=offered, reminder=reminder, stands="question" if follows else "end")
        return writer.messages(messages, fits=describes and needs_tool)

    def decided(self, need: ToolNeed | None) -> tuple[Message, ...]:
        """Return the messages after it was decided whether a tool is needed."""
        if need is None or not need.is_sure:
            return self.messages
        return (self.unreminded if need.begun else self).conversation(needs_tool=need.needs_tool)

    def sent(self, rounds: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
        """Return the messages that a kept reply answers, which depend on what was decided."""
        first: Mapping[str, Any] = rounds[0] if rounds else {}
        if first.get("begun"):
            return self.unreminded.messages
        odds, threshold = kept_odds(first), first.get("threshold", self.settings.call_threshold)
        if odds is None or threshold is None:
            return self.messages
        return self.conversation(needs_tool=odds > threshold)

    async def need(self, backend: Backend, scores: Scores | None = None) -> ToolNeed | None:
        """Ask a model whether a tool is needed, if the settings have a threshold for that."""
        threshold, way = self.settings.call_threshold, self.way
        if threshold is None or not (way.is_ours and self.settings.reminder) or self._follows_result:
            return None
        plain = self.unreminded
        request = CompletionRequest(messages=plain.conversation(describes=False), seed=self.settings.seed)
        shown = replace(request, messages=plain.messages)
        asking = ask_tool_need(threshold, backend.capabilities, request, self.catalog, self.format, shown=shown)
        return await result_of(Machine(asking), backend, scores)

    def feedback(self, calls: Iterable[ToolCall | InvalidCall]) -> Message:
        request = str(self.case.messages[-1]["content"])
        return results([(call, None) for call in calls], self.catalog, self.format, request=request)

    def generation(self, messages: tuple[Message, ...], server: Capabilities, begun: str = "") -> Machine[Generated]:
        way, settings, catalog = self.way, self.settings, self.catalog
        tools = tuple(catalog) if way.is_native else ()
        request = replace(settings.request(server), messages=messages, tools=tools, progress=False)
        binder = Binder(catalog=catalog, unsaid=self.format.shows.unsaid if way.is_ours else "")
        if way.is_native:
            return Machine(generate_native(request, binder, NativeOptions(server=server, reads_text=way.reads_text)))
        one_tool = bool(begun and settings.tool_tokens is not None and self.offered.own)
        how = ReplyOptions(server=server, parallel=settings.parallel, one_tool=one_tool)
        return Machine(generate(request, binder, how, prefix=begun))

    def replay(self, kept: Mapping[str, Any], *, reasoning_open: bool = False) -> tuple[Machine[Generated], Backend]:
        """Return a machine and a backend that replay a kept reply as if the model wrote it now."""
        calls = tuple(native_call(index, name, text) for index, (name, text) in enumerate(kept.get("calls", ())))
        chunk = Chunk(text=kept.get("text", ""), reasoning=kept.get("reasoning", ""), tool_calls=calls)
        end = Chunk(finish_reason=finish_reason_of(kept.get("finish_reason", "")))
        server = Capabilities(server="scripted", reasoning_open=reasoning_open)
        return self.generation((), server), ScriptedBackend([[chunk, end]], capabilities=server)

    @property
    def _follows_result(self) -> bool:
        return bool(self.case.messages) and self.case.messages[-1]["role"] == "tool"


def kept_odds(kept: Mapping[str, Any]) -> float | None:
    """Return the score of a kept reply that was compared with the threshold; None if nothing was decided.

    Until 2026-11-25 the evidence of the tool's name in a call was added: `moved` and `named`, in nats.
    """
    if (odds := kept.get("score", kept.get("log_odds"))) is None:
        return None
    moved, named = kept.get("moved"), kept.get("named")
    odds += 0.0 if moved is None else 3.0 * (min(moved, 2.0) - 0.3)
    return float(odds + (0.0 if named is None else 10.0 * max(named, -2.0)))


def prompt_hash(way: Way, settings: Settings) -> str:
    """Hash the prompts of a way around a fixed tool, to show whether two runs used the same.

    With a call threshold there are three: one for each decision, and the usual one for replies without a decision.
    """
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    tools = (Tool(name="one", input_schema=schema), Tool(name="two", description="Two.", input_schema=schema))
    case = Case(id="", category="", messages=({"role": "user", "content": "?"},), tools=tools)
    asked = AskedCase(way, case, settings)
    messages = [*asked.messages]
    if settings.call_threshold is not None:
        messages += [*asked.conversation(needs_tool=False), *asked.unreminded.messages]
    text = json.dumps([[message.role, message.content] for message in messages], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# -- a rival: the kind of tool prompt that browser extensions paste into chats, in our words ---------------------------
# What is typical of it (SuperAssistant's published prompt, 2025, was the pattern): a role and a list of strict rules, the tools
# as JSON with every parameter, a fenced block around one call, a call id that the model has to count up, one call a reply, and a
# result that the person's side pastes back. The reply is read by the same parser as ours.


def origin_prompt(tools: Iterable[Tool]) -> str:
    rules = Path(__file__).with_name("origin.txt").read_text(encoding="utf-8")
    rows = [{"name": tool.name, "description": tool.description, "parameters": tool.input_schema} for tool in tools]
    return rules + "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
