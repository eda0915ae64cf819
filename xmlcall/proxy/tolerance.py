"""What clients send that is not in the wire format, and that cannot matter: mended before a body is read, unless `--strict`.

A mend is a row: the wire formats whose clients need it, and a function that takes a body and says what it changed, "" if nothing.
Each was seen on the wire (2026-11-22): LiteLLM, LangChain.js, Mastra, Agno, opencode, codex, qwen-code, mcp-use. What is left is
read as strictly as ever, so that a mistake is told and not guessed at.

The body that came is not changed: what is mended is copied first.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

__all__ = ["mended"]

Body = dict[str, Any]
Mend = Callable[[Body], str]

CHAT: Final = "openai"
RESPONSES: Final = "openai-responses"
MESSAGES: Final = "anthropic"
OLLAMA: Final = "ollama"

_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_MODES: Final = {"any": "required", "auto": "auto", "none": "none", "required": "required"}
_RUN_HERE: Final[Mapping[str, frozenset[Any]]] = {
    CHAT: frozenset({None, "function"}),
    RESPONSES: frozenset({None, "function", "custom", "namespace"}),
    MESSAGES: frozenset({None, "custom"}),
    OLLAMA: frozenset({None, "", "function"}),
}
_BLOCKS: Final = frozenset(
    {
        "bash_code_execution_tool_result",
        "code_execution_tool_result",
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
"""Anthropic's blocks of tools that run on its own servers."""

_SHOWN: Final = frozenset({"text", "input_text", "output_text", "refusal", "image_url", "input_image"})
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking", "reasoning"})


def mended(data: Mapping[str, Any], wire: str) -> tuple[dict[str, Any], list[str]]:
    """Mend a body.

    Args:
        data: as it came.
        wire: its wire format, as in `TurnRequest.wire`.

    Returns:
        A copy in which what cannot matter is left out or put right, and what was done, for the log.
    """
    body = dict(data)
    notes = [note for wires, mend in _MENDS if wire in wires and (note := mend(body))]
    for note in (_without_hosted_tools(body, wire), _without_twins(body)):
        notes += [note] if note else []
    return body, notes


# -- numbers, and how to choose ----------------------------------------------------------------------------------------


def _without_model(body: Body) -> str:
    if "model" not in body or body["model"] is not None:
        return ""
    del body["model"]
    return "model: null means the one that is served"


def _limits(body: Body) -> str:
    """Take 1000.0 for 1000, and no limit from 0 and -1."""
    notes = []
    for name in _LIMITS:
        value = body.get(name)
        if isinstance(value, float) and value.is_integer():
            value = body[name] = int(value)
            notes.append(f"{name}: read a whole number")
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            del body[name]
            notes.append(f"{name}: left out, as it was below 1")
    return "; ".join(notes)


def _temperature(body: Body) -> str:
    """Leave out -1, by which some clients mean the model's own; in Ollama's format it stands among the options."""
    options = body.get("options")
    if _is_negative(body.get("temperature")):
        del body["temperature"]
    elif isinstance(options, dict) and _is_negative(options.get("temperature")):
        body["options"] = {name: each for name, each in options.items() if name != "temperature"}
    else:
        return ""
    return "temperature: left out, as it was below 0"


def _is_negative(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value < 0


def _choice(body: Body) -> str:
    """Read `any`, which is Anthropic's word, and a mode in an object."""
    choice = body.get("tool_choice")
    mode = choice.get("type") if isinstance(choice, dict) else choice
    if not isinstance(mode, str) or mode not in _MODES or choice == _MODES[mode]:
        return ""
    body["tool_choice"] = _MODES[mode]
    return f'tool_choice: read "{_MODES[mode]}"'


# -- tools -------------------------------------------------------------------------------------------------------------


def _without_hosted_tools(body: Body, wire: str) -> str:
    """Leave out tools that only the maker of the format can run, such as `web_search`."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return ""
    here = _RUN_HERE[wire]
    kept = [tool for tool in tools if not isinstance(tool, dict) or _is_in(tool.get("type"), here)]
    if len(kept) == len(tools):
        return ""
    body["tools"] = kept
    kinds = sorted({str(tool["type"])[:40] for tool in tools if tool not in kept})
    return f"tools: left out, as nobody here runs them: {', '.join(kinds)}"


def _is_in(kind: Any, kinds: frozenset[Any]) -> bool:
    return kind is None or (isinstance(kind, str) and kind in kinds)


def _without_twins(body: Body) -> str:
    """Leave out a tool that is in the list already, word for word."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return ""
    seen = {json.dumps(tool, sort_keys=True): tool for tool in tools}
    if len(seen) == len(tools):
        return ""
    body["tools"] = list(seen.values())
    return "tools: left out what was listed twice"


# -- what was said before ----------------------------------------------------------------------------------------------


def _calls(body: Body) -> str:
    """Give the calls of a chat's history the form that they should have, so that a conversation does not stay stuck."""
    notes: set[str] = set()

    def call(given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        kept = {name: value for name, value in given.items() if not (name in ("id", "type") and value is None)}
        function = kept.get("function")
        if isinstance(function, dict):
            kept["function"] = _with_arguments(function, notes)
        return kept

    def message(given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("tool_calls"), list):
            return given
        return {**given, "tool_calls": [call(each) for each in given["tool_calls"]]}

    if isinstance(body.get("messages"), list):
        body["messages"] = [message(each) for each in body["messages"]]
    return "; ".join(sorted(notes))


def _call_items(body: Body) -> str:
    notes: set[str] = set()
    if isinstance(body.get("input"), list):
        body["input"] = [
            _with_arguments(item, notes) if isinstance(item, dict) and item.get("type") == "function_call" else item
            for item in body["input"]
        ]
    return "; ".join(sorted(notes))


def _with_arguments(holder: Mapping[str, Any], notes: set[str]) -> dict[str, Any]:
    """Write a call's arguments as the text of an object; broken text becomes an argument of its own."""
    given = holder.get("arguments")
    if given is None:
        return {**holder, "arguments": "{}"}
    if isinstance(given, str):
        if not given.strip() or isinstance(_parsed(given), dict):
            return dict(holder)
        given = {"arguments": given}
    elif not isinstance(given, dict):
        return dict(holder)
    notes.add("arguments of a call in the history: put into the text of an object")
    return {**holder, "arguments": json.dumps(given, ensure_ascii=False)}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _contents(body: Body) -> str:
    """Leave thoughts out of a chat's history, and write what a tool gave as text, whatever it is."""
    notes: set[str] = set()

    def part(given: Any) -> Any:
        if not isinstance(given, dict) or _is_in(given.get("type", ""), _SHOWN):
            return given
        notes.add("content: wrote a part of another kind as text")
        return {"type": "text", "text": json.dumps(given, ensure_ascii=False)}

    def content(given: Any, *, is_result: bool) -> Any:
        if isinstance(given, list):
            said = [each for each in given if not (isinstance(each, dict) and _is_thought(each))]
            notes.update({"content: left out thoughts"} if len(said) < len(given) else ())
            return [part(each) for each in said] if is_result else said
        if is_result and isinstance(given, dict):
            notes.add("content: wrote an object as text")
            return json.dumps(given, ensure_ascii=False)
        return given

    def message(given: Any) -> Any:
        if not isinstance(given, dict) or "content" not in given:
            return given
        return {**given, "content": content(given["content"], is_result=given.get("role") in ("tool", "function"))}

    if isinstance(body.get("messages"), list):
        body["messages"] = [message(each) for each in body["messages"]]
    return "; ".join(sorted(notes))


def _is_thought(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and kind in _THOUGHTS


def _blocks(body: Body) -> str:
    """Leave out what Anthropic's own tools left in a history, and write references to tools as text."""
    notes: set[str] = set()

    def block(given: Any) -> Iterator[Any]:
        kind = given.get("type") if isinstance(given, dict) else None
        if isinstance(kind, str) and kind in _BLOCKS:
            notes.add(f"content: left out {kind}")
        elif kind == "tool_reference":
            notes.add("content: wrote tool_reference as text")
            yield {"type": "text", "text": f"Tool: {given.get('tool_name', '')}"}
        elif kind == "tool_result" and isinstance(given.get("content"), list):
            yield {**given, "content": [each for inner in given["content"] for each in block(inner)]}
        else:
            yield given

    def message(given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("content"), list):
            return given
        return {**given, "content": [each for inner in given["content"] for each in block(inner)]}

    if isinstance(body.get("messages"), list):
        body["messages"] = [message(each) for each in body["messages"]]
    return "; ".join(sorted(notes))


def _developer(body: Body) -> str:
    """Read Ollama's messages of role `developer`, which is OpenAI's."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not any(_role(each) == "developer" for each in messages):
        return ""
    body["messages"] = [{**each, "role": "system"} if _role(each) == "developer" else each for each in messages]
    return "role: read developer as system"


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


_MENDS: Final[tuple[tuple[frozenset[str], Mend], ...]] = (
    (frozenset({CHAT, RESPONSES, MESSAGES}), _without_model),
    (frozenset({CHAT, RESPONSES, MESSAGES}), _limits),
    (frozenset({CHAT, RESPONSES, MESSAGES, OLLAMA}), _temperature),
    (frozenset({CHAT, RESPONSES, OLLAMA}), _choice),
    (frozenset({CHAT}), _calls),
    (frozenset({CHAT}), _contents),
    (frozenset({RESPONSES}), _call_items),
    (frozenset({MESSAGES}), _blocks),
    (frozenset({OLLAMA}), _developer),
)
