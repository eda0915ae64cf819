"""The transport to a server on this machine, against a server that writes bytes: whole, cut, too few, or none."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest

from xmlcall.backends.loopback import LoopbackTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
LENGTH = HEAD + b"content-length: 5\r\n\r\nhello"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
CLOSED = HEAD + b"connection: close\r\n\r\nhello"
EARLY = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH


class Bytes:
    """A server that answers each request with the next bytes; None after them hangs up."""

    def __init__(self, *answers: Sequence[bytes | None]) -> None:
        self.answers, self.connections, self.requests = list(answers), 0, list[bytes]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                for piece in self.answers.pop(0):
                    if piece is None:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def client(server: Bytes, *, kept: int = 4, seconds: float = 5.0, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    transport = LoopbackTransport(kept, seconds)
    async with (
        listening,
        httpx2.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{port}", timeout=5.0, **options) as made,
    ):
        yield made


def singly(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize("cut", [lambda data: [data], singly], ids=["whole", "byte by byte"])
@pytest.mark.parametrize("answer", [LENGTH, CHUNKED, EARLY, CLOSED], ids=["length", "chunked", "100", "closed"])
async def test_an_answer_is_the_same_however_it_is_cut(answer: bytes, cut: Any) -> None:
    server = Bytes([*cut(answer), *([None] if answer == CLOSED else [])])
    async with client(server) as made:
        response = await made.post("/x", content=b"body")
    assert (response.status_code, response.headers["content-type"], response.text) == (200, "text/plain", "hello")


@pytest.mark.parametrize(("kept", "connections"), [(0, 3), (4, 1)])
async def test_a_free_connection_is_used_again(kept: int, connections: int) -> None:
    server = Bytes([LENGTH], [CHUNKED], [LENGTH])
    async with client(server, kept=kept) as made:
        assert [(await made.get("/")).text for _ in range(3)] == ["hello"] * 3
    assert server.connections == connections


@pytest.mark.parametrize("end", [[None], [b"more", None], []], ids=["hung up", "more than was asked", "kept too long"])
async def test_a_connection_that_is_no_good_is_not_used_again(end: list[bytes | None]) -> None:
    server = Bytes([LENGTH, *end], [LENGTH])
    async with client(server, seconds=0.05) as made:
        assert (await made.get("/")).text == "hello"
        await asyncio.sleep(0.2)
        assert (await made.get("/")).text == "hello"
    assert server.connections == 2


async def test_an_answer_that_was_not_read_closes_its_connection() -> None:
    server = Bytes([LENGTH[:-2]], [LENGTH])
    async with client(server) as made:
        async with made.stream("GET", "/") as response:
            assert response.status_code == 200
        assert (await made.get("/")).text == "hello"
    assert server.connections == 2


WRONG = {
    "no answer": ([None], httpx2.RemoteProtocolError, "disconnected"),
    "half a head": ([HEAD, None], httpx2.RemoteProtocolError, "closed"),
    "half a body": ([LENGTH[:-2], None], httpx2.RemoteProtocolError, "closed"),
    "no HTTP": ([b"220 smtp.example\r\n\r\n"], httpx2.RemoteProtocolError, "illegal"),
    "a bad chunk": ([CHUNKED[:-12], b"zz\r\n"], httpx2.RemoteProtocolError, "illegal"),
    "silence": ([], httpx2.ReadTimeout, "in time"),
    "silence in the body": ([LENGTH[:-2]], httpx2.ReadTimeout, "in time"),
}


@pytest.mark.parametrize(("answer", "error", "words"), WRONG.values(), ids=WRONG)
async def test_what_goes_wrong(answer: list[bytes | None], error: type[Exception], words: str) -> None:
    async with client(Bytes(answer)) as made:
        with pytest.raises(error, match=words):
            await made.get("/", timeout=0.2)


async def test_what_came_before_an_error_is_read() -> None:
    async with client(Bytes([CHUNKED[:-12] + b"zz\r\n"])) as made, made.stream("GET", "/") as response:
        pieces = response.aiter_bytes()
        assert await anext(pieces) == b"he"
        with pytest.raises(httpx2.RemoteProtocolError):
            await anext(pieces)


async def test_what_is_read_when_the_client_is_closed_fails_at_once() -> None:
    server = Bytes([LENGTH[:-2]])
    async with client(server) as made:
        request = made.build_request("GET", "/")
        response = await made.send(request, stream=True)
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"hel"
        waiting = asyncio.create_task(anext(pieces))
        await asyncio.sleep(0.05)
        [open_one] = made._transport._open  # type: ignore[attr-defined]
        await made.aclose()
        assert open_one.transport.get_extra_info("socket").fileno() == -1, "a server that ends here may not let asyncio run again"
        with pytest.raises(httpx2.ReadError, match="closed here"):
            await asyncio.wait_for(waiting, 1)


async def test_nobody_listens() -> None:
    async with httpx2.AsyncClient(transport=LoopbackTransport(), timeout=1.0) as made:
        with pytest.raises(httpx2.ConnectError, match="refused"):
            await made.get("http://127.0.0.1:9")


async def test_all_that_has_arrived_is_read_at_once() -> None:
    pieces = [b"%x\r\n" % 1 + b"x\r\n" for _ in range(1000)]
    async with client(Bytes([HEAD + b"transfer-encoding: chunked\r\n\r\n", *pieces, b"0\r\n\r\n"])) as made:
        async with made.stream("GET", "/") as response:
            await asyncio.sleep(0.3)
            assert [len(each) async for each in response.aiter_raw()] == [1000]


async def read_all(made: httpx2.AsyncClient) -> None:
    async with made.stream("GET", "/") as response:
        async for _ in response.aiter_raw():
            pass


async def leave_by_scope(made: httpx2.AsyncClient) -> None:
    with anyio.move_on_after(0.2):
        await read_all(made)


async def leave_by_task(made: httpx2.AsyncClient) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read_all(made), 0.2)


@pytest.mark.parametrize("leave", [leave_by_scope, leave_by_task])
async def test_a_server_that_always_has_more_can_be_left(leave: Any) -> None:
    # Data arrives in each round of the event loop, so that the reader is never seen waiting.
    endless = [b"10000\r\n" + b"x" * 0x10000 + b"\r\n"] * 100_000
    server = Bytes([HEAD + b"transfer-encoding: chunked\r\n\r\n", *endless])
    async with client(server) as made:
        await asyncio.wait_for(leave(made), 5)
