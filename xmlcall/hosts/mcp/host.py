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
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Self, TypeVar

from mcp import Client, MCPError
from mcp import types as mcp
from mcp.shared.dispatcher import ProgressFnT

from ...errors import ToolHostError, ToolHostUnavailable
from ...types.calls import EmbeddedResource, Tool, ToolResult
from ...types.served import Completion, Listing, Prompt, PromptText, Resource, ResourceTemplate
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
from .filter import INSTRUCTIONS, MOST_TOOLS, ORIGINAL, plain_text
from .messages import sendable
from .oauth import SignIn
from .server_requests import NO_FEATURES, ClientFeatures
from .wire import (
    completion_from_mcp,
    contents_from_mcp,
    cut_result,
    prompt_from_mcp,
    prompt_text_from_mcp,
    requires_task,
    resource_from_mcp,
    result_from_mcp,
    template_from_mcp,
)

T = TypeVar("T")

# A server may repeat cursors, make up new ones for ever, or list without end.
MAX_PAGES: Final = 100
MAX_ITEMS: Final = 10_000
_MOST_CONTENTS: Final = 1000  # of one resource
_MAX_RESULT_CHARACTERS = 2_000_000
_MAX_SILENT = 3  # requests in a row without an answer: the server hangs
_HARMLESS = ("readOnlyHint", "idempotentHint")
_CHOOSE = 'choose some by "includeTools" in its configuration'


class McpHost:
    """An MCP server as a `Host`; connect with `async with`.

    Args:
        server: the configuration of the server; `load_servers` reads it from a file.
        connect_timeout: seconds for the start and the handshake.
        features: what the server may request (forms for the user, completions, folders); nothing by default.
        sign_in: how to sign in to an HTTP server that requires it; None never asks the user, and uses only an earlier sign-in.
    """

    def __init__(
        self,
        server: ServerConfig,
        *,
        connect_timeout: float = 30.0,
        features: ClientFeatures = NO_FEATURES,
        sign_in: SignIn | None = None,
    ) -> None:
        self.server, self.name = server, server.name
        self.instructions = ""
        self.changed = asyncio.Event()  # set when the server reports changed tools, and when it had to be restarted
        self._connect_timeout = connect_timeout
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
        """Run one tool (see `TaskHost`); its text is cut at two million characters.

        Args:
            name: as listed by `tools()`.
            arguments: valid for the tool's schema.
            timeout: seconds without an answer and without progress; None takes the server's configured limit.
            progress: called while the tool runs, if it reports progress.
            on_task: called with the id of the task, if the tool runs as one.
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

    async def task_result(self, name: str, task: str, timeout: float | None = None) -> TaskResult:
        """Wait for the outcome of a task of an earlier connection (see `TaskHost`).

        Args:
            name: the tool's, for messages.
            task: its id.
            timeout: seconds without a message from the server; None takes its configured limit.
        """
        patience = CallPatience(self.server.timeout if timeout is None else timeout)
        wanted = partial(result_of_task, task_id=task, patience=patience, on_progress=_progress_to(None, patience))
        answer = await self._ask(f"asking for the task of {name!r}", patience, wanted, may_repeat=True)
        if not isinstance(answer, mcp.CallToolResult):
            return answer
        return cut_result(result_from_mcp(self._original(answer.meta)), _MAX_RESULT_CHARACTERS)

    # -- resources and prompts: each request has a time limit, and nothing is cached ----------------------------------------

    @property
    def served(self) -> Self:
        return self

    def says(self, capability: str) -> bool:
        """Say whether the connected server declares a capability: `resources`, `prompts` or `completions`."""
        if (connection := self._connection) is None or not connection.opened:
            return False
        return getattr(connection.client.server_capabilities, capability) is not None

    async def resources(self) -> Listing[Resource]:
        return await self._listed("resources", lambda client: client.list_resources, resource_from_mcp)

    async def resource_templates(self) -> Listing[ResourceTemplate]:
        return await self._listed("resourceTemplates", lambda client: client.list_resource_templates, template_from_mcp)

    async def read_resource(self, uri: str) -> ToolResult:
        """Read a resource as a tool's result, because it is shown and limited like one.

        Args:
            uri: its address.
        """
        answer = await self._answer(f"reading {uri[:200]!r}", lambda client: client.read_resource(uri))
        entries = answer.get("contents")
        found = map(contents_from_mcp, entries[:_MOST_CONTENTS]) if isinstance(entries, list) else ()
        contents: tuple[EmbeddedResource, ...] = tuple(each for each in found if each is not None)
        return cut_result(ToolResult(content=contents), _MAX_RESULT_CHARACTERS)

    async def prompts(self) -> Listing[Prompt]:
        return await self._listed("prompts", lambda client: client.list_prompts, prompt_from_mcp)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] = NO_ARGUMENTS) -> PromptText:
        """Fill in a prompt.

        Args:
            name: the prompt's.
            arguments: by name.
        """
        answer = await self._answer(f"filling in {name[:200]!r}", lambda client: client.get_prompt(name, dict(arguments)))
        return prompt_text_from_mcp(answer)

    async def complete(
        self, of: Prompt | ResourceTemplate, argument: str, typed: str, given: Mapping[str, str] = NO_ARGUMENTS
    ) -> Completion:
        """Ask for possible values of an argument.

        Args:
            of: the prompt, or the template of addresses.
            argument: its name.
            typed: the beginning of the value.
            given: the arguments that have values already.
        """
        if not self.says("completions"):
            return Completion()
        reference: mcp.PromptReference | mcp.ResourceTemplateReference
        if isinstance(of, Prompt):
            reference = mcp.PromptReference(type="ref/prompt", name=of.name)
        else:
            reference = mcp.ResourceTemplateReference(type="ref/resource", uri=of.uri_template)
        asked, others = {"name": argument, "value": typed}, dict(given) or None
        answer = await self._answer("completing an argument", lambda client: client.complete(reference, asked, others))
        return completion_from_mcp(answer)

    async def _answer(self, doing: str, request: Callable[[Client], Awaitable[Any]]) -> dict[str, Any]:
        return self._original((await self._ask(doing, self.server.timeout, request)).meta)

    async def _listed(
        self, key: str, fetch: Callable[[Client], Callable[..., Awaitable[Any]]], read: Callable[[Mapping[str, Any]], T | None]
    ) -> Listing[T]:
        """List all that a server has of a kind, by a method of the SDK's `Client` that lists."""

        async def listed(client: Client) -> Listing[T]:
            items, notices, broken = list[T](), list[str](), 0
            async for _, page in self._pages(fetch(client), notices):
                entries = page.get(key)
                for entry in entries if isinstance(entries, list) else ():
                    item = read(entry) if isinstance(entry, Mapping) else None
                    items += [] if item is None else [item]
                    broken += item is None
                if len(items) > MAX_ITEMS:
                    notices.append(f"Listing stopped: there are more than {MAX_ITEMS:,} {key}.")
                    break
            if broken:
                notices.append(f"{broken} of its {key} were left out: they lack what MCP asks for.")
            return Listing(items=tuple(items[:MAX_ITEMS]), notices=tuple(notices))

        return await self._ask(f"listing its {key}", self.server.timeout, listed)

    async def _pages(self, fetch: Callable[..., Awaitable[Any]], notices: list[str]) -> AsyncIterator[tuple[Any, dict[str, Any]]]:
        """Yield the pages of a list, as the SDK read them and as they came; `notices` gets a sentence if the list was cut."""
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            answer = await fetch(cursor=cursor)
            page = self._original(answer.meta)
            yield answer, page
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):  # "" is a cursor like any other
                return
            if cursor in seen:
                notices.append("Listing stopped: the server repeats a page.")
                return
            seen.add(cursor)
        notices.append(f"Listing stopped after {MAX_PAGES} pages.")

    # -- requests ----------------------------------------------------------------------------------------------------

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
        connection = Connection(server, self.changed, self._sign_in, self._features)
        await connection.open(mode, deadline - asyncio.get_running_loop().time())
        return connection

    async def _list(self, client: Client) -> "_Listing":
        self.changed.clear()  # before listing, so that a change meanwhile is not lost
        listing = _Listing()
        async for page, original in self._pages(client.list_tools, listing.notices):
            listing.add(page, original)
            if len(listing.tools) > MOST_TOOLS:
                raise protocol_error(self.server, f"it lists more than the {MOST_TOOLS} tools that are allowed; {_CHOOSE}")
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

PAUSES: Final = (0.0, 1.0, 4.0, 15.0, 60.0)  # seconds before a start, after each death in a row; the last one repeats
LONGEST_WAIT: Final = 5.0  # seconds that a request waits for a restart or a busy server; rather than longer, it fails at once


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
