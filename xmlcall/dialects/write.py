"""Writes calls as text in a format: what a model should write, and the beginning of a call for a model to continue.

Strings are raw; everything else is JSON. Text in a value that could be read as structure goes into a CDATA section or is escaped.
If a format has type marks, a value that would be read as another type carries one.

Texts that mention a call without writing one also take the names of tags from here.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import regex

from ..errors import UsageError
from ..tools.catalog import Catalog
from ..tools.outline import needs_mark
from ..types.calls import Message, Role, Speaker, Tool, ToolCall, ToolReply, WrittenCall
from . import DIALECTS, Body, Dialect, result_form_of
from .dialect import is_escaped

_ENTITIES = {ord("&"): "&amp;", ord("<"): "&#60;", ord(">"): "&#62;"}  # never `&lt;`, which begins that format's tags

_TAG_NAME: Final = regex.compile(r"<[^\s=>{]+")
_NAME: Final = regex.compile(r"(?:<|&lt;)/?(?:[A-Za-z]+:|\uff5c\w+\uff5c)?(\w+)")
_OPENER: Final = regex.compile(r"\A(<|&lt;)([^\s<>&]+).*?(>|&gt;)\s*\Z", regex.DOTALL)
_CALL: Final = ("block_open", "call_open", "parameter_open")


def write(calls: Iterable[tuple[str, Mapping[str, Any]]], catalog: Catalog, dialect: Dialect) -> str:
    """Write calls without the check of `render`, for examples, whose values need not satisfy their schemas."""
    texts = [_WRITERS[dialect.body](name, arguments, catalog, dialect) for name, arguments in calls]
    opener, closer = dialect.written.get("block_open", ""), dialect.written.get("block_close", "")
    if dialect.one_list:
        return f"{opener}[{', '.join(texts)}]{closer}"
    if dialect.body is Body.LINES:
        return opener + "\n".join(texts) + closer
    if dialect.is_json:
        return "\n".join(f"{opener}{text}{closer}" for text in texts)
    return dialect.joint.join(part for part in (opener, *texts, closer) if part)


def beginning(dialect: Dialect, name: str = "") -> str:
    """Write the beginning of a reply with a call, up to the tool's name if it is decided, for a model to continue."""
    block = dialect.written.get("block_open", "") + "[" * dialect.one_list
    # A model continues best where its own tokens end: after a bare `"X"`, small ones write ` ,`, which no training text has.
    call = _BEGINNINGS[dialect.body](dialect)
    begun = _fill(call, name) if name else call.partition("{name}")[0]
    return f"{block}{'' if dialect.names_in_body or not block else dialect.joint}{begun}"


def _as_tags(name: str, arguments: Mapping[str, Any], catalog: Catalog, dialect: Dialect) -> str:
    written = dialect.written
    if dialect.json_body:
        body = [written["body_open"] + _json(dict(arguments), dialect) + written["parameter_close"]]
    else:
        tool = catalog.get(name)
        body = [_parameter(key, value, tool, catalog, dialect) for key, value in arguments.items()]
    return dialect.joint.join([_fill(written["call_open"], name), *body, _fill(written["call_close"], name)])


def _as_json(name: str, arguments: Mapping[str, Any], catalog: Catalog, dialect: Dialect) -> str:
    first, second = dialect.keys
    is_keyed = dialect.body is Body.KEYED
    return _json({name: dict(arguments)} if is_keyed else {first: name, second: dict(arguments)}, dialect)


def _as_object(name: str, arguments: Mapping[str, Any], catalog: Catalog, dialect: Dialect) -> str:
    return _fill(dialect.written["call_open"], name) + _json(dict(arguments), dialect) + dialect.written.get("call_close", "")


def _as_python(name: str, arguments: Mapping[str, Any], catalog: Catalog, dialect: Dialect) -> str:
    """Write a Python call; JSON strings mean the same in Python."""

    def text(value: Any) -> str:
        return _PYTHON.sub(lambda found: _WORDS.get(found[0], found[0]), _json(value, dialect))

    written = (
        f"{key}={text(value)}" if _PYTHON_KEY.fullmatch(key) else f"**{text({key: value})}" for key, value in arguments.items()
    )
    return f"{name}({', '.join(written)})"


def _as_gemma(name: str, arguments: Mapping[str, Any], catalog: Catalog, dialect: Dialect) -> str:
    """Write JSON with strings between marks; a string that contains markup stays a JSON string."""
    mark = dialect.written["quote"]

    def string(found: "regex.Match[str]") -> str:
        text = json.loads(found["string"])
        if _BARE_KEY.fullmatch(text) and found["colon"]:
            return f"{text}:"
        plain = any(each in text for each in _string_marks()) or _is_structure(text, dialect)
        return (found["string"] if plain else f"{mark}{text}{mark}") + (found["colon"] or "")

    body = _STRING.sub(string, _json(dict(arguments), dialect, separators=(",", ":")))
    return _fill(dialect.written["call_open"], name) + body + dialect.written["call_close"]


@functools.cache
def _string_marks() -> frozenset[str]:
    """Return the marks that end a string in Gemma's formats; each of the two formats reads the other's mark, too."""
    return frozenset(row.written["quote"] for row in DIALECTS.values() if row.body is Body.GEMMA)


_WORDS: Final = {"true": "True", "false": "False", "null": "None"}
_PYTHON: Final = regex.compile(r'"(?:[^"\\]|\\.)*+"|true|false|null')
_STRING: Final = regex.compile(r'(?P<string>"(?:[^"\\]|\\.)*+")(?P<colon>:)?')
_BARE_KEY: Final = regex.compile(r"[A-Za-z_]\w{0,63}")
_PYTHON_KEY: Final = regex.compile(r"(?!(?:True|False|None|true|false|null)\Z)[^\W\d][\w\-]*+(?:\.[^\W\d][\w\-]*+)*+")
_WRITERS: Final[Mapping[Body, Callable[[str, Mapping[str, Any], Catalog, Dialect], str]]] = {
    Body.TAGS: _as_tags,
    Body.JSON: _as_json,
    Body.KEYED: _as_json,
    Body.PYTHON: _as_python,
    Body.LINES: _as_python,
    Body.OBJECT: _as_object,
    Body.GEMMA: _as_gemma,
}
_BEGINNINGS: Final[Mapping[Body, Callable[[Dialect], str]]] = {
    Body.TAGS: lambda row: row.written["call_open"] + row.joint,
    Body.JSON: lambda row: f'{{"{row.keys[0]}": "{{name}}", "{row.keys[1]}":',
    Body.KEYED: lambda row: '{"{name}":',
    Body.PYTHON: lambda row: "{name}(",
    Body.LINES: lambda row: "{name}(",
    Body.OBJECT: lambda row: row.written["call_open"] + "{",
    Body.GEMMA: lambda row: row.written["call_open"] + "{",
}


def _parameter(name: str, value: Any, tool: Tool | None, catalog: Catalog, dialect: Dialect) -> str:
    is_string = isinstance(value, str)
    plain = value if is_string else _json(value, dialect)
    mark = dialect.string_mark if is_string else dialect.json_mark
    opener = dialect.written["parameter_open"]
    marks_all = dialect.string_mark is not None and dialect.string_mark.written == opener  # as in DSML
    if mark is not None and (marks_all or needs_mark(value, plain, name, tool, catalog)):
        opener = mark.written
    text = _string(value, dialect) if is_string else plain
    text = text.translate(_ENTITIES) if dialect.entities else text
    return _fill(opener, name) + text + _fill(dialect.written["parameter_close"], name)


def _fill(tag: str, name: str) -> str:
    return tag.replace("{name}", name)


def _json(value: Any, dialect: Dialect, separators: tuple[str, str] = (", ", ": ")) -> str:
    """Write JSON, with `<` escaped if it could be markup, and `&` if it could be an entity."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=separators)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"expected a JSON value, got {value!r:.80}: {error}") from error
    text = text.replace("<", "\\u003c") if _has_structure(text, dialect) else text
    return text.replace("&", "\\u0026") if dialect.open_entities and is_escaped(text) else text


def _has_structure(text: str, dialect: Dialect) -> bool:
    """Say whether a value contains a possible tag; if parameters are elements, any `<` may begin one."""
    return "<" in text if dialect.parameter_elements else _is_structure(text, dialect)


def _is_structure(text: str, dialect: Dialect) -> bool:
    # The beginning of parameter tags, because a name may contain characters that no tag pattern matches.
    head = dialect.written.get("parameter_open", "").partition("{name}")[0].strip()
    heads = (regex.escape(head),) if any(map(str.isalnum, head)) else ()
    return _structure((*_tags(dialect), *heads)).search(text) is not None


def _tags(dialect: Dialect) -> tuple[str, ...]:
    return tuple(tag for kind, tag in dialect.tags.items() if kind not in _HARMLESS)


_HARMLESS: Final = frozenset({"json_open", "quote", "fence_close", "mark"})  # no markup, or only in a body of their own format


@functools.lru_cache(maxsize=64)
def _structure(own: tuple[str, ...]) -> "regex.Pattern[str]":
    """Return a pattern for text in a value that could be read as structure, in this format or any other."""
    known = (tag for dialect in DIALECTS.values() for tag in _tags(dialect))
    return regex.compile("|".join([r"<!\[CDATA\[|</?param(?:eter)?>", *dict.fromkeys((*known, *own))]))


def _string(value: str, dialect: Dialect) -> str:
    """Write a string: raw, or as one CDATA section if it could be markup in any dialect."""
    in_doubt = dialect.open_entities and is_escaped(value)
    if (_has_structure(value, dialect) or in_doubt) and not dialect.entities:
        return f"<![CDATA[{value.replace(']]>', ']]]]><![CDATA[>')}]]>"
    if dialect.is_exact:
        return value
    before = "\n" if value.startswith(("\n", "\r\n")) else ""
    after = "\n" if value.endswith("\n") else ""
    return f"{before}{value}{after}"


def first_tag(row: Dialect) -> str:
    """Return the tag that begins a call; "" if that is not a tag of fixed text."""
    first = next(iter(row.written.values()), "").partition("{name}")[0].partition("\n")[0]
    return first if first.endswith((">", ";")) else ""


def example_tag(row: Dialect) -> str:
    """Return a tag that is markup of a format, as an example of what a value may contain."""
    tag = _TAG_NAME.match(row.written.get("parameter_open", ""))
    return f"{tag[0]}>" if tag else "<b>"


def block_closer(dialect: str, opener: str) -> str:
    """Return the text that closes a wrapper, which has the name in its opener; "" if the format has no wrapper."""
    row = DIALECTS.get(dialect)
    if row is None or "block_close" not in row.written:
        return ""
    closer = _OPENER.sub(r"\1/\2\3", opener)
    is_like_opener = regex.fullmatch(row.tags["block_close"], closer) is not None
    return row.joint + (closer if is_like_opener else row.written["block_close"])


def ends_with_calls(row: Dialect) -> bool:
    """Say whether a wrapper has no closing tag, so that it ends with its calls."""
    return "block_open" in row.written and not (row.fence or "block_close" in row.tags)


def tag_names(row: Dialect) -> frozenset[str]:
    """Return the tag names of a format's wrapper, calls and parameters, without prefix and without declared names."""
    found = (_NAME.match(row.written.get(kind, "")) for kind in _CALL)
    return frozenset(name[1] for name in found if name)


# -- finding the results in a message ----------------------------------------------------------------------------------
# Finds the results of calls in a message: from what the message was written from, else from its text.
#
# Messages that xmlcall did not write have only their text: dicts of a caller, rows of an old database, the chat of another
# program. This is the only place that searches a text for our own words. It never treats a person's words as a result.


_ROLES: Final[Mapping[Speaker, Role]] = {"tool": "tool", "person": "user", "program": "system"}


def as_message(message: Message | Mapping[str, Any]) -> Message:
    """Return a message, converting a dict with `role` and `content`; fields that are not text are dropped."""
    if isinstance(message, Message):
        return message
    content = message.get("content")
    named: dict[str, Any] = {
        key: value for key in ("name", "tool_call_id") if isinstance(value := message.get(key), str) and value
    }
    return Message(role=message.get("role", "user"), content=content if isinstance(content, str) else "", **named)


def replies_of(message: Message) -> tuple[ToolReply, ...]:
    """Return the results of calls in a message; none if it has a person's words."""
    content, written = message.content, message.written
    if message.role not in ("tool", "user"):
        return ()
    if written is not None and written.text == content:
        return written.replies
    if message.role == "tool":
        return (ToolReply(name=message.name or "", start=0, end=len(content)),)
    form = result_form_of(content)
    if form is None:
        return ()
    return tuple(form.places(content)) or (ToolReply(name="", start=0, end=len(content), is_ended=False),)


def calls_of(message: Message) -> Sequence[ToolCall | WrittenCall]:
    """Return the calls in a message, in a separate field or written in its text."""
    return message.tool_calls or (message.written.calls if message.written else ())


def said_in(message: Message) -> str:
    """Return a message's words without ours after them, such as a reminder, which earlier messages keep."""
    written = message.written
    return message.content[: written.said_to] if written is not None and written.text == message.content else message.content


def said_by_whom(
    messages: Iterable[Message], called: dict[str, str] | None = None
) -> Iterator[tuple[int, Role, str | None, str]]:
    """Yield what is said in a conversation, without our words around it: the message's index, a role, the tool, the text.

    The tool is None for text that answers no call, and "" if unknown. An answer has the role of who wrote it: `tool`, or if the
    call did not run, `user` or `system`, of whom the reason is. `called` has the tools of earlier calls by their ids; the calls
    in these messages are added to it.
    """
    called = {} if called is None else called
    for place, message in enumerate(messages):
        called.update({call.id: call.name for call in message.tool_calls})
        replies = replies_of(message)
        for reply in replies:
            tool = reply.name or called.get(message.tool_call_id or "", "")
            yield place, _ROLES[reply.by], tool, reply.text_in(message.content)
        if not replies:
            yield place, message.role, None, said_in(message)


def named_results(message: Message, by: Speaker | None = None) -> list[tuple[str, str]]:
    """Return each result in a message, also errors, with the tool's name if it is stated; with `by`, only what this one wrote."""
    ended = (reply for reply in replies_of(message) if reply.is_ended and by in (None, reply.by))
    return [(reply.name if reply.is_named else "", reply.text_in(message.content)) for reply in ended]


def told_together(messages: Iterable[Message]) -> Iterator[str]:
    """Yield texts with words of ours in them, which may read as one: from a message's first result to its last, or a reminder."""
    for message in messages:
        if len(replies := replies_of(message)) > 1:
            yield message.content[replies[0].start : replies[-1].end]
        elif not replies and said_in(message) != message.content:
            yield message.content


def ends_in(message: Message, ours: str) -> bool:
    """Say whether a message ends in these words of ours, after a blank line."""
    return message.content.endswith(f"\n\n{ours}")


def says(message: Message, words: str, role: Role = "user") -> bool:
    """Say whether a message begins with somebody's words, which words of ours may follow."""
    return message.role == role and message.content.startswith(words)


def start_in(message: Message, said: Message) -> int:
    """Return the offset of a message's words in the message that was sent; -1 if it does not contain them."""
    if message.role != said.role or not said.content:
        return -1
    return message.content.rfind(said.content) if said.role == "system" else message.content.find(said.content)
