"""A proxy that is stopped tells each caller, in its own format, that its answer is not whole."""

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_harness import SECONDS, lent_server
from servers.fake_openai import FakeOpenAI
from servers.run_server import wait_until
from serving import CHAT, ENDLESS, TOOL, Serving

SAID: list[Any] = [{"role": "user", "content": "Hi"}]
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": SAID, "tools": [TOOL]}),
    "chat, relayed": (CHAT, {"messages": SAID}),
    "responses": ("/v1/responses", {"input": "Hi"}),
    "messages": ("/v1/messages", {"messages": SAID, "max_tokens": 9}),
    "ollama": ("/api/chat", {"messages": SAID}),
}
STOPPED = "the server was stopped before the answer was whole"


@pytest.fixture
def fake() -> FakeOpenAI:
    """A model server that says one word and then nothing."""
    return FakeOpenAI(steps=ENDLESS)


@contextlib.contextmanager
def serving(home: Path, fake: FakeOpenAI, *, grace: str) -> Iterator[Serving]:
    """Run a proxy of it."""
    with lent_server(fake.app) as model:
        with Serving("--model", f"{model}/v1", "--ask", "mode=xml", "--grace", grace, home=home) as proxy:
            yield proxy


@pytest.fixture
def proxy(tmp_path: Path, fake: FakeOpenAI) -> Iterator[Serving]:
    """A proxy with little grace."""
    with serving(tmp_path, fake, grace="0.3") as running:
        yield running


def errors_of(text: str) -> list[dict[str, Any]]:
    """Return the errors among the events of a stream."""
    lines = (line.removeprefix("data: ") for line in text.splitlines())
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return [event for event in events if "error" in event or event.get("type") in ("error", "response.failed")]


def test_streams_end_with_an_error_in_their_format(proxy: Serving) -> None:
    with contextlib.ExitStack() as stack:
        pieces, received = {}, dict.fromkeys(ASKED, "")
        for name, (path, body) in ASKED.items():
            asked = {"model": "any", "stream": True, **body}
            response = stack.enter_context(httpx.stream("POST", proxy.url + path, json=asked, timeout=SECONDS))
            pieces[name] = response.iter_text()
            while "Hello" not in received[name]:
                received[name] += next(pieces[name])
        proxy.process.send_signal(signal.SIGTERM)
        for name in ASKED:
            received[name] += "".join(pieces[name])  # without its end this raises
    assert proxy.process.wait(SECONDS) == 0
    for name, text in received.items():
        assert STOPPED in json.dumps(errors_of(text)[-1]), name
        assert "[DONE]" not in text
    assert "Traceback" not in proxy.errors


def test_answers_that_have_not_begun_are_refused(proxy: Serving, fake: FakeOpenAI) -> None:
    whole = {name: ASKED[name] for name in ASKED if name != "chat, relayed"}  # of that the model server's head is out
    answers: dict[str, httpx.Response] = {}

    def ask(name: str, path: str, body: dict[str, Any]) -> None:
        answers[name] = httpx.post(proxy.url + path, json={"model": "any", "stream": False, **body}, timeout=SECONDS)

    asking = [threading.Thread(target=ask, args=(name, *each)) for name, each in whole.items()]
    for each in asking:
        each.start()
    wait_until(lambda: len(fake.bodies) >= len(whole))
    assert all(each.is_alive() for each in asking)  # they are under way, and stay so
    proxy.process.send_signal(signal.SIGTERM)
    for each in asking:
        each.join(SECONDS)
    for name in whole:
        assert (answers[name].status_code, answers[name].headers["retry-after"]) == (503, "5"), name
        assert STOPPED in answers[name].text
    assert proxy.process.wait(SECONDS) == 0


def is_refused_soon(client: httpx.Client, url: str) -> bool:
    """Ask on new connections for up to 5 s, until one is refused."""
    for _ in range(100):
        try:
            client.get(url, headers={"connection": "close"}, timeout=SECONDS)
        except httpx.TransportError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.sweep  # as a program of its own, too
def test_nobody_new_is_let_in(tmp_path: Path, fake: FakeOpenAI) -> None:
    """Refused while an answer is still under way: with little grace the proxy would be gone before that is seen."""
    with serving(tmp_path, fake, grace="20") as slow, httpx.Client() as client:
        body = {"messages": SAID, "tools": [TOOL], "stream": True}
        with httpx.stream("POST", slow.url + CHAT, json=body, timeout=SECONDS) as response:
            next(response.iter_text())
            slow.process.send_signal(signal.SIGTERM)
            assert is_refused_soon(client, f"{slow.url}/health")
            assert slow.process.poll() is None


def small_and_endless() -> dict[str, Any]:
    """Make a schema of 14 kilobytes that has 60 to the sixth parts."""
    parts: dict[str, Any] = {"L6": {"type": "string"}}
    for level in range(6):
        parts[f"L{level}"] = {"properties": {f"p{number}": {"$ref": f"#/$defs/L{level + 1}"} for number in range(60)}}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/L0"}}, "$defs": parts}


def test_a_small_schema_that_makes_much_of_itself_is_answered_and_one_signal_ends_the_program(proxy: Serving) -> None:
    tools = [{"type": "function", "function": {"name": f"f{number}", "parameters": small_and_endless()}} for number in range(20)]
    longest, answered = 0.0, threading.Event()

    def ask() -> None:
        body = {"model": "any", "stream": True, "messages": SAID, "tools": tools}
        with contextlib.suppress(httpx.HTTPError), httpx.stream("POST", proxy.url + CHAT, json=body, timeout=SECONDS) as response:
            answered.set()
            for _ in response.iter_text():
                pass

    asking = threading.Thread(target=ask)
    asking.start()
    while not answered.is_set():
        begun = time.monotonic()
        assert proxy.get("/health").status_code == 200
        longest = max(longest, time.monotonic() - begun)
    status, seconds = proxy.end(signal.SIGTERM)
    asking.join()
    assert (status, seconds < 5, longest < 2) == (0, True, True)
