"""The page's server: who is let in, what it sends, what it answers."""

import asyncio
import gzip
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from xmlcall.dialects import DIALECTS
from xmlcall.errors import REPAIRS, UsageError
from xmlcall.proxy.http.access import Guard
from xmlcall.turn.events import ReplyStarted
from xmlcall.turn_records.builder import Recorder
from xmlcall.turn_records.record import whys
from xmlcall.types.calls import Tool
from xmlcall.types.events import TextDelta
from xmlcall.ui import app as ui_app
from xmlcall.ui.access import _POLICY, CODE_SECONDS, SESSION_SECONDS, Entry, kept_secret
from xmlcall.ui.api import ShownPage, change, merged, turn_events
from xmlcall.ui.app import UiPage, app_of_page, page_of

URL = "http://127.0.0.1:8486"
STATIC = Path(ui_app.__file__).parent / "static"
OURS = sorted(file for file in STATIC.glob("*.js"))
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "dialects.md").read_text(encoding="utf-8")
[FORMAT] = re.findall(r'```toml\n(name = "square".*?)```', PAGE, flags=re.DOTALL)
WEATHER = {"name": "get_weather", "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}}}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def page(recorder: Recorder) -> UiPage:
    about = {"version": "0", "model": "tiny"}
    return page_of(ShownPage(recorder=recorder, about=lambda: about, url=URL, instance="one"), Guard())


@pytest.fixture
async def client(page: UiPage) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that was given the address."""
    transport = httpx.ASGITransport(app=app_of_page(page))
    async with httpx.AsyncClient(transport=transport, base_url=URL) as browser:
        await browser.get("/ui/", params={"token": page.entry.token})
        yield browser


def stranger(page: UiPage, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app_of_page(page)), base_url=URL, **options)


# -- the door ----------------------------------------------------------------------------------------------------------


async def test_the_token_becomes_a_cookie_that_no_script_and_no_other_site_has(page: UiPage) -> None:
    async with stranger(page) as browser:
        answer = await browser.get("/ui/", params={"token": page.entry.token})
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "8486" in cookie.partition("=")[0]
        assert (await browser.get("/ui/")).status_code == 200


@pytest.mark.parametrize("path", ["", "index.html", "static/app.js", "api/about", "api/turns", "api/events", "nothing"])
async def test_without_the_token_nothing_is_shown(page: UiPage, path: str) -> None:
    async with stranger(page) as browser:
        for given in ({}, {"token": "wrong"}, {"token": ""}, {"token": page.entry.token[:-1]}, {"token": "\udcff"}):
            answer = await browser.get(f"/ui/{path}", params={k: v.encode("utf-8", "replace") for k, v in given.items()})
            assert answer.status_code == 403
            assert page.entry.token not in answer.text
            assert "set-cookie" not in answer.headers


OTHER_ORIGINS = [
    *("http://evil.example", "null", "", f"{URL}/", URL.replace("http", "https"), "moz-extension://9d6c", "app://localhost"),
    *("chrome-extension://aaaabbbbccccddddeeeeffffgggghhhh", "vscode-webview://x", "tauri://127.0.0.1:8486"),
    "http://127.0.0.1:9999",
]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        *(({}, 200), ({"origin": URL}, 200), ({"sec-fetch-site": "same-origin"}, 200)),
        ({"host": "localhost:8486", "origin": "http://localhost:8486"}, 403),  # the cookie is of the other name
        *(({"origin": origin}, 403) for origin in OTHER_ORIGINS),
        ({"host": "evil.example:8486"}, 403),
        *(({"sec-fetch-site": site}, 403) for site in ("cross-site", "same-site")),
    ],
)
async def test_only_the_page_itself_may_ask(client: httpx.AsyncClient, headers: dict[str, str], status: int) -> None:
    body = json.dumps({"text": "x", "tools": []})
    if headers.get("host", "").startswith("localhost"):
        client.cookies.clear()
    for method, path in (("GET", "/ui/api/about"), ("POST", "/ui/api/read")):
        answer = await client.request(
            method, path, headers={"content-type": "application/json", **headers}, content=body if method == "POST" else None
        )
        assert answer.status_code == status, (method, answer.text)


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_what_a_form_can_send_changes_nothing(client: httpx.AsyncClient, media_type: str) -> None:
    answer = await client.post("/ui/api/read", content=b"{}", headers={"content-type": media_type})
    assert answer.status_code == 415


@pytest.mark.parametrize("path", ["", "static/app.js", "static/none.js", "api/about", "api/turns/none", "nothing"])
async def test_the_policy_is_on_every_answer(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(f"/ui/{path}")
    assert answer.headers["content-security-policy"] == _POLICY
    assert "'unsafe" not in _POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "/etc/passwd", "vendor/../../app.py", ".hidden.js", "x.py", "vendor"]
)
async def test_no_other_file_is_served(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(f"/ui/static/{path}")
    assert answer.status_code == 404
    assert "import" not in answer.text


def test_what_signs_sessions_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    secret, file = kept_secret(tmp_path), tmp_path / "page-secret"
    assert kept_secret(tmp_path) == secret
    assert file.stat().st_mode & 0o777 == 0o600
    for bad in ("", "short", "x" * 40 + " y", "\u4f60" * 40):
        file.write_text(bad, encoding="utf-8")
        with pytest.raises(UsageError, match="delete that file"):
            kept_secret(tmp_path)


def _readable(file: Path) -> None:
    file.chmod(0o640)


def _linked(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("change", [_readable, _linked, _fifo])
def test_a_secret_that_others_may_know_signs_nothing(tmp_path: Path, change: Callable[[Path], None]) -> None:
    kept_secret(tmp_path)
    change(tmp_path / "page-secret")
    with pytest.raises(UsageError, match="delete that file"):
        kept_secret(tmp_path)


# -- sessions ----------------------------------------------------------------------------------------------------------

SECRET = "a-secret-that-is-kept-in-a-file-of-records"


def session_of(page: UiPage, port: int = 8486) -> dict[str, str]:
    return {"cookie": f"xmlcall_page_{port}={page.entry.session()}"}


def kept_page(recorder: Recorder, url: str = URL) -> UiPage:
    about = {"version": "0", "model": "tiny"}
    return page_of(ShownPage(recorder=recorder, about=lambda: about, url=url, instance="one"), Guard(), secret=SECRET)


async def test_neither_address_nor_cookie_holds_the_secret_and_the_cookie_not_the_token(recorder: Recorder) -> None:
    page = kept_page(recorder)
    async with stranger(page) as browser:
        answer = await browser.get("/ui/", params={"token": page.entry.token})
        cookie = answer.headers["set-cookie"]
        assert f"Max-Age={SESSION_SECONDS};" in cookie
        assert "Path=/ui;" in cookie
        assert page.entry.token not in cookie
        for said in (page.address(URL), page.address_for_once(URL), cookie):
            assert SECRET not in said
        for wrong in (SECRET, browser.cookies["xmlcall_page_8486"]):
            assert (await browser.get("/ui/", params={"token": wrong})).status_code == 403


async def test_a_session_is_found_by_the_next_program_on_its_port_and_by_no_other(recorder: Recorder) -> None:
    page = kept_page(recorder)
    headers = session_of(page)
    async with stranger(kept_page(recorder)) as again:
        assert (await again.get("/ui/api/about", headers=headers)).status_code == 200
        assert (await again.get("/ui/", params={"token": page.entry.token})).status_code == 403
    there = kept_page(recorder, "http://127.0.0.1:9000")
    async with stranger(there) as elsewhere:
        for port in (8486, 9000):
            assert (await elsewhere.get("/ui/api/about", headers=session_of(page, port))).status_code == 403
        assert (await elsewhere.get("/ui/api/about", headers=session_of(there, 9000))).status_code == 200


@pytest.mark.parametrize("change", [lambda s: f"9{s}", lambda s: s[:-1], lambda s: f".{s}", lambda s: "", lambda s: s.upper()])
async def test_a_session_that_was_changed_is_none(page: UiPage, change: Callable[[str], str]) -> None:
    async with stranger(page) as browser:
        cookie = f"xmlcall_page_8486={change(page.entry.session())}"
        assert (await browser.get("/ui/api/about", headers={"cookie": cookie})).status_code == 403


def test_a_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, now = Entry(8486), time.time()
    session = entry.session()
    monkeypatch.setattr(time, "time", lambda: now + SESSION_SECONDS - 2)
    assert entry.is_session(session)
    monkeypatch.setattr(time, "time", lambda: now + SESSION_SECONDS + 1)
    assert not entry.is_session(session)


async def test_the_address_of_a_browser_opens_the_page_once(page: UiPage) -> None:
    address = page.address_for_once(URL)
    assert page.entry.token not in address
    async with stranger(page) as browser:
        assert (await browser.get(address)).status_code == 303
        assert (await browser.get("/ui/")).status_code == 200
    async with stranger(page) as other:
        assert (await other.get(address)).status_code == 403


def test_an_address_of_a_browser_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, now = Entry(8486), time.time()
    codes = [entry.code(), entry.code()]
    assert entry.opens(codes[0])
    monkeypatch.setattr(time, "time", lambda: now + CODE_SECONDS + 1)
    assert not entry.opens(codes[1])


# -- the files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.name)
def test_no_text_becomes_markup(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|setHTML"
    assert not re.search(forbidden, text)


def test_the_page_runs_no_inline_script_and_asks_nobody_else() -> None:
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=", text)
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", text)


def test_the_files_are_small_together() -> None:
    files = [file for file in STATIC.rglob("*") if file.suffix in (".js", ".css", ".html", ".svg")]
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) < 150_000


def test_libraries_have_their_licence_and_version() -> None:
    told = (STATIC / "vendor" / "README.md").read_text(encoding="utf-8")
    for file in (STATIC / "vendor").glob("*.js"):
        assert f"`{file.name}`" in told
        assert (file.with_suffix(".LICENSE.txt")).exists()


def words_of(name: str) -> set[str]:
    return set(re.findall(r"""["']?([\w.?-]+(?: over)?)["']?: (?=["'`])""", (STATIC / name).read_text(encoding="utf-8")))


def test_every_word_is_there_in_both_languages() -> None:
    english = words_of("i18n_en.js")
    assert len(english) > 60
    assert english == words_of("i18n_zh.js")


def test_no_code_means_two_things() -> None:
    """A call in reasoning that was taken ran; one that is lost there did not."""
    assert whys()["repairs"].items() >= REPAIRS.items()


def test_every_code_is_told_in_chinese() -> None:
    assert words_of("i18n_codes_zh.js") == {code for codes in whys().values() for code in codes}


# -- what is asked for -------------------------------------------------------------------------------------------------


async def test_a_text_is_read_anew(client: httpx.AsyncClient) -> None:
    text = '<invoke name="get_weather"><parameter name="city">Paris</parameter></invoke>'
    answer = await client.post("/ui/api/read", json={"text": text, "tools": [WEATHER]})
    reply = answer.json()["reply"]
    assert [(call["name"], call["arguments"]) for call in reply["calls"]] == [("get_weather", {"city": "Paris"})]
    spans = reply["spans"]
    assert [spans[0]["start"], spans[-1]["end"]] == [0, len(text)]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "text"),
        ({"text": 1}, "text"),
        ({"text": "x", "tools": "y"}, "tools"),
        ({"text": "x", "tools": [1]}, "tools"),
        ({"text": "x", "tools": [], "dialect": "none"}, "dialect"),
        ({"text": "x", "turn": "none"}, "none"),
        ([], "JSON object"),
    ],
)
async def test_what_cannot_be_read_is_told(client: httpx.AsyncClient, body: Any, said: str) -> None:
    answer = await client.post("/ui/api/read", json=body)
    assert 400 <= answer.status_code < 500
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize("make", [Path.touch, lambda file: file.write_text(FORMAT), lambda _: None])
async def test_a_format_is_no_path(client: httpx.AsyncClient, tmp_path: Path, make: Callable[[Path], Any]) -> None:
    file, known = tmp_path / "row.toml", dict(DIALECTS)
    make(file)
    answer = await client.post("/ui/api/read", json={"text": "x", "dialect": str(file)})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith(f"expected the name of a wire format, got '{str(file)[:40]}")
    assert known == DIALECTS


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "\x1b[31m\u202e<script>alert(1)</script>", '\ud83d "half" \udc00', "<invoke " * 20_000]
)
async def test_any_text_is_read(client: httpx.AsyncClient, text: str) -> None:
    answer = await client.post(
        "/ui/api/read", content=json.dumps({"text": text, "tools": [WEATHER]}), headers={"content-type": "application/json"}
    )
    assert json.loads(answer.text)["reply"]["raw"] == text


async def test_a_body_has_a_limit(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/ui/api/read", content=b'"' + b"x" * 9_000_000 + b'"', headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413


async def test_turns_are_listed_newest_first_and_page_by_page(client: httpx.AsyncClient, recorder: Recorder) -> None:
    for number in range(25):
        builder = recorder.begin(question=f"question {number}", model="tiny", client="curl" if number % 2 else "aider")
        builder.end("error" if number == 3 else "end", error="broken" if number == 3 else "")
        recorder.done(builder)
    first = (await client.get("/ui/api/turns", params={"limit": 10})).json()
    rest = (await client.get("/ui/api/turns", params={"limit": 100, "before": first["turns"][-1]["id"]})).json()
    assert [row["question"] for row in (*first["turns"], *rest["turns"])] == [
        f"question {number}" for number in reversed(range(25))
    ]
    assert (first["more"], rest["more"]) == (True, False)
    assert [row["question"] for row in (await client.get("/ui/api/turns?only=errors")).json()["turns"]] == ["question 3"]
    assert len((await client.get("/ui/api/turns?text=AIDER")).json()["turns"]) == 13
    assert (await client.get("/ui/api/turns?only=most")).status_code == 400


async def test_a_turn_is_shown_and_copied(client: httpx.AsyncClient, recorder: Recorder) -> None:
    builder = recorder.begin(question="Hello", model="tiny", tools=[Tool.from_mcp(WEATHER)])
    builder.note(ReplyStarted(number=1))
    builder.wrote("Hi there")
    builder.note(TextDelta(text="Hi there", span=(0, 8)))
    found = (await client.get(f"/ui/api/turns/{builder.id}")).json()
    assert (found["question"], found["replies"][0]["raw"]) == ("Hello", "Hi there")
    for kind, holds in (("curl", URL), ("corpus", "Hi there"), ("bench", "Hello")):
        assert holds in (await client.get(f"/ui/api/turns/{builder.id}/copy?as={kind}")).text
    for bad in ("as=html", "as=curl&reply=2", "as=curl&reply=x"):
        assert 400 <= (await client.get(f"/ui/api/turns/{builder.id}/copy?{bad}")).status_code < 500
    assert (await client.get("/ui/api/turns/none")).status_code == 404


# -- what is told ------------------------------------------------------------------------------------------------------


async def test_a_long_reply_is_told_piece_by_piece(recorder: Recorder) -> None:
    builder = recorder.begin(question="Long")
    builder.note(ReplyStarted(number=1))
    told: list[tuple[str, Any]] = []

    async def follow() -> None:
        told.extend([each async for each in turn_events(recorder, builder.id)])

    task = asyncio.create_task(follow())
    text = ""
    for _ in range(3):
        await asyncio.sleep(0.25)
        piece = "word " * 1000
        builder.wrote(piece)
        builder.note(TextDelta(text=piece, span=(len(text), len(text) + len(piece))))
        text += piece
        recorder.changed(builder)
    await asyncio.sleep(0.25)
    builder.end("end", answer=text)
    recorder.done(builder)
    await asyncio.wait_for(task, 10)
    names = [name for name, _ in told]
    assert names[0] == "turn"
    assert names[-1] == "end"
    assert "delta" in names
    pieces = [data for name, data in told if name == "delta"]
    assert max(len(json.dumps(data)) for data in pieces) < 2 * len("word " * 1000)


async def test_a_turn_that_ends_right_after_the_first_look_is_told(recorder: Recorder) -> None:
    builder = recorder.begin(question="Hi?")
    events = turn_events(recorder, builder.id)
    assert (await anext(events))[0] == "turn"
    builder.end("end", answer="Hello.")  # no other task has run since
    recorder.done(builder)
    async with asyncio.timeout(5):
        told = [each async for each in events]
    assert [name for name, _ in told] == ["turn", "end"]
    assert told[0][1]["answer"] == "Hello."


def test_nothing_new_is_not_told(recorder: Recorder) -> None:
    builder = recorder.begin(question="x")
    record = builder.record()
    assert change(None, record) is not None
    assert change(record, record) is None


async def test_streams_show_that_they_live_and_end_together() -> None:
    closed = []

    async def quiet() -> AsyncIterator[tuple[str, Any]]:
        try:
            await asyncio.sleep(60)
            yield "never", {}
        finally:
            closed.append("quiet")

    async def one() -> AsyncIterator[tuple[str, Any]]:
        yield "first", {}
        await asyncio.sleep(0.05)

    assert [each async for each in merged(quiet(), one(), every=0.02)][:2] == [("first", {}), None]
    assert closed == ["quiet"]
