"""How the first reply of a turn is asked for: with the usual reminder, for plain words, or with a call begun for the model.

All requests of a turn grow from this one. It is decided once, by what the model itself says of the person's words (`tool_need`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..backends.base import Backend
from ..prompting import system as prompt
from ..prompting.format import PromptFormat
from ..prompting.placement import with_reminder
from ..tools.catalog import Catalog
from ..types.completion import CompletionRequest
from .tool_need import ToolNeed, ToolNeeds

__all__ = ["FirstRequest", "decided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRequest:
    """How the first reply is asked for.

    Args:
        request: the conversation as the model gets it.
        begun: how the reply begins, written for the model; "" if the model begins it.
        otherwise: the conversation for a server that refuses such a beginning; None if nothing is begun.
        plain: the conversation for plain words, if the call that was begun turns out to be a copy of the prompt's example.
        one_tool: the reply calls one tool, if several times: where several are described behind the words, a small model calls
            each of them.
        need: what was decided; None if nothing was asked.
    """

    request: CompletionRequest
    begun: str = ""
    otherwise: CompletionRequest | None = None
    plain: CompletionRequest | None = None
    one_tool: bool = False
    need: ToolNeed | None = None

    def changed(self, change: Callable[[CompletionRequest], CompletionRequest]) -> "FirstRequest":
        """Return it with each of its requests changed in the same way."""
        otherwise, plain = self.otherwise and change(self.otherwise), self.plain and change(self.plain)
        return replace(self, request=change(self.request), otherwise=otherwise, plain=plain)


async def decided(
    needs: ToolNeeds | None,
    backend: Backend,
    catalog: Catalog,
    format: PromptFormat,
    *,
    reminded: CompletionRequest,
    bare: CompletionRequest | None,
    shown: CompletionRequest | None = None,
    lang: str,
) -> FirstRequest:
    """Ask the model whether the person's words need a tool, and prepare what follows from that.

    Args:
        needs: decides; None leaves it to the model.
        backend: open.
        catalog: what may be called.
        format: of the prompt.
        reminded: the conversation, the person's words last, with the usual reminder.
        bare: the same without a reminder and without descriptions of tools behind the words; None where nothing is to be decided.
        shown: the same with those descriptions; None if there are none.
        lang: language of what asks for plain words: the person's.

    Raises:
        BackendError: from the stream.
    """
    need = await needs.ask(backend, bare, catalog, format.row, shown=shown) if needs is not None and bare is not None else None
    if need is None or bare is None or not need.is_sure:
        return FirstRequest(request=reminded, need=need)
    aside = prompt.reminder(catalog, format.speaking(lang), needs_tool=False)
    plain = replace(bare, messages=with_reminder(aside, bare.messages))
    if need.begun:
        request = shown or bare
        one_tool = bool(need.tool) and request.messages != bare.messages
        return FirstRequest(request=request, begun=need.begun, otherwise=reminded, plain=plain, one_tool=one_tool, need=need)
    return FirstRequest(request=reminded if need.needs_tool else plain, need=need)
