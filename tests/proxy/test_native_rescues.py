"""Calls that a server with function calling loses: fakes that fail as it is reported of them, in front of the loop and the proxy.

Whatever is lost, the call runs once: read in what the server sent, else asked for again with the tools in the prompt.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import pytest
from servers import fake_ollama, fake_openai
from servers.fake_ollama import FakeOllama
from servers.fake_openai import DONE, FakeOpenAI, chunk, event, llama_props
from servers.run_server import Stage, run_server

from xmlcall import Answer, AskedAgain, BackendError, LocalHost, Message, RepairPolicy, ToolLoop
from xmlcall.backends.ollama import OllamaBackend
from xmlcall.backends.openai import OpenAIBackend
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.cli.words import texts_of
from xmlcall.prompting.format import LANGUAGES
from xmlcall.proxy import create_app
from xmlcall.turn_records.builder import TurnBuilder
from xmlcall.types.completion import Chunk
from xmlcall.wire.openai import native_call

Kind = Literal["vllm", "llama", "ollama"]

IN_TEXT = '<function_calls>\n<invoke name="weather">\n<parameter name="city">Bern</parameter>\n</invoke>\n</function_calls>'
ARGUMENTS = '{"city": "Bern"}'
JSON_CALL = f'{{"name": "weather", "arguments": {ARGUMENTS}}}'
QWEN = "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>"
PYTHON = "<|tool_call_start|>[weather(city='Bern')]<|tool_call_end|>"
MISTRAL = f"[TOOL_CALLS]weather{ARGUMENTS}"
PEG = "The model produced output that does not match the expected peg-native format"
WRAPPED = "Engine protocol predict stream returned an error: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """How a server loses the call.

    Args:
        text: what it streams before.
        error: what it reports then; None if it reports nothing.
        status: of the answer: 200 for an error in the middle of the stream.
        is_read: whether the call stands in what the server sent, so that nothing is asked again.
        ends: what it streams in place of an error.
    """

    server: Kind = "llama"
    text: str = ""
    error: Any = None
    status: int = 200
    is_read: bool = False
    why: str = "unread"
    ends: tuple[Any, ...] = ()


def error(message: str, code: int = 500) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "type": "server_error"}}


def groq(output: str) -> dict[str, Any]:
    words = {"message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed"}
    return {"error": {**words, "failed_generation": output}}


def ended(finish_reason: str = "stop", **delta: Any) -> tuple[Any, ...]:
    return (chunk(delta, finish_reason), DONE)


def native(*fragments: dict[str, Any]) -> tuple[Any, ...]:
    return (*(chunk({"tool_calls": [fragment]}) for fragment in fragments), *ended("tool_calls"))


def part(index: int, arguments: str, identity: str = "", name: str = "") -> dict[str, Any]:
    """A fragment of a call."""
    head = {"id": identity, "type": "function"} if identity else {}
    return {"index": index, **head, "function": {**({"name": name} if name else {}), "arguments": arguments}}


READ: dict[str, Any] = {"is_read": True, "why": ""}
CASES: dict[str, Lost] = {
    # llama.cpp until b9626: the message quotes the output from where it cannot be read on
    "llama.cpp, quoted": Lost(error=error(f"Failed to parse input at pos 0: {QWEN}"), status=500, **READ),
    "llama.cpp, quoted in the stream": Lost(text="I look.\n", error=error(f"Failed to parse input at pos 8: {QWEN}"), **READ),
    "llama.cpp, streamed and quoted": Lost(
        text=f"I look.\n{PYTHON}", error=error(f"Failed to parse input at pos 8: {PYTHON}"), **READ
    ),
    "llama.cpp, half streamed": Lost(text=PYTHON[:30], error=error(f"Failed to parse input at pos 0: {PYTHON}"), **READ),
    "llama.cpp, quoted, with thinking": Lost(error=error(f"Failed to parse input at pos 3: <think>Hm.</think>\n{QWEN}"), **READ),
    "llama.cpp, quoted, no call": Lost(error=error("Failed to parse input at pos 12: </tool_call>"), status=500),
    "llama.cpp behind LiteLLM": Lost(
        error=error(f"litellm.InternalServerError: Custom_openaiException - Failed to parse input at pos 0: {QWEN}"), **READ
    ),
    # since then it does not
    "llama.cpp, peg": Lost(error=error(PEG), status=500),
    "llama.cpp, peg in the stream": Lost(text="I look.", error=error(PEG)),
    "llama.cpp, peg, streamed": Lost(text=f"I look.\n{PYTHON}", error=error(PEG), **READ),
    "llama.cpp, peg, half streamed": Lost(
        text="<tool_call>\n<function=weather>\n<parameter=city>\nB\n</parameter>", error=error(PEG)
    ),
    "llama.cpp, less calls": Lost(text="I look.", error=error("Invalid diff: now finding less tool calls!")),
    "llama.cpp, no parser": Lost(error=error("Automatic parser generation failed", 400), status=400, why="failed"),
    "llama.cpp, sampler": Lost(error=error("Unexpected empty grammar stack after accepting piece: {"), why="failed"),
    # LM Studio wraps llama.cpp's errors, or leaves the call out
    "LM Studio, wrapped": Lost(server="vllm", error={"error": WRAPPED + json.dumps(error(PEG)["error"])}),
    "LM Studio, wrapped and quoted": Lost(
        server="vllm", error={"error": WRAPPED + json.dumps(error(f"Failed to parse input at pos 0: {QWEN}")["error"])}, **READ
    ),
    "LM Studio, output": Lost(
        server="vllm", error={"error": f"Failed to parse tool call: Unexpected end of content. \nModel Output:  {QWEN}"}, **READ
    ),
    "LM Studio, harmony": Lost(
        server="vllm", error={"error": 'Failed to parse tool call: Expected "<|message|>", but got "to=function" at index 89.'}
    ),
    "LM Studio, left out": Lost(server="vllm", text="I look.", ends=ended("tool_calls")),
    # Ollama: gpt-oss quotes the arguments without the tool's name; the Qwen Coder models quote nothing
    "Ollama, arguments": Lost(
        server="ollama",
        error=f"error parsing tool call: raw='[{ARGUMENTS}', err=invalid character ']' after top-level value",
        status=500,
    ),
    "Ollama, prose": Lost(
        server="ollama", error="error parsing tool call: raw='We need the weather', err=invalid character 'W'", status=500
    ),
    "Ollama, whole call": Lost(server="ollama", error=f"error parsing tool call: raw='{JSON_CALL}]', err=invalid", **READ),
    "Ollama, XML": Lost(
        server="ollama", text="I look.", error="XML syntax error on line 7: element <parameter> closed by </function>"
    ),
    "Ollama, no tools": Lost(
        server="ollama", error="registry.ollama.ai/library/tiny does not support tools", status=400, why="failed"
    ),
    # vLLM
    "vLLM, harmony": Lost(
        server="vllm", text="I look.", error=error('unexpected tokens remaining in message header: ["to=functions.weather"]', 400)
    ),
    "vLLM, no parser": Lost(
        server="vllm", error=error('"auto" tool choice requires --enable-auto-tool-choice', 400), status=400, why="failed"
    ),
    # Groq has the output in a field
    "Groq": Lost(server="vllm", error=groq(f"<function=weather>{ARGUMENTS}</function>"), status=400, **READ),
    "Groq, in the stream": Lost(server="vllm", text="I look.", error=groq(f"<function=weather{ARGUMENTS}</function>"), **READ),
    "Groq, nothing": Lost(server="vllm", error=groq(""), status=400),
    "Groq, checked": Lost(
        server="vllm", error=error("tool call validation failed: parameters for tool weather", 400), status=400
    ),
    # mlx-lm ends the stream if it cannot read a call
    "mlx-lm, ended": Lost(server="vllm", text="I look.", ends=(), why="failed"),
    "mlx-lm, ended at once": Lost(server="vllm", ends=(chunk({"role": "assistant"}),), why="failed"),
    # calls left in the text, in a model's own words
    "leaked, fence": Lost(text=f"```json\n{JSON_CALL}\n```", ends=ended(), **READ),
    "leaked, Mistral": Lost(server="vllm", text=MISTRAL, ends=ended(), **READ),
    "leaked, LFM2": Lost(server="vllm", text=PYTHON, ends=ended(), **READ),
    "leaked, Qwen": Lost(server="ollama", text=QWEN, ends=(fake_ollama.done(),), **READ),
    # nothing at all
    "empty": Lost(ends=ended(), why="empty"),
    "empty, Ollama": Lost(server="ollama", ends=(fake_ollama.done(),), why="empty"),
    "empty, thinking": Lost(server="vllm", ends=ended(reasoning_content="The person wants the weather."), why="empty"),
    # reported twice
    "twice, in text and native": Lost(server="vllm", text=QWEN, ends=native(part(0, ARGUMENTS, "c1", "weather")), **READ),
    "twice, at its end": Lost(
        server="vllm", ends=native(part(0, "", "c1", "weather"), part(0, ARGUMENTS), part(0, ARGUMENTS, "c1", "weather")), **READ
    ),
    "twice, at another index": Lost(
        server="vllm", ends=native(part(0, "", "c1", "weather"), part(1, ARGUMENTS, "c1", "weather")), **READ
    ),
    "twice, with another id": Lost(
        server="vllm", ends=native(part(0, ARGUMENTS, "c1", "weather"), part(1, ARGUMENTS, "c2", "weather")), **READ
    ),
    # broken arguments
    "arguments, an array's end": Lost(server="vllm", ends=native(part(0, f"{ARGUMENTS}]", "c1", "weather")), **READ),
    "arguments, a token": Lost(server="vllm", ends=native(part(0, f"{ARGUMENTS}<|call|>", "c1", "weather")), **READ),
    "arguments, cut": Lost(server="vllm", ends=native(part(0, ARGUMENTS[:-1], "c1", "weather")), **READ),
    "arguments, not escaped": Lost(server="vllm", ends=native(part(0, "{'city': 'Bern',}", "c1", "weather")), **READ),
    "a name in pieces": Lost(
        server="vllm", ends=native(part(0, "", "c1", "wea"), part(0, "", "", "ther"), part(0, ARGUMENTS)), **READ
    ),
    "a name with Harmony's channel": Lost(
        server="vllm", ends=native(part(0, ARGUMENTS, "c1", "weather<|channel|>commentary")), **READ
    ),
}
STAGES: dict[str, Stage] = {"vllm": Stage(), "llama": Stage(), "ollama": Stage()}
HTTP = httpx.Client(timeout=10.0)
QUESTION = "How is the weather in Bern?"
TOOL = {
    "name": "weather",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: where
    """
    CALLED.append(city)
    return "20 degrees"


CALLED: list[str] = []


def fake_of(lost: Lost, size: int | None) -> Any:
    """The server: it loses the call of a request with tools; asked in text, it sends the call, then an answer."""
    texts = [lost.text] if size is None else [lost.text[at : at + size] for at in range(0, len(lost.text), size)]
    refusal = (lost.status, lost.error) if lost.status != 200 else None
    if lost.server == "ollama":
        steps = [*map(fake_ollama.part, filter(None, texts)), *lost.ends]
        steps += [fake_ollama.line({"error": lost.error})] if lost.error and not refusal else []
        said = [*map(fake_ollama.part, IN_TEXT), fake_ollama.done(1000)]
        return FakeOllama(steps=steps, in_text=said, refusal=refusal, capabilities=("completion", "tools"))
    steps = [*(chunk({"content": text}) for text in texts if text), *lost.ends]
    steps += [event(lost.error)] if lost.error and not refusal else []
    props = llama_props(tools=True) if lost.server == "llama" else None
    return FakeOpenAI(steps=steps, in_text=fake_openai.reply(*IN_TEXT), refusal=refusal, props=props)


def answers_results(fake: Any) -> None:
    """Let the server answer in words once it is sent a result."""
    answer = "It is 20 degrees."
    is_ollama = isinstance(fake, FakeOllama)
    fake.steps = fake.in_text = [fake_ollama.part(answer), fake_ollama.done(1000)] if is_ollama else fake_openai.reply(answer)
    fake.refusal = None


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with contextlib.ExitStack() as stack:
        yield {server: stack.enter_context(run_server(stage)) for server, stage in STAGES.items()}


def backend_of(server: str, urls: dict[str, str]) -> Any:
    return OllamaBackend("tiny", host=urls[server]) if server == "ollama" else OpenAIBackend(f"{urls[server]}/v1")


@pytest.fixture(scope="module")
def proxies(urls: dict[str, str]) -> Iterator[dict[str, str]]:
    """A proxy in native mode in front of each server."""
    for server, stage in STAGES.items():
        stage.app = fake_of(Lost(server=server), None).app  # type: ignore[arg-type]
    with contextlib.ExitStack() as stack:
        yield {
            server: stack.enter_context(run_server(create_app(backend_of(server, urls), mode="native"), lifespan="on"))
            for server in STAGES
        }
    HTTP.close()


async def _ran(lost: Lost, size: int | None, urls: dict[str, str], **asked: Any) -> list[Any]:
    fake = fake_of(lost, size)
    STAGES[lost.server].app = fake.app

    def tool(city: str) -> str:
        answers_results(fake)
        return weather(city)

    tool.__name__, tool.__doc__ = "weather", weather.__doc__
    CALLED.clear()
    loop = ToolLoop(backend_of(lost.server, urls), [LocalHost([tool])], policy=["*"], **{"mode": "native", **asked})
    async with loop:
        return [each async for each in loop.run([Message(role="user", content=QUESTION)])]


@pytest.mark.parametrize("size", [None, 1])
@pytest.mark.parametrize("name", CASES)
def test_the_loop_runs_a_lost_call_once(name: str, size: int | None, urls: dict[str, str]) -> None:
    lost = CASES[name]
    events = asyncio.run(_ran(lost, size, urls))
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert (answer.text, answer.stop_reason, CALLED) == ("It is 20 degrees.", "end", ["Bern"])
    asked = [(each.why, each.in_text) for each in events if isinstance(each, AskedAgain)]
    assert asked == ([] if lost.is_read else [(lost.why, True)])


@pytest.mark.parametrize("name", [name for name, lost in CASES.items() if not lost.is_read])
def test_the_record_says_what_was_asked_again_and_why(name: str, urls: dict[str, str]) -> None:
    builder = TurnBuilder(id="t", source="chat")
    for happened in asyncio.run(_ran(CASES[name], None, urls)):
        builder.note(happened)
    first, second, third = builder.record().replies
    assert (first.is_kept, first.refusal) == (False, f"native_{CASES[name].why}")
    assert [(reply.is_kept, reply.refusal) for reply in (second, third)] == [(True, "")] * 2
    assert all(texts_of(lang)[first.refusal] for lang in LANGUAGES)


async def test_a_rescued_turn_continues_with_calls_of_both_kinds() -> None:
    """A native call, then an empty reply: the conversation is written as text, and later turns are native again."""

    def native_reply(**arguments: Any) -> Chunk:
        return Chunk(tool_calls=(native_call(0, "weather", json.dumps(arguments)),), finish_reason="tool_calls")

    backend = ScriptedBackend(
        [[native_reply(city="Bern")], "", IN_TEXT.replace("Bern", "Basel"), "Both.", [native_reply(city="X")], "Y."]
    )
    async with ToolLoop(backend, [LocalHost([weather])], policy=["*"], mode="native") as loop:
        assert (await loop.ask("The weather in Bern and in Basel?")).text == "Both."
        assert (await loop.ask("And in X?")).text == "Y."
    whole, empty, text, results, later, _ = backend.requests
    assert [bool(request.tools) for request in backend.requests] == [True, True, False, False, True, True]
    assert [message.role for message in empty.messages] == ["user", "assistant", "tool"]
    assert [message.role for message in text.messages] == ["system", "user", "assistant", "user"]
    assert '<parameter name="city">Bern</parameter>' in text.messages[2].content
    assert "20 degrees" in text.messages[3].content
    assert results.messages[: len(text.messages)] == text.messages
    assert later.messages[: len(whole.messages)] == whole.messages
    assert [message.role for message in later.messages[1:]] == ["assistant", "tool", "assistant", "user", "assistant", "user"]


def sent(url: str, *, stream: bool) -> tuple[list[tuple[str, Any]], str]:
    """Ask a proxy; return the calls and why the answer ended."""
    tools = [{"type": "function", "function": TOOL}]
    body = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}], "tools": tools, "stream": stream}
    response = HTTP.post(f"{url}/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    if not stream:
        choice = response.json()["choices"][0]
        calls = choice["message"].get("tool_calls") or []
        return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls], choice["finish_reason"]
    return joined([json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")])


def joined(chunks: Sequence[dict[str, Any]]) -> tuple[list[tuple[str, Any]], str]:
    calls: dict[int, list[str]] = {}
    reason = ""
    for data in chunks:
        assert "error" not in data, data
        for choice in data["choices"]:
            reason = choice["finish_reason"] or reason
            for piece in choice["delta"].get("tool_calls") or []:
                call = calls.setdefault(piece["index"], ["", ""])
                call[0] += piece["function"].get("name") or ""
                call[1] += piece["function"].get("arguments") or ""
    return [(name, json.loads(arguments)) for name, arguments in calls.values()], reason


@pytest.mark.parametrize(("stream", "size"), [(False, None), (True, 1)])
@pytest.mark.parametrize("name", CASES)
def test_the_proxy_passes_a_lost_call_on_once(name: str, stream: bool, size: int | None, proxies: dict[str, str]) -> None:
    lost = CASES[name]
    fake = fake_of(lost, size)
    STAGES[lost.server].app = fake.app
    assert sent(proxies[lost.server], stream=stream) == ([("weather", {"city": "Bern"})], "tool_calls")
    assert [bool(body.get("tools")) for body in fake.bodies] == [True] + [False] * (not lost.is_read)


# -- where nothing is asked again ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "options", "message"),
    [
        (CASES["llama.cpp, peg"], {"mode": "native-only"}, "could not read what its model wrote"),
        (CASES["llama.cpp, peg"], {"repair": RepairPolicy(max_replies=1)}, "could not read what its model wrote"),
        (Lost(text="I look.", error=error("out of memory")), {}, "out of memory"),
        (Lost(error=error("no such key", 401), status=401), {}, "no such key"),
    ],
)
def test_other_failures_are_errors(lost: Lost, options: dict[str, Any], message: str, urls: dict[str, str]) -> None:
    with pytest.raises(BackendError, match=message):
        asyncio.run(_ran(lost, None, urls, **options))
    assert CALLED == []


# -- calls in the reasoning ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reasoning", "is_taken"),
    [
        (f"I need the weather.\n{QWEN}", True),
        (f"I need the weather.\n{QWEN}\n", True),
        (f"I could write {QWEN}, but the person did not ask for it.", False),
        ("I need the weather.\n<tool_call>\n<function=weather>\n<parameter=ci", False),
        ("I need the weather.", False),
    ],
)
@pytest.mark.parametrize("size", [None, 1])
def test_a_call_that_ends_the_reasoning_is_taken_where_it_is_set(
    reasoning: str, is_taken: bool, size: int | None, urls: dict[str, str]
) -> None:
    pieces = [reasoning] if size is None else list(reasoning)
    lost = Lost(server="vllm", ends=(*(chunk({"reasoning_content": piece}) for piece in pieces), *ended()))
    events = asyncio.run(_ran(lost, None, urls, reasoned_calls=True))
    assert CALLED == ["Bern"]
    assert [each.why for each in events if isinstance(each, AskedAgain)] == ([] if is_taken else ["empty"])
    asyncio.run(_ran(lost, None, urls))  # without the setting it is asked for again
    assert CALLED == ["Bern"]
