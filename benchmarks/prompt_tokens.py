"""What tools cost in a prompt, beside the model's own chat template: `python benchmarks/prompt_tokens.py URL`

URL is a llama.cpp server, which counts with its model's template and tokenizer; nothing is generated. Writes
results/prompt-tokens.md. The tools are those of public MCP servers that the suite `catalog` offers: ten for each of its 40
questions. A tool's cost is what nine more of them add to a prompt with one, by nine; "whole" is all that a model reads before it
answers.
"""

import datetime
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import httpx

from xmlcall.bench.own_suites import catalog_cases
from xmlcall.bench.ways import origin_prompt
from xmlcall.prompting.format import FAMILIES, PromptFormat
from xmlcall.prompting.system import tool_prompt
from xmlcall.tools.catalog import Catalog
from xmlcall.types.calls import Tool
from xmlcall.wire.openai import tool_dict

PAGE = Path(__file__).parent / "results" / "prompt-tokens.md"
SIZES = (1, 5, 10)
Request = Callable[[Sequence[Tool], str], dict[str, Any]]


def asked(question: str, system: str = "") -> list[dict[str, str]]:
    """Return the messages of a question."""
    before = [{"role": "system", "content": system}] if system else []
    return [*before, {"role": "user", "content": question}]


def ours(family: str) -> Request:
    """Return how a question is asked with a family of our prompts."""
    format = PromptFormat(family=family)
    return lambda tools, question: {"messages": asked(question, tool_prompt(tools, format))}


WAYS: dict[str, Request] = {
    "the model's own template": lambda tools, question: {
        "messages": asked(question),
        "tools": [tool_dict(each) for each in tools],
    },
    **{f"xmlcall, `{family}`": ours(family) for family in FAMILIES},
    "the prompt of browser extensions": lambda tools, question: {"messages": asked(question, origin_prompt(Catalog(tools)))},
}


def counted(server: httpx.Client, request: dict[str, Any]) -> int:
    """Count the tokens of a prompt."""
    prompt = server.post("/apply-template", json=request).raise_for_status().json()["prompt"]
    return len(server.post("/tokenize", json={"content": prompt, "add_special": True}).raise_for_status().json()["tokens"])


def row(server: httpx.Client, name: str, request: Request, own: float) -> tuple[str, float]:
    """Return a row of the table, and what a tool costs."""
    cases = [case for case in catalog_cases() if len(case.tools) == max(SIZES)]
    counts = {
        size: mean(counted(server, request(case.tools[:size], str(case.messages[-1]["content"]))) for case in cases)
        for size in SIZES
    }
    each = (counts[max(SIZES)] - counts[1]) / (max(SIZES) - 1)
    cells = [f"{each:.0f}", f"{each / (own or each):.2f}", *(f"{counts[size]:.0f}" for size in SIZES)]
    return f"| {name} | {' | '.join(cells)} |", each


def main() -> None:
    """Count and write the page."""
    own = 0.0
    rows = []
    with httpx.Client(base_url=sys.argv[1].removesuffix("/v1"), timeout=60) as server:
        model = server.get("/v1/models").raise_for_status().json()["data"][0]["id"]
        for name, request in WAYS.items():
            line, each = row(server, name, request, own)
            own = own or each
            rows.append(line)
    lines = [
        "# Tokens of the prompt",
        "",
        f"Written by `python benchmarks/prompt_tokens.py URL` (see there what is counted), {datetime.date.today()}, with the",
        f"tokenizer and chat template of {model}.",
        "",
        f"| way | tokens a tool | of the template's | {' | '.join(f'whole, {size} tools' for size in SIZES)} |",
        f"|---|---|---|{'---|' * len(SIZES)}",
        *rows,
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
