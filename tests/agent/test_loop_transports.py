"""The same loop over all three MCP transports, against real servers of two SDKs; the model is scripted."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from servers.started import demo_server, everything_server
from turn_harness import call

from xmlcall import Answer, CallFinished, CallRejected, McpHost, Message, ToolLoop
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.hosts.server import ServerConfig
from xmlcall.prompting.results import result_text

Server = Callable[[str], AbstractContextManager[ServerConfig]]


def block(name: str, **arguments: Any) -> str:
    return f"<function_calls>{call(name, **arguments)}</function_calls>"


# Server, what the model writes turn by turn, what the tools must answer.
CASES: dict[str, tuple[Server, list[str], list[str]]] = {
    "demo": (
        demo_server,
        [
            block("calculator", operation="multiply", a="1234", b="5678"),
            block("calculator", operation="divide", a="1", b="0"),
            block("text_analyzer", text="the quick <b>brown</b> fox"),
            "Done.",
        ],
        ["7006652", "division by zero", "4 words"],
    ),
    "everything": (
        everything_server,
        [block("echo", message="hi & <bye>"), block("get-sum", a="2", b="40"), block("get-tiny-image"), "Done."],
        ["Echo: hi & <bye>", "42", "[image: image/png"],
    ),
}


@pytest.mark.parametrize("transport", ["stdio", *(pytest.param(name, marks=pytest.mark.full) for name in ("http", "sse"))])
@pytest.mark.parametrize("case", ["demo", pytest.param("everything", marks=pytest.mark.full)])
async def test_the_loop(case: str, transport: str) -> None:
    server, replies, wanted = CASES[case]
    with server(transport) as config:
        backend = ScriptedBackend(replies, chunk_size=9)
        async with ToolLoop(backend, [McpHost(config)], policy=[f"{case}.*"]) as loop:
            events = [event async for event in loop.run([Message(role="user", content="Go on.")])]
    assert not [event for event in events if isinstance(event, CallRejected)]
    finished = [event for event in events if isinstance(event, CallFinished)]
    assert len(finished) == len(wanted)
    for event, text in zip(finished, wanted, strict=True):
        assert text in result_text(event.result)
        assert not event.failure
    assert isinstance(events[-1], Answer)
    assert events[-1].text == "Done."


@pytest.mark.full
async def test_two_servers_in_one_conversation() -> None:
    with demo_server("stdio") as demo, everything_server("stdio") as everything:
        calls = call("calculator", operation="add", a="1", b="2") + call("echo", message="x")
        replies = [f"<function_calls>{calls}</function_calls>", "Done."]
        async with ToolLoop(ScriptedBackend(replies), [McpHost(demo), McpHost(everything)], policy=["*"]) as loop:
            prompt = (await loop.tool_prompt()).system
            answer = await loop.ask("Go on.")
    assert 'The tool server "demo" says about its tools:' in prompt
    assert '<result name="calculator">\n3\n</result>\n<result name="echo">\nEcho: x\n</result>' in answer.messages[2].content
