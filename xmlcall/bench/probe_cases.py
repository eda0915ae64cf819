"""The questions of `xmlcall probe`: our own, so that no published suite is fitted to. They stand in `probe.toml`.

They are asked in the order in which they come from here: every kind is spread evenly over the whole, so that the first part of
any length is a sample of all.
"""

import hashlib
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..types.tool import Tool
from .case import Case

__all__ = ["WITHOUT_CALL", "probe_cases"]

WITHOUT_CALL: Final = frozenset({"answered", "chat", "no_fit"})
"""Categories in which words are the right answer."""


def probe_cases() -> list[Case]:
    """Return all cases, evenly mixed."""
    with Path(__file__).with_name("probe.toml").open("rb") as file:
        data = tomllib.load(file)
    kinds: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case, lang in _cases(data):
        kinds[case.category, lang].append(case)
    placed: list[tuple[float, str, Case]] = []
    for of_kind in kinds.values():
        of_kind.sort(key=lambda case: hashlib.sha256(case.id.encode()).digest())
        placed += [((place + 0.5) / len(of_kind), case.id, case) for place, case in enumerate(of_kind)]
    return [case for _, _, case in sorted(placed, key=lambda each: each[:2])]


def _cases(data: Mapping[str, Any]) -> Iterator[tuple[Case, str]]:
    """Yield each case with the language of its question."""
    counts: dict[str, int] = defaultdict(int)
    for group in data["group"]:
        tools = [Tool.from_mcp(tool) for tool in data["catalogs"][group["catalog"]]]
        offered = tuple(tool for tool in tools if tool.name in group.get("offers", [tool.name]))
        for row in group["cases"]:
            lang = row.get("lang", "en")
            kind = f"{lang}-{group['catalog']}-{group['category']}"
            counts[kind] += 1
            yield _case(row, f"{kind}-{counts[kind]:02}", group["category"], offered), lang


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
