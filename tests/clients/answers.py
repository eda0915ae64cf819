"""What an answer of the proxy says, in each of its wire formats, whole and streamed: its calls and its text."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["Summary", "events_in", "summary"]

Summary = dict[str, Any]
"""`calls`: [name, arguments] each; `text`: what is said; `error`: the message of an error, if it is one."""


def summary(path: str, body: str) -> Summary:
    """Sum an answer up."""
    pieces = list(events_in(body))
    return _with_error(pieces) or _READERS[_kind(path)](pieces)


def events_in(body: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a body: one, lines of them, or server-sent events."""
    try:
        yield json.loads(body)
        return
    except ValueError:
        lines = (line.removeprefix("data:").strip() for line in body.splitlines())
    yield from (json.loads(line) for line in lines if line.startswith("{"))


def _kind(path: str) -> str:
    return next(kind for kind in _READERS if path.rstrip("/").endswith(kind))


def _with_error(pieces: Iterable[Mapping[str, Any]]) -> Summary | None:
    for piece in pieces:
        error = piece.get("error") or (piece.get("response") or {}).get("error")
        if error:
            return {"error": error.get("message", "") if isinstance(error, dict) else error}
    return None


def _chat(pieces: list[dict[str, Any]]) -> Summary:
    text, calls = "", dict[int, list[str]]()
    for choice in (choice for piece in pieces for choice in piece.get("choices", ())):
        said = choice.get("delta") or choice.get("message") or {}
        text += said.get("content") or ""
        for number, call in enumerate(said.get("tool_calls") or ()):
            held = calls.setdefault(call.get("index", number), ["", ""])
            held[0] += call["function"].get("name") or ""
            held[1] += call["function"].get("arguments") or ""
    return {"calls": [[name, json.loads(arguments)] for name, arguments in calls.values()], "text": text}


def _responses(pieces: list[dict[str, Any]]) -> Summary:
    response = next((piece["response"] for piece in pieces if piece.get("type") == "response.completed"), pieces[0])
    items = response["output"]
    called = [
        [item["name"], item["input"] if item["type"] == "custom_tool_call" else json.loads(item["arguments"])]
        for item in items
        if item["type"] in ("function_call", "custom_tool_call")
    ]
    parts = (part for item in items if item["type"] == "message" for part in item["content"])
    return {"calls": called, "text": "".join(part.get("text", "") for part in parts)}


def _messages(pieces: list[dict[str, Any]]) -> Summary:
    if len(pieces) == 1 and "content" in pieces[0]:
        blocks = pieces[0]["content"]
        called = [[block["name"], block["input"]] for block in blocks if block["type"] == "tool_use"]
        return {"calls": called, "text": "".join(block["text"] for block in blocks if block["type"] == "text")}
    text, calls = "", dict[int, list[str]]()
    for piece in pieces:
        block, delta = piece.get("content_block") or {}, piece.get("delta") or {}
        if block.get("type") == "tool_use":
            calls[piece["index"]] = [block["name"], ""]
        text += delta.get("text") or ""
        if "partial_json" in delta:
            calls[piece["index"]][1] += delta["partial_json"]
    return {"calls": [[name, json.loads(arguments or "{}")] for name, arguments in calls.values()], "text": text}


def _ollama(pieces: list[dict[str, Any]]) -> Summary:
    messages = [piece.get("message") or {"content": piece.get("response", "")} for piece in pieces]
    functions = [call["function"] for message in messages for call in message.get("tool_calls") or ()]
    called = [[function["name"], function["arguments"]] for function in functions]
    return {"calls": called, "text": "".join(message.get("content") or "" for message in messages)}


_READERS: Mapping[str, Callable[[list[dict[str, Any]]], Summary]] = {
    "/chat/completions": _chat,
    "/responses": _responses,
    "/messages": _messages,
    "/api/chat": _ollama,
    "/api/generate": _ollama,
}
