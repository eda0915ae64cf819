"""Does a model know which question needs a tool, and what wording lets it act so? `python benchmarks/reminder.py URL`

At temperature 0 the first token of a reply decides between a call and plain words. So one token a question is enough to compare
wordings of the reminder (reminder.toml), a hundred times cheaper than whole replies. Two figures a wording:

    area       how likely a question that needs a tool has the higher probability of a call than one that needs none: what the
               model knows, wherever the threshold lies (area under the ROC curve; 0.5 is chance)
    begun      where the threshold lies: for how many of the questions the likeliest first token begins a call

Questions: of BFCL's tuning half (seed 7; the report half is left alone), and everyday ones. URL is a llama.cpp server's, such as
`llama-server -m "$(xmlcall models path)" --jinja --port 8391`. Rows are kept in results/reminder.jsonl, a model measured again
in place of its former ones; the table is written to results/reminder.md. About 5 minutes for the 0.5B on two cores.
"""

import datetime
import json
import platform
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
from roc import area as roc_area

from xmlcall.bench.case import Case
from xmlcall.bench.suites import cases_of
from xmlcall.bench.ways import catalog_of
from xmlcall.prompting import system as prompt
from xmlcall.turn.tool_need import CALL_BEGINS, log_odds
from xmlcall.types.calls import Tool

HERE = Path(__file__).parent
RESULTS = HERE / "results"
CALLS, REFUSALS = 5, 14  # BFCL questions of each category with a call, and of irrelevance


def questions(data: Mapping[str, Any]) -> Iterator[tuple[str, bool, Case]]:
    """Yield sets of questions: the name of the set, whether a tool is needed, and the question with its tools."""
    drawn: dict[str, int] = {}
    for case in cases_of("bfcl-core", limit=300, seed=7, half="tuning"):
        drawn[case.category] = drawn.get(case.category, 0) + 1
        if drawn[case.category] <= (REFUSALS if case.expects == "no_call" else CALLS):
            yield "BFCL", case.expects != "no_call", case
    for group, sides in data["questions"].items():
        tools = tuple(_tool(*row) for row in data["tools"][group])
        for side, texts in sides.items():
            for text in texts:
                yield (
                    "everyday",
                    side == "call",
                    Case(id=text, category=group, messages=({"role": "user", "content": text},), tools=tools),
                )


def _tool(name: str, description: str, *parameters: str) -> Tool:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return Tool(
        name=name,
        description=description,
        input_schema={"type": "object", "properties": properties, "required": list(parameters)},
    )


def first_token(client: httpx2.Client, system: str, question: str) -> tuple[float, bool]:
    """Ask for one token: the log-odds that the reply begins with a call, and whether its likeliest beginning does."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    body = {"messages": messages, "max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 30}
    answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    tokens = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    likeliest = max(tokens, key=lambda token: token["logprob"])
    odds = log_odds((token["token"], token["logprob"]) for token in tokens)
    return odds, likeliest["token"].lstrip().startswith(CALL_BEGINS)


def measure(client: httpx2.Client, data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row a question: the first token after each wording."""
    model = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
    build = client.get("/props").raise_for_status().json().get("build_info", "")
    for name, needs_tool, case in questions(data):
        catalog = catalog_of(case)
        system = prompt.system_prompt(catalog)
        names = ", ".join(tool.name for tool in catalog)
        asked = case.messages[-1]["content"]
        first_tokens = {
            label: first_token(client, system, f"{asked}\n\n{wording.replace('TOOLS', names)}".strip())
            for label, wording in data["wordings"].items()
        }
        yield {"model": model, "build": build, "set": name, "id": case.id, "needs_tool": needs_tool, "first_token": first_tokens}


def area(rows: Sequence[Mapping[str, Any]], label: str) -> float:
    """Return the area under the ROC curve of the log-odds after a wording (Mann and Whitney's U over all pairs)."""
    needing, others = ([row["first_token"][label][0] for row in rows if row["needs_tool"] is side] for side in (True, False))
    return roc_area(needing, others)


def begun(rows: Sequence[Mapping[str, Any]], label: str, *, needs_tool: bool) -> str:
    """Write for how many questions the likeliest reply begins a call."""
    counted = [row["first_token"][label][1] for row in rows if row["needs_tool"] is needs_tool]
    return f"{sum(counted)}/{len(counted)}"


def report(rows: Sequence[Mapping[str, Any]], wordings: Mapping[str, str]) -> str:
    """Write the tables, one a model."""
    lines = [
        "# What the reminder after a question does",
        "",
        f"Written by `python benchmarks/reminder.py URL` (see there for what the figures mean): Q4_K_M, first token at "
        f"temperature 0, {datetime.date.today()}, xmlcall {version('xmlcall')}, llama.cpp {rows[-1]['build']}, "
        f"{platform.system()} {platform.machine()}.",
        "Calls begun where a tool is needed (more is better) and where none is (less is better).",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        sets = [[row for row in rows if (row["model"], row["set"]) == (model, name)] for name in ("BFCL", "everyday")]
        lines += ["", f"## {model}", "", "| wording | area, BFCL | needed | not needed | area, everyday | needed | not needed |"]
        lines.append("|---|---|---|---|---|---|---|")
        for label in wordings:
            cells = [
                f"{area(of_set, label):.2f} | {begun(of_set, label, needs_tool=True)} | {begun(of_set, label, needs_tool=False)}"
                for of_set in sets
            ]
            lines.append(f"| {label} | {' | '.join(cells)} |")
    lines += ["", "The wordings:", "", *(f"- {label}: {wording or 'nothing'}" for label, wording in wordings.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the model that the server has, then write the table of all models."""
    data = tomllib.loads((HERE / "reminder.toml").read_text(encoding="utf-8"))
    kept = RESULTS / "reminder.jsonl"
    measured: list[dict[str, Any]] = []
    with httpx2.Client(base_url=sys.argv[1], timeout=600) as client:
        for row in measure(client, data):
            measured.append(row)
            print(f"\r{len(measured)} questions", end="", file=sys.stderr)
    before = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    rows = [row for row in before if row["model"] != measured[0]["model"]] + measured
    kept.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    (RESULTS / "reminder.md").write_text(report(rows, data["wordings"]))
    print((RESULTS / "reminder.md").read_text())


if __name__ == "__main__":
    main()
