"""Correct harmless deviations from a wire format before a body is read, unless `--strict` is given.

A repair of one value is a row of `_VALUES`. Any other repair is a row of `_MENDS`: the wire formats whose clients need it, the
list of objects that it is for (none for the body), and a function that changes the object and notes what it changed. All
deviations were reported for real clients (2026-11-22). Everything else is read strictly, so that mistakes are reported instead of
guessed at. The original body is not changed, because each repaired part is copied first.

*Files, audio and video*: text is read, and a note replaces anything else. A client sends its attachments again with every
question, so a refusal would block the conversation permanently.

*The history*: a conversation that is refused once is refused permanently, too. So a history is read more tolerantly than the rest
of a request: a value becomes its JSON text, and what is not for the model is left out.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...loosejson import reader as loosejson
from .contract import integral, json_in
from .openai_responses import KNOWN_ITEMS

Body = dict[str, Any]
Mend = Callable[[Body, set[str]], None]

CHAT: Final = "openai"
RESPONSES: Final = "openai-responses"
MESSAGES: Final = "anthropic"
OLLAMA: Final = "ollama"

_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_OF_NUMBERS: Final = "frequency_penalty min_p n num_predict presence_penalty repeat_penalty seed temperature top_k top_p"
_NUMBERS: Final = (*_LIMITS, *_OF_NUMBERS.split())
_SWITCHES: Final = ("parallel_tool_calls", "store", "stream")
_WORDS: Final = {"true": True, "false": False}
_MODES: Final = {"any": "required", "auto": "auto", "none": "none", "required": "required"}
_HOSTED_TYPES: Final = (
    "bash_ code_execution code_interpreter computer file_search image_generation local_shell mcp text_editor_ tool_search "
    "web_fetch web_search"
)
_HOSTED: Final = tuple(_HOSTED_TYPES.split())
"""Prefixes of the types of tools that only the format's vendor can run, or whose parameters only its own models know."""


def mended(data: Mapping[str, Any], wire: str) -> tuple[dict[str, Any], list[str]]:
    """Return a copy of a body with its deviations repaired, and notes on what was done, for the log."""
    body, notes = dict(data), set[str]()
    copied: dict[str, list[Body]] = {"": [body]}
    for field, mend in _BY_WIRE[wire]:
        if field not in copied:
            copied[field] = copies_in(body, field)
        for each in copied[field]:
            mend(each, notes)
    return body, sorted(notes)


def copies_in(body: Body, field: str) -> list[Body]:
    if not isinstance(items := body.get(field), list):
        return []
    body[field] = copies = [dict(item) if isinstance(item, dict) else item for item in items]
    return [each for each in copies if isinstance(each, dict)]


def kind_of(value: Any) -> str:
    """Return the `type` of an object, "" if it has none."""
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


def text_part(value: Any) -> Body:
    """Make a content part from a text, or from the JSON of another value."""
    return {"type": "text", "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}


# -- single values -----------------------------------------------------------------------------------------------------
# A function of these takes a value of a request, and returns it, another one in its place, or `_GONE` to leave it out.

_GONE: Final = object()


def _not_null(value: Any) -> Any:
    return _GONE if value is None else value


def _number(value: Any) -> Any:
    if not isinstance(value, str) or not 0 < len(value) <= 40 or not value.isascii():
        return value
    for read in (int, float):
        try:
            number = read(value)
        except ValueError:
            continue
        return number if math.isfinite(number) else value
    return value


def _switch(value: Any) -> Any:
    return _WORDS.get(value.lower(), value) if isinstance(value, str) else value


def _limit(value: Any) -> Any:
    """Leave out 0 and -1, which some clients send for no limit."""
    return _GONE if isinstance(value, int) and not isinstance(value, bool) and value < 1 else value


def _temperature(value: Any) -> Any:
    """Leave out -1, which some clients send for the model's default."""
    return _GONE if isinstance(value, int | float) and value < 0 else value


def _stops(value: Any) -> Any:
    """Leave out empty stop strings, which would end every reply or none."""
    listed = value if isinstance(value, list) else [value]
    kept = [each for each in listed if each not in ("", None)]
    return value if value is None or len(kept) == len(listed) else kept or _GONE


def _list(value: Any) -> Any:
    return value if value is None or isinstance(value, list) else [value]


def _not_empty(value: Any) -> Any:
    return _GONE if value in ("", {}, False) else value


def _choice(value: Any) -> Any:
    """Read `any`, which is Anthropic's word, and a mode in an object."""
    mode = value.get("type") if isinstance(value, dict) else value
    return _MODES.get(mode, value) if isinstance(mode, str) and value != _MODES.get(mode) else value


def _anthropic_choice(value: Any) -> Any:
    """Accept OpenAI's choices in place of Anthropic's."""
    choice = {"type": value} if isinstance(value, str) else dict(value) if isinstance(value, dict) else {}
    function = choice.pop("function", None)
    if choice.get("type") == "required":
        choice["type"] = "any"
    if choice.get("type") == "function" and isinstance(function, dict):
        choice |= {"type": "tool", "name": function.get("name")}
    if choice.get("name", "") is None:
        del choice["name"]
    return value if not choice or choice == value else choice


_ALL: Final = frozenset({CHAT, RESPONSES, MESSAGES, OLLAMA})
_NOT_OLLAMA: Final = _ALL - {OLLAMA}
_OPTIONS: Final = "ollama's options"
_TOOL: Final = "a tool"
_VALUES: Final[tuple[tuple[frozenset[str], tuple[str, ...], Callable[[Any], Any], str], ...]] = (
    (_NOT_OLLAMA, ("model",), _not_null, "model: null means the one that is served"),
    (_ALL | {_OPTIONS}, _NUMBERS, _number, "{}: read a number"),
    (_ALL | {_OPTIONS}, _SWITCHES, _switch, "{}: read true or false"),
    (_NOT_OLLAMA, _LIMITS, integral, "{}: read a whole number"),
    (_NOT_OLLAMA, _LIMITS, _limit, "{}: left out, as it was below 1"),
    (_ALL | {_OPTIONS}, ("temperature",), _temperature, "{}: left out, as it was below 0"),
    (_NOT_OLLAMA | {_OPTIONS}, ("stop", "stop_sequences"), _stops, "{}: left out what was empty"),
    (_NOT_OLLAMA, ("stop_sequences",), _list, "{}: made a list"),
    (_ALL, ("tool_choice",), _not_empty, "{}: left out, as it was empty"),
    (_ALL - {MESSAGES}, ("tool_choice",), _choice, "{}: read a mode"),
    (frozenset({MESSAGES}), ("tool_choice",), _anthropic_choice, "{}: read in OpenAI's form"),
    (frozenset({_TOOL}), ("type",), _not_null, "tools: left out a type that was null"),
)
"""The objects that they are for, the names of the values, what reads them, and what the log says of one that was changed."""


def _values(of: str) -> Mend:
    """Make the function that reads the values of one kind of object."""
    rows = [row[1:] for row in _VALUES if of in row[0]]

    def mend(body: Body, notes: set[str]) -> None:
        for names, read, note in rows:
            for name in body.keys() & names:
                value = read(body[name])
                if value is not body[name]:
                    notes.add(note.format(name))
                    body[name] = value
                if value is _GONE:
                    del body[name]

    return mend


_read_options: Final = _values(_OPTIONS)


def _options(body: Body, notes: set[str]) -> None:
    if isinstance(body.get("options"), dict):
        body["options"] = dict(body["options"])
        _read_options(body["options"], notes)


# -- tools -------------------------------------------------------------------------------------------------------------


def _without_hosted_tools(body: Body, notes: set[str]) -> None:
    tools = body.get("tools")
    hosted = [tool for tool in tools if kind_of(tool).startswith(_HOSTED)] if isinstance(tools, list) else []
    if not hosted:
        return
    body["tools"] = [tool for tool in body["tools"] if tool not in hosted]
    notes.add(f"tools: left out, as this proxy does not run them: {', '.join(sorted({kind_of(tool)[:40] for tool in hosted}))}")


def _without_hosted_items(item: Body, notes: set[str]) -> None:
    if kind_of(item) == "additional_tools":
        _without_hosted_tools(item, notes)


def _without_twins(body: Body, notes: set[str]) -> None:
    tools = body.get("tools")
    if not isinstance(tools, list) or len(set(map(_beginning, tools))) == len(tools):
        return
    seen = {json.dumps(tool, sort_keys=True): tool for tool in tools}
    if len(seen) < len(tools):
        body["tools"] = list(seen.values())
        notes.add("tools: left out what was listed twice")


def _beginning(tool: Any) -> str:
    """Return what twins share and others seldom do: to write all schemas as JSON takes 50 times as long."""
    inner = tool.get("function", tool) if isinstance(tool, dict) else tool
    return str(inner.get("name")) if isinstance(inner, dict) else str(inner)


# -- files ----------------------------------------------------------------------------------------------------------------

_NAMES: Final = ("title", "filename", "name", "source", "file_id", "id")
_CALLED: Final = 100  # characters of a name that are shown
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")
_READ_SOURCES: Final = {"document": ("text",), "image": ("base64", "url")}


def _files(given: Body, notes: set[str], *, is_result: bool = False) -> None:
    """Replace each file among the parts of messages, items and results with its text or a note."""
    for field in ("content", "output"):
        if not is_result:
            for part in copies_in(given, field):
                if kind_of(part) == "tool_result":
                    _files(part, notes, is_result=True)
        if isinstance(parts := given.get(field), list):
            given[field] = [each for part in parts for each in _replaced(part, notes)]


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
    except ValueError:
        return None


def _note(part: Any, what: str, kind: str = "") -> Body:
    names = (part.get(name) for name in _NAMES) if isinstance(part, dict) else ()
    name = next((name for name in names if isinstance(name, str) and name), "")
    called = f" {json.dumps(name[:_CALLED], ensure_ascii=False)}" if name else ""
    of = f" ({what[:_CALLED]})" if what else ""
    return text_part(f"[{kind or kind_of(part) or 'part'}{called}{of} left out: only text and pictures are read here]")


_READERS: Final[dict[str, Callable[[Body], list[Any] | None]]] = {
    "document": _with_source,
    "image": _with_source,
    "search_result": _found,
    "file": _attached,
    "input_file": _attached,
    **dict.fromkeys(("audio", "audio_url", "input_audio", "input_video", "video", "video_url"), lambda part: [_note(part, "")]),
}


# -- the history ---------------------------------------------------------------------------------------------------------

_BLOCKS: Final = ("compaction", "container_upload")
_OF_SERVERS: Final = ("_tool_result", "_tool_use")  # how blocks of tools end that run on Anthropic's own servers
_READ: Final = frozenset({"", "text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result"})
"""Blocks that are read, or refused for a reason of their own."""

_SHOWN_PARTS: Final = frozenset({"text", "input_text", "output_text", "refusal", "image_url", "input_image", "image", "document"})
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking", "reasoning"})
_RESULTS: Final = ("tool", "function")


def _null_content(message: Body, notes: set[str]) -> None:
    """Read null as an empty content, as OpenAI's Chat Completions do."""
    if "role" in message and "content" in message and message["content"] is None:
        message["content"] = ""
        notes.add("content: read null as no text")


def _bare_texts(message: Body, notes: set[str]) -> None:
    """Read a bare text among the parts of a content as a part; Ollama's contents have no parts, so `_developer` joins them."""
    content = message.get("content")
    if not isinstance(content, list) or not any(isinstance(part, str) for part in content):
        return
    message["content"] = [text_part(part) if isinstance(part, str) else part for part in content]
    notes.add("content: read a text as a part")


# -- OpenAI's chats ----------------------------------------------------------------------------------------------------


def _calls(message: Body, notes: set[str]) -> None:
    """Give the calls in a chat's history their proper form, so that the conversation does not get stuck."""
    for call in copies_in(message, "tool_calls"):
        for name in ("id", "type"):
            if name in call and call[name] is None:
                del call[name]
        if isinstance(function := call.get("function"), dict):
            call["function"] = dict(function)
            _write_arguments(call["function"], notes)


def _write_arguments(call: Body, notes: set[str]) -> None:
    given = call.get("arguments")
    if not isinstance(given, str | dict | None) or (isinstance(given, str) and isinstance(json_in(given), dict)):
        return
    call["arguments"] = json.dumps(_object_of(given), ensure_ascii=False)
    notes.add("arguments of a call in the history: put into the text of an object")


def _object_of(given: str | Body | None) -> Body:
    """Read arguments; broken JSON is repaired, as the client cannot correct it; other text becomes an argument of its own."""
    if not isinstance(given, str) or not given.strip():
        return given if isinstance(given, dict) else {}
    found = json_in(given)
    if not isinstance(found, dict):
        read = loosejson.read(given, kinds={"object"}, complete=True)
        found = read.value if isinstance(read, loosejson.JsonReading) else None
    return found if isinstance(found, dict) else {"arguments": given}


def _contents(message: Body, notes: set[str]) -> None:
    """Leave reasoning out of a chat's history, and write any tool result as text."""
    content, is_result = message.get("content"), message.get("role") in _RESULTS
    if isinstance(content, list):
        said = [each for each in content if kind_of(each) not in _THOUGHTS]
        notes.update({"content: left out thoughts"} if len(said) < len(content) else ())
        message["content"] = said
    if is_result:
        _write_result(message, notes)


def _write_result(result: Body, notes: set[str]) -> None:
    content = result.get("content")
    if isinstance(content, list):
        result["content"] = [part if kind_of(part) in _SHOWN_PARTS else text_part(part) for part in content]
        notes.update({"content: wrote a part of another kind as text"} if result["content"] != content else ())
    elif content is not None and not isinstance(content, str):
        result["content"] = json.dumps(content, ensure_ascii=False)
        notes.add("content: wrote a value as text")


# -- OpenAI's responses ------------------------------------------------------------------------------------------------


def _items(body: Body, notes: set[str]) -> None:
    """Give the items in a history of Responses their proper form: calls, their outputs, a single item."""
    if isinstance(body.get("input"), dict):
        body["input"] = [body["input"]]
        notes.add("input: made a list of an item")

    if isinstance(listed := body.get("input"), list):
        foreign = {kind_of(each) for each in listed if isinstance(each, dict) and "role" not in each} - KNOWN_ITEMS - {""}
        notes.update(f"input: left out {kind[:60]}" for kind in foreign)
        body["input"] = [each for each in listed if kind_of(each) not in foreign or "role" in each]

    for given in copies_in(body, "input"):
        kind = kind_of(given)
        if kind == "function_call":
            _write_arguments(given, notes)
        if kind.endswith("_call") and given.get("call_id", "") is None:
            given["call_id"] = given.get("id") or ""
            notes.add("call_id: took the id in its place")
        if kind.endswith("_call_output") and isinstance(output := given.get("output", ""), dict | int | float | None):
            given["output"] = "" if output is None else json.dumps(output, ensure_ascii=False)
            notes.add("output: wrote a value as text")


# -- Anthropic's messages ----------------------------------------------------------------------------------------------


def _blocks(given: Body, notes: set[str]) -> None:
    """Leave out blocks of Anthropic's own servers; write inputs as objects, and results and references as text."""
    if isinstance(content := given.get("content"), list):
        foreign = [kind_of(each) for each in content if _is_foreign(kind_of(each), given.get("role"))]
        notes.update(f"content: left out {kind[:60]}" for kind in foreign)
        given["content"] = [_summary(each) for each in content if kind_of(each) not in foreign or _summary(each) is not each]
    for block in copies_in(given, "content"):
        _block(block, notes)


def _block(given: Body, notes: set[str]) -> None:
    match kind_of(given):
        case "tool_reference":
            notes.add("content: wrote tool_reference as text")
            name = given.get("tool_name", "")
            given.clear()
            given.update(text_part(f"Tool: {name}"))
        case "tool_use":
            _write_input(given, notes)
        case "tool_result":
            _blocks(given, notes)
            _write_result(given, notes)


def _is_foreign(kind: str, role: Any) -> bool:
    """Return whether a block means nothing to a local model; in an answer, any unknown block, because only a server makes it."""
    return kind in _BLOCKS or (kind not in _READ and (role == "assistant" or kind.endswith(_OF_SERVERS)))


def _summary(block: Any) -> Any:
    """Read a server's summary of older messages as a text."""
    if kind_of(block) != "compaction" or not isinstance(block.get("content"), str) or not block["content"]:
        return block
    return text_part(f"{block['content']}\n")  # the texts of an answer are joined without a separator


def _write_input(call: Body, notes: set[str]) -> None:
    if isinstance(given := call.get("input"), str | None):
        call["input"] = _object_of(given)
        notes.add("input of a call in the history: made an object of it")


# -- Ollama ------------------------------------------------------------------------------------------------------------


def _developer(message: Body, notes: set[str]) -> None:
    """Accept OpenAI's role `developer` and OpenAI's contents made of text parts in Ollama's messages."""
    if message.get("role") == "developer":
        message["role"] = "system"
        notes.add("role: read developer as system")
    content = message.get("content")
    if isinstance(content, list) and all(kind_of(part) == "text" and isinstance(part.get("text"), str) for part in content):
        message["content"] = "\n".join(part["text"] for part in content)
        notes.add("content: joined parts")


_MENDS: Final[tuple[tuple[frozenset[str], str, Mend], ...]] = (
    (frozenset({OLLAMA}), "", _options),
    (_ALL, "tools", _values(_TOOL)),
    (_ALL, "", _without_hosted_tools),
    (frozenset({RESPONSES}), "input", _without_hosted_items),
    (_ALL, "", _without_twins),
    *((frozenset({MESSAGES, RESPONSES}), field, _null_content) for field in ("messages", "input")),
    *((_ALL, field, mend) for mend in (_bare_texts, _files) for field in ("messages", "input")),
    (frozenset({CHAT}), "messages", _calls),
    (frozenset({CHAT}), "messages", _contents),
    (frozenset({RESPONSES}), "", _items),
    (frozenset({MESSAGES}), "messages", _blocks),
    (frozenset({OLLAMA}), "messages", _developer),
)
_BY_WIRE: Final = {wire: [("", _values(wire)), *(row[1:] for row in _MENDS if wire in row[0])] for wire in _ALL}
