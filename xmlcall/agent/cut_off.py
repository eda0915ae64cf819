"""A conversation that was cut off inside a turn, closed so that it can go on with the person's words.

A program may end at any moment. What is known then is the conversation up to the last step, perhaps a reply behind it, and what
came of some of that reply's calls. Servers and templates want a result for each call and roles in turn, and the model has to
know what it cannot know otherwise: that a call had started and may or may not have run.
"""

from collections.abc import Mapping, Sequence

from ..prompting.feedback import results
from ..prompting.format import PromptFormat
from ..prompting.results import result_text, stopped
from ..tools.catalog import Catalog
from ..types.calls import Message, ToolCall, ToolResult

__all__ = ["closed"]


def closed(
    messages: Sequence[Message],
    reply: Message | None,
    calls: Sequence[ToolCall],
    ended: Mapping[str, ToolResult | None],
    catalog: Catalog,
    format: PromptFormat,
    *,
    has_tool_role: bool = True,
) -> list[Message]:
    """Return a conversation to go on with.

    Args:
        messages: up to the last step that is whole.
        reply: behind them, if one was complete.
        calls: of that reply, in order, also those that could not be read: without arguments.
        ended: id of a call -> its result; None for one that had started and has none; without a key it had not started.
        catalog: what is offered.
        format: how the model is spoken to.
        has_tool_role: whether the model's template shows messages of role `tool`.

    Returns:
        The messages, the model's own last.
    """
    told = list(messages)
    if reply is not None and (calls or reply.content.strip()):
        told.append(reply)
    if reply is not None and calls:
        answered = [(call, _result(call, ended, format)) for call in calls]
        if reply.tool_calls and has_tool_role:
            told += [
                Message(role="tool", content=result_text(result, format), tool_call_id=call.id, name=call.name)
                for call, result in answered
            ]
        else:
            told.append(results(answered, catalog, format))
    if told and told[-1].role in ("user", "tool"):
        told.append(Message(role="assistant", content=stopped("answer", format)))
    return told


def _result(call: ToolCall, ended: Mapping[str, ToolResult | None], format: PromptFormat) -> ToolResult:
    if call.id not in ended:
        return ToolResult.error(stopped("not_begun", format))
    return ended[call.id] or ToolResult.error(stopped("running", format))
