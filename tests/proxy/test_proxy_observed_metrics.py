"""What `/metrics` counts: requests, tokens, calls, repairs, refusals, what is under way."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from observed_harness import CHAT, ask, counts, observed, samples, series
from proxy_harness import ADD, add, block, body
from servers.fake_ollama import FakeOllama
from servers.fake_openai import FakeOpenAI, chunk, final, reply
from servers.run_server import Stage

from xmlcall import LocalHost
from xmlcall.backends.connect import connect
from xmlcall.backends.ollama import OllamaBackend
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import BackendUnavailable, ContextOverflow
from xmlcall.proxy.app import app_of
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.http.access import Guard, key_of, serving
from xmlcall.proxy.observed import observer as observed_requests
from xmlcall.proxy.observed.observer import METRICS, Metrics, Observer
from xmlcall.types.completion import Chunk, Usage

USAGE = Usage(prompt_tokens=100, completion_tokens=7, cached_tokens=80)


def replied(text: str) -> list[Any]:
    """A reply with its token counts."""
    return [text, Chunk(finish_reason="stop", usage=USAGE)]


async def test_requests_are_counted_by_the_template_of_their_route() -> None:
    observer = Observer()
    async with observed([replied("Hello.")], observer=observer) as client:
        assert (await ask(client)).status_code == 200
        assert (await client.get("/v1/models/secret-name")).status_code == 200
        assert (await client.get("/nowhere/secret-name")).status_code == 404
        assert (await client.request("SECRET", CHAT)).status_code == 405
        assert (await client.post(CHAT, content=b"{")).status_code == 400
        assert (await client.get("/nowhere", headers={"host": "evil.example"})).status_code == 403
        text = (await client.get("/metrics")).text
    assert series(observer, "xmlcall_requests_total") == {
        (CHAT, "", "POST", "scripted", "200"): 1,
        (CHAT, "", "POST", "", "400"): 1,
        ("/v1/models/{name:path}", "", "GET", "", "200"): 1,
        ("other", "", "GET", "", "404"): 1,
        ("other", "", "other", "", "405"): 1,
        ("other", "", "GET", "", "403"): 1,
    }
    assert "secret-name" not in text
    assert "SECRET" not in text


@pytest.mark.parametrize(("mode", "tools"), [("xml", (ADD,)), ("native", (ADD,)), ("xml", ())], ids=["xml", "native", "plain"])
async def test_tokens_and_their_cached_part(mode: str, tools: tuple[Any, ...]) -> None:
    observer = Observer()
    async with observed([replied("Hello."), "Hi."], observer=observer, mode=mode) as client:
        for _ in range(2):  # of the second reply nobody tells the counts: each piece is one
            await ask(client, tools=tools)
    told = {name: counts(observer, f"xmlcall_{name}_tokens_total", "model") for name in ("prompt", "cached", "completion")}
    assert told == {"prompt": {"scripted": 100}, "cached": {"scripted": 80}, "completion": {"scripted": 8}}
    assert series(observer, "xmlcall_first_token_seconds_count") == {("scripted",): 2}
    assert series(observer, "xmlcall_request_seconds_count") == {(CHAT, "scripted"): 2}


REPAIRED = add("1,000", 2)
INVALID = block(("add", {"a": 1}))


async def test_calls_by_outcome_with_repairs_and_issues() -> None:
    observer = Observer()
    async with observed([add(1, 2), REPAIRED, INVALID, add(1, 2)], observer=observer) as client:
        for _ in range(3):
            assert (await ask(client)).json()["choices"][0]["finish_reason"] == "tool_calls"
    assert counts(observer, "xmlcall_calls_total", "outcome") == {"bound": 2, "repaired": 1, "invalid": 1}
    assert counts(observer, "xmlcall_repairs_total", "code") == {"number-format": 1}
    assert counts(observer, "xmlcall_issues_total", "code") == {"missing-argument": 1}


async def test_own_tools_that_run() -> None:
    def double(n: int) -> int:
        """Double a number."""
        if n < 0:
            raise ValueError("too small")
        return 2 * n

    observer, host = Observer(), LocalHost([double], name="own")
    script = [block(("double", {"n": 2})), block(("double", {"n": -2})), "Done."]
    async with observed(script, observer=observer, hosts=[host]) as client:
        assert (await ask(client, tools=())).status_code == 200
    assert counts(observer, "xmlcall_tool_runs_total", "result") == {"ok": 1, "error": 1}


OVERFLOW = ContextOverflow("the prompt is too long", status_code=400, prompt_tokens=9000, context_length=4096)
FAILURES: dict[str, tuple[list[Any], dict[str, Any], str, str, str]] = {
    "overflow": ([OVERFLOW] * 5, {}, "400", "context_length_exceeded", "context_overflow"),
    "no call": (["No."] * 3, {"tool_choice": "required"}, "502", "no_tool_call", "ok"),
    "unavailable": ([BackendUnavailable("gone")] * 4, {}, "503", "model_server_unavailable", "unavailable"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.usefixtures("no_pauses")
async def test_refusals_by_code(name: str) -> None:
    script, fields, status, code, result = FAILURES[name]
    observer = Observer()
    async with observed(script, observer=observer, strict=True) as client:
        assert (await ask(client, **fields)).status_code == int(status)
    assert series(observer, "xmlcall_refusals_total") == {(code, "scripted"): 1}
    assert counts(observer, "xmlcall_requests_total", "status") == {status: 1}
    assert counts(observer, "xmlcall_model_requests_total", "result").keys() == {result}


async def test_what_is_under_way() -> None:
    gate, observer = asyncio.Event(), Observer()

    class Slow(ScriptedBackend):
        async def stream(self, request: Any) -> Any:
            yield Chunk(text="Hel")
            await gate.wait()
            yield Chunk(text="lo", finish_reason="stop")

    def under_way() -> tuple[float, float]:
        open_requests, open_streams = (series(observer, f"xmlcall_open_{name}") for name in ("requests", "streams"))
        return open_requests[()], open_streams[()]

    async with observed(Slow([]), observer=observer) as client:
        tasks = [asyncio.create_task(ask(client, stream=is_streamed)) for is_streamed in (True, False)]
        for _ in range(500):
            if under_way() == (2, 1):
                break
            await asyncio.sleep(0.01)
        assert under_way() == (2, 1)
        gate.set()
        await asyncio.gather(*tasks)
    assert under_way() == (0, 0)


async def test_a_caller_that_leaves() -> None:
    observer, has_begun = Observer(), asyncio.Event()

    class Endless(ScriptedBackend):
        async def stream(self, request: Any) -> Any:
            yield Chunk(text="Hel")
            has_begun.set()
            await asyncio.sleep(60)

    async def receive() -> Any:
        if not has_begun.is_set():
            if not asked:
                asked.append(True)
                return {"type": "http.request", "body": json.dumps(body()).encode()}
            await has_begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None: ...

    asked: list[bool] = []
    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": headers, "query_string": b"", "root_path": ""}
    async with Engine(Endless([]), mode="xml") as engine:
        await app_of(serving(engine), Guard(), observer=observer)(scope, receive, send)
    assert counts(observer, "xmlcall_requests_total", "status") == {"499": 1}
    assert counts(observer, "xmlcall_model_requests_total", "result") == {"closed": 1}
    assert series(observer, "xmlcall_refusals_total") == {}
    assert series(observer, "xmlcall_open_requests") == {(): 0}


# -- answers that are passed on ----------------------------------------------------------------------------------------


COUNTS = final(prompt_tokens=32, completion_tokens=4, total_tokens=36, prompt_tokens_details={"cached_tokens": 30})
LONG = [chunk({"content": "x" * 1000})] * 200
WHOLE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}}], "usage": {"prompt_tokens": 9}}


@pytest.mark.parametrize("steps", [reply("Hello"), [*LONG, chunk({}, "stop"), COUNTS]], ids=["short", "long"])
async def test_a_stream_that_is_passed_on(steps: list[Any], stage: tuple[Stage, str]) -> None:
    observer, (played, url) = Observer(), stage
    played.app = FakeOpenAI(steps=steps).app
    async with observed(connect(f"{url}/v1"), observer=observer) as client:
        assert (await ask(client, tools=(), stream=True)).status_code == 200
    told = [counts(observer, f"xmlcall_{name}_tokens_total", "model") for name in ("prompt", "cached", "completion")]
    assert told == [{"tiny": 32}, {"tiny": 30}, {"tiny": 4}]
    assert series(observer, "xmlcall_first_token_seconds_count") == {("tiny",): 1}
    assert series(observer, "xmlcall_model_requests_total") == {("tiny", "ok"): 1}


@pytest.mark.parametrize(("status", "said", "code"), [(200, WHOLE, {}), (400, {"error": "no"}, {"passed_on": 1})])
async def test_an_answer_that_is_passed_on_whole(
    status: int, said: Any, code: dict[str, float], stage: tuple[Stage, str]
) -> None:
    observer, (played, url) = Observer(), stage
    played.app = FakeOpenAI(refusal=(status, said)).app
    async with observed(connect(f"{url}/v1"), observer=observer) as client:
        assert (await ask(client, tools=())).status_code == status
    assert counts(observer, "xmlcall_refusals_total", "code") == code
    assert counts(observer, "xmlcall_prompt_tokens_total", "model") == ({"tiny": 9} if status == 200 else {})
    assert counts(observer, "xmlcall_model_requests_total", "result") == {"ok" if status == 200 else "refused": 1}


async def test_ollamas_counts(stage: tuple[Stage, str]) -> None:
    observer, (played, url) = Observer(), stage
    played.app = FakeOllama().app
    async with observed(OllamaBackend("tiny", host=url), observer=observer) as client:
        said = (await client.post("/api/chat", json={"messages": [{"role": "user", "content": "Hi"}]})).text
    last = httpx.Response(200, text=said.splitlines()[-1]).json()
    assert last["eval_count"] > 0
    assert counts(observer, "xmlcall_completion_tokens_total", "model") == {"tiny": last["eval_count"]}
    assert counts(observer, "xmlcall_prompt_tokens_total", "model") == {"tiny": last["prompt_eval_count"]}


# -- who may read them -------------------------------------------------------------------------------------------------

KEY = "secret-5d1c"


@pytest.mark.parametrize(
    ("is_open", "headers", "status"),
    [
        (False, {}, 401),
        (False, {"authorization": f"Bearer {KEY}"}, 200),
        (True, {}, 200),
        (True, {"origin": "http://evil.example"}, 403),
        (True, {"host": "evil.example"}, 403),
    ],
)
async def test_metrics_need_the_key_unless_they_are_open(is_open: bool, headers: dict[str, str], status: int) -> None:
    observer = Observer(open_metrics=is_open)
    async with observed(observer=observer, guard=Guard(keys=(key_of(KEY),))) as client:
        assert (await client.get("/metrics", headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("accept", "media_type", "end"),
    [("", "text/plain", "\n"), ("application/openmetrics-text;version=\x7f,*/*", "application/openmetrics-text", "# EOF\n")],
)
async def test_formats(accept: str, media_type: str, end: str) -> None:
    async with observed() as client:
        response = await client.get("/metrics", headers={"accept": accept})
    assert response.headers["content-type"].startswith(media_type)
    assert response.text.endswith(end)
    assert "_created" not in response.text


# -- labels ------------------------------------------------------------------------------------------------------------


def test_series_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_requests, "MOST_VALUES", 3)
    found = Metrics()
    for number in (*range(1000), 0):
        found.add(observed_requests.REFUSALS, f"model-{number}", "code")
    told = [labels["model"] for name, labels, _ in samples(found) if name == "xmlcall_refusals_total"]
    assert sorted(told) == ["model-0", "model-1", "model-2", "other"]
    assert len(found._series) == 3


def test_apps_do_not_add_up() -> None:
    first, second = Metrics(), Metrics()
    first.add(observed_requests.OPEN_REQUESTS)
    values = [value for each in (first, second) for name, _, value in samples(each) if name == "xmlcall_open_requests"]
    assert values == [1, 0]


def test_names_of_metrics_follow_the_rules() -> None:
    for row in METRICS:
        assert row.name.startswith("xmlcall_")
        assert row.name.endswith("_total") == (row.kind == "counter")
        assert row.help.endswith(".")
