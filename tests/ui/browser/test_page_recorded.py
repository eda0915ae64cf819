"""What was recorded, in a browser: a measured run is opened, filtered, and one turn of it is read, copied and read anew."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from page_stage import ROOT, Program, program
from ui.browser.conftest import Open

pytestmark = pytest.mark.full  # a browser

RUN = ROOT / "benchmarks" / "results" / "runs" / "smoke-0.5b"
ROWS = ".list a[href*='/run/']"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """`xmlcall ui` without a chat, with one run."""
    with program("ui", "--no-chat", str(RUN), home=tmp_path_factory.mktemp("recorded")) as running:
        yield running


@pytest.mark.parametrize("filtered", ["failure", "repair", "tool"])
def test_a_run_is_filtered(opened: Open, recorded: Program, filtered: str) -> None:
    page = opened(recorded, f"#/recorded/run/{RUN.name}").page
    page.locator(ROWS).first.wait_for()
    choice = page.get_by_label(re.compile(f"^{filtered}", re.IGNORECASE))
    option = choice.locator("option").nth(1)
    wanted = int(re.search(r"\((\d+)\)", option.inner_text())[1])  # type: ignore[index]
    choice.select_option(index=1)
    page.wait_for_function(
        "([selector, wanted]) => document.querySelectorAll(selector).length === Math.min(wanted, 100)", arg=[ROWS, wanted]
    )
    assert 0 < wanted < 150


def test_what_a_view_was_asked_for_does_not_cover_the_next(opened: Open, recorded: Program) -> None:
    page = opened(recorded, f"#/recorded/run/{RUN.name}").page
    page.locator(ROWS).first.wait_for()
    held: list[Any] = []
    page.route("**/ui/api/recorded", lambda route: held.append(route))
    with page.expect_request("**/ui/api/recorded"):
        page.get_by_role("link", name="Recorded").first.click()
    page.go_back()
    page.locator(ROWS).first.wait_for()
    with page.expect_response("**/ui/api/recorded"):
        held[0].continue_()
    page.wait_for_timeout(300)
    assert page.locator(ROWS).count() == 100


def test_an_address_may_name_a_filter(opened: Open, recorded: Program) -> None:
    page = opened(recorded, f"#/recorded/run/{RUN.name}?way=xml&failure=none").page
    page.locator(ROWS).first.wait_for()
    assert page.get_by_label(re.compile("^failure", re.IGNORECASE)).input_value() == "none"
    assert page.get_by_label(re.compile("^way", re.IGNORECASE)).input_value() == "xml"


def test_a_turn_of_a_run_is_read_copied_and_tried(opened: Open, recorded: Program) -> None:
    page = opened(recorded, f"#/recorded/run/{RUN.name}").page
    page.locator(ROWS).first.click()
    page.locator(".reply .raw").first.wait_for()
    raw = page.locator(".reply .raw").first.inner_text()
    page.get_by_label("Copy").first.click()
    with page.expect_response(re.compile("/copy")) as answered:
        page.get_by_role("button", name="Copy as curl").first.click()
    assert (answered.value.status, "curl" in answered.value.text()) == (200, True)
    page.get_by_role("button", name="Try").first.click()
    text = page.get_by_label("A reply, as a model wrote it")
    text.wait_for()
    page.wait_for_function("text => text.value.length > 0", arg=text.element_handle())
    assert text.input_value().split()[:3] == raw.split()[:3]
