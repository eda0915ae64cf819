"""Streams that cost the load generator next to nothing: it looks at all connections every 10 ms and takes whatever is there.

A client that wakes for each token takes as much of a core as a proxy that relays it, and then two proxies on two cores look
slower than they are. This one counts the words in what came, checks each answer that ends, and asks again at once. Times to the
first token are not measured with it: they would be those of its clock.
"""

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from scripted_upstream import SECONDS, WORD

__all__ = ["Counted", "Streams"]

POLL_SECONDS: Final = 0.01
CUT: Final = 100  # one word in so many may not be seen: the head of an HTTP chunk may stand in the middle of it
BUFFER: Final = 1 << 18
_WORD: Final = WORD.encode()
_LAST: Final = b"\r\n0\r\n\r\n"  # of a chunked answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What came in a stretch of time.

    Args:
        words: tokens, of answers that are not whole yet, too.
        answers: whole ones.
        seconds: that it took.
        computed: processor seconds of this process.
    """

    words: int
    answers: int
    seconds: float
    computed: float


class _Stream:
    """A connection that asks one question after the other."""

    def __init__(self, url: str, request: bytes) -> None:
        address = urlsplit(url)
        self.socket = socket.create_connection((address.hostname, address.port), timeout=SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request, self.has_begun = request, False
        self.ask()

    def ask(self) -> None:
        """Send the question; it fits into the buffer of an idle connection."""
        self.words, self._tail = 0, b""
        self.socket.setblocking(True)
        self.socket.sendall(self._request)
        self.socket.setblocking(False)

    def take(self, data: bytes) -> bool:
        """Count; say whether the answer is whole."""
        if not data:
            raise SystemExit(f"the server hung up after {self.words} words")
        if not self.words and data.startswith(b"HTTP/1.1") and not data.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"expected an answer, got {data[:300]!r}")
        seen = self._tail + data
        self.words += seen.count(_WORD) - self._tail.count(_WORD)
        self.has_begun = self.has_begun or self.words > 0
        self._tail = seen[-len(_LAST) + 1 :]
        return seen.endswith(_LAST)


class Streams:
    """Many streams, spread over servers in turn; to be closed.

    Args:
        urls: of the servers.
        request: the bytes of each question, for each server.
        count: connections in all.
        tokens: that each answer has to have.
    """

    def __init__(self, urls: Sequence[str], request: bytes, *, count: int, tokens: int) -> None:
        self._tokens, self._epoll = tokens, select.epoll()
        self._buffer = memoryview(bytearray(BUFFER))
        self.streams: dict[int, _Stream] = {}
        for number in range(count):
            self.add(urls[number % len(urls)], request)

    def add(self, url: str, request: bytes) -> None:
        """Begin one more stream."""
        stream = _Stream(url, request)
        self.streams[stream.socket.fileno()] = stream
        self._epoll.register(stream.socket, select.EPOLLIN)

    def _take(self, wait: float) -> tuple[int, int]:
        """Take what is there; return words and whole answers."""
        words = answers = 0
        for number, _ in self._epoll.poll(wait, max(len(self.streams), 1)):
            stream = self.streams[number]
            before, length = stream.words, stream.socket.recv_into(self._buffer)
            is_whole = stream.take(bytes(self._buffer[:length]))
            words += stream.words - before
            if is_whole:
                if not self._tokens - self._tokens // CUT <= stream.words <= self._tokens:
                    last = bytes(self._buffer[max(length - 300, 0) : length])
                    raise SystemExit(f"expected {self._tokens} words, got {stream.words}; the last of it: {last!r}")
                answers += 1
                stream.ask()
        return words, answers

    def run(self, seconds: float) -> Counted:
        """Take for a while."""
        words = answers = 0
        started, computed = time.perf_counter(), time.process_time()
        while (now := time.perf_counter()) < started + seconds:
            more, whole = self._take(0)
            words, answers = words + more, answers + whole
            time.sleep(max(POLL_SECONDS - (time.perf_counter() - now), 0))
        passed = time.perf_counter() - started
        return Counted(words=words, answers=answers, seconds=passed, computed=time.process_time() - computed)

    def all_begun(self) -> None:
        """Wait until each stream has its first word."""
        limit = time.monotonic() + SECONDS
        while not all(stream.has_begun for stream in self.streams.values()):
            self._take(POLL_SECONDS)
            if time.monotonic() > limit:
                raise SystemExit(f"not all of {len(self.streams)} streams began within {SECONDS:g} s")

    def close(self) -> None:
        """Hang up everywhere."""
        for stream in self.streams.values():
            stream.socket.close()
        self._epoll.close()
