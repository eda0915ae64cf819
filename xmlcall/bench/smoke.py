"""The suite `smoke`: 50 questions of our own over five small catalogs, half of them in Chinese.

It is short enough to be asked after every change. Catalogs, questions and accepted answers stand in `smoke.toml`; a Chinese case
may also offer its tools with Chinese descriptions, names and schemas stay as they are.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..types.tool import Tool
from .case import Case

__all__ = ["smoke_cases"]


def smoke_cases() -> list[Case]:
    """Return the cases in the order of the file."""
    with Path(__file__).with_name("smoke.toml").open("rb") as file:
        data = tomllib.load(file)
    return [_case(row, data) for row in data["case"]]


def _case(row: Mapping[str, Any], data: Mapping[str, Any]) -> Case:
    words = data["chinese"] if row.get("descriptions") == "zh" else {}
    return Case(
        id=row["id"],
        category=row["category"],
        messages=({"role": "user", "content": row["question"]},),
        tools=tuple(Tool.from_mcp(_described(tool, words)) for tool in data["catalogs"][row["catalog"]]),
        expects="no_call" if row["category"] == "no_call" else "calls",
        answers=tuple(row.get("answers", ())),
    )


def _described(tool: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """Return a tool with the descriptions that `words` has for it (`tool`) and its parameters (`tool.parameter`)."""
    name, schema = tool["name"], tool["inputSchema"]
    properties = {
        parameter: {**declared, "description": words.get(f"{name}.{parameter}", declared["description"])}
        for parameter, declared in schema["properties"].items()
    }
    description = words.get(name, tool["description"])
    return {**tool, "description": description, "inputSchema": {**schema, "properties": properties}}
