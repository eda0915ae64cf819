"""The suite `catalog`: does a model find the right tool among 1, 10, 50, 100 and 200 real ones?

Each of 40 questions (`catalog.toml`) is for one tool of public MCP servers (`catalog.json`; `benchmarks/catalog_tools.py` records
it) and is asked with catalogs of every size. The seed and the question alone decide which other tools are offered, and where the
right one stands among them. A smaller catalog is part of the larger ones, so that they differ in size only.
"""

import json
import random
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..types.tool import Tool
from .case import Case

__all__ = ["SIZES", "catalog_cases"]

SIZES = (1, 10, 50, 100, 200)
"""How many tools a question is asked with."""

_HERE = Path(__file__).parent


def catalog_cases(seed: int = 1) -> list[Case]:
    """Return the cases, the questions in the order of the file for each size.

    Args:
        seed: of the tools that are offered beside the right one, and of their order.
    """
    tools = [Tool.from_mcp(row) for row in json.loads((_HERE / "catalog.json").read_text(encoding="utf-8"))["tools"]]
    questions = tomllib.loads((_HERE / "catalog.toml").read_text(encoding="utf-8"))["question"]
    orders = [_order(row, tools, f"{seed} {number}") for number, row in enumerate(questions, 1)]
    return [
        _case(row, number, size, order[:size], seed)
        for size in SIZES
        for number, (row, order) in enumerate(zip(questions, orders, strict=True), 1)
    ]


def _order(row: Mapping[str, Any], tools: Sequence[Tool], seed: str) -> list[Tool]:
    """Return the right tool and as many others as the largest catalog takes; the smaller ones take the first of them."""
    (right,) = row["answer"]
    left_out = {right, *row.get("not_with", ())}
    others = [tool for tool in tools if tool.name not in left_out]
    return [next(tool for tool in tools if tool.name == right), *random.Random(seed).sample(others, max(SIZES) - 1)]


def _case(row: Mapping[str, Any], number: int, size: int, tools: Sequence[Tool], seed: int) -> Case:
    (name,) = row["answer"]
    return Case(
        id=f"catalog-{size:03}-{number:02}",
        category=f"tools-{size:03}",
        messages=({"role": "user", "content": row["text"]},),
        tools=tuple(random.Random(f"{seed} {number} {size}").sample(tools, size)),
        answers=({name: _accepted(row["answer"][name], tools[0].input_schema)},),
    )


def _accepted(values: Mapping[str, Sequence[Any]], schema: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """Add the optional parameters that an answer does not name: they may be left out or given their default."""
    others = {name: ["", part["default"]] if "default" in part else [""] for name, part in schema["properties"].items()}
    return {**others, **values}
