"""Replies that the caller has begun: the answer goes on with them and does not repeat them, whatever the model server can."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proxy_harness import ADD, add, client_of

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import BackendStatusError
from xmlcall.proxy.engine.filters import without_beginning
from xmlcall.proxy.formats.contract import ResponseEnded, ResponseEvent, TextPiece
from xmlcall.types.completion import Capabilities, Usage

CONTINUES = Capabilities(server="llama.cpp", continues=True)
NOT = Capabilities(server="openai-compatible")
MESSAGES, CHAT = "/v1/messages", "/v1/chat/completions"
WEATHER = {"name": "add", "description": "Add.", "input_schema": ADD["function"]["parameters"]}
BEGUN = "The answer is"


def asked(path: str, begun: str = BEGUN, *, tools: bool) -> dict[str, Any]:
    said = [{"role": "user", "content": "1 + 2?"}, {"role": "assistant", "content": begun}]
    tool = WEATHER if path == MESSAGES else ADD
    return {"model": "m", "max_tokens": 100, "messages": said, **({"tools": [tool]} if tools else {})}


async def answered(backend: ScriptedBackend, path: str, body: dict[str, Any]) -> tuple[str, list[Any]]:
    """Return text and calls of an answer."""
    async with client_of(backend) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    data = answer.json()
    if path == MESSAGES:
        texts = [block["text"] for block in data["content"] if block["type"] == "text"]
        return "".join(texts), [block["input"] for block in data["content"] if block["type"] == "tool_use"]
    message = data["choices"][0]["message"]
    return message["content"] or "", message.get("tool_calls", [])


def last(backend: ScriptedBackend, number: int = -1) -> tuple[str, str]:
    message = backend.requests[number].messages[-1]
    return message.role, message.content


@pytest.mark.parametrize("chunk_size", [None, 1, 3])
@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
async def test_a_server_that_continues_goes_on(path: str, tools: bool, chunk_size: int | None) -> None:
    backend = ScriptedBackend([" three."], capabilities=CONTINUES, chunk_size=chunk_size)
    assert await answered(backend, path, asked(path, tools=tools)) == (" three.", [])
    assert last(backend) == ("assistant", BEGUN)


REPLIES = {
    "it begins so": ("The answer is three.", " three."),
    "with white space": ("\n The answer is three.", " three."),
    "it goes on": (" three.", " three."),
    "another answer": ("There are three.", "There are three."),
    "a shorter one": ("The", "The"),
    "no more": ("The answer is", ""),
}


@pytest.mark.parametrize("chunk_size", [None, 1, 3])
@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("name", REPLIES)
async def test_another_server_is_asked_to_begin_so(name: str, tools: bool, chunk_size: int | None) -> None:
    reply, expected = REPLIES[name]
    backend = ScriptedBackend([reply], capabilities=NOT, chunk_size=chunk_size)
    text, _ = await answered(backend, MESSAGES, asked(MESSAGES, tools=tools))
    assert text == expected or (name == "it goes on" and text == expected.lstrip())
    role, words = last(backend)
    assert role == "user"
    assert words.startswith("1 + 2?")
    assert words.endswith(BEGUN)


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("capabilities", [CONTINUES, NOT], ids=["continues", "unknown"])
@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
async def test_a_template_that_refuses(path: str, tools: bool, capabilities: Capabilities, status: int) -> None:
    refused = BackendStatusError("no prefill with this template", status_code=status)
    is_asked = path == MESSAGES and capabilities is NOT  # at once
    replies: list[str | Exception] = ["The answer is three."] if is_asked else [refused, "The answer is three."]
    backend = ScriptedBackend(replies, capabilities=capabilities)
    text, _ = await answered(backend, path, asked(path, tools=tools))
    assert text.endswith(" three.")
    assert last(backend)[0] == "user"


@pytest.mark.parametrize("path", [MESSAGES, CHAT])
async def test_a_call_after_a_beginning(path: str) -> None:
    backend = ScriptedBackend([f"\n{add(1, 2)}"], capabilities=CONTINUES)
    text, calls = await answered(backend, path, asked(path, "Let me see.", tools=True))
    assert (text.strip(), len(calls)) == ("", 1)


async def test_a_call_that_is_begun() -> None:
    begun, rest = add(1, 2)[:50], add(1, 2)[50:]
    backend = ScriptedBackend([rest], capabilities=CONTINUES)
    assert await answered(backend, MESSAGES, asked(MESSAGES, begun, tools=True)) == ("", [{"a": 1, "b": 2}])


async def test_a_call_that_cannot_run_is_corrected() -> None:
    backend = ScriptedBackend([f"\n{add('x', 2)}", add(1, 2)], capabilities=CONTINUES)
    _, calls = await answered(backend, MESSAGES, asked(MESSAGES, "Let me see.", tools=True))
    assert calls == [{"a": 1, "b": 2}]
    assert [message.role for message in backend.requests[1].messages] == ["system", "user", "assistant", "user"]
    assert backend.requests[1].messages[2].content == f"Let me see.\n{add('x', 2)}"


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
async def test_an_empty_beginning_is_none(path: str, tools: bool) -> None:
    backend = ScriptedBackend(["Three."], capabilities=CONTINUES)
    assert await answered(backend, path, asked(path, " ", tools=tools)) == ("Three.", [])
    assert last(backend)[0] == "user"


def taken(pieces: list[str], begun: str) -> str:
    passed = without_beginning(begun)
    events: list[ResponseEvent] = [TextPiece(text=piece) for piece in pieces]
    events.append(ResponseEnded(finish_reason="stop", usage=Usage()))
    return "".join(out.text for event in events for out in passed(event) if isinstance(out, TextPiece))


@settings(deadline=None)
@given(st.text("ab ", min_size=1, max_size=6).filter(str.strip), st.text("ab ", max_size=12), st.data())
def test_a_beginning_is_taken_off_in_whatever_pieces_it_comes(begun: str, text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    found = taken(pieces, begun)
    assert found == taken([text], begun)
    assert text.endswith(found) or found == text.lstrip()
    assert taken([begun + "!"], begun) == "!"
