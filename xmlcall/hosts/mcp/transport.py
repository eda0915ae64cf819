"""Opens the three MCP transports from a server's configuration, and records what a server outputs besides MCP.

Time limits: a connection has none of its own. A server may stay silent between two calls for hours, and with the SDK's read limit
of 300 seconds an idle event stream would end the session. Instead, its caller limits each request.
"""

import contextlib
import errno
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TextIO, cast

import anyio
import httpx2
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.sse import sse_client
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.os.win32.utilities import (
    close_process_job,
    create_windows_process,
    get_windows_executable_command,
    terminate_windows_process_tree,
)
from mcp.shared.message import SessionMessage
from mcp.types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

from ..server import HttpServer, ServerConfig, StdioServer
from .messages import MAX_MESSAGE_BYTES, HttpTroubles, TooLarge, whole_escapes
from .oauth import SignIn, authorization

_HTTP_TIMEOUT = httpx2.Timeout(30.0, read=None)
_KEPT_BYTES = 8192
_STDERR_PAUSE = 0.01
_QUOTED_LINES = 5
_LINE = 500  # characters of each; an error often ends with the advice
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.|[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f]")

Streams = tuple[Any, Any]


class PeerLog:
    """A server's output besides MCP, kept short, to be quoted in errors."""

    def __init__(self) -> None:
        self._stderr = b""
        self._noise = ""
        self.http_status: int | None = None
        self.sign_in = ""  # why signing in failed
        self.troubles = HttpTroubles()

    def add_stderr(self, data: bytes) -> None:
        """Keep the end of what a process wrote to standard error."""
        self._stderr = (self._stderr + data)[-_KEPT_BYTES:]

    def add_noise(self, error: Exception) -> None:
        """Keep the first item that the SDK could not read as a message."""
        if self._noise or not isinstance(error, ValidationError):
            return
        item = str(error.errors(include_url=False, include_context=False)[0]["input"])[:400]
        self._noise = _plain(item).strip()[:80]

    def describe(self) -> str:
        """Describe the output, as sentences that follow an error; "" if there was none."""
        lines = [line.strip()[:_LINE] for line in _plain(self._stderr.decode(errors="replace")).splitlines() if line.strip()]
        noise = f" It printed text that is not MCP on its standard output: {self._noise!r}." if self._noise else ""
        return noise + (f" Its last lines on standard error: {' | '.join(lines[-_QUOTED_LINES:])}" if lines else "")


def _plain(text: str) -> str:
    """Drop terminal escapes and control characters, line feeds excepted."""
    return _ESCAPE.sub("", text.replace("\r\n", "\n").replace("\t", " "))


@asynccontextmanager
async def open_transport(server: ServerConfig, log: PeerLog, sign_in: SignIn) -> AsyncIterator[Streams]:
    """Open the streams to a server, by Streamable HTTP unless the configuration says `sse`; other output goes to `log`."""
    async with AsyncExitStack() as stack:
        if isinstance(server, StdioServer):
            yield await stack.enter_async_context(open_process(server, log))
            return
        http, url = _http_client(server, log, sign_in), server.url
        if server.transport == "sse":
            yield await stack.enter_async_context(sse_client(url, httpx_client_factory=lambda *_, **__: http))
            return
        await stack.enter_async_context(http)
        opened = streamable_http_client(url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
        yield await stack.enter_async_context(opened)


def _http_client(server: HttpServer, log: PeerLog, sign_in: SignIn) -> httpx2.AsyncClient:
    """Make the HTTP client, which notes the status of each refusal, because the SDK loses it."""

    async def note(response: httpx2.Response) -> None:
        log.http_status = response.status_code if response.status_code >= 400 else None

    return httpx2.AsyncClient(
        headers=dict(server.headers),
        timeout=_HTTP_TIMEOUT,
        event_hooks={"response": [note, log.troubles.watch]},
        auth=authorization(server, sign_in, log),
    )


# -- a server in a process of its own ----------------------------------------------------------------------------------
# This replaces the SDK's client for two reasons, both seen with failing servers: that client buffers a line of any length, in
# quadratic time, and one byte that is not UTF-8 ends its reading silently, so that each request waits in vain.
#
# Nothing is read ahead while a message waits to be taken, so the pipe slows down a server that writes too fast. The end follows
# MCP 2025-11-25, lifecycle: close standard input, after 2 s SIGTERM to the process group, after 2 s more SIGKILL. On Windows
# the server's job ends after the first 2 s, with all that is in it. Every wait is bounded, and none can be cancelled, because a
# process would keep running.

LEAVE_SECONDS: Final = 2.0  # seconds for a process to exit by itself once its standard input is closed
KILL_SECONDS: Final = 2.0  # seconds for it to exit after SIGTERM
_FLUSH_SECONDS = 0.5
_REAP_SECONDS = 2.0
_LAST_WORDS_SECONDS = 0.1  # for the rest of its standard error, but not all that a grandchild may still write
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead, OSError)

Inbox = MemoryObjectSendStream[SessionMessage | Exception]
Outbox = MemoryObjectReceiveStream[SessionMessage]


@asynccontextmanager
async def open_process(server: StdioServer, log: PeerLog) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server; yield the streams of messages from it and to it. Too large a message ends the block with `TooLarge`."""
    process = await _started(server)
    # No await between here and the `try`: a cancellation there would leave the process running.
    inbox, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sending, outbox = anyio.create_memory_object_stream[SessionMessage](0)
    reading, have_read, written = anyio.CancelScope(), anyio.Event(), anyio.Event()
    hearing, heard = anyio.CancelScope(shield=True), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_read, process, inbox, reading, have_read)
        group.start_soon(_write, process, outbox, inbox, written)
        group.start_soon(_keep_errors, process, log, hearing, heard)
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
                    await _end(process, heard)
                hearing.cancel()
            group.cancel_scope.cancel()
    for stream in (messages, inbox, outbox):
        stream.close()


async def _started(server: StdioServer) -> Process:
    env, args = get_default_environment() | dict(server.env), list(server.args)
    if sys.platform != "win32":
        return await anyio.open_process([server.command, *args], env=env, cwd=server.cwd, start_new_session=True)
    command = get_windows_executable_command(server.command)  # `npx` is `npx.cmd`, which only its whole name starts
    process = await create_windows_process(command, args, env, cast(TextIO, subprocess.PIPE), server.cwd)
    if isinstance(process, Process):
        return process
    process.kill()
    raise OSError(errno.ENOSYS, "this event loop starts no programs; use asyncio's ProactorEventLoop, the default of Windows")


async def _keep_errors(process: Process, log: PeerLog, hearing: anyio.CancelScope, heard: anyio.Event) -> None:
    """Keep the end of standard error; a server that fills it is read 100 times a second, so that our loop stays free."""
    assert process.stderr is not None
    try:
        with hearing, contextlib.suppress(*_GONE):
            async for data in process.stderr:
                log.add_stderr(data)
                await anyio.sleep(_STDERR_PAUSE)
    finally:
        heard.set()


async def _read(process: Process, inbox: Inbox, reading: anyio.CancelScope, have_read: anyio.Event) -> None:
    assert process.stdout is not None
    output = BufferedByteReceiveStream(process.stdout)
    try:
        with reading, contextlib.suppress(*_GONE):
            async with inbox:
                while True:  # to the end of the output
                    await inbox.send(_message(await output.receive_until(b"\n", MAX_MESSAGE_BYTES)))
    except anyio.DelimiterNotFound as error:
        raise TooLarge from error
    finally:
        have_read.set()


def _message(line: bytes) -> SessionMessage | Exception:
    """Read a line as a message, or return the error that says why it is not one."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(whole_escapes(line).decode(errors="replace"), by_name=False))
    except ValueError as error:
        return error


async def _drain(process: Process) -> None:
    """Discard output until the pipe is closed, so that a process that is writing can see the end of its input."""
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
        await inbox.aclose()  # the process may live on, but the connection has ended
    finally:
        written.set()


async def _end(process: Process, heard: anyio.Event) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(*_GONE):
        await process.stdin.aclose()
    if not await _has_left(process, LEAVE_SECONDS):
        if sys.platform == "win32":
            await terminate_windows_process_tree(process)
        else:
            await terminate_posix_process_tree(process, KILL_SECONDS)
        await _has_left(process, _REAP_SECONDS)
    close_process_job(process)
    with anyio.move_on_after(_LAST_WORDS_SECONDS):
        await heard.wait()
    with contextlib.suppress(*_GONE):
        await process.stdout.aclose()
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:  # open as long as a grandchild holds a pipe, and nothing public closes it
        with contextlib.suppress(PermissionError):
            transport.close()


async def _has_left(process: Process, seconds: float) -> bool:
    """Wait for a process to exit; `process.wait` would also wait for its children."""
    with anyio.move_on_after(seconds):
        while process.returncode is None:  # noqa: ASYNC110  # no event reports the process alone
            await anyio.sleep(0.01)
    return process.returncode is not None
