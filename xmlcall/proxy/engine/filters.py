"""What goes to the model otherwise than the caller wrote it, and comes back as the caller expects it.

*Names that a model cannot write*: it is offered others, and the caller hears its own again. A name becomes part of the prompt
and of tags, so white space, quotes, `<` and `>` cannot stand in it, and it cannot be very long. Such a name is written with `_`
in these places. Other names stay as they are, in any script. No wire format knows of it. The same tools get the same names each
time: the prompt stays cached.

*Replies that the caller has begun*: the last message of a request is the model's own, and the answer goes on with it. Anthropic
calls it prefill: the answer is what follows, without the beginning. Where the model server continues such a message, it is sent
as it is. Others write a new message, and some templates refuse (those of models that may think). There the person's message asks
the model to begin with these words, and they are taken off its reply.

*An answer whose form the caller demands*, where tools are on offer: calls pass as ever, and what is no call has to be JSON. The
schema stands behind the person's words. What the model says without a call is held until it is whole, and checked; a value in a
fence or between words is taken out of them. If none fits, the model is asked once more, with the reply constrained to the schema
where the server can do that, so that no call can come of it. Agents need both at once: openai-agents' `output_type`, LangChain's
`ProviderStrategy`, the AI SDK's `Output.object`. Words beside a call are left out: the SDKs of OpenAI and Anthropic read all text
of such an answer as JSON, and fail at them.

A filter takes one event of an answer, and returns what goes out in its place.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ...schema.validation import compiled_as_mended, is_valid
from ...types.calls import Message, Tool
from ...types.completion import CompletionRequest
from ..formats.contract import CallClosed, CallOpened, ChatRequest, ResponseEnded, ResponseEvent, TextPiece, ToolChoice

__all__ = [
    "Filter",
    "Formed",
    "begun_by_caller",
    "offered_names",
    "own_names",
    "renamed",
    "value_in",
    "with_beginning",
    "without_beginning",
    "wordless",
]

Filter = Callable[[ResponseEvent], Iterable[ResponseEvent]]

# -- names -------------------------------------------------------------------------------------------------------------

_WRITABLE: Final = re.compile(r"""[^\s<>"'`\x00-\x1f\x7f]{1,128}""")
_OTHERS: Final = re.compile(r"""[\s<>"'`\x00-\x1f\x7f]+""")
_LENGTH: Final = 100  # of what is kept of a name that is too long; a number may follow

Names = Mapping[str, str]


def offered_names(tools: Iterable[Tool], taken: Iterable[str] = ()) -> dict[str, str]:
    """Choose a name for each tool that needs another.

    Returns:
        The names to offer by the tools' own; empty if all can be written.
    """
    names = [tool.name for tool in tools]
    used = {*taken, *names}
    chosen: dict[str, str] = {}
    counts: dict[str, int] = {}
    for name in names:
        if _WRITABLE.fullmatch(name):
            continue
        base = _OTHERS.sub("_", name)[:_LENGTH].strip("_") or "tool"
        offered = base
        while offered in used:
            counts[base] = counts.get(base, 1) + 1
            offered = f"{base}_{counts[base]}"
        used.add(offered)
        chosen[name] = offered
    return chosen


def renamed(request: ChatRequest, names: Names) -> ChatRequest:
    """Return a request in which tools have other names, also where the history calls them and where one is chosen."""
    if not names:
        return request

    def name(own: str) -> str:
        return names.get(own, own)

    def message(said: Message) -> Message:
        calls = tuple(replace(call, name=name(call.name)) for call in said.tool_calls)
        return replace(said, tool_calls=calls, name=said.name and name(said.name))

    choice = request.choice
    allowed = None if choice.allowed is None else frozenset(map(name, choice.allowed))
    return replace(
        request,
        messages=tuple(map(message, request.messages)),
        tools=tuple(replace(tool, name=name(tool.name)) for tool in request.tools),
        choice=ToolChoice(mode=choice.mode, name=name(choice.name), allowed=allowed),
    )


def own_names(names: Names) -> Filter:
    """Pass calls on under the names that the caller knows."""
    own = {offered: name for name, offered in names.items()}

    def passed(event: ResponseEvent) -> Iterable[ResponseEvent]:
        match event:
            case CallOpened(name=name):
                return (replace(event, name=own.get(name, name)),)
            case CallClosed(call=call):
                return (replace(event, call=replace(call, name=own.get(call.name, call.name))),)
        return (event,)

    return passed


# -- replies that are begun ----------------------------------------------------------------------------------------------


def begun_by_caller(request: ChatRequest) -> tuple[ChatRequest, str]:
    """Take the beginning of a reply off a conversation.

    Returns:
        The request without its last message and the text of that, if it begins a reply; else the request and "".
    """
    *before, last = request.messages
    if not before or last.role != "assistant" or last.tool_calls:
        return request, ""
    return replace(request, messages=tuple(before)), last.content if last.content.strip() else ""


def with_beginning(completion: CompletionRequest, begun: str) -> CompletionRequest:
    """Return a request with the beginning of the reply as its last message."""
    return replace(completion, messages=(*completion.messages, Message(role="assistant", content=begun)))


def without_beginning(begun: str) -> Filter:
    """Leave out the beginning, if the answer begins so; white space at either end of that does not matter."""
    wanted, met, decided = begun.lstrip(), 0, False  # so many characters of the beginning came

    def passed(event: ResponseEvent) -> Iterable[ResponseEvent]:
        nonlocal met, decided
        if isinstance(event, TextPiece) and not decided:
            text = event.text if met else event.text.lstrip()
            if len(text) < len(wanted) - met and wanted.startswith(text, met):
                met += len(text)
                return ()
            decided = True
            return (TextPiece(text=_rest(wanted[:met] + text, wanted)),)
        if isinstance(event, ResponseEnded) and not decided and met:  # the whole reply was shorter
            return TextPiece(text=wanted[:met]), event
        decided = decided or isinstance(event, CallOpened)  # the rest of the beginning was no text
        return (event,)

    return passed


def _rest(said: str, wanted: str) -> str:
    whole = wanted if said.startswith(wanted) else wanted.rstrip()
    return said.removeprefix(whole)


# -- answers of a form -----------------------------------------------------------------------------------------------------


class Formed:
    """A filter that passes on as JSON what an answer says without a call.

    Attributes:
        unfit: the end of an answer that had neither; None before, and for any other.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.unfit: ResponseEnded | None = None
        self._schema = schema
        self._held: list[str] = []
        self._called = False

    def __call__(self, event: ResponseEvent) -> Iterable[ResponseEvent]:
        """Take an event."""
        match event:
            case TextPiece(text=text):
                self._held.append(text)
                return ()
            case ResponseEnded():
                return (event,) if self._called else self._ended(event)
        self._called = self._called or isinstance(event, CallOpened)
        return (event,)

    def _ended(self, event: ResponseEnded) -> Iterable[ResponseEvent]:
        held = "".join(self._held)
        found = value_in(held, self._schema)
        if found is None and event.finish_reason != "length":
            self.unfit = event
            return ()
        text = held if found is None else found
        return (TextPiece(text=text), event) if text else (event,)

    def with_both(self, event: ResponseEvent) -> Iterable[ResponseEvent]:
        """Count both answers at the end of the second: the last prompt, and all that was generated."""
        if self.unfit is None or not isinstance(event, ResponseEnded):
            return (event,)
        whole = (self.unfit.all_usage or self.unfit.usage) + event.usage
        usage = replace(event.usage, completion_tokens=whole.completion_tokens)
        return (replace(event, usage=usage, all_usage=whole),)


def wordless(event: ResponseEvent) -> Iterable[ResponseEvent]:
    """Leave out what is said beside an answer that has to be a call."""
    return () if isinstance(event, TextPiece) else (event,)


def value_in(text: str, schema: Mapping[str, Any]) -> str | None:
    """Return the JSON value in a text that fits a schema, as it is written; None if there is none.

    Args:
        schema: a JSON Schema; one that cannot be used is fitted by any value.
    """
    validator = compiled_as_mended(schema)
    for candidate in _candidates(text):
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(validator, str) or is_valid(validator, value, validator.schema):
            return candidate
    return None


def _candidates(text: str) -> Iterator[str]:
    """Yield what may be the value: all of it, the inside of its first fence, from its first bracket to its last."""
    yield text.strip()
    _, fenced, rest = text.partition("```")
    if fenced:
        inside = rest.partition("```")[0]
        yield inside.partition("\n")[2].strip() if "\n" in inside else inside.strip()
    for opened, closed in ("{}", "[]"):
        start, end = text.find(opened), text.rfind(closed)
        if 0 <= start < end:
            yield text[start : end + 1]
