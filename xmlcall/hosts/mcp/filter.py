"""Sits between the MCP SDK and a transport, so that one bad part of an answer does not lose the whole answer.

The SDK validates an answer as a whole: one malformed tool hides every tool of its page, and a block of an unknown kind or a
structured value that does not fit its schema loses the result of a tool that has already run. So the answers to requests for
tools, calls, resources, prompts and completions are rewritten on their way in to something that always validates, and the
original travels along in `_meta`, which the SDK hands on as it is. Everything else passes untouched.

What the SDK cannot read at all is read by `messages`, if it answers a request. Invariant: only an answer whose id belongs to a
request of ours is rewritten.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

import anyio
import anyio.to_thread
from mcp.shared.message import SessionMessage
from mcp.types.jsonrpc import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp.types.methods import validate_server_result
from pydantic import ValidationError

from ...schema.mending import mended, sentence
from ...schema.validation import check_schema
from .messages import Flood, read_refused
from .plain_text import hidden_value, plain_tool
from .wire import requires_task

ORIGINAL = "xmlcall/original"
"""The key of `_meta` that carries the original answer, or `{"tools": [...], "notices": [sentences]}` for a page of tools."""

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

    Args:
        offers: says whether a tool of this name is wanted; called before anything else is checked.
        max_tools: a page is cut once it holds more than this, so that the caller can see that it is too many.
        on_request: receives the method of each request by the server, including those in an answer that requires input.
        trouble_of: maps the id of a request to the problem of its HTTP answer, which goes into the `data` of the error.
    """

    def __init__(
        self,
        offers: Callable[[str], bool],
        max_tools: int,
        on_noise: Callable[[Exception], None],
        on_close: Callable[[], None],
        on_request: Callable[[str], None],
        trouble_of: Callable[[str], object] = lambda number: None,
    ) -> None:
        self._offers, self._max_tools, self._on_noise, self.on_close = offers, max_tools, on_noise, on_close
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
        """Return whether an item answers a request for tools."""
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
        trouble = self._trouble_of(str(message.id)) if isinstance(message, JSONRPCError) else None
        if isinstance(message, JSONRPCError) and trouble is not None and message.error.data is None:
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
            if len(wanted) > self._max_tools or len(left_out) > self._max_tools:
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
        notices += _first(hidden, "say less of themselves")
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


class _Stream:
    def __init__(self, inner: Any, filter_: Filter) -> None:
        self._inner, self._filter = inner, filter_

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _FilteredReader(_Stream):
    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # `last_context`, which the SDK reads after each item

    async def receive(self) -> Any:
        item = await self._inner.receive()
        if self._filter.is_list_of_tools(item):  # checking all schemas of a page may take long
            return await anyio.to_thread.run_sync(self._filter.received, item)
        return self._filter.received(item)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self._filter.on_close()
        await super().aclose()


class _Writer(_Stream):
    async def send(self, item: Any, /) -> None:
        self._filter.sent(item.message)
        await self._inner.send(item)


@asynccontextmanager
async def filtered(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], filter_: Filter
) -> AsyncIterator[tuple[_FilteredReader, _Writer]]:
    """Open a transport of the SDK with a filter around its two streams."""
    async with transport as (reader, writer):
        yield _FilteredReader(reader, filter_), _Writer(writer, filter_)
