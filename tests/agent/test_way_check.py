"""Mode `auto`: what a check of the model server finds, the way that follows from it, and that it is remembered."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, get_args

import pytest
from proxy_harness import ask_engine, body

from xmlcall import Asking, BackendError, LocalHost, ToolLoop
from xmlcall.agent import way_check
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.cli.open_model import way_words
from xmlcall.errors import BackendProtocolError, BackendStatusError, BackendUnavailable, OutputRejected
from xmlcall.profiles.profile import Profile, asking_by
from xmlcall.proxy.engine import engine as engine_module
from xmlcall.proxy.engine.engine import Engine
from xmlcall.turn.asking import REASONS, AskingFields, ChosenWay, Finding, choose_way
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest
from xmlcall.wire.openai import native_call

KNOWN = Capabilities(server="ollama", fingerprints=("ollama:0123456789abcdef",), build="b1")
RIGHT: dict[str, Any] = {"a": 1234, "b": 5678}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def native(name: str = "multiply", **arguments: Any) -> list[Chunk]:
    return [Chunk(tool_calls=(native_call(0, name, json.dumps(arguments)),), finish_reason="tool_calls")]


LEAKED = f'<tool_call>\n{{"name": "multiply", "arguments": {json.dumps(RIGHT)}}}\n</tool_call>'

FOUND: list[tuple[Any, Finding]] = [
    (native(**RIGHT), "called"),
    (native(a=1, b=2), "wrong"),
    (native("add", **RIGHT), "wrong"),
    (native(**RIGHT) + native(**RIGHT), "wrong"),
    (native(a="one"), "wrong"),
    (LEAKED, "leaked"),
    (f"```json\n{json.dumps({'name': 'multiply', 'arguments': RIGHT})}\n```", "leaked"),
    ("It is 7006652.", "no_call"),
    ("", "no_call"),
    (OutputRejected("x", status_code=500), "unread"),
    (OutputRejected("x", status_code=500, output=LEAKED), "leaked"),
    (BackendProtocolError("the stream ended"), "unread"),
    (BackendStatusError("does not support tools", status_code=400), "refused"),
    (BackendStatusError("tools param requires --jinja flag", status_code=500), "refused"),
]


def test_only_the_right_native_call_leads_to_native_calls() -> None:
    assert {finding: choose_way(finding).mode for finding in get_args(Finding)} == {
        finding: "native" if finding == "called" else "xml" for finding in REASONS
    }


@pytest.mark.parametrize(("reply", "finding"), FOUND)
async def test_what_a_check_finds(reply: Any, finding: Finding) -> None:
    backend = ScriptedBackend([reply])
    assert await way_check.check_way(backend) == choose_way(finding)
    [asked] = backend.requests
    assert [tool.name for tool in asked.tools] == ["multiply"]


async def test_a_template_without_tools_is_not_tried() -> None:
    backend = ScriptedBackend([], capabilities=Capabilities(server="llama.cpp", native_tools=False))
    assert await way_check.check_way(backend) == ChosenWay(mode="xml", finding="no_tools")


@pytest.mark.parametrize(
    "error", [BackendUnavailable("gone"), *(BackendStatusError("not now", status_code=status) for status in (401, 404, 429, 503))]
)
async def test_a_server_that_fails_is_no_finding(error: BackendError) -> None:
    with pytest.raises(BackendError):
        await way_check.check_way(ScriptedBackend([error], capabilities=KNOWN))
    assert way_check.known_way(KNOWN) is None


class Slow(ScriptedBackend):
    """A server that loads its model."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        await asyncio.sleep(30)
        yield Chunk(text="late")


async def test_a_slow_server_is_asked_in_text_and_checked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(way_check, "CHECK_SECONDS", 0.01)
    assert await way_check.check_way(Slow([], capabilities=KNOWN)) == ChosenWay(mode="xml", finding="slow")
    assert way_check.known_way(KNOWN) is None


class SlowAtFirst(ScriptedBackend):
    """A server that has loaded its model by the second request."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        if not self.requests:
            self.requests.append(request)
            self.closed_early.append(True)
            await asyncio.sleep(30)
        async with aclosing(super().stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk


async def test_a_proxy_checks_again_after_a_slow_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(way_check, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(engine_module, "RECHECK_SECONDS", 0.0)
    backend = SlowAtFirst(["", "In text.", native(**RIGHT), "Natively.", "Natively."])
    async with Engine(backend) as engine:
        assert engine.known_way() is None
        said = [(await ask_engine(engine, body())).text for _ in range(3)]
        assert engine.known_way() == choose_way("called")
    assert said == ["In text.", "Natively.", "Natively."]
    assert [bool(request.tools) for request in backend.requests] == [True, False, True, True, True]


async def test_a_slow_server_is_not_checked_at_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(way_check, "CHECK_SECONDS", 0.05)
    backend = SlowAtFirst(["", "One.", "Two."])
    async with Engine(backend) as engine:
        assert [(await ask_engine(engine, body())).text for _ in range(2)] == ["One.", "Two."]
    assert [bool(request.tools) for request in backend.requests] == [True, False, False]


async def test_a_refusal_is_forgotten_with_the_program() -> None:
    """The same build of llama.cpp takes tools once it is started with `--jinja`."""
    refused = BackendStatusError("tools param requires --jinja flag", status_code=500)
    await way_check.check_way(ScriptedBackend([refused], capabilities=KNOWN))
    assert way_check.known_way(KNOWN) is None


@pytest.mark.parametrize(
    ("later", "is_known"),
    [
        (KNOWN, True),
        (replace(KNOWN, build="b2"), False),
        (replace(KNOWN, fingerprints=("ollama:fedcba9876543210",)), False),
        (replace(KNOWN, fingerprints=("model:0123456789abcdef",)), False),
    ],
)
async def test_a_finding_is_remembered_for_this_model_and_server(later: Capabilities, is_known: bool) -> None:
    await way_check.check_way(ScriptedBackend([native(**RIGHT)], capabilities=KNOWN))
    assert way_check.known_way(later) == (choose_way("called") if is_known else None)


@pytest.mark.parametrize(("check", "mode"), [(native(**RIGHT), "native"), (LEAKED, "xml")])
async def test_a_loop_checks_once_and_says_what_it_found(check: Any, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "xmlcall.agent")
    backend = ScriptedBackend([check, "Hi.", "Hi."])
    async with ToolLoop(backend, [LocalHost([add])], mode="auto") as loop:
        assert str(loop.mode) == "auto"
        for _ in range(2):
            assert (await loop.ask("Hi")).text == "Hi."
        assert loop.mode == mode
    assert [bool(request.tools) for request in backend.requests] == [True, mode == "native", mode == "native"]
    assert f"tools are offered in mode {mode}: {(await loop.way()).reason}" in caplog.text


async def test_nothing_is_checked_where_nothing_is_offered_or_the_mode_is_set() -> None:
    for hosts, mode in (((), "auto"), ([LocalHost([add])], "native"), ([LocalHost([add])], "xml")):
        backend = ScriptedBackend(["Hi."])
        async with ToolLoop(backend, hosts, mode=mode) as loop:  # type: ignore[arg-type]
            assert (await loop.ask("Hi")).text == "Hi."


@pytest.mark.parametrize(
    ("way", "line"),
    [
        (
            None,
            "tools: the first request that has some checks the server's own function calling; where that fails, in the prompt",
        ),
        (ChosenWay(mode="xml"), "tools: in the prompt (mode xml; as set)"),
        (choose_way("leaked"), "tools: in the prompt (mode xml; the server left the call in the text)"),
        (
            choose_way("called"),
            "tools: by the server's own function calling (mode native; the server's own function calling gave the right call)",
        ),
    ],
)
def test_serve_says_how_tools_are_offered(way: ChosenWay | None, line: str) -> None:
    assert way_words(way) == line


@pytest.mark.parametrize("way", ["xml", "native"])
@pytest.mark.parametrize("usual", [Asking(), Asking(mode="auto")])
def test_a_profile_wins_over_the_check(usual: Asking, way: Any) -> None:
    given: AskingFields = {"mode": "auto"}
    assert asking_by(usual, given).mode == "auto"
    assert asking_by(usual, given, Profile(model="m", way=way)).mode == way
