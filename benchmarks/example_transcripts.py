"""Ask listed models what the examples are for and write examples/mcp/TRANSCRIPTS.md: python benchmarks/example_transcripts.py

Each question is asked in English and in Chinese, of the smallest model first, until one is right; those that failed are named.
Needs the local models, Node and the `dev` packages. Takes half an hour on two cores.
"""

import contextlib
import datetime
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from transcripts import MODELS, ROOT, ask, shortened

sys.path.insert(0, str(ROOT / "tests"))
from test_mcp_examples import EXAMPLES, installed, started

from xmlcall.hosts.config import parse_servers
from xmlcall.hosts.server import HttpServer, StdioServer

PAGE: Final = EXAMPLES / "TRANSCRIPTS.md"
NOTES: Final = Path("/srv/notes")


class Question(NamedTuple):
    """What is asked, and what a right answer holds."""

    server: str
    english: str
    chinese: str
    wanted: str


QUESTIONS: Final = (
    Question("calculator.py", "What is 17 times 23?", "17乘以23等于多少？", "391"),
    Question(
        "calculator.py",
        "How many words has the text 'rain falls on the old town'?",
        "“rain falls on the old town”有多少个单词？",
        "6|six|六",
    ),
    Question("calculator_lowlevel.py", "What is 1001 minus 387?", "1001减387等于多少？", "614"),
    Question("calculator_lowlevel_1x.py", "Divide 999 by 37.", "999除以37等于多少？", r"27\b"),
    Question("weather_sse.py", "Are there weather alerts for TX?", "TX有天气警报吗？", "Houston|Dallas|休斯|达拉斯|^是的"),
    Question(
        "weather_sse.py",
        "What is the forecast at latitude 51.5 and longitude -0.1?",
        "纬度51.5、经度-0.1的天气预报是什么？",
        r"\b9\b|9度|9 ?°",
    ),
    Question(
        "web_search_http.py",
        "Search the web: what does a ticket for visitors cost?",
        "上网搜索：桂花拿铁多少钱？",
        "6 euro|€ ?6|28",
    ),
    Question(
        "docs_server.py",
        "Look in the documents: what is Mira Halloran's extension?",
        "查一下文档：咖啡馆星期几休息？",
        "4417|星期一|周一",
    ),
    Question("fifty_tools.json", f"List the files in {NOTES}", f"列出{NOTES}里的文件", "shopping.txt"),
    Question("hundred_tools.json", f"List the files in {NOTES}", f"列出{NOTES}里的文件", "shopping.txt"),
)


@contextlib.contextmanager
def servers(name: str) -> Iterator[Mapping[str, object]]:
    """Start what an example needs; give its `mcpServers`."""
    if name.endswith(".json"):
        configured = parse_servers((EXAMPLES / name).read_text(encoding="utf-8"), {}, source=name)
        with tempfile.TemporaryDirectory() as folder:
            yield {key: entry(installed(server, Path(folder) if key != "files" else NOTES)) for key, server in configured.items()}
        return
    with started(name, 1 if name.endswith("_1x.py") else 2) as server:
        yield {"example": entry(server)}


def entry(server: Any) -> dict[str, Any]:
    """Write a server's configuration."""
    if isinstance(server, HttpServer):
        return {"type": server.transport, "url": server.url}
    assert isinstance(server, StdioServer)
    return {"command": server.command, "args": list(server.args), "env": dict(server.env)}


def section(question: Question, words: str) -> list[str]:
    """Ask until a model is right; write down how."""
    failed: list[str] = []
    told: list[str] = []
    for model in MODELS:
        with servers(question.server) as configured:
            seen, answer, code = ask(model, configured, words)
        is_right = code == 0 and re.search(question.wanted, answer.replace(",", "")) is not None
        print(f"{question.server}: {words}: {model}: {'right' if is_right else 'wrong'}", flush=True)
        shown = [line for line in seen.splitlines() if not line.startswith(("Loading", "checking"))]
        told = [f"$ xmlcall run --model {model} --mcp servers.json --allow '*' \"{words}\"", *shown, *shortened(answer)]
        if is_right:
            break
        failed.append(model)
    heading = f"Failed: {', '.join(failed)}." if failed else "The smallest listed model succeeds."
    if len(failed) == len(MODELS):
        heading = "No listed model succeeds; the largest one says:"
    return ["", heading, "", "```console", *told, "```"]


def main() -> None:
    """Write the page."""
    NOTES.mkdir(parents=True, exist_ok=True)
    for name, text in {"shopping.txt": "milk\n", "ideas.md": "# Ideas\n"}.items():
        (NOTES / name).write_text(text, encoding="utf-8")
    lines = [
        "# Transcripts of the examples",
        "",
        "Written by `python benchmarks/example_transcripts.py`. Each question was asked of",
        f"{', '.join(MODELS)}, smallest first, until one was right.",
        "",
        f"{datetime.datetime.now(tz=datetime.UTC).date()}, xmlcall {version('xmlcall')}, xllamacpp {version('xllamacpp')},",
        f"Q4, temperature 0, {platform.system()} {platform.machine()}, 2 cores.",
    ]
    for question in QUESTIONS:
        lines += ["", f"## {question.server}: {question.english}"]
        for words in (question.english, question.chinese):
            lines += section(question, words)
            PAGE.write_text("\n".join(lines).replace(f"{ROOT}/", "") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
