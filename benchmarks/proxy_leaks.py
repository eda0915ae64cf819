"""Does anything stay behind in the proxy? Streams whose clients leave and whose model server dies, stalls or fails, then a count.

    python benchmarks/proxy_leaks.py                  # 10,000 streams; exit code 1 on a leak
    python benchmarks/proxy_leaks.py --streams 500    # a first look

What each stream does is drawn from a seed: the wire format, with tools or without, how fast and how long the reply is, where the
model server fails, when the client leaves (in its question, before the first byte, in the middle, at the end, or not at all) and
whether it hangs up politely. Afterwards the proxy must have as many tasks and sockets as before, and the model server must not
generate for anybody. Before both counts the proxy answers one question and then rests, so that connections which it keeps for a
while are closed. The proxy is `xmlcall serve`, started by this script with a signal handler of its own that counts tasks.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import struct
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from scripted_upstream import MODEL, SECONDS, Script, Target, question, running, upstream

REST: Final = 7.0  # seconds: the model server closes idle connections after 5, the proxy after 4
PATIENCE: Final = 0.5  # seconds until the client of a stalled stream leaves
MIDDLE: Final = 4000  # bytes within which a client leaves in the middle
HUNG: Final = "HUNG: no end within a minute"
TOOL: Final = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "text": {"type": "string"}},
    "required": ["title", "text"],
}


# -- what streams do ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One stream.

    Args:
        path: of the wire format.
        with_tools: whether a tool is offered.
        script: of the reply.
        leaves: when the client hangs up: `in the question`, `before the answer`, `in the middle`, `at the end`, or `never`.
        after: of that part of the stream, between 0 and 1.
        politely: hangs up by FIN, else by RST.
    """

    path: str
    with_tools: bool
    script: Script
    leaves: str
    after: float
    politely: bool


FATES: Final = {"": 70, "die": 12, "error": 8, "stall": 10}
LEAVES: Final = {"never": 30, "in the middle": 30, "before the answer": 20, "at the end": 15, "in the question": 5}


def _drawn(chance: random.Random, weights: Mapping[str, int]) -> str:
    return chance.choices(list(weights), weights=list(weights.values()))[0]


def plans(seed: int, streams: int) -> Iterator[Plan]:
    """Draw what each stream does."""
    chance = random.Random(seed)
    for _ in range(streams):
        fate, tokens = _drawn(chance, FATES), chance.randint(1, 30)
        script = Script(
            tokens=tokens,
            pace=chance.choice((0.0, 0.001, 0.01)),
            call=chance.random() < 0.3,
            fate=fate,
            at=chance.randrange(tokens),
        )
        yield Plan(
            path=chance.choice(list(_TOOLS)),
            with_tools=chance.random() < 0.7,
            script=script,
            leaves=_drawn(chance, LEAVES),
            after=chance.random(),
            politely=chance.random() < 0.5,
        )


# How each wire format spells the tools of a question; all take the same messages.
_OPENAI: Final = {"type": "function", "function": {"name": "write_note", "parameters": TOOL}}
_TOOLS: Final[dict[str, list[dict[str, Any]]]] = {
    "/v1/chat/completions": [_OPENAI],
    "/v1/responses": [{"type": "function", "name": "write_note", "parameters": TOOL}],
    "/v1/messages": [{"name": "write_note", "input_schema": TOOL}],
    "/api/chat": [_OPENAI],
}


def request_of(plan: Plan) -> bytes:
    """Write the bytes of a question."""
    messages = [{"role": "user", "content": question(plan.script)}]
    field = "input" if plan.path == "/v1/responses" else "messages"
    body = {"model": MODEL, field: messages, "stream": True} | ({"tools": _TOOLS[plan.path]} if plan.with_tools else {})
    body |= {"max_tokens": 4096} if plan.path == "/v1/messages" else {}
    content = json.dumps(body).encode()
    head = f"POST {plan.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


# -- the clients -------------------------------------------------------------------------------------------------------


async def stream(url: str, plan: Plan) -> str:
    """Ask, leave when the plan says so, and say how it ended."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    request = request_of(plan)
    try:
        if plan.leaves == "in the question":
            writer.write(request[: int(plan.after * len(request))])
            await asyncio.sleep(0.01)
            return "left in the question"
        writer.write(request)
        return await _read(reader, plan)
    except ConnectionError:
        return "the proxy hung up"
    finally:
        if not plan.politely:
            linger = struct.pack("ii", 1, 0)  # close sends RST
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()


async def _read(reader: asyncio.StreamReader, plan: Plan) -> str:
    if plan.leaves == "before the answer":
        await asyncio.sleep(plan.after * 0.05)
        return "left before the answer"
    wanted = plan.after * MIDDLE if plan.leaves == "in the middle" else sys.maxsize
    got = 0
    try:
        async with asyncio.timeout(PATIENCE if plan.script.fate == "stall" else SECONDS):
            while data := await reader.read(65_536):
                got += len(data)
                if got > wanted:
                    return "left in the middle"
                if plan.leaves == "at the end" and _says_end(data):
                    return "left at the end"
    except TimeoutError:
        return "left a stalled answer" if plan.script.fate == "stall" else HUNG
    return "read to the end"


def _says_end(data: bytes) -> bool:
    """Say whether the last event of an answer is in these bytes, in one format or another."""
    return any(mark in data for mark in (b"[DONE]", b"message_stop", b"response.completed", b'"done":true', b'"done": true'))


async def storm(url: str, seed: int, streams: int, together: int) -> Counter[str]:
    """Run all streams, some at a time."""
    ended: Counter[str] = Counter()
    waiting = plans(seed, streams)

    async def work() -> None:
        for plan in waiting:
            ended[await stream(url, plan)] += 1

    await asyncio.gather(*(work() for _ in range(together)))
    return ended


# -- the counts --------------------------------------------------------------------------------------------------------

_STATES: Final = {"01": "established", "08": "close-wait", "0A": "listening"}  # include/net/tcp_states.h
_QUIET: Final = Plan(path="/v1/messages", with_tools=True, script=Script(), leaves="never", after=0, politely=True)


def sockets(pid: int) -> Counter[str]:
    """Count the open sockets of a process by their state; those that are not TCP are `other`."""
    states: dict[str, str] = {}
    for table in ("tcp", "tcp6"):
        rows = [line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
        states |= {f"socket:[{row[9]}]": _STATES.get(row[3], f"state {row[3]}") for row in rows}
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return Counter(f"sockets, {states.get(link, 'other')}" for link in links if link.startswith("socket:"))


def tasks(proxy: Target, folder: Path) -> Counter[str]:
    """Ask the proxy for its tasks and count them by their coroutines."""
    report = folder / "tasks"
    report.unlink(missing_ok=True)
    os.kill(proxy.pid, signal.SIGUSR1)
    limit = time.monotonic() + SECONDS
    while not report.exists():
        if time.monotonic() > limit:
            raise SystemExit("the proxy did not count its tasks: it is stuck")
        time.sleep(0.05)
    return Counter(f"tasks, {name}" for name in json.loads(report.read_text()))


def counted(proxy: Target, model: Target, folder: Path) -> Counter[str]:
    """Count what must not grow, after a rest and one quiet question: with it the proxy closes what it kept too long."""
    time.sleep(REST)
    asyncio.run(stream(proxy.url, _QUIET))
    time.sleep(1)
    with urllib.request.urlopen(f"{model.url}/counts", timeout=SECONDS) as response:
        books = json.load(response)
    found = Counter({"model server, generations": books["open"], "model server, connections": books["connections"]})
    return found + tasks(proxy, folder) + sockets(proxy.pid)


def tracebacks(log: Path) -> Counter[str]:
    """Count the exceptions in the proxy's log by their last lines."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback")]
    ends = (next((line for line in lines[start + 1 :] if line[:1].strip()), "") for start in starts)
    return Counter(end[:120] for end in ends)


# -- the proxy ---------------------------------------------------------------------------------------------------------


def serve(model: str, folder: Path, *more: str) -> int:
    """Be the proxy, with a signal that writes the names of all tasks to a file.

    Args:
        model: address of the model server.
        folder: for that file, and for the log.
        more: options of `xmlcall serve`.
    """
    from xmlcall.cli import main as xmlcall

    def report(*_: object) -> None:
        names = [getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks()]
        (folder / "new").write_text(json.dumps(names))
        (folder / "new").rename(folder / "tasks")

    signal.signal(signal.SIGUSR1, report)
    with open(folder / "log", "ab") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    return xmlcall(["serve", "--model", f"{model}/v1", "--ask", "mode=xml", "--port", "0", *more])


def main() -> int:
    """Print the counts; return 1 if something stayed behind."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--streams", type=int, default=10_000)
    arguments.add_argument("--together", type=int, default=100, help="streams that are open at once")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--serve", nargs=2, metavar=("MODEL", "FOLDER"), help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.serve:
        return serve(options.serve[0], Path(options.serve[1]))
    with tempfile.TemporaryDirectory() as folder, upstream() as model:
        command = [sys.executable, __file__, "--serve", model.url, folder]
        with running("xmlcall", command) as proxy:
            return check(proxy, model, Path(folder), options)


def check(proxy: Target, model: Target, folder: Path, options: argparse.Namespace) -> int:
    """Count, let the storm pass, count again."""
    for path in _TOOLS:  # whatever is made on first use is there before the count
        asyncio.run(stream(proxy.url, replace(_QUIET, path=path)))
    before, megabytes = counted(proxy, model, folder), proxy.megabytes()
    started = time.monotonic()
    ended = asyncio.run(storm(proxy.url, options.seed, options.streams, options.together))
    seconds = time.monotonic() - started
    after = counted(proxy, model, folder)
    with urllib.request.urlopen(f"{model.url}/counts", timeout=SECONDS) as response:
        books = json.load(response)
    print(f"{options.streams} streams, {options.together} at a time, seed {options.seed}: {seconds:.0f} s\n")
    print("clients:\n" + listed(ended))
    print("generations at the model server:\n" + listed(Counter({name: books[name] for name in books if name not in NOW})))
    print("exceptions in the proxy's log:\n" + listed(tracebacks(folder / "log")))
    print(f"resident memory: {megabytes:,.0f} MB before, {proxy.megabytes():,.0f} MB after\n")
    print("open before, after:")
    for name in sorted(before | after):
        print(f"  {before[name]:6} {after[name]:6}  {name}{'  LEAK' if after[name] > before[name] else ''}")
    leaks = (after - before).total() + ended[HUNG]
    print(f"\n{'nothing stayed behind' if not leaks else f'{leaks} things stayed behind'}")
    return 1 if leaks else 0


NOW: Final = ("open", "connections")  # counts of this moment, not of how generations ended


def listed(counts: Counter[str]) -> str:
    """Write counts, the largest first."""
    return "".join(f"  {number:6}  {name}\n" for name, number in counts.most_common()) or "  none\n"


if __name__ == "__main__":
    raise SystemExit(main())
