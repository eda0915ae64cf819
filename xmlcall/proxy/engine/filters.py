"""Change what the caller sent into what the model can handle, and change the answer back into what the caller expects.

*Names that a model cannot write*: the model is offered other names, and the caller gets its own names back. A name becomes part
of the prompt and of tags, so it cannot contain white space, quotes, `<` or `>`, and it cannot be very long. These characters are
replaced by `_`. All other names stay as they are, in any script. The wire formats are not affected. The same tools get the same
names each time, so the prompt stays cached.

*Replies that the caller has begun*: the last message of a request is the model's own, and the answer continues it. Anthropic
calls this prefill: the answer is only what follows the beginning. If the model server continues such a message, it is sent as it
is. Other servers write a new message, and some chat templates refuse it (those of models that may think). For these, the user's
message asks the model to begin with these words, and the words are removed from its reply.

*An answer whose form the caller demands*, with tools on offer: calls pass as usual, and an answer without a call must be JSON.
The schema follows the user's words in the prompt. Text without a call is held until it is complete, then checked; a value in a
fence or between words is extracted. If none fits, the model is asked once more, and the server constrains the reply to the schema
if it can, so the reply cannot contain a call. Words beside a call are left out, because the SDKs of OpenAI and Anthropic parse
all text of such an answer as JSON and would fail on them.

A filter takes one event of an answer and returns the events that replace it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ...schema.validation import compiled_as_mended, is_valid
from ...types.calls import Message, Tool
from ...types.completion import CompletionRequest
from ..formats.contract import CallPiece, ChatRequest, ResponseEnded, ResponseEvent, TextPiece, ToolChoice

Filter = Callable[[ResponseEvent], Iterable[ResponseEvent]]

# -- names -------------------------------------------------------------------------------------------------------------

_WRITABLE: Final = re.compile(r"""[^\s<>"'`\x00-\x1f\x7f]{1,128}""")
_OTHERS: Final = re.compile(r"""[\s<>"'`\x00-\x1f\x7f]+""")
_LENGTH: Final = 100  # characters that are kept of a name that is too long; a number may follow

Names = Mapping[str, str]


def offered_names(tools: Iterable[Tool], taken: Iterable[str] = ()) -> dict[str, str]:
    """Choose names to offer for the tools whose own names the model cannot write."""
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
    """Return a request with its tools renamed, including the calls in the history and the choice of a tool."""
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
        if isinstance(event, CallPiece) and event.call.name in own:
            return (replace(event, call=replace(event.call, name=own[event.call.name])),)
        return (event,)

    return passed


# -- replies that the caller has begun ------------------------------------------------------------------------------------


def begun_by_caller(request: ChatRequest) -> tuple[ChatRequest, str]:
    """Take the beginning of a reply off a conversation; return it as well, "" if there is none."""
    *before, last = request.messages
    if not before or last.role != "assistant" or last.tool_calls:
        return request, ""
    return replace(request, messages=tuple(before)), last.content if last.content.strip() else ""


def with_beginning(completion: CompletionRequest, begun: str) -> CompletionRequest:
    return replace(completion, messages=(*completion.messages, Message(role="assistant", content=begun)))


def without_beginning(begun: str) -> Filter:
    """Remove the beginning if the answer repeats it; white space around the beginning does not matter."""
    wanted, met, decided = begun.lstrip(), 0, False  # `met` counts the characters of the beginning that have arrived

    def passed(event: ResponseEvent) -> Iterable[ResponseEvent]:
        nonlocal met, decided
        if isinstance(event, TextPiece) and not decided:
            text = event.text if met else event.text.lstrip()
            if len(text) < len(wanted) - met and wanted.startswith(text, met):
                met += len(text)
                return ()
            decided = True
            said = wanted[:met] + text
            return (TextPiece(text=said.removeprefix(wanted if said.startswith(wanted) else wanted.rstrip())),)
        if isinstance(event, ResponseEnded) and not decided and met:  # the whole reply was shorter
            return TextPiece(text=wanted[:met]), event
        decided = decided or isinstance(event, CallPiece)  # a call came instead of the rest of the beginning
        return (event,)

    return passed


# -- answers of a form -----------------------------------------------------------------------------------------------------


class Formed:
    """A filter that reduces an answer without a call to its JSON value; `unfit` is the end of one that had no fitting value."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.unfit: ResponseEnded | None = None
        self._schema = schema
        self._held: list[str] = []
        self._called = False

    def __call__(self, event: ResponseEvent) -> Iterable[ResponseEvent]:
        match event:
            case TextPiece(text=text):
                self._held.append(text)
                return ()
            case ResponseEnded():
                return (event,) if self._called else self._ended(event)
        self._called = self._called or isinstance(event, CallPiece)
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
        """Report the usage of both answers at the end of the second: the last prompt, and all generated tokens."""
        if self.unfit is None or not isinstance(event, ResponseEnded):
            return (event,)
        whole = (self.unfit.all_usage or self.unfit.usage) + event.usage
        usage = replace(event.usage, completion_tokens=whole.completion_tokens)
        return (replace(event, usage=usage, all_usage=whole),)


def wordless(event: ResponseEvent) -> Iterable[ResponseEvent]:
    """Drop text from an answer that must be a call."""
    return () if isinstance(event, TextPiece) else (event,)


def value_in(text: str, schema: Mapping[str, Any]) -> str | None:
    """Return the JSON value in a text that fits a schema (any, if the schema is unusable), as written; None if there is none."""
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
    """Yield what may be the value: the whole text, the inside of its first fence, the span from first to last bracket."""
    yield text.strip()
    _, fenced, rest = text.partition("```")
    if fenced:
        inside = rest.partition("```")[0]
        yield inside.partition("\n")[2].strip() if "\n" in inside else inside.strip()
    for opened, closed in ("{}", "[]"):
        start, end = text.find(opened), text.rfind(closed)
        if 0 <= start < end:
            yield text[start : end + 1]
