"""What a person sees of the page, in a browser: said once and in sentences, aligned, large enough, in the chosen language."""

import re
from typing import Any

import pytest
from page_stage import Gate, Program, ScriptedModel, call
from ui.browser.conftest import Open
from ui.browser.test_page_chat import ASKS, asked, said, send
from ui.browser.window import Window

pytestmark = pytest.mark.full  # a browser

PHONE = {"width": 390, "height": 844}
TARGETS = "button, header nav a, .chat-side a, .chat-side label, summary"
SIZES = """(selector) => [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility())
    .map((each) => [each.getBoundingClientRect(), each.getAttribute('aria-label') || each.textContent])
    .map(([box, name]) => [Math.round(Math.min(box.width, box.height)), name])"""
EDGE = """(element) => {
    const light = (colour) => {
        const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((each) => each / 255);
        const linear = parts.map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const style = getComputedStyle(element);
    const [low, high] = [light(style.borderTopColor), light(style.backgroundColor)].sort((one, other) => one - other);
    return (high + 0.05) / (low + 0.05);
}"""


def answered(window: Window, question: str, answer: str | re.Pattern[str]) -> None:
    """Ask, and wait for the end of the turn."""
    send(window, question)
    said(window, answer).first.wait_for()
    window.page.get_by_role("button", name="Send").wait_for()


def left(element: Any) -> float:
    """Give where the text of an element begins, without its padding and its border."""
    return float(
        element.evaluate(
            """(element) => element.getBoundingClientRect().left + element.clientLeft
               + parseFloat(getComputedStyle(element).paddingLeft)"""
        )
    )


def test_the_skip_link_stays_in_its_view(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    page = opened(chatting, "#/try").page
    page.get_by_label("A reply, as a model wrote it").wait_for()
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Format"
    assert page.url.endswith("#/try")


def test_what_is_sent_too_early_is_kept_and_said(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    gate = Gate()
    model.says([gate, "First."])
    window = opened(chatting, "#/chat")
    send(window, "One?")
    gate.wait_reached()
    window.page.get_by_role("button", name="Stop").wait_for()
    send(window, "Two?")
    notice = window.page.get_by_text("Not sent: an answer is under way.")
    notice.wait_for()
    gate.open()
    said(window, "First.").wait_for()
    notice.wait_for(state="hidden")
    assert window.page.get_by_placeholder("Ask something").input_value() == "Two?"


def test_an_ending_is_told_once_and_in_a_sentence(
    opened: Open, chatting: Program, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = opened(chatting, "#/chat")
    monkeypatch.setattr(model.fake, "refusal", (500, {"error": {"message": "out of memory"}}))
    answered(window, "Does it fail?", re.compile("out of memory"))
    shown = window.page.locator(".chat-turn").inner_text()
    assert len(re.findall("error", shown)) == 0, shown  # the message says it
    monkeypatch.setattr(model.fake, "refusal", None)
    model.says("The fox jumps over the dog. " * 20)
    answered(window, "Does it repeat?", "The model repeated itself and was stopped.")
    buttons = [window.page.locator(".chat-turn").nth(place).get_by_role("button").first.inner_text() for place in (0, 1)]
    assert buttons == ["Ask again", "Regenerate"]


def test_a_call_that_is_opened_shows_nothing_twice(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(ASKS, call("get_weather", town="Paris"), "Done.")
    window = opened(chatting, "#/chat")
    asked(window).get_by_role("button", name="No", exact=True).click()
    window.page.get_by_role("button", name="Do not run it").click()
    said(window, "Done.").wait_for()
    denied, rejected = (window.page.locator(".call-line").nth(place) for place in (0, 1))
    assert denied.inner_text().count("denied") == 1
    rejected.locator("summary").first.click()
    rejected.get_by_text("missing-argument").wait_for()
    assert rejected.inner_text().count("is required") == 1


def test_a_conversation_has_one_legend_and_dates_of_the_chosen_language(
    opened: Open, chatting: Program, model: ScriptedModel
) -> None:
    model.says("One.", "Two.")
    window = opened(chatting, "#/chat")
    answered(window, "First of two?", "One.")
    answered(window, "Second of two?", "Two.")
    page, conversation = window.page, window.page.url.rpartition("/")[2]
    page.goto(f"{chatting.origin}/ui/#/recorded/conversation/{conversation}")
    page.locator(".reply").nth(1).wait_for()
    assert page.locator(".legend").filter(visible=True).count() == 1
    facts = page.locator(".turn-facts").first
    assert re.search(r"\d [A-Z][a-z]+ \d{4}", facts.inner_text())
    page.get_by_role("button", name="中文").click()
    page.get_by_role("heading", name="回复").first.wait_for()
    assert re.search(r"\d{4}年\d+月\d+日", facts.inner_text())


@pytest.mark.parametrize(("least", "options"), [(24, {}), (40, {"viewport": PHONE})], ids=["desk", "phone"])
def test_what_is_pressed_is_large_enough(
    opened: Open, chatting: Program, model: ScriptedModel, least: int, options: dict[str, Any]
) -> None:
    model.says(ASKS, "Mild.")
    window = opened(chatting, "#/chat", **options)
    card = asked(window)
    targets = window.page.evaluate(SIZES, TARGETS)
    if least == 40:
        window.page.get_by_role("button", name="Conversations and tools").click()
        window.page.get_by_role("checkbox").first.wait_for()
        targets = [each for each in targets if each[1] != "location"] + window.page.evaluate(
            SIZES, ".chat-side a, .chat-side label"
        )
        window.page.keyboard.press("Escape")
    assert len(targets) > 10
    assert [each for each in targets if each[0] < least] == []
    card.get_by_role("button", name="Yes").click()
    said(window, "Mild.").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_edges_of_fields_are_seen_and_beginnings_are_aligned(
    opened: Open, chatting: Program, model: ScriptedModel, scheme: str
) -> None:
    window = opened(chatting, "#/try", color_scheme=scheme, viewport=PHONE)
    page = window.page
    page.locator(".call").wait_for()
    for field in page.locator("textarea, select").filter(visible=True).all():
        assert field.evaluate(EDGE) >= 3
    assert left(page.locator("main h1")) == left(page.locator("main label.column"))
    table = page.locator(".values")
    assert abs(left(table.locator("th").first) - left(table.locator("button.path").first)) < 1


def test_a_list_says_what_is_known_and_cuts_none_of_it_on_a_phone(
    opened: Open, chatting: Program, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = opened(chatting, "#/chat", viewport=PHONE)
    page = window.page
    model.says("Fine.")
    answered(window, "Is the list read?", "Fine.")
    monkeypatch.setattr(model.fake, "refusal", (500, {"error": {"message": "out of memory"}}))
    answered(window, "And of a failure?", re.compile("out of memory"))
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Live").click()
    rows = page.locator(".list a")
    rows.filter(has_text="Is the list read?").wait_for()
    assert "412 tokens read · 1 token written" in rows.filter(has_text="Is the list read?").first.inner_text()
    assert "–" not in rows.first.inner_text()
    assert page.evaluate("[...document.querySelectorAll('.list .soft')].every((each) => each.scrollWidth <= each.clientWidth)")
    rows.first.click()
    page.locator(".turn-facts").wait_for()
    assert page.locator("header [aria-current=page]").inner_text() == "Live"
