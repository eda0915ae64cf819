"""What clients send that is not in the wire format, and that cannot matter: mended before a body is read, unless `--strict`.

A mend is a row: the wire formats whose clients need it, and a function that takes a body and says what it changed, "" if nothing.
Reported of real clients (2026-11-22). What is left is read as strictly as ever, so that a mistake is told and not guessed at.

The body that came is not changed: what is mended is copied first.
"""

import json
from collections.abc import Callable, Mapping
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
_HOSTED: Final = (
    "bash_",
    "code_execution",
    "code_interpreter",
    "computer",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "text_editor_",
    "tool_search",
    "web_fetch",
    "web_search",
)
"""How the types of tools begin that only the maker of the format can run, or of which only its own models know the parameters."""

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
    return body, [note for wires, mend in _MENDS if wire in wires and (note := mend(body))]


def _over(body: Body, field: str, change: Callable[[Body], None]) -> None:
    """Put copies into the place of the objects in a list, and change those."""
    if not isinstance(items := body.get(field), list):
        return
    body[field] = copies = [dict(item) if isinstance(item, dict) else item for item in items]
    for item in copies:
        if isinstance(item, dict):
            change(item)


def _type(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


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


def _without_hosted_tools(body: Body) -> str:
    tools = body.get("tools")
    hosted = [tool for tool in tools if _type(tool).startswith(_HOSTED)] if isinstance(tools, list) else []
    if not hosted:
        return ""
    body["tools"] = [tool for tool in body["tools"] if tool not in hosted]
    return f"tools: left out, as nobody here runs them: {', '.join(sorted({_type(tool)[:40] for tool in hosted}))}"


def _without_twins(body: Body) -> str:
    """Leave out a tool that is in the list already, word for word."""
    if not isinstance(tools := body.get("tools"), list):
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

    def call(given: Body) -> None:
        for name in ("id", "type"):
            if name in given and given[name] is None:
                del given[name]
        if isinstance(function := given.get("function"), dict):
            given["function"] = dict(function)
            _write_arguments(given["function"], notes)

    _over(body, "messages", lambda message: _over(message, "tool_calls", call))
    return "; ".join(notes)


def _call_items(body: Body) -> str:
    """Do the same for the calls of responses."""
    notes: set[str] = set()

    def item(given: Body) -> None:
        if _type(given) == "function_call":
            _write_arguments(given, notes)

    _over(body, "input", item)
    return "; ".join(notes)


def _write_arguments(call: Body, notes: set[str]) -> None:
    """Write a call's arguments as the text of an object; broken text becomes an argument of its own."""
    given = call.get("arguments")
    if given is None:
        call["arguments"] = "{}"
    if isinstance(given, str) and given.strip() and not isinstance(_parsed(given), dict):
        given = {"arguments": given}
    if isinstance(given, dict):
        call["arguments"] = json.dumps(given, ensure_ascii=False)
        notes.add("arguments of a call in the history: put into the text of an object")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _contents(body: Body) -> str:
    """Leave thoughts out of a chat's history, and write what a tool gave as text, whatever it is."""
    notes: set[str] = set()

    def part(given: Any) -> Any:
        if not _type(given) or _type(given) in _SHOWN:
            return given
        notes.add("content: wrote a part of another kind as text")
        return {"type": "text", "text": json.dumps(given, ensure_ascii=False)}

    def message(given: Body) -> None:
        content, is_result = given.get("content"), given.get("role") in ("tool", "function")
        if isinstance(content, list):
            said = [each for each in content if _type(each) not in _THOUGHTS]
            notes.update({"content: left out thoughts"} if len(said) < len(content) else ())
            given["content"] = [part(each) for each in said] if is_result else said
        elif isinstance(content, dict) and is_result:
            notes.add("content: wrote an object as text")
            given["content"] = json.dumps(content, ensure_ascii=False)

    _over(body, "messages", message)
    return "; ".join(sorted(notes))


def _blocks(body: Body) -> str:
    """Leave out what Anthropic's own tools left in a history, and write references to tools as text."""
    notes: set[str] = set()

    def holder(given: Body) -> None:
        if isinstance(content := given.get("content"), list):
            notes.update(f"content: left out {_type(each)}" for each in content if _type(each) in _BLOCKS)
            given["content"] = [each for each in content if _type(each) not in _BLOCKS]
        _over(given, "content", block)

    def block(given: Body) -> None:
        if _type(given) == "tool_reference":
            notes.add("content: wrote tool_reference as text")
            name = given.get("tool_name", "")
            given.clear()
            given.update({"type": "text", "text": f"Tool: {name}"})
        elif _type(given) == "tool_result":
            holder(given)

    _over(body, "messages", holder)
    return "; ".join(sorted(notes))


def _developer(body: Body) -> str:
    """Read Ollama's messages of role `developer`, which is OpenAI's."""
    notes: set[str] = set()

    def message(given: Body) -> None:
        if given.get("role") == "developer":
            given["role"] = "system"
            notes.add("role: read developer as system")

    _over(body, "messages", message)
    return "; ".join(notes)


_ALL: Final = frozenset({CHAT, RESPONSES, MESSAGES, OLLAMA})
_MENDS: Final[tuple[tuple[frozenset[str], Mend], ...]] = (
    (_ALL - {OLLAMA}, _without_model),
    (_ALL - {OLLAMA}, _limits),
    (_ALL, _temperature),
    (_ALL - {MESSAGES}, _choice),
    (_ALL, _without_hosted_tools),
    (_ALL, _without_twins),
    (frozenset({CHAT}), _calls),
    (frozenset({CHAT}), _contents),
    (frozenset({RESPONSES}), _call_items),
    (frozenset({MESSAGES}), _blocks),
    (frozenset({OLLAMA}), _developer),
)
