"""What servers that fail cost, and what is told of them: `python benchmarks/failing_servers.py [--only WORD]`.

Each row is a process of its own, so that its peak of memory is its own: it runs a loop whose model, played from a script, calls
a tool of the bad server and then answers; beside it stands a good tool, called afterwards to see that the loop is alive.
Limits: 4 s to start, 4 s a call. Measured: seconds until the answer and until all is closed; the peak of resident memory above
that of the process with everything imported; the longest time in which the event loop did nothing else (a task that wakes each
10 ms); how many processes of the server were started. Writes `benchmarks/results/failing-servers.md`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmlcall import RepairPolicy, ToolLoop
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.hosts.base import Host
from xmlcall.hosts.local import LocalHost
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.router import Router
from xmlcall.hosts.server import HttpServer, ServerConfig, StdioServer
from xmlcall.prompting.results import result_text
from xmlcall.turn.events import CallFinished, CallRejected

SERVERS = Path(__file__).parent.parent / "tests" / "servers"
RESULTS = Path(__file__).parent / "results" / "failing-servers.md"
LIMIT = 4.0
LARGE = "100000000"
CALL = "<function_calls><invoke name='echo'><parameter name='text'>hi {}</parameter></invoke></function_calls>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One bad server.

    Args:
        what: in words.
        stdio: mode of `tests/servers/hostile.py`.
        http: mode of `tests/servers/failing_http.py`, or a URL.
        size: of what it sends.
        calls: how many the model makes, a turn each.
        trust: as its configuration says.
    """

    what: str
    stdio: str = ""
    http: str = ""
    size: str = ""
    calls: int = 1
    trust: bool = False


ROWS = (
    Row(what="stdio: dies at start", stdio="exit"),
    Row(what="stdio: dies in each of 6 calls", stdio="die_in_call", calls=6),
    Row(what="stdio: dies after each of 6 calls", stdio="die_after_call", calls=6),
    Row(what="stdio: hangs at start", stdio="hang"),
    Row(what="stdio: hangs in the list", stdio="hang_list"),
    Row(what="stdio: hangs in each of 4 calls", stdio="hang_call", calls=4),
    Row(what="stdio: garbage without end at start", stdio="garbage"),
    Row(what="stdio: garbage without end in a call", stdio="flood_garbage"),
    Row(what="stdio: 100,000 lines of garbage, then the answer", stdio="many_lines"),
    Row(what="stdio: bytes that are not UTF-8, then the answer", stdio="not_utf8"),
    Row(what="stdio: notifications without end", stdio="flood"),
    Row(what="stdio: stderr without end", stdio="flood_stderr"),
    Row(what="stdio: a line without end", stdio="endless_line"),
    Row(what="stdio: a result of 100 MB", stdio="huge", size=LARGE),
    Row(what="stdio: one cursor for ever", stdio="repeated_cursor"),
    Row(what="stdio: ever new cursors, one tool", stdio="never_ending"),
    Row(what="stdio: ever new cursors, ever new tools", stdio="ever_new"),
    Row(what="stdio: 10,000 list_changed in a call", stdio="storm", size="10000"),
    Row(what="HTTP: nothing listens", http="http://127.0.0.1:1/mcp"),
    Row(what="HTTP: TLS is expected, plain text comes", http="tls"),
    Row(what="HTTP: 401 at start", http="start:401"),
    Row(what="HTTP: 403 at start", http="start:403"),
    Row(what="HTTP: 404 at start", http="start:404"),
    Row(what="HTTP: 429 at start, Retry-After 1", http="start:429,1"),
    Row(what="HTTP: 503 at start", http="start:503"),
    Row(what="HTTP: 401 in a call", http="401"),
    Row(what="HTTP: 403 in a call", http="403"),
    Row(what="HTTP: 404 in a call, again and again", http="404"),
    Row(what="HTTP: 429 in a call, Retry-After 1", http="429,1"),
    Row(what="HTTP: 429 in a call, Retry-After 1, trusted read-only", http="429,1", trust=True),
    Row(what="HTTP: 429 in a call, Retry-After 3600, trusted read-only", http="429,3600", trust=True),
    Row(what="HTTP: 500 in a call", http="500"),
    Row(what="HTTP: hangs in a call", http="hang"),
    Row(what="HTTP: body cut", http="cut_body"),
    Row(what="HTTP: event stream cut", http="cut_sse"),
    Row(what="HTTP: event stream cut, to be resumed for ever", http="reconnects"),
    Row(what="HTTP: a byte a second", http="slow"),
    Row(what="HTTP: a body of 100 MB", http="big_body", size=LARGE),
    Row(what="HTTP: an event of 100 MB", http="big_event", size=LARGE),
    Row(what="HTTP: a body without end", http="endless_body"),
    Row(what="HTTP: 500 with a body without end", http="endless_error"),
    Row(what="HTTP: 100 MB in 100 kB of gzip", http="bomb", size=LARGE),
    Row(what="HTTP: notifications without end", http="flood"),
)


@contextlib.contextmanager
def config(row: Row, directory: Path) -> Iterator[ServerConfig]:
    """Start the server if it is one over HTTP, and say how it is reached."""
    common: dict[str, Any] = {"name": "bad", "timeout": LIMIT} | ({"trust": True} if row.trust else {})
    size = (row.size,) if row.size else ()
    if row.stdio:
        env = {"PIDS": str(directory / "pids")}
        yield StdioServer(command=sys.executable, args=(str(SERVERS / "hostile.py"), row.stdio, *size), env=env, **common)
    elif "/" in row.http:
        yield HttpServer(url=row.http, **common)
    else:
        tls = row.http == "tls"
        argv = [sys.executable, str(SERVERS / "failing_http.py"), "200" if tls else row.http, *size]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            try:
                yield HttpServer(url=url.replace("http:", "https:") if tls else url, **common)
            finally:
                process.kill()


def peak_kilobytes() -> int:
    """Return the process's peak of resident memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


@contextlib.asynccontextmanager
async def stalls() -> AsyncIterator[list[float]]:
    """Note how late a task wakes, in seconds."""
    late = [0.0]

    async def wake() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            late[0] = max(late[0], time.monotonic() - before - 0.01)

    task = asyncio.create_task(wake())
    yield late
    task.cancel()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def _warm_up() -> None:
    """Import what is imported late, so that it counts for no row."""
    good = StdioServer(name="warm", command=sys.executable, args=(str(SERVERS / "hostile.py"), "good"))
    async with ToolLoop(ScriptedBackend([CALL.format(0), "Done."]), [McpHost(good)], policy=["*"]) as loop:
        await loop.ask("Say hi.")


async def measured(row: Row, directory: Path, server: ServerConfig) -> dict[str, Any]:
    """Play the conversation and tell what came of it."""
    await _warm_up()
    model: list[str] = []
    person: list[str] = []
    backend = ScriptedBackend([*(CALL.format(number) for number in range(row.calls)), "Done.", "Done.", "Done."])
    before, began = peak_kilobytes(), time.monotonic()
    hosts: list[Host] = [McpHost(server, connect_timeout=LIMIT), LocalHost([add], name="good")]
    async with stalls() as late:
        async with ToolLoop(backend, hosts, policy=["*"], repair=RepairPolicy(max_replies=20)) as loop:
            async for event in loop.run([{"role": "user", "content": "Say hi."}]):
                if isinstance(event, CallFinished):
                    model.append(result_text(event.result))
                    person += [event.failure] if event.failure else []
                elif isinstance(event, CallRejected):
                    model.append("the tool is not offered")
            answered = time.monotonic() - began
            person += loop.router.notices
            await loop.router.tools()
            alive = result_text(await loop.router.call("add", {"a": 1, "b": 2})) == "3"
    return {
        "seconds": answered,
        "closed": time.monotonic() - began,
        "megabytes": (peak_kilobytes() - before) / 1024,
        "stall": late[0],
        "starts": len((directory / "pids").read_text().split()) if (directory / "pids").exists() else None,
        "model": list(dict.fromkeys(model)),
        "person": list(dict.fromkeys(person)),
        "alive": alive,
    }


def play(row: Row) -> dict[str, Any]:
    """Measure one row in a process of its own, for at most two minutes."""
    argv = [sys.executable, __file__, "--row", str(ROWS.index(row))]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {"error": done.stderr.strip()[-200:]}
    except subprocess.TimeoutExpired:
        return {"error": "still busy after 120 s"}


def many(number: int, tools: str) -> dict[str, Any]:
    """Start many good servers and two bad ones side by side."""

    async def run() -> dict[str, Any]:
        script = str(SERVERS / "hostile.py")
        bad = [StdioServer(name=mode, command=sys.executable, args=(script, mode), timeout=LIMIT) for mode in ("hang", "exit")]
        good = [
            StdioServer(name=f"s{index}", command=sys.executable, args=(script, "many_tools", tools)) for index in range(number)
        ]
        before, began = peak_kilobytes(), time.monotonic()
        async with Router(McpHost(server, connect_timeout=LIMIT) for server in bad + good) as router:
            opened = time.monotonic() - began
            listed = await router.tools()
            return {
                "seconds": opened,
                "listed": time.monotonic() - began,
                "megabytes": (peak_kilobytes() - before) / 1024,
                "tools": len(listed),
                "person": list(router.notices),
            }

    return asyncio.run(run())


def child(row: Row) -> None:
    """Measure a row here, and print it as JSON."""
    with tempfile.TemporaryDirectory() as name, config(row, Path(name)) as server:
        print(json.dumps(asyncio.run(measured(row, Path(name), server))))


def cell(texts: list[str]) -> str:
    """Write sentences into a cell of a table."""
    shown = [text.replace(sys.executable, "python").replace("|", "\\|").replace("\n", " ")[:400] for text in texts]
    return "<br>".join(shown)


def line(row: Row, found: dict[str, Any]) -> str:
    """Write a row of the table."""
    if "error" in found:
        return f"| {row.what} | | | | | | **{cell([found['error']])}** | |"
    starts = "" if found["starts"] is None else found["starts"]
    figures = f"{found['seconds']:.1f} | {found['megabytes']:.0f} | {found['stall'] * 1000:.0f} | {starts}"
    return f"| {row.what} | {figures} | {cell(found['model'])} | {cell(found['person'])} | {'yes' if found['alive'] else 'no'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="rows whose description holds this; the report is printed, not written")
    parser.add_argument("--row", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row is not None:
        child(ROWS[arguments.row])
        return
    lines = []
    for row in ROWS:
        if arguments.only in row.what:
            lines.append(line(row, play(row)))
            print(lines[-1], flush=True)
    if not arguments.only:
        RESULTS.write_text(report(lines, many(20, "25")))


def report(lines: list[str], side_by_side: dict[str, Any]) -> str:
    """Write the page."""
    machine = f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} cores"
    return "\n".join(
        [
            "# Servers that fail\n",
            f"Written by `python benchmarks/failing_servers.py` (see there), {machine}.\n",
            "| server | s | MB | stall, ms | starts | the model is told | the person is told | loop alive |",
            "|---|---|---|---|---|---|---|---|",
            *lines,
            "",
            "## Twenty good servers beside two bad ones\n",
            f"25 tools each, all started at once; one of the bad servers hangs, one dies. The first list of "
            f"{side_by_side['tools']} tools came after {side_by_side['listed']:.1f} s, with {side_by_side['megabytes']:.0f} MB "
            "more than before. The person is told:\n",
            *(f"- {notice.replace(sys.executable, 'python')}" for notice in side_by_side["person"]),
            "",
        ]
    )


if __name__ == "__main__":
    main()
