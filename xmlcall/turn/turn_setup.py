"""What a turn is made with: how replies are generated, which tools there are, when it ends, what was said before, how it begins.

The first reply is asked for with the usual reminder, for plain words, or with a call begun for the model. All requests of a turn
grow from this one. It is decided once, by what the model itself says of the person's words (`tool_need`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from ..binding.echo import Sources
from ..prompting import system as prompt
from ..prompting.format import PromptFormat
from ..prompting.writer import Forms, with_reminder
from ..tools.catalog import Catalog
from ..types.calls import Message
from ..types.completion import Capabilities, CompletionRequest
from .attempts import RepairPolicy
from .builtin_tools import Answering
from .generate import NewId, numbered_ids
from .machine import Script
from .tool_need import Threshold, ToolNeed, ask_tool_need

__all__ = ["Denied", "FirstRequest", "Generation", "Limits", "Offer", "Words", "decide"]

READ_AGAIN: Final = 8000  # characters of a conversation that is read once more without the tool prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    """How the first reply is asked for.

    Args:
        begun: how the reply begins, written for the model; "" if the model begins it.
        otherwise: the conversation for a server that refuses such a beginning; None if nothing is begun.
        bare: the conversation without a word of ours, from which plain words are asked for if the call that was begun turns out
            to be none; None if nothing is begun.
        unoffered: the conversation without the tool prompt, for a model that shows no tool to be needed, or has no answer after
            that prompt; None where nothing was to be decided, or it is too long to be read again.
        one_tool: the reply calls one tool, if several times: where several are described behind the words, a small model calls
            each of them.
    """

    request: CompletionRequest
    begun: str = ""
    otherwise: CompletionRequest | None = None
    bare: CompletionRequest | None = None
    unoffered: CompletionRequest | None = None
    one_tool: bool = False
    need: ToolNeed | None = None

    def changed(self, change: Callable[[CompletionRequest], CompletionRequest]) -> "FirstRequest":
        """Return it with each of its requests changed in the same way."""
        otherwise, bare, unoffered = (form and change(form) for form in (self.otherwise, self.bare, self.unoffered))
        return replace(self, request=change(self.request), otherwise=otherwise, bare=bare, unoffered=unoffered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How replies are generated and read.

    Args:
        reads_text: with that, whether calls that the server left in the text are calls.
    """

    server: Capabilities
    format: PromptFormat
    is_native: bool = False
    reads_text: bool = True
    is_for_caller: bool = False
    new_id: NewId = field(default_factory=lambda: numbered_ids())


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The tools of a turn.

    Args:
        of_caller: names of tools that somebody else runs: their calls end the turn.
        own: tools of ours that the turn answers itself, by their names: they only tell what is known.
    """

    catalog: Catalog
    of_caller: frozenset[str] = frozenset()
    own: Mapping[str, Answering] = field(default_factory=dict)
    is_required: bool = False
    required_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """A call was not allowed; the model is told.

    Args:
        reason: that it is told.
        by: who or what decided.
    """

    reason: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a turn ends although the model has not answered.

    Args:
        cut_ends: a reply that is cut at the limit of tokens ends the turn, because the limit is the caller's; if not, it is
            continued, and the model is told of a call that is cut.
    """

    repair: RepairPolicy
    max_turns: int = 10
    cut_ends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What people and servers said before the turn.

    Args:
        conversation: the messages as the caller sent them, without a word of ours or of a server behind the person's.
        kept: returns those of the conversation to go on with, by how the first reply was asked for; None for the same.
    """

    request: str
    sources: Sources
    conversation: Sequence[Message] = ()
    kept: Callable[[FirstRequest], Sequence[Message]] | None = None


def decide(
    threshold: Threshold | None, server: Capabilities, catalog: Catalog, format: PromptFormat, forms: Forms, *, lang: str
) -> Script[FirstRequest]:
    """Ask the model whether the person's words need a tool, and prepare what follows from that.

    Words that need no tool are answered as if there were none: after the tool prompt a small model explains a function in place
    of writing it, and answers in the language of the prompt. A long conversation keeps the prompt: it would be read again.
    """
    bare, shown = forms.bare, forms.shown
    alone = forms.unoffered
    if alone is not None and sum(len(message.content) for message in alone.messages) > READ_AGAIN:
        alone = None
    ask = partial(FirstRequest, unoffered=alone)
    need = None
    if threshold is not None and bare is not None:
        need = yield from ask_tool_need(threshold, server, bare, catalog, format, shown=shown)
    if need is None or bare is None or not need.is_sure:
        return ask(request=forms.reminded, need=need)
    if need.begun:
        request = shown or bare
        one_tool = bool(need.tool) and request.messages != bare.messages
        return ask(request=request, begun=need.begun, otherwise=forms.reminded, bare=bare, one_tool=one_tool, need=need)
    if need.needs_tool:
        return ask(request=forms.reminded, need=need)
    if alone is not None:
        return FirstRequest(request=alone, need=need)
    aside = prompt.reminder(catalog, format.speaking(lang), needs_tool=False)
    return ask(request=replace(bare, messages=with_reminder(aside, bare.messages)), need=need)
