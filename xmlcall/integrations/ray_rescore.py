"""`xmlcall bench rescore --on ray`: kept replies are judged again on all cores of a cluster, with the same verdicts as on one.

The command reads the files of a run line by line and keeps where each line begins. A block, some cases with their replies, goes
to a task of Ray as it stands on the disk; the task reads, checks and judges it with the code that judges a whole run
(`report.judged`). So a verdict cannot depend on where it was made, and no node needs the folder.

Plain tasks and no Ray Data: a window of blocks in order is a few lines, and Ray Data would bring pyarrow and pandas along. At
most `WINDOW` blocks a process are under way; results are taken in the order of the cases. A block whose process dies is done
again by Ray, `RETRIES` times.
"""

import asyncio
import hashlib
import io
import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from ..bench.report import judged
from ..bench.scores import Scores, scores_of
from ..bench.store import RunError, open_file, part_of_run, read_about, read_run
from .ray_cluster import ClusterError, cores, imported, lost

__all__ = ["count_of", "rescored"]

CASES: Final = 50  # of a block: half a second of judging or more
WINDOW: Final = 2  # blocks a process: one that it judges, one that waits
RETRIES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of a run.

    Args:
        folder: of the run.
        about: of `run.json`.
        cases: lines of `cases.jsonl`.
        replies: lines of `replies.jsonl` about them.
        is_last: of its run.
    """

    folder: Path
    about: dict[str, Any]
    cases: tuple[bytes, ...]
    replies: tuple[bytes, ...]
    is_last: bool


def rescored(folders: Iterable[Path], progress: Callable[[int], None] = lambda count: None) -> Iterator[tuple[Path, Scores]]:
    """Judge runs again; Ray is connected.

    Args:
        folders: of the runs.
        progress: told how many more replies are judged.

    Yields:
        Each folder, with the scores of its run.

    Raises:
        UsageError: one is no run.
        RunError: one is damaged.
        ClusterError: a process died again and again.
    """
    scores: Scores = {}
    for block, found in _in_order(_blocks(folders), WINDOW * cores()):
        scores = scores or {way: {} for way in block.about["ways"]}
        for way, of_way in found.items():
            scores[way].update(of_way)
        progress(len(block.replies))
        if block.is_last:
            yield block.folder, scores
            scores = {}


def count_of(folders: Iterable[Path]) -> int:
    """Count the replies of runs, for a bar: lines, without a look at what is in them.

    Args:
        folders: of the runs.
    """
    return sum(map(_count, folders))


def _count(folder: Path) -> int:
    with _replies(folder) as lines:
        return sum(1 for _ in lines)


def _replies(folder: Path) -> BinaryIO:
    """Open the replies of a run; a run that was just begun has none yet."""
    try:
        return open_file(folder, "replies.jsonl")
    except FileNotFoundError:
        return io.BytesIO()


def _in_order(blocks: Iterator[Block], window: int) -> Iterator[tuple[Block, Scores]]:
    """Have blocks judged, so many at a time; give them in their order."""
    ray = imported()
    judge = ray.remote(max_retries=RETRIES)(_judge)
    under_way: deque[tuple[Block, Any]] = deque()
    try:
        for block in blocks:
            under_way.append((block, judge.remote(block)))
            if len(under_way) >= window:
                yield _taken(*under_way.popleft())
        while under_way:
            yield _taken(*under_way.popleft())
    finally:
        for _, reference in under_way:
            ray.cancel(reference)


def _judge(block: Block) -> Scores:
    """Judge a block; in a process of Ray's."""
    part = part_of_run(block.folder, block.about, block.cases, block.replies)
    return scores_of(asyncio.run(judged(part)))


def _taken(block: Block, reference: Any) -> tuple[Block, Scores]:
    """Wait for the scores of a block."""
    ray = imported()
    try:
        scores: Scores = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, RunError):
            read_run(block.folder)  # says the same with the numbers of lines of the whole file
        raise error.cause from None
    except ray.exceptions.RayError as error:
        if not lost(error):
            raise
        raise ClusterError(f"{block.folder}: a process died {RETRIES + 1} times over the same cases: {error}") from error
    return block, scores


# -- reading -----------------------------------------------------------------------------------------------------------


def _blocks(folders: Iterable[Path]) -> Iterator[Block]:
    for folder in folders:
        yield from _blocks_of(folder)


def _blocks_of(folder: Path) -> Iterator[Block]:
    """Cut a run into blocks."""
    about = read_about(folder)
    try:
        with open_file(folder, "cases.jsonl") as case_lines, _replies(folder) as reply_lines:
            cases, places = _cases(case_lines, about), _places(reply_lines)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError):
        read_run(folder)  # says what is missing or damaged, and where
        raise
    rows = [cases[start : start + CASES] for start in range(0, len(cases), CASES)] or [[]]
    with open_file(folder, "cases.jsonl") as all_cases, _replies(folder) as all_replies:
        for number, row in enumerate(rows, 1):
            answered = [places[way] for way in about["ways"] if way in places]
            wanted = [of_way[case] for of_way in answered for case, _ in row if case in of_way]
            yield Block(
                folder=folder,
                about=about,
                cases=_read(all_cases, [place for _, place in row]),
                replies=_read(all_replies, wanted),
                is_last=number == len(rows),
            )


def _cases(lines: BinaryIO, about: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the id of each case, and where its line begins; check that they are those that were asked."""
    found, hashed = list[tuple[str, int]](), hashlib.sha256(b"[")
    for place, row in _objects(lines, whole=False):
        hashed.update((b", " if found else b"") + json.dumps(row, sort_keys=True).encode())
        found.append((row["id"], place))
    hashed.update(b"]")
    if about.get("cases", hashed.hexdigest()[:16]) != hashed.hexdigest()[:16]:
        raise ValueError("the cases are not those of run.json")
    return found


def _places(lines: BinaryIO) -> dict[str, dict[str, int]]:
    """Return by way where the last reply to each case begins."""
    found: dict[str, dict[str, int]] = {}
    for place, row in _objects(lines, whole=True):
        found.setdefault(row["way"], {})[row["case"]] = place
    return found


def _objects(lines: BinaryIO, *, whole: bool) -> Iterator[tuple[int, Any]]:
    """Yield the JSON of each line with the place where it begins; of a last line only if it is whole, where that is wanted."""
    place = 0
    for line in lines:
        if line.strip() and (line.endswith(b"\n") or not whole):
            yield place, json.loads(line)
        place += len(line)


def _read(file: BinaryIO, places: Sequence[int]) -> tuple[bytes, ...]:
    lines = []
    for place in places:
        file.seek(place)
        lines.append(file.readline().removesuffix(b"\n") + b"\n")
    return tuple(lines)
