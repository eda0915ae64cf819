"""The suite `long`: is a call as right in the 40th turn of a conversation as in the first, and does the prompt cache hold?

The same questions are asked at several turns, with 10 and with 50 tools. What was said before is canned (`english.toml`,
`chinese.toml`): talk, calls with results, some of them long. It never depends on the model, so that a run is the same for every
model, and the conversation at one turn is the beginning of that at a later one. `tools.toml` has the tools; `catalog.json` the
others beside them. The same tools in the same order are offered to all questions of a size.

The cases of one category have a long prompt in common and are asked one after the other (see `suites.cases_of`).
"""

import json
import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...types.tool import Tool
from ..case import Case

__all__ = ["SIZES", "TURNS", "long_cases"]

TURNS: Final = (1, 5, 10, 20, 40)
"""At which turn of a conversation a question is asked; the first has nothing before it."""

SIZES: Final = (10, 50)
"""How many tools are offered."""

_HERE: Final = Path(__file__).parent
_LANGUAGES: Final = ("english", "chinese")


def long_cases(seed: int = 1) -> list[Case]:
    """Return the cases, those of one category one after the other."""
    tools = _tools(seed)
    return [case for language in _LANGUAGES for size in SIZES for case in _cases(language, tools[size])]


def _tools(seed: int) -> dict[int, tuple[Tool, ...]]:
    told = _read("tools")
    own = [Tool.from_mcp(row) for row in told["tool"]]
    rows = json.loads((_HERE.parent / "catalog.json").read_text(encoding="utf-8"))["tools"]
    others = [Tool.from_mcp(row) for row in rows if row["name"] in told["others"]]
    return {size: tuple(random.Random(seed).sample([*own, *others][:size], size)) for size in SIZES}


def _cases(language: str, tools: tuple[Tool, ...]) -> Iterator[Case]:
    data = _read(language)
    before = [list(_messages(turn)) for turn in data["turn"]]
    defaults = {tool.name: _left_out(tool) for tool in tools}
    for turn in TURNS:
        said = tuple(message for messages in before[: turn - 1] for message in messages)
        for number, row in enumerate(data["question"], 1):
            ((name, accepted),) = row["answer"].items()
            yield Case(
                id=f"long-{len(tools)}-{turn:02}-{language}-{number:02}",
                category=f"{language}-{len(tools)}-tools-turn-{turn:02}",
                messages=(*said, {"role": "user", "content": row["text"]}),
                tools=tools,
                answers=({name: {**defaults[name], **accepted}},),
            )


def _messages(turn: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a turn; calls and results are written for each way when they are sent (`ways.conversation`)."""
    yield {"role": "user", "content": turn["say"]}
    for name, arguments in turn.get("call", {}).items():
        yield {"role": "assistant", "content": "", "calls": [[name, arguments]]}
        yield {"role": "tool", "content": turn["result"].strip()}
    yield {"role": "assistant", "content": turn["reply"]}


def _left_out(tool: Tool) -> dict[str, Sequence[Any]]:
    """Return what is accepted for the parameters that may be left out, where a question names none of them."""
    schema = tool.input_schema
    optional = schema.get("properties", {}).keys() - set(schema.get("required", ()))
    return {
        name: ["", schema["properties"][name]["default"]] if "default" in schema["properties"][name] else [""]
        for name in optional
    }


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((_HERE / f"{name}.toml").read_text(encoding="utf-8"))
