"""Uses the tools of an MCP server, over stdio, Streamable HTTP or the older HTTP+SSE, by the official SDK.

    async with McpHost(StdioServer(name="demo", command=sys.executable, args=("-m", "xmlcall.hosts.demo_server"))) as host:
        await host.tools()
        await host.call("calculator", {"operation": "add", "a": 1, "b": 2})

This module and its neighbours add what the SDK leaves to its user: one bad tool does not hide the others, a connection belongs to
a task of its own, every wait has a time limit, lists are limited, and every failure becomes one sentence.

The next request restarts a server that has died, after a delay that grows with each death; the same applies to a server that has
not answered three requests in a row. A call during which the server died is not repeated, because it is unknown whether the tool
ran, unless the configuration trusts the server and the server says that the tool may run twice. A list is repeated once, and so
is a request that the server refused because it had lost the session.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final, Self, TypeVar, cast

from mcp import Client, MCPError
from mcp import types as mcp
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from ...errors import ToolHostError, ToolHostUnavailable
from ...types.calls import EmbeddedResource, Tool, ToolResult
from ...types.served import Completion, Listing, Prompt, PromptArgument, PromptMessage, PromptText, Resource, ResourceTemplate
from ..base import NO_ARGUMENTS, OnProgress, OnTask, TaskResult
from ..server import ServerConfig
from .callbacks import CallPatience, visited
from .connection import Connection, call_as_task, result_of_task
from .errors import (
    Repeatable,
    SessionLost,
    connect_error,
    is_lost,
    left_out_error,
    older_transport,
    protocol_error,
    request_error,
    timeout_error,
)
from .filter import INSTRUCTIONS, ORIGINAL, plain_text
from .messages import sendable
from .oauth import SignIn
from .server_requests import NO_FEATURES, ClientFeatures
from .wire import ROLES, content_from_mcp, contents_from_mcp, cut_result, requires_task, result_from_mcp, string_in

# -- resources and prompts; each request has a time limit, and a failure is one sentence -------------------------------
# Follows MCP 2025-11-25 and 2026-07-28. Nothing is cached between requests, so nothing has to be listed again when a server
# reports that its list has changed.


# -- lists in pages: a server may repeat cursors, make up new ones for ever, or list without end ------------------------

T = TypeVar("T")

MAX_PAGES: Final = 100
MAX_ITEMS: Final = 10_000


Original = Callable[[Mapping[str, Any] | None], dict[str, Any]]
"""Returns the original answer from the `_meta` of its replacement; raises if it is not a complete answer."""


async def _listed(
    fetch: Callable[..., Awaitable[Any]], original: Original, key: str, read: Callable[[Mapping[str, Any]], T | None]
) -> Listing[T]:
    """List all that a server has of a kind, by a method of the SDK's `Client` that lists."""
    items: list[T] = []
    notices: list[str] = []
    broken = 0
    async for _, page in pages(fetch, original, notices):
        entries = page.get(key)
        for entry in entries if isinstance(entries, list) else ():
            item = read(entry) if isinstance(entry, Mapping) else None
            if item is None:
                broken += 1
            else:
                items.append(item)
        if len(items) > MAX_ITEMS:
            notices.append(f"Listing stopped: there are more than {MAX_ITEMS:,} {key}.")
            break
    if broken:
        notices.append(f"{broken} of its {key} were left out: they lack what MCP asks for.")
    return Listing(items=tuple(items[:MAX_ITEMS]), notices=tuple(notices))


async def pages(
    fetch: Callable[..., Awaitable[Any]], original: Original, notices: list[str]
) -> AsyncIterator[tuple[Any, dict[str, Any]]]:
    """Yield the pages of a list, as the SDK read them and as they came; `notices` gets a sentence if the list was cut."""
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        answer = await fetch(cursor=cursor)
        page = original(answer.meta)
        yield answer, page
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str):  # "" is a cursor like any other
            return
        if cursor in seen:
            notices.append("Listing stopped: the server repeats a page.")
            return
        seen.add(cursor)
    notices.append(f"Listing stopped after {MAX_PAGES} pages.")


# -- resources ---------------------------------------------------------------------------------------------------------

MAX_CONTENTS: Final = 1000


def resource_from_mcp(entry: Mapping[str, Any]) -> Resource | None:
    """Read an entry of `resources/list`; None if it has no address."""
    if not (uri := string_in(entry, "uri")):
        return None
    size = entry.get("size")
    has_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    return Resource(uri=uri, size=size if has_size else None, **_described(entry))


def _described(entry: Mapping[str, Any]) -> dict[str, str]:
    return {"mime_type": string_in(entry, "mimeType")} | {key: string_in(entry, key) for key in ("name", "title", "description")}


async def updates(connection: Connection, uri: str, limit: float) -> AsyncGenerator[None]:
    """Yield when the server reports that a resource has changed, until the connection or the subscription ends."""
    client = connection.client
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        stream = _listened(client, uri, limit)
    else:
        stream = _subscribed(connection, uri, limit)
    async with aclosing(stream) as events:
        async for event in events:
            yield event


async def _listened(client: Client, uri: str, limit: float) -> AsyncGenerator[None]:
    listening = client.listen(resource_subscriptions=[uri])
    async with asyncio.timeout(limit) as patience, listening as subscription:
        patience.reschedule(None)
        with contextlib.suppress(SubscriptionLost):
            async for event in subscription:
                if isinstance(event, ResourceUpdated):
                    yield


async def _subscribed(connection: Connection, uri: str, limit: float) -> AsyncGenerator[None]:
    """Subscribe as before 2026-07-28; notifications arrive at the connection, which passes them on."""
    session = connection.client.session
    updated = asyncio.Event()
    with connection.watched(uri, updated):
        subscribe = mcp.SubscribeRequest(params=mcp.SubscribeRequestParams(uri=uri))
        await session.send_request(subscribe, mcp.EmptyResult, request_read_timeout_seconds=limit)
        try:
            while not connection.closed:
                await updated.wait()
                updated.clear()
                if not connection.closed:
                    yield
        finally:
            if not connection.closed:
                unsubscribe = mcp.UnsubscribeRequest(params=mcp.UnsubscribeRequestParams(uri=uri))
                with contextlib.suppress(MCPError, TimeoutError):
                    await session.send_request(unsubscribe, mcp.EmptyResult, request_read_timeout_seconds=limit)


# -- prompts and completion --------------------------------------------------------------------------------------------

MAX_MESSAGES: Final = 1000
MAX_VALUES: Final = 100  # most values of a completion (MCP 2025-11-25, completion: MUST)


def prompt_from_mcp(entry: Mapping[str, Any]) -> Prompt | None:
    """Read an entry of `prompts/list`; None if it has no name."""
    if not (name := string_in(entry, "name")):
        return None
    listed = entry.get("arguments")
    arguments = (
        PromptArgument(name=named, description=string_in(each, "description"), required=each.get("required") is True)
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, Mapping) and (named := string_in(each, "name"))
    )
    described = {key: string_in(entry, key) for key in ("title", "description")}
    return Prompt(name=name, arguments=tuple(arguments), **described)


def prompt_text_from_mcp(answer: Mapping[str, Any]) -> PromptText:
    messages = answer.get("messages")
    entries = [each for each in messages if isinstance(each, Mapping)] if isinstance(messages, list) else []
    read = tuple(
        PromptMessage(role=cast(Any, entry["role"]), content=content_from_mcp(entry.get("content")))
        for entry in entries[:MAX_MESSAGES]
        if entry.get("role") in ROLES
    )
    return PromptText(description=string_in(answer, "description"), messages=read)


def completion_from_mcp(answer: Mapping[str, Any]) -> Completion:
    """Read an answer to `completion/complete`; values that are not texts are left out."""
    completion = answer.get("completion")
    if not isinstance(completion, Mapping) or not isinstance(completion.get("values"), list):
        return Completion()
    values = [value for value in completion["values"] if isinstance(value, str)]
    return Completion(values=tuple(values[:MAX_VALUES]))


# -- a host's resources and prompts --------------------------------------------------------------------------------------

MAX_CHARACTERS: Final = 2_000_000
SUBSCRIBE_PAUSES: Final = (
    1.0,
    5.0,
    30.0,
    60.0,
)  # seconds before subscribing again after a subscription has ended; the last one repeats

Ask = Callable[[str, float, Callable[[Client], Awaitable[Any]]], Awaitable[Any]]
"""Makes a request of a live server, described by a phrase, within a time limit; fails with a `ToolHostError`."""


@dataclass(frozen=True, slots=True)
class McpServed:
    """Resources and prompts of a server, a `Served`."""

    server: ServerConfig
    ask: Ask
    live: Callable[[], Awaitable[Connection]]
    connection: Callable[[], Connection | None]
    original: Original

    @property
    def has_resources(self) -> bool:
        return self._says("resources")

    @property
    def has_prompts(self) -> bool:
        return self._says("prompts")

    async def resources(self) -> Listing[Resource]:
        return await self._listed("resources", lambda client: client.list_resources, resource_from_mcp)

    async def resource_templates(self) -> Listing[ResourceTemplate]:
        def read(entry: Mapping[str, Any]) -> ResourceTemplate | None:
            uri = string_in(entry, "uriTemplate")
            return ResourceTemplate(uri_template=uri, **_described(entry)) if uri else None

        return await self._listed("resourceTemplates", lambda client: client.list_resource_templates, read)

    async def read_resource(self, uri: str) -> ToolResult:
        """Read a resource (see `Served`) as a tool's result, because it is shown and limited like one."""
        answer = await self._answer(f"reading {uri[:200]!r}", lambda client: client.read_resource(uri))
        entries = answer.get("contents")
        found = map(contents_from_mcp, entries[:MAX_CONTENTS]) if isinstance(entries, list) else ()
        contents: tuple[EmbeddedResource, ...] = tuple(each for each in found if each is not None)
        return cut_result(ToolResult(content=contents), MAX_CHARACTERS)

    async def resource_updates(self, uri: str) -> AsyncGenerator[None]:
        """Yield when a resource may have changed (see `Served`); subscribe again after a restart of the server."""
        for pause in chain(SUBSCRIBE_PAUSES, repeat(SUBSCRIBE_PAUSES[-1])):
            connection = await self.live()
            doing, limit = "subscribing to a resource", self.server.timeout
            try:
                async with aclosing(updates(connection, uri, limit)) as stream:
                    async for _ in stream:
                        yield
            except TimeoutError as error:
                raise timeout_error(self.server, doing, limit, connection) from error
            except MCPError as error:
                if not is_lost(error):
                    raise request_error(self.server, doing, error, connection) from error
            await asyncio.sleep(pause)
            yield  # changes in between are not reported again

    async def prompts(self) -> Listing[Prompt]:
        return await self._listed("prompts", lambda client: client.list_prompts, prompt_from_mcp)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] = NO_ARGUMENTS) -> PromptText:
        answer = await self._answer(f"filling in {name[:200]!r}", lambda client: client.get_prompt(name, dict(arguments)))
        return prompt_text_from_mcp(answer)

    async def complete(
        self, of: Prompt | ResourceTemplate, argument: str, typed: str, given: Mapping[str, str] = NO_ARGUMENTS
    ) -> Completion:
        """Ask for possible values of an argument (see `Served`)."""
        if not self._says("completions"):
            return Completion()
        reference: mcp.PromptReference | mcp.ResourceTemplateReference
        if isinstance(of, Prompt):
            reference = mcp.PromptReference(type="ref/prompt", name=of.name)
        else:
            reference = mcp.ResourceTemplateReference(type="ref/resource", uri=of.uri_template)
        asked, others = {"name": argument, "value": typed}, dict(given) or None
        answer = await self._answer("completing an argument", lambda client: client.complete(reference, asked, others))
        return completion_from_mcp(answer)

    def _says(self, capability: str) -> bool:
        connection = self.connection()
        if connection is None or not connection.opened:
            return False
        return getattr(connection.client.server_capabilities, capability) is not None

    async def _answer(self, doing: str, request: Callable[[Client], Awaitable[Any]]) -> dict[str, Any]:
        answer = await self.ask(doing, self.server.timeout, request)
        return self.original(answer.meta)

    async def _listed(
        self, key: str, fetch: Callable[[Client], Any], read: Callable[[Mapping[str, Any]], T | None]
    ) -> Listing[T]:
        request = lambda client: _listed(fetch(client), self.original, key, read)  # noqa: E731
        found: Listing[T] = await self.ask(f"listing its {key}", self.server.timeout, request)
        return found


# -- tools -------------------------------------------------------------------------------------------------------------


_MAX_RESULT_CHARACTERS = 2_000_000
_MAX_SILENT = 3  # requests in a row without an answer: the server hangs
_HARMLESS = ("readOnlyHint", "idempotentHint")


class McpHost:
    """An MCP server as a `Host`; connect with `async with`.

    Args:
        server: the configuration of the server; `load_servers` reads it from a file.
        connect_timeout: seconds for the start and the handshake.
        max_tools: the most that may be listed once the server's filters are applied.
        features: what the server may request (forms for the user, completions, folders); nothing by default.
        sign_in: how to sign in to an HTTP server that requires it; None never asks the user, and uses only an earlier sign-in.
    """

    def __init__(
        self,
        server: ServerConfig,
        *,
        connect_timeout: float = 30.0,
        max_tools: int = 1000,
        features: ClientFeatures = NO_FEATURES,
        sign_in: SignIn | None = None,
    ) -> None:
        self.server, self.name = server, server.name
        self.instructions = ""
        self.changed = asyncio.Event()  # set when the server reports changed tools, and when it had to be restarted
        self.served = McpServed(server, self._ask, self._live, lambda: self._connection, self._original)
        self._connect_timeout, self._max_tools = connect_timeout, max_tools
        self._features, self._sign_in = features, sign_in or SignIn()
        self._reached = server  # the server, with the transport that worked, once that is known
        self._as_tasks: frozenset[str] = frozenset()
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._of_instructions: tuple[str, ...] = ()
        self._notices: tuple[str, ...] = ()
        self._repeatable: frozenset[str] = frozenset()  # tools that may run twice
        self._restarts = Restarts()
        self._silent = 0
        self._is_open = False

    @property
    def notices(self) -> tuple[str, ...]:
        """What was left out or changed of the server's tools and instructions, one sentence each."""
        return (*self._of_instructions, *self._notices)

    async def __aenter__(self) -> Self:
        """Connect; fails with a `ToolHostError` if the server does not start, cannot be reached, or is silent for too long."""
        self._connection = await self._connect()
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect; a process and its group have ended afterwards."""
        async with self._connecting:  # otherwise a request that is reconnecting would leave its process running
            self._is_open = False
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()

    async def tools(self) -> tuple[Tool, ...]:
        """List the usable tools that the configuration lets through; `notices` describes the others (errors: see `Host`)."""
        listing = await self._ask("listing its tools", self.server.timeout, self._list, may_repeat=True)
        self._notices = tuple(dict.fromkeys(listing.notices))
        self._as_tasks = frozenset(listing.as_tasks)
        if self.server.trust:  # hints of a server that is not trusted mean nothing (MCP 2025-11-25, tools: MUST)
            hints = {name: tool.annotations or {} for name, tool in listing.tools.items()}
            self._repeatable = frozenset(
                name for name, said in hints.items() if any(said.get(each) is True for each in _HARMLESS)
            )
        return tuple(listing.tools.values())

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = None,
        *,
        progress: OnProgress | None = None,
        on_task: OnTask | None = None,
    ) -> ToolResult:
        """Run one tool.

        Args:
            name: as listed by `tools()`.
            arguments: valid for the tool's schema.
            timeout: seconds without an answer and without progress; None takes the server's configured limit.
            progress: called while the tool runs, if it reports progress.
            on_task: called with the id of the task, if the tool runs as one.

        Returns:
            What the tool answered, its text cut at two million characters (errors: see `Host`).
        """
        patience = CallPatience(self.server.timeout if timeout is None else timeout)
        on_progress, given = _progress_to(progress, patience), sendable(arguments)

        async def once(client: Client) -> mcp.CallToolResult:
            if name in self._as_tasks:
                return await call_as_task(client, name, given, patience, on_progress, on_task)
            return await client.call_tool(name, given, progress_callback=on_progress)

        async def run(client: Client) -> mcp.CallToolResult:
            connection = self._connection
            try:
                return await once(client)
            except MCPError as error:
                if connection is None or not await visited(self.name, error, connection.calls, self._features.elicit):
                    raise
            return await once(client)

        answer = await self._ask(f"running {name!r}", patience, run, may_repeat=name in self._repeatable)
        self._restarts.deaths = 0
        return cut_result(result_from_mcp(self._original(answer.meta)), _MAX_RESULT_CHARACTERS)

    async def task_result(
        self, name: str, task: str, timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> TaskResult:
        """Wait for the outcome of a task of an earlier connection (see `TaskHost`).

        Args:
            name: the tool's, for messages.
            task: its id.
            timeout: seconds without a message from the server; None takes its configured limit.
            progress: called while the tool runs, if it reports progress.
        """
        patience = CallPatience(self.server.timeout if timeout is None else timeout)
        on_progress = _progress_to(progress, patience)
        doing = f"asking for the task of {name!r}"
        answer = await self._ask(
            doing, patience, lambda client: result_of_task(client, task, patience, on_progress), may_repeat=True
        )
        if not isinstance(answer, mcp.CallToolResult):
            return answer
        return cut_result(result_from_mcp(self._original(answer.meta)), _MAX_RESULT_CHARACTERS)

    async def _ask(
        self, doing: str, limit: float | CallPatience, request: Callable[[Client], Awaitable[T]], *, may_repeat: bool = False
    ) -> T:
        """Make a request of a live server, and repeat it once if that may help and does no harm, each within the limit."""
        patience = limit if isinstance(limit, CallPatience) else CallPatience(limit, may_ask=False)
        try:
            return await self._ask_once(doing, patience, request)
        except Repeatable as error:
            was_never_sent = error.reason == "not_run" and not error.pause
            if error.pause > LONGEST_WAIT or not (may_repeat or was_never_sent):
                raise
            await asyncio.sleep(error.pause)
            return await self._ask_once(doing, patience, request)

    async def _ask_once(self, doing: str, patience: CallPatience, request: Callable[[Client], Awaitable[T]]) -> T:
        connection = await self._live()
        try:
            with connection.calls.running(patience):
                async with patience:  # cancels the request, and the SDK notifies the server
                    answer = await request(connection.client)
        except ToolHostError:
            raise
        except TimeoutError as error:
            self._silent += 1
            if self._silent >= _MAX_SILENT:
                await connection.close()
                self._note_death(connection)
            raise timeout_error(self.server, doing, patience.seconds, connection) from error
        except Exception as error:
            self._silent = 0
            if connection.closed or (is_lost(error) and "SSE stream" not in str(error)):  # the stream of a single answer may end
                await connection.close()  # only then is its standard error complete
                self._note_death(connection)
            failure = request_error(self.server, doing, error, connection)
            if isinstance(failure, SessionLost):
                await connection.close()
                self._drop(connection)
            raise failure from error
        self._silent = 0
        return answer

    def _note_death(self, connection: Connection) -> None:
        """Count the end of a connection once, however many requests it failed."""
        if self._drop(connection):
            self._restarts.died()
            if self._restarts.wait > LONGEST_WAIT:
                self.changed.set()  # the next list reports that the tools are gone for now

    def _drop(self, connection: Connection) -> bool:
        if self._connection is not connection:
            return False
        self._connection, self._silent = None, 0
        return True

    async def _live(self) -> Connection:
        """Return an open connection; a closed one is replaced once per request, after a pause if it keeps closing."""
        async with self._connecting:
            if not self._is_open:
                raise ToolHostUnavailable(f"{self.name}: not connected; use `async with`", host=self.name, reason="not_run")
            if self._connection is not None and self._connection.closed:
                await self._connection.close()
                self._note_death(self._connection)
            if self._connection is None:
                wait = self._restarts.wait
                if wait > LONGEST_WAIT:
                    raise left_out_error(self.server, self._restarts.deaths, wait)
                await asyncio.sleep(wait)
                try:
                    self._connection = await self._connect()
                except ToolHostError:
                    self._restarts.died()
                    raise
                self.changed.set()
            return self._connection

    async def _connect(self) -> Connection:
        """Connect; a server that dies of the first message is tried again with `initialize`, which older ones expect."""
        deadline = asyncio.get_running_loop().time() + self._connect_timeout
        connection = await self._attempt(self._reached, "auto", deadline)
        if is_lost(connection.failure) and not connection.opened:
            connection = await self._attempt(self._reached, "legacy", deadline)
        if older := older_transport(self._reached, connection):
            over_sse = await self._attempt(older, "legacy", deadline)
            if over_sse.opened:
                self._reached, connection = older, over_sse
        if not connection.opened:
            raise connect_error(self.server, connection, self._connect_timeout) from connection.failure
        self.instructions, what = plain_text(connection.instructions, INSTRUCTIONS)
        self._of_instructions = (f"Its instructions were changed: {what}.",) if what else ()
        return connection

    async def _attempt(self, server: ServerConfig, mode: str, deadline: float) -> Connection:
        connection = Connection(server, self.changed, self._max_tools, self._sign_in, self._features)
        await connection.open(mode, deadline - asyncio.get_running_loop().time())
        return connection

    async def _list(self, client: Client) -> "_Listing":
        self.changed.clear()  # before listing, so that a change meanwhile is not lost
        listing = _Listing()
        async for page, original in pages(client.list_tools, self._original, listing.notices):
            listing.add(page, original)
            if len(listing.tools) > self._max_tools:
                raise protocol_error(self.server, f"it lists more than the {self._max_tools} tools that are allowed; {_CHOOSE}")
        return listing

    def _original(self, meta: Mapping[str, Any] | None) -> dict[str, Any]:
        """Take out the original answer; one of another `resultType`, which the SDK lets pass before 2026, has none."""
        original = (meta or {}).get(ORIGINAL)
        if not isinstance(original, dict):
            raise protocol_error(self.server, 'an answer outside the protocol: its "resultType" is not "complete"')
        return original


def _progress_to(on_progress: OnProgress | None, patience: CallPatience) -> ProgressFnT:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        patience.renew()
        if on_progress is not None:
            on_progress(progress, total, message or "")

    return report


_CHOOSE = 'choose some by "includeTools" in its configuration'


class _Listing:
    """Tools in the server's order, and notices about the others."""

    def __init__(self) -> None:
        self.tools: dict[str, Tool] = {}
        self.as_tasks: set[str] = set()  # names of tools that can only run as tasks
        self.notices: list[str] = []

    def add(self, page: mcp.ListToolsResult, original: Mapping[str, Any]) -> None:
        self.notices += original["notices"]
        kept = {tool.name for tool in page.tools}
        for tool in original["tools"]:
            name = tool["name"]
            if name in self.tools:
                self.notices.append(f"A second tool named {name[:80]!r} was left out.")
            elif name not in kept:  # the SDK drops these, as MCP 2026-07-28 demands
                self.notices.append(f"The tool {name[:80]!r} was left out: its x-mcp-header is invalid.")
            else:
                schema = tool.get("outputSchema")
                self.tools[name] = Tool.from_mcp(tool | {"outputSchema": schema if isinstance(schema, dict) else None})
                self.as_tasks |= {name} if requires_task(tool) else set()


# -- when a server that has died is restarted ----------------------------------------------------------------------------

PAUSES: Final = (0.0, 1.0, 4.0, 15.0, 60.0)
"""Seconds before a start, after the first, second ... death in a row; the last one repeats."""

LONGEST_WAIT: Final = 5.0
"""Seconds that a request waits for a restart or a busy server; if it had to wait longer, it fails at once."""


class Restarts:
    """Counts the deaths of a server since it last answered a call; a list does not count, because many die of a call."""

    def __init__(self) -> None:
        self.deaths = 0
        self._died_at = 0.0

    def died(self) -> None:
        """Count a connection that ended by itself, or could not be opened."""
        self.deaths += 1
        self._died_at = time.monotonic()

    @property
    def wait(self) -> float:
        """Seconds until the server may be started again."""
        if not self.deaths:
            return 0.0
        pause = PAUSES[min(self.deaths, len(PAUSES)) - 1]
        return max(0.0, self._died_at + pause - time.monotonic())
