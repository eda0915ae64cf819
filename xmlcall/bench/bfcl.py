"""The data of the Berkeley Function Calling Leaderboard -> cases with MCP tools.

It is read from the wheel `bfcl-eval` (Apache-2.0), which is opened as an archive; nothing of it is imported. The files
are JSON lines; the answers stand in a folder of their own, aligned with the cases by their place, because some ids differ. BFCL's
schemas use Python's names for types (`dict`, `float`, `tuple`, `any`) and a few keywords of their own; `schema_of` makes JSON
Schema 2020-12 of them.
"""

import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..tool import Tool

__all__ = ["AST_CATEGORIES", "BfclCase", "read_cases", "schema_of"]

AST_CATEGORIES = (
    *("simple_python", "multiple", "parallel", "parallel_multiple"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
)

_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}
_DROPPED = frozenset({"optional"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BfclCase:
    """A question, the tools offered, and the accepted answers.

    Args:
        id: as in the data.
        category: a name of `AST_CATEGORIES`, or another one of the data.
        messages: of the first turn, each with `role` and `content`.
        tools: what is offered.
        answers: per expected call `{name: {parameter: [accepted values]}}`; `""` among them: may be left out. Empty if the
            category has none.
    """

    id: str
    category: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Tool, ...]
    answers: tuple[Mapping[str, Any], ...]


def read_cases(wheel: Path, category: str) -> Iterator[BfclCase]:
    """Yield the cases of a category.

    Args:
        wheel: the file of `bfcl-eval`.
        category: for example `simple_python`.

    Raises:
        KeyError: the wheel has no such category.
    """
    with zipfile.ZipFile(wheel) as archive:
        rows = _rows(archive, f"bfcl_eval/data/BFCL_v4_{category}.json")
        answers = f"bfcl_eval/data/possible_answer/BFCL_v4_{category}.json"
        truths = _rows(archive, answers) if answers in archive.namelist() else [{}] * len(rows)
    for row, truth in zip(rows, truths, strict=True):
        yield BfclCase(
            id=row["id"],
            category=category,
            messages=tuple(row["question"][0]),
            tools=tuple(_tool(function) for function in row["function"]),
            answers=tuple(truth.get("ground_truth", ())),
        )


def _rows(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in archive.read(name).decode("utf-8").splitlines() if line.strip()]


def _tool(function: Mapping[str, Any]) -> Tool:
    schema = {**schema_of(function["parameters"]), "type": "object"}
    return Tool(name=function["name"], description=function.get("description", ""), input_schema=schema)


def schema_of(schema: Any) -> dict[str, Any]:
    """Return BFCL's schema as JSON Schema 2020-12.

    Args:
        schema: the `parameters` of a function, or a part of them.
    """
    if not isinstance(schema, Mapping):
        return {}
    found = {key: value for key, value in schema.items() if key not in _DROPPED}
    kind = _TYPES.get(found.get("type", ""), found.get("type"))
    found.pop("type", None)
    if kind:
        found["type"] = kind
    if found.get("format") in ("float", "int"):
        del found["format"]
    if isinstance(found.get("required"), bool):
        del found["required"]
    if isinstance(found.get("properties"), Mapping):
        found["properties"] = {name: schema_of(below) for name, below in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), Mapping):
            found[key] = schema_of(found[key])
    return found
