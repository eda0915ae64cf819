"""Correct harmless deviations from a wire format before a body is read, unless `--strict` is given.

A repair is a row: the wire formats whose clients need it, and a function that takes a body and returns a note of what it changed,
"" if nothing. All deviations were reported for real clients (2026-11-22). Everything else is read strictly, so that mistakes are
reported instead of guessed at. This module repairs fields and tools; `tolerance_history` repairs the history.

The original body is not changed, because each repaired part is copied first.

*Files, audio and video*: text is read, and a note replaces anything else. A client sends its attachments again with every
question, so a refusal would block the conversation permanently.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from .tolerance_history import (
    Body,
    blocks,
    calls,
    contents,
    developer,
    items,
    kind_of,
    nothing_said,
    over,
    text_part,
    texts_alone,
)

__all__ = ["files", "mended"]

# -- files ----------------------------------------------------------------------------------------------------------------

_NAMES: Final = ("title", "filename", "name", "source", "file_id", "id")
_CALLED: Final = 100  # characters of a name that are shown
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")
_READ_SOURCES: Final = {"document": ("text",), "image": ("base64", "url")}


def files(body: Body) -> str:
    """Replace each file among the parts of messages, items and results with its text or a note."""
    notes: set[str] = set()

    def holder(given: Body, *, is_result: bool = False) -> None:
        for field in ("content", "output"):
            if not is_result:
                over(given, field, lambda part: holder(part, is_result=True) if kind_of(part) == "tool_result" else None)
            if isinstance(parts := given.get(field), list):
                given[field] = [each for part in parts for each in _replaced(part, notes)]

    over(body, "messages", holder)
    over(body, "input", holder)
    return "; ".join(sorted(notes))


def _replaced(part: Any, notes: set[str]) -> list[Any]:
    found = reader(part) if (reader := _READERS.get(kind_of(part))) else None
    if found is None:
        return [part]
    notes.add(f"content: wrote {kind_of(part)} as text")
    return found


def _with_source(part: Body) -> list[Any] | None:
    """Read an Anthropic document or image; None if it can stay, or has no source at all."""
    source, kind = part.get("source"), kind_of(part)
    if not isinstance(source, dict) or kind_of(source) in ("", *_READ_SOURCES[kind]):
        return None
    title = [text_part(part["title"])] if isinstance(part.get("title"), str) else []
    if kind_of(source) == "content":
        return [*title, *_plain(source.get("content"))]
    media_type = str(source.get("media_type") or "")
    text = _text_of(source.get("data"), media_type)
    return [_note(part, media_type or str(source.get("url") or source.get("file_id") or ""))] if text is None else [*title, text]


def _plain(content: Any) -> list[Any]:
    parts = content if isinstance(content, list) else [content]
    return [part if kind_of(part) == "text" else text_part(part) if isinstance(part, str) else _note(part, "") for part in parts]


def _found(part: Body) -> list[Any]:
    """Read an Anthropic search result: its title, address and texts."""
    heads = [part[name] for name in ("title", "source") if isinstance(part.get(name), str)]
    return [text_part("\n".join(heads)), *_plain(part.get("content") or [])]


def _attached(part: Body) -> list[Any]:
    """Read an OpenAI file, whose data is a `data:` URL."""
    inner = file if isinstance(file := part.get("file"), dict) else part
    data = inner.get("file_data")
    head, _, packed = data.partition(",") if isinstance(data, str) else ("", "", "")
    media_type = head.removeprefix("data:").partition(";")[0][:_CALLED] if head.startswith("data:") else ""
    text = _text_of(packed, media_type)
    return [_note(inner, media_type, "file")] if text is None else [text]


def _text_of(data: Any, media_type: str) -> Body | None:
    if not isinstance(data, str) or not media_type.lower().startswith(_TEXTS):
        return None
    try:
        return text_part(base64.b64decode("".join(data.split()), validate=True).decode(errors="replace"))
    except (binascii.Error, ValueError):
        return None


def _note(part: Any, what: str, kind: str = "") -> Body:
    names = (part.get(name) for name in _NAMES) if isinstance(part, dict) else ()
    name = next((name for name in names if isinstance(name, str) and name), "")
    called = f" {json.dumps(name[:_CALLED], ensure_ascii=False)}" if name else ""
    of = f" ({what[:_CALLED]})" if what else ""
    return text_part(f"[{kind or kind_of(part) or 'part'}{called}{of} left out: only text and pictures are read here]")


def _noted(part: Body) -> list[Any]:
    return [_note(part, "")]


_READERS: Final[dict[str, Callable[[Body], list[Any] | None]]] = {
    "document": _with_source,
    "image": _with_source,
    "search_result": _found,
    "file": _attached,
    "input_file": _attached,
    **dict.fromkeys(("audio", "audio_url", "input_audio", "input_video", "video", "video_url"), _noted),
}


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
"""Prefixes of the types of tools that only the format's vendor can run, or whose parameters only its own models know."""


def mended(data: Mapping[str, Any], wire: str) -> tuple[dict[str, Any], list[str]]:
    """Repair a body.

    Returns:
        A copy with the deviations corrected or left out, and notes on what was done, for the log.
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
    """Read numbers and switches that are written as text; Ollama's format has its numbers in `options`."""
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
    """Read a number written as text; None if the text is not a number."""
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
    """Read 1000.0 as 1000, and 0 and -1 as no limit."""
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
    """Leave out -1, which some clients send for the model's default; Ollama's format has it in `options`."""
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
    """Leave out empty stop strings, which would end every reply or none."""
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
    """Apply `_scalars` and `_stops` to Ollama's options."""
    if not isinstance(body.get("options"), dict):
        return ""
    body["options"] = options = dict(body["options"])
    return "; ".join(note for mend in (_scalars, _stops) if (note := mend(options)))


def _no_choice(body: Body) -> str:
    """Treat an empty text, an empty object or false as no choice."""
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
    """Accept OpenAI's choices in place of Anthropic's."""
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
    """Treat a tool whose type is null as a tool without a type."""
    notes: set[str] = set()

    def tool(given: Body) -> None:
        if "type" in given and given["type"] is None:
            del given["type"]
            notes.add("tools: left out a type that was null")

    over(body, "tools", tool)
    return "; ".join(notes)


def _without_hosted_items(body: Body) -> str:
    """Leave out hosted tools that are listed among the items of Responses."""
    notes: set[str] = set()

    def item(given: Body) -> None:
        if kind_of(given) == "additional_tools":
            notes.update(filter(None, [_without_hosted_tools(given)]))

    over(body, "input", item)
    return "; ".join(sorted(notes))


def _without_twins(body: Body) -> str:
    """Leave out exact duplicates of a tool."""
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
