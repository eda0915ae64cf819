"""Sits between the MCP SDK and a transport, so that one bad part of an answer does not lose the whole answer.

The SDK validates an answer as a whole: one malformed tool hides every tool of its page, and a block of an unknown kind or a
structured value that does not fit its schema loses the result of a tool that has already run. So the answers to requests for
tools, calls, resources, prompts and completions are rewritten on their way in to something that always validates, and the
original travels along in `_meta`, which the SDK hands on as it is. Everything else passes untouched.

What the SDK cannot read at all is read by `messages`, if it answers a request. Invariant: only an answer whose id belongs to a
request of ours is rewritten.
"""

import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import anyio.to_thread
import regex
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types.jsonrpc import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp.types.methods import validate_server_result
from pydantic import ValidationError

from ...schema.mending import mended, sentence
from ...schema.validation import check_schema
from ...text_forms import INVISIBLE
from .messages import Flood, read_refused
from .wire import requires_task

# -- descriptions by servers as plain text of limited length: no model reads what the user cannot see ------------------
# Text can be hidden in characters without a glyph: tags (U+E0000), variation selectors, zero-width characters, marks that
# reorder the text around them. They are removed, and so are control characters and terminal escapes. Emoji, Persian, Hindi and
# Arabic need some of these characters. They are kept in such text, one at a time, so that no run of them remains:
#
# | character | is kept |
# |---|---|
# | tab, line feed | always |
# | zero-width joiner | between emoji, and after a letter of a script that joins (Arabic to Sinhala) |
# | zero-width non-joiner | between letters of these scripts |
# | variation selector 15, 16 | after a symbol, digit, `#` or `*` |
# | variation selector 17 to 256 | after a Chinese character |
# | marks of direction (U+200E, U+200F, U+061C) | in a text with letters that run from right to left |
# | tags | in the flags of England, Scotland and Wales |
#
# Sources: UAX 9 (direction), UTS 51 (emoji sequences), UTS 37 (ideographic variations). Cost: linear.


INSTRUCTIONS: Final = 16_000  # the most characters of a server's instructions, and of a tool's description
_LIMITS: Final[Mapping[str, int]] = {"title": 200, "description": INSTRUCTIONS}
_OF_PARAMETER: Final[Mapping[str, int]] = {"title": 200, "description": 4000, "$comment": 4000}
_VALUES: Final = frozenset({"enum", "const", "default", "examples", "example"})
_DEPTH: Final = 64  # the deepest that a schema may be

_JOINS: Final = "\u0600-\u08ff\u0900-\u0dff\u1800-\u18af\ufb50-\ufdff\ufe70-\ufefc"
_SYMBOL: Final = r"#*0-9\u00a9\u00ae\u203c\u2049\u2122-\u3299\U0001f000-\U0001faff"
_HAN: Final = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_PICTURE: Final = "\u2190-\u2bff\U0001f000-\U0001faff"
_FLAG: Final = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in name) + "\U000e007f" for name in ("gbeng", "gbsct", "gbwls")
)
_KEPT: Final = (
    rf"{_FLAG}"
    rf"|(?<=[{_JOINS}])\u200c(?=[{_JOINS}])"
    rf"|(?<=[{_JOINS}])\u200d(?![\u200b-\u200f])"
    rf"|(?:(?<=[{_PICTURE}])|(?<=[{_PICTURE}]\ufe0f))\u200d(?=[{_PICTURE}])"
    rf"|(?<=[{_SYMBOL}])[\ufe0e\ufe0f]"
    rf"|(?<=[{_HAN}])[\U000e0100-\U000e01ef]"
)
_DIRECTION: Final = "\u200e\u200f\u061c"
# Marks of Arabic, Syriac and Kaithi numbers and verses, and the space of Braille: of the category of invisible ones, and visible.
_VISIBLE: Final = "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd\u2800"
_NO_CHARACTERS: Final = "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
# Characters without a glyph of their own that are not ordinary white space.
_ODD: Final = rf"[[\p{{Cc}}\p{{Cf}}\p{{Cs}}{_NO_CHARACTERS}{INVISIBLE.pattern}]--[\t\n{_VISIBLE}]]"


def _hidden_among(odd: str) -> regex.Pattern[str]:
    """Make the pattern of odd characters that are hidden: not those that their script, or a picture, needs."""
    return regex.compile(rf"(?=[{odd}\U0001f3f4])(?:(?:{_KEPT})(*SKIP)(*FAIL)|{odd})", regex.V1)


_RIGHT_TO_LEFT: Final = regex.compile(rf"[[\p{{bc=R}}\p{{bc=AL}}]--[{_DIRECTION}\p{{Cn}}\p{{Cs}}]]", regex.V1)
_HIDDEN: Final = _hidden_among(_ODD)
_HIDDEN_RIGHT_TO_LEFT: Final = _hidden_among(f"[{_ODD}--[{_DIRECTION}]]")
_ESCAPE: Final = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\)?")


def plain_text(text: str, most: int) -> tuple[str, str]:
    """Remove what is hidden from a text and cut it; return it, marked if anything was taken away, and what was, as a clause."""
    even = text.replace("\r\n", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    even = _ESCAPE.sub("\x1b", even)
    seen, count = _hidden_in(even).subn("", even)
    parts = [f"{count} hidden {'character was' if count == 1 else 'characters were'} removed"] if count else []
    if len(seen) > most:
        parts.append(f"{len(seen) - most:,} more characters were left out")
        seen = seen[:most]
    mark = ", and ".join(parts)
    return (f"{seen} [{mark}]" if mark else seen), mark


def hides(text: str) -> bool:
    """Return whether a value has invisible characters, except control characters, which a value may need."""
    return any(unicodedata.category(found[0]) != "Cc" for found in _hidden_in(text).finditer(text))


def _hidden_in(text: str) -> regex.Pattern[str]:
    return _HIDDEN_RIGHT_TO_LEFT if _RIGHT_TO_LEFT.search(text) else _HIDDEN


def plain_tool(tool: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Make the titles and descriptions of a tool and its parameters plain; return also a sentence about what was removed."""
    changes: list[str] = []
    found = tool | {
        key: _plain_noted(tool[key], most, key, changes) for key, most in _LIMITS.items() if isinstance(tool.get(key), str)
    }
    annotations = tool.get("annotations")
    if isinstance(annotations, dict) and isinstance(annotations.get("title"), str):
        found["annotations"] = annotations | {"title": _plain_noted(annotations["title"], _LIMITS["title"], "title", changes)}
    if "inputSchema" in tool:
        found["inputSchema"] = _plain_schema(tool["inputSchema"], changes, _DEPTH)
    name = f"{tool.get('name')!r:.80}"
    return found, [f"The description of the tool {name} was changed: {'; '.join(dict.fromkeys(changes))}."] if changes else []


def _plain_noted(text: str, most: int, key: str, changes: list[str]) -> str:
    plain, what = plain_text(text, most)
    if what:
        changes.append(f"{key}: {what}")
    return plain


def _plain_schema(node: Any, changes: list[str], depth: int) -> Any:
    """Make the words of a schema plain; names and values stay as they are, because a call has to repeat them."""
    if depth == 0:
        return node
    if isinstance(node, list):
        return [_plain_schema(each, changes, depth - 1) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: value
        if key in _VALUES
        else _plain_noted(value, _OF_PARAMETER[key], key, changes)
        if key in _OF_PARAMETER and isinstance(value, str)
        else _plain_schema(value, changes, depth - 1)
        for key, value in node.items()
    }


def hidden_value(schema: Any) -> str:
    """Return a name or value of a schema that hides characters, escaped; "" if there is none."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            if hides(node):
                return f"{node!a:.80}"
        elif isinstance(node, list):
            stack += node
        elif isinstance(node, dict):
            stack += node
            stack += node.values()
    return ""


# -- the filter --------------------------------------------------------------------------------------------------------


ORIGINAL = "xmlcall/original"
"""The key of `_meta` that carries the original answer, or `{"tools": [...], "notices": [sentences]}` for a page of tools."""

MOST_TOOLS: Final = 1000  # of a server, after its filters; a page with more is cut, so that it can be seen to be too many
_MAX_NOTICES = 20  # of one page
# Fields for which the SDK would refuse a tool although nothing here needs them: results are checked by their reader.
_UNCHECKED = ("icons", "outputSchema", "execution")
# Fields that a page must have in 2026-07-28; on older revisions the SDK drops them.
_PAGE_FIELDS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
# An error result is never checked against a schema, which would cost an extra `list`.
_RESULT: Mapping[str, Any] = {"resultType": "complete", "content": [], "isError": True}
# Method -> an answer that always validates; the reader of the original checks each part on its own.
_SHELLS: Mapping[str, Mapping[str, Any]] = {
    "tools/call": _RESULT,
    "tasks/result": _RESULT,
    "resources/list": _PAGE_FIELDS | {"resources": []},
    "resources/templates/list": _PAGE_FIELDS | {"resourceTemplates": []},
    "resources/read": _PAGE_FIELDS | {"contents": []},
    "prompts/list": _PAGE_FIELDS | {"prompts": []},
    "prompts/get": {"resultType": "complete", "messages": []},
    "completion/complete": {"resultType": "complete", "completion": {"values": []}},
}


class Filter:
    """Rewrites the answers of one connection.

    `offers` says whether a tool is wanted, before anything else is checked. `on_request` gets the method of each request by the
    server, including those in an answer that requires input. `trouble_of` returns the problem of the HTTP answer to a request.
    """

    def __init__(
        self,
        offers: Callable[[str], bool],
        on_noise: Callable[[Exception], None],
        on_close: Callable[[], None],
        on_request: Callable[[str], None],
        trouble_of: Callable[[str], object] = lambda number: None,
    ) -> None:
        self._offers, self._on_noise, self.on_close = offers, on_noise, on_close
        self._on_request, self._trouble_of, self._flood = on_request, trouble_of, Flood()
        self.runs_tasks = False  # lets tools pass that can only run as a task; set once the server has said what it can do
        self._methods: dict[str, str] = {}  # id of a request of ours -> its method, until it is answered or given up

    def sent(self, message: Any) -> None:
        """Note which answer to expect."""
        if isinstance(message, JSONRPCRequest):
            self._methods[str(message.id)] = message.method
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._methods.pop(str((message.params or {}).get("requestId")), None)

    def is_list_of_tools(self, item: Any) -> bool:
        message = getattr(item, "message", None)
        return isinstance(message, JSONRPCResponse) and self._methods.get(str(message.id)) == "tools/list"

    def received(self, item: Any) -> Any:
        """Rewrite an answer, in place unless the SDK could not read it."""
        if isinstance(item, Exception):
            answer = read_refused(item)
            if answer is None or str(answer.id) not in self._methods:
                self._on_noise(item)
                self._flood.add()
                return item
            item = SessionMessage(answer)
        self._rewrite(item)
        return item

    def _rewrite(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._on_request(message.method)
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            self._flood.add()
            return
        method = self._methods.pop(str(message.id), None)
        if method is None:
            self._flood.add()
        if isinstance(message, JSONRPCError) and (trouble := self._trouble_of(str(message.id))) and message.error.data is None:
            message.error.data = trouble  # data of the server's own stays: the SDK chooses a version by it
        if isinstance(message, JSONRPCError) or message.result.get("resultType", "complete") != "complete":
            for wanted in _wanted(message):
                self._on_request(wanted)
            return  # the SDK handles requests for input and unknown kinds of answers
        if method is not None and (shell := _SHELLS.get(method)):
            message.result = {**shell, "_meta": {ORIGINAL: message.result}}
        elif method == "tools/list" and isinstance(message.result.get("tools"), list):
            message.result = self._page(message.result)

    def _page(self, page: Mapping[str, Any]) -> dict[str, Any]:
        version = "2026-07-28" if "resultType" in page else "2025-11-25"
        wanted: list[dict[str, Any]] = []
        left_out, changed, hidden = list[str](), list[str](), list[str]()
        for tool in page["tools"]:
            if len(wanted) > MOST_TOOLS or len(left_out) > MOST_TOOLS:
                break
            if isinstance(tool, dict) and isinstance(tool.get("name"), str) and not self._offers(tool["name"]):
                continue
            tool, said = plain_tool(tool) if isinstance(tool, dict) else (tool, [])
            hidden += said
            tool, change = _with_usable_schema(tool)
            problem = _problem(tool, version, runs_tasks=self.runs_tasks)
            if problem is None:
                changed += change
                wanted.append(tool)
            else:
                left_out.append(problem)
        notices = _first(left_out, "were left out") + _first(changed, "are offered with changed schemas")
        notices += _first(hidden, "have changed descriptions")
        cursor = page.get("nextCursor")
        if cursor is not None and not isinstance(cursor, str):
            notices.append("The rest of the tools was left out: nextCursor is not a string.")
        shell = _PAGE_FIELDS | {"tools": [_reduced(tool) for tool in wanted]}
        shell |= {"nextCursor": cursor} if isinstance(cursor, str) else {}
        return shell | {"_meta": {ORIGINAL: {"tools": wanted, "notices": notices, "nextCursor": cursor}}}


def _wanted(message: JSONRPCResponse | JSONRPCError) -> list[str]:
    """Return the methods of the requests in an answer that requires input (MCP 2026-07-28, InputRequiredResult)."""
    requests = message.result.get("inputRequests") if isinstance(message, JSONRPCResponse) else None
    found = requests.values() if isinstance(requests, dict) else ()
    methods = (request.get("method") for request in found if isinstance(request, dict))
    return [method for method in methods if isinstance(method, str)]


def _first(sentences: list[str], what: str) -> list[str]:
    rest = len(sentences) - _MAX_NOTICES
    return [*sentences[:_MAX_NOTICES], *([f"{rest} more tools {what} for such reasons."] if rest > 0 else ())]


def _with_usable_schema(tool: Any) -> tuple[Any, list[str]]:
    """Return a tool with its schema repaired, of type object as MCP requires, and a sentence about the change."""
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    if not isinstance(schema, dict):
        return tool, []
    found, notes = mended(schema)
    name = tool.get("name")
    sentences = [sentence(name, notes)] if notes and isinstance(name, str) else []
    return tool | {"inputSchema": {**found, "type": "object"}}, sentences


def _reduced(tool: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in tool.items() if key not in _UNCHECKED}


def _problem(tool: Any, version: str, *, runs_tasks: bool) -> str | None:
    """Return why a tool is left out, in one sentence; None if it is fine."""
    name = tool.get("name") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or not isinstance(name, str) or not name:
        return f"A tool was left out: it has no name: {tool!r:.80}."
    label = f"The tool {name[:80]!r} was left out:"
    if requires_task(tool) and not runs_tasks:
        return f"{label} it can only run as a background task, and the server does not say that it runs tasks."
    try:
        validate_server_result("tools/list", version, _PAGE_FIELDS | {"tools": [_reduced(tool)]})
    except (ValidationError, ValueError) as error:
        return f"{label} {_first_error(error)}."
    if hidden := hidden_value(tool["inputSchema"]):
        return f"{label} its schema hides characters in {hidden}."
    broken = check_schema(tool["inputSchema"])
    return f"{label} {broken}." if broken else None


def _first_error(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)[:120]
    first = error.errors(include_url=False, include_context=False)[0]
    path = ".".join(map(str, first["loc"][2:]))  # the first two are `tools.0`
    return f"{path}: {first['msg'][:120]}"


class _FilteredReader(ObjectReceiveStream[Any]):
    def __init__(self, inner: Any, filter_: Filter) -> None:
        self._inner, self._filter = inner, filter_

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # `last_context`, which the SDK reads after each item

    async def receive(self) -> Any:
        item = await self._inner.receive()
        if self._filter.is_list_of_tools(item):  # checking all schemas of a page may take long
            return await anyio.to_thread.run_sync(self._filter.received, item)
        return self._filter.received(item)

    async def aclose(self) -> None:
        self._filter.on_close()
        await self._inner.aclose()


class _Writer(ObjectSendStream[Any]):
    def __init__(self, inner: Any, filter_: Filter) -> None:
        self._inner, self._filter = inner, filter_

    async def send(self, item: Any, /) -> None:
        self._filter.sent(item.message)
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def filtered(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], filter_: Filter
) -> AsyncIterator[tuple[_FilteredReader, _Writer]]:
    async with transport as (reader, writer):
        yield _FilteredReader(reader, filter_), _Writer(writer, filter_)
