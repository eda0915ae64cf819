"""How the first reply of a turn is asked for: with the usual reminder, for plain words, or with a call begun for the model.

All requests of a turn grow from this one. It is decided once, by what the model itself says of the person's words (`tool_need`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ..prompting import system as prompt
from ..prompting.format import PromptFormat
from ..prompting.writer import Forms, with_reminder
from ..tools.catalog import Catalog
from ..types.capabilities import Capabilities
from ..types.completion import CompletionRequest
from .machine import Script
from .tool_need import Threshold, ToolNeed, ask_tool_need

__all__ = ["FirstRequest", "decide"]

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
