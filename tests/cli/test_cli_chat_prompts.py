"""`/prompt` in a chat, with a real server that has prompts."""

import sys
from pathlib import Path

from cli_harness import Terminal, model_server, run_cli
from servers.fake_openai import FakeOpenAI, llama_props

LIBRARY = f"{sys.executable} {Path(__file__).parents[1] / 'servers' / 'library.py'}"


def asked(fake: FakeOpenAI) -> str:
    return str(fake.bodies[-1]["messages"][-1]["content"])


def test_a_prompt_is_sent_from_a_pipe(tmp_path: Path) -> None:
    lines = "/prompt\n/prompt nothing\n/prompt summarize\n/prompt summarize 'title=War and Peace' style=long\n"
    with model_server("It is long.") as (url, fake):
        done = run_cli("chat", "--model", url, "--mcp", LIBRARY, home=tmp_path, stdin=lines)
        assert asked(fake).startswith("Summarize War and Peace, long.")
    assert "library.summarize(title, style?)  Summarize a book: Ask for a summary." in done.stdout
    assert "expected the name of a prompt, got 'nothing'" in done.stderr
    assert "/prompt summarize: expected title=VALUE" in done.stderr
    assert len(fake.bodies) == 1


def test_at_a_terminal_the_person_sees_it_first_and_may_change_it(tmp_path: Path) -> None:
    with model_server("Two pages.") as (url, fake):
        fake.props = llama_props()
        with Terminal("chat", "--model", url, "--mcp", LIBRARY, home=tmp_path, size=(30, 80)) as terminal:
            terminal.until("servers ")
            terminal.send("/prompt summarize title=Emma\r")
            terminal.until("> Summarize Emma, short.")
            assert fake.bodies == []
            terminal.send(" Be kind.\r")
            terminal.until("Two pages.")
        assert asked(fake).startswith("Summarize Emma, short. Be kind.")
