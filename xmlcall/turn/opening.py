"""Begins a turn: combines a conversation and the offered tools into what the model is shown.

The reminder is appended to the user's message and stays there, because the server has it cached. If it was decided whether the
message needs a tool (`tool_need`), there is no reminder: either we begin the call for the model, or the model is asked for plain
words. That request is part of this turn's prompts only, because a model that reads it in its history continues in plain words.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

from ..binding.echo import Sources, words_of
from ..dialects.write import as_message, calls_of, ends_in, replies_of, said_by_whom, told_together
from ..errors import UsageError
from ..prompting import system as prompt
from ..prompting.system import ToolPrompt, budget_for, native_tools_within, tool_prompt_within
from ..prompting.writer import PromptWriter, callers_in_text, with_reminder, with_system, without_reminder
from ..tools.catalog import Catalog, Tools
from ..types.calls import Message, Role, items_of
from ..types.completion import Capabilities, CompletionRequest
from .asking import Asking
from .attempts import RepairPolicy
from .generate import NewId, numbered_ids
from .machine import Script
from .turn import Turn
from .turn_setup import FirstRequest, Generation, History, InText, Offer, decide, describing


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A conversation that a turn continues."""

    messages: Sequence[Message]  # the conversation so far; it ends with a user message or a result
    asking: Asking
    offered: ToolPrompt | None = None  # how the prompt describes the tools; None if it does not
    described: Sequence[str] = ()
    new_id: NewId | None = None  # makes the ids of calls; None for numbers that no earlier turn of the conversation used

    def __post_init__(self) -> None:
        """Refuse mode `auto`, which becomes another mode once the server was checked."""
        if self.asking.mode == "auto":
            raise UsageError("mode must be one of 'xml', 'native', 'native-only', 'none', got 'auto': a turn checks no server")

    def offering(
        self, in_prompt: Callable[[], ToolPrompt], natively: Callable[[], ToolPrompt], server: Capabilities
    ) -> tuple["Opening", Offer]:
        """Offer the tools as the mode says: in the prompt, or to the server's own function calling, which text may replace."""
        if self.asking.is_native:
            in_text = (lambda: self.in_text(in_prompt(), server)) if self.asking.mode == "native" else None
            return self, offer_of(natively(), self.messages, in_text=in_text)
        offered = in_prompt()
        return replace(self, offered=offered if self.asking.mode == "xml" else None), offer_of(offered, self.messages)

    def turn(self, offer: Offer, server: Capabilities, limits: RepairPolicy) -> Turn:
        asking, catalog = self.asking, offer.catalog
        said = [text for _, role, _, text in said_by_whom(self.messages) if role != "assistant"]
        shown = [*([self.offered.listed] if self.offered else ()), *told_together(self.messages)]
        sources = Sources(said=said, described=[*map(words_of, catalog), *self.described], shown=shown)
        generation = Generation(
            server=server,
            format=asking.format,
            is_native=asking.is_native,
            reads_text=asking.mode == "native",
            reads_reasoning=asking.reasoned_calls,
            new_id=self.new_id or numbered_ids(f"call_{len(self.messages)}"),
        )
        history = History(request=last_request(self.messages), sources=sources, conversation=self.messages, kept=self.kept)
        return Turn(generation, offer, limits, history, lambda: self._decide(server))

    def in_text(self, offered: ToolPrompt, server: Capabilities) -> InText:
        """Return the tools in the prompt, for a turn whose native reply came to nothing."""
        asking = replace(self.asking, mode="xml")
        reminder = replace(self, asking=asking, offered=offered)._reminder()
        write = partial(callers_in_text, catalog=offered.catalog, format=asking.format)
        writer = PromptWriter(offered=offered, reminder=reminder, stands="question", in_text=write)
        request = writer.forms(self.messages, asking.request(server), is_asked=False).reminded
        return InText(offer=Offer(catalog=offered.catalog, own=describing(offered)), request=request, listed=offered.listed)

    def kept(self, first: FirstRequest) -> tuple[Message, ...]:
        """Return the messages before the turn, to continue with: without the tool prompt, and without notes for this turn only.

        The first request has no messages while that is not decided.
        """
        reminder, sent = self._reminder(), first.request.messages
        bare = without_reminder(reminder, self.messages)
        return with_reminder(reminder, bare) if reminder and sent and ends_in(sent[-1], reminder) else bare

    def put_in_place_of(self, before: ToolPrompt | None) -> Callable[[CompletionRequest], CompletionRequest]:
        """Return a function that replaces an earlier tool prompt in a request by the current one."""

        def change(request: CompletionRequest) -> CompletionRequest:
            if before is None or self.offered is None or request.messages[0] != with_system(before.system, self.messages)[0]:
                return request  # asked without tools
            return replace(request, messages=(with_system(self.offered.system, self.messages)[0], *request.messages[1:]))

        return change

    def _reminder(self) -> str:
        if not self.asking.reminder or self.offered is None:
            return ""
        return prompt.reminder(self.offered.catalog, self.asking.format)

    def _decide(self, server: Capabilities) -> Script[FirstRequest]:
        """Ask whether the user's message needs a tool, if a threshold is set, and prepare the first request accordingly."""
        asking, offered = self.asking, self.offered
        if offered is None:
            return FirstRequest(request=replace(asking.request(server), messages=tuple(self.messages)))
        reminder = self._reminder()
        bare = without_reminder(reminder, self.messages)
        is_asked = bool(reminder) and bare[-1].role == "user" and not replies_of(bare[-1])
        forms = PromptWriter(offered=offered, reminder=reminder).forms(bare, asking.request(server))
        threshold = asking.call_threshold if is_asked else None
        lang = prompt.language_of(last_request(self.messages), asking.lang)
        return (yield from decide(threshold, server, offered.catalog, asking.format, forms, lang=lang))


def begin_turn(
    messages: Iterable[Message | Mapping[str, Any]],
    tools: Tools,
    *,
    asking: Asking | None = None,
    server: Capabilities | None = None,
    repair: RepairPolicy | None = None,
) -> Turn:
    """Begin a turn that you drive yourself: with your own client, with or without an event loop.

    Args:
        messages: the conversation so far, the user's message last: `Turn.conversation` of an earlier turn, or `{"role",
            "content"}` dicts.
        tools: the tools that the model may call.
        asking: how the model is asked; None for the defaults.
        server: the capabilities of the model server; None if they are unknown.
        repair: how many replies the turn may have, and how often the model may try again; None for the defaults.

    Returns:
        The turn, whose `next()` says what to do first.

    Raises:
        UsageError: the messages are not a conversation that can continue, or `repair` has `on_repeat`, which is for `ToolLoop`.
    """
    said = conversation_of(messages)
    asking, server = asking or Asking(), server or Capabilities(server="")
    limits, catalog = repair or RepairPolicy(asks_for_unsaid=True), Catalog.of(() if asking.mode == "none" else tools)
    if limits.on_repeat:
        raise UsageError("RepairPolicy(on_repeat=...) is asked by ToolLoop alone: leave it out")
    budget = budget_for(server.context_length, asking.tool_tokens)

    in_prompt, natively = (partial(show, budget, catalog, asking.format) for show in (tool_prompt_within, native_tools_within))
    opening, offer = Opening(messages=said, asking=asking).offering(in_prompt, natively, server)
    return opening.turn(offer, server, limits)


def offer_of(offered: ToolPrompt, messages: Sequence[Message], **values: Any) -> Offer:
    """Return the offer of a turn's tools; of those that are sent only in part, what fits the conversation."""
    offer = Offer(**{"catalog": offered.catalog, "own": describing(offered), **values})
    if offered.grade != "sent":
        return offer
    start = max((place for place, message in enumerate(messages, 1) if message.role == "user"), default=len(messages))
    chosen = offered.chosen(last_request(messages), called_before(messages[:start]))
    return replace(offer, natively=offered, chosen=chosen, found_before=list(_led_to(offered, messages[start:])))


def _led_to(offered: ToolPrompt, messages: Iterable[Message]) -> Iterator[str]:
    """Yield the tools that calls found, and those that were called, so that a request gets the tools of the one before."""
    for call in (call for message in messages for call in message.tool_calls):
        names = call.arguments.get("names") if call.name == offered.own else None
        is_finding = isinstance(names, list) and all(isinstance(name, str) for name in names)
        yield from offered.found(call.arguments) if is_finding else (call.name,)


def called_before(messages: Iterable[Message]) -> list[str]:
    """Return the names of the tools that a conversation called, the latest first."""
    called: list[str] = []
    for message in messages:
        called += [call.name for call in calls_of(message)]
    return list(dict.fromkeys(reversed(called)))


def conversation_of(messages: Iterable[Message | Mapping[str, Any]]) -> list[Message]:
    """Read a conversation that a model can answer from messages, or `{"role", "content"}` dicts; else raise a `UsageError`."""
    if isinstance(messages, str):
        raise UsageError(f'expected a list of messages, got a text: write [{{"role": "user", "content": {messages!r:.80}}}]')
    given = list(items_of(messages, "messages"))
    for each in given:
        if not isinstance(each, Message) and not _is_message(each):
            raise UsageError(f'expected {{"role": "user", "content": "..."}}, got {each!r:.120}')
    said = [as_message(each) for each in given]
    if not said or said[-1].role not in ("user", "tool"):
        raise UsageError("the last message must be the person's (role 'user') or a result")
    return said


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("role") in get_args(Role) and isinstance(value.get("content"), str)


def last_request(messages: Iterable[Message]) -> str:
    said = [message.content for message in messages if message.role == "user"]
    return said[-1] if said else ""
