"""The suites `ordinary` and `needed`: do tools on offer make an answer worse, and is the right one called where one is needed?

`ordinary.toml` holds requests that need no tool, `needed.toml` requests that need one, `catalogs.toml` the tools; the files say
what their keys mean. Each is a conversation of which the last turn is judged, played as those of `talk`. What the turns before it
called stands in it with its results.

A request that needs no tool is asked with two catalogs on offer, so that every request meets several over both languages. Where a
calculator is on offer, sums are not asked: to call it is right. With one that needs a tool its own catalog is on offer.

The first call that runs ends a turn: what is judged is whether it was due, and its arguments. So no tool does anything.
"""

import functools
import tomllib
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

from ...tools.catalog import Catalog
from ...types.tool import Tool
from ..case import Case

__all__ = ["CANNED", "canned_tools", "needed_cases", "ordinary_cases"]

CANNED: Final = "catalog:"
"""Before the name of a catalog, where a conversation names its servers."""
_LANGUAGES: Final = {"en": "english", "zh": "chinese"}
_APART: Final = 4  # catalogs between the two that a request is asked with
_SUMS: Final = ("arithmetic", frozenset({"demo", "forty"}))  # the kind, and the catalogs with a calculator


def ordinary_cases() -> list[Case]:
    """Return the requests that need no tool, each with two catalogs, in the order of the file."""
    file = _read("ordinary")
    return [
        _ordinary(row, catalog, file["wrong"])
        for number, row in enumerate(file["request"])
        for catalog in _catalogs_of(row, number)
    ]


def needed_cases() -> list[Case]:
    """Return the requests that need a tool, in the order of the file."""
    return [_needed(row) for row in _read("needed")["request"]]


def canned_tools(catalog: str) -> Catalog:
    """Return the tools of a catalog."""
    file = _read("catalogs")
    names = file["joined"].get(catalog, [catalog])
    return Catalog([Tool.from_mcp(tool) for tool in chain.from_iterable(file["catalogs"][name] for name in names)])


@functools.cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def _catalogs_of(row: Mapping[str, Any], number: int) -> list[str]:
    file = _read("catalogs")
    if own := row.get("catalogs"):
        return [*own, *(name for name, parts in file["joined"].items() if set(own) <= set(parts))][:2]
    kind, with_calculator = _SUMS
    names = [name for name in (*file["catalogs"], *file["joined"]) if row["kind"] != kind or name not in with_calculator]
    return [names[(number + apart) % len(names)] for apart in (0, _APART)]


def _ordinary(row: Mapping[str, Any], catalog: str, wrong: list[Mapping[str, Any]]) -> Case:
    tables = (each["patterns"] for each in wrong if each["lang"] == row["lang"] and row["kind"] in each["kinds"])
    false = [*row.get("false", ()), *chain.from_iterable(tables)]
    turn = {"kind": row["kind"], "answer": row["true"], "not": false, "reply": row["answer"]}
    return _case(row, catalog, f"{row['id']}@{catalog}", turn)


def _needed(row: Mapping[str, Any]) -> Case:
    catalog = canned_tools(row["catalog"])
    schemas = [tool.input_schema["properties"] for tool in catalog if tool.name in row["tools"]]
    arguments = {
        name: {"accepted": accepted, "schema": next(each[name] for each in schemas if name in each)}
        for name, accepted in row.get("arguments", {}).items()
    }
    turn = {"kind": "needed", "tools": ["|".join(row["tools"])], "arguments": arguments, "has": row.get("has", [])}
    return _case(row, row["catalog"], row["id"], turn)


def _case(row: Mapping[str, Any], catalog: str, id: str, turn: Mapping[str, Any]) -> Case:
    before = list(chain.from_iterable(map(_said, row.get("before", ()))))
    return Case(
        id=id,
        category=_LANGUAGES[row["lang"]],
        messages=(*before, {"role": "user", "content": row["say"]}),
        tools=(),
        expects="talk",
        half=row["half"],
        servers=(f"{CANNED}{catalog}",),
        turns=({"say": row["say"], "ends_with_call": True, **turn},),
    )


def _said(turn: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of an earlier turn, as `messages_of` reads them."""
    if "role" in turn:
        yield turn
        return
    yield {"role": "user", "content": turn["person"]}
    yield {"role": "assistant", "content": "", "calls": [[turn["tool"], turn["arguments"]]]}
    yield {"role": "tool", "content": turn["result"]}
    yield {"role": "assistant", "content": turn["answer"]}
