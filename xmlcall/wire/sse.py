"""Server-sent events: bytes in, payloads out (WHATWG HTML, section 9.2.6). No I/O.

A line end may be cut in two, and a payload may be spread over many pieces; no byte is read twice. Comments, `event`, `id` and
`retry` are dropped, because chat completions carry everything in `data`.
"""

import re
from collections.abc import Iterator
from typing import Final

from ..errors import BackendProtocolError

EVENT_LIMIT: Final = 16 * 1024 * 1024  # bytes of one event: far above any real chunk, but it stops a stream without line ends
_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventDecoder:
    """Split a byte stream into the payloads of its events, however it is chunked; a last one needs no blank line after it."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of the unfinished line
        self._data: list[bytes] = []  # `data` fields of the unfinished event
        self._size = 0
        self._after_cr = False

    def feed(self, data: bytes) -> Iterator[str]:
        """Read bytes; yield the payloads of the events that end in them. One above 16 MiB is a `BackendProtocolError`."""
        if not data:
            return
        ends_in_cr = data.endswith(b"\r")
        if self._after_cr:
            data = data.removeprefix(b"\n")  # the second half of a line end that was cut in two
        self._after_cr = ends_in_cr
        first, *rest = _LINE_END.split(data)
        self._add(first)
        for line in rest:
            if payload := self._end_line():
                yield payload
            self._add(line)

    def close(self) -> Iterator[str]:
        """Yield the payload of an unfinished last event."""
        yield from filter(None, (self._end_line(), self._end_event()))

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > EVENT_LIMIT:
            raise BackendProtocolError(f"expected server-sent events, got one of more than {EVENT_LIMIT} bytes")
        self._line.append(piece)

    def _end_line(self) -> str:
        """End a line; return the payload of the event that it ends, else ""."""
        line = b"".join(self._line)
        self._line.clear()
        if not line:
            return self._end_event()
        name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return ""

    def _end_event(self) -> str:
        payload = b"\n".join(self._data).decode("utf-8", "replace")
        self._data.clear()
        self._size = 0
        return payload
