"""An MCP server that asks its client for things: `python asking.py [--http] [--legacy]`; the address is printed.

What is asked is an argument of the tool `ask`: a request of MCP. With `--legacy` the server speaks revisions up to 2025-11-25
and sends the request itself; otherwise 2026-07-28, and it answers that input is required. The file that RECORD names gets a
line for each call that was cancelled, and for the level of log messages that is wanted.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp import MCPError
from mcp import types as mcp
from mcp.server import MCPServer, runner
from mcp.server.mcpserver import Context
from mcp.shared.message import ServerMessageMetadata
from pydantic import TypeAdapter

server = MCPServer("asking", log_level="CRITICAL")
REQUEST: TypeAdapter[Any] = TypeAdapter(mcp.CreateMessageRequest | mcp.ElicitRequest | mcp.ListRootsRequest)
RESULTS = {
    "elicitation/create": mcp.ElicitResult,
    "sampling/createMessage": mcp.CreateMessageResult,
    "roots/list": mcp.ListRootsResult,
}
LEGACY = "--legacy" in sys.argv


def note(line: str) -> None:
    with Path(os.environ["RECORD"]).open("a") as record:
        record.write(line + "\n")


def written(answer: Any) -> str:
    return json.dumps(answer.model_dump(by_alias=True, mode="json", exclude_none=True))


@server.tool()
async def ask(context: Context, request: dict[str, Any], times: int = 1) -> str | mcp.InputRequiredResult:
    """Ask the client, and tell its last answer."""
    return await (ask_directly if LEGACY else ask_for_input)(context, REQUEST.validate_python(request), times)


async def ask_directly(context: Context, request: Any, times: int) -> str:
    related = ServerMessageMetadata(related_request_id=context.request_id)
    try:
        for _ in range(times):
            answer = await context.session.send_request(request, RESULTS[request.method], metadata=related)
    except MCPError as error:
        return f"error {error.error.code}: {error.error.message}"
    return written(answer)


async def ask_for_input(context: Context, request: Any, times: int) -> str | mcp.InputRequiredResult:
    asked = int(context.request_state or 0)
    if asked == times:
        assert context.input_responses is not None
        return written(context.input_responses["question"])
    return mcp.InputRequiredResult(input_requests={"question": request}, request_state=str(asked + 1))


@server.tool()
async def log(context: Context, level: mcp.LoggingLevel, text: str, times: int = 1) -> str:
    """Write to the log."""
    for _ in range(times):
        await context.session.send_log_message(level, text, "core", context.request_id)
    return "logged"


@server.tool()
async def work(context: Context, steps: int, seconds: float) -> str:
    """Take some time for each step, and tell how far it is."""
    for step in range(steps):
        await anyio.sleep(seconds)
        await context.report_progress(step + 1, steps)
    return "done"


@server.tool()
async def hang() -> str:
    """Never answer."""
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        note("cancelled")
        raise
    return ""


async def set_level(context: Any, params: mcp.SetLevelRequestParams) -> mcp.EmptyResult:
    note(f"level {params.level}")
    return mcp.EmptyResult()


async def no_discovery(context: Any, params: Any) -> mcp.DiscoverResult:
    raise MCPError(code=mcp.METHOD_NOT_FOUND, message="Method not found")


def main() -> None:
    if LEGACY:
        runner._has_modern_envelope = lambda params: False  # over stdio the first request decides for good
        low = server._lowlevel_server
        low.add_request_handler("server/discover", mcp.RequestParams, no_discovery)
        low.add_request_handler("logging/setLevel", mcp.SetLevelRequestParams, set_level)
    if "--http" not in sys.argv:
        server.run("stdio")
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical")).run(sockets=[listener])


if __name__ == "__main__":
    main()
