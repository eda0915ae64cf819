"""A model server that does what the question says: so many tokens, so fast, as text or as a call, or a failure on the way.

    python benchmarks/scripted_upstream.py    # prints its address; any OpenAI client can ask it

It speaks OpenAI's chat completions and `/v1/models`; without llama.cpp's `/props` it is taken for no server in particular. The
last message holds the script as JSON after the word SCRIPT: proxies pass messages on, whatever they do to other fields. Every
token is an event and a write of its own. `GET /counts` says what is open and how generations ended.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

__all__ = [
    "MODEL",
    "SECONDS",
    "WORD",
    "Script",
    "Target",
    "await_port",
    "end",
    "ending_of",
    "event_of",
    "question",
    "running",
    "texts_of",
    "upstream",
]

MODEL: Final = "tiny"
SECONDS: Final = 60.0  # for whatever is waited for
WORD: Final = "word"  # once in every token that is no markup, and nowhere else
BEGIN_CALL: Final = '<function_calls>\n<invoke name="write_note">\n<parameter name="title">x</parameter>\n<parameter name="text">'
END_CALL: Final = "</parameter>\n</invoke>\n</function_calls>"
PIECE: Final = 4  # characters of markup in a token

_SCRIPT = re.compile(r"SCRIPT (\{.*?\})", re.S)
_HEAD: Final = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1, "model": MODEL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What one reply is.

    Args:
        tokens: words of it; markup of a call comes on top.
        pace: seconds between two tokens; 0 is as fast as it goes.
        call: whether the words are an argument of a call that is written as text.
        fate: `die` breaks the connection off, `stall` says nothing more, `error` is an error of the server's, "" is none.
        at: the token at which fate strikes; an error at 0 is an HTTP status.
    """

    tokens: int = 16
    pace: float = 0.0
    call: bool = False
    fate: str = ""
    at: int = 0


def question(script: Script) -> str:
    """Write the message that asks for a reply."""
    return f"SCRIPT {json.dumps(asdict(script))}"


# -- what is said ------------------------------------------------------------------------------------------------------


def _script(body: Mapping[str, Any]) -> Script:
    found = _SCRIPT.search(json.dumps(body["messages"][-1]["content"]).replace('\\"', '"'))
    return Script(**json.loads(found[1])) if found else Script()


def texts_of(script: Script) -> list[str]:
    """Return what each token of a reply says."""
    words = [WORD, *(f" {WORD}{number}" for number in range(1, script.tokens))]  # a text that repeats itself is ended early
    return [*_cut(BEGIN_CALL), *words, *_cut(END_CALL)] if script.call else words


def _cut(text: str) -> list[str]:
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def event_of(delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
    """Write one event."""
    choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish_reason}
    return b"data: " + json.dumps(_HEAD | {"choices": [choice]}).encode() + b"\n\n"


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens}


def ending_of(tokens: int) -> bytes:
    """Write the events that end a reply."""
    usage = json.dumps(_HEAD | {"choices": [], "usage": _usage(tokens)}).encode()
    return event_of({}, "stop") + b"data: " + usage + b"\n\ndata: [DONE]\n\n"


_EVENTS: Final[dict[str, bytes]] = {}  # of each text: nothing is written twice


def _events(script: Script) -> Iterator[bytes]:
    for text in texts_of(script):
        yield _EVENTS.get(text) or _EVENTS.setdefault(text, event_of({"content": text}))


# -- the server --------------------------------------------------------------------------------------------------------


class Upstream:
    """The server and its books."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()  # how generations ended
        self.open = 0  # generations
        self.server: uvicorn.Server | None = None

    @property
    def app(self) -> Starlette:
        """The ASGI app."""
        chat = Route("/v1/chat/completions", _Chat(self), methods=["POST"])
        return Starlette(routes=[chat, Route("/v1/models", self._models), Route("/counts", self._counts)])

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _counts(self, request: Request) -> Response:
        connections = len(self.server.server_state.connections) - 1 if self.server else 0  # not that of this question
        return JSONResponse({"open": self.open, "connections": connections, **self.ended})


class _Chat:
    """Answers chat completions; an ASGI app, so that nothing stands between a token and the wire."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await Request(scope, receive).json()
        except ClientDisconnect:
            self._upstream.ended["left before the question"] += 1
            return
        script = _script(body)
        generate = _stream if body.get("stream") else _whole
        self._upstream.open += 1
        try:
            self._upstream.ended[await _unless_left(generate(script, send), receive)] += 1
        except ConnectionAbortedError:
            self._upstream.ended["died"] += 1
            raise
        finally:
            self._upstream.open -= 1


async def _unless_left(generation: Any, receive: Receive) -> str:
    """Generate until the client leaves; say how it ended."""
    generating, leaving = asyncio.ensure_future(generation), asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((generating, leaving), return_when=asyncio.FIRST_COMPLETED)
        return generating.result() if generating.done() else "cancelled by the client"
    finally:
        for task in (generating, leaving):
            task.cancel()
        await asyncio.gather(generating, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stream(script: Script, send: Send) -> str:
    if script.fate == "error" and script.at == 0:
        return await _refuse(send)
    await _start(send, 200, b"text/event-stream")
    await _body(send, event_of({"role": "assistant", "content": ""}))
    for number, event in enumerate(_events(script)):
        if script.fate and number == script.at:
            return await _strike(script.fate, send)
        if script.pace and number:
            await asyncio.sleep(script.pace)
        await _body(send, event)
    await _body(send, ending_of(script.tokens), more=False)
    return "finished"


async def _whole(script: Script, send: Send) -> str:
    if script.fate == "error":
        return await _refuse(send)
    message = {"role": "assistant", "content": "".join(texts_of(script))}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    head = _HEAD | {"object": "chat.completion"}
    await _json(send, 200, head | {"choices": [choice], "usage": _usage(script.tokens)})
    return "finished"


async def _strike(fate: str, send: Send) -> str:
    if fate == "stall":
        await asyncio.Event().wait()
    if fate == "die":
        raise ConnectionAbortedError  # uvicorn drops the connection, without the last HTTP chunk
    await _body(send, b'data: {"error": {"message": "scripted", "type": "server_error", "code": 500}}\n\n', more=False)
    return "error"


async def _refuse(send: Send) -> str:
    await _json(send, 500, {"error": {"message": "scripted", "type": "server_error", "code": 500}})
    return "error"


async def _json(send: Send, status: int, data: Any) -> None:
    body = json.dumps(data).encode()
    await _start(send, status, b"application/json", (b"content-length", str(len(body)).encode()))
    await _body(send, body, more=False)


async def _start(send: Send, status: int, media_type: bytes, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", media_type), *headers]})


async def _body(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


# -- processes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server in a process of its own.

    Args:
        name: for the tables.
        url: its address.
        pid: of its process.
    """

    name: str
    url: str
    pid: int

    def processes(self) -> list[int]:
        """Return its process and their children."""
        found = [self.pid]
        for pid in found:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in children.read_text().split()]
        return found

    def megabytes(self) -> float:
        """Return the resident memory."""
        statuses = [Path(f"/proc/{pid}/status").read_text() for pid in self.processes()]
        return sum(int(status.partition("VmRSS:")[2].split()[0]) for status in statuses) / 1024

    def processor_seconds(self) -> float:
        """Return the time that it computed so far."""
        rows = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.processes()]
        return sum(int(row[11]) + int(row[12]) for row in rows) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(name: str, command: list[str]) -> Iterator[Target]:
    """Run a server that prints its address; what it logs goes to a file, as it would in use."""
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            if not (url := process.stdout.readline().strip()):
                raise SystemExit(f"{name} did not start")
            await_port(url)
            yield Target(name=name, url=url, pid=process.pid)
        finally:
            end(process)


def await_port(url: str) -> None:
    """Wait until a server takes connections."""
    address = urlsplit(url)
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        with contextlib.suppress(OSError), socket.create_connection((address.hostname, address.port), timeout=1):
            return
        time.sleep(0.1)
    raise SystemExit(f"{url} took no connection within {SECONDS:g} s")


def end(process: "subprocess.Popen[Any]") -> None:
    """End a process; kill it if it does not."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()


def upstream() -> contextlib.AbstractContextManager[Target]:
    """Run the scripted model server."""
    return running("direct", [sys.executable, __file__])


def main() -> None:
    """Serve until killed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--port", type=int, default=0, help="0 takes a free one")
    upstream = Upstream()
    # Deaths are meant: uvicorn would log each with a traceback.
    config = uvicorn.Config(upstream.app, log_level=100, access_log=False, lifespan="off", ws="none", backlog=4096)
    upstream.server = uvicorn.Server(config)
    # By its full name: asyncio sends without delay (TCP_NODELAY) only where the socket says that it is TCP.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", arguments.parse_args().port))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            upstream.server.run(sockets=[listener])


if __name__ == "__main__":
    main()
