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
from pathlib import Path
from typing import Any, Final

from ..agent.drive import Scores, result_of
from ..backends.base import Backend
from ..backends.scripted import ScriptedBackend
from ..dialects import DIALECTS
from ..errors import UsageError
from ..profiles.profile import Profile
from ..prompting import system as prompt
from ..prompting.feedback import results
from ..prompting.format import ENGLISH, PromptFormat
from ..prompting.grades import Budget, ToolPrompt, tool_prompt_within
from ..prompting.writer import PromptWriter, in_text, with_system
from ..tools.catalog import Catalog
from ..turn.asking import Asking, Mode
from ..turn.generate import Binder, Generated, ReplyOptions, generate
from ..turn.machine import Machine
from ..turn.native import generate_native
from ..turn.tool_need import ToolNeed, ask_tool_need
from ..types.calls import InvalidCall, Message, Tool, ToolCall
from ..types.completion import Capabilities, Chunk, CompletionRequest
from ..wire.openai import finish_reason_of, native_call
from .case import Case, messages_of

__all__ = [
    "OF_WAY",
    "Settings",
    "Way",
    "asked_by",
    "asking_of",
    "catalog_of",
    "conversation",
    "decided",
    "feedback_of",
    "format_of",
    "generation",
    "kept_odds",
    "need_of",
    "offered_of",
    "origin_prompt",
    "prompt_hash",
    "read_catalog",
    "replay",
    "sent",
    "unreminded",
    "way_of",
]


OF_WAY: Final = frozenset({"mode", "dialect"})
"""Fields of `Asking` that the way of calling sets, and a run does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Asking):
    """How a model is asked in all ways of a run; mode and dialect are the way's (`asking_of`).

    Args:
        tool_tokens: as in `Asking`; but None shows single questions all tools in full.
        feedback: how many times a reply without a valid call is answered with what is wrong.
        whole_tokens: how many tokens the tools may take before some are shown in part; None takes `tool_tokens`.
    """

    max_tokens: int | None = 512
    temperature: float | None = 0.0
    seed: int | None = 1
    feedback: int = 0
    whole_tokens: int | None = None

    def __post_init__(self) -> None:
        """Fill in the family where an option was not given (None), and check the settings."""
        object.__setattr__(self, "family", self.family or ENGLISH.family)
        Asking.__post_init__(self)

    def to_json(self) -> dict[str, Any]:
        """Return what is set, so that a run keeps the keys of its requests when a later version has one more setting."""
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in OF_WAY}
        return {
            name: value for name, value in settings.items() if value is not None and (name, value) != ("family", ENGLISH.family)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way of calling.

    Args:
        dialect: the wire format that the prompt asks for; "" for the server's own function calling.
        asked: codes of repairs that are none here, because the prompt asks for what they mend.
        reads_text: calls count that the server's own function calling left in the text.
    """

    name: str
    dialect: str
    asked: frozenset[str] = frozenset()
    reads_text: bool = False
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
    """Return a way by its name."""
    if name not in _WAYS:
        raise UsageError(f"unknown way of calling {name!r}; known: {', '.join(_WAYS)}")
    return _WAYS[name]


def asked_by(profile: Profile, settings: Settings) -> tuple[Way, Settings]:
    """Return the way and the settings in which a profile has a model asked."""
    asking = profile.asking
    if asking.is_native:
        return way_of("native+read"), settings
    name = "xml" if asking.dialect == ENGLISH.dialect else asking.dialect
    return way_of(name), replace(settings, family=asking.family, call_threshold=asking.call_threshold)


def asking_of(way: Way, settings: Settings) -> Asking:
    """Return how a model is asked in a way; with native function calling, what is said of calls is said as in `xml`."""
    mode: Mode = ("native" if way.reads_text else "native-only") if way.is_native else "xml"
    return replace(settings, mode=mode, dialect=way.dialect or ENGLISH.dialect)


def format_of(way: Way, settings: Settings) -> PromptFormat:
    """Return the format in which a model is asked in a way."""
    return asking_of(way, settings).format


def conversation(
    way: Way, case: Case, settings: Settings, *, needs_tool: bool = True, describes: bool = True
) -> tuple[Message, ...]:
    """Return the messages of a case as the model gets them; `describes`: fitting tools are described after the question."""
    catalog, format = catalog_of(case), format_of(way, settings)
    messages = messages_of(case.messages)
    if way.is_native:
        return tuple(messages)
    messages = in_text(messages, catalog, format)
    if way.name == "origin":
        return with_system(origin_prompt(catalog), messages)
    offered = offered_of(way, case, settings)
    reminder = prompt.reminder(offered.catalog, offered.format, needs_tool=needs_tool) if settings.reminder else ""
    follows = _follows_result(case)
    if follows and settings.call_threshold is not None:
        reminder = ""  # the question has one only where nothing was decided of it
    writer = PromptWriter(offered=offered, reminder=reminder, stands="question" if follows else "end")
    return writer.messages(messages, fits=describes and needs_tool)


def feedback_of(way: Way, case: Case, settings: Settings, calls: Iterable[ToolCall | InvalidCall]) -> Message:
    """Return the feedback to a model if none of its calls can run."""
    catalog, format = read_catalog(way, case, settings), format_of(way, settings)
    return results([(call, None) for call in calls], catalog, format, request=str(case.messages[-1]["content"]))


def _follows_result(case: Case) -> bool:
    """Say whether the model is to continue after the result of a call."""
    return bool(case.messages) and case.messages[-1]["role"] == "tool"


def sent(way: Way, case: Case, settings: Settings, rounds: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Return the messages that a kept reply answers, which depend on what was decided."""
    first: Mapping[str, Any] = rounds[0] if rounds else {}
    if first.get("begun"):
        return conversation(way, case, replace(settings, reminder=False))
    odds, threshold = kept_odds(first), first.get("threshold", settings.call_threshold)
    if odds is None or threshold is None:
        return conversation(way, case, settings)
    return conversation(way, case, settings, needs_tool=odds > threshold)


def kept_odds(kept: Mapping[str, Any]) -> float | None:
    """Return what was held against the threshold of a kept reply; None if nothing was decided.

    Until 2026-11-25 the evidence of the tool's name in a call was added: `moved` and `named`, in nats.
    """
    if (odds := kept.get("score", kept.get("log_odds"))) is None:
        return None
    moved, named = kept.get("moved"), kept.get("named")
    odds += 0.0 if moved is None else 3.0 * (min(moved, 2.0) - 0.3)
    return float(odds + (0.0 if named is None else 10.0 * max(named, -2.0)))


def decided(way: Way, case: Case, settings: Settings, need: ToolNeed | None) -> tuple[Message, ...]:
    """Return the messages of a case after it was decided whether it needs a tool."""
    if need is None or not need.is_sure:
        return conversation(way, case, settings)
    return conversation(way, case, replace(settings, reminder=not need.begun and settings.reminder), needs_tool=need.needs_tool)


async def need_of(way: Way, case: Case, backend: Backend, settings: Settings, scores: Scores | None = None) -> ToolNeed | None:
    """Ask a model whether a case needs a tool, if the settings have a threshold for that."""
    if settings.call_threshold is None or not (way.is_ours and settings.reminder) or _follows_result(case):
        return None
    request = CompletionRequest(messages=unreminded(way, case, settings), seed=settings.seed)
    shown = replace(request, messages=conversation(way, case, replace(settings, reminder=False)))
    catalog, format = read_catalog(way, case, settings), format_of(way, settings)
    asking = ask_tool_need(settings.call_threshold, backend.capabilities, request, catalog, format, shown=shown)
    return await result_of(Machine(asking), backend, scores)


def offered_of(way: Way, case: Case, settings: Settings) -> ToolPrompt:
    """Return how the tools of a case are described to the model."""
    catalog, format = catalog_of(case), format_of(way, settings)
    if settings.tool_tokens is not None and way.is_ours:
        budget = Budget(whole=settings.whole_tokens or settings.tool_tokens, parts=settings.tool_tokens)
        return tool_prompt_within(budget, catalog, format)
    return ToolPrompt(catalog=catalog, grade="whole", system=prompt.tool_prompt(catalog, format), format=format)


def read_catalog(way: Way, case: Case, settings: Settings) -> Catalog:
    """Return the tools that a reply may call: those of the case, and one of ours where those are shown in part."""
    return catalog_of(case) if settings.tool_tokens is None else offered_of(way, case, settings).catalog


def unreminded(way: Way, case: Case, settings: Settings) -> tuple[Message, ...]:
    """Return the messages of a case as a model is asked whether it needs a tool."""
    return conversation(way, case, replace(settings, reminder=False), describes=False)


def catalog_of(case: Case) -> Catalog:
    """Return the tools of a case; of two with one name, which a few of BFCL's cases have, the first."""
    return Catalog({tool.name: tool for tool in reversed(case.tools)}.values())


def generation(
    way: Way, case: Case, messages: tuple[Message, ...], server: Capabilities, settings: Settings, begun: str = ""
) -> Machine[Generated]:
    """Return what generates a reply."""
    catalog = read_catalog(way, case, settings)
    request = CompletionRequest(
        messages=messages,
        tools=tuple(catalog) if way.is_native else (),
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        seed=settings.seed,
    )
    binder = Binder(catalog=catalog, unsaid=format_of(way, settings).shows.unsaid if way.is_ours else "")
    if way.is_native:
        return Machine(generate_native(request, binder, server, read_text=way.reads_text))
    one_tool = bool(begun and settings.tool_tokens is not None and offered_of(way, case, settings).own)
    how = ReplyOptions(server=server, parallel=settings.parallel, one_tool=one_tool)
    return Machine(generate(request, binder, how, prefix=begun))


def replay(
    kept: Mapping[str, Any], case: Case, way: Way, settings: Settings, *, reasoning_open: bool = False
) -> tuple[Machine[Generated], Backend]:
    """Return what reads a kept reply as if the model wrote it now, and a backend that writes it."""
    calls = tuple(native_call(index, name, text) for index, (name, text) in enumerate(kept.get("calls", ())))
    chunk = Chunk(text=kept.get("text", ""), reasoning=kept.get("reasoning", ""), tool_calls=calls)
    end = Chunk(finish_reason=finish_reason_of(kept.get("finish_reason", "")))
    server = Capabilities(server="scripted", reasoning_open=reasoning_open)
    return generation(way, case, (), server, settings), ScriptedBackend([[chunk, end]], capabilities=server)


def prompt_hash(way: Way, settings: Settings) -> str:
    """Hash the prompts of a way around a fixed tool, to show whether two runs used the same.

    With a call threshold there are three: one for each decision, and the usual one where nothing is decided.
    """
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    tools = (Tool(name="one", input_schema=schema), Tool(name="two", description="Two.", input_schema=schema))
    case = Case(id="", category="", messages=({"role": "user", "content": "?"},), tools=tools)
    asked = [*conversation(way, case, settings)]
    if settings.call_threshold is not None:
        asked += conversation(way, case, settings, needs_tool=False)
        asked += conversation(way, case, replace(settings, reminder=False))
    text = json.dumps([[message.role, message.content] for message in asked], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# -- a rival: the kind of tool prompt that browser extensions paste into chats, in our words ---------------------------
# What is typical of it (SuperAssistant's published prompt, 2025, was the pattern): a role and a list of strict rules, the tools
# as JSON with every parameter, a fenced block around one call, a call id that the model has to count up, one call a reply, and a
# result that the person's side pastes back. The reply is read by the same parser as ours.


def origin_prompt(tools: Iterable[Tool]) -> str:
    """Return the system prompt."""
    rules = Path(__file__).with_name("origin.txt").read_text(encoding="utf-8")
    return rules + "\n".join(json.dumps(_described(tool), ensure_ascii=False) for tool in tools)


def _described(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
