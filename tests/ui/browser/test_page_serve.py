"""The page beside a proxy, in a browser: what a real client asks is seen as it comes, whatever the model writes."""

import hashlib
import re
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from page_stage import ROOT, Gate, Program, ScriptedModel, call
from ui.browser.conftest import Open

pytestmark = pytest.mark.full  # a browser

AXE = ROOT / "tests" / "servers" / "node_modules" / "axe-core" / "axe.min.js"
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
HOSTILE = (
    "<script>window.hit = 1</script><img src=x onerror='window.hit = 2'><a href='javascript:window.hit=3'>x</a>"
    "\x1b[31mred\x1b[0m \u202eevil\u202c zero\u200bwidth \x00 [x](javascript:alert(1))\n"
)


def ask(of: Program, question: str, *, is_streamed: bool = False) -> httpx.Response:
    """Ask as a client would."""
    body = {"model": "x", "messages": [{"role": "user", "content": question}], "stream": is_streamed}
    body["tools"] = [{"type": "function", "function": WEATHER}]
    return httpx.post(f"{of.origin}/v1/chat/completions", json=body, timeout=30)


def test_a_repaired_call_is_explained(opened: Open, serving: Program, model: ScriptedModel) -> None:
    model.says(call("get_weather", city="Paris", days='"3"'))
    ask(serving, "How will the weather in Paris be for 3 days?")
    page = opened(serving, "#/live").page
    page.get_by_role("link", name=re.compile("How will the weather")).click()
    card = page.get_by_role("article", name="Call of get_weather")
    card.get_by_text("json-double-encoding").first.wait_for()
    assert "A string that holds JSON was read as that JSON." in card.inner_text()
    assert "handed to the client" in card.inner_text()
    row = card.get_by_role("row", name=re.compile("^days"))
    assert "the person" in row.inner_text()
    row.get_by_role("button").focus()
    assert page.locator(".raw .piece.value.marked").inner_text() == '"3"'
    row.get_by_role("button").click()
    assert page.locator(".prompt mark").inner_text() == "3"


def test_a_reply_is_seen_while_it_is_written(opened: Open, serving: Program, model: ScriptedModel) -> None:
    gate = Gate()
    model.says(["It begins ", gate, "and ends."])
    client = threading.Thread(target=ask, args=(serving, "Slowly, please"), kwargs={"is_streamed": True})
    window = opened(serving, "#/live")
    client.start()
    gate.wait_reached()
    window.page.get_by_role("link", name=re.compile("Slowly, please")).click()
    window.page.get_by_text("It begins").wait_for()
    assert window.page.get_by_text("being written").count()
    gate.open()
    window.page.get_by_text("It begins and ends.").wait_for()
    window.page.locator(".turn-facts .chip.good").wait_for()
    client.join(10)


def test_what_a_model_writes_stays_text(opened: Open, serving: Program, model: ScriptedModel) -> None:
    model.says(HOSTILE + call("get_weather", city=HOSTILE))
    ask(serving, HOSTILE)
    page = opened(serving, "#/live").page
    page.locator(".list a").first.click()
    raw = page.locator(".raw")
    raw.wait_for()
    shown = raw.inner_text()
    assert "<script>window.hit = 1</script>" in shown
    assert "␛[31mred" in shown
    assert "⟨U+202E⟩evil" in shown
    assert "zero⟨U+200B⟩width" in shown
    assert page.evaluate("window.hit") is None
    assert page.locator("main script, main img, main a[href^=javascript]").count() == 0


def test_a_megabyte_is_shown(opened: Open, serving: Program, model: ScriptedModel) -> None:
    lines = "".join(f"line {number} {hashlib.sha256(str(number).encode()).hexdigest()}\n" for number in range(14_000))
    model.says(lines)
    ask(serving, "A megabyte")
    page = opened(serving, "#/live").page
    page.locator(".list a").first.click()
    page.get_by_text("line 0 5feceb66").first.wait_for()
    assert page.locator(".raw .block").count() <= 60
    page.get_by_role("button", name=re.compile("more characters")).click()
    assert page.locator(".raw .block").count() > 60


def test_the_page_finds_a_program_that_was_started_again(opened: Open, serving: Program, model: ScriptedModel) -> None:
    window = opened(serving, "#/live")
    window.bears("console, error")
    model.says("Before")
    ask(serving, "Asked before")
    window.page.get_by_text("Asked before").wait_for()
    serving.end()
    window.page.get_by_text("does not answer").wait_for()
    serving.restart()
    model.says("After")
    ask(serving, "Asked after")
    window.page.get_by_text("Asked after").wait_for()  # the page came back by itself
    assert window.page.get_by_text("does not answer").is_hidden()
    window.page.get_by_text("Asked before").wait_for(state="hidden")


VIEWS = ("#/live", "#/try", "turn")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_views_are_accessible_and_fit_a_phone(opened: Open, serving: Program, model: ScriptedModel, scheme: str) -> None:
    model.says("Let me see.\n" + call("get_weather", city="Paris", days='"3"', extra="x" * 90))
    model.says(call("get_weather", city="Paris"))
    ask(serving, "Weather?")
    window = opened(
        serving, "#/live", color_scheme=scheme, viewport={"width": 375, "height": 800}, bypass_csp=True, locale="zh-CN"
    )
    window.bears("console")
    for view in VIEWS:
        if view == "turn":
            window.page.goto(f"{serving.origin}/ui/#/live")
            window.page.locator(".list a").first.click()
        else:
            window.page.goto(f"{serving.origin}/ui/{view}")
        window.page.locator("main h1").wait_for()
        window.page.wait_for_timeout(300)
        assert window.page.evaluate("document.documentElement.scrollWidth") <= 375, view
        assert serious(window.page) == [], view
    model.forget()


def serious(page: Any) -> list[str]:
    """Return what axe finds that keeps people out."""
    if not page.evaluate("typeof axe !== 'undefined'"):
        page.add_script_tag(path=str(AXE))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0].get('failureSummary', '')[:300]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def test_the_keyboard_is_enough(opened: Open, serving: Program, model: ScriptedModel) -> None:
    for number in range(3):
        model.says(f"Answer {number}")
        ask(serving, f"Question {number}")
    page = opened(serving, "#/live").page
    page.get_by_text("Question 2").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_text("Answer 1").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.get_by_label("A reply, as a model wrote it").wait_for()
    page.keyboard.press("?")  # nothing has the focus, so it is no letter of a text
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")


def test_an_edited_text_is_read_at_once(opened: Open, serving: Program, model: ScriptedModel) -> None:
    page = opened(serving, "#/try").page
    text = page.get_by_label("A reply, as a model wrote it")
    page.get_by_role("article", name="Call of get_weather").wait_for()
    text.fill('<tool_call>{"name": "get_weather", "arguments": {"town": "Oslo"}}</tool_call>')
    page.get_by_text("missing-argument").first.wait_for()
    text.fill("No call at all.")
    page.get_by_text("There is no call in this text.").wait_for()


def test_without_the_token_the_page_says_what_to_do(opened: Open, serving: Program, tmp_path: Path) -> None:
    answer = httpx.get(f"{serving.origin}/ui/")
    assert answer.status_code == 403
    assert "open the address" in answer.json()["error"]["message"]
    assert serving.token not in answer.text
