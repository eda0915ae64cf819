"""The page in a real browser, as a person has it: `xmlcall ui` is a process, the model is scripted, Chromium looks at it.

Each worker has one model server and one `xmlcall ui` for all tests, which ask in conversations of their own. A program remembers
what is always allowed and which tools are off: a test that answers so has a program of its own (`own`). The browser is one for
each module: Playwright keeps an event loop running, under which tests of other folders could not run theirs.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from page_stage import DEMO, Program, ScriptedModel, launched, program, scripted_model, why_no_browser
from ui.browser.window import Window

Open = Callable[..., Window]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test of this folder more time: the first of a worker starts programs and a browser, perhaps on a busy machine."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(scope="session", autouse=True)
def _needs_a_browser() -> None:
    if missing := why_no_browser():
        pytest.skip(missing)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    with launched() as started:
        yield started


@pytest.fixture(scope="session")
def shared_model() -> Iterator[ScriptedModel]:
    with scripted_model() as model:
        yield model


@pytest.fixture
def model(shared_model: ScriptedModel) -> Iterator[ScriptedModel]:
    """What the model says: every reply of the script is asked for, and no other."""
    shared_model.forget()
    yield shared_model
    assert shared_model.left == 0, "replies that nobody asked for"


@pytest.fixture(scope="session")
def shared_program(shared_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with program("ui", "--model", shared_model.url, home=tmp_path_factory.mktemp("ui"), servers=DEMO) as running:
        yield running


@pytest.fixture
def chatting(shared_program: Program) -> Iterator[Program]:
    """`xmlcall ui` with the demo server, whose calls are asked about since a file names it; every test leaves it so."""
    yield shared_program
    assert changed_tools(shared_program) == [], "tools that later tests find off or allowed: take the fixture `own`"


@pytest.fixture
def own(shared_model: ScriptedModel, tmp_path: Path) -> Iterator[Program]:
    """The same as `chatting`, for one test, which may leave it as it likes."""
    with program("ui", "--model", shared_model.url, home=tmp_path / "ui", servers=DEMO) as running:
        yield running


def changed_tools(of: Program) -> list[str]:
    """Return the tools that are not on offer any more, or that run unasked."""
    with httpx.Client(follow_redirects=True) as client:
        client.get(of.page)
        servers = client.get(f"{of.origin}/ui/api/about").json()["servers"]
    return [tool["name"] for server in servers for tool in server["tools"] if not (tool["is_on"] and tool["is_asked"])]


@pytest.fixture
def serving(shared_model: ScriptedModel, tmp_path: Path) -> Iterator[Program]:
    """`xmlcall serve --ui` of the same model."""
    with program("serve", "--model", shared_model.url, "--ask", "mode=xml", home=tmp_path / "serve") as running:
        yield running


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Open the page of a program in a window of its own; whatever the page complains of fails the test."""
    windows: list[Window] = []
    with ExitStack() as stack:

        def open_page(of: Program, path: str = "", **options: Any) -> Window:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", **options})
            stack.callback(context.close)
            windows.append(Window(context.new_page(), of))
            windows[-1].open(path)
            return windows[-1]

        yield open_page
        complaints = [complaint for window in windows for complaint in window.complaints]
    assert complaints == []
