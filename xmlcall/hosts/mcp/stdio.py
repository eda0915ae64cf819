"""A server as a child process, spoken to over its standard input and output, a message a line.

In place of the SDK's client for two reasons, both seen with servers that fail: it holds a line of any length, in time that
grows with the square of it, and one byte that is not UTF-8 ends the reading without a word, so that each request waits in vain.

Reading follows the reader of messages: nothing is read ahead while one waits to be taken, so a server that writes faster than
we read is held up by its pipe. The end follows MCP 2025-11-25, lifecycle: standard input is closed, then after 2 s SIGTERM to
the process group, after 2 s more SIGKILL. Every wait is bounded, and none can be cancelled, or a process would stay behind.
"""

import contextlib
import subprocess
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TextIO

import anyio
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.shared.message import SessionMessage
from mcp.types.jsonrpc import jsonrpc_message_adapter

from ..config import StdioServer
from .limits import lines
from .messages import whole_escapes

__all__ = ["open_process"]

LEAVE_SECONDS: Final = 2.0
"""For a process to leave by itself once its standard input is closed."""

KILL_SECONDS: Final = 2.0
"""For it to leave after SIGTERM."""

_FLUSH_SECONDS = 0.5
_REAP_SECONDS = 2.0
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)

Inbox = MemoryObjectSendStream[SessionMessage | Exception]
Outbox = MemoryObjectReceiveStream[SessionMessage]


@asynccontextmanager
async def open_process(server: StdioServer, errors: TextIO) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server; yields the streams of messages from it and to it.

    Raises:
        TooLarge: it sent a line longer than a message may be; raised where the block ends.
    """
    process = await anyio.open_process(
        [server.command, *server.args],
        env=get_default_environment() | dict(server.env),
        stderr=errors,
        stdin=subprocess.PIPE,
        cwd=server.cwd,
        start_new_session=True,
    )
    # No await between here and the `try`: a cancellation there would leave the process behind.
    inbox, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sending, outbox = anyio.create_memory_object_stream[SessionMessage](0)
    reading, have_read, written = anyio.CancelScope(), anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_read, process, inbox, reading, have_read)
        group.start_soon(_write, process, outbox, inbox, written)
        try:
            yield messages, sending
        finally:
            with anyio.CancelScope(shield=True):
                reading.cancel()
                await have_read.wait()
                async with anyio.create_task_group() as ending:
                    ending.start_soon(_drain, process)
                    sending.close()
                    with anyio.move_on_after(_FLUSH_SECONDS):
                        await written.wait()
                    await _end(process)
            group.cancel_scope.cancel()
    for stream in (messages, inbox, outbox):
        stream.close()


async def _read(process: Process, inbox: Inbox, reading: anyio.CancelScope, have_read: anyio.Event) -> None:
    assert process.stdout is not None
    try:
        with reading, contextlib.suppress(*_GONE):
            async with inbox, aclosing(lines(aiter(process.stdout))) as found:
                async for line in found:
                    await inbox.send(_message(line))
    finally:
        have_read.set()


def _message(line: bytes) -> SessionMessage | Exception:
    """Read a line; one that is no message is handed on as what is wrong with it."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(whole_escapes(line).decode(errors="replace"), by_name=False))
    except ValueError as error:
        return error


async def _drain(process: Process) -> None:
    """Throw away what still comes, so that a process which is writing can read its end; ends when the pipe is closed."""
    assert process.stdout is not None
    with contextlib.suppress(*_GONE):
        while True:
            await process.stdout.receive()


async def _write(process: Process, outbox: Outbox, inbox: Inbox, written: anyio.Event) -> None:
    assert process.stdin is not None
    try:
        async with outbox:
            async for item in outbox:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(text.encode() + b"\n")
    except _GONE:
        await inbox.aclose()  # it may live on, but can be asked nothing: to its reader the connection has ended
    finally:
        written.set()


async def _end(process: Process) -> None:
    """End a process and all that it has started."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(*_GONE):
        await process.stdin.aclose()
    if not await _has_left(process, LEAVE_SECONDS):
        await terminate_posix_process_tree(process, KILL_SECONDS)
        await _has_left(process, _REAP_SECONDS)
    with contextlib.suppress(*_GONE):
        await process.stdout.aclose()
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:  # open as long as a grandchild holds a pipe, and nothing public closes it
        with contextlib.suppress(PermissionError):
            transport.close()


async def _has_left(process: Process, seconds: float) -> bool:
    """Wait for a process to end; `process.wait` would also wait for those that it has started."""
    with anyio.move_on_after(seconds):
        while process.returncode is None:  # noqa: ASYNC110  # no event tells of the process alone
            await anyio.sleep(0.01)
    return process.returncode is not None
