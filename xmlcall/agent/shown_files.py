"""What a conversation has shown of a file: the result of an earlier call that read it, or the text that was written to it.

Calls stand beside the model's text, or are known to stand in it (`Message.written`); their results stand in the message behind
them, in order, some forms without the names of the tools. Where a call cannot be matched with its result for certain, nothing is
known of it. Results of native calls do not say that they are errors, and count. A later call with the same path that is neither
a read nor a write of a whole text leaves nothing known, either. The file itself may have changed since: whoever shows such a text
has to say where it is from.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..dialects.replies import replies_of
from ..types.calls import Message, WrittenCall
from .policy import Proposal

__all__ = ["Shown", "shown_before"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A text of a file."""

    tool: str
    text: str


def shown_before(proposal: Proposal, readers: Collection[str], path: str, text: str) -> Shown | None:
    """Find what is known of the file that a call is about to write."""
    wanted, own = proposal.call.arguments[path], {tool.name: name for name, tool in proposal.beside.items()}
    known: Shown | None = None
    for called, arguments, result in _calls(proposal.conversation):
        name = own.get(called, "")
        if not name or wanted not in arguments.values():
            continue
        if name in readers:
            is_whole = result is not None and list(arguments.values()) == [wanted]
            known = Shown(tool=name, text=result or "") if is_whole else known
        else:
            is_write = name == proposal.host_tool and result is not None and isinstance(arguments.get(text), str)
            known = Shown(tool=name, text=arguments[text]) if is_write else None
    return known


def _calls(messages: Sequence[Message]) -> Iterator[tuple[str, Mapping[str, Any], str | None]]:
    """Yield name, arguments and result of the calls in a conversation; None for a result that is not known."""
    for place, message in enumerate(messages):
        if message.tool_calls:
            told = {each.tool_call_id: each.content for each in messages[place + 1 :] if each.role == "tool"}
            yield from ((call.name, call.arguments, told.get(call.id)) for call in message.tool_calls)
        elif message.role == "assistant" and message.written is not None and message.written.text == message.content:
            calls = message.written.calls
            results = zip(calls, _results(calls, messages[place + 1 : place + 2]), strict=True)
            yield from ((call.name, call.arguments, result) for call, result in results if call.arguments is not None)


def _results(calls: Sequence[WrittenCall], behind: Sequence[Message]) -> list[str | None]:
    """Return the result of each call, from the message behind it; all are unknown if they do not fit together."""
    replies = replies_of(behind[0]) if behind and behind[0].role == "user" else ()
    pairs = zip(replies, calls, strict=False)
    if len(replies) != len(calls) or any(not reply.is_ended or reply.name not in ("", call.name) for reply, call in pairs):
        return [None] * len(calls)
    return [None if reply.is_error else reply.text_in(behind[0].content) for reply in replies]
