"""Turns that were recorded are copied, read anew and asked in other ways like those of the running program."""

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from xmlcall.proxy.http.access import Guard
from xmlcall.turn_records.builder import Recorder
from xmlcall.ui.api import ShownPage
from xmlcall.ui.app import app_of_page, page_of
from xmlcall.ui.recorded import Recorded, named_paths, routes, turn_at

URL = "http://127.0.0.1:8486"
RUN = Path(__file__).parent.parent.parent / "benchmarks" / "results" / "runs" / "smoke-0.5b"
TOOL = {"name": "get_weather", "inputSchema": {"type": "object", "properties": {"days": {"type": "integer"}}}}
REPLY = '<function_calls>\n<invoke name="get_weather">\n<parameter name="days">3</parameter>\n</invoke>\n</function_calls>'


@pytest.fixture
def line_file(tmp_path: Path) -> Path:
    """Two replies; the name of the first needs its quotes in an address."""
    path = tmp_path / "replies of a day.jsonl"
    lines = [{"text": REPLY, "tools": [TOOL], "id": "a/b c", "question": "Three days?"}, {"text": "Hi.", "id": "second"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
async def client(line_file: Path, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that was given the address of a page that has a run and a file."""
    runs, files = named_paths([str(RUN), str(line_file)])
    recorded = Recorded(tmp_path / "records.sqlite", runs, files)
    shown = ShownPage(recorder=Recorder(), about=dict, url=URL, instance="one", recorded=partial(turn_at, recorded))
    page = page_of(shown, Guard(), routes(recorded))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app_of_page(page)), base_url=URL) as browser:
        await browser.get("/ui/", params={"token": page.entry.token})
        yield browser


def address(*parts: str) -> str:
    """Write the address of a turn as the page does; the request encodes it once more."""
    return quote("/".join(quote(part, safe="") for part in parts), safe="")


async def a_row(client: httpx.AsyncClient) -> dict[str, Any]:
    """Return a reply of the run in which a call was read."""
    rows = (await client.get(f"/ui/api/runs/{RUN.name}", params={"only": "calls"})).json()["rows"]
    found: dict[str, Any] = rows[0]
    return found


@pytest.mark.parametrize(
    ("kind", "holds"), [("corpus", "get_weather"), ("curl", "curl "), ("bench", "Three days?")], ids=lambda word: word.strip("? ")
)
async def test_a_turn_of_a_file_is_copied(client: httpx.AsyncClient, line_file: Path, kind: str, holds: str) -> None:
    answer = await client.get(f"/ui/api/turns/{address('file', line_file.name, 'a/b c')}/copy", params={"as": kind})
    assert (answer.status_code, holds in answer.text) == (200, True)


async def test_a_turn_of_a_run_is_copied_and_shown(client: httpx.AsyncClient) -> None:
    row = await a_row(client)
    place = address("run", RUN.name, row["case"], row["way"])
    shown = (await client.get(f"/ui/api/turns/{place}")).json()
    assert shown["question"].startswith(row["question"])
    for kind in ("corpus", "curl", "bench"):
        answer = await client.get(f"/ui/api/turns/{place}/copy", params={"as": kind})
        assert (answer.status_code, bool(answer.text.strip())) == (200, True)


async def test_a_reply_of_a_file_is_read_anew_with_its_tools(client: httpx.AsyncClient, line_file: Path) -> None:
    place = "/".join(quote(part, safe="") for part in ("file", line_file.name, "a/b c"))
    told = (await client.post("/ui/api/read", json={"turn": place, "text": REPLY.replace("3", "4")})).json()
    assert [(call["name"], call["arguments"]) for call in told["reply"]["calls"]] == [("get_weather", {"days": 4})]


@pytest.mark.parametrize(
    "parts",
    [
        ("run", "absent", "a", "b"),
        ("run", RUN.name, "a", "b"),
        ("file", "absent", "a"),
        ("file",),
        ("nothing", "a", "b"),
        ("..",),
    ],
    ids="-".join,
)
async def test_what_is_not_there_is_told(client: httpx.AsyncClient, parts: tuple[str, ...]) -> None:
    answer = await client.get(f"/ui/api/turns/{address(*parts)}")
    assert (answer.status_code, bool(answer.json()["error"]["message"])) == (404, True)
