"""Lines of standard input, awaited: pipes, files, and what is neither whole nor UTF-8."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from xmlcall.cli.lines import LineReader
from xmlcall.errors import UsageError


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


async def test_lines_of_a_pipe_come_as_they_are_written(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines = LineReader(reading)
    os.write(writing, b"first\r\nsecond\nth")
    assert [await lines.line(), await lines.line()] == ["first", "second"]
    waiting = asyncio.create_task(lines.line())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    os.write(writing, "ird ü".encode() + b"\xff")
    os.close(writing)
    assert await waiting == "third ü\N{REPLACEMENT CHARACTER}"
    assert [await lines.line(), await lines.line()] == [None, None]


async def test_a_wait_can_be_cancelled_and_taken_up_again(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines = LineReader(reading)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(lines.line(), 0.01)
    os.write(writing, b"late\n")
    assert await lines.line() == "late"
    os.close(writing)


@pytest.mark.parametrize(("content", "expected"), [(b"one\n\ntwo", ["one", "", "two", None]), (b"", [None])])
async def test_lines_of_a_file(content: bytes, expected: list[str | None], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file:
        lines = LineReader(file.fileno())
        assert [await lines.line() for _ in expected] == expected


async def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * (3 << 20))
    with (tmp_path / "file").open("rb") as file:
        with pytest.raises(UsageError, match="expected lines of at most 1048576 bytes"):
            await LineReader(file.fileno()).line()
