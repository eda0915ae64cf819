"""The pictures of the documents: `python benchmarks/screenshots.py`

A scripted model, the demo server and Chromium; writes docs/images/*.png. Nothing in them depends on a model or on the time but
the times that calls took.
"""

import tempfile
from pathlib import Path
from typing import Any, Final

from page_stage import DEMO, ROOT, Program, ScriptedModel, call, launched, program, scripted_model

FOLDER: Final = ROOT / "docs" / "images"
QUESTION: Final = "How warm is it in Paris, in degrees Fahrenheit?"
WEATHER: Final = f"I will look up the weather first.\n\n{call('get_weather', location='Paris')}"
SUM: Final = (
    "Now I multiply.\n\n<function_calls>\n"
    '<invoke name="calculator">\n<parameter name="operation">Multiply</parameter>\n'
    '<parameter name="a">"13.5"</parameter>\n<parameter name="b">1.8</parameter>\n</invoke>\n</function_calls>'
)
REST: Final = call("calculator", operation="add", a="24.3", b="32")
ANSWER: Final = "It is **56.3 °F** in Paris (13.5 °C), partly cloudy."


def ask(page: Any, model: ScriptedModel) -> None:
    """Ask the question, and allow its calls; the last one is left open for the picture of a question."""
    model.says(WEATHER, SUM, REST, ANSWER)
    page.get_by_placeholder("Ask something").fill(QUESTION)
    page.keyboard.press("Enter")
    for number in range(1, 3):
        page.locator(".ask:not(.over)").wait_for()
        page.locator(".ask:not(.over) button", has_text="Yes").click()
        page.locator(".ask.over").nth(number - 1).wait_for()
    page.locator(".ask:not(.over)").wait_for()


def shoot(browser: Any, of: Program, model: ScriptedModel) -> None:
    """Take the pictures."""
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light", locale="en-GB")
    page.goto(of.page)
    page.get_by_placeholder("Ask something").wait_for()
    ask(page, model)
    page.wait_for_timeout(500)
    page.screenshot(path=FOLDER / "chat.png")
    page.locator(".ask:not(.over) button", has_text="Yes").click()
    page.get_by_role("log").get_by_text("56.3").wait_for()
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


def main() -> None:
    """Take the pictures, and say how large they are."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, scripted_model("qwen2.5-coder-0.5b") as model, launched() as browser:
        with program("ui", "--model", model.url, home=Path(home), servers=DEMO) as of:
            shoot(browser, of, model)
    for each in sorted(FOLDER.glob("*.png")):
        print(f"{each.relative_to(ROOT)}: {each.stat().st_size / 1024:,.0f} kB")


if __name__ == "__main__":
    main()
