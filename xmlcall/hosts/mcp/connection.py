"""One connection to an MCP server: a task of its own opens it, keeps it and closes it.

Why a task: an SDK `Client` must be left by the task that entered it, and when an HTTP server vanishes the SDK cancels that task
instead of raising from the call (python-sdk#3560). So only the owner task ever enters a Client, and all other code checks a flag.

The owner ends when the server's side ends, when the server vanishes, or when it is asked to; it never raises. Its end takes the
process with it: close stdin, wait 2 s, SIGTERM to the process group, 2 s, SIGKILL (the SDK's steps, MCP 2025-11-25 lifecycle).
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final, Literal

import anyio
from mcp import Client, MCPError
from mcp import types as mcp
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ..base import OnTask
from ..server import ServerConfig
from .callbacks import MOST, Callbacks, CallPatience, Calls
from .filter import ORIGINAL, Filter, filtered
from .oauth import SignIn
from .server_requests import NO_FEATURES, ClientFeatures
from .transport import PeerLog, open_transport

# -- a call that runs as a task ----------------------------------------------------------------------------------------
#     tools/call with `task` -> tasks/get every `pollInterval` -> tasks/result
#                                   |-- input_required: tasks/result at once, whose stream brings the server's question
#     stopped or out of time -> tasks/cancel
#
# A task outlives the connection. A program that kept its id can fetch its result later, with `result_of_task`.
#
# The SDK has the messages but no client for them. In 2026-07-28 tasks are an extension, which is not declared here.


_DEFAULT_PAUSE: Final = 1.0
_PAUSES: Final = (0.05, 30.0)  # seconds between two polls, whatever the server suggests
_CANCEL_SECONDS: Final = 2.0


def runs_tasks(client: Client) -> bool:
    tasks = client.server_capabilities.tasks
    tools = tasks.requests.tools if tasks and tasks.requests else None
    return client.protocol_version not in MODERN_PROTOCOL_VERSIONS and tools is not None and tools.call is not None


async def call_as_task(
    client: Client,
    name: str,
    arguments: Mapping[str, Any],
    patience: CallPatience,
    on_progress: ProgressFnT,
    on_task: OnTask | None = None,
) -> mcp.CallToolResult:
    """Run a tool as a task, which is cancelled if the call is; raises what any request raises."""
    ttl = int(patience.limit * MOST * 1000)
    params = mcp.CallToolRequestParams(name=name, arguments=dict(arguments), task=mcp.TaskMetadata(ttl=ttl))
    started = await client.session.send_request(
        mcp.CallToolRequest(params=params), mcp.CallToolResult, progress_callback=on_progress
    )
    task = _task_of(started)
    task_id = task.get("taskId")
    if not isinstance(task_id, str):
        return started  # the server ran it at once
    if on_task is not None:
        on_task(task_id)
    try:
        await _wait(client, task_id, _pause(task.get("pollInterval")), patience, on_progress)
        return await _payload(client, task_id)
    except asyncio.CancelledError:
        await _cancel(client, task_id)
        raise


async def result_of_task(
    client: Client, task_id: str, patience: CallPatience, on_progress: ProgressFnT
) -> mcp.CallToolResult | Literal["cancelled", "unknown"]:
    """Wait for the outcome of a task that was started over another connection; one that is late is cancelled."""
    if not runs_tasks(client):
        return "unknown"
    try:
        if await _wait(client, task_id, _DEFAULT_PAUSE, patience, on_progress) == "cancelled":
            return "cancelled"
    except MCPError as error:
        if error.code == mcp.CONNECTION_CLOSED:
            raise
        return "unknown"  # -32602 is the prescribed error for an unknown id
    except asyncio.CancelledError:
        if patience.is_over:
            await _cancel(client, task_id)
        raise
    return await _payload(client, task_id)


async def _payload(client: Client, task_id: str) -> mcp.CallToolResult:
    wanted = mcp.GetTaskPayloadRequest(params=mcp.GetTaskPayloadRequestParams(task_id=task_id))
    return await client.session.send_request(wanted, mcp.CallToolResult)


def _task_of(started: mcp.CallToolResult) -> Mapping[str, Any]:
    """Return the task that a server made of a call; empty if it made none."""
    answer = (started.meta or {}).get(ORIGINAL)
    task = answer.get("task") if isinstance(answer, dict) else None
    return task if isinstance(task, dict) else {}


async def _wait(client: Client, task_id: str, pause: float, patience: CallPatience, on_progress: ProgressFnT) -> str:
    """Poll a task until it has ended or requires input, and return its state; the caller's patience limits it."""
    wanted = mcp.GetTaskRequest(params=mcp.GetTaskRequestParams(task_id=task_id))
    message, number = "", 0
    while True:
        state = await client.session.send_request(wanted, mcp.GetTaskResult)
        patience.renew()
        if state.status != "working":
            return state.status
        if state.status_message and state.status_message != message:
            message, number = state.status_message, number + 1
            await on_progress(number, None, message)
        await asyncio.sleep(_pause(state.poll_interval, pause))


def _pause(milliseconds: Any, default: float = _DEFAULT_PAUSE) -> float:
    """Limit the pause between two polls that a server suggests."""
    suggested = milliseconds if isinstance(milliseconds, int | float) else default * 1000
    return min(max(_PAUSES[0] * 1000, suggested), _PAUSES[1] * 1000) / 1000  # no float holds some of JSON's numbers


async def _cancel(client: Client, task_id: str) -> None:
    """Cancel a task; the server may be gone, or done by now."""
    wanted = mcp.CancelTaskRequest(params=mcp.CancelTaskRequestParams(task_id=task_id))
    with contextlib.suppress(MCPError, ValidationError), anyio.move_on_after(_CANCEL_SECONDS, shield=True):
        await client.session.send_request(wanted, mcp.CancelTaskResult)


# -- a connection ------------------------------------------------------------------------------------------------------


_CLOSE_SECONDS = 5.0  # for what the SDK does not bound itself: ending an HTTP session
_LISTEN_PAUSES = (1.0, 5.0, 30.0, 60.0)  # seconds before listening again; the last one repeats

# The SDK logs a traceback for each line of a server that is not MCP; without any handler Python prints it to the terminal.
logging.getLogger("mcp").addHandler(logging.NullHandler())


class Connection:
    """A connection, from `open` until either side closes it; it cannot be opened again. `changed` is set if tools change."""

    def __init__(
        self, server: ServerConfig, changed: asyncio.Event, sign_in: SignIn, features: ClientFeatures = NO_FEATURES
    ) -> None:
        self.client: Client  # once opened
        self.opened = False  # the handshake succeeded, even if the connection has closed since
        self.instructions = ""
        self.failure: BaseException | None = None
        self.log = PeerLog()
        self.calls = Calls()
        self._server, self._changed, self._features = server, changed, features
        self._sign_in = self._while_a_call_runs(sign_in)
        roots = tuple(dict.fromkeys((*features.roots, *server.roots)))
        self._answers = Callbacks(server.name, replace(features, roots=roots), self.calls)
        self._stop = asyncio.Event()
        self._filter = Filter(server.offers, self.log.add_noise, self._stop.set, self._answers.asked, self.log.troubles.take)
        self._ready = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._owner: asyncio.Task[None] | None = None

    def _while_a_call_runs(self, sign_in: SignIn) -> SignIn:
        """Let the user sign in during a session, too, but only while a call runs; its time limit is paused meanwhile."""
        ask = self._features.sign_in
        if sign_in.ask is not None or ask is None:
            return sign_in
        calls = self.calls
        return replace(sign_in, ask=ask, may_ask=lambda: calls.may_ask, during=calls.during)

    @property
    def closed(self) -> bool:
        return self._stop.is_set()

    async def open(self, mode: str, timeout: float) -> None:
        """Connect and shake hands; if that fails, the connection is closed, `opened` is false and `failure` says why."""
        self._owner = asyncio.create_task(self._own(mode, timeout), name=f"mcp server {self._server.name}")
        try:
            await self._ready.wait()
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """Close, and wait until the owner and the process have ended; a cancellation is held back until then."""
        self._stop.set()
        if not self.opened:
            self._scope.cancel()
        interrupted: asyncio.CancelledError | None = None
        while self._owner is not None and not self._owner.done():  # every step of the owner's end is limited
            try:
                await asyncio.wait({self._owner})
            except asyncio.CancelledError as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted

    async def _own(self, mode: str, timeout: float) -> None:
        self._scope.deadline = anyio.current_time() + timeout
        try:
            with self._scope:
                await self._serve(mode)
            if self._scope.cancelled_caught and not self.opened:
                self.failure = TimeoutError()
        except Exception as error:  # kept for the error message; groups are one or two deep
            self.failure = error
            while isinstance(self.failure, BaseExceptionGroup):
                self.failure = self.failure.exceptions[0]
        finally:
            self._stop.set()
            self._ready.set()

    async def _serve(self, mode: str) -> None:
        transport = filtered(open_transport(self._server, self.log, self._sign_in), self._filter)
        answers = self._answers.for_client()
        us = mcp.Implementation(name="xmlcall", version=version("xmlcall"))
        client = Client(transport, mode=mode, cache=None, client_info=us, message_handler=self._on_message, **answers)
        async with client:
            self._scope.deadline = math.inf
            self.client, self.opened, self.instructions = client, True, client.instructions or ""
            self._filter.runs_tasks = runs_tasks(client)
            self._ready.set()
            async with anyio.create_task_group() as group:
                group.start_soon(self._listen, client)
                group.start_soon(self._choose_log_level, client)
                await self._stop.wait()
                group.cancel_scope.cancel()
            self._scope.deadline = anyio.current_time() + _CLOSE_SECONDS

    async def _on_message(self, message: object) -> None:
        if isinstance(message, mcp.ToolListChangedNotification):
            self._changed.set()

    async def _choose_log_level(self, client: Client) -> None:
        """Choose the log messages to receive; from 2026-07-28 on, the SDK does so in each request."""
        is_needless = client.protocol_version in MODERN_PROTOCOL_VERSIONS or client.server_capabilities.logging is None
        if self._features.log is None or is_needless:
            return
        request = mcp.SetLevelRequest(params=mcp.SetLevelRequestParams(level=self._features.log_level))
        with contextlib.suppress(MCPError):  # then the server sends what it likes
            await client.session.send_request(request, mcp.EmptyResult)

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the tools, as servers of 2026-07-28 and later require."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        lost = 0
        while not self.closed:  # ends with the connection; the pauses keep it from busy waiting
            try:
                async with client.listen(tools_list_changed=True) as subscription:
                    async for _ in subscription:
                        lost = 0
                        self._changed.set()
            except MCPError:
                return  # the server refuses
            except SubscriptionLost:
                self._changed.set()  # changes in between are not reported again
            await asyncio.sleep(_LISTEN_PAUSES[min(lost, len(_LISTEN_PAUSES) - 1)])
            lost += 1
