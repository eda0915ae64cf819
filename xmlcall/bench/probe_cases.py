"""The questions of `xmlcall probe`: our own, so that no published suite is fitted to. They stand in `probe.toml`.

They come in blocks of some five questions with the same tools, whose prompt a model server then reads once and not five times.
The blocks stand in an order in which each beginning has the kinds of questions in about the shares that all of them have.
"""

import hashlib
import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..types.tool import Tool
from .case import Case

__all__ = ["WITHOUT_CALL", "by_tools", "probe_cases"]

WITHOUT_CALL: Final = frozenset({"answered", "chat", "no_fit"})
"""Categories in which words are the right answer."""
BLOCK: Final = 5  # questions with the same tools, one behind another


def probe_cases() -> list[Case]:
    """Return all cases, in blocks with the same tools."""
    with Path(__file__).with_name("probe.toml").open("rb") as file:
        data = tomllib.load(file)
    return [case for block in _in_order(_blocks(_cases(data))) for case in block]


def by_tools(cases: Iterable[Case]) -> list[list[Case]]:
    """Return cases in groups with the same tools."""
    groups: dict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in cases:
        groups[tuple(tool.name for tool in case.tools)].append(case)
    return list(groups.values())


def _blocks(cases: Iterable[Case]) -> list[list[Case]]:
    """Return the cases in blocks with the same tools; the kinds of a block are as mixed as they can be."""
    blocks: list[list[Case]] = []
    for group in by_tools(sorted(cases, key=lambda case: hashlib.sha256(case.id.encode()).digest())):
        group.sort(key=_kind)
        count = max(round(len(group) / BLOCK), 1)
        blocks += [group[first::count] for first in range(count)]
    return blocks


def _in_order(blocks: list[list[Case]]) -> Iterator[list[Case]]:
    """Yield, of the blocks that are left, the one with which the kinds so far are closest to their shares."""
    shares = Counter(_kind(case) for block in blocks for case in block)
    whole, so_far = shares.total(), Counter[str]()

    def distance(block: Sequence[Case]) -> tuple[float, str]:
        counts = so_far + Counter(map(_kind, block))
        return math.fsum((counts[kind] / counts.total() - share / whole) ** 2 for kind, share in shares.items()), block[0].id

    left = list(blocks)
    while left:
        left.remove(block := min(left, key=distance))
        so_far.update(map(_kind, block))
        yield block


def _kind(case: Case) -> str:
    """Return what a case asks for, and in which language."""
    return f"{case.category} {case.id[:2]}"


def _cases(data: Mapping[str, Any]) -> Iterator[Case]:
    """Yield each case; its id begins with the language of its question."""
    counts: dict[str, int] = defaultdict(int)
    for group in data["group"]:
        tools = [Tool.from_mcp(tool) for tool in data["catalogs"][group["catalog"]]]
        offered = tuple(tool for tool in tools if tool.name in group.get("offers", [tool.name]))
        for row in group["cases"]:
            lang = row.get("lang", "en")
            kind = f"{lang}-{group['catalog']}-{group['category']}"
            counts[kind] += 1
            yield _case(row, f"{kind}-{counts[kind]:02}", group["category"], offered)


def _case(row: Mapping[str, Any], id: str, category: str, tools: tuple[Tool, ...]) -> Case:
    before = [_said(each) for each in row.get("before", ())]
    asked = [{"role": "user", "content": row["ask"]}] if "ask" in row else []
    return Case(
        id=id,
        category=category,
        messages=(*before, *asked),
        tools=tools,
        expects="no_call" if category in WITHOUT_CALL else "calls",
        answers=tuple(_answer(answer, tools) for answer in row.get("calls", ())),
    )


def _said(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of what was said before (see `history`)."""
    if "calls" in row:
        return {"role": "assistant", "content": "", "calls": row["calls"]}
    ((who, text),) = row.items()
    return {"role": {"user": "user", "assistant": "assistant", "result": "tool"}[who], "content": text}


def _answer(answer: Mapping[str, Mapping[str, Sequence[Any]]], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return an accepted call; what it does not name and the schema does not require may be left out or have its default."""
    ((name, accepted),) = answer.items()
    schema = next(tool.input_schema for tool in tools if tool.name == name)
    others = {
        key: [*([declared["default"]] if "default" in declared else []), ""]
        for key, declared in schema["properties"].items()
        if key not in accepted and key not in schema["required"]
    }
    return {name: {**{key: list(values) for key, values in accepted.items()}, **others}}
