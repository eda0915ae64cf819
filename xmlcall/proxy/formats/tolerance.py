"""Deviations from a wire format that cannot change an answer: they are put right before a body is read, unless `--strict`.

A mend is a row: the wire formats whose clients need it, and a function that takes a body and says what it changed, "" if nothing.
All were reported of real clients (2026-11-22). Everything else is read strictly, so that a mistake is reported, not guessed at.
Here are the mends of fields and tools; those of the history are in `tolerance_history` and `tolerance_files`.

The body that came is not changed: what is mended is copied first.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from .tolerance_files import files
from .tolerance_history import Body, blocks, calls, contents, developer, items, kind_of, nothing_said, over, texts_alone

__all__ = ["mended"]

Mend = Callable[[Body], str]

CHAT: Final = "openai"
RESPONSES: Final = "openai-responses"
MESSAGES: Final = "anthropic"
OLLAMA: Final = "ollama"

_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_NUMBERS: Final = (
    *_LIMITS,
    "frequency_penalty",
    "min_p",
    "n",
    "num_predict",
    "presence_penalty",
    "repeat_penalty",
    "seed",
    "temperature",
    "top_k",
    "top_p",
)
_SWITCHES: Final = ("parallel_tool_calls", "store", "stream")
_WORDS: Final = {"true": True, "false": False}
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


def mended(data: Mapping[str, Any], wire: str) -> tuple[dict[str, Any], list[str]]:
    """Mend a body.

    Returns:
        A copy in which what cannot matter is left out or put right, and what was done, for the log.
    """
    body = dict(data)
    return body, [note for wires, mend in _MENDS if wire in wires and (note := mend(body))]


# -- numbers, and how to choose ----------------------------------------------------------------------------------------


def _without_model(body: Body) -> str:
    if "model" not in body or body["model"] is not None:
        return ""
    del body["model"]
    return "model: null means the one that is served"


def _scalars(body: Body) -> str:
    """Read numbers and switches that are written as text; in Ollama's format numbers stand among the options."""
    notes = []
    for name in _NUMBERS:
        if (number := _number(body.get(name))) is not None:
            body[name] = number
            notes.append(f"{name}: read a number")
    for name in _SWITCHES:
        if isinstance(word := body.get(name), str) and word.lower() in _WORDS:
            body[name] = _WORDS[word.lower()]
            notes.append(f"{name}: read true or false")
    return "; ".join(notes)


def _number(value: Any) -> int | float | None:
    """Read the text of a number, None if it is none."""
    if not isinstance(value, str) or not 0 < len(value) <= 40 or not value.isascii():
        return None
    for read in (int, float):
        try:
            number = read(value)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return None


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


def _stops(body: Body) -> str:
    """Leave out stop strings that are empty, which would end every reply or none."""
    name = "stop_sequences" if "stop_sequences" in body else "stop"
    given = body.get(name)
    listed = given if isinstance(given, list) else [given]
    kept = [each for each in listed if each not in ("", None)]
    if given is None or (len(kept) == len(listed) and (name == "stop" or isinstance(given, list))):
        return ""
    body[name] = kept
    if not kept:
        del body[name]
    return f"{name}: left out what was empty, or made a list"


def _options(body: Body) -> str:
    """Do the same for Ollama's options."""
    if not isinstance(body.get("options"), dict):
        return ""
    body["options"] = options = dict(body["options"])
    return "; ".join(note for mend in (_scalars, _stops) if (note := mend(options)))


def _no_choice(body: Body) -> str:
    """Read an empty text, an empty object or false as no choice."""
    if "tool_choice" not in body or body["tool_choice"] not in ("", {}, False):
        return ""
    del body["tool_choice"]
    return "tool_choice: left out, as it was empty"


def _choice(body: Body) -> str:
    """Read `any`, which is Anthropic's word, and a mode in an object."""
    choice = body.get("tool_choice")
    mode = choice.get("type") if isinstance(choice, dict) else choice
    if not isinstance(mode, str) or mode not in _MODES or choice == _MODES[mode]:
        return ""
    body["tool_choice"] = _MODES[mode]
    return f'tool_choice: read "{_MODES[mode]}"'


def _anthropic_choice(body: Body) -> str:
    """Read OpenAI's choices where Anthropic's should stand."""
    given = body.get("tool_choice")
    choice = {"type": given} if isinstance(given, str) else dict(given) if isinstance(given, dict) else {}
    function = choice.pop("function", None)
    if choice.get("type") == "required":
        choice["type"] = "any"
    if choice.get("type") == "function" and isinstance(function, dict):
        choice |= {"type": "tool", "name": function.get("name")}
    if choice.get("name", "") is None:
        del choice["name"]
    if not choice or choice == given:
        return ""
    body["tool_choice"] = choice
    return "tool_choice: read in OpenAI's form"


# -- tools -------------------------------------------------------------------------------------------------------------


def _without_hosted_tools(body: Body) -> str:
    tools = body.get("tools")
    hosted = [tool for tool in tools if kind_of(tool).startswith(_HOSTED)] if isinstance(tools, list) else []
    if not hosted:
        return ""
    body["tools"] = [tool for tool in body["tools"] if tool not in hosted]
    return f"tools: left out, as nobody here runs them: {', '.join(sorted({kind_of(tool)[:40] for tool in hosted}))}"


def _without_null_types(body: Body) -> str:
    """Read a tool whose type is null as one that tells none."""
    notes: set[str] = set()

    def tool(given: Body) -> None:
        if "type" in given and given["type"] is None:
            del given["type"]
            notes.add("tools: left out a type that was null")

    over(body, "tools", tool)
    return "; ".join(notes)


def _without_hosted_items(body: Body) -> str:
    """Do the same for tools that stand among the items of responses."""
    notes: set[str] = set()

    def item(given: Body) -> None:
        if kind_of(given) == "additional_tools":
            notes.update(filter(None, [_without_hosted_tools(given)]))

    over(body, "input", item)
    return "; ".join(sorted(notes))


def _without_twins(body: Body) -> str:
    """Leave out a tool that is in the list already, word for word."""
    if not isinstance(tools := body.get("tools"), list):
        return ""
    seen = {json.dumps(tool, sort_keys=True): tool for tool in tools}
    if len(seen) == len(tools):
        return ""
    body["tools"] = list(seen.values())
    return "tools: left out what was listed twice"


_ALL: Final = frozenset({CHAT, RESPONSES, MESSAGES, OLLAMA})
_MENDS: Final[tuple[tuple[frozenset[str], Mend], ...]] = (
    (_ALL - {OLLAMA}, _without_model),
    (_ALL, _scalars),
    (frozenset({OLLAMA}), _options),
    (_ALL - {OLLAMA}, _limits),
    (_ALL, _temperature),
    (_ALL - {OLLAMA}, _stops),
    (_ALL, _no_choice),
    (_ALL - {MESSAGES}, _choice),
    (frozenset({MESSAGES}), _anthropic_choice),
    (_ALL, _without_null_types),
    (_ALL, _without_hosted_tools),
    (frozenset({RESPONSES}), _without_hosted_items),
    (_ALL, _without_twins),
    (frozenset({MESSAGES, RESPONSES}), nothing_said),
    (_ALL, texts_alone),
    (_ALL, files),
    (frozenset({CHAT}), calls),
    (frozenset({CHAT}), contents),
    (frozenset({RESPONSES}), items),
    (frozenset({MESSAGES}), blocks),
    (frozenset({OLLAMA}), developer),
)
