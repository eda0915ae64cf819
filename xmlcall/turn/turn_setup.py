"""The parameters of a turn: generation, tools, limits, the conversation before it, and its first request.

The first reply is requested with the usual reminder, with a request for plain words, or with a call begun for the model. This is
decided once, from the model's own opinion of the user's message (`tool_need`). All requests of the turn extend this first one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from ..binding.echo import Sources
from ..prompting import system as prompt
from ..prompting.format import PromptFormat
from ..prompting.grades import ToolPrompt
from ..prompting.writer import Forms, with_reminder
from ..tools.catalog import Catalog
from ..types.calls import Message, Tool, ToolCall
from ..types.completion import Capabilities, CompletionRequest
from .asking import Threshold
from .builtin_tools import Answering
from .generate import NewId, numbered_ids
from .machine import Script
from .tool_need import ToolNeed, ask_tool_need

READ_AGAIN: Final = 8000  # characters: up to this length a conversation is read once more without the tool prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    """How the first reply is requested."""

    request: CompletionRequest
    begun: str = ""  # the given beginning of the reply; "" if the model begins it
    # The conversation for a server that refuses such a beginning; None if there is none.
    otherwise: CompletionRequest | None = None
    # The conversation without any text of ours, used to ask for plain words if the call that we began proves baseless; None if we
    # begin nothing.
    bare: CompletionRequest | None = None
    # The conversation without the tool prompt, for a message that needs no tool, or a model that gives no answer with that
    # prompt; None if the need was not in question, or it is too long to be read again.
    unoffered: CompletionRequest | None = None
    # The conversation with the tools, if the request leaves them out or asks for plain words.
    offered: CompletionRequest | None = None
    # Whether the reply may call only one tool (but several times): if several tools are described after the message, a small
    # model calls each of them.
    one_tool: bool = False
    need: ToolNeed | None = None

    def changed(self, change: Callable[[CompletionRequest], CompletionRequest]) -> "FirstRequest":
        forms = (self.otherwise, self.bare, self.unoffered, self.offered)
        otherwise, bare, unoffered, offered = (form and change(form) for form in forms)
        return replace(self, request=change(self.request), otherwise=otherwise, bare=bare, unoffered=unoffered, offered=offered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How replies are generated and read."""

    server: Capabilities
    format: PromptFormat
    is_native: bool = False
    reads_text: bool = True  # in native mode, whether calls that the server left in the text count
    # In native mode, whether calls at the end of the reasoning count, if the reply has nothing else.
    reads_reasoning: bool = False
    # Whether a caller keeps the conversation and limits its tokens. A reply that is cut at that limit then ends the turn; else it
    # is continued, and the model is notified of a call that was cut.
    is_for_caller: bool = False
    new_id: NewId = field(default_factory=numbered_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    catalog: Catalog
    of_caller: frozenset[str] = frozenset()  # names of the tools that the caller runs itself: their calls end the turn
    own: Mapping[str, Answering] = field(default_factory=dict)  # built-in tools that the turn answers itself, by name
    is_required: bool = False
    required_name: str = ""
    in_text: "Callable[[], InText] | None" = None  # in native mode: how the tools are offered in the prompt instead
    natively: ToolPrompt | None = None  # how the server's own function calling gets the tools, if it gets only some
    chosen: frozenset[str] = frozenset()  # the names of these
    found_before: Sequence[str] = ()  # further ones that the same request led to before this turn

    def found(self, call: ToolCall) -> tuple[str, ...]:
        """Return the tools that a call found, to be sent from the next request on."""
        return self.natively.found(call.arguments) if self.natively and call.name == self.natively.own else ()

    def sent(self, found: Sequence[str]) -> tuple[Tool, ...]:
        """Return the tools to send to the server's own function calling; those that calls of the turn found come last."""
        if self.natively is None:
            return tuple(self.catalog)
        chosen = (tool for tool in self.catalog if tool.name in self.chosen or tool.name in self.own)
        return (*chosen, *self.natively.latest_found((*self.found_before, *found), self.chosen))


@dataclass(frozen=True, slots=True, kw_only=True)
class InText:
    """The tools in the prompt, for a turn whose native reply came to nothing."""

    offer: Offer
    request: CompletionRequest  # the conversation before the turn, with the tool prompt
    # The tools as the prompt lists them (`ToolPrompt.listed`): others' words, from which a call must not be copied.
    listed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The conversation before the turn."""

    request: str
    sources: Sources
    # The messages as the caller sent them, without text that we or a server appended to the user's.
    conversation: Sequence[Message] = ()
    # Returns the messages to continue the conversation with, given the first request; None to keep `conversation`.
    kept: Callable[[FirstRequest], Sequence[Message]] | None = None
    # Calls that the caller ran for the same request before this turn, with their results.
    made: Sequence[tuple[ToolCall, str]] = ()


def decide(
    threshold: Threshold | None, server: Capabilities, catalog: Catalog, format: PromptFormat, forms: Forms, *, lang: str
) -> Script[FirstRequest]:
    """Ask the model whether the user's message needs a tool, and prepare the first request accordingly.

    A message that needs no tool is answered as if there were no tools: after the tool prompt a small model explains a function
    instead of writing it, and answers in the language of the prompt. A long conversation keeps the tool prompt, because the
    server would have to read it again.
    """
    bare, shown = forms.bare, forms.shown
    alone = forms.unoffered
    if alone is not None and sum(len(message.content) for message in alone.messages) > READ_AGAIN:
        alone = None
    ask = partial(FirstRequest, unoffered=alone)
    if threshold is None or bare is None:
        return ask(request=forms.reminded)
    need = yield from ask_tool_need(threshold, server, bare, catalog, format, shown=shown)
    if need is None or not need.is_sure or (need.needs_tool and not need.begun):
        return ask(request=forms.reminded, need=need)
    if need.begun:
        request = shown or bare
        one_tool = bool(need.tool) and request.messages != bare.messages
        return ask(request=request, begun=need.begun, otherwise=forms.reminded, bare=bare, one_tool=one_tool, need=need)
    if alone is not None:
        return FirstRequest(request=alone, offered=forms.reminded, need=need)
    aside = prompt.reminder(catalog, format.speaking(lang), needs_tool=False)
    return ask(request=replace(bare, messages=with_reminder(aside, bare.messages)), offered=forms.reminded, need=need)
