"""What a model does with a request that lacks a value: `python benchmarks/missing_values.py qwen2.5-coder-1.5b --out FILE`.

46 requests of `missing_values.toml`, each alone, with the tools of its set; every call is allowed beforehand. Counted: requests
for which a tool ran, always with a value that nobody said, and those that were answered with a question. It takes about ten
seconds a request on two cores. FILE has a line for each request: its text, the calls that ran, the answer.
"""

import argparse
import asyncio
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from xmlcall import Answer, CallFinished, Message, ToolLoop

SETS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["set"]
_ASKS = re.compile(r"[?？]|tell me|let me know|provide|without|告诉")


def functions_of(tools: dict[str, list[str]]) -> Iterator[Callable[..., str]]:
    """Make the functions of a set, whose parameters are strings."""
    for name, (about, *parameters) in tools.items():

        def function(**_: str) -> str:
            return "done"

        kind = inspect.Parameter.KEYWORD_ONLY
        given = [inspect.Parameter(each, kind, annotation=str) for each in parameters]
        function.__name__, function.__doc__ = name, about
        function.__signature__ = inspect.Signature(given, return_annotation=str)  # type: ignore[attr-defined]
        function.__annotations__ = dict.fromkeys([*parameters, "return"], str)
        yield function


async def answered(loop: ToolLoop, request: str) -> dict[str, Any]:
    """Ask a request alone."""
    events = [event async for event in loop.run([Message(role="user", content=request)])]
    ran = [event.call for event in events if isinstance(event, CallFinished) and not event.result.is_error]
    [answer] = (event for event in events if isinstance(event, Answer))
    return {"request": request, "ran": [[call.name, dict(call.arguments)] for call in ran], "answer": answer.text}


async def main() -> None:
    """Ask all requests, and print the counts of each set."""
    parser = argparse.ArgumentParser(description="What a model does with a request that lacks a value.")
    parser.add_argument("model", help="a model's name, so that its profile is used")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file of the answers")
    options = parser.parse_args()
    with options.out.open("w", encoding="utf-8") as out:
        for each in SETS:
            rows = []
            async with ToolLoop(options.model, [*functions_of(each["tools"])], policy=["*"], max_tokens=120) as loop:
                for request in each["requests"]:
                    rows.append(await answered(loop, request))
                    print(json.dumps({"set": each["name"], **rows[-1]}, ensure_ascii=False), file=out, flush=True)
            ran = sum(bool(row["ran"]) for row in rows)
            asked = sum(not row["ran"] and bool(_ASKS.search(row["answer"])) for row in rows)
            print(f"{each['name']}: of {len(rows)} requests {ran} ran a tool, {asked} were answered with a question")


if __name__ == "__main__":
    asyncio.run(main())
