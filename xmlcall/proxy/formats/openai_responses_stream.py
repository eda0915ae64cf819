"""The response object of OpenAI's Responses API, its output items, and the events that stream both.

Source: OpenAI API reference, the response object and the streaming events of responses; the models and the stream reader of
openai-python 3.54. An answer is a list of items: reasoning, messages, calls. Each item is added, grows, and is done. Its
`output_index` is its place in the list, and its id is the same in all its events. There is no `[DONE]`.
"""

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ...types.calls import ToolCall
from ...types.completion import UNCUT, Usage
from .contract import (
    ApiError,
    ArgumentsPiece,
    Asked,
    CallClosed,
    CallOpened,
    ReasoningPiece,
    ResponseEnded,
    ResponseEvent,
    TextPiece,
    WholeResponse,
    own_usage,
)
from .openai_responses_tools import CUSTOM_INPUT, called_as

__all__ = ["EventWriter", "begun", "call_item", "call_text", "ended", "filled", "new_item", "status_of"]

Status = Literal["in_progress", "completed", "incomplete"]

REASONS: Final = {"length": "max_output_tokens", "content_filter": "content_filter", "other": "max_output_tokens"}
"""The reason for an incomplete answer, by finish reason; the format knows only two reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of output item.

    Args:
        events: the name of the events by which it grows, without `.delta` and `.done`.
        part: its one content part, without the text; None for an item without content.
    """

    prefix: str
    events: str
    whole: str
    fields: Mapping[str, Any]
    part: dict[str, Any] | None
    beside: Mapping[str, Any]


_KINDS: Final = {
    "reasoning": _Kind(
        prefix="rs",
        events="response.reasoning_text",
        whole="text",
        fields={"summary": []},
        part={"type": "reasoning_text"},
        beside={"content_index": 0},
    ),
    "message": _Kind(
        prefix="msg",
        events="response.output_text",
        whole="text",
        fields={"role": "assistant"},
        part={"type": "output_text", "annotations": [], "logprobs": []},
        beside={"content_index": 0, "logprobs": []},
    ),
    "function_call": _Kind(
        prefix="fc", events="response.function_call_arguments", whole="arguments", fields={}, part=None, beside={}
    ),
    "custom_tool_call": _Kind(
        prefix="ctc", events="response.custom_tool_call_input", whole="input", fields={}, part=None, beside={}
    ),
}


# -- values ------------------------------------------------------------------------------------------------------------


def new_item(kind: str, **fields: Any) -> dict[str, Any]:
    """Write an output item that has just begun."""
    row = _KINDS[kind]
    empty: dict[str, Any] = {row.whole: ""} if row.part is None else {"content": []}
    identity = f"{row.prefix}_{secrets.token_hex(12)}"
    return {"id": identity, "type": kind, "status": "in_progress", **row.fields, **fields, **empty}


def call_item(asked: Asked, identity: str, name: str) -> dict[str, Any]:
    """Write the item of a call that has just begun, in the form in which its tool was offered."""
    kind, names = called_as(asked.shape["known"], name)
    return new_item(kind, call_id=identity, **names)


def call_text(item: Mapping[str, Any], call: ToolCall) -> str:
    """Return the text of a call's item: the arguments as JSON, or the input of a custom tool."""
    if item["type"] == "custom_tool_call":
        return str(call.arguments.get(CUSTOM_INPUT, ""))
    return json.dumps(call.arguments, ensure_ascii=False)


def filled(item: dict[str, Any], text: str, status: Status = "completed") -> dict[str, Any]:
    """Complete an item with its whole text: reasoning, a message, or a call's arguments as JSON."""
    row = _KINDS[item["type"]]
    full: dict[str, Any] = {row.whole: text} if row.part is None else {"content": [row.part | {"text": text}]}
    return item | {"status": status} | full


def begun(asked: Asked) -> dict[str, Any]:
    """Write the response object of an answer that has just begun; it repeats the caller's settings."""
    return {
        "id": f"resp_{secrets.token_hex(12)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        **asked.shape["echo"],
        "model": asked.model,
        "output": [],
        "previous_response_id": None,
        "store": False,  # whatever the caller asked for, nothing is stored
        "usage": None,
    }


def ended(response: dict[str, Any], end: ResponseEnded | WholeResponse, output: list[dict[str, Any]]) -> dict[str, Any]:
    """Complete a response object."""
    finish_reason, status = end.finish_reason, status_of(end.finish_reason)
    used = _usage_dict(end.usage) | own_usage(end.all_usage)
    found = response | {"status": status, "output": output, "usage": used}
    if status == "incomplete":
        return found | {"incomplete_details": {"reason": REASONS[finish_reason]}}
    return found | {"completed_at": int(time.time())}


def status_of(finish_reason: str) -> Status:
    """Return whether an answer that ended is complete."""
    return "completed" if finish_reason in UNCUT else "incomplete"


def _usage_dict(usage: Usage) -> dict[str, Any]:
    """Write the token counts; counts that the server did not report are 0."""
    given, made = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given + made,
    }


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Growing:
    """An output item, while it grows and afterwards."""

    place: int
    item: dict[str, Any]
    pieces: list[str] = field(default_factory=list)

    @property
    def row(self) -> _Kind:
        return _KINDS[self.item["type"]]


class EventWriter:
    """Writes the events of one streamed answer."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._response = begun(asked)
        self._number = 0
        self._items: list[_Growing] = []
        self._prose: _Growing | None = None  # the open message or reasoning
        self._space = ""  # leading white space, held until a message is certain to follow
        self._calls: dict[int, _Growing] = {}  # the open calls

    def begin(self) -> bytes:
        """Write that the response was created and is in progress."""
        return b"".join(self._event(f"response.{what}", response=self._response) for what in ("created", "in_progress"))

    def write(self, event: ResponseEvent) -> bytes:
        """Write an event, and the items that it opens and closes."""
        match event:
            case TextPiece(text=text):
                return self._say(text)
            case ReasoningPiece(text=text):
                return self._add("reasoning", text) if text else b""
            case CallOpened(index=index, id=identity, name=name):
                silence = self._silence("completed")
                self._calls[index], opening = self._open(call_item(self._asked, identity, name))
                return silence + opening
            case ArgumentsPiece(index=index, text=text):
                growing = self._calls[index]  # a custom tool's input is not JSON, so it is sent at the call's end
                return self._grow(growing, text) if text and growing.item["type"] == "function_call" else b""
            case CallClosed(index=index, call=call):
                return self._close_call(self._calls.pop(index), call)
            case ResponseEnded():
                return self._end(event)

    def _say(self, text: str) -> bytes:
        """Add to the message; white space alone opens no message, because calls are often followed by white space."""
        text, self._space = self._space + text, ""
        if not text.strip() and (self._prose is None or self._prose.item["type"] != "message"):
            self._space = text
            return b""
        return self._add("message", text) if text else b""

    def _add(self, kind: str, text: str) -> bytes:
        growing, opening = self._prose_of(kind)
        return opening + self._grow(growing, text)

    def _prose_of(self, kind: str) -> tuple[_Growing, bytes]:
        """Return the open item if it is of this kind, or open a new one."""
        if self._prose is not None and self._prose.item["type"] == kind:
            return self._prose, b""
        silence = self._silence("completed")
        self._prose, opening = self._open(new_item(kind))
        return self._prose, silence + opening

    def _silence(self, status: Status) -> bytes:
        """Close the open message or reasoning."""
        if self._prose is None:
            return b""
        growing, self._prose = self._prose, None
        return self._close(growing, status)

    def _close_call(self, growing: _Growing, call: ToolCall) -> bytes:
        is_custom = growing.item["type"] == "custom_tool_call"
        text = call_text(growing.item, call) if is_custom else ""
        return (self._grow(growing, text) if text else b"") + self._close(growing, "completed")

    def _open(self, item: dict[str, Any]) -> tuple[_Growing, bytes]:
        growing = _Growing(len(self._items), item)
        self._items.append(growing)
        added = self._event("response.output_item.added", output_index=growing.place, item=growing.item)
        return growing, added + self._part_event("added", growing, "")

    def _grow(self, growing: _Growing, text: str) -> bytes:
        growing.pieces.append(text)
        return self._item_event(f"{growing.row.events}.delta", growing, **growing.row.beside, delta=text)

    def _close(self, growing: _Growing, status: Status) -> bytes:
        row, text = growing.row, "".join(growing.pieces)
        growing.item = filled(growing.item, text, status)
        done = self._item_event(f"{row.events}.done", growing, **row.beside, **{row.whole: text})
        done += self._part_event("done", growing, text)
        return done + self._event("response.output_item.done", output_index=growing.place, item=growing.item)

    def _end(self, event: ResponseEnded) -> bytes:
        status = status_of(event.finish_reason)
        opening = b""
        if all(growing.item["type"] == "reasoning" for growing in self._items):  # an answer always has a message, even if empty
            opening = self._prose_of("message")[1] + self._say("")
        closing = self._silence(status) + b"".join(self._close(call, "incomplete") for call in self._calls.values())
        response = ended(self._response, event, self._output())
        return opening + closing + self._event(f"response.{status}", response=response)

    def _output(self) -> list[dict[str, Any]]:
        return [growing.item for growing in self._items if growing.item["status"] != "in_progress"]

    def fail(self, error: ApiError) -> bytes:
        """Write the error, and the failed response with the items that were already done."""
        fields = {"code": error.code or None, "message": error.message, "param": error.param or None}
        failure = {"code": _failure(error), "message": error.message}
        response = self._response | {"status": "failed", "error": failure, "output": self._output()}
        return self._event("error", **fields) + self._event("response.failed", response=response)

    def ping(self) -> bytes:
        """Write a comment."""
        return b": the model has not said anything yet\n\n"

    def _part_event(self, what: str, growing: _Growing, text: str) -> bytes:
        part = growing.row.part
        if part is None:
            return b""
        return self._item_event(f"response.content_part.{what}", growing, content_index=0, part=part | {"text": text})

    def _item_event(self, kind: str, growing: _Growing, **fields: Any) -> bytes:
        return self._event(kind, item_id=growing.item["id"], output_index=growing.place, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = json.dumps({"type": kind, "sequence_number": self._number, **fields}, ensure_ascii=False)
        self._number += 1
        return f"event: {kind}\ndata: {data}\n\n".encode("utf-8", "replace")


def _failure(error: ApiError) -> str:
    """Map an error to one of the few codes of a failed response; agents retry after `server_error`."""
    if error.code == "context_length_exceeded":  # OpenAI sends it, though openai-python does not list it; agents then compact
        return error.code
    if error.status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if error.status < 500 else "server_error"
