"""What a turn is made with: how replies are generated, which tools there are, when it ends, and what was said before."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..binding.echo import Sources
from ..prompting.format import PromptFormat
from ..tools.catalog import Catalog
from ..types.calls import Message
from ..types.capabilities import Capabilities
from .attempts import RepairPolicy
from .builtin_tools import Answering
from .first_request import FirstRequest
from .generate import NewId, numbered_ids

__all__ = ["Denied", "Generation", "Limits", "Offer", "Words"]


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
