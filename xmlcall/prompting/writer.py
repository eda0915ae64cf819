"""Writes the messages of a request: the only place that writes a conversation for a model and adds our words to it.

The tool prompt comes first and is the same in every request; the caller's own system message follows in the same message, because
models expect only one. Descriptions of tools for this request follow the person's last words. The reminder ends the person's
message, because small models follow what comes last.

The same conversation always gives the same messages, and a conversation that has grown gives the same messages with more after
them, so that the model server's prompt cache stays valid: each message depends only on itself and those before it. The one
exception is a reminder that asks for plain words (`tool_need`), which is only in the request that it was decided for.

A conversation of ours has the model's own words. A conversation that a caller keeps has calls and results as data (`in_text`) and
is written from that alone, so that every replica of the proxy writes the same bytes. The model server has the model's own words
cached, so calls are written in the form that models use most (`with_calls`), which keeps most of them alike. Only rounds of tools
that the caller does not know come from elsewhere (`OwnRounds`).

A caller's system messages at the head become one. Later ones become the person's, in their place, because many chat templates
raise if a system message is not the first message (Qwen 3.5, Gemma, Mistral), and no server reports reliably what its template
does. Moving a later one to the head would change the beginning of the prompt, which would invalidate the whole cache. Adjacent
messages of role `user` become one, because some templates refuse two.
"""

import itertools
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

from ..dialects.call_signs import inert_frame
from ..dialects.write import ends_in, named_results, replies_of, said_in, write
from ..tools.catalog import Catalog
from ..types.calls import Message, RawCall, TextContent, ToolCall, ToolReply, ToolResult, Written, WrittenCall
from ..types.completion import CompletionRequest
from .format import PromptFormat
from .results import Answered, results
from .system import ToolPrompt

_NO_RESULT = "No result of this call came back."


def put_around(message: Message, *, before: str = "", after: str = "") -> Message:
    """Add our words, with their separators, before or after a message's content."""
    content, replies = before + message.content + after, tuple(reply.moved(len(before)) for reply in replies_of(message))
    said_to = None if replies else len(before) + len(said_in(message))
    return replace(message, content=content, written=Written(text=content, replies=replies, said_to=said_to))


def joined(messages: Sequence[Message]) -> Message:
    """Join adjacent messages of one role; the first one decides whether the result counts as results or as a person's words."""
    content, start, replies = "\n\n".join(message.content for message in messages), 0, list[ToolReply]()
    for message in messages if replies_of(messages[0]) else ():
        replies += [reply.moved(start) for reply in replies_of(message)]
        start += len(message.content) + 2
    images = tuple(url for message in messages for url in message.images)
    return replace(messages[0], content=content, images=images, written=Written(text=content, replies=tuple(replies)))


def with_system(system: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with the tool prompt in front; unchanged if there is none."""
    if not system:
        return tuple(messages)
    if messages[0].role == "system":
        return (put_around(messages[0], before=f"{system}\n\n"), *messages[1:])
    return (Message(role="system", content=system), *messages)


def with_fitting(describe: Callable[[str], str], messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with descriptions of tools that fit the person's last words (`ToolPrompt.fitting`) after these."""
    at = max((at for at, message in enumerate(messages) if message.role == "user" and not replies_of(message)), default=-1)
    if at < 0 or not (text := describe(messages[at].content)):
        return tuple(messages)
    return (*messages[:at], put_around(messages[at], after=f"\n\n{text}"), *messages[at + 1 :])


def with_reminder(reminder: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with a reminder at the end of the last message, if it has role `user` and no reminder yet."""
    last = messages[-1]
    if not reminder or last.role != "user" or ends_in(last, reminder):
        return tuple(messages)
    return (*messages[:-1], put_around(last, after=f"\n\n{reminder}"))


def with_each_reminded(reminder: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a caller's conversation with a reminder at the end of each of the person's messages."""
    after = f"\n\n{reminder}" if reminder else ""
    return tuple(put_around(each, after=after) if after and each.role == "user" else each for each in messages)


def with_words(words: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with our words at its end: in a last message of role `user`, else as a new message."""
    if messages[-1].role == "user":
        return with_reminder(words, messages)
    return (*messages, Message(role="user", content=words))


def with_note(note: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with our words for the next reply only; unchanged if that reply has already begun."""
    return with_words(note, messages) if note and messages[-1].role in ("user", "tool") else tuple(messages)


def without_reminder(reminder: str, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation as it was before `with_reminder`."""
    *before, last = messages
    if not reminder or not ends_in(last, reminder):
        return tuple(messages)
    return (*before, replace(last, content=last.content[: -len(reminder) - 2]))


def without_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a conversation for a model without tools: calls are removed, and their results added to the person's words.

    After calls in its history, a small model continues in their tone: short, and without what the person asked for. Results may
    be messages of role `user`, too, as after a tool prompt. The same result counts once, and words of ours about a call do not.
    """
    kept: list[Message] = []
    for message in messages:
        asked = next((place for place in reversed(range(len(kept))) if kept[place].role == "user"), None)
        if not replies_of(message) or asked is None:
            kept.append(message)
            continue
        del kept[asked + 1 :]  # the replies that called
        for name, text in dict.fromkeys(named_results(message, by="tool")):
            if (result := f"\n\n({name or 'result'}: {inert_frame(text.strip())})") not in kept[asked].content:
                kept[asked] = put_around(kept[asked], after=result)
    return tuple(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRounds:
    """What the model sees besides calls of the caller's tools, but the caller does not know."""

    # Messages between the caller's last one and the reply: rounds in which the proxy ran tools itself.
    before: tuple[Message, ...]
    shown: str
    # All calls of the reply in order, with results for those that the proxy ran; the caller's have none yet.
    calls: tuple[tuple[ToolCall, ToolResult | None], ...]
    results: tuple[str, ...]

    @property
    def theirs(self) -> tuple[ToolCall, ...]:
        return tuple(call for call, result in self.calls if result is None)

    def rest_of(self, content: str) -> str:
        """Return the part of a message's text that belongs to the reply with the calls; some callers strip white space."""
        for text, begun in ((content, self.shown), (content.strip(), self.shown.strip())):
            if text.startswith(begun):
                return text[len(begun) :]
        return content


Known = Mapping[str, OwnRounds]
"""Rounds by the id of the first call that the caller received after them."""


def hidden_rounds(message: Message, known: Known) -> OwnRounds | None:
    """Return the hidden rounds that belong to a caller's assistant message; None if there are none, or its calls differ."""
    found = known.get(message.tool_calls[0].id) if message.tool_calls else None
    return found if found is not None and _identities(found.theirs) == _identities(message.tool_calls) else None


def _identities(calls: Iterable[ToolCall]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(call.id, call.name, call.arguments) for call in calls]


def callers_in_text(
    messages: Sequence[Message], catalog: Catalog, format: PromptFormat, known: Known | None = None
) -> list[Message]:
    """Write a caller's conversation for a model without tool support, with roles in the order that templates accept."""
    return system_first(in_text(messages, catalog, format, known))


def in_text(messages: Sequence[Message], catalog: Catalog, format: PromptFormat, known: Known | None = None) -> list[Message]:
    """Write the calls and results of a conversation as text; arguments of unknown tools by the types of their values."""
    written: list[Message] = []
    open_calls: Answered = []
    answered = frozenset(message.tool_call_id or "" for message in messages if message.role == "tool")
    numbered = itertools.groupby(enumerate(messages), key=lambda each: -1 if each[1].role == "tool" else each[0])
    for group in ([message for _, message in run] for _, run in numbered):  # consecutive results are one group
        if group[0].role == "tool":
            images = tuple(url for message in group for url in message.images)
            written.append(replace(results(_match_results(open_calls, group, answered), catalog, format), images=images))
            open_calls = []
        elif group[0].role == "assistant":
            replies, open_calls = _replies(group[0], catalog, known or {}, format)
            written += replies
        else:
            written.append(group[0])
    return written


def system_first(messages: Sequence[Message]) -> list[Message]:
    """Join the system messages at the head, turn later ones into the person's, and join the person's adjacent messages."""
    head = list(itertools.takewhile(lambda message: message.role == "system", messages))
    rest = (replace(message, role="user") if message.role == "system" else message for message in messages[len(head) :])
    written: list[Message] = [joined(head)] if head else []
    for role, run in itertools.groupby(rest, key=lambda message: message.role):
        neighbours = list(run)
        written += [joined(neighbours)] if role == "user" else neighbours
    return written


def _replies(message: Message, catalog: Catalog, known: Known, format: PromptFormat) -> tuple[list[Message], Answered]:
    """Write an assistant message, preceded by those that the caller does not know; also return the calls that need answers."""
    if not message.tool_calls:
        return [message], []
    own = hidden_rounds(message, known)
    before, text = (in_text(own.before, catalog, format), own.rest_of(message.content)) if own else ([], message.content)
    answered: Answered = list(own.calls) if own else [(call, None) for call in message.tool_calls]
    calls = [(call.name, call.arguments) for call, _ in answered if isinstance(call, ToolCall)]
    content = with_calls(text, write(calls, catalog, format.row))
    made = tuple(WrittenCall(name=name, arguments=arguments) for name, arguments in calls)
    return [*before, Message(role="assistant", content=content, written=Written(text=content, calls=made))], answered


def with_calls(text: str, block: str) -> str:
    """Write a reply with calls: the text as it was sent, then the calls, after a blank line if the text does not end its line.

    Of 72 replies with words before a call in benchmarks/results/runs, 59 have a blank line there, 11 end a line, 2 neither. More
    than a blank line remains from a fence around the calls.
    """
    if not text.strip():  # white space alone came after the calls
        return block
    words = text.rstrip()
    lines = text.count("\n", len(words))
    return text + block if 0 < lines <= 2 else f"{words if lines else text}\n\n{block}"


def _match_results(calls: Answered, messages: Sequence[Message], answered: Container[str]) -> Answered:
    """Match each call with its result: by id, else by name, else by position; a result without a call is kept alone.

    If only some calls have a result, the others get a note: else the model would mistake another result for theirs. Position
    counts because some clients give a result an id that its call never had (LiteLLM, `ollama_chat`).
    """
    waiting: dict[tuple[str, str], deque[Message]] = {}
    for message in messages:
        waiting.setdefault(_label(message), deque()).append(message)
    found: list[ToolResult | None] = []
    for call, result in calls:
        assert isinstance(call, ToolCall)
        labels = (("id", call.id), ("name", call.name), ("", ""))
        own = None if result is not None else next((waiting[label].popleft() for label in labels if waiting.get(label)), None)
        found.append(result if own is None else _result(own))
    known, unmatched = {call.id for call, _ in calls}, {id(message) for queue in waiting.values() for message in queue}
    left = deque(message for message in messages if id(message) in unmatched)
    for place, result in enumerate(found):
        if result is None and left and left[0].tool_call_id not in known:
            found[place] = _result(left.popleft())
    missing = ToolResult(content=(TextContent(text=_NO_RESULT),), is_error=True)
    if any(found):
        found = [result or (None if call.id in answered else missing) for (call, _), result in zip(calls, found, strict=True)]
    with_result: Answered = [(call, result) for (call, _), result in zip(calls, found, strict=True) if result is not None]
    names = (each.name or "tool" for each in left)
    unknown = [ToolCall(id="", name=name, arguments={}, raw=RawCall(index=0, name=name)) for name in names]
    return with_result + [(call, _result(each)) for call, each in zip(unknown, left, strict=True)]


def _label(message: Message) -> tuple[str, str]:
    if message.tool_call_id:
        return "id", message.tool_call_id
    return ("name", message.name) if message.name else ("", "")


def _result(message: Message) -> ToolResult:
    return ToolResult(content=(TextContent(text=message.content),))


_REMIND: Final[Mapping[str, Callable[[str, Sequence[Message]], tuple[Message, ...]]]] = {
    "end": with_reminder,
    "question": lambda reminder, messages: with_fitting(lambda _: reminder, messages),  # results may follow the question
    "each": with_each_reminded,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """One conversation in the forms in which it may be sent to a model, with the person's words last."""

    reminded: CompletionRequest
    # With the tool prompt, but without a reminder or descriptions of tools at the end; None if no decision is needed.
    bare: CompletionRequest | None = None
    shown: CompletionRequest | None = None
    unoffered: CompletionRequest | None = None  # without the tool prompt and without earlier calls; None if no decision is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWriter:
    """Writes the messages of requests from a conversation, the offered tools, and the prompt settings."""

    offered: ToolPrompt
    reminder: str = ""
    # Where the reminder is placed: at the end of the conversation, after the last question, or after each.
    stands: Literal["end", "question", "each"] = "end"
    first: tuple[str, ...] = ()  # names of tools to describe first after the person's words, such as one that has to be called
    # Writes calls and results that a conversation has as data; one of ours has none.
    in_text: Callable[[Sequence[Message]], Sequence[Message]] = tuple

    def messages(self, conversation: Sequence[Message], *, fits: bool = True, reminds: bool = True) -> tuple[Message, ...]:
        """Write the messages of a request; tools that are shown in part are described after the person's last words."""
        if fits:
            conversation = with_fitting(partial(self.offered.fitting, first=self.first), conversation)
        if reminds:
            conversation = _REMIND[self.stands](self.reminder, conversation)
        return with_system(self.offered.system, self.in_text(conversation))

    def forms(self, conversation: Sequence[Message], sampling: CompletionRequest, *, is_asked: bool = True) -> Forms:
        """Write the forms of a request that the tool decision compares."""

        def form(*, fits: bool, reminds: bool) -> CompletionRequest:
            return replace(sampling, messages=self.messages(conversation, fits=fits, reminds=reminds))

        reminded = form(fits=True, reminds=True)
        if not is_asked:
            return Forms(reminded=reminded)
        return Forms(
            reminded=reminded,
            bare=form(fits=False, reminds=False),
            shown=form(fits=True, reminds=False) if self.offered.own else None,
            unoffered=replace(sampling, messages=without_calls(self.in_text(conversation))),
        )
