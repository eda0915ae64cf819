"""What servers ask of `McpHost`: forms, addresses, completions, folders, log levels; both eras, stdio and HTTP."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from profiles import covering
from servers.started import everything_server, printed_url, until

from xmlcall.errors import ToolHostProtocolError, ToolHostUnavailable
from xmlcall.hosts.mcp import connection
from xmlcall.hosts.mcp.callbacks import MAX_ASKED, MAX_LOGGED, MAX_SAMPLE_TOKENS
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.mcp.server_requests import (
    ClientFeatures,
    ElicitAnswer,
    FormRequest,
    LogMessage,
    SampleReply,
    SampleRequest,
    UrlRequest,
    fields,
)
from xmlcall.hosts.server import HttpServer, ServerConfig, StdioServer
from xmlcall.types.calls import TextContent, ToolResult

pytestmark = pytest.mark.usefixtures("no_tasks_left")

ASKING = str(Path(__file__).parents[1] / "servers" / "asking.py")
WAYS = covering(("stdio", "http"), ("2025", "2026"))
OVER_HTTP = [("http", "2025"), ("http", "2026")]

NAME = {"type": "string", "minLength": 2}
FORM = {"type": "object", "properties": {"name": NAME, "city": {"type": "string", "default": "Oslo"}}, "required": ["name"]}
ASK_FORM: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Who is it?", "requestedSchema": FORM},
}
HELLO = [{"role": "user", "content": {"type": "text", "text": "Hello"}}]


@pytest.fixture(scope="module")
def over_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, Path]]]:
    """The URL of a server of each era, and its record."""
    with contextlib.ExitStack() as stack:
        found = {}
        for era in ("2025", "2026"):
            record = tmp_path_factory.mktemp(era) / "record"
            record.touch()
            options = ["--http", *(["--legacy"] if era == "2025" else [])]
            found[era] = (stack.enter_context(printed_url(ASKING, *options, RECORD=str(record)))[0], record)
        yield found


@pytest.fixture(params=["2025", "2026"])
def remote(request: pytest.FixtureRequest, over_http: dict[str, tuple[str, Path]]) -> ServerConfig:
    """A server of either era, which many tests share."""
    return HttpServer(name="asking", url=over_http[request.param][0])


@pytest.fixture(params=WAYS, ids="-".join)
def server(
    request: pytest.FixtureRequest, over_http: dict[str, tuple[str, Path]], tmp_path: Path
) -> tuple[ServerConfig, Path, str]:
    """A server of either era over stdio or HTTP, its record and its era."""
    transport, era = request.param
    if transport == "http":
        url, record = over_http[era]
        return HttpServer(name="asking", url=url), record, era
    record = tmp_path / "record"
    record.touch()
    options = ["--legacy"] if era == "2025" else []
    env = {"RECORD": str(record)}
    return StdioServer(name="asking", command=sys.executable, args=(ASKING, *options), env=env), record, era


def text_of(result: ToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def answer_to(host: McpHost, request: dict[str, Any], **more: Any) -> Any:
    return json.loads(text_of(await host.call("ask", {"request": request, **more})))


@pytest.mark.sweep
async def test_a_form_an_address_a_completion_and_folders(server: tuple[ServerConfig, Path, str]) -> None:
    asked: list[Any] = []

    async def elicit(request: FormRequest | UrlRequest) -> ElicitAnswer:
        asked.append(request)
        return ElicitAnswer(action="accept", content={"name": "Ada"} if isinstance(request, FormRequest) else {})

    async def sample(request: SampleRequest) -> SampleReply:
        asked.append(request)
        return SampleReply(text="Hi", model="tiny", finish_reason="length")

    features = ClientFeatures(elicit=elicit, sample=sample, roots=("/srv/a b",))
    address = {"mode": "url", "message": "Sign in.", "url": "https://example.com/x?y=1", "elicitationId": "7"}
    completion = {"messages": HELLO, "systemPrompt": "Be brief.", "maxTokens": 99999, "stopSequences": ["."]}
    async with McpHost(server[0], features=features) as host:
        assert await answer_to(host, ASK_FORM) == {"action": "accept", "content": {"name": "Ada", "city": "Oslo"}}
        assert await answer_to(host, {"method": "elicitation/create", "params": address}) == {"action": "accept"}
        said = await answer_to(host, {"method": "sampling/createMessage", "params": completion})
        assert (said["content"]["text"], said["model"], said["stopReason"]) == ("Hi", "tiny", "maxTokens")
        roots = await answer_to(host, {"method": "roots/list"})
        assert roots["roots"] == [{"uri": "file:///srv/a%20b", "name": "a b"}]
    form, visit, sampled = asked
    assert (form.server, form.message, form.schema) == ("asking", "Who is it?", FORM)
    assert (visit.server, visit.url) == ("asking", "https://example.com/x?y=1")
    assert [(message.role, message.content) for message in sampled.messages] == [("system", "Be brief."), ("user", "Hello")]
    assert (sampled.max_tokens, sampled.stop) == (MAX_SAMPLE_TOKENS, (".",))


@pytest.mark.full
async def test_server_everything_asks_for_all_that_it_knows() -> None:
    kinds: set[str] = set()

    async def elicit(request: FormRequest | UrlRequest) -> ElicitAnswer:
        if isinstance(request, FormRequest):
            kinds.update(field.kind for field in fields(request.schema))
        return ElicitAnswer(action="accept", content={"name": "Ada", "integer": 7} if isinstance(request, FormRequest) else {})

    async def sample(request: SampleRequest) -> SampleReply:
        return SampleReply(text=request.messages[-1].content.upper(), model="tiny")

    features = ClientFeatures(elicit=elicit, sample=sample, roots=("/srv",))
    with everything_server("stdio") as server:
        async with McpHost(server, features=features) as host:
            wanted = {"get-roots-list", "trigger-elicitation-request", "trigger-url-elicitation", "trigger-sampling-request"}
            async with asyncio.timeout(10):
                while not wanted <= {tool.name for tool in await host.tools()}:  # to a client that declares something
                    await host.changed.wait()
            form = text_of(await host.call("trigger-elicitation-request", {}))
            assert "- Name: Ada\n- Favorite Integer: 7\n- Favorite Number: 3.14" in form
            assert "completed" in text_of(await host.call("trigger-url-elicitation", {"url": "https://example.com/a"}))
            assert "A WREN" in text_of(await host.call("trigger-sampling-request", {"prompt": "a wren"}))
            assert "file:///srv" in text_of(await host.call("get-roots-list", {}))
    assert kinds == {"text", "number", "integer", "boolean", "choice", "choices"}


ANSWERS: list[tuple[dict[str, Any], Any]] = [
    ({"action": "decline"}, {"action": "decline"}),
    ({"action": "cancel"}, {"action": "cancel"}),
    ({"action": "accept", "content": {"name": "A"}}, "does not fit the requested schema: name: Expected string"),
    ({"action": "accept", "content": {"name": "Ada", "age": 7}}, "age: there is no such field"),
    ({"action": "accept", "content": {}}, "The parameter 'name' is required"),
]


async def test_what_is_answered_to_a_form_is_checked(remote: ServerConfig) -> None:
    answers = [answer for answer, _ in ANSWERS]

    async def elicit(request: FormRequest | UrlRequest) -> ElicitAnswer:
        return ElicitAnswer(**answers.pop(0))

    async with McpHost(remote, features=ClientFeatures(elicit=elicit)) as host:
        for _, expected in ANSWERS:
            if isinstance(expected, dict):
                assert await answer_to(host, ASK_FORM) == expected
            else:
                assert expected in await refused(host, ASK_FORM)


async def refused(host: McpHost, request: dict[str, Any], **more: Any) -> str:
    """Return why nothing was answered: older servers are told so, and later ones are not asked again."""
    try:
        return text_of(await host.call("ask", {"request": request, **more}))
    except ToolHostProtocolError as error:
        return str(error)


LONG_FORM = {"type": "object", "properties": {f"field_{number}": {"type": "string"} for number in range(101)}}
CANNOT_BE_ASKED = [
    ("elicitation/create", {"mode": "url", "message": "m", "url": "file:///etc/passwd", "elicitationId": "1"}, "expected a URL"),
    ("elicitation/create", {"mode": "url", "message": "m", "url": "javascript:alert(1)", "elicitationId": "1"}, "expected a URL"),
    ("elicitation/create", {"mode": "url", "message": "m", "url": "https://[", "elicitationId": "1"}, "expected a URL"),
    ("elicitation/create", ASK_FORM["params"] | {"message": "x" * 10_001}, "a message of at most 10000"),
    ("elicitation/create", ASK_FORM["params"] | {"requestedSchema": LONG_FORM}, "at most 100 fields, got 101"),
    ("sampling/createMessage", {"messages": HELLO, "maxTokens": 5, "toolChoice": {"mode": "auto"}}, "tools in a completion"),
    ("sampling/createMessage", {"messages": [], "maxTokens": 5}, "whose last one has the role user"),
    (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": {"type": "image", "data": "", "mimeType": "image/png"}}], "maxTokens": 5},
        "messages of text only",
    ),
    (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": {"type": "text", "text": "x" * 50_001}}], "maxTokens": 5},
        "at most 50000 characters",
    ),
]


async def test_what_cannot_be_asked_reaches_nobody(remote: ServerConfig) -> None:
    async with McpHost(remote, features=ClientFeatures(elicit=_unreachable, sample=_unreachable)) as host:
        for method, params, told in CANNOT_BE_ASKED:
            assert told in await refused(host, {"method": method, "params": params})


async def _unreachable(request: object) -> Any:
    raise AssertionError(f"nobody was to be asked: {request}")


async def test_a_person_may_refuse_a_completion(remote: ServerConfig) -> None:
    async def sample(request: SampleRequest) -> None:
        return None

    async with McpHost(remote, features=ClientFeatures(sample=sample)) as host:
        request = {"method": "sampling/createMessage", "params": {"messages": HELLO, "maxTokens": 5}}
        assert "User rejected sampling request" in await refused(host, request)


async def test_folders_of_the_configuration_are_named_to_its_server(remote: ServerConfig) -> None:
    async with McpHost(replace(remote, roots=("/b", "/a")), features=ClientFeatures(roots=("/a",))) as host:
        roots = await answer_to(host, {"method": "roots/list"})
    assert [root["uri"] for root in roots["roots"]] == ["file:///a", "file:///b"]


async def test_nothing_is_declared_and_nothing_answered_by_default(remote: ServerConfig) -> None:
    async with McpHost(remote) as host:
        for request in (ASK_FORM, {"method": "roots/list"}):
            assert "not supported" in await refused(host, request)


@pytest.mark.parametrize("features", [ClientFeatures(), ClientFeatures(elicit=_unreachable), ClientFeatures(roots=("/a",))])
async def test_what_is_declared_is_what_is_given(features: ClientFeatures, tmp_path: Path) -> None:
    async with McpHost(tasking("steps", tmp_path), features=features):
        pass
    said = json.loads(next(line for line in received(tmp_path).splitlines() if '"initialize"' in line))["params"]
    given = {"elicitation": features.elicit, "roots": features.roots}
    assert set(said["capabilities"]) == {name for name, each in given.items() if each}


async def test_a_server_may_not_ask_without_end(remote: ServerConfig) -> None:
    asked: list[object] = []

    async def elicit(request: FormRequest | UrlRequest) -> ElicitAnswer:
        asked.append(request)
        return ElicitAnswer(action="accept", content={"name": "Ada"})

    async with McpHost(remote, features=ClientFeatures(elicit=elicit)) as host:
        why = await refused(host, ASK_FORM, times=1000)
        most, told = (MAX_ASKED["elicit"], "20 times during a call") if "error -32600" in why else (10, "more than 10 rounds")
        assert (len(asked), told in why) == (most, True), why
        assert (await answer_to(host, ASK_FORM))["action"] == "accept"  # the next call counts anew


async def test_the_question_ends_with_the_call_and_the_server_hears_of_it(remote: ServerConfig) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def elicit(request: FormRequest | UrlRequest) -> ElicitAnswer:
        begun.set()
        try:
            return await asyncio.Future()
        finally:
            ended.set()

    async with McpHost(remote, features=ClientFeatures(elicit=elicit)) as host:
        call = asyncio.create_task(host.call("ask", {"request": ASK_FORM}))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(ended.wait(), 5)
        assert text_of(await host.call("log", {"level": "info", "text": "x"})) == "logged"  # the connection is as it was


async def test_a_server_that_asks_outside_of_a_call_is_refused(tmp_path: Path) -> None:
    async with McpHost(tasking("nosy", tmp_path), features=ClientFeatures(elicit=_unreachable)) as host:
        await host.tools()
        await until(lambda: '"question"' in received(tmp_path), "the answer")
    assert "a server may ask only while a call runs" in received(tmp_path)


async def test_time_does_not_pass_while_somebody_is_asked(remote: ServerConfig) -> None:
    async def elicit(request: FormRequest | UrlRequest) -> ElicitAnswer:
        await asyncio.sleep(0.7)
        return ElicitAnswer(action="decline")

    async with McpHost(remote, features=ClientFeatures(elicit=elicit)) as host:
        result = await host.call("ask", {"request": ASK_FORM}, timeout=0.6)
    assert json.loads(text_of(result)) == {"action": "decline"}


# -- how long a call may take ------------------------------------------------------------------------------------------


@pytest.mark.sweep
async def test_a_stopped_call_and_one_out_of_time_are_cancelled_at_the_server(server: tuple[ServerConfig, Path, str]) -> None:
    config, record, _ = server
    async with McpHost(config) as host:
        call = asyncio.create_task(host.call("hang", {}))
        await asyncio.sleep(0.3)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: record.read_text().count("cancelled") == 1, "the cancellation")
        with pytest.raises(ToolHostUnavailable, match=r"no answer within 0\.3 s"):
            await host.call("hang", {}, timeout=0.3)
        await until(lambda: record.read_text().count("cancelled") == 2, "the second cancellation")


@pytest.mark.parametrize("remote", [pytest.param("2025", marks=pytest.mark.full), "2026"], indirect=True)
async def test_progress_extends_the_limit_but_not_for_ever(remote: ServerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    async with McpHost(remote) as host:
        assert text_of(await host.call("work", {"steps": 6, "seconds": 0.15}, timeout=0.8)) == "done"
        monkeypatch.setattr("xmlcall.hosts.mcp.callbacks.MOST", 2.0)
        with pytest.raises(ToolHostUnavailable, match=r"no answer within 0\.8 s"):
            await host.call("work", {"steps": 60, "seconds": 0.1}, timeout=0.4)


# -- the log -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", OVER_HTTP, indirect=True, ids="-".join)
async def test_log_messages_arrive_from_the_wanted_level_on(
    server: tuple[ServerConfig, Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many in a second, by a clock of the test."""
    config, record, era = server
    now = [1.0]
    monkeypatch.setattr("xmlcall.hosts.mcp.callbacks.time", SimpleNamespace(monotonic=lambda: now[0]))
    heard: list[LogMessage] = []
    async with McpHost(config, features=ClientFeatures(log=heard.append, log_level="warning")) as host:
        await host.call("log", {"level": "warning", "text": "hot\x1b[31m"})
        await host.call("log", {"level": "error", "text": "many", "times": 3 * MAX_LOGGED})
        assert 1 < len(heard) <= 2 * MAX_LOGGED + 1
        now[0] = 2.0
        await host.call("log", {"level": "error", "text": "last"})
        await until(lambda: heard[-1].data == "last", "the last message")
    assert heard[0] == LogMessage(server="asking", level="warning", logger="core", data="hot\x1b[31m")
    assert sum(1 + message.left_out for message in heard) == 3 * MAX_LOGGED + 2
    if era == "2025":
        assert "level warning\n" in record.read_text()


# -- addresses to visit before a call -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "action", "result", "asked"),
    [
        ("visit_first", "accept", "connected", 1),
        ("visit_first", "decline", "error -32042", 1),
        ("visit_for_ever", "accept", "error -32042", 1),  # it is asked once
        ("visit_odd", "accept", "error -32042", 0),  # no address of the web
        ("rpc_error", "accept", "error -32042", 0),  # none at all
    ],
)
async def test_an_address_is_visited_and_the_call_made_again(mode: str, action: Any, result: str, asked: int) -> None:
    requests: list[Any] = []

    async def elicit(request: FormRequest | UrlRequest) -> ElicitAnswer:
        requests.append(request)
        await asyncio.sleep(0.35)  # longer than the limit of the call, which rests
        return ElicitAnswer(action=action)

    server = StdioServer(name="bank", command=sys.executable, args=(str(Path(ASKING).with_name("hostile.py")), mode))
    async with McpHost(server, features=ClientFeatures(elicit=elicit)) as host:
        await host.tools()
        try:
            told = text_of(await host.call("echo", {}, timeout=0.3))
        except ToolHostProtocolError as error:
            told = str(error)
    assert result in told
    url = "https://bank.example/connect"
    assert requests == [UrlRequest(server="bank", message="Connect your account.", url=url, is_awaited=True)] * asked


async def test_nothing_is_visited_where_nobody_can_be_asked() -> None:
    server = StdioServer(name="bank", command=sys.executable, args=(str(Path(ASKING).with_name("hostile.py")), "visit_first"))
    async with McpHost(server) as host:
        await host.tools()
        with pytest.raises(ToolHostProtocolError, match="error -32042 while running 'echo': connect first"):
            await host.call("echo", {})


# -- tasks -------------------------------------------------------------------------------------------------------------


def tasking(mode: str, directory: Path, **fields: Any) -> StdioServer:
    script = Path(ASKING).with_name("tasking.py")
    env = {"RECORD": str(directory / "record"), "PYTHONPATH": str(script.parents[1])}
    return StdioServer(name="tasking", command=sys.executable, args=(str(script), mode), env=env, **fields)


def received(directory: Path) -> str:
    return (directory / "record").read_text()


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [(2000, 2), (0, 0.05), (10**400, 30), (float("nan"), 0.05), (float("inf"), 30), (None, 1), ("9", 1)],
)
def test_a_pause_is_bounded_whatever_the_server_suggests(milliseconds: Any, seconds: float) -> None:
    assert connection._pause(milliseconds) == seconds


@pytest.mark.parametrize(("mode", "result"), [("steps", "the result"), ("at_once", "at once")])
async def test_a_tool_that_needs_a_task_is_offered_and_run_as_one(mode: str, result: str, tmp_path: Path) -> None:
    told: list[str] = []
    async with McpHost(tasking(mode, tmp_path)) as host:
        assert [tool.name for tool in await host.tools()] == ["slow"]
        assert text_of(await host.call("slow", {}, progress=lambda done, total, message: told.append(message))) == result
    assert told == (["step 0", "step 1"] if mode == "steps" else [])


async def test_a_task_may_ask_the_person(tmp_path: Path) -> None:
    async def elicit(request: FormRequest | UrlRequest) -> ElicitAnswer:
        return ElicitAnswer(action="accept", content={"city": "Oslo"})

    async with McpHost(tasking("asks", tmp_path), features=ClientFeatures(elicit=elicit)) as host:
        await host.tools()
        assert json.loads(text_of(await host.call("slow", {}))) == {"action": "accept", "content": {"city": "Oslo"}}


async def test_a_task_that_is_stopped_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xmlcall.hosts.mcp.callbacks.MOST", 3.0)
    async with McpHost(tasking("endless", tmp_path)) as host:
        await host.tools()
        call = asyncio.create_task(host.call("slow", {}))
        await until(lambda: "tasks/get" in received(tmp_path), "the first look at the task")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert received(tmp_path).count('"tasks/cancel"') == 1
        with pytest.raises(ToolHostUnavailable, match=r"no answer within 0\.6 s"):
            await host.call("slow", {}, timeout=0.2)
        assert received(tmp_path).count('"tasks/cancel"') == 2


@pytest.mark.parametrize(("mode", "told"), [("fails", "the oven is cold"), ("odd_state", "outside the protocol")])
async def test_a_task_that_fails_says_why(mode: str, told: str, tmp_path: Path) -> None:
    async with McpHost(tasking(mode, tmp_path)) as host:
        await host.tools()
        with pytest.raises(ToolHostProtocolError, match=told):
            await host.call("slow", {})


@pytest.mark.parametrize(
    ("mode", "result"), [("steps", "the result"), ("cancelled", "cancelled"), ("forgetful", "unknown"), ("no_tasks", "unknown")]
)
async def test_a_task_of_another_connection_is_asked_for(mode: str, result: str, tmp_path: Path) -> None:
    ids: list[str] = []
    async with McpHost(tasking("steps", tmp_path)) as host:
        await host.tools()
        await host.call("slow", {}, on_task=ids.append)
    async with McpHost(tasking(mode, tmp_path)) as host:
        found = await host.task_result("slow", ids[0])
        assert (found if isinstance(found, str) else text_of(found)) == result


async def test_a_task_of_another_connection_that_failed_says_why(tmp_path: Path) -> None:
    async with McpHost(tasking("fails", tmp_path)) as host:
        with pytest.raises(ToolHostProtocolError, match="the oven is cold") as failed:
            await host.task_result("slow", "t1")
        assert failed.value.reason == "error"


async def test_a_task_is_cancelled_when_time_is_up_but_not_when_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xmlcall.hosts.mcp.callbacks.MOST", 3.0)
    async with McpHost(tasking("endless", tmp_path)) as host:
        asked = asyncio.create_task(host.task_result("slow", "t1"))
        await until(lambda: "tasks/get" in received(tmp_path), "the first look at the task")
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert '"tasks/cancel"' not in received(tmp_path)
        with pytest.raises(ToolHostUnavailable, match=r"no answer within 0\.6 s"):
            await host.task_result("slow", "t1", timeout=0.2)
        assert received(tmp_path).count('"tasks/cancel"') == 1


@pytest.mark.full
async def test_the_task_of_server_everything_asks_and_ends() -> None:
    asked: list[Any] = []
    told: list[str] = []

    async def elicit(request: FormRequest | UrlRequest) -> ElicitAnswer:
        asked.append(request)
        return ElicitAnswer(action="accept", content={"interpretation": "snake"})

    with everything_server("http") as server:
        async with McpHost(server, features=ClientFeatures(elicit=elicit)) as host:
            await host.tools()
            question = {"topic": "python", "ambiguous": True}
            result = await host.call(
                "simulate-research-query", question, progress=lambda done, total, message: told.append(message)
            )
    assert "# Research Report: python (snake)" in text_of(result)
    assert told[0] == "Gathering sources..."
    assert asked[0].message.startswith('The research query "python"')


@pytest.mark.parametrize(
    ("url", "spelled"),
    [
        ("https://example.com/a", "example.com"),
        ("https://ex\u0430mple.com/a", "xn--exmple-4nf.com"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://[::ffff:127.0.0.1]/", "127.0.0.1"),
        ("http://0x7f.1/", "127.0.0.1"),
    ],
)
def test_the_host_of_an_address_is_told_as_the_network_reads_it(url: str, spelled: str) -> None:
    assert UrlRequest(server="web", message="", url=url).spelled_host == spelled
