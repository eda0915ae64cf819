"""Requests as real clients send them, beside their wire formats: what is mended, and that `--strict` refuses it."""

import copy
import gzip
import io
import json
import logging
import sys
import zlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proxy_harness import ADD, ECHO, add, block, client_of

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy.formats.tolerance import mended
from xmlcall.proxy.http.incoming import tidy
from xmlcall.schema.references import deeper_than
from xmlcall.types.completion import Capabilities

CHAT, RESPONSES, MESSAGES, OLLAMA = "openai", "openai-responses", "anthropic", "ollama"
HI = {"role": "user", "content": "Hi"}


def history(arguments: Any, **fields: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}} | fields
    return {"messages": [HI, {"role": "assistant", "content": "", "tool_calls": [call]}]}


CASES = json.loads((Path(__file__).with_name("tolerance.json")).read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_is_mended(case: dict[str, Any]) -> None:
    before = copy.deepcopy(case["body"])
    found, _ = mended(case["body"], case["wire"])
    assert found == case["mended"]
    assert case["body"] == before
    assert mended(found, case["wire"]) == (found, [])


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (CHAT, {"model": "m", "max_tokens": 5, "temperature": 0, "tool_choice": "auto", "tools": [ADD], **history('{"a": 1}')}),
        (RESPONSES, {"tools": [{"type": "custom", "name": "patch"}, {"type": "namespace", "name": "n", "tools": []}]}),
        (MESSAGES, {"tools": [{"type": "custom", "name": "f"}], "tool_choice": {"type": "any"}, "max_tokens": 1}),
        (OLLAMA, {"options": {"temperature": 0.5}, "messages": [HI]}),
        (CHAT, {"tools": [{"type": "custom", "custom": {"name": "patch"}}, {"type": "fucntion"}]}),  # refused, not left out
    ],
)
def test_what_is_right_stays(wire: str, body: dict[str, Any]) -> None:
    assert mended(body, wire) == (body, [])


KEYS = st.sampled_from(["type", "role", "content", "tool_calls", "function", "arguments", "id", "messages", "tools", "input"])
PLAIN = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20)
FIELDS = st.sampled_from(["model", "max_tokens", "temperature", "options", "tool_choice", "tools", "messages", "input"])


@settings(deadline=None)
@given(st.dictionaries(FIELDS, VALUES, max_size=5), st.sampled_from([CHAT, RESPONSES, MESSAGES, OLLAMA]))
def test_no_body_is_too_strange_to_be_mended(body: dict[str, Any], wire: str) -> None:
    before = json.dumps(body)
    found, notes = mended(body, wire)
    assert json.dumps(body) == before
    assert not deeper_than(100, found)
    assert all(isinstance(note, str) and note for note in notes)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/v1/models", "/v1/models"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/models", "/v1/models"),
        ("/models/m", "/v1/models/m"),
        ("/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/responses", "/v1/responses"),
        ("/rerank", "/v1/rerank"),
        ("/api/chat/", "/api/chat"),
        ("/", "/"),
        ("//", "/"),
        ("/v1/models", "/v1/models"),
        ("/modelsx", "/modelsx"),
        ("/v1/v1", "/v1/v1"),
    ],
)
def test_paths(path: str, meant: str) -> None:
    assert tidy(path) == meant


async def asked(path: str, body: dict[str, Any], *replies: Any, **options: Any) -> httpx.Response:
    async with client_of(ScriptedBackend(list(replies)), **options) as client:
        return await client.post(path, json=body)


ODD = {"model": None, "messages": [HI], "tools": [ADD, ECHO], "max_tokens": -1}


async def test_a_request_beside_its_format_is_answered() -> None:
    answer = await asked("/chat/completions/", ODD, add(1, 2))
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_conversation_with_a_document_and_foreign_blocks_goes_on() -> None:
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
    call = {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1, "b": 2}}
    history = [
        HI,
        {"role": "assistant", "content": [{"type": "fallback", "model": "m"}, call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [document]}, document]},
    ]
    answer = await asked("/v1/messages", {"model": "m", "max_tokens": 100, "messages": history}, "Hello.")
    assert (answer.status_code, answer.json()["content"]) == (200, [{"type": "text", "text": "Hello."}])


PLAIN_BODY = json.dumps({"messages": [HI]}).encode()
packed = partial(gzip.compress, mtime=0)  # without the time, which would be a part of the tests' names
BARE = zlib.compressobj(wbits=-15)


@pytest.mark.parametrize(
    ("encoding", "content", "status", "words"),
    [
        ("gzip", packed(PLAIN_BODY), 200, "Hello."),
        ("GZIP", packed(PLAIN_BODY[:9]) + packed(PLAIN_BODY[9:]), 200, "Hello."),
        ("deflate", zlib.compress(PLAIN_BODY), 200, "Hello."),
        ("deflate", BARE.compress(PLAIN_BODY) + BARE.flush(), 200, "Hello."),
        ("deflate, gzip", packed(zlib.compress(PLAIN_BODY)), 200, "Hello."),
        ("identity", PLAIN_BODY, 200, "Hello."),
        ("gzip", packed(PLAIN_BODY)[:-12], 400, "ends too early"),
        ("gzip", PLAIN_BODY, 400, "packed as gzip"),
        ("gzip", packed(b"") * 17, 400, "more than 16 members"),
        ("deflate", b"", 400, "packed as deflate"),
        ("gzip", packed(b" " * (33 << 20)), 413, "unpacks to at most"),
        ("gzip, gzip", packed(packed(b" " * (33 << 20))), 413, "unpacks to at most"),
        ("br", PLAIN_BODY, 415, "got 'br'"),
        ("gzip, gzip, gzip, gzip", PLAIN_BODY, 415, "Content-Encoding"),
    ],
)
async def test_packed_bodies(encoding: str, content: bytes, status: int, words: str) -> None:
    async with client_of(ScriptedBackend(["Hello."])) as client:
        answer = await client.post("/v1/chat/completions", content=content, headers={"content-encoding": encoding})
    assert (answer.status_code, words in answer.text) == (status, True)


async def test_zstd_is_read_where_a_library_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(ZstdError=ValueError, ZstdDecompressor=lambda max_window_size: _Unpacked(PLAIN_BODY))
    for installed, status in ((library, 200), (None, 415)):
        monkeypatch.setitem(sys.modules, "compression.zstd", None)
        monkeypatch.setitem(sys.modules, "zstandard", installed)
        async with client_of(ScriptedBackend(["Hello."])) as client:
            answer = await client.post("/v1/chat/completions", content=b"\x28\xb5\x2f\xfd", headers={"content-encoding": "zstd"})
        assert answer.status_code == status
        assert ("zstandard" in answer.text) is (installed is None)


class _Unpacked:
    def __init__(self, text: bytes) -> None:
        self._text = text

    def stream_reader(self, source: io.BytesIO) -> io.BytesIO:
        return io.BytesIO(self._text)


# path -> fields that cannot change the answer, each set put into a small request
HARMLESS = json.loads((Path(__file__).with_name("harmless.json")).read_text(encoding="utf-8"))
SMALL: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [HI]},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": [HI], "max_tokens": 100},
    "/api/chat": {"messages": [HI], "stream": False},
}


@pytest.mark.parametrize("path", SMALL)
async def test_what_cannot_change_the_answer_is_not_refused(path: str) -> None:
    async with client_of(ScriptedBackend(["Hello."] * len(HARMLESS[path]))) as client:
        answers = [(fields, await client.post(path, json={"model": "m", **SMALL[path], **fields})) for fields in HARMLESS[path]]
    assert [(fields, answer.text) for fields, answer in answers if answer.status_code != 200] == []
    assert all("Hello." in answer.text for _, answer in answers)


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/chat/completions"])
async def test_strict_refuses_it(path: str) -> None:
    answer = await asked(path, ODD, add(1, 2), strict=True)
    assert answer.status_code == (404 if path == "/chat/completions" else 400)


async def test_what_was_mended_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "xmlcall.proxy")
    async with client_of(ScriptedBackend([add(1, 2), add(1, 2)])) as client:
        for _ in range(2):
            assert (await client.post("/v1/chat/completions", json=ODD)).status_code == 200
    assert [record.message for record in caplog.records if "max_tokens" in record.message] == [
        "openai: max_tokens: left out, as it was below 1 (said once; --strict refuses such requests)"
    ]


async def test_what_agents_ask_before_they_talk() -> None:
    async with client_of(ScriptedBackend([], capabilities=Capabilities(server="scripted", context_length=4096))) as client:
        (listed,) = (await client.get("/models")).json()["data"]
        props = (await client.get("/props")).json()
        heads = [(await client.head(path)).status_code for path in ("/", "/health", "/v1/models")]
    assert (listed["max_model_len"], listed["context_length"]) == (4096, 4096)
    assert (props["n_ctx"], props["default_generation_settings"]["n_ctx"]) == (4096, 4096)
    assert heads == [200, 200, 200]


# -- codex -------------------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SHELL = {"type": "function", "name": "shell", "parameters": SCHEMA}
FILES = "mcp__files"
CODEX = [
    SHELL,
    {"type": "namespace", "name": FILES, "description": "Files.", "tools": [{**SHELL, "name": "read"}, SHELL]},
    {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
    {"type": "web_search"},
]
ADDITIONAL = {"type": "additional_tools", "role": "developer", "id": "at_1", "tools": CODEX}
COMMAND = '{"command": "a"}'

# the model's call -> the item of the answer
CALLED: list[tuple[tuple[str, dict[str, Any]], dict[str, Any]]] = [
    (("shell", {"command": "a"}), {"type": "function_call", "name": "shell", "arguments": COMMAND}),
    (("read", {"command": "a"}), {"type": "function_call", "name": "read", "namespace": FILES, "arguments": COMMAND}),
    ((f"{FILES}.shell", {"command": "a"}), {"type": "function_call", "name": "shell", "namespace": FILES, "arguments": COMMAND}),
    (("apply_patch", {"input": "*** x"}), {"type": "custom_tool_call", "name": "apply_patch", "input": "*** x"}),
]


@pytest.mark.parametrize(("call", "expected"), CALLED, ids=[call[0] for call, _ in CALLED])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("places", [{"tools": CODEX, "input": [HI]}, {"input": [ADDITIONAL, HI]}], ids=["tools", "input"])
async def test_codex(call: tuple[str, dict[str, Any]], expected: dict[str, Any], places: dict[str, Any], stream: bool) -> None:
    body = {"model": "m", "stream": stream} | places
    answer = await asked("/v1/responses", body, block(call))
    assert answer.status_code == 200
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
    output = events[-1]["response"]["output"] if stream else answer.json()["output"]
    (item,) = [item for item in output if item["type"] != "message"]
    assert {name: item[name] for name in expected} == expected
    if stream:
        whole = "input" if item["type"] == "custom_tool_call" else "arguments"
        deltas = [event["delta"] for event in events if event["type"].endswith(f"{whole}.delta")]
        assert "".join(deltas) == expected[whole]


async def test_what_codex_keeps_of_a_conversation_is_read() -> None:
    said = [
        HI,
        {"type": "reasoning", "summary": []},
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** x"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."},
        {"type": "function_call", "call_id": "c2", "name": "shell", "namespace": "mcp__files", "arguments": '{"command": "a"}'},
        {"type": "function_call_output", "call_id": "c2", "output": "b"},
        {"type": "local_shell_call", "call_id": "c3", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c3", "output": "notes.txt"},
        {"role": "user", "content": "And now?"},
    ]
    backend = ScriptedBackend(["Well."])
    async with client_of(backend) as client:
        answer = await client.post("/v1/responses", json={"model": "m", "input": said, "tools": CODEX})
    assert answer.status_code == 200
    shown = "\n".join(message.content for message in backend.requests[0].messages[1:])
    for words in ("*** x", "Done.", '<invoke name="mcp__files.shell">', "local_shell", "notes.txt", "And now?"):
        assert words in shown
