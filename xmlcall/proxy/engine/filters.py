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
if it can, so the reply cannot contain a call. Agents need both at once: openai-agents' `output_type`, LangChain's
`ProviderStrategy`, the AI SDK's `Output.object`. Words beside a call are left out, because the SDKs of OpenAI and Anthropic parse
all text of such an answer as JSON and would fail on them.

A filter takes one event of an answer and returns the events that replace it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ...binding.bind import bind_argument, is_unsaid, may_be_unsaid
from ...binding.convert import wants_zone
from ...binding.echo import examples_of, has_placeholder, may_be_placeholder
from ...binding.grounds import may_be_groundless
from ...parsing.value_text import may_lose_indentation
from ...schema.validation import compiled_as_mended, is_valid
from ...tools.catalog import Catalog
from ...tools.parameters import WORDS_FOR_NULL, may_be_left_out, says_nothing
from ...types.calls import MISSING, Message, RawArgument, Tool, ToolCall
from ...types.completion import CompletionRequest
from ...types.events import ToolArgumentDelta
from ..formats.contract import CallClosed, CallOpened, ChatRequest, ResponseEnded, ResponseEvent, TextPiece, ToolChoice

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
        match event:
            case CallOpened(name=name):
                return (replace(event, name=own.get(name, name)),)
            case CallClosed(call=call):
                return (replace(event, call=replace(call, name=own.get(call.name, call.name))),)
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
    """Return a request with the beginning of the reply as its last message."""
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
            return (TextPiece(text=_rest(wanted[:met] + text, wanted)),)
        if isinstance(event, ResponseEnded) and not decided and met:  # the whole reply was shorter
            return TextPiece(text=wanted[:met]), event
        decided = decided or isinstance(event, CallOpened)  # a call came instead of the rest of the beginning
        return (event,)

    return passed


def _rest(said: str, wanted: str) -> str:
    whole = wanted if said.startswith(wanted) else wanted.rstrip()
    return said.removeprefix(whole)


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


# -- a call's arguments as JSON text while the model is still writing them (`--stream-arguments`) ----------------------
# A fragment must never turn out wrong, so only what is certain goes out early. If the tool and the parameter are spelled
# exactly, and the schema allows only a string, the text goes out as it arrives. A parameter of another type goes out once it
# is complete, typed by the same binding that will type the whole call. Everything uncertain waits for the end of the call,
# where the bound arguments decide: if they differ from what was sent, the answer ends in an error.
#
# A call that copies the prompt's example does not run (`echo.py`), so nothing goes out until a value differs from the
# example's. A text waits while it may still be a placeholder; if it turns out to be one after other values went out, the call
# is repaired like any other invalid call. A text also waits while it may be the word for an optional parameter that the
# request does not mention, and while it may count as made up (`grounds.py`), until it is complete or too long for that. A line
# that may be pretty-printed waits for the next line.


# Schema keys that do not restrict which strings are valid (JSON Schema 2020-12, validation, section 9).
_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
)

MayBeMadeUp = Callable[[Tool, str, Any], bool]


class CallText:
    """The JSON text of one call's arguments, piece by piece (the arguments are those of `Sender`)."""

    def __init__(self, tool: Tool, catalog: Catalog, unsaid: str = "", may_be_made_up: MayBeMadeUp | None = None) -> None:
        self.name, self._tool = tool.name, tool
        self._catalog = catalog
        self._unsaid = unsaid
        self._may_be_made_up = may_be_made_up
        self._properties = tool.input_schema.get("properties")
        self._copies = examples_of(tool)  # examples that the call may still be a copy of
        self._ready = ""  # certain, but held back while `_copies` is not empty
        self._sent: dict[str, Any] = {}  # arguments that were sent or are in `_ready`
        self._open: str | None = None  # the parameter whose text is arriving
        self._text: list[str] = []
        self._plain = False  # the open parameter's text goes out as it arrives
        self._is_marked = False  # the open parameter is explicitly marked as a string
        self._waits = False  # none of the open parameter is ready, because it may still be a placeholder
        self._held = False  # something is uncertain, so nothing more goes out before the end

    @property
    def begun(self) -> bool:
        """Whether anything was sent."""
        return not self._copies and (bool(self._sent) or self._is_going_out)

    @property
    def _is_going_out(self) -> bool:
        return self._plain and self._open is not None and not self._waits

    def add(self, delta: ToolArgumentDelta) -> str:
        """Take a piece of a parameter and return what can be sent."""
        return self._unless_copied(self._add(delta))

    def _unless_copied(self, text: str) -> str:
        self._ready += text
        if self._copies:
            return ""
        ready, self._ready = self._ready, ""
        return ready

    def _add(self, delta: ToolArgumentDelta) -> str:
        if self._held:
            return ""
        before = ""
        if delta.parameter != self._open:
            before = self._end_parameter()
            if not self._held and not delta.is_json:
                self._begin_parameter(delta.parameter)
                self._is_marked = delta.is_string
            self._held = self._held or delta.is_json or (delta.is_string and not self._plain)
        if self._held:
            return before
        self._text.append(delta.text)
        if self._waits and not self._may_not_count(delta.parameter):
            return before + self._release()
        return before + (_inside(delta.text) if self._is_going_out else "")

    def _may_not_count(self, name: str) -> bool:
        """Return whether the open text can still become a placeholder, a made-up value or the word for "not mentioned"."""
        text = "".join(self._text)
        says_nothing = bool(self._unsaid) and self._unsaid.startswith(text.strip().casefold())
        if may_lose_indentation(text) or (self._may_be_made_up and may_be_groundless(text)):
            return True
        if any(word.startswith(text.strip()) for word in WORDS_FOR_NULL) and may_be_left_out(name, self._tool, self._catalog):
            return True
        return may_be_placeholder(name, text) or (says_nothing and may_be_unsaid(name, self._unsaid, self._tool, self._catalog))

    def end_parameter(self) -> str:
        """Close the open parameter and return what can be sent."""
        return self._unless_copied("" if self._held else self._end_parameter())

    def _begin_parameter(self, name: str) -> None:
        schema = self._properties.get(name) if isinstance(self._properties, dict) else None
        self._held = schema is None or name in self._sent
        if self._held:
            return
        is_text = isinstance(schema, dict) and schema.get("type") == "string" and schema.keys() - {"type"} <= _ANNOTATIONS
        self._plain = is_text and not wants_zone(schema)
        self._open, self._text, self._waits = name, [], self._plain

    def _release(self) -> str:
        """Start to send the open parameter."""
        self._waits = False
        self._copies = [example for example in self._copies if self._open not in example]
        return f'{self._comma()}{json.dumps(self._open)}: "{_inside("".join(self._text))}'

    def _end_parameter(self) -> str:
        name, text = self._open, "".join(self._text)
        if name is None:
            return ""
        if self._says_nothing(name, text):
            self._plain, self._open = False, None
            return ""
        value = text if self._plain else bind_argument(RawArgument(name=name, text=text), self._tool, self._catalog)
        waits = value is MISSING or may_lose_indentation(text) or _may_be_one_item(text, value)
        is_doubted = self._may_be_made_up is not None and self._may_be_made_up(self._tool, name, value)
        if waits or is_doubted or has_placeholder(name, value):
            self._held, self._open = True, None
            return ""
        self._copies = [example for example in self._copies if example.get(name, value) == value]
        if self._plain:
            rest = self._release() if self._waits else ""
            self._sent[name], self._plain, self._open = text, False, None
            return f'{rest}"'
        self._open = None
        comma = self._comma()
        self._sent[name] = value
        return f"{comma}{json.dumps(name)}: {_json(value)}"

    def _says_nothing(self, name: str, text: str) -> bool:
        word = self._unsaid
        is_word = bool(word) and is_unsaid(RawArgument(name=name, text=text), word)
        is_left_out = is_word and may_be_unsaid(name, word, self._tool, self._catalog)
        return is_left_out or (self._plain and not self._is_marked and says_nothing(text, name, self._tool, self._catalog))

    def _comma(self) -> str:
        return ", " if self._sent else "{"

    def end(self, call: ToolCall) -> str | None:
        """Return the rest of the bound call's text; None if the call does not agree with what was sent."""
        sent = dict(self._sent) if self.begun else {}
        rest = ""
        if self.begun and self._is_going_out and self._open is not None:
            name, text = self._open, "".join(self._text)
            value = call.arguments.get(name)
            if call.name != self._tool.name or not isinstance(value, str) or not value.startswith(text):
                return None
            rest = f'{_inside(value[len(text) :])}"'
            sent[name] = value
        if call.name != self._tool.name or any(not _is(call.arguments, name, value) for name, value in sent.items()):
            return None
        missing = [f"{json.dumps(name)}: {_json(value)}" for name, value in call.arguments.items() if name not in sent]
        joined = ", ".join(missing)
        if not sent:
            return f"{{{joined}}}"
        return f"{rest}, {joined}}}" if joined else f"{rest}}}"


def _may_be_one_item(text: str, value: Any) -> bool:
    """Return whether a list was read from a text that may be only its first item, because each item has an element of its own."""
    return isinstance(value, list) and not text.lstrip().startswith("[")


def _is(arguments: dict[str, Any], name: str, value: Any) -> bool:
    return name in arguments and json.dumps(arguments[name], sort_keys=True) == json.dumps(value, sort_keys=True)


def _inside(text: str) -> str:
    """Return text escaped as in a JSON string, without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
