"""Connections to a server of ours before anybody knows who calls: how long, how many, and what the log has of them."""

import contextlib
import logging
import resource
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from cli_harness import model_server
from servers.run_server import run_server
from serving import Serving

from xmlcall.cli import connections, listening
from xmlcall.cli.connections import CallerConnection, most_connections
from xmlcall.cli.listening import CountedLines

HEAD = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
BODY = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n{"
SECONDS = 20.0


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read a body, then answer; a body for /unread is not read."""
    while scope["path"] != "/unread" and (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with run_server(app, http=CallerConnection) as running:
        yield running


def connected(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((address.hostname or "", address.port or 0), timeout=SECONDS)


def answer(given: socket.socket) -> bytes:
    """Read an answer of `app`; its head and its body may come apart."""
    said = b""
    while not said.endswith(b"ok") and (more := given.recv(65536)):
        said += more
    return said


def is_closed(given: socket.socket) -> bool:
    """Read until the end comes, or does not."""
    given.settimeout(SECONDS / 4)
    try:
        while given.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


UNREAD = HEAD.replace(b"/health", b"/unread") + b"Content-Length: 999\r\n\r\n"
SLOW = {
    "nothing": b"",
    "half a line": b"GE",
    "half a head": HEAD,
    "a body that nobody reads": UNREAD,
    "behind": HEAD + b"\r\nGET /",
}


@pytest.mark.parametrize("trickles", [False, True])
def test_the_head_of_a_request_has_its_time(url: str, trickles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with contextlib.ExitStack() as stack:
        slow = {name: stack.enter_context(connected(url)) for name in SLOW}
        for name, connection in slow.items():
            connection.sendall(SLOW[name])
        for _ in range(40 if trickles else 0):
            time.sleep(0.02)
            for connection in slow.values():
                with contextlib.suppress(ConnectionError):
                    connection.sendall(b"X")
        assert [name for name, connection in slow.items() if not is_closed(connection)] == []


CHUNKED = HEAD.replace(b"GET /health", b"POST /unread") + b"Transfer-Encoding: chunked\r\n\r\n"


def test_a_body_in_chunks_that_nobody_reads_is_not_waited_for(url: str) -> None:
    with connected(url) as slow:
        slow.sendall(CHUNKED + b"1\r\na\r\n")
        assert b"connection: close" in answer(slow)
        assert is_closed(slow)


def test_a_body_in_chunks_that_was_read_leaves_the_connection_open(url: str) -> None:
    with connected(url) as kept:
        for path in (b"/unread", b"/read"):
            kept.sendall(CHUNKED.replace(b"/unread", path) + b"1\r\na\r\n0\r\n\r\n")
            assert b"connection: close" not in answer(kept)


def test_tiny_chunks_hold_others_up_for_a_moment_only(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk costs more than its bytes: few of them are read before others have their turn."""
    sizes: list[int] = []
    received = CallerConnection.data_received

    def counted(self: CallerConnection, data: bytes) -> None:
        sizes.append(len(data))
        received(self, data)

    monkeypatch.setattr(CallerConnection, "data_received", counted)
    with connected(url) as slow:
        slow.sendall(CHUNKED.replace(b"/unread", b"/read") + b"1\r\na\r\n" * 20_000 + b"0\r\n\r\n")
        assert answer(slow).startswith(b"HTTP/1.1 200")
    assert max(sizes) <= 4096
    sizes.clear()
    assert httpx.post(f"{url}/read", content=b" " * 1_000_000).status_code == 200
    assert len(sizes) < 200


def test_a_request_under_way_has_more_time_than_its_head(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    with connected(url) as slow:
        slow.sendall(BODY)
        time.sleep(0.4)
        slow.sendall(b" " * 98)
        assert answer(slow).startswith(b"HTTP/1.1 200")
        slow.sendall(HEAD + b"\r\n")
        assert answer(slow).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", HEAD, BODY], ids=["nothing", "half a head", "half a body"])
def test_of_too_many_connections_the_oldest_that_waits_is_closed(url: str, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 4)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(url)) for _ in range(4)]
        for each in held:
            each.sendall(sent)
        assert httpx.get(url).status_code == 200
        assert is_closed(held[0])


def test_a_connection_too_many_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 1)

    async def silent(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"..", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    with run_server(silent, http=CallerConnection) as url, httpx.stream("GET", url) as busy:
        said = busy.iter_raw()  # kept, as its end closes the connection
        assert next(said) == b".."
        assert httpx.get(url).status_code == 503


@pytest.mark.parametrize(("files", "most"), [(64, 16), (256, 80), (1024, 464), (resource.RLIM_INFINITY, 1 << 20)])
def test_there_are_fewer_connections_than_files(files: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert most_connections() == most


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of another process is set")
@pytest.mark.parametrize("sent", [b"", HEAD, BODY], ids=["nothing", "half a head", "half a body"])
def test_others_are_answered_while_hundreds_wait(sent: bytes, tmp_path: Path) -> None:
    """More callers than the process may have files open, none of which ends its request."""
    with model_server(*["Hello."] * 5) as (model, _), Serving("--model", model, "--ask", "mode=xml", home=tmp_path) as proxy:
        resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, (256, 256))
        with contextlib.ExitStack() as stack:
            for _ in range(300):
                held = stack.enter_context(connected(proxy.url))
                with contextlib.suppress(ConnectionError):
                    held.sendall(sent)
            for _ in range(5):
                assert proxy.ask().status_code == 200
        assert len(proxy.errors) < 20_000, proxy.errors[-2000:]
        assert "Traceback" not in proxy.errors


# -- the log -----------------------------------------------------------------------------------------------------------


def line(message: str, *args: Any, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("xmlcall.proxy", level, "", 1, message, args, None)


FLOODS: dict[str, Any] = {
    "an error with a number in it": lambda number: line(f"cannot accept\nsocket: {number}", level=logging.ERROR),
    "no HTTP": lambda number: line("Invalid HTTP request received.", level=logging.WARNING),
    "no key": lambda number: line("%s %s %s, %.2f s%s", "GET", f"/{number}", 401, 0.1, ": invalid_api_key"),
}


@pytest.mark.parametrize("make", FLOODS.values(), ids=FLOODS.keys())
def test_lines_that_anybody_causes_are_counted(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    counted = CountedLines()
    passed = [record for record in map(make, range(1000)) if counted.filter(record)]
    assert len(passed) == listening.MOST_LINES
    assert "more like this one are counted" in passed[-1].getMessage()
    now[0] = listening.LINE_SECONDS
    [last] = [record for record in map(make, range(1)) if counted.filter(record)]
    assert f"and {1000 - listening.MOST_LINES} more like this one before" in last.getMessage()


def test_lines_of_requests_that_are_answered_are_all_written() -> None:
    counted = CountedLines()
    assert all(counted.filter(line("%s %s %s, %.2f s%s", "POST", "/", 200, 0.1, "")) for _ in range(1000))
