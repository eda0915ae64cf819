"""The ways of calling that are compared: how tools are offered to a model, and how its reply is read for calls.

Each way is a row. `xml` is the product's own prompt; a dialect's name is the same prompt with that format. `native` leaves both
to the server's function calling; `native+read` also reads calls that the server left in the text. `none` offers no tools.
`origin` is a reworded version of the prompts that browser extensions paste into a chat: many rules, a fenced block, and every
value a string.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..agent.drive import Scores, result_of
from ..backends.base import Backend
from ..dialects import DIALECTS
from ..errors import UsageError
from ..profiles.profile import Profile
from ..prompting import system as prompt
from ..prompting.feedback import results
from ..prompting.format import ENGLISH, PromptFormat
from ..prompting.grades import Budget, ToolPrompt, tool_prompt_within
from ..prompting.writer import PromptWriter, in_text, with_system
from ..tools.catalog import Catalog
from ..turn.generate import Binder, Generated, ReplyOptions, generate
from ..turn.machine import Machine
from ..turn.native import generate_native
from ..turn.tool_need import Threshold, ToolNeed, ask_tool_need
from ..types.calls import InvalidCall, Message, Tool, ToolCall
from ..types.completion import Capabilities, CompletionRequest
from .case import Case, messages_of

__all__ = [
    "Settings",
    "Way",
    "asked_by",
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
    "sent",
    "unreminded",
    "way_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is the same for all cases and ways of a run.

    Args:
        feedback: how many times a reply without a valid call is answered with what is wrong.
        call_threshold: log-odds of a call above which a call is begun for the model, and below which plain words are asked for,
            in the ways that have a reminder; or `auto` (see `tool_need`).
        tool_tokens: what the description of the tools may take of a prompt; None shows single questions all tools whole, and
            leaves it to `ToolLoop` in tasks and conversations.
    """

    lang: str = "en"
    parallel: bool = True
    reminder: bool = True
    max_tokens: int = 512
    temperature: float = 0.0
    seed: int = 1
    feedback: int = 0
    call_threshold: Threshold | None = None
    family: str | None = None
    tool_tokens: int | None = None
    whole_tokens: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what is set, so that a run keeps its requests' keys when there is one more thing to set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


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
        """Whether tools are offered in our prompt, with a reminder behind the question."""
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
    if profile.way == "native":
        return way_of("native+read"), settings
    threshold = None if profile.call_threshold == "off" else profile.call_threshold
    family = None if profile.family == ENGLISH.family else profile.family
    name = "xml" if profile.dialect == ENGLISH.dialect else profile.dialect
    return way_of(name), replace(settings, family=family, call_threshold=threshold)


def format_of(way: Way, settings: Settings) -> PromptFormat:
    """Return how a model is spoken to in a way; where its server finds the calls, what is told of them is told as in `xml`."""
    return PromptFormat(
        dialect=way.dialect or ENGLISH.dialect,
        lang=settings.lang,
        parallel=settings.parallel,
        family=settings.family or ENGLISH.family,
    )


def conversation(
    way: Way, case: Case, settings: Settings, *, needs_tool: bool = True, describes: bool = True
) -> tuple[Message, ...]:
    """Return the messages of a case as the model gets them.

    Args:
        describes: whether tools that fit the question are described behind it, where tools are shown in part.
    """
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
    """Return what a model is told of calls none of which can run."""
    catalog, format = read_catalog(way, case, settings), format_of(way, settings)
    return results([(call, None) for call in calls], catalog, format, request=str(case.messages[-1]["content"]))


def _follows_result(case: Case) -> bool:
    """Say whether the model is to go on behind the result of a call."""
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

    Until 2026-11-25 what the tool's name in a call told was added: `moved` and `named`, in nats.
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


def prompt_hash(way: Way, settings: Settings) -> str:
    """Hash the prompts of a way around a fixed tool, to tell whether two runs used the same.

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


_RULES = """You are an assistant with access to tools. You operate in a loop: think about the request, call a tool, read its \
result, go on until the request is done.

Rules for calling tools:
1. Explain in one sentence why you call the tool, then write the call and nothing after it.
2. One call in a reply. Wait for its result before the next one.
3. Use only the tools listed here, and only the parameters that they have. Never make up a result.
4. A call stands in a code block that begins with ```xml and ends with ```.
5. Number the calls: call_id is 1 for the first call and grows by one with each.
6. If no tool is needed, answer in plain words.

The form of a call:

```xml
<function_calls>
<invoke name="TOOL_NAME" call_id="1">
<parameter name="PARAMETER_1">VALUE_1</parameter>
<parameter name="PARAMETER_2">VALUE_2</parameter>
</invoke>
</function_calls>
```

Strings stand as they are, lists and objects as JSON. The result comes in the next message, in <function_results>.

Available tools:
"""


def origin_prompt(tools: Iterable[Tool]) -> str:
    """Return the system prompt."""
    return _RULES + "\n".join(json.dumps(_described(tool), ensure_ascii=False) for tool in tools)


def _described(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
