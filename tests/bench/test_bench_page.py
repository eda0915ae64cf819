"""The report page: complete, self-contained, deaf to hostile text, and usable in a real browser."""

import asyncio
import base64
import hashlib
import html
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xmlcall.bench import funnel
from xmlcall.bench import page as page_module
from xmlcall.bench.case import Case
from xmlcall.bench.page import PROMPT_LIMIT, Shown, page
from xmlcall.bench.report import judged, reported
from xmlcall.bench.runner import execute
from xmlcall.bench.store import create_or_resume
from xmlcall.bench.subjects import stand_in
from xmlcall.bench.ways import Settings, way_of
from xmlcall.types.calls import Tool

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}"
WEATHER = Tool(
    name="get_weather",
    description=f"Tells the weather. {HOSTILE}",
    input_schema={
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
)
NOTE = Tool(name="keep_note", input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})


def case(name: str, question: str, **details: Any) -> Case:
    told = {"category": "simple", "tools": (WEATHER, NOTE), **details}
    return Case(id=name, messages=({"role": "user", "content": question},), **told)


def weather(*cities: str) -> Any:
    return ({"get_weather": {"city": list(cities), "unit": ["", "celsius"]}},)


# The mutator damages by place: as it is, single quotes, unknown tool, in words, cut; the sixth and seventh are as the first.
CASES = [
    case("weather_2", "What is the weather in Oslo?", answers=weather("Oslo", "Oslo, Norway")),
    case("weather_10", f"Weather in Lima? {HOSTILE}", answers=weather("Lima")),
    case('odd "id" <b>', "Weather in Rome?\u202eemor\x00", answers=weather("Rome")),
    case("note_1", "x" * (PROMPT_LIMIT + 1000), answers=({"keep_note": {"text": ["x"]}},), category="notes"),
    case("weather_3", "Weather in Kyiv?", answers=weather("Kyiv"), disputed=True),
    case("hostile_note", "Keep this note.", exact=(("keep_note", {"text": HOSTILE}),), category="notes"),
    case("chat_1", "你好！", expects="no_call", category="no_call"),
]


def shown(folder: Path, subject: str = "mutator", ways: Sequence[str] = ("xml",), **about: Any) -> Shown:
    """Run a stand-in over the cases."""
    settings = Settings()
    told = {"model": subject, "suite": "by hand", "limit": None, "half": "all", "started": "2026-01-02T03:04:05+00:00"}
    cases = about.pop("of", CASES)
    run = create_or_resume(folder, {**told, "ways": list(ways), "settings": settings.to_json(), **about}, cases)
    assert asyncio.run(execute(run, [way_of(name) for name in ways], stand_in(subject, cases))) == 0
    for reply in run.replies:
        number = [each.id for each in cases].index(reply["case"])
        reply["rounds"] = [{**kept, "seconds": 10.0 - number, "first_event_seconds": 0.5} for kept in reply["rounds"]]
    verdicts = asyncio.run(judged(run))
    return run, verdicts, reported(run, verdicts)


def test_every_case_and_number_is_there(tmp_path: Path) -> None:
    text = page([shown(tmp_path / "run")])
    for each in CASES:
        assert html.escape(each.id, quote=True).replace("&quot;", "&#34;") in text
    # As it is, single quotes and the hostile note are right, of six cases that need a call.
    assert '<dd class="big">50.0<small>' in text
    assert "3 of 6" in text
    for word in ("mutator on by hand", "2026-01-02", "unknown_tool", "prose_only", "attribute-style", "Without disputed cases"):
        assert word in text
    assert '<button type="button" data-kind="causes" data-code="wrong_tool" data-column="0"' in text
    assert "It calls another tool." in text
    assert Counter(re.findall('data-causes="(.*?)"', text)) == {"": 4, "wrong_tool": 1, "none": 1, "cut": 1}
    assert "and 1\N{NARROW NO-BREAK SPACE}1" in text  # characters of a prompt that was cut
    assert page([shown(tmp_path / "run")]) == text


def test_replies_and_codes_lead_to_the_page_that_shows_them_span_by_span(tmp_path: Path) -> None:
    text = page([shown(tmp_path / "a run #1")], live="http://127.0.0.1:1/ui/")
    links = set(re.findall(r'href="http://127.0.0.1:1/ui/(.*?)"', text))
    assert "#/recorded/run/a%20run%20%231/weather_3/xml" in links
    assert "#/recorded/run/a%20run%20%231?way=xml&amp;failure=unknown_tool" in links
    assert "#/recorded/run/a%20run%20%231?way=xml&amp;repair=attribute-style" in links
    assert len([link for link in links if "?" not in link]) == len(CASES)
    assert "xmlcall ui &#39;" in text  # the folder's name has a space
    assert "/ui/" not in page([shown(tmp_path / "a run #1")])


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    run, _, _ = shown(tmp_path / "run", model=f"model {HOSTILE}")
    run.replies[0]["rounds"][0]["text"] += f"{HOSTILE}\ud800\u202e\u200b\x1b"
    verdicts = asyncio.run(judged(run))
    text = page([(run, verdicts, reported(run, verdicts))] * 2)
    assert text.encode()
    assert len(re.findall("<script", text)) == len(re.findall("</script", text)) == 1
    assert "<img" not in text
    assert not re.search("[\x00\x1b\u200b\u202e]", text)
    assert r"\ud800\u202e\u200b\u001b" in text
    assert "{{ 7 * 7 }}" in text
    assert not re.search(r"<[^>]+\s(?:on\w+|style)\s*=", without_values(text))


def test_nothing_comes_from_elsewhere(tmp_path: Path) -> None:
    text = page([shown(tmp_path / "run", ways=("xml", "origin"))])
    assert "http://" not in text
    assert "https://" not in text
    assert not re.search(r'\b(?:src|href)="(?!#|data:,")', without_values(text))
    assert not re.search(r"url\((?!#)|@import", text)
    policy = html.unescape(re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[0])
    for tag in ("script", "style"):
        content = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(content) == 1
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")


def without_values(text: str) -> str:
    """The page without attribute values that hold model text, so that what looks like markup in them does not count."""
    return re.sub(r'(?:data-value|aria-label|title)="[^"]*"', "", text)


def test_ways_stand_side_by_side(tmp_path: Path) -> None:
    runs = [shown(tmp_path / "one", ways=("xml", "origin")), shown(tmp_path / "two", "oracle", ways=("xml", "native"))]
    text = page(runs)
    ids = Counter(re.findall(r'\sid="([^"]*)"', text))
    assert [name for name, count in ids.items() if count > 1] == []
    assert text.count('<div class="plot"') == 5  # a funnel for each way, and the comparison
    for label in ("mutator · xml", "mutator · origin", "oracle · xml", "oracle · native"):
        assert f'<span class="label code">{label}</span>' in text


def test_catalog_sizes_are_in_order(tmp_path: Path) -> None:
    sizes = [replace(each, category=f"{size} tools") for each, size in zip(CASES, (64, 8, 64, 8, 512, 512, 8), strict=True)]
    text = page([shown(tmp_path / "run", suite="catalog", of=sizes)])
    assert re.findall('<span class="label code">(.*?)</span>', text) == ["8 tools", "64 tools", "512 tools"]


def test_every_round_is_shown(tmp_path: Path) -> None:
    run, _, _ = shown(tmp_path / "run")
    run.replies[0]["rounds"] *= 2
    run.replies[1]["rounds"] = [{"text": "", "finish_reason": "context_overflow"}]
    verdicts = asyncio.run(judged(run))
    text = page([(run, verdicts, reported(run, verdicts))])
    assert "<h3>Raw reply 2</h3>" in text
    assert 'data-failures="context_overflow"' in text


def test_a_task_of_several_turns_is_shown(tmp_path: Path) -> None:
    tasks = [replace(case(name, "Keep two notes."), expects="task", tools=()) for name in ("right", "wrong")]
    run = create_or_resume(tmp_path / "run", {"ways": ["xml"], "settings": Settings().to_json()}, tasks)
    calls = [{"name": "keep_note", "arguments": {"text": "one"}, "result": HOSTILE, "is_error": False}]
    calls.append({"name": "lose_note", "issues": [{"code": "unknown-tool", "path": "$", "message": "There is no such tool."}]})
    turns = [{"replies": ["first reply", "second reply"], "calls": calls, "stop_reason": "stop"}]
    right = {"valid": True, "failed_turn": None, "error": "", "turns": turns}
    for name, outcome in (("right", right), ("wrong", {**right, "valid": False, "failed_turn": 0, "error": "state"})):
        run.add({"key": name, "case": name, "way": "xml", "rounds": [{"usage": {}, "seconds": 2.5}], "outcome": outcome})
    verdicts = asyncio.run(judged(run))
    text = page([(run, verdicts, reported(run, verdicts))] * 2)
    for words in (
        "Raw reply 2",
        "second reply",
        "→ &lt;/script&gt;",
        "There is no such tool.",
        "The state and the results",
        "2.50",
    ):
        assert words in text
    assert '<dd class="big">50.0<small>' in text
    assert re.findall(r"</svg> ([\w ]+)</span>", text) == ["task correct", "completed"]


def test_a_run_without_replies_is_a_page(tmp_path: Path) -> None:
    text = page([shown(tmp_path / "run", of=[])])
    assert "no case counts for it" in text


def test_every_code_is_explained() -> None:
    template = Path(page_module.__file__).with_name("page.html.j2").read_text(encoding="utf-8")
    codes = {*funnel._ISSUE_CODES.values(), *funnel._JUDGE_CODES.values(), *funnel.METRICS}
    assert [code for code in codes if f'  "{code}": "' not in template] == []


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture
def browser(address: str) -> Iterator[Any]:
    """Chromium; the page is made before, since Playwright keeps an event loop running."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("there is no chromium on the path")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium)
        yield opened
        opened.close()


@pytest.fixture
def address(tmp_path: Path) -> str:
    runs = [shown(tmp_path / "one", ways=("xml", "origin")), shown(tmp_path / "two", "oracle", ways=("xml",))]
    file = tmp_path / "page.html"
    file.write_text(page(runs), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chosen = Path(os.environ.get("XMLCALL_SCREENSHOTS") or tmp_path / "screenshots")
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Any]:
    """The page in a window of a desk's size; whatever it complains of fails the test."""
    window = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    complaints: list[str] = []

    def dismiss(dialog: Any) -> None:
        complaints.append(dialog.message)
        dialog.dismiss()

    def watch(request: Any) -> None:
        if request.url != address:
            complaints.append(request.url)

    window.set_default_timeout(5000)
    window.on("console", lambda message: complaints.append(message.text))
    window.on("pageerror", lambda error: complaints.append(str(error)))
    window.on("dialog", dismiss)
    window.on("request", watch)
    window.goto(address)
    yield window
    assert complaints == []


def ids(window: Any) -> list[str]:
    return [button.inner_text() for button in window.locator(".case:visible .open").all()]


@pytest.mark.full
def test_cases_are_sorted(opened: Any) -> None:
    opened.select_option("#by-column", "0")
    opened.get_by_role("button", name="Case", exact=True).click()
    names = ["chat_1", "hostile_note", "note_1", 'odd "id" <b>', "weather_2", "weather_3", "weather_10"]
    assert ids(opened) == names
    assert opened.locator("#cases th").first.get_attribute("aria-sort") == "ascending"
    opened.get_by_role("button", name="Seconds", exact=True).focus()
    opened.keyboard.press("Enter")
    assert ids(opened) == [each.id for each in reversed(CASES)]
    opened.keyboard.press("Enter")
    assert ids(opened) == [each.id for each in CASES]
    sorting = [head.get_attribute("aria-sort") for head in opened.locator("#cases th").all()]
    assert sorting == ["none"] * 6 + ["descending"]


@pytest.mark.full
def test_cases_are_filtered(opened: Any) -> None:
    assert opened.locator("#shown").inner_text() == "21 replies"
    opened.select_option("#by-column", "0")
    opened.select_option("#by-verdict", "wrong")
    assert ids(opened) == ['odd "id" <b>', "note_1", "weather_3"]
    assert opened.locator("#shown").inner_text() == "3 of 21 replies"
    opened.fill("#by-text", "KYIV simple")
    assert ids(opened) == ["weather_3"]
    opened.fill("#by-text", "nothing like it")
    assert opened.get_by_text("No reply fits.").is_visible()
    opened.click("#clear")
    assert len(ids(opened)) == 21
    opened.locator(".failures button[data-code=unknown_tool][data-column='1']").click()
    assert ids(opened) == ['odd "id" <b>']
    assert opened.locator(".case:visible").get_attribute("data-column") == "1"


@pytest.mark.full
def test_a_case_opens(opened: Any) -> None:
    row = opened.locator(".case", has_text="weather_10").first
    row.locator(".open").press("Enter")
    detail = row.locator(".detail")
    assert row.locator(".open").get_attribute("aria-expanded") == "true"
    assert detail.locator(".raw").inner_text().startswith("<function_calls>\n<invoke name='get_weather'>")
    assert HOSTILE in detail.locator("[data-parts]").last.inner_text()
    assert "attribute-style" in detail.inner_text()
    system = detail.locator("details").first
    system.locator("summary").click()
    assert "## How to call a tool" in system.inner_text()
    assert "#c" in opened.evaluate("location.hash")
    row.locator("td").nth(3).click()
    assert not detail.is_visible()


@pytest.mark.full
def test_hostile_text_opens_as_text(opened: Any) -> None:
    for button in opened.locator(".case .open").all():
        button.click()
    raw = opened.locator(".case", has_text="hostile_note").first.locator(".raw")
    assert HOSTILE in raw.inner_text()
    assert opened.locator("img").count() == 0


@pytest.mark.full
def test_it_fits_a_phone_and_both_themes(opened: Any, folder: Path) -> None:
    def background() -> str:
        return str(opened.evaluate("getComputedStyle(document.body).backgroundColor"))

    opened.locator(".case[data-verdict=wrong] .open").first.click()
    opened.evaluate("scrollTo(0, 0)")
    opened.screenshot(path=folder / "light.png", full_page=True)
    light = background()
    opened.click("#theme")
    dark = background()
    opened.screenshot(path=folder / "dark.png", full_page=True)
    opened.click("#theme")
    assert background() == light != dark
    opened.evaluate("delete document.documentElement.dataset.theme")
    opened.emulate_media(color_scheme="dark")
    assert background() == dark
    opened.emulate_media(color_scheme="light")
    opened.set_viewport_size({"width": 375, "height": 812})
    opened.screenshot(path=folder / "phone.png", full_page=True)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 375
    assert opened.locator(".detail").first.bounding_box()["width"] <= 375
