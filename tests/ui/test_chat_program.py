"""`xmlcall ui` as a program: the same conversations as in the terminal, also after it was killed."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from cli_harness import call, configured, environment, model_server, run_cli
from cli_process import Running, begin
from servers.started import printed_url

from xmlcall.records.store import Store

SECONDS = 30.0


class Page:
    """A running program, and a browser at it."""

    def __init__(self, process: Running, browser: httpx.Client) -> None:
        self.process, self._browser = process, browser

    def get(self, path: str) -> Any:
        answer = self._browser.get(f"/ui/api/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: dict[str, Any] | None = None, status: int = 202) -> Any:
        answer = self._browser.post(f"/ui/api/{path}", json=body or {})
        assert answer.status_code == status, answer.text
        return answer.json()

    def question(self, conversation: str) -> dict[str, Any]:
        [found] = self._until(lambda: self.get(f"chat/{conversation}")["questions"])
        assert isinstance(found, dict)
        return found

    def over(self, conversation: str) -> dict[str, Any]:
        """Wait for the end of the turn that goes on; give it."""
        shown = self._until(lambda: None if (got := self.get(f"chat/{conversation}"))["conversation"]["turn"] else got)
        last = shown["turns"][-1]
        assert isinstance(last, dict)
        return last

    def told(self, name: str) -> Any:
        """Return the first event of this name that the page is told."""
        with self._browser.stream("GET", "/ui/api/events") as answer:
            lines = answer.iter_lines()
            assert f"event: {name}" in lines, "the stream ended"
            return json.loads(next(lines).removeprefix("data: "))

    def _until(self, look: Any) -> Any:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if found := look():
                return found
            time.sleep(0.05)
        raise AssertionError("it did not come")


@contextmanager
def page(tmp_path: Path, *arguments: str) -> Iterator[Page]:
    """Run `xmlcall ui`; it is ended as Ctrl-C ends it, if it still runs."""
    command = ["ui", "--no-browser", "--port", "0", "--mcp", "mcp.json", *arguments]
    with (tmp_path / "stderr").open("a") as told:
        streams = (subprocess.DEVNULL, subprocess.PIPE, told.fileno())
        process = begin(command, streams, home=tmp_path, env=environment(tmp_path))
    assert process.stdout
    try:
        address = process.stdout.readline().strip()
        assert "/ui/?token=" in address, (tmp_path / "stderr").read_text()
        with httpx.Client(base_url=address.partition("/ui/")[0], follow_redirects=True, timeout=SECONDS) as browser:
            browser.get(address)
            yield Page(process, browser)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) in (0, 130), (tmp_path / "stderr").read_text()
        process.stdout.close()


def test_a_conversation_goes_from_the_page_to_the_terminal_and_back(tmp_path: Path) -> None:
    configured(tmp_path)
    steps = [call("echo", text="hi"), "Done.", "In the terminal.", "Back."]
    with model_server(*steps) as (url, _), page(tmp_path, "--model", url) as opened:
        begun = opened.post("chat", {"conversation": None, "question": "Echo hi"})
        conversation = begun["conversation"]
        question = opened.question(conversation)
        assert (question["target"], question["call"]["arguments"]) == ("files.echo", {"text": "hi"})
        resumed = ("chat", "--resume", conversation, "--mcp", "mcp.json", "--model", url)
        held = run_cli(*resumed, home=tmp_path, stdin="And now?\n")
        assert (held.returncode, held.stdout) == (2, "")
        assert f"conversation {conversation} is open in another program" in held.stderr
        opened.post(f"questions/{question['id']}", {"answer": "yes"}, 200)
        assert opened.over(conversation)["answer"] == "Done."
        listed = run_cli("log", "list", home=tmp_path)
        assert conversation in listed.stdout
        assert "Echo hi" in listed.stdout
        done = run_cli(*resumed, home=tmp_path, stdin="And now?\n")
        assert (done.returncode, done.stdout) == (0, "In the terminal.\n")
        assert [turn["question"] for turn in opened.get(f"chat/{conversation}")["turns"]] == ["Echo hi", "And now?"]
        opened.post("chat", {"conversation": conversation, "question": "Here again"})
        assert opened.over(conversation)["answer"] == "Back."
        shown = json.loads(run_cli("log", "export", conversation, "--json", home=tmp_path).stdout)
        assert [turn["id"] for turn in shown["turns"]] == [f"{conversation}.{number}" for number in (1, 2, 3)]


def test_the_page_says_that_the_model_is_shown_no_tools(tmp_path: Path) -> None:
    configured(tmp_path)
    with model_server("Hello.") as (url, _), page(tmp_path, "--model", url, "--ask", "mode=none") as opened:
        assert "is shown no tools" in opened.told("notice")["text"]


def test_a_conversation_of_the_terminal_is_held_there(tmp_path: Path) -> None:
    configured(tmp_path)
    with model_server("From the terminal.", "From the page.") as (url, _):
        run_cli("chat", "--mcp", "mcp.json", "--model", url, home=tmp_path, stdin="Hello\n")
        path = tmp_path / "records" / "conversations.db"
        with page(tmp_path, "--model", url) as opened:
            with Store(path) as store:
                [found] = store.listed()
                store.hold(found.id)
                told = opened.post("chat", {"conversation": found.id, "question": "And?"}, 409)
                assert "is open in another program" in told["error"]["message"]
            opened.get("recorded")  # reads the same file, and must not free what is held
            opened.post("chat", {"conversation": found.id, "question": "And?"})
            assert opened.over(found.id)["answer"] == "From the page."


def test_reading_the_store_frees_nothing_that_is_held(tmp_path: Path) -> None:
    configured(tmp_path)
    with model_server(call("echo", text="hi"), "Done.") as (url, _), page(tmp_path, "--model", url) as opened:
        conversation = opened.post("chat", {"conversation": None, "question": "Echo"})["conversation"]
        question = opened.question(conversation)
        opened.get("recorded")
        opened.get(f"conversations/{conversation}")
        held = run_cli("chat", "--resume", conversation, "--mcp", "mcp.json", "--model", url, home=tmp_path, stdin="Now?\n")
        assert held.returncode == 2
        opened.post(f"questions/{question['id']}", {"answer": "no"}, 200)
        assert opened.over(conversation)["answer"] == "Done."


def test_a_program_that_is_killed_in_a_call(tmp_path: Path) -> None:
    configured(tmp_path, "hang_call")
    with model_server(call("echo", text="hi"), "I do not know.") as (url, fake):
        with page(tmp_path, "--model", url, "--allow", "files.*") as opened:
            conversation = opened.post("chat", {"conversation": None, "question": "Echo"})["conversation"]
            opened._until(lambda: [each for turn in opened.get(f"chat/{conversation}")["turns"] for each in _calls(turn)])
            opened._until(lambda: _calls(opened.get(f"chat/{conversation}")["turns"][0])[0]["outcome"] == "running")
            os.kill(opened.process.pid, signal.SIGKILL)
            opened.process.wait(SECONDS)
        with page(tmp_path, "--model", url) as opened:
            [turn] = opened.get(f"chat/{conversation}")["turns"]
            assert _calls(turn)[0]["outcome"] == "unknown"
            opened.post("chat", {"conversation": conversation, "question": "Did it run?"})
            assert opened.over(conversation)["answer"] == "I do not know."
        sent = fake.bodies[-1]["messages"]
        assert [message["role"] for message in sent] == ["system", "user", "assistant", "user", "assistant", "user"]
        assert "not known whether it did its work" in sent[3]["content"]


def test_without_records_nothing_is_kept(tmp_path: Path) -> None:
    configured(tmp_path)
    with model_server("Hello.") as (url, _), page(tmp_path, "--model", url, "--no-record") as opened:
        conversation = opened.post("chat", {"conversation": None, "question": "Hi"})["conversation"]
        assert opened.over(conversation)["answer"] == "Hello."
        assert not (tmp_path / "records" / "audit.jsonl").exists()
        path = tmp_path / "records" / "conversations.db"
        if path.exists():
            with Store(path) as store:
                assert store.listed() == []


ASKING = str(Path(__file__).parents[1] / "servers" / "asking.py")
FORM = {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}}, "required": ["name"]}


def test_a_real_server_asks_for_a_form_and_for_a_completion(tmp_path: Path) -> None:
    form = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who are you?", "requestedSchema": FORM}}
    words = [{"role": "user", "content": {"type": "text", "text": "Name a bird."}}]
    complete = {"method": "sampling/createMessage", "params": {"messages": words, "maxTokens": 7}}
    steps = [call("ask", request=json.dumps(form)), "Thanks.", call("ask", request=json.dumps(complete)), "Robin.", "A bird."]
    with printed_url(ASKING, "--http", RECORD=str(tmp_path / "record")) as (server, _), model_server(*steps) as (url, _):
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"bank": {"url": server}}}))
        with page(tmp_path, "--model", url, "--allow", "bank.*", "--repaired", "allow") as opened:
            begun = opened.post("chat", {"conversation": None, "question": "Ask: elicitation/create"})
            question = opened.question(begun["conversation"])
            assert (question["kind"], question["server"], question["message"]) == ("form", "bank", "Who are you?")
            assert question["turn"] == begun["turn"]
            opened.post(f"questions/{question['id']}", {"answer": "yes", "arguments": {"name": "x"}}, 422)
            opened.post(f"questions/{question['id']}", {"answer": "yes", "arguments": {"name": "Ada"}}, 200)
            turn = opened.over(begun["conversation"])
            assert '"Ada"' in _calls(turn)[0]["result"]
            begun = opened.post("chat", {"conversation": None, "question": "sampling/createMessage"})
            for kind, text in (("completion", "Name a bird."), ("reply", "Robin.")):
                found = opened._until(lambda kind=kind: _of_kind(opened, begun["conversation"], kind))
                assert text in json.dumps(found)
                opened.post(f"questions/{found['id']}", {"answer": "yes"}, 200)
            turn = opened.over(begun["conversation"])
            assert (turn["answer"], "Robin." in _calls(turn)[0]["result"]) == ("A bird.", True)


def _of_kind(opened: Page, conversation: str, kind: str) -> dict[str, Any] | None:
    questions = opened.get(f"chat/{conversation}")["questions"]
    return next((each for each in questions if each["kind"] == kind), None)


def test_ending_the_program_while_it_asks(tmp_path: Path) -> None:
    configured(tmp_path)
    with model_server(call("echo", text="hi"), "Fine.") as (url, _):
        with page(tmp_path, "--model", url) as opened:
            conversation = opened.post("chat", {"conversation": None, "question": "Echo"})["conversation"]
            opened.question(conversation)
            with opened._browser.stream("GET", "/ui/api/events") as events:
                lines = events.iter_lines()
                assert any(line == "event: question" for line in lines)
                opened.process.send_signal(signal.SIGINT)
                assert opened.process.wait(SECONDS) in (0, 130)
        with Store(tmp_path / "records" / "conversations.db") as store:
            assert [message.role for message in store.messages(conversation)] == ["user", "assistant", "user", "assistant"]
        done = run_cli("chat", "--continue", "--mcp", "mcp.json", "--model", url, home=tmp_path, stdin="Better?\n")
        assert done.stdout == "Fine.\n"


def _calls(turn: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for reply in turn["replies"] for each in reply["calls"]]


def test_the_arguments_of_the_browser_open_the_page_once(tmp_path: Path) -> None:
    """Everybody on a machine can see the arguments of its programs."""
    browser, given = tmp_path / "browser", tmp_path / "given"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$*" > {given}\n')
    browser.chmod(0o700)
    env = environment(tmp_path, {"BROWSER": str(browser), "DISPLAY": ":0"})
    with (tmp_path / "stderr").open("a") as told:
        streams = (subprocess.DEVNULL, subprocess.PIPE, told.fileno())
        process = begin(["ui", "--no-chat", "--port", "0"], streams, home=tmp_path, env=env)
    assert process.stdout
    try:
        printed = process.stdout.readline().strip()
        end = time.monotonic() + SECONDS
        while not (given.exists() and given.read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        address, secret = given.read_text(), (tmp_path / "records" / "page-secret").read_text()
        assert address.partition("?")[0] == printed.partition("?")[0]
        assert printed.partition("token=")[2] not in address
        assert secret not in address + printed
        assert [httpx.get(address).status_code for _ in range(2)] == [303, 403]
        assert [httpx.get(printed).status_code for _ in range(2)] == [303, 303]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) in (0, 130)
        process.stdout.close()
