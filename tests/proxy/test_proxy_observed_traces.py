"""Spans of a request, of the model requests in it, and of the proxy's own tools; and what is in none of them."""

from collections.abc import Mapping
from typing import Any

import pytest
from observed_harness import CHAT, ask, observed
from proxy_harness import add, block
from servers.fake_ollama import FakeOllama
from servers.fake_openai import FakeOpenAI, reply
from servers.run_server import Stage

from xmlcall import LocalHost
from xmlcall.backends.base import Backend
from xmlcall.backends.connect import connect
from xmlcall.backends.ollama import OllamaBackend
from xmlcall.errors import BackendProtocolError
from xmlcall.proxy.observed.observer import Observer
from xmlcall.types.completion import Chunk, Usage

pytest.importorskip("opentelemetry.sdk.trace", reason="needs the extra `traces`")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from xmlcall.proxy.observed.traces import Traces

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
USAGE = Usage(prompt_tokens=100, completion_tokens=7, cached_tokens=80)


class Traced:
    """An observer whose spans are kept."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer = Observer(tracing=Traces(provider))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """Finished spans by name."""
        return {span.name: span for span in self._exporter.get_finished_spans()}

    @property
    def text(self) -> str:
        """All that would be sent."""
        return "".join(span.to_json() for span in self._exporter.get_finished_spans())


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})


async def test_a_request_and_the_model_request_in_it() -> None:
    traced = Traced()
    script = [["Hello.", Chunk(finish_reason="stop", usage=USAGE)]]
    async with observed(script, observer=traced.observer) as client:
        await client.post(CHAT, json={"messages": [{"role": "user", "content": "Hi"}]}, headers=CALLER)
    server, model = traced.spans[f"POST {CHAT}"], traced.spans["chat scripted"]
    assert (server.kind, model.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    assert server.parent is not None
    assert (f"{server.parent.span_id:016x}", f"{server.context.trace_id:032x}") == (PARENT, TRACE)
    assert model.parent is not None
    assert model.parent.span_id == server.context.span_id
    taken = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 7, "gen_ai.usage.cache_read.input_tokens": 80}
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "scripted", "gen_ai.response.finish_reasons": ("stop",)}
    http = {"http.request.method": "POST", "http.route": CHAT, "http.response.status_code": 200, "url.scheme": "http"}
    assert attributes(server) == asked | taken | http
    told = dict(attributes(model))
    assert told.pop("gen_ai.response.time_to_first_chunk") >= 0
    assert told == asked | taken | {"gen_ai.provider.name": "scripted"}


def double(n: int) -> int:
    """Double a number."""
    if n < 0:
        raise ValueError("too small")
    return 2 * n


@pytest.mark.parametrize(("number", "failure"), [(2, None), (-2, "tool_error")])
async def test_a_tool_that_the_proxy_runs(number: int, failure: str | None) -> None:
    traced = Traced()
    script = [block(("double", {"n": number})), "Done."]
    async with observed(script, observer=traced.observer, hosts=[LocalHost([double], name="own")]) as client:
        await ask(client, tools=())
    tool = traced.spans["execute_tool double"]
    assert attributes(tool)["gen_ai.tool.name"] == "double"
    assert attributes(tool).get("error.type") == failure
    assert tool.status.is_ok == (failure is None)
    assert tool.parent is not None
    assert tool.parent.span_id == traced.spans[f"POST {CHAT}"].context.span_id


@pytest.mark.usefixtures("no_pauses")
async def test_what_fails() -> None:
    traced = Traced()
    error = BackendProtocolError("no stream")
    async with observed([error] * 4, observer=traced.observer) as client:
        assert (await ask(client)).status_code == 502
        assert (await client.post(CHAT, content=b"{")).status_code == 400
    model, (failed, refused) = (
        traced.spans["chat scripted"],
        [span for span in traced._exporter.get_finished_spans() if span.kind == SpanKind.SERVER],
    )
    assert attributes(model)["error.type"] == "protocol_error"
    assert (attributes(failed)["error.type"], failed.status.status_code) == ("model_server_error", StatusCode.ERROR)
    assert (attributes(refused)["error.type"], refused.status.status_code) == ("invalid_request_error", StatusCode.UNSET)


@pytest.mark.parametrize("kind", ["relayed", "answered", "ollama", "ollama relayed"])
async def test_the_model_server_gets_the_trace(kind: str, stage: tuple[Stage, str]) -> None:
    traced, openai, ollama = Traced(), FakeOpenAI(steps=reply("Hello")), FakeOllama()
    fake: Any = ollama if kind.startswith("ollama") else openai
    path = "/api/chat" if kind == "ollama relayed" else CHAT
    tools = [{"type": "function", "function": {"name": "f"}}] if kind == "answered" else []
    played, url = stage
    played.app = fake.app
    backend: Backend = OllamaBackend("tiny", host=url) if fake is ollama else connect(f"{url}/v1")
    async with observed(backend, observer=traced.observer) as client:
        body = {"messages": [{"role": "user", "content": "Hi"}], "tools": tools}
        assert (await client.post(path, json=body, headers=CALLER)).status_code == 200
        assert (await client.get("/ready")).status_code == 200
    model = traced.spans["chat tiny"]
    sent = [headers["traceparent"] for headers in fake.headers if "traceparent" in headers]
    assert sent == [f"00-{TRACE}-{model.context.span_id:016x}-01"]


async def test_no_content_is_in_a_span() -> None:
    traced, canary = Traced(), "canary-7f3a"
    script = [f"{canary} {add(canary, canary)}", block(("double", {"n": 2})), canary]
    headers = {"tracestate": f"a={canary}", "baggage": f"a={canary}", "traceparent": canary, "x-api-key": canary}
    async with observed(script, observer=traced.observer, hosts=[LocalHost([double], name="own")]) as client:
        body = {"model": canary, "messages": [{"role": "user", "content": canary}], "user": canary}
        assert (await client.post(CHAT, json=body, headers=headers, params={"key": canary})).status_code == 200
        assert (await client.get(f"/v1/models/{canary}")).status_code == 200
    assert len(traced.text) > 1000
    assert canary not in traced.text
