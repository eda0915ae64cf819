"""Run the documented questions and a conversation on real local models and write what happened to docs/reference/transcripts.md.

    python benchmarks/transcripts.py

Needs `make live`'s set-up: the local models, `mcp-server-time` and Node's `server-filesystem`. Every listed model is run,
smallest first, and its whole output kept, failures included. Takes a few minutes on two cores.
"""

import datetime
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
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

TIME = next(run for title, _, run, _, _ in RUNS if title.startswith("Time"))
FILES = next(run for title, _, run, _, _ in RUNS if title.startswith("Files"))
TALKERS = MODELS[1:]
TALK = (
    "Hello!",
    f"Which files are in {NOTES}?",
    f"What does {NOTES}/shopping.txt say?",
    "Thanks!",
    "What time is it in Tokyo?",
    "And in London?",
    "What is the capital of Japan?",
    f"Create the file {NOTES}/trip.txt with the text: Pack the camera",
    "Now read it back to me.",
    "Great, bye!",
)
TURN_ENDS = "tokens "  # how the line begins that --verbose shows at the end of a turn


def talk(model: str) -> list[str]:
    """Have the conversation with `xmlcall chat`; return what was shown, each question before its answer."""
    command = [sys.executable, "-m", "xmlcall", "chat", "--model", model, "--allow", "*", "--verbose"]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"mcpServers": {**(TIME or {}), **(FILES or {})}}, file)
        file.flush()
        done = subprocess.run(
            [*command, "--mcp", file.name],
            input="\n".join(TALK) + "\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1800,
            check=False,
        )
    shown = [f"$ xmlcall chat --model {model} --mcp servers.json --allow '*' --verbose"]
    asked = iter(TALK)
    is_new = True
    for line in done.stdout.replace(f"{ROOT}/", "").splitlines():
        if is_new and not line.startswith("Loading"):
            shown += ["", f"> {next(asked, '')}"]
            is_new = False
        shown.append(line)
        is_new = is_new or line.startswith(TURN_ENDS)
    return shown


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
    """Write docs/reference/transcripts.md."""
    NOTES.mkdir(parents=True, exist_ok=True)
    for name, text in {"shopping.txt": "milk\n", "ideas.md": "# Ideas\n"}.items():
        (NOTES / name).write_text(text, encoding="utf-8")
    (NOTES / "photos").mkdir(exist_ok=True)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    lines = [
        "# Transcripts",
        "",
        "Real runs of the command line: every listed model on every question, smallest first. Written by",
        "`python benchmarks/transcripts.py`. The servers were installed before: the file server was",
        "started with `node`, where `npx` would fetch it.",
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
    (NOTES / "trip.txt").unlink(missing_ok=True)
    lines += ["", "## A conversation with two servers", "", "Time and files, as above."]
    for model in TALKERS:
        lines += ["", f"### {model}", "", "```console", *talk(model), "```"]
        (NOTES / "trip.txt").unlink(missing_ok=True)
        print(f"a conversation: {model}", flush=True)
    (ROOT / "docs/reference/transcripts.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
