"""A caller's conversation as the model gets it: calls and results as text, in the form that the tool prompt teaches.

The same conversation gives the same messages each time, and one that has grown gives the same messages with more behind them,
so that the model server's prompt cache holds: every message is written from itself and those before it. The one exception is a
reminder that asks for plain words (`tool_need`): it stands only in the request that it was decided for.

What the model said is written from what the caller sends alone, so that every replica of the proxy writes the same bytes. The
model server has the model's own words cached; so the form is the one that models write most (`said`): then most of them are the
same. Only rounds of the proxy's own tools, which the caller does not know, come from elsewhere (`own_rounds`).

System messages at the head become one, after the tool prompt. Those that come later become the person's, where they stand: many
chat templates raise when one is not the first message (Qwen 3.5, Gemma, Mistral), and no server tells for certain what its
template does. At the head a later one would change the beginning of the prompt, so that nothing of it is cached any more.
Neighbours of role `user` become one, because some templates refuse two.
"""

import itertools
from collections import deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from ...dialects import Dialect
from ...dialects.write import write
from ...prompting.feedback import results
from ...prompting.format import PromptFormat
from ...prompting.placement import joined, put_around, with_system
from ...prompting.results import result_text
from ...tools.catalog import Catalog
from ...turn.attempts import Answered
from ...types.calls import Message, TextContent, ToolCall, ToolResult
from ..formats.bodies import call_of
from .own_rounds import Known, rounds_behind

__all__ = ["model_messages", "said", "system_first", "with_own_results"]

_NO_RESULT = "No result of this call came back."


def model_messages(
    messages: Sequence[Message],
    catalog: Catalog,
    known: Known,
    *,
    format: PromptFormat,
    system: str = "",
    reminder: str = "",
) -> tuple[Message, ...]:
    """Write a conversation for a model that knows nothing of tools.

    Args:
        messages: the caller's; not empty.
        catalog: what is offered; of calls whose tool is not among it, the arguments are written as their values are.
        known: rounds of the proxy's own tools.
        format: in which calls and results are written.
        system: the tool prompt.
        reminder: for the end of each of the person's messages.
    """
    written: list[Message] = []
    open_calls: Answered = []
    answered = frozenset(message.tool_call_id or "" for message in messages if message.role == "tool")
    numbered = itertools.groupby(enumerate(messages), key=lambda each: -1 if each[1].role == "tool" else each[0])
    for group in ([message for _, message in run] for _, run in numbered):  # results that follow each other are one
        if group[0].role == "tool":
            images = tuple(url for message in group for url in message.images)
            written.append(replace(results(_answered(open_calls, group, answered), catalog, format), images=images))
            open_calls = []
        elif group[0].role == "assistant":
            replies, open_calls = _replies(group[0], catalog, known, format.row)
            written += replies
        elif group[0].role == "user" and reminder:
            written.append(put_around(group[0], behind=f"\n\n{reminder}"))
        else:
            written.append(group[0])
    return with_system(system, system_first(written))


def system_first(messages: Sequence[Message]) -> list[Message]:
    """Make one message of the system messages at the head, and the person's of later ones; neighbours of the person's become one.

    Args:
        messages: a conversation.
    """
    head = list(itertools.takewhile(lambda message: message.role == "system", messages))
    rest = (replace(message, role="user") if message.role == "system" else message for message in messages[len(head) :])
    told: list[Message] = [joined(head)] if head else []
    for role, run in itertools.groupby(rest, key=lambda message: message.role):
        neighbours = list(run)
        told += [joined(neighbours)] if role == "user" else neighbours
    return told


def _replies(message: Message, catalog: Catalog, known: Known, dialect: Dialect) -> tuple[list[Message], Answered]:
    """Write a message of the model's, before it those that the caller does not know; with it come the calls to be answered."""
    if not message.tool_calls:
        return [message], []
    own = rounds_behind(message, known)
    before, text = (own.before, own.rest_of(message.content)) if own else ((), message.content)
    answered: Answered = list(own.calls) if own else [(call, None) for call in message.tool_calls]
    block = write([(call.name, call.arguments) for call, _ in answered if isinstance(call, ToolCall)], catalog, dialect)
    return [*before, Message(role="assistant", content=said(text, block))], answered


def said(text: str, block: str) -> str:
    """Write a reply with calls: text as it went out, then the calls, behind a blank line if the text does not end its line.

    Of 72 replies with words before a call in benchmarks/results/runs, 59 have a blank line there, 11 end a line, 2 neither. More
    than a blank line is what is left of a fence around the calls.

    Args:
        text: for the person; white space alone was behind the calls.
        block: the calls as the prompt asks for them.
    """
    if not text.strip():
        return block
    words = text.rstrip()
    lines = text.count("\n", len(words))
    return text + block if 0 < lines <= 2 else f"{words if lines else text}\n\n{block}"


def _answered(calls: Answered, told: Sequence[Message], answered: Container[str]) -> Answered:
    """Give each call its result: by id, else by name, else by position; a result without its call stands for itself.

    Of a call that has none beside others that have one, it is said that none came: else the model takes theirs for its own.

    What is left over goes by position, too: some clients give a result an id that its call never had (LiteLLM, `ollama_chat`).
    """
    waiting: dict[tuple[str, str], deque[Message]] = {}
    for message in told:
        waiting.setdefault(_label(message), deque()).append(message)
    found: list[ToolResult | None] = []
    for call, result in calls:
        assert isinstance(call, ToolCall)
        labels = (("id", call.id), ("name", call.name), ("", ""))
        own = None if result is not None else next((waiting[label].popleft() for label in labels if waiting.get(label)), None)
        found.append(result if own is None else _result(own))
    known, unmatched = {call.id for call, _ in calls}, {id(message) for messages in waiting.values() for message in messages}
    left = deque(message for message in told if id(message) in unmatched)
    for place, result in enumerate(found):
        if result is None and left and left[0].tool_call_id not in known:
            found[place] = _result(left.popleft())
    missing = ToolResult(content=(TextContent(text=_NO_RESULT),), is_error=True)
    if any(found):
        found = [result or (None if call.id in answered else missing) for (call, _), result in zip(calls, found, strict=True)]
    with_result: Answered = [(call, result) for (call, _), result in zip(calls, found, strict=True) if result is not None]
    return with_result + [(call_of("", each.name or "tool", {}, 0), _result(each)) for each in left]


def _label(message: Message) -> tuple[str, str]:
    if message.tool_call_id:
        return "id", message.tool_call_id
    return ("name", message.name) if message.name else ("", "")


def _result(message: Message | None) -> ToolResult:
    return ToolResult(content=(TextContent(text=message.content if message else ""),))


def with_own_results(messages: Iterable[Message], known: Known) -> tuple[Message, ...]:
    """Return a conversation with what the proxy's own tools returned in it, as far as that is known.

    Args:
        messages: the caller's.
        known: rounds of the proxy's own tools.
    """
    whole: list[Message] = []
    for message in messages:
        found = rounds_behind(message, known)
        if found is None:
            whole.append(message)
            continue
        own = [(call, result) for call, result in found.calls if result is not None]
        told = [Message(role="tool", name=call.name, content=result_text(result)) for call, result in own]
        whole += [*found.before, message, *told]
    return tuple(whole)
