"""Run the documented questions on real local models and write what happened to docs/transcripts.md.

    python benchmarks/transcripts.py

Needs `make live`'s set-up: the local models, `mcp-server-time` and Node's `server-filesystem`. Every listed model is run,
smallest first, and its whole output kept, failures included. Then a conversation of ten turns with both servers, typed line by
line into `xmlcall chat`. Takes some minutes on two cores.
"""

import datetime
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILESYSTEM = ROOT / "tests/servers/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
NOTES = Path("/srv/notes")
MODELS = ("smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")

# Title, server as shown, server as run, question, what the answer must hold to count as right.
RUNS = (
    ("The demo server", None, None, "What is 1234 times 5678?", "7006652"),
    (
        "Time: PyPI's `mcp-server-time`",
        {"time": {"command": "mcp-server-time", "args": ["--local-timezone", "Europe/Berlin"]}},
        {
            "time": {
                "command": str(Path(sys.executable).with_name("mcp-server-time")),
                "args": ["--local-timezone", "Europe/Berlin"],
            }
        },
        "It is 14:30 in Tokyo. What time is it in London?",
        None,  # depends on the season: 05:30 or 06:30
    ),
    (
        "Files: npm's `@modelcontextprotocol/server-filesystem`",
        {"files": {"command": "npx", "args": ["@modelcontextprotocol/server-filesystem", str(NOTES)]}},
        {"files": {"command": "node", "args": [str(FILESYSTEM), str(NOTES)]}},
        f"List the files in {NOTES}",
        "shopping.txt",
    ),
)

CONVERSATION = (
    "Hello!",
    f"Which files are in {NOTES}?",
    f"What does {NOTES}/shopping.txt say?",
    "Thanks!",
    "What time is it in Tokyo right now?",
    "And in New York?",
    "你好，你会说中文吗？",
    f"{NOTES}/ideas.md 里写了什么？",
    "What is the capital of Japan?",
    "Great, bye!",
)
CONVERSED = ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
LAST_LINE = "tokens"  # what --verbose shows last of a turn


def converse(model: str) -> list[str]:
    """Type the conversation into `xmlcall chat`, each line when the turn before has ended; return what was on the screen."""
    servers = {"mcpServers": {**RUNS[1][2], **RUNS[2][2]}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(servers, file)
        file.flush()
        command = [sys.executable, "-m", "xmlcall", "chat", "--model", model, "--mcp", file.name, "--yes", "--verbose"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, text=True, **pipes) as chat:  # type: ignore[call-overload]
            assert chat.stdin is not None
            assert chat.stdout is not None
            seen: list[str] = []
            for question in CONVERSATION:
                chat.stdin.write(f"{question}\n")
                chat.stdin.flush()
                seen += [f"> {question}", *_turn(chat.stdout)]
            chat.stdin.close()
    return seen


def _turn(lines: Iterable[str]) -> list[str]:
    """Read what a turn shows, without what only --verbose tells."""
    shown = []
    for line in lines:
        if line.startswith(LAST_LINE):
            break
        shown.append(line.rstrip())
    return [line for line in shown if not line.startswith(("starting ", "decided ", "the model's context"))]


def ask(model: str, servers: Mapping[str, object] | None, question: str) -> tuple[str, str, int]:
    """Run `xmlcall run`; return what it showed, its answer and its exit code."""
    command = [sys.executable, "-m", "xmlcall", "run", "--model", model]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        if servers:
            json.dump({"mcpServers": servers}, file)
            file.flush()
            command += ["--mcp", file.name, "--allow", "*"]
        done = subprocess.run([*command, question], capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL)
    return done.stderr.strip(), done.stdout.strip(), done.returncode


def is_right(wanted: str | None, answer: str) -> bool:
    """Judge an answer; for the time, by today's offset between the two cities."""
    if wanted is not None:
        return wanted in answer.replace(",", "")
    from zoneinfo import ZoneInfo

    tokyo = datetime.datetime.now(ZoneInfo("Asia/Tokyo")).replace(hour=14, minute=30)
    london = tokyo.astimezone(ZoneInfo("Europe/London"))
    return f"{london:%H:%M}" in answer and "PM" not in answer.upper()


def shortened(text: str, most: int = 12) -> list[str]:
    """Cut what runs on for ever."""
    lines = text.splitlines()
    return lines if len(lines) <= most else [*lines[:most], f"... ({len(lines) - most} more lines)"]


def main() -> None:
    """Write docs/transcripts.md."""
    NOTES.mkdir(parents=True, exist_ok=True)
    for name, text in {"shopping.txt": "milk\n", "ideas.md": "# Ideas\n"}.items():
        (NOTES / name).write_text(text, encoding="utf-8")
    (NOTES / "photos").mkdir(exist_ok=True)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    lines = [
        "# Transcripts",
        "",
        "Real runs of the command line: every listed model on every question, smallest first. Written by",
        "`python benchmarks/transcripts.py`. The servers were installed before: the file server was started with `node`, where",
        "`npx` would fetch it.",
        "Long answers are cut.",
        "",
        f"{today}, xmlcall {version('xmlcall')}, xllamacpp {version('xllamacpp')} (llama.cpp), Q4 quantisations, temperature 0,",
        f"{platform.system()} {platform.machine()}, 2 cores.",
    ]
    for title, shown, run, question, wanted in RUNS:
        lines += ["", f"## {title}"]
        if shown:
            lines += ["", "```json", json.dumps({"mcpServers": shown}), "```"]
        for model in MODELS:
            seen, answer, code = ask(model, run, question)
            verdict = "right" if code == 0 and is_right(wanted, answer) else "wrong"
            mcp = "--mcp servers.json --allow '*' " if run else ""
            lines += ["", f"### {model}: {verdict}", "", "```console"]
            lines += [f'$ xmlcall run --model {model} {mcp}"{question}"', *seen.splitlines(), *shortened(answer), "```"]
            print(f"{title}: {model}: {verdict}", flush=True)
    lines += ["", "## A conversation of ten turns, with both servers"]
    for model in CONVERSED:
        lines += ["", f"### {model}", "", "```console", f"$ xmlcall chat --model {model} --mcp servers.json --yes"]
        lines += [*converse(model), "```"]
        print(f"conversation: {model}", flush=True)
    (ROOT / "docs/transcripts.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
