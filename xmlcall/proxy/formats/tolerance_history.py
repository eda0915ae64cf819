"""Correct deviations from a wire format in a request's history (see `tolerance`).

A conversation that is refused once is refused permanently, because the client sends it again with every question. So a history is
read more tolerantly than the rest of a request: a value becomes its JSON text, and what is not for the model is left out.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from ...loosejson import reader as loosejson

__all__ = [
    "Body",
    "blocks",
    "calls",
    "contents",
    "developer",
    "items",
    "kind_of",
    "nothing_said",
    "over",
    "text_part",
    "texts_alone",
]

Body = dict[str, Any]

_BLOCKS: Final = frozenset(
    {
        "bash_code_execution_tool_result",
        "code_execution_tool_result",
        "compaction",
        "container_upload",
        "mcp_tool_result",
        "mcp_tool_use",
        "server_tool_use",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "web_fetch_tool_result",
        "web_search_tool_result",
    }
)
"""Blocks of tools that run on Anthropic's own servers, as they occur in users' messages."""

_READ: Final = frozenset({"", "text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result"})
"""Blocks that are read, or refused for a reason of their own."""

_ITEMS: Final = frozenset(
    f"{kind}{end}"
    for kind in ("function_call", "custom_tool_call", "local_shell_call", "computer_call")
    for end in ("", "_output")
) | {
    "additional_tools",
    "code_interpreter_call",
    "compaction",
    "file_search_call",
    "image_generation_call",
    "item_reference",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "message",
    "reasoning",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
}
"""Items of Responses that are read, or deliberately skipped."""

_SHOWN: Final = frozenset({"text", "input_text", "output_text", "refusal", "image_url", "input_image", "image", "document"})
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking", "reasoning"})
_RESULTS: Final = ("tool", "function")


def over(body: Body, field: str, change: Callable[[Body], None]) -> None:
    """Replace the objects in a list with copies, and change the copies."""
    if not isinstance(items := body.get(field), list):
        return
    body[field] = copies = [dict(item) if isinstance(item, dict) else item for item in items]
    for item in copies:
        if isinstance(item, dict):
            change(item)


def kind_of(value: Any) -> str:
    """Return the `type` of an object, "" if it has none."""
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


def text_part(value: Any) -> Body:
    """Make a content part from a text, or from the JSON of another value."""
    return {"type": "text", "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}


# -- any format --------------------------------------------------------------------------------------------------------


def nothing_said(body: Body) -> str:
    """Read null as an empty content, as OpenAI's Chat Completions do."""
    notes: set[str] = set()

    def message(given: Body) -> None:
        if "role" in given and "content" in given and given["content"] is None:
            given["content"] = ""
            notes.add("content: read null as no text")

    over(body, "messages", message)
    over(body, "input", message)
    return "; ".join(notes)


def texts_alone(body: Body) -> str:
    """Read a bare text among the parts of a content as a part; Ollama's contents have no parts, so `developer` joins them."""
    notes: set[str] = set()

    def message(given: Body) -> None:
        content = given.get("content")
        if not isinstance(content, list) or not any(isinstance(part, str) for part in content):
            return
        given["content"] = [text_part(part) if isinstance(part, str) else part for part in content]
        notes.add("content: read a text as a part")

    over(body, "messages", message)
    over(body, "input", message)
    return "; ".join(notes)


# -- OpenAI's chats ----------------------------------------------------------------------------------------------------


def calls(body: Body) -> str:
    """Give the calls in a chat's history their proper form, so that the conversation does not get stuck."""
    notes: set[str] = set()

    def call(given: Body) -> None:
        for name in ("id", "type"):
            if name in given and given[name] is None:
                del given[name]
        if isinstance(function := given.get("function"), dict):
            given["function"] = dict(function)
            _write_arguments(given["function"], notes)

    over(body, "messages", lambda message: over(message, "tool_calls", call))
    return "; ".join(notes)


def _write_arguments(call: Body, notes: set[str]) -> None:
    """Write a call's arguments as the text of an object; broken JSON is repaired, other text becomes an argument of its own."""
    given = call.get("arguments")
    if given is None or (isinstance(given, str) and not given.strip()):
        call["arguments"] = "{}"
    if isinstance(given, str) and given.strip() and not isinstance(_parsed(given), dict):
        given = _mended(given)
    if isinstance(given, dict):
        call["arguments"] = json.dumps(given, ensure_ascii=False)
        notes.add("arguments of a call in the history: put into the text of an object")


def _mended(text: str | None) -> Any:
    """Return the only possible reading of broken arguments; a model wrote them, so the client cannot correct them."""
    read = loosejson.read(text or "", kinds={"object"}, complete=True)
    value = read.value if isinstance(read, loosejson.JsonReading) else None
    return value if isinstance(value, dict) else {"arguments": text}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def contents(body: Body) -> str:
    """Leave reasoning out of a chat's history, and write any tool result as text."""
    notes: set[str] = set()

    def message(given: Body) -> None:
        content, is_result = given.get("content"), given.get("role") in _RESULTS
        if isinstance(content, list):
            said = [each for each in content if kind_of(each) not in _THOUGHTS]
            notes.update({"content: left out thoughts"} if len(said) < len(content) else ())
            given["content"] = _shown(said, notes) if is_result else said
        elif is_result and content is not None and not isinstance(content, str):
            notes.add("content: wrote a value as text")
            given["content"] = json.dumps(content, ensure_ascii=False)

    over(body, "messages", message)
    return "; ".join(sorted(notes))


def _shown(parts: list[Any], notes: set[str]) -> list[Any]:
    """Write anything that is not a content part as a text part."""
    if all(kind_of(part) in _SHOWN for part in parts):
        return parts
    notes.add("content: wrote a part of another kind as text")
    return [part if kind_of(part) in _SHOWN else text_part(part) for part in parts]


# -- OpenAI's responses ------------------------------------------------------------------------------------------------


def items(body: Body) -> str:
    """Give the items in a history of Responses their proper form: calls, their outputs, a single item."""
    notes: set[str] = set()
    if isinstance(body.get("input"), dict):
        body["input"] = [body["input"]]
        notes.add("input: made a list of an item")

    if isinstance(listed := body.get("input"), list):
        foreign = {kind_of(each) for each in listed if isinstance(each, dict) and "role" not in each} - _ITEMS - {""}
        notes.update(f"input: left out {kind[:60]}" for kind in foreign)
        body["input"] = [each for each in listed if kind_of(each) not in foreign or "role" in each]

    def item(given: Body) -> None:
        kind = kind_of(given)
        if kind == "function_call":
            _write_arguments(given, notes)
        if kind.endswith("_call") and given.get("call_id", "") is None:
            given["call_id"] = given.get("id") or ""
            notes.add("call_id: took the id in its place")
        if kind.endswith("_call_output") and isinstance(output := given.get("output", ""), dict | int | float | None):
            given["output"] = "" if output is None else json.dumps(output, ensure_ascii=False)
            notes.add("output: wrote a value as text")

    over(body, "input", item)
    return "; ".join(sorted(notes))


# -- Anthropic's messages ----------------------------------------------------------------------------------------------


def blocks(body: Body) -> str:
    """Leave out blocks of Anthropic's own servers; write inputs as objects, and results and references as text."""
    notes: set[str] = set()

    def holder(given: Body) -> None:
        if isinstance(content := given.get("content"), list):
            foreign = [kind_of(each) for each in content if _is_foreign(kind_of(each), given.get("role"))]
            notes.update(f"content: left out {kind[:60]}" for kind in foreign)
            given["content"] = [_summary(each) for each in content if kind_of(each) not in foreign or _summary(each) is not each]
        over(given, "content", block)

    def block(given: Body) -> None:
        match kind_of(given):
            case "tool_reference":
                notes.add("content: wrote tool_reference as text")
                name = given.get("tool_name", "")
                given.clear()
                given.update(text_part(f"Tool: {name}"))
            case "tool_use":
                _write_input(given, notes)
            case "tool_result":
                holder(given)
                _write_result(given, notes)

    over(body, "messages", holder)
    return "; ".join(sorted(notes))


def _is_foreign(kind: str, role: Any) -> bool:
    """Return whether a block means nothing to a local model; in an answer, any unknown block, because only a server makes it."""
    return kind in _BLOCKS or (kind not in _READ and (role == "assistant" or kind.endswith(("_tool_result", "_tool_use"))))


def _summary(block: Any) -> Any:
    """Read a server's summary of older messages as a text."""
    if kind_of(block) != "compaction" or not isinstance(block.get("content"), str) or not block["content"]:
        return block
    return text_part(f"{block['content']}\n")  # the texts of an answer are joined without a separator


def _write_input(call: Body, notes: set[str]) -> None:
    """Write a call's input as an object; broken JSON is repaired, other text becomes an argument of its own."""
    given = call.get("input")
    if given is None or isinstance(given, str):
        parsed = _parsed(given) if given else {}
        call["input"] = parsed if isinstance(parsed, dict) else _mended(given)
        notes.add("input of a call in the history: made an object of it")


def _write_result(result: Body, notes: set[str]) -> None:
    content = result.get("content")
    if isinstance(content, list):
        result["content"] = _shown(content, notes)
    elif content is not None and not isinstance(content, str):
        result["content"] = json.dumps(content, ensure_ascii=False)
        notes.add("content: wrote a value as text")


# -- Ollama ------------------------------------------------------------------------------------------------------------


def developer(body: Body) -> str:
    """Accept OpenAI's role `developer` and OpenAI's contents made of text parts in Ollama's messages."""
    notes: set[str] = set()

    def message(given: Body) -> None:
        if given.get("role") == "developer":
            given["role"] = "system"
            notes.add("role: read developer as system")
        content = given.get("content")
        if isinstance(content, list) and all(kind_of(part) == "text" and isinstance(part.get("text"), str) for part in content):
            given["content"] = "\n".join(part["text"] for part in content)
            notes.add("content: joined parts")

    over(body, "messages", message)
    return "; ".join(sorted(notes))
