"""A conversation in the page, in a browser: what is waited for, what stands around it, and that it is at hand again."""

import re
from typing import Any

import pytest
from page_stage import Gate, Program, ScriptedModel, call
from ui.browser.conftest import Open
from ui.browser.test_page_chat import ASKS, asked, said, send
from ui.browser.test_page_serve import serious

pytestmark = pytest.mark.full  # a browser

PHONE = {"width": 375, "height": 667}


def test_what_is_waited_for_is_seen_at_once_and_after_a_yes(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    first, second = Gate(), Gate()
    model.says([(128, 749), (677, 749), first, ASKS], [(700, 802), second, "It is mild."])
    window = opened(chatting, "#/chat")
    send(window, "What is the weather in Paris?")
    window.page.locator(".life").wait_for()
    said(window, "Reading the prompt, 677 of 749 tokens").wait_for()
    first.open()
    window.page.get_by_role("button", name="Yes").click()
    said(window, "Reading the prompt, 700 of 802 tokens").wait_for()
    second.open()
    said(window, "It is mild.").wait_for()
    window.page.locator(".life").wait_for(state="detached")


def test_a_server_that_tells_no_progress_is_waited_for_with_the_seconds(
    opened: Open, chatting: Program, model: ScriptedModel
) -> None:
    gate = Gate()
    model.says([gate, "Here."])
    window = opened(chatting, "#/chat")
    held: list[Any] = []
    window.page.route("**/ui/api/chat", lambda route: held.append(route))
    send(window, "Are you there?")
    said(window, "Waiting for the model").wait_for()  # before the program has said anything
    assert said(window, "Are you there?").count() == 1
    held[0].continue_()
    said(window, re.compile("Waiting for the model, [1-9]")).wait_for()
    window.page.reload()
    said(window, re.compile("Waiting for the model, [1-9]")).wait_for()  # a page that comes later knows since when
    gate.open()
    said(window, "Here.").wait_for()


def test_a_question_that_is_not_taken_is_told_and_not_lost(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    window = opened(chatting, "#/chat")
    window.bears("console, error")
    window.page.route("**/ui/api/chat", lambda route: route.abort())
    send(window, "Keep this")
    window.page.get_by_role("alert").wait_for()
    assert window.page.get_by_placeholder("Ask something").input_value() == "Keep this"
    assert window.page.locator(".life").count() == 0


def test_on_a_phone_yes_and_no_are_above_the_composer(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(call("text_analyzer", text=" ".join(f"line {number}" for number in range(200))), "Counted.")
    window = opened(chatting, "#/chat", viewport=PHONE)
    card = asked(window, "Count this")
    window.page.wait_for_timeout(300)
    composer = window.page.locator(".chat-input").bounding_box()
    assert card.bounding_box()["height"] > window.page.get_by_role("log").bounding_box()["height"]  # it does not fit
    for name in ("Yes", "No"):
        box = card.get_by_role("button", name=name, exact=True).bounding_box()
        assert 0 < box["y"] < box["y"] + box["height"] <= composer["y"]
        assert box["height"] >= 40
    assert composer["y"] + composer["height"] <= PHONE["height"]
    card.get_by_role("button", name="Yes").click()
    said(window, "Counted.").wait_for()


def test_who_writes_keeps_the_focus_when_a_question_comes(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    gate = Gate()
    model.says([gate, ASKS], "Mild.")
    window = opened(chatting, "#/chat")
    send(window, "What is the weather in Paris?")
    gate.wait_reached()
    window.page.keyboard.type("ya")
    gate.open()
    window.page.get_by_role("button", name="Yes").wait_for()
    window.page.keyboard.type("ya")
    assert window.page.get_by_placeholder("Ask something").input_value() == "yaya"
    window.page.get_by_role("button", name="Yes").click()
    said(window, "Mild.").wait_for()


def test_a_conversation_is_at_hand_after_another_view(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(ASKS, "It is mild in Europe.")
    window = opened(chatting, "#/chat")
    page = window.page
    asked(window).get_by_role("button", name="Yes").click()
    said(window, "It is mild in Europe.").wait_for()
    address = page.url
    page.get_by_placeholder("Ask something").fill("not sent yet")
    page.get_by_role("button", name="Inspect").click()
    assert page.locator(".chat-turn .legend").count() == 1
    page.get_by_role("button", name="Open in Try").first.click()
    page.locator("blockquote", has_text="What is the weather in Paris?").wait_for()
    row = page.get_by_role("row", name=re.compile("^location"))
    row.get_by_text("you", exact=True).wait_for()
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Chat").click()
    said(window, "It is mild in Europe.").wait_for()
    assert page.url == address
    assert page.get_by_placeholder("Ask something").input_value() == "not sent yet"
    page.get_by_role("button", name="New conversation").click()
    page.get_by_text("What would you like to know?").wait_for()


def test_an_answer_is_regenerated_in_a_branch(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says("One.", "Two.", "Another one.")
    window = opened(chatting, "#/chat")
    send(window, "First?")
    said(window, "One.").wait_for()
    window.page.get_by_role("button", name="Send").wait_for()  # the turn is over
    send(window, "Second?")
    said(window, "Two.").wait_for()
    window.page.get_by_role("button", name="Send").wait_for()
    window.page.get_by_role("button", name="Regenerate").first.click()
    said(window, "Another one.").wait_for()
    assert said(window, "Second?").count() == 0
    assert said(window, "First?").count() == 1


def test_a_conversation_begins_with_the_words_of_a_tool(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    window = opened(chatting, "#/chat")
    window.page.get_by_text("You are asked before any call runs.").wait_for()
    window.page.get_by_role("button", name=re.compile("Get the current weather of a city")).click()
    assert window.page.get_by_placeholder("Ask something").input_value() == "Get the current weather of a city: "
    assert window.page.evaluate("document.activeElement.tagName") == "TEXTAREA"


def test_the_history_is_left_and_a_drawer_on_a_phone(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says("Kept.")
    window = opened(chatting, "#/chat", bypass_csp=True)
    window.bears("console")
    send(window, "Is this kept?")
    said(window, "Kept.").wait_for()
    entry = window.page.get_by_role("navigation", name="Conversations").locator("[aria-current=page]")
    entry.wait_for()
    assert re.search(r"Is this kept\?\s*\d\d:\d\d.* · tiny", entry.inner_text())
    assert entry.bounding_box()["x"] < window.page.get_by_role("log").bounding_box()["x"]
    window.page.set_viewport_size(PHONE)
    assert entry.is_hidden()
    window.page.get_by_role("button", name="Conversations and tools").click()
    entry.wait_for()
    assert serious(window.page) == []
    window.page.keyboard.press("Escape")
    entry.wait_for(state="hidden")
    window.page.get_by_role("button", name="Conversations and tools").click()
    window.page.get_by_role("button", name="Close").click()
    entry.wait_for(state="hidden")
    window.page.get_by_role("button", name="Conversations and tools").click()
    entry.wait_for()
    window.page.set_viewport_size({"width": 1280, "height": 800})
    window.page.get_by_placeholder("Ask something").click()  # nothing covers it
    assert entry.bounding_box()["width"] < 300


LANDMARKS = [
    "banner",
    "complementary: Conversations and tools",
    "log: Chat",
    "main",
    "navigation: Conversations",
    "navigation: Main",
]


def test_the_tree_of_a_screen_reader(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    """Landmarks and names are there, a question is announced, and the keyboard goes from it to yes, no, and the other answers."""
    model.says(ASKS, "Mild.")
    window = opened(chatting, "#/chat")
    page = window.page
    asked(window)
    tree = page.locator("body").aria_snapshot()
    for landmark in LANDMARKS:
        role, _, name = landmark.partition(": ")
        assert f'- {role} "{name}"' in tree if name else re.search(rf"^\s*- {role}", tree, re.MULTILINE), (landmark, tree)
    assert not re.search(r"- (button|link|checkbox|textbox)(?! \"|.*: \S)$", tree, re.MULTILINE), tree
    assert page.get_by_role("status").inner_text() == "May this call run?"
    order = []
    for _ in range(4):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"))
    assert order == ["location", "Yes", "No", "More answers"]
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Edit arguments").wait_for()
    page.keyboard.press("Escape")  # closes the menu, and stops nothing
    page.get_by_role("button", name="Edit arguments").wait_for(state="hidden")
    page.get_by_role("button", name="Yes").click()
    said(window, "Mild.").wait_for()
    assert page.evaluate("document.activeElement.getAttribute('role')") == "log"  # not lost with the question


def test_a_question_that_comes_while_its_conversation_is_opened_stays(
    opened: Open, chatting: Program, model: ScriptedModel
) -> None:
    """The page asks for the conversation, the answer is from before the question, and comes after it."""
    gate = Gate()
    model.says([gate, ASKS], "Mild.")
    window = opened(chatting, "#/chat")
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append((route, route.fetch()))
        gate.open()

    window.page.route(re.compile("/ui/api/chat/[^/]+$"), hold, times=1)
    card = asked(window)
    route, answer = held[0]
    route.fulfill(response=answer)
    window.page.wait_for_timeout(500)
    card.get_by_role("button", name="Yes").click()
    said(window, "Mild.").wait_for()
    assert window.page.locator(".chat-turn").count() == 1
