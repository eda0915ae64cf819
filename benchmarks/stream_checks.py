"""What a caller has read of a streamed answer, in any of the four wire formats, and whether that is as it was scripted.

An answer may end in three ways that a caller can tell apart: whole, with an error in the caller's format, or by a connection
that breaks off before the last HTTP chunk. Everything else is a defect: an answer that looks whole and is not, a call that came
twice or in half. Each format has a reader of its own here, so that nothing of the proxy judges itself.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scripted_upstream import Script, texts_of

__all__ = ["PATHS", "TOOLS", "Answer", "Told", "told_of", "verdict"]

_SCHEMA: Final = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "text": {"type": "string"}},
    "required": ["title", "text"],
}
_OPENAI: Final = {"type": "function", "function": {"name": "write_note", "parameters": _SCHEMA}}
TOOLS: Final[dict[str, list[dict[str, Any]]]] = {
    "/v1/chat/completions": [_OPENAI],
    "/v1/responses": [{"type": "function", "name": "write_note", "parameters": _SCHEMA}],
    "/v1/messages": [{"name": "write_note", "input_schema": _SCHEMA}],
    "/api/chat": [_OPENAI],
}
"""How each wire format, by its path, spells the tool that scripted calls name."""

PATHS: Final = tuple(TOOLS)
_REASONS: Final = {"stop": "stop", "end_turn": "stop", "tool_calls": "calls", "tool_use": "calls"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came over the wire.

    Args:
        status: of HTTP; 0 if no head came.
        body: without HTTP's framing.
        is_complete: HTTP says that nothing is missing.
    """

    status: int
    body: bytes
    is_complete: bool


@dataclass(slots=True, kw_only=True)
class Told:
    """What an answer told its caller until its end, or until it broke off.

    Args:
        text: of the reply.
        calls: the names and the arguments as text, by id.
        reason: why the reply ended, `stop` or `calls`; "" if it did not say.
        is_ended: the last event of the format came.
        error: in the format; "" for none.
        wrong: what no stream may do.
    """

    text: str = ""
    calls: dict[str, list[str]] = field(default_factory=dict)
    reason: str = ""
    is_ended: bool = False
    error: str = ""
    wrong: list[str] = field(default_factory=list)

    def begin_call(self, number: str, name: str, arguments: str = "") -> None:
        """Note a call."""
        if number in self.calls:
            self.wrong.append(f"the call {number} came twice")
        self.calls[number] = [name, arguments]


# -- the four formats --------------------------------------------------------------------------------------------------


def _events(body: bytes) -> Iterator[str]:
    """Give the data of each whole server-sent event; ours have one line of it."""
    *blocks, _ = body.replace(b"\r\n", b"\n").split(b"\n\n")
    for block in blocks:
        yield from (line[6:].decode() for line in block.split(b"\n") if line.startswith(b"data: "))


def _read_chat(body: bytes, told: Told) -> None:
    numbers: dict[int, str] = {}
    for payload in _events(body):
        if payload == "[DONE]":
            told.is_ended = True
            continue
        data = json.loads(payload)
        told.error = json.dumps(data["error"]) if "error" in data else told.error
        for choice in data.get("choices", ()):
            told.text += choice["delta"].get("content") or ""
            told.reason = _REASONS.get(choice["finish_reason"], told.reason)
            for call in choice["delta"].get("tool_calls", ()):
                if "id" in call:
                    numbers[call["index"]] = call["id"]
                    told.begin_call(call["id"], call["function"]["name"])
                told.calls[numbers[call["index"]]][1] += call["function"].get("arguments", "")


def _read_responses(body: bytes, told: Told) -> None:
    numbers: dict[int, str] = {}
    for data in map(json.loads, _events(body)):
        kind, item = data["type"], data.get("item", {})
        if kind == "response.output_text.delta":
            told.text += data["delta"]
        elif kind == "response.output_item.added" and item["type"] == "function_call":
            numbers[data["output_index"]] = item["call_id"]
            told.begin_call(item["call_id"], item["name"], item["arguments"])
        elif kind == "response.function_call_arguments.delta":
            told.calls[numbers[data["output_index"]]][1] += data["delta"]
        elif kind == "response.completed":
            told.is_ended = True
            _same_calls(data["response"]["output"], told)
        elif kind in ("response.failed", "error"):
            told.error = json.dumps(data)


def _same_calls(output: list[dict[str, Any]], told: Told) -> None:
    """Hold the calls of the whole response against those that were streamed."""
    calls = {item["call_id"]: [item["name"], item["arguments"]] for item in output if item["type"] == "function_call"}
    told.reason = "calls" if calls else "stop"
    if calls != told.calls:
        told.wrong.append("the response at the end has other calls than the stream")


def _read_messages(body: bytes, told: Told) -> None:
    numbers: dict[int, str] = {}
    for data in map(json.loads, _events(body)):
        delta, block = data.get("delta", {}), data.get("content_block", {})
        if block.get("type") == "tool_use":
            numbers[data["index"]] = block["id"]
            told.begin_call(block["id"], block["name"])
        elif delta.get("type") == "text_delta":
            told.text += delta["text"]
        elif delta.get("type") == "input_json_delta":
            told.calls[numbers[data["index"]]][1] += delta["partial_json"]
        elif data["type"] == "message_delta":
            told.reason = _REASONS.get(delta["stop_reason"], "")
        elif data["type"] == "error":
            told.error = json.dumps(data["error"])
        told.is_ended = told.is_ended or data["type"] == "message_stop"


def _read_ollama(body: bytes, told: Told) -> None:
    *lines, _ = body.split(b"\n")
    for data in map(json.loads, lines):
        told.error = json.dumps(data["error"]) if "error" in data else told.error
        message = data.get("message", {})
        told.text += message.get("content", "")
        for call in message.get("tool_calls", ()):
            function = call["function"]
            told.begin_call(call.get("id") or str(len(told.calls)), function["name"], json.dumps(function["arguments"]))
        if data.get("done"):
            told.is_ended, told.reason = True, "calls" if told.calls else "stop"


_READERS: Final[Mapping[str, Callable[[bytes, Told], None]]] = {
    "/v1/chat/completions": _read_chat,
    "/v1/responses": _read_responses,
    "/v1/messages": _read_messages,
    "/api/chat": _read_ollama,
}


def told_of(path: str, body: bytes) -> Told:
    """Read an answer as far as it came.

    Args:
        path: of the wire format.
        body: of the answer; an event that is not whole at its end is left out.
    """
    told = Told()
    try:
        _READERS[path](body, told)
    except (KeyError, ValueError) as error:
        told.wrong.append(f"is not in the format: {error!r}")
    return told


# -- the verdict -------------------------------------------------------------------------------------------------------


def verdict(path: str, script: Script, answer: Answer) -> tuple[str, str]:
    """Say how an answer ended, and what is wrong with it; "" if nothing is.

    Args:
        path: of the wire format.
        script: of the reply.
        answer: what came.
    """
    if answer.status and answer.status != 200:
        return "refused, with an error in the format", "" if _is_refusal(answer.body) else "a refusal that is not in the format"
    told = told_of(path, answer.body)
    if told.wrong:
        return "wrong", "; ".join(told.wrong)
    if told.is_ended or told.reason:
        wrong = _difference(told, script)
        if wrong or told.is_ended:
            return ("wrong", wrong) if wrong else ("whole", "")
    if told.error:
        return "an error in the format", ""
    if not answer.is_complete:
        return ("broken off in the middle" if answer.status else "broken off before the answer"), ""
    return "wrong", "it ended in silence, neither whole nor with an error"


def _is_refusal(body: bytes) -> bool:
    try:
        return "error" in json.loads(body)
    except ValueError:
        return False


def _difference(told: Told, script: Script) -> str:
    """Say in what an answer that calls itself ended differs from its script."""
    words = "".join(texts_of(replace(script, call=False)))
    text, calls = ("", [("write_note", {"title": "x", "text": words})]) if script.call else (words, [])
    try:
        found = [(name, json.loads(arguments)) for name, arguments in told.calls.values()]
    except ValueError:
        return f"the arguments of a call are not whole: {list(told.calls.values())!r:.300}"
    if told.text != text:
        return f"expected the text {text!r:.100}, got {told.text!r:.300}"
    if found != calls:
        return f"expected the calls {calls!r:.100}, got {found!r:.300}"
    wanted = "calls" if script.call else "stop"
    return "" if told.reason == wanted else f"expected the reason {wanted}, got {told.reason!r}"
