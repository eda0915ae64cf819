"""Whoever says it, text stays text: a chat, in a browser, whose person, model, tool and errors are hostile. And in Chinese."""

import re
from typing import Any

import pytest
from page_stage import Program, ScriptedModel, call
from ui.browser.conftest import Open
from ui.browser.test_page_chat import CARD, said, send
from ui.browser.test_page_serve import HOSTILE

pytestmark = pytest.mark.full  # a browser

KEPT = "<script>window.hit = 1</script>"
LONG = " ".join(map(str, range(170_000)))


def is_unhurt(page: Any) -> bool:
    """Say whether nothing of the text became a part of the page."""
    return bool(
        page.evaluate(
            "window.hit === undefined && !document.querySelector('main script, main img[onerror], main a[href^=javascript]')"
        )
    )


def test_everybody_in_a_chat_is_hostile(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    answer = f"{HOSTILE} [x](javascript:window.hit=9) **The end.**"  # asked for again, since the call failed and nobody said 9
    model.says(f"{HOSTILE}\n{call('get_weather', location=HOSTILE)}", answer, answer)
    window = opened(chatting, "#/chat")
    page = window.page
    send(window, HOSTILE)
    card = page.get_by_role("group", name=CARD)
    card.wait_for()
    assert KEPT in card.inner_text()
    card.get_by_role("button", name="Yes").click()
    page.locator(".answer strong", has_text="The end.").wait_for()
    assert KEPT in page.locator(".answer").last.inner_text()
    page.get_by_role("button", name="Inspect").click()
    page.locator(".chat-turn .reply").nth(1).wait_for()
    assert "\u202e" not in page.locator("main").inner_text()
    assert "\x1b" not in page.locator("main").inner_text()
    assert is_unhurt(page)


def test_a_call_that_cannot_run_is_hostile(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(call("calculator", operation=KEPT, a=KEPT, b="2"), f"No. {KEPT}")
    window = opened(chatting, "#/chat")
    send(window, "What now?")
    said(window, "No. ").first.wait_for()
    assert is_unhurt(window.page)


def test_a_megabyte_is_said_in_a_chat(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(LONG)
    window = opened(chatting, "#/chat")
    send(window, "Say much.")
    window.page.wait_for_function("() => document.querySelector('.answer')?.textContent.length > 900000", timeout=30_000)
    assert is_unhurt(window.page)


def test_the_page_speaks_chinese(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(call("calculator", operation="multiply", a="6", b="7"), "是 42。")
    window = opened(chatting, "#/chat", locale="zh-CN")
    page = window.page
    page.get_by_placeholder("请提问").fill("六乘七是多少?")
    page.keyboard.press("Enter")
    page.locator(".approval, [role=group]:has(button)").last.wait_for()
    page.keyboard.press("y")
    said(window, "是 42。").wait_for()
    for view in ("live", "recorded", "try"):
        page.goto(f"{chatting.origin}/ui/#/{view}")
        page.locator("main h1").first.wait_for()
        shown = page.locator("body").inner_text()
        assert re.search("[\u4e00-\u9fff]", shown)
        assert not re.search(r"\b(view|recorded|try|chat|filter|only|copy)\.[a-z_]+\b", shown), "a word without its translation"


def test_keys_alone_lead_from_the_address_to_an_allowed_call(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(call("get_weather", location="Oslo"), "It is cold there.")
    window = opened(chatting)
    page = window.page
    page.get_by_placeholder("Ask something").wait_for()
    for _ in range(40):
        if page.evaluate("document.activeElement.tagName === 'TEXTAREA'"):
            break
        page.keyboard.press("Tab")
    page.keyboard.type("How is the weather in Oslo?")
    page.keyboard.press("Enter")
    page.get_by_role("group", name=CARD).wait_for()
    page.keyboard.press("y")
    said(window, "It is cold there.").wait_for()


def test_a_turn_of_ones_own_is_asked_in_another_way(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says("A plain answer.")
    window = opened(chatting, "#/chat")
    send(window, "Hello?")
    said(window, "A plain answer.").wait_for()
    page = window.page
    page.get_by_role("button", name="Inspect").click()
    page.get_by_role("button", name="Try").first.click()
    page.get_by_label("A reply, as a model wrote it").wait_for()
    boxes = page.locator("main section input[type=checkbox]")
    boxes.first.wait_for()
    for place in range(boxes.count()):
        boxes.nth(place).set_checked(place == 0)
    model.says(call("get_weather", location="Bergen"))
    page.locator("main section button.main").click()
    page.get_by_text("Bergen").first.wait_for()
