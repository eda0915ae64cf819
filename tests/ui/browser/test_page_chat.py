"""A chat in the page, in a browser: a question, a call that is asked about, an answer; with keys and with the mouse."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from page_stage import Program, ScriptedModel, call, environment
from ui.browser.conftest import Open
from ui.browser.test_page_serve import serious
from ui.browser.window import Window

pytestmark = pytest.mark.full  # a browser

QUESTION = "What is the weather in Paris?"
ASKS = call("get_weather", location="Paris")
CARD = "May this call run?"


def send(window: Window, text: str) -> None:
    window.page.get_by_placeholder("Ask something").fill(text)
    window.page.keyboard.press("Enter")


def said(window: Window, text: str | re.Pattern[str]) -> Any:
    """Find a text in the conversation; what is read out to the blind has it, too."""
    return window.page.get_by_role("log").get_by_text(text)


def asked(window: Window, question: str = QUESTION) -> Any:
    """Ask, and wait for the question about the call."""
    send(window, question)
    card = window.page.get_by_role("group", name=CARD)
    card.wait_for()
    return card


def more(card: Any, answer: str) -> None:
    """Give an answer of the menu."""
    card.get_by_label("More answers").click()
    card.get_by_role("button", name=answer).click()


@pytest.mark.parametrize("key", ["y", "button"])
def test_a_call_is_allowed(opened: Open, chatting: Program, model: ScriptedModel, key: str) -> None:
    model.says(f"I will look.\n{ASKS}", "It is **mild** there.")
    window = opened(chatting, "#/chat")
    card = asked(window)
    text = card.inner_text()
    for told in ("demo.get_weather", "Paris", "you"):
        assert told in text
    assert text.count("get_weather") == 1
    if key == "button":
        card.get_by_role("button", name="Yes").click()
    else:
        window.page.keyboard.press(key)  # the card has the focus
    window.page.locator(".answer strong", has_text="mild").wait_for()
    assert "Paris" in model.asked()
    line = window.page.locator(".call-line summary").inner_text()
    for told in ('demo.get_weather("Paris")', "temperature: ", "ran", "allowed by you"):
        assert line.count(told) == 1
    assert window.page.locator(".ask").count() == 0  # the question has shrunk to these words


def test_a_call_is_denied_with_a_reason(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(ASKS, "Then I will not.")
    window = opened(chatting, "#/chat")
    card = asked(window)
    card.get_by_role("button", name="No", exact=True).click()
    assert window.page.evaluate("document.activeElement.placeholder").startswith("Reason for the model")
    window.page.keyboard.press("Escape")  # back, and nothing is stopped
    card.get_by_role("button", name="No", exact=True).click()
    card.get_by_placeholder("Reason for the model").fill("ask about Rome")
    card.get_by_role("button", name="Do not run it").click()
    said(window, "Then I will not.").wait_for()
    assert "ask about Rome" in model.asked()
    assert "denied by you" in window.page.locator(".call-line summary").inner_text()


def test_arguments_are_edited_and_have_to_fit(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(ASKS, "Done.")
    window = opened(chatting, "#/chat")
    window.bears("422")  # what does not fit
    card = asked(window)
    window.page.keyboard.press("e")
    editor = card.get_by_label("Edit arguments")
    editor.fill('{"location": 5}')
    card.get_by_role("button", name="Run with these").click()
    card.get_by_role("alert").wait_for()
    editor.fill('{"location": "Rome"}')
    card.get_by_role("button", name="Run with these").click()
    said(window, "Done.").wait_for()
    assert "Rome" in model.asked()


def test_a_letter_that_is_typed_elsewhere_allows_nothing(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(ASKS, "Stopped or not.")
    window = opened(chatting, "#/chat")
    card = asked(window)
    window.page.get_by_placeholder("Ask something").click()
    window.page.keyboard.type("yes yes")
    window.page.wait_for_timeout(300)
    assert card.get_by_role("button", name="Yes").is_visible()
    more(card, "Stop")
    window.page.get_by_text("stopped").first.wait_for()
    model.forget()


def test_an_open_question_is_there_after_a_reload_and_in_two_pages(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(ASKS, "Seen.")
    first = opened(chatting, "#/chat")
    asked(first)
    first.page.reload()
    card = first.page.get_by_role("group", name=CARD)
    card.wait_for()
    second = opened(chatting, first.page.url.partition("/ui/")[2])
    second.page.get_by_role("group", name=CARD).get_by_role("button", name="Yes").click()
    said(first, "Seen.").wait_for()
    said(second, "Seen.").wait_for()


def test_a_conversation_opened_twice_at_once_is_there_once(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    """A page without events shows the conversation, and again when they come: slow answers to both come together."""
    model.says("Here.")
    window = opened(chatting, "#/chat")
    window.bears("console, error")  # of the events that fail
    send(window, "Are you there?")
    said(window, "Here.").wait_for()
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)
        if len(held) == 2:
            for each in held:
                each.continue_()

    window.page.route(re.compile("/ui/api/chat/[^/]+$"), hold)
    window.page.route("**/ui/api/events", lambda route: route.abort(), times=1)
    window.page.reload()
    said(window, "Here.").first.wait_for()
    window.page.wait_for_timeout(300)
    assert len(held) == 2
    assert window.page.locator(".chat-turn").count() == 1


def test_always_holds_for_the_next_question_and_a_branch_leaves_the_first_as_it_was(
    opened: Open, own: Program, model: ScriptedModel
) -> None:
    model.says(
        call("text_analyzer", text="abc"),
        "First answer.",
        call("text_analyzer", text="abcd"),
        "Second answer.",
        "Branched answer.",
    )
    window = opened(own, "#/chat")
    card = asked(window, "Analyze abc")
    more(card, "Allow this tool until xmlcall ends")
    said(window, "First answer.").wait_for()
    send(window, "And abcd?")
    said(window, "Second answer.").wait_for()
    address = window.page.url
    window.page.get_by_role("button", name="Edit").last.click()
    send(window, "Something else?")
    said(window, "Branched answer.").wait_for()
    assert window.page.url != address
    assert said(window, "Second answer.").count() == 0
    window.page.get_by_role("link", name=re.compile("branch of")).click()
    said(window, "Second answer.").wait_for()
    window.page.get_by_role("button", name="allowed ✕").click()
    window.page.get_by_role("button", name="allowed ✕").wait_for(state="detached")
    model.says(call("text_analyzer", text="x"), "Third answer.")
    more(asked(window, "Analyze x"), "Allow these arguments until xmlcall ends")
    said(window, "Third answer.").wait_for()
    window.page.get_by_role("button", name="allowed ✕").wait_for()


def test_a_turn_is_stopped(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(["slow ", 0.05, "word " * 400])
    window = opened(chatting, "#/chat")
    send(window, "Tell me a long story")
    window.page.locator(".answer", has_text="slow").wait_for()
    window.page.keyboard.press("Escape")
    window.page.get_by_role("button", name="Send").and_(window.page.locator(":enabled")).wait_for()


def test_a_tool_is_switched_off(opened: Open, own: Program, model: ScriptedModel) -> None:
    model.says("No tool for that.")
    window = opened(own, "#/chat")
    box = window.page.get_by_role("checkbox", name=re.compile("text_analyzer"))
    box.uncheck()
    window.page.wait_for_timeout(300)
    send(window, "What can you do?")
    said(window, "No tool for that.").wait_for()
    assert model.asked().count("text_analyzer") == 1  # in the server's own instructions


def test_the_terminal_the_page_and_json_say_the_same(opened: Open, chatting: Program, model: ScriptedModel) -> None:
    model.says(call("calculator", operation="multiply", a='"6"', b="7"), "It is 42.")
    window = opened(chatting, "#/chat")
    card = asked(window, "What is 6 times 7?")
    card.get_by_role("button", name="Yes").click()
    said(window, "It is 42.").wait_for()
    conversation = window.page.url.rpartition("/")[2]
    argv = [sys.executable, "-m", "xmlcall", "log", "show", conversation]
    told = subprocess.run([*argv, "--json"], env=environment(chatting.home), capture_output=True, text=True, check=True)
    shown = subprocess.run(argv, env=environment(chatting.home), capture_output=True, text=True, check=True).stdout
    kept = json.loads(told.stdout)["turns"][0]
    served = window.page.evaluate("id => fetch(`/ui/api/conversations/${id}`).then((answer) => answer.json())", conversation)[
        "turns"
    ][0]
    (call_kept,), (call_served,) = kept["replies"][0]["calls"], served["replies"][0]["calls"]
    for name in ("name", "arguments", "outcome", "server", "tool", "by", "repairs", "result"):
        assert call_kept[name] == call_served[name], name
    window.page.get_by_role("button", name="Inspect").click()
    window.page.locator(".chat-turn .reply").nth(1).wait_for()
    page = window.page.locator(".chat-turn").inner_text()
    for text in (page, shown):
        assert "demo.calculator" in text
        assert "42" in text
        for repair in call_kept["repairs"]:
            assert repair["code"] in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_chat_is_accessible_and_fits_a_phone(opened: Open, chatting: Program, model: ScriptedModel, scheme: str) -> None:
    model.says(ASKS, "| a | b |\n|---|---|\n| 1 | 2 |\n\n```\n" + "x" * 200 + "\n```")
    window = opened(chatting, "#/chat", color_scheme=scheme, viewport={"width": 375, "height": 800}, bypass_csp=True)
    window.bears("console")
    card = asked(window)
    assert serious(window.page) == []
    card.get_by_role("button", name="Yes").click()
    window.page.locator(".markdown table").wait_for()
    assert window.page.evaluate("document.documentElement.scrollWidth") <= 375
    assert serious(window.page) == []
    window.page.goto(f"{chatting.origin}/ui/#/recorded")
    window.page.locator("a[href^='#/recorded/conversation']").first.click()
    window.page.locator(".turn-box .raw").first.wait_for()
    assert window.page.evaluate("document.documentElement.scrollWidth") <= 375
    assert serious(window.page) == []
