"""Runs a tool call as a task: starts it, polls it, and fetches its result (MCP 2025-11-25, tasks, experimental).

    tools/call with `task` -> tasks/get every `pollInterval` -> tasks/result
                                  |-- input_required: tasks/result at once, whose stream brings the server's question
    stopped or out of time -> tasks/cancel

A task outlives the connection. A program that kept its id can fetch its result later, with `result_of_task`.

The SDK has the messages but no client for them. In 2026-07-28 tasks are an extension, which is not declared here.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final, Literal

import anyio
from mcp import Client, MCPError
from mcp import types as mcp
from mcp.shared.dispatcher import ProgressFnT
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ..base import OnTask
from .callbacks import MOST, CallPatience
from .filter import ORIGINAL

_DEFAULT_PAUSE: Final = 1.0
_PAUSES: Final = (0.05, 30.0)  # seconds between two polls, whatever the server suggests
_CANCEL_SECONDS: Final = 2.0


def runs_tasks(client: Client) -> bool:
    """Return whether a server can run a tool call as a task."""
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
