"""What servers ask of a person and of the model, at a real terminal; and what becomes of it without one."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_harness import Terminal, call, model_server
from servers.run_server import run_server
from servers.started import printed_url

from xmlcall.cli import main

ASKING = str(Path(__file__).parents[1] / "servers" / "asking.py")
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "age": {"type": "integer", "minimum": 18},
        "mail": {"type": "string", "format": "email"},
        "news": {"type": "boolean", "default": True},
        "colour": {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#00f", "title": "Blue"}]},
        "days": {"type": "array", "items": {"type": "string", "enum": ["Mon", "Tue", "Wed"]}, "minItems": 1},
    },
    "required": ["name", "days"],
}
HOSTILE = "Who\x1b[8m are you?"
ASK_FORM = {"method": "elicitation/create", "params": {"mode": "form", "message": HOSTILE, "requestedSchema": FORM}}
URL = "https://example.com/login?state=" + "x" * 200
COMPLETE = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Name a\x1b[8m bird."}}], "maxTokens": 7},
}


@pytest.fixture(scope="module")
def configurations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A configuration of one server for each era."""
    found = {}
    with contextlib.ExitStack() as stack:
        for era in ("2025", "2026"):
            folder = tmp_path_factory.mktemp(era)
            options = ["--http", *(["--legacy"] if era == "2025" else [])]
            url, _ = stack.enter_context(printed_url(ASKING, *options, RECORD=str(folder / "record")))
            path = folder / "mcp.json"
            path.write_text(json.dumps({"mcpServers": {"bank": {"url": url}}}))
            found[era] = str(path)
        yield found


@pytest.fixture(params=["2025", "2026"])
def asking(request: pytest.FixtureRequest, configurations: dict[str, str]) -> str:
    """A server of either era."""
    return configurations[request.param]


@pytest.fixture
def later(configurations: dict[str, str]) -> str:
    """A server of 2026-07-28, for what does not depend on the era."""
    return configurations["2026"]


# The person says what they want, so that nothing in the calls is made up.
SAID = "Go: elicitation/create, sampling/createMessage, roots/list; log error."


def ask(request: dict[str, Any]) -> str:
    return call("ask", request=json.dumps(request))


def visit(url: str) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"mode": "url", "message": "Sign in.", "url": url, "elicitationId": "1"}}


def type_in(terminal: Terminal, lines: list[tuple[str, str]]) -> str:
    """Answer prompts; gives all that was shown up to the last one."""
    shown = ""
    for prompt, line in lines:
        shown += terminal.expect(prompt) + prompt
        terminal.send(line)
    return shown


FILLED = [
    ("name: ", "A\n"),
    ("name: ", "Ada\n"),
    ("age: ", "seventeen\n"),
    ("age: ", "17\n"),
    ("age: ", "36\n"),
    ("mail: ", "\n"),
    ("news [true]: ", "\n"),
    ("colour: ", "green\n"),
    ("colour: ", "2\n"),
    ("days: ", "Tue, 3\n"),
]
AGAIN = [
    ("name: ", "Eve\n"),
    ("age: ", "\n"),
    ("mail: ", "e@x.org\n"),
    ("news [true]: ", "no\n"),
    ("colour: ", "Red\n"),
    ("days: ", "1\n"),
]


def test_a_form_is_filled_in_looked_over_and_sent(asking: str, tmp_path: Path) -> None:
    with model_server(ask(ASK_FORM), "Done.") as (url, fake):
        with Terminal("run", "--yes", "--mcp", asking, "--model", url, SAID, home=tmp_path) as terminal:
            shown = type_in(terminal, FILLED)
            review = type_in(terminal, [("[c]ancel: ", "e\n"), *AGAIN, ("[c]ancel: ", "y\n")])
            assert terminal.end() == 0
    assert r"The server bank asks you:" + "\n  Who\\u001b[8m are you?\n" in shown
    assert "  Your name (required)\n" in shown
    assert "    2) Blue (#00f)\n" in shown
    for told in ("name: Expected string", "expected an integer, got 'seventeen'", "at least 18", "expected one of the 2 choices"):
        assert told in shown
    assert '  name: "Ada"\n' in review
    assert "  age: 36\n" in review
    assert '  days: ["Tue", "Wed"]\n' in review
    result = fake.bodies[-1]["messages"][-1]["content"]
    sent = json.loads(result[result.index("{") : result.rindex("}") + 1])
    content = {"name": "Eve", "mail": "e@x.org", "news": False, "colour": "#f00", "days": ["Mon"]}
    assert sent == {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("typed", "action"),
    [
        ([("name: ", "/no\n")], "decline"),
        ([("name: ", "\x04")], "cancel"),
    ],
    ids=["no", "end of input"],
)
def test_a_form_may_be_declined_and_left(typed: list[tuple[str, str]], action: str, later: str, tmp_path: Path) -> None:
    with model_server(ask(ASK_FORM), "Done.") as (url, fake):
        with Terminal("run", "--yes", "--mcp", later, "--model", url, SAID, home=tmp_path) as terminal:
            type_in(terminal, typed)
            assert terminal.end() == 0
    assert f'"action": "{action}"' in fake.bodies[-1]["messages"][-1]["content"]


def test_an_address_is_shown_in_full_and_not_fetched(later: str, tmp_path: Path) -> None:
    fetched: list[str] = []

    async def page(scope: Any, receive: Any, send: Any) -> None:
        fetched.append(scope["path"])

    with run_server(page) as site, model_server(ask(visit(site + "/sign-in")), ask(visit(URL)), "Done.") as (url, fake):
        with Terminal("run", "--yes", "--mcp", later, "--model", url, f"{SAID} {site} {URL}", home=tmp_path) as terminal:
            shown = type_in(
                terminal, [("[c]ancel: ", "y\n"), ("Will you visit example.com? [y]es / [n]o, decline / [c]ancel: ", "n\n")]
            )
            assert terminal.end() == 0
        assert fetched == []
    assert "The server bank asks you to visit an address:\n  Sign in.\n" in shown
    assert f"  {site}/sign-in\n" in shown
    assert f"  {URL}\n" in shown
    first, second = (body["messages"][-1]["content"] for body in fake.bodies[-2:])
    assert '"action": "accept"' in first
    assert '"action": "decline"' in second


def test_an_address_that_a_call_waits_for_is_shown_and_the_call_made_again(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": [str(Path(ASKING).with_name("hostile.py")), "visit_first"]}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"bank": server}}))
    with model_server(call("echo", text="hi"), "Done.") as (url, fake):
        with Terminal("run", "--yes", "--mcp", str(config), "--model", url, SAID, home=tmp_path) as terminal:
            shown = type_in(terminal, [("Done at bank.example? [y]es, call again / [n]o / [c]ancel: ", "y\n")])
            assert terminal.end() == 0
    assert "The server bank asks you to visit an address:\n  Connect your account.\n  https://bank.example/connect\n" in shown
    assert "connected" in fake.bodies[1]["messages"][-1]["content"]


def test_an_address_with_letters_of_another_script_is_pointed_out(later: str, tmp_path: Path) -> None:
    with model_server(ask(visit("https://ex\u0430mple.com/")), "Done.") as (url, _):
        with Terminal(
            "run", "--yes", "--mcp", later, "--model", url, f"{SAID} https://ex\u0430mple.com/", home=tmp_path
        ) as terminal:
            shown = type_in(terminal, [("[c]ancel: ", "c\n")])
            assert terminal.end() == 0
    assert "it is xn--exmple-4nf.com" in shown


def test_a_completion_is_approved_twice(later: str, tmp_path: Path) -> None:
    with model_server(ask(COMPLETE), "<think>Hm.</think>A wren.", ask(COMPLETE), "Done.") as (url, fake):
        with Terminal("run", "--yes", "--mcp", later, "--model", url, SAID, home=tmp_path) as terminal:
            shown = type_in(
                terminal,
                [("answer? [y]es / [n]o: ", "y\n"), ("server? [y]es / [n]o: ", "y\n"), ("answer? [y]es / [n]o: ", "n\n")],
            )
            assert terminal.end() == 0
    assert "The server bank asks the model to continue this (at most 7 tokens):\n  user: Name a\\u001b[8m bird.\n" in shown
    assert "The model's answer for bank:\n  A wren.\n" in shown
    completion = fake.bodies[1]
    assert (completion["messages"], completion["max_tokens"]) == ([{"role": "user", "content": "Name a\x1b[8m bird."}], 7)
    assert "tools" not in completion
    assert '"text": "A wren."' in fake.bodies[2]["messages"][-1]["content"]
    assert "User rejected sampling request" in fake.bodies[3]["messages"][-1]["content"]


def test_ctrl_c_at_a_form_stops_the_turn_and_the_chat_goes_on(asking: str, tmp_path: Path) -> None:
    with model_server(ask(ASK_FORM), "Hello.") as (url, _):
        with Terminal("chat", "--yes", "--mcp", asking, "--model", url, home=tmp_path) as terminal:
            terminal.expect(">")
            terminal.send(f"{SAID}\r")
            type_in(terminal, [("name: ", "Ad"), ("Ad", "\x03")])
            terminal.expect("xmlcall: stopped")
            terminal.expect(">")
            terminal.send("Hi.\r", "Hello.", ">")
            terminal.send("/quit\r")
            assert terminal.end() == 0


def test_without_a_terminal_nobody_is_asked_and_it_is_said(asking: str, capsys: pytest.CaptureFixture[str]) -> None:
    with model_server(ask(ASK_FORM), ask(COMPLETE), ask({"method": "roots/list"}), "Done.") as (url, _):
        assert main(["run", "--yes", "--mcp", asking, "--model", url, SAID]) == 0
    told = capsys.readouterr().err
    for line in (
        "xmlcall: bank asked for a person's answer and was refused: there is no terminal to ask on\n",
        "xmlcall: bank asked for a completion by the model and was refused. Allow it with --sampling allow\n",
        "xmlcall: bank asked which folders it may work in and got none. Name one with --root\n",
    ):
        assert told.count(line) == 1


def test_what_is_allowed_needs_no_terminal(later: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = [ask(COMPLETE), "A wren.", ask({"method": "roots/list"}), call("log", level="error", text="o\x1b[8mh"), "Done."]
    with model_server(*said) as (url, fake):
        options = ["--yes", "--verbose", "--sampling", "allow", "--root", str(tmp_path), "--mcp", later, "--model", url]
        assert main(["run", *options, SAID]) == 0
    assert '"text": "A wren."' in fake.bodies[2]["messages"][-1]["content"]
    assert f'"uri": "file://{tmp_path}"' in fake.bodies[3]["messages"][-1]["content"]
    assert "log      bank core, error: o\\u001b[8mh\n" in capsys.readouterr().err


def test_a_root_is_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--root", str(tmp_path / "none"), SAID]) == 2
    assert "--root: expected a folder, got '" in capsys.readouterr().err
