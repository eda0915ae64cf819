"""Does a page that stays open grow? 10,000 turns pass through `xmlcall serve --ui` while Chromium shows them live.

    python benchmarks/page_memory.py                 # writes benchmarks/results/page-memory.md
    python benchmarks/page_memory.py --turns 500     # a first look; nothing is written

A client asks eight questions at a time of a scripted model; each third turn has a call. Before each row the page rests until it
has shown the last turn, then garbage is collected twice, and Chromium tells its own counts (`Performance.getMetrics`): the heap
of JavaScript, nodes of the document, listeners. The program's memory stands beside it. Afterwards a reply of 1 MB is opened: as
text, and as the value of a call; the time is from the click to the frame after the first and after the last of it that is shown
without being asked for. Exit code 1 if heap or nodes at the end are more than twice those at a tenth of the way.
"""

import argparse
import asyncio
import datetime
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
from load_client import tools
from page_stage import Program, chromium, launched, program
from scripted_upstream import MODEL, Script, question, upstream

PAGE: Final = Path(__file__).resolve().parent / "results" / "page-memory.md"
AT_ONCE: Final = 8
TOKENS_OF_A_MEGABYTE: Final = 200_000  # of five characters
COUNTS: Final = {"JSHeapUsedSize": "heap, MB", "Nodes": "nodes", "JSEventListeners": "listeners"}


# -- turns -------------------------------------------------------------------------------------------------------------


async def _ask(client: httpx.AsyncClient, url: str, script: Script) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": question(script)}], "tools": tools(), "stream": True}
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
        answer.raise_for_status()
        await answer.aread()


async def _ask_many(url: str, scripts: Sequence[Script]) -> None:
    left = iter(scripts)

    async def go_on(client: httpx.AsyncClient) -> None:
        for script in left:
            await _ask(client, url, script)

    async with httpx.AsyncClient(timeout=120.0) as client:
        await asyncio.gather(*(go_on(client) for _ in range(AT_ONCE)))


def ask(url: str, scripts: Sequence[Script]) -> float:
    """Ask all, in a thread, since Playwright has this one's event loop; gives the seconds."""
    begun = time.monotonic()
    thread = threading.Thread(target=lambda: asyncio.run(_ask_many(url, scripts)))
    thread.start()
    thread.join()
    return time.monotonic() - begun


# -- the page ----------------------------------------------------------------------------------------------------------


def counts(page: Any, session: Any) -> dict[str, float]:
    """Collect garbage and count what is left."""
    page.wait_for_timeout(2000)
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
        page.wait_for_timeout(200)
    told = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return {name: told[name] for name in COUNTS}


def megabyte(page: Any, of: Program, url: str) -> list[str]:
    """Open replies of a megabyte, and write how long that takes."""
    rows = []
    for title, call in (("as text", False), ("as the value of a call", True)):
        ask(url, [Script(tokens=TOKENS_OF_A_MEGABYTE, call=call)])
        page.goto(f"{of.origin}/ui/#/live")
        line = page.locator(".list a").first
        line.wait_for()
        page.wait_for_timeout(1500)
        begun = time.monotonic()
        line.click()
        page.locator(".raw .block").first.wait_for()
        first = time.monotonic() - begun
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        rows.append(f"| a reply of 1 MB, {title} | {first:.2f} s | {time.monotonic() - begun:.2f} s |")
    return rows


def memory_of(of: Program) -> float:
    """Return the resident memory of a program, in MB."""
    status = Path(f"/proc/{of.process.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def main() -> int:
    """Measure, and write the page of figures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--turns", type=int, default=10_000)
    turns = arguments.parse_args().turns
    stops = sorted({0, turns // 10, turns // 2, turns})
    table = [f"| turns | {' | '.join(COUNTS.values())} | program, MB |", "|---" * (len(COUNTS) + 2) + "|"]
    heaps: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder, upstream() as model, launched() as browser:
        with program("serve", "--model", f"{model.url}/v1", "--ask", "mode=xml", home=Path(folder)) as of:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(of.page)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable")
            done = 0
            for stop in stops:
                ask(of.origin, [Script(tokens=20, call=number % 3 == 0) for number in range(done, stop)])
                done, heaps[stop] = stop, counts(page, session)
                told = [f"{heaps[stop][name] / (1e6 if 'Heap' in name else 1):,.1f}" for name in COUNTS]
                table.append(f"| {stop:,} | {' | '.join(told)} | {memory_of(of):,.0f} |")
                print(table[-1], flush=True)
            rows = megabyte(page, of, of.origin)
    grew = [name for name in ("JSHeapUsedSize", "Nodes") if heaps[turns][name] > 2 * heaps[turns // 10][name]]
    text = "\n".join(
        [
            "# A page that stays open",
            "",
            "Written by `python benchmarks/page_memory.py`: turns pass through `xmlcall serve --ui` while Chromium shows them.",
            f"{datetime.date.today()}, {platform.system()} {platform.machine()}, 2 cores, Chromium {browser_version()}.",
            "",
            *table,
            "",
            "| opened | first of it seen | drawn |",
            "|---|---|---|",
            *rows,
            "",
            f"More than twice what it was after a tenth of the turns: {', '.join(grew) or 'nothing'}.",
        ]
    )
    print(text)
    if turns >= 10_000:
        PAGE.write_text(text + "\n", encoding="utf-8")
    return 1 if grew else 0


def browser_version() -> str:
    """Return the version of Chromium."""
    return subprocess.run([chromium() or "", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


if __name__ == "__main__":
    sys.exit(main())
