"""The pictures of the documents: `python benchmarks/screenshots.py`

A scripted model, the demo server and Chromium; writes docs/images/*.png. Nothing in them depends on a model or on the time but
the times that calls took. With a folder as argument it instead writes there what a designer looks at: each state of the page at
three widths, light and dark.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from page_stage import DEMO, ROOT, Gate, Program, ScriptedModel, call, launched, program, scripted_model

FOLDER: Final = ROOT / "docs" / "images"
SIZES: Final = ((1280, 800), (768, 1024), (375, 667))
SCHEMES: Final = ("light", "dark")
BROKEN: Final = {"files": {"command": "a-command-that-is-not-there", "args": []}}
QUESTION: Final = "How warm is it in Paris, in degrees Fahrenheit?"
WEATHER: Final = f"I will look up the weather first.\n\n{call('get_weather', location='Paris')}"
SUM: Final = (
    "Now I multiply.\n\n<function_calls>\n"
    '<invoke name="calculator">\n<parameter name="operation">Multiply</parameter>\n'
    '<parameter name="a">"13.5"</parameter>\n<parameter name="b">1.8</parameter>\n</invoke>\n</function_calls>'
)
REST: Final = call("calculator", operation="add", a="24.3", b="32")
ANSWER: Final = "It is **56.3 °F** in Paris (13.5 °C), partly cloudy."


def begin(browser: Any, of: Program, size: tuple[int, int], scheme: str) -> Any:
    """Open a new conversation."""
    viewport = {"width": size[0], "height": size[1]}
    page = browser.new_page(viewport=viewport, color_scheme=scheme, locale="en-GB")
    page.goto(of.page)
    page.get_by_text("What would you like to know?").wait_for()
    return page


def ask(page: Any) -> None:
    """Ask the question."""
    page.get_by_placeholder("Ask something").fill(QUESTION)
    page.keyboard.press("Enter")


def allow(page: Any, number: int) -> None:
    """Allow the call of this number."""
    page.get_by_role("button", name="Yes").click()
    page.locator(".call-line").nth(number - 1).wait_for()


def shoot(browser: Any, of: Program, model: ScriptedModel) -> None:
    """Take the pictures of the documents."""
    page = begin(browser, of, SIZES[0], "light")
    model.says(WEATHER, SUM, REST, ANSWER)
    ask(page)
    allow(page, 1)
    page.get_by_role("button", name="Yes").wait_for()
    page.wait_for_timeout(500)
    page.screenshot(path=FOLDER / "chat.png")
    allow(page, 2)
    allow(page, 3)
    page.get_by_role("button", name="Inspect").wait_for()
    page.goto(f"{of.origin}/ui/#/live")
    page.locator(".list a").first.click()
    page.locator(".reply").nth(1).wait_for()
    page.wait_for_timeout(500)
    second = page.locator(".reply").nth(1)
    second.locator("button.path").nth(1).hover()
    page.wait_for_timeout(800)
    second.scroll_into_view_if_needed()
    second.screenshot(path=FOLDER / "turn.png")
    page.goto(f"{of.origin}/ui/#/live")
    page.locator(".list a").first.wait_for()
    page.screenshot(path=FOLDER / "live.png", clip={"x": 0, "y": 0, "width": 1280, "height": 300})
    page.goto(f"{of.origin}/ui/#/try")
    page.locator(".call").wait_for()
    page.wait_for_timeout(300)
    page.screenshot(path=FOLDER / "try.png", clip={"x": 0, "y": 0, "width": 1280, "height": 600})


def states(page: Any, of: Program, model: ScriptedModel) -> Iterator[str]:
    """Lead the page through its states; yield the name of each."""
    yield "start"
    gate = Gate()
    model.says([(677, 749), gate, WEATHER], SUM, ANSWER)
    ask(page)
    gate.wait_reached()
    page.get_by_text("Reading the prompt").wait_for()
    yield "reading"
    gate.open()
    page.get_by_role("button", name="Yes").wait_for()
    yield "asking"
    allow(page, 1)
    page.get_by_role("button", name="Yes").wait_for()
    yield "asking-again"
    page.get_by_role("button", name="No", exact=True).click()
    yield "denying"
    page.get_by_role("button", name="Back").click()
    page.get_by_label("More answers").click()
    yield "more-answers"
    page.keyboard.press("Escape")
    allow(page, 2)
    page.get_by_role("button", name="Inspect").wait_for()
    yield "answered"
    page.locator(".call-line summary").nth(1).click()
    yield "a-call"
    page.get_by_role("button", name="Inspect").click()
    yield "inspected"
    page.get_by_role("button", name="Open in Try").nth(1).click()
    page.locator(".call").first.wait_for()
    yield "try"
    page.get_by_label("A reply, as a model wrote it").fill(call("get_weather", town="Central Europe"))
    page.get_by_text("missing-argument").first.wait_for()
    yield "try-issues"
    for view in ("live", "recorded"):
        page.goto(f"{of.origin}/ui/#/{view}")
        page.locator("main h1").first.wait_for()
        yield view
    page.goto(f"{of.origin}/ui/#/live")
    page.locator(".list a").first.click()
    page.locator(".reply").nth(1).wait_for()
    yield "turn"


def look(browser: Any, of: Program, model: ScriptedModel, folder: Path) -> None:
    """Take pictures of all states, at all widths, light and dark."""
    for size in SIZES:
        for scheme in SCHEMES:
            page = begin(browser, of, size, scheme)
            for place, state in enumerate(states(page, of, model)):
                page.wait_for_timeout(500)
                page.screenshot(path=folder / f"{size[0]}-{scheme}-{place:02}-{state}.png", full_page=True)
            page.close()


def main() -> None:
    """Take the pictures, and say how large they are."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, scripted_model("qwen2.5-coder-0.5b") as model, launched() as browser:
        with program("ui", "--model", model.url, home=Path(home), servers=DEMO | (BROKEN if sys.argv[1:] else {})) as of:
            if sys.argv[1:]:
                look(browser, of, model, folder)
            else:
                shoot(browser, of, model)
    for each in sorted(folder.glob("*.png")):
        print(f"{each.name}: {each.stat().st_size / 1024:,.0f} kB")


if __name__ == "__main__":
    main()
