"""What a turn is made with: how replies are generated, which tools there are, when it ends, and what was said before."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..binding.echo import Sources
from ..prompting.format import PromptFormat
from ..tools.catalog import Catalog
from ..types.calls import Message
from ..types.capabilities import Capabilities
from .attempts import RepairPolicy

__all__ = ["Generation", "Limits", "Offer", "Words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How replies are generated and read.

    Args:
        server: what is known of it and its model.
        format: of the prompt.
        is_native: the server's own function calling is used, and not the text.
        reads_text: with that, whether calls that the server left in the text are calls.
        is_for_caller: with that, somebody else keeps the conversation, see `generate_native`.
    """

    server: Capabilities
    format: PromptFormat
    is_native: bool = False
    reads_text: bool = True
    is_for_caller: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The tools of a turn.

    Args:
        catalog: what may be called.
        of_caller: names of tools that somebody else runs: their calls end the turn.
        own: names of tools that only tell what is known: nobody is asked about them, and the turn may be repeated.
        is_required: whether the first reply has to call a tool.
        required_name: of the tool that it has to call; "" for any.
    """

    catalog: Catalog
    of_caller: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    is_required: bool = False
    required_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a turn ends although the model has not answered.

    Args:
        repair: how often the model may try again.
        max_turns: replies.
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
        request: the person's last words.
        sources: texts by others, from which a call must not be copied.
        conversation: the messages as the caller sent them, without a word of ours or of a server behind the person's.
    """

    request: str
    sources: Sources
    conversation: Sequence[Message] = ()
