"""Requests that mean harm: never a 5xx, never a hang, never a traceback, always an error in the caller's format."""

import asyncio
import contextlib
import json
import logging
import re
import socket
import threading
import time
import tomllib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from profiles import covering, examples, is_deep
from proxy_harness import ask as ask_model
from proxy_harness import ask_engine, block, body, function
from pydantic import BaseModel, create_model
from pydantic.json_schema import models_json_schema
from schemathesis.checks import load_all_checks
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance
from servers.run_server import run_server, wait_until

from xmlcall.agent.drive import _next
from xmlcall.backends.http import READ_SECONDS
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.binding import bind as binding
from xmlcall.proxy import create_app
from xmlcall.proxy.app import app_of
from xmlcall.proxy.engine import own_tools
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.formats import contract
from xmlcall.proxy.formats.anthropic import CountBody, MessagesBody
from xmlcall.proxy.formats.contract import ApiError
from xmlcall.proxy.formats.ollama import OllamaChatBody, OllamaGenerateBody
from xmlcall.proxy.formats.openai_chat import ChatBody
from xmlcall.proxy.formats.openai_responses import _ITEMS, ResponsesBody
from xmlcall.proxy.http import access as guard
from xmlcall.proxy.http import incoming
from xmlcall.proxy.http.access import Guard, serving
from xmlcall.proxy.http.routes import ENDPOINTS, QUESTIONS, RELAYED, format_of
from xmlcall.schema import references
from xmlcall.schema import references as schemapattern
from xmlcall.schema import validation as schema
from xmlcall.schema.validation import find_issues
from xmlcall.turn.attempts import RepairPolicy
from xmlcall.turn.machine import Machine, Script
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest, Usage

CORPUS = Path(__file__).parents[1] / "corpus_requests"
CALL = block(("f", {"a": "a" * 40 + "!", "b": 1}))
SECONDS = 30.0  # for an answer, on a machine that does other things too


class Model:
    """Thinks, calls `f`, and says Hello when it is asked again."""

    model = "m"
    capabilities = Capabilities(server="scripted")

    async def __aenter__(self) -> "Model":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        asked_again = any(message.content == CALL for message in request.messages if message.role == "assistant")
        yield Chunk(reasoning="Hm.")
        yield Chunk(text="Hello." if asked_again else CALL)
        yield Chunk(finish_reason="stop", usage=Usage(prompt_tokens=1, completion_tokens=1))


@pytest.fixture
async def client(caplog: pytest.LogCaptureFixture) -> AsyncIterator[httpx.AsyncClient]:
    """Ask the app without a network; nothing may be logged as an error."""
    async with client_of(strict=False) as client:
        yield client
    assert no_errors(caplog)


@contextlib.asynccontextmanager
async def client_of(*, strict: bool) -> AsyncIterator[httpx.AsyncClient]:
    async with Engine(Model(), mode="xml", strict=strict) as engine:
        transport = httpx.ASGITransport(app_of(serving(engine), Guard()))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with run_server(create_app(Model(), mode="xml"), lifespan="on") as url:
        yield url


@pytest.fixture(scope="module")
def strict_url() -> Iterator[str]:
    with run_server(create_app(Model(), mode="xml", strict=True), lifespan="on") as url:
        yield url


def no_errors(caplog: pytest.LogCaptureFixture) -> bool:
    return not [record for when in ("setup", "call") for record in caplog.get_records(when) if record.levelno >= logging.WARNING]


def grown(text: str) -> str:
    """Write out `<<x*n>>`."""
    return re.sub(r"<<(.+?)\*(\d+)>>", lambda match: match[1] * int(match[2]), text, flags=re.DOTALL)


def cases(name: str) -> dict[str, dict[str, Any]]:
    read = tomllib.loads((CORPUS / f"{name}.toml").read_text(encoding="utf-8"))
    return {case["name"]: case for case in read["case"]}


PARTS = tomllib.loads((CORPUS / "conversations.toml").read_text(encoding="utf-8"))


# -- what an answer has to be ------------------------------------------------------------------------------------------


def refuse(name: str) -> Any:
    raise AssertionError(f"{name} in an answer")


def read_json(content: bytes) -> Any:
    return json.loads(content.decode("utf-8"), parse_constant=refuse)


def error_of(form: str, content: bytes) -> str:
    """Return the message of an error in a wire format."""
    data = read_json(content)
    if form == "ollama":
        assert data.keys() == {"error"}
        return str(data["error"])
    if form == "anthropic":  # only a refused thread has more
        assert data["error"].pop("details", None) in (None, {"error_code": "thread_unsupported_request"})
    assert data.keys() == ({"type", "error"} if form == "anthropic" else {"error"})
    more = set() if form == "anthropic" else {"param", "code"}
    assert data["error"].keys() - {"details"} == {"type", "message"} | more
    return str(data["error"]["message"])


def events_of(media_type: str, content: bytes) -> list[Any]:
    if media_type == "application/x-ndjson":
        return [read_json(line) for line in content.splitlines()]
    assert media_type == "text/event-stream"
    lines = [line for line in re.split(rb"\r\n|\r|\n", content) if line]
    assert all(re.match(rb"event: [a-z_.]+\Z|data: ", line) for line in lines)
    data = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]
    return [read_json(each) for each in data if each != b"[DONE]"]


def check(path: str, status: int, media_type: str, content: bytes) -> None:
    """An answer is JSON or a whole stream; an error is in the caller's format and says something."""
    assert 200 <= status < 500, content
    form = format_of(path).name
    if status >= 400:
        assert media_type == "application/json"
        message = error_of("openai" if form == "openai-responses" else form, content)
        assert 5 < len(message) < 2000
    elif media_type == "application/json":
        read_json(content)
    else:
        events = events_of(media_type, content)
        assert events
        assert not [event for event in events if event.get("error") or event.get("type") in ("error", "response.failed")]


async def ask(client: httpx.AsyncClient, path: str, content: bytes) -> httpx.Response:
    begun = time.monotonic()
    response = await client.post(path, content=content)
    check(path, response.status_code, response.headers["content-type"], response.content)
    assert time.monotonic() - begun < SECONDS
    return response


# -- bodies ------------------------------------------------------------------------------------------------------------

READ = [*(question.path for question in QUESTIONS), "/v1/messages/count_tokens"]
PATHS = [*READ, *(question.path for question in RELAYED), "/api/show"]
BODIES = cases("bodies")
LARGE = 500_000  # bytes of a body whose reading takes long, in each format by the same function


@pytest.mark.sweep
@pytest.mark.parametrize("name", BODIES)
async def test_bodies(name: str, client: httpx.AsyncClient) -> None:
    case = BODIES[name]
    content = case["latin"].encode("latin-1") if "latin" in case else grown(case["body"]).encode()
    for path in PATHS if is_deep() or len(content) < LARGE else READ[:1]:
        response = await ask(client, path, content)
        assert path not in READ or response.status_code == case["status"], path


# -- conversations -----------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}


def of_chat(text: str, *, name: str = "f", about: str = "", schema: Any = SCHEMA, result: str = "9", given: Any = None) -> Any:
    function = {"name": name, "arguments": json.dumps(given or {})}
    said = {"role": "assistant", "content": text, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    told = {"role": "tool", "tool_call_id": "c", "content": result}
    tool = {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}
    person = {"role": "user", "content": text}
    return {"messages": [{"role": "system", "content": text}, person, said, told, person], "tools": [tool]}


def of_responses(
    text: str, *, name: str = "f", about: str = "", schema: Any = SCHEMA, result: str = "9", given: Any = None
) -> Any:
    called = {"type": "function_call", "call_id": "c", "name": name, "arguments": json.dumps(given or {})}
    told = {"type": "function_call_output", "call_id": "c", "output": result}
    tool = {"type": "function", "name": name, "description": about, "parameters": schema}
    person = {"role": "user", "content": text}
    return {"instructions": text, "input": [person, called, told, person], "tools": [tool]}


def of_messages(
    text: str, *, name: str = "f", about: str = "", schema: Any = SCHEMA, result: str = "9", given: Any = None
) -> Any:
    called = {"type": "tool_use", "id": "c", "name": name, "input": given or {}}
    told = [{"type": "tool_result", "tool_use_id": "c", "content": result}, {"type": "text", "text": text}]
    turns = [("user", text), ("assistant", [{"type": "text", "text": text}, called]), ("user", told)]
    tool = {"name": name, "description": about, "input_schema": schema}
    messages = [{"role": role, "content": content} for role, content in turns]
    return {"max_tokens": 9, "system": text, "messages": messages, "tools": [tool]}


def of_ollama(text: str, *, result: str = "9", given: Any = None, **tool: Any) -> Any:
    body = of_chat(text, **tool)
    system, person, said, _, last = body["messages"]
    said["tool_calls"] = [{"function": {"name": body["tools"][0]["function"]["name"], "arguments": given or {}}}]
    return body | {"messages": [system, person, said, {"role": "tool", "content": result}, last]}


CONVERSATIONS = {
    "/v1/chat/completions": of_chat,
    "/v1/responses": of_responses,
    "/v1/messages": of_messages,
    "/api/chat": of_ollama,
}


def parts(kind: str) -> list[Any]:
    return [json.loads(grown(part)) for part in PARTS[kind]]


async def converse(client: httpx.AsyncClient, path: str, **part: Any) -> None:
    model = part.pop("model", "m")
    body = CONVERSATIONS[path](part.pop("text", "Hi"), **part) | {"model": model or "m"}
    for stream in (True, False):
        await ask(client, path, json.dumps(body | {"stream": stream}).encode())


@pytest.mark.sweep
@pytest.mark.parametrize("path", CONVERSATIONS)
async def test_texts(path: str, client: httpx.AsyncClient) -> None:
    for text, part in covering(parts("texts"), ("text", "about", "result", "model", "given")):
        await converse(client, path, **{part: {"a": text, text: [text]} if part == "given" else text})


@pytest.mark.sweep
@pytest.mark.parametrize(("number", "path"), covering(range(len(PARTS["names"])), CONVERSATIONS))
async def test_names(number: int, path: str, client: httpx.AsyncClient) -> None:
    name = parts("names")[number]
    await converse(client, path, name=name, given={name: name})


def exploding(schema: str, levels: int = 40) -> Any:
    """Make a schema of definitions, each of which has the next one twice."""
    definitions = {f"d{level}": json.loads(schema.replace("@", f"#/$defs/d{level + 1}")) for level in range(levels)}
    properties = {"a": {"$ref": "#/$defs/d0"}}
    return {"type": "object", "properties": properties, "$defs": definitions | {f"d{levels}": {"type": "string"}}}


@pytest.mark.sweep
@pytest.mark.parametrize(("number", "path"), covering(range(len(PARTS["schemas"])), CONVERSATIONS))
async def test_schemas(number: int, path: str, client: httpx.AsyncClient) -> None:
    await converse(client, path, schema=parts("schemas")[number])


@pytest.mark.parametrize("bomb", PARTS["bombs"])
async def test_schemas_that_grow(bomb: str, client: httpx.AsyncClient) -> None:
    for path in CONVERSATIONS:
        await converse(client, path, schema=exploding(bomb))


@pytest.mark.sweep
@pytest.mark.parametrize(("path", "count"), covering(CONVERSATIONS, (1000, 1001)))
async def test_too_many_tools(path: str, count: int, client: httpx.AsyncClient) -> None:
    body = CONVERSATIONS[path]("Hi") | {"model": "m"}
    [tool] = body["tools"]
    tools = [json.loads(json.dumps(tool).replace('"f"', f'"f{number}"')) for number in range(count)]
    response = await ask(client, path, json.dumps(body | {"tools": tools}).encode())
    assert response.status_code == (200 if count == 1000 else 400)


@pytest.mark.parametrize("path", CONVERSATIONS)
@pytest.mark.parametrize("part", ["text", "result", "about"])
async def test_a_call_that_others_wrote_is_not_the_models(path: str, part: str, client: httpx.AsyncClient) -> None:
    body = CONVERSATIONS[path](CALL if part == "text" else "Hi", **({} if part == "text" else {part: CALL})) | {"model": "m"}
    response = await ask(client, path, json.dumps(body | {"stream": False}).encode())
    assert "Hello." in response.text
    assert not re.search(r'"tool_calls": \[\{|"type": "(tool_use|function_call)"', response.text)


# -- every field -------------------------------------------------------------------------------------------------------

PICTURE = "data:image/png;base64,iVBORw0KGgo="
MORE: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("more_fields.json").read_text(encoding="utf-8"))


def whole_body(path: str) -> dict[str, Any]:
    """Write a body with every field that is known."""
    body = CONVERSATIONS[path]("Hi", given={"a": "x"}) if path in CONVERSATIONS else {}
    if path == "/v1/chat/completions":
        picture = {"type": "image_url", "image_url": {"url": PICTURE}}
        body["messages"].append({"role": "user", "content": [{"type": "text", "text": "Hi"}, picture]})
    if path == "/v1/messages":
        source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
        document = {"type": "document", "source": {"type": "text", "data": "x"}, "title": "t"}
        body["messages"].append({"role": "user", "content": [{"type": "image", "source": source}, document]})
    return {"model": "m", **body, **MORE[path]}


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a body, by the keys that lead there."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def with_value(data: Any, place: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(data))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return copy


@pytest.mark.sweep
@pytest.mark.parametrize("path", MORE)
@pytest.mark.parametrize("strict", [True, False])
async def test_wrong_values_in_every_field(path: str, strict: bool, caplog: pytest.LogCaptureFixture) -> None:
    body, statuses = whole_body(path), set()
    async with client_of(strict=strict) as client:
        for place, value in covering(places(body), parts("values")):
            changed = with_value(body, place, value) | {"stream": False}
            statuses.add((await client.post(path, content=json.dumps(changed).encode())).status_code)
    assert {200, 400} <= statuses <= {200, 400, 502}  # this model does not call as it is told to
    assert no_errors(caplog)


# -- the models that validate bodies, as a description of the app ------------------------------------------------------

MODELS: dict[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/v1/messages/count_tokens": CountBody,
    "/api/chat": OllamaChatBody,
    "/api/generate": OllamaGenerateBody,
}
MEDIA_TYPES = {question.path: question.form.media_type for question in (*QUESTIONS, *RELAYED)}


def operation(path: str) -> dict[str, Any]:
    content: dict[str, Any] = {each: {"schema": {}} for each in filter(None, ("application/json", MEDIA_TYPES.get(path)))}
    error = {"description": "An error.", "content": {"application/json": {"schema": {"type": "object"}}}}
    found: dict[str, Any] = {"responses": {"2XX": {"description": "The answer.", "content": content}, "4XX": error, "5XX": error}}
    if path in MODELS or path in MEDIA_TYPES:
        schema = {"$ref": f"#/components/schemas/{MODELS[path].__name__}"} if path in MODELS else {"type": "object"}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if "{name}" in path:
        found["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}]
    return found


def item(kind: str, model: type[BaseModel]) -> type[BaseModel]:
    """Return the model of an item of Responses with its type, by which it is chosen; a message may have none."""
    wanted: Any = Literal[kind]
    return model if kind == "message" else create_model(f"Item_{kind}", __base__=model, type=(wanted, ...))


def description() -> dict[str, Any]:
    items = [item(kind, model) for kind, (model, _) in _ITEMS.items()]
    bodies: list[Any] = [(body, "validation") for body in (*MODELS.values(), *items)]
    schemas = models_json_schema(bodies, ref_template="#/components/schemas/{model}")[1]["$defs"]
    listed = {"type": "array", "items": {"anyOf": [{"$ref": f"#/components/schemas/{each.__name__}"} for each in items]}}
    schemas["ResponsesBody"]["properties"]["input"] = {"anyOf": [{"type": "string"}, listed]}
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        path = endpoint.path.replace(":path", "")
        paths.setdefault(path, {})[endpoint.method.lower()] = operation(path)
    info = {"title": "xmlcall", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


load_all_checks()
FOUND = [*schemathesis.openapi.from_dict(description()).get_all_operations()]
OPERATIONS = [result.ok() for result in FOUND if isinstance(result, Ok)]
assert len(OPERATIONS) == len(FOUND), "the app describes something that is no operation"
MODES = schemathesis.GenerationMode
GENERATED = [(operation, mode) for operation in OPERATIONS for mode in MODES if operation.body or mode is MODES.POSITIVE]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("operation", "mode"), GENERATED, ids=[f"{operation.label} {mode.value}" for operation, mode in GENERATED]
)
def test_what_the_description_allows_and_what_not(operation: Any, mode: Any, url: str, strict_url: str) -> None:
    """What it does not allow is mended where that cannot matter; only `--strict` refuses all of it."""
    base = strict_url if mode is MODES.NEGATIVE else url
    strategy = operation.as_strategy(generation_mode=mode)

    @settings(max_examples=examples(12), derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=strategy)
    def run(case: Any) -> None:
        response = case.call(base_url=base)
        # A schema cannot say all, such as that names of tools differ: a valid body may be refused.
        case.validate_response(response, excluded_checks=[positive_data_acceptance])
        check(operation.path, response.status_code, response.headers["content-type"][0], response.content)

    run()


# -- the wire ----------------------------------------------------------------------------------------------------------

WIRE = cases("wire")


@contextlib.contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0), timeout=SECONDS) as connection:
        yield connection


def read_answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Read one whole answer."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        assert piece, received
        received += piece
    head, _, content = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "1000000"))
    with contextlib.suppress(ConnectionResetError):  # the server did not read the request to its end
        while len(content) < length and (piece := connection.recv(65536)):
            content += piece
    return int(first.split()[1]), headers, content[:length]


@pytest.mark.parametrize("name", WIRE)
def test_the_wire(name: str, url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="xmlcall.proxy")
    case = WIRE[name]
    with connected(url) as connection:
        connection.sendall(grown(case["request"].replace("{host}", "Host: 127.0.0.1\r\n")).encode("latin-1"))
        status, headers, content = read_answer(connection)
    assert status == case["status"] or (case["status"] == 0 and 200 <= status < 500)
    assert not headers.keys() & {"set-cookie", "location", "access-control-allow-origin"}
    if status >= 400 and case["form"] != "http":
        assert error_of(case["form"], content)
    elif status < 400:
        read_json(content)
    wait_until(lambda: case.get("log", "") in caplog.text)
    assert all(record.levelno < logging.WARNING and record.getMessage().isprintable() for record in caplog.records)


POST = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n"
ENDLESS = {
    "a body that never comes": (POST + b"Content-Length: 100\r\n\r\n", b""),
    "a body shorter than said": (POST + b"Content-Length: 100\r\n\r\n{}", b""),
    "a body drop by drop": (POST + b"Content-Length: 100000\r\n\r\n", b" "),
    "chunks without end": (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_bodies_without_end(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "BODY_SECONDS", 0.1)
    head, drop = ENDLESS[name]
    with connected(url) as connection:
        connection.sendall(head)
        for _ in range(15):
            connection.sendall(drop)
            time.sleep(0.01)
        status, _, content = read_answer(connection)
    assert status == 408
    assert "0.1 s" in error_of("anthropic", content)


def test_a_slow_body_holds_up_nobody(url: str) -> None:
    with connected(url) as slow:
        slow.sendall(POST + b"Content-Length: 1000\r\n\r\n{")
        begun = time.monotonic()
        assert httpx.get(f"{url}/health").status_code == 200
        assert time.monotonic() - begun < SECONDS / 2


@pytest.mark.parametrize("how", ["Content-Length: 40000000", "Transfer-Encoding: chunked"])
def test_bodies_that_are_too_large(how: str, url: str) -> None:
    piece = b" " * 1_000_000
    chunk = b"%x\r\n%b\r\n" % (len(piece), piece) if "chunked" in how else piece
    with connected(url) as connection:
        connection.sendall(POST + how.encode() + b"\r\n\r\n")
        for _ in range(34):
            connection.sendall(chunk)
        status, _, content = read_answer(connection)
    assert status == 413
    assert "33554432 bytes" in error_of("anthropic", content)


def test_a_caller_that_leaves_in_its_own_words(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="xmlcall.proxy")
    with connected(url) as connection:
        connection.sendall(POST + b"Content-Length: 1000\r\n\r\n{")
        time.sleep(0.05)
    wait_until(lambda: "the caller left" in caplog.text)
    assert all(record.levelno < logging.WARNING for record in caplog.records)


def bomb(key: str, width: int = 40) -> dict[str, Any]:
    """Make a small schema of six levels, each of which leads to the next in many places."""
    parts: dict[str, Any] = {"L6": {"type": "string"}}
    for level in range(6):
        below = [{"$ref": f"#/$defs/L{level + 1}"} for _ in range(width)]
        parts[f"L{level}"] = {key: {f"p{number}": each for number, each in enumerate(below)} if key == "properties" else below}
    return {"type": "object", **parts["L0"], "properties": {"a": {"$ref": "#/$defs/L0"}}, "$defs": parts}


async def longest_stand(asking: Coroutine[Any, Any, object]) -> float:
    """Return the longest time in which nobody else was answered while something was worked on, in seconds."""
    longest, last = 0.0, time.perf_counter()

    async def others() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.005)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()

    ticking = asyncio.create_task(others())
    await asyncio.sleep(0.01)
    with contextlib.suppress(ApiError):
        await asking
    ticking.cancel()
    return longest


@pytest.mark.timeout(60)
@pytest.mark.parametrize("key", ["anyOf", "oneOf", "allOf", "properties"])
async def test_a_small_schema_that_makes_much_of_itself_holds_up_nobody(key: str) -> None:
    tools = [function(f"f{number}", a={}) for number in range(5)]
    for tool in tools:
        tool["function"]["parameters"] = bomb(key)
    backend = ScriptedBackend([block(("f0", {"a": '{"p0": {"p0": 1}}'})), "No.", "No.", "No."])
    async with Engine(backend, mode="xml") as engine:
        assert await longest_stand(ask_engine(engine, body("Call f0.", tools=tools))) < 3


@pytest.mark.parametrize(
    ("schema", "is_beside"),
    [
        ({"type": "string"}, False),
        ({"$ref": "#/properties/y"}, True),
        ({"type": "string", "pattern": "^a+$"}, True),
        ({"enum": [[number] for number in range(600)]}, True),
    ],
)
async def test_a_call_whose_check_may_take_long_is_bound_beside_the_loop(
    schema: dict[str, Any], is_beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()

    def noted(*arguments: Any) -> Any:
        threads.add(threading.get_ident())
        return find_issues(*arguments)

    monkeypatch.setattr(binding, "find_issues", noted)
    tool = function("f", x=schema, y={"type": "string"}, required=["x"])
    await ask_model(ScriptedBackend([block(("f", {"x": "aa"})), *["No."] * 3]), body("Call f.", tools=[tool]))
    assert (threading.get_ident() not in threads) is is_beside


async def test_a_step_beside_the_loop_is_never_left_half_done() -> None:
    machine, done = Machine(never()), []
    machine.is_demanding = True

    def slow() -> Iterator[int]:
        time.sleep(0.2)
        done.append(1)
        yield 1

    step = asyncio.ensure_future(_next(machine, slow()))
    await asyncio.sleep(0.05)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert done == [1]


def never() -> Script[None]:
    yield from ()


async def test_a_tool_that_is_too_large_to_be_shown_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="xmlcall.proxy")
    large = function("large", "Does much.", **{f"p{number}": {"description": "d" * 200} for number in range(5_000)})
    backend = ScriptedBackend(["No.", "No."])
    async with Engine(backend, mode="xml", tool_tokens=10_000) as engine:
        for question in ("Hi", "And now?"):
            await ask_engine(engine, body(question, tools=[large]))
    assert "### large\nDoes much." in backend.requests[0].messages[0].content
    assert sum("'large' is shown with its name" in record.getMessage() for record in caplog.records) == 1


# -- the limits --------------------------------------------------------------------------------------------------------

LIMITS: dict[str, list[Any]] = {
    "| a request's headers | {:,} bytes |": [guard.HEADER_LIMIT],
    "| its body | {:,} bytes in {:g} s, {} levels, {:,} values |": [
        incoming.BODY_LIMIT,
        incoming.BODY_SECONDS,
        incoming.DEPTH_LIMIT,
        incoming.VALUE_LIMIT,
    ],
    "| its tools | {:,} |": [contract.TOOL_LIMIT],
    "| a tool's schema | {:,} parts, {} levels, {:,} steps for one value, {} s and {:,} characters for a pattern |": [
        schema.MAX_NODES,
        references.MAX_DEPTH,
        schema.MAX_STEPS,
        schemapattern._SECONDS,
        schemapattern._MAX_CHARACTERS,
    ],
    "| an answer | {} replies of the model |": [RepairPolicy().max_replies],
    "| silence of the model server | {:g} s |": [READ_SECONDS],
    "| what is remembered of the proxy's own tools | {:,} characters in all, a day |": [own_tools.CHARACTERS_LIMIT],
}


def test_limits_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "security.md").read_text(encoding="utf-8")
    for words, limits in LIMITS.items():
        assert words.format(*limits) in text
