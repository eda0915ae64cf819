"""A proxy that is stopped tells each caller, in its own format, that its answer is not whole."""

import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli.test_cli_serve import CHAT, ENDLESS, TOOL, Serving
from cli_harness import SECONDS
from servers.fake_openai import FakeOpenAI
from servers.run_server import run_server

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
def proxy(tmp_path: Path) -> Iterator[Serving]:
    """A proxy whose model says one word and then nothing, with little grace."""
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(run_server(FakeOpenAI(steps=ENDLESS).app))
        yield stack.enter_context(Serving("--model", f"{model}/v1", "--mode", "xml", "--grace", "0.3", home=tmp_path))


def errors_of(text: str) -> list[dict[str, Any]]:
    """Return the errors among the events of a stream."""
    lines = (line.removeprefix("data: ") for line in text.splitlines())
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return [event for event in events if "error" in event or event.get("type") in ("error", "response.failed")]


@pytest.mark.parametrize("name", ASKED)
def test_a_stream_ends_with_an_error_in_its_format(name: str, proxy: Serving) -> None:
    path, body = ASKED[name]
    with httpx.stream("POST", proxy.url + path, json={"model": "any", "stream": True, **body}, timeout=SECONDS) as response:
        pieces = response.iter_text()
        received = next(pieces)
        while "Hello" not in received:
            received += next(pieces)
        proxy.process.send_signal(signal.SIGTERM)
        received += "".join(pieces)  # without its end this raises
    assert proxy.process.wait(SECONDS) == 0
    assert STOPPED in json.dumps(errors_of(received)[-1])
    assert "[DONE]" not in received
    assert "Traceback" not in proxy.errors


@pytest.mark.parametrize("name", [name for name in ASKED if name != "chat, relayed"])  # of that the model server's head is out
def test_an_answer_that_has_not_begun_is_refused(name: str, proxy: Serving) -> None:
    path, body = ASKED[name]
    answers: list[httpx.Response] = []
    asked = {"model": "any", "stream": False, **body}
    asking = threading.Thread(target=lambda: answers.append(httpx.post(proxy.url + path, json=asked, timeout=SECONDS)))
    asking.start()
    asking.join(1.0)  # it is under way, and stays so
    assert asking.is_alive()
    proxy.process.send_signal(signal.SIGTERM)
    asking.join(SECONDS)
    assert (answers[0].status_code, answers[0].headers["retry-after"]) == (503, "5")
    assert STOPPED in answers[0].text
    assert proxy.process.wait(SECONDS) == 0


def test_nobody_new_is_let_in(proxy: Serving) -> None:
    body = {"messages": SAID, "tools": [TOOL], "stream": True}
    with httpx.stream("POST", proxy.url + CHAT, json=body, timeout=SECONDS) as response:
        pieces = response.iter_text()
        next(pieces)
        proxy.process.send_signal(signal.SIGTERM)
        "".join(pieces)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{proxy.url}/health", timeout=SECONDS)
    assert proxy.process.wait(SECONDS) == 0
