"""Many turns in a context for a quarter of them: what of a prompt is the same as in the request before, in loop and proxy.

A server keeps the beginning that two prompts share. Their common prefix in characters stands for its cache here.
"""

import bisect
import itertools
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from cli_harness import call
from profiles import is_deep
from proxy_harness import ask_engine, body, function

from xmlcall import Answer, LocalHost, Message, Shortened, ToolLoop
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy.engine.engine import Engine
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest

TURNS, CONTEXT = (60, 16_384) if is_deep() else (42, 12_288)
SERVER = Capabilities(server="scripted", context_length=CONTEXT)
STANDING = "From now on, give all prices in euros."


def question(turn: int) -> str:
    return f"{STANDING if turn == 3 else ''} What is written in report {turn} about sales? {'Be exact. ' * 30}".strip()


def answer(turn: int) -> str:
    return f"Report {turn} says that sales rose by {turn} percent. {'It goes on for a while. ' * 25}"


def read_report(number: str) -> str:
    """Read a report."""
    return f"Report {number}: sales rose. " + "Some more lines of it follow here. " * (300 if int(number) % 10 == 7 else 25)


REPLIES = [each for turn in range(TURNS) for each in (call("read_report", number=str(turn)), answer(turn))]


def prompts(requests: Sequence[CompletionRequest]) -> list[str]:
    return ["".join(f"<{message.role}>{message.content}" for message in request.messages) for request in requests]


def shares(sent: Sequence[str]) -> list[float]:
    """How much of each prompt is the beginning of the one before."""
    return [common(before, prompt) / len(prompt) for before, prompt in itertools.pairwise(sent)]


def common(one: str, other: str) -> int:
    """The length of the beginning that two texts share."""
    return bisect.bisect_left(range(min(len(one), len(other))), True, key=lambda end: one[: end + 1] != other[: end + 1])


def assert_the_cache_holds(sent: Sequence[str]) -> None:
    assert len(sent) == 2 * TURNS
    full = [number for number, prompt in enumerate(sent) if "earlier messages of this conversation are left out" in prompt]
    assert len(full) > TURNS, "the conversation has to be much larger than the context"
    steady = [number for number in range(full[0], len(sent)) if sent[number].startswith(sent[number - 1])]
    assert len(sent) - full[0] - len(steady) <= 10, "so many cuts"
    share = sum(shares(sent)[number - 1] for number in steady) / len(steady)
    assert share > 0.95
    assert "in full" in sent[-1], "the caller's own instructions"
    assert STANDING in sent[-1]
    assert question(TURNS - 1) in sent[-1]


async def in_the_loop() -> tuple[list[str], list[int]]:
    """The prompts, and the turns in which it was told that the conversation is cut."""
    backend = ScriptedBackend(REPLIES, capabilities=SERVER)
    messages: list[Message] = [Message(role="system", content="Write numbers in full.")]
    told = []
    async with ToolLoop(backend, [LocalHost([read_report])], policy=["*"]) as loop:
        for turn in range(TURNS):
            async for event in loop.run([*messages, Message(role="user", content=question(turn))]):
                if isinstance(event, Answer):
                    messages = list(event.messages)
                elif isinstance(event, Shortened):
                    told.append(turn)
    return prompts(backend.requests), told


@pytest.mark.sweep
async def test_what_is_cut_stays_cut_in_the_loop() -> None:
    sent, told = await in_the_loop()
    assert_the_cache_holds(sent)
    cuts = [number for number in range(1, len(sent)) if not sent[number].startswith(sent[number - 1])]
    assert told == [number // 2 for number in cuts], "once for each cut"


READ = function("read_report", "Read a report.", number={"type": "string"})


class Uncounted(ScriptedBackend):
    """A model whose server tells no counts, also when it is asked for one token to learn them."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        if request.max_tokens == 1:
            yield Chunk(finish_reason="length")
            return
        async for chunk in super().stream(request):
            yield chunk


@pytest.mark.sweep
async def test_what_is_cut_stays_cut_in_the_proxy(caplog: pytest.LogCaptureFixture) -> None:
    """Its callers send the whole conversation each time; another proxy, which knows nothing of it, cuts at the same places."""
    caplog.set_level(logging.INFO, "xmlcall.proxy")
    backend = Uncounted(REPLIES, capabilities=SERVER)
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Write numbers in full."}]
    async with Engine(backend, mode="xml") as engine:
        for turn in range(TURNS):
            messages.append({"role": "user", "content": question(turn)})
            made = {"name": "read_report", "arguments": f'{{"number": "{turn}"}}'}
            asked = {"id": f"call_{turn}", "type": "function", "function": made}
            assert (await ask_engine(engine, body(*messages, tools=[READ]))).finish_reason == "tool_calls"
            messages.append({"role": "assistant", "content": None, "tool_calls": [asked]})
            messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": read_report(str(turn))})
            last = body(*messages, tools=[READ])
            messages.append({"role": "assistant", "content": (await ask_engine(engine, last)).text})
    sent = prompts(backend.requests)
    assert_the_cache_holds(sent)
    cuts = sum(not after.startswith(before) for before, after in itertools.pairwise(sent))
    assert sum("to fit the model's context: " in record.message for record in caplog.records) == cuts
    anew = Uncounted(["Yes."], capabilities=SERVER)
    async with Engine(anew, mode="xml") as engine:
        await ask_engine(engine, last)
    assert prompts(anew.requests) == sent[-1:]


async def test_another_conversation_is_told_anew() -> None:
    backend = ScriptedBackend(REPLIES[:2] * 2, capabilities=Capabilities(server="scripted", context_length=600))
    async with ToolLoop(backend, [LocalHost([read_report])], policy=["*"]) as loop:
        for _ in range(2):
            events = [event async for event in loop.run([Message(role="user", content="What is in report 0?")])]
            assert any(isinstance(event, Shortened) for event in events)
