"""Give coding agents small real tasks with a local model behind the proxy; results/coding-agents.md tells what came.

    make build/clients/.installed
    build/clients/.venv/bin/python benchmarks/coding_agents.py --model qwen2.5-coder-1.5b opencode pi continue

An agent reads a file and answers, and edits a line of another one; both are judged by what is there afterwards. For each step (a
request of the agent to the proxy) the seconds and the share of the prompt that came from the cache are kept. What an agent prints
is kept as it came, in coding-agents.jsonl beside the table. Each task has a folder of its own and at most `TASK_SECONDS`.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from clients.answers import events_in  # noqa: E402
from clients.environments import command, install, variables  # noqa: E402
from clients.table import CLIENTS, Client  # noqa: E402
from servers.run_server import run_server  # noqa: E402

import xmlcall  # noqa: E402
from xmlcall.proxy import create_app  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
TASK_SECONDS: Final = 1800
CACHED: Final = ("cached_tokens", "cache_read_input_tokens")

NOTES = "Minutes of 3 March\nThe next meeting is on Tuesday at 14:30, in room Aurora.\nBring the budget.\n"
SETTINGS = "[server]\nhost = localhost\nport = 8080\ntimeout = 30\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something to do in a folder.

    Args:
        name: for the table.
        question: that the agent is given.
        is_done: judges the folder afterwards and what the agent said.
    """

    name: str
    question: str
    is_done: Callable[[Path, str], bool]


TASKS = (
    Task(
        name="read a file and answer",
        question="Read notes.txt. In which room is the next meeting?",
        is_done=lambda folder, said: "Aurora" in said,
    ),
    Task(
        name="edit a line",
        question="Change the port in settings.ini from 8080 to 9090.",
        is_done=lambda folder, said: (folder / "settings.ini").read_text() == SETTINGS.replace("8080", "9090"),
    ),
)


@dataclass(slots=True)
class Step:
    """A request of an agent."""

    path: str
    status: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    all_prompt_tokens: int = 0
    all_cached_tokens: int = 0
    answer: str = ""


@dataclass(slots=True)
class Watch:
    """An ASGI app around the proxy that notes each generation."""

    app: Any
    steps: list[Step] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        step, answered, started = Step(path=scope["path"]), bytearray(), time.monotonic()
        self.steps.append(step)

        async def sending(message: Any) -> None:
            step.status = message.get("status", step.status)
            answered.extend(message.get("body", b""))
            await send(message)

        await self.app(scope, receive, sending)
        step.seconds = round(time.monotonic() - started, 1)
        step.answer = answered.decode(errors="replace")
        usage, everything = _usage_in(step.answer)
        step.prompt_tokens, step.cached_tokens = _prompt_in(usage)
        step.all_prompt_tokens, step.all_cached_tokens = _prompt_in(everything) if everything else _prompt_in(usage)


def _prompt_in(usage: Mapping[str, int]) -> tuple[int, int]:
    """Return the tokens of prompts and those of them that were cached; Anthropic's `input_tokens` are those that were not."""
    cached = sum(usage.get(name, 0) for name in CACHED)
    return (usage.get("prompt_tokens") or usage.get("input_tokens") or 0) + usage.get(CACHED[1], 0), cached


def _usage_in(answer: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the last count of tokens that an answer tells, details beside totals; and the same of all requests to the model."""
    found: dict[str, int] = {}
    everything: dict[str, int] = {}
    for event in events_in(answer):
        response = event.get("response")
        usage = event.get("usage") or (response.get("usage") if isinstance(response, dict) else None) or {}
        flat = {**usage, **(usage.get("prompt_tokens_details") or {}), **(usage.get("input_tokens_details") or {})}
        found |= {name: count for name, count in flat.items() if isinstance(count, int)}
        everything |= usage.get("xmlcall_all_requests") or {}
    return found, everything


def main() -> int:
    parser = argparse.ArgumentParser(description="Give coding agents small real tasks.")
    parser.add_argument("agents", nargs="+", help="names of tests/clients/clients.toml")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b", help="as for `xmlcall serve --model` (default: %(default)s)")
    parser.add_argument("--call-threshold", default="auto", help="as for `xmlcall serve` (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS / "coding-agents.jsonl", help="what came, a line a task; added to")
    arguments = parser.parse_args()
    chosen = [client for client in CLIENTS if client.name in arguments.agents]
    threshold = None if arguments.call_threshold == "off" else arguments.call_threshold
    for client in chosen:
        install(client)
        app = Watch(create_app(xmlcall.connect(arguments.model), mode="xml", call_threshold=threshold))
        with run_server(app, lifespan="on") as url:
            for task in TASKS:
                row = {
                    "agent": client.name,
                    "version": client.version,
                    "model": arguments.model,
                    "threshold": arguments.call_threshold,
                }
                row |= {"date": date.today().isoformat(), "task": task.name, **_done(client, task, url, app)}
                print({name: row[name] for name in ("agent", "task", "right", "said")}, len(row["steps"]), flush=True)
                with arguments.out.open("a", encoding="utf-8") as kept:
                    kept.write(json.dumps(row, ensure_ascii=False) + "\n")
    rows = [json.loads(line) for line in arguments.out.read_text(encoding="utf-8").splitlines()]
    arguments.out.with_suffix(".md").write_text(_page(rows), encoding="utf-8")
    return 0


def _done(client: Client, task: Task, url: str, watch: Watch) -> dict[str, Any]:
    """Let an agent do a task."""
    watch.steps.clear()
    with tempfile.TemporaryDirectory(prefix="project-") as name:
        folder = Path(name)
        (folder / "notes.txt").write_text(NOTES)
        (folder / "settings.ini").write_text(SETTINGS)
        argv = [*command(client), url + client.path, name, task.question]
        try:
            ran = subprocess.run(
                argv,
                cwd=folder,
                env=variables(client),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TASK_SECONDS,
                check=False,
            )
            said = ran.stdout.strip() or ran.stderr.strip()[-500:]
        except subprocess.TimeoutExpired:
            said = f"not done after {TASK_SECONDS} s"
        right = task.is_done(folder, said)
        said = said.replace(name, "/home/person/project")
    steps = [asdict(step) | {"answer": step.answer[-2000:]} for step in watch.steps if step.seconds]
    return {"right": right, "said": said, "steps": steps}


def _page(rows: list[Mapping[str, Any]]) -> str:
    head = (
        "# Coding agents with a local model\n\n"
        f"`python benchmarks/coding_agents.py`; Linux {platform.machine()}, 2 cores, llama.cpp b11549 built for this CPU, one\n"
        "slot of 32,768 tokens, while other programs ran. A step is a request of the agent to the proxy.\n"
        "Cached is the share of all prompts that was not read again, of those that decide and choose, too:\n"
        "a question is put to the model several times. Rows with the threshold off were run later and found\n"
        "system prompts in the cache, so the seconds of first steps do not compare. What came is in\n"
        "[coding-agents.jsonl](coding-agents.jsonl).\n\n"
        "| agent | model | task | right | steps | seconds a step | longest prompt | cached | said |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(_line(row) for row in rows)


def _line(row: Mapping[str, Any]) -> str:
    steps = row["steps"]
    prompts, cached = (sum(step[name] for step in steps) for name in ("all_prompt_tokens", "all_cached_tokens"))
    longest = max((step["prompt_tokens"] for step in steps), default=0)
    seconds = ", ".join(f"{step['seconds']:.0f}" for step in steps[:8]) + (" ..." if len(steps) > 8 else "")
    share = f"{100 * cached / prompts:.0f} %" if prompts else ""
    said = " ".join(row["said"].split())[:160].replace("|", "/")
    model = row["model"] + ("" if row["threshold"] == "auto" else f", threshold {row['threshold']}")
    cells = (f"{row['agent']} {row['version']}", model, row["task"], "yes" if row["right"] else "no", str(len(steps)))
    return f"| {' | '.join((*cells, seconds, str(longest), share, said))} |\n"


if __name__ == "__main__":
    sys.exit(main())
