"""`xmlcall serve` seen from outside, as a process: its log as JSON, its metrics, its traces at a collector; no key in any."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cli_harness import SECONDS, call, environment, model_server, run_cli
from servers.run_server import free_port, run_server
from serving import CHAT, TOOL, Serving
from starlette.requests import Request
from starlette.responses import Response

KEY, WRONG, ODD = "secret-5d1c", "wrong-81aa", "odd-c2f4"
SECRETS = (KEY, WRONG, ODD)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Collector:
    """A receiver of OTLP over HTTP: keeps what it is sent."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.bodies: list[bytes] = []
        self.came = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        self.bodies.append(await request.body())
        self.paths.append(request.url.path)
        await Response(b"", 200, {"content-type": "application/x-protobuf"})(scope, receive, send)
        self.came.set()

    def spans(self) -> dict[str, dict[str, Any]]:
        """Attributes of the spans that came, by the span's name."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found = {}
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        told = {each.key: each.value for each in (*span.attributes, *resource.resource.attributes)}
                        found[span.name] = told | {"trace": span.trace_id.hex()}
        return found


class Watched(Serving):
    """A proxy with a key, whose log is JSON from its first line on."""

    def __enter__(self) -> "Watched":
        assert self.get("/health").json() == {"status": "ok"}
        return self

    @property
    def log(self) -> list[dict[str, Any]]:
        """The log, line by line."""
        return [json.loads(line) for line in self.errors.splitlines()]


def ask_in_many_ways(proxy: Serving) -> None:
    """Send the key, a wrong one, and one in odd places."""
    good = {"authorization": f"Bearer {KEY}"}
    trace = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "tracestate": f"a={ODD}", "baggage": f"key={ODD}"}
    assert proxy.ask(tools=[TOOL], headers=good | trace).status_code == 200
    odd = {"x-goog-api-key": ODD, "api-key": ODD, "cookie": f"key={ODD}", "user-agent": ODD, "x-request-id": ODD}
    assert proxy.ask(headers={"x-api-key": WRONG}).status_code == 401
    assert proxy.ask(headers=odd).status_code == 401
    assert proxy.ask(tools=[TOOL], user=ODD, headers={"x-api-key": KEY} | odd).status_code == 200
    assert proxy.get(f"/metrics?key={ODD}").status_code == 401


@pytest.mark.timeout(120)
def test_nothing_that_is_seen_has_a_key(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk.trace", reason="needs the extra `traces`")
    collector = Collector()
    with run_server(collector) as otlp, model_server("Hello.", call("f")) as (model, fake):
        given = {"XMLCALL_API_KEY": KEY, "OTEL_EXPORTER_OTLP_ENDPOINT": otlp, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        arguments = ["--model", model, "--ask", "mode=xml", "--traces", "--log-format", "json"]
        with Watched(*arguments, home=tmp_path, env=given) as proxy:
            ask_in_many_ways(proxy)
            metrics = proxy.get("/metrics", authorization=f"Bearer {KEY}").text
            assert collector.came.wait(SECONDS)
            assert proxy.end(signal.SIGTERM)[0] == 0
            log, text = proxy.log, proxy.errors
    spans = collector.spans()
    assert [secret for secret in SECRETS if secret in metrics + text or secret.encode() in b"".join(collector.bodies)] == []
    assert any(headers.get("traceparent", "").startswith(f"00-{TRACE}-") for headers in fake.headers)
    assert {*collector.paths} == {"/v1/traces"}
    assert spans[f"POST {CHAT}"]["service.name"].string_value == "xmlcall"
    assert spans["chat tiny"]["gen_ai.provider.name"].string_value == "openai-compatible"
    assert 'xmlcall_requests_total{endpoint="/v1/chat/completions",key="",method="POST",model="tiny",status="200"} 2.0' in metrics
    assert 'xmlcall_refusals_total{code="invalid_api_key",model=""} 2.0' in metrics
    assert any(line["message"].startswith("serving tiny; ") for line in log)


def test_a_log_that_programs_read(tmp_path: Path) -> None:
    with model_server("Hello.") as (model, _):
        with Watched("--model", model, "--ask", "mode=xml", "--log-format", "json", home=tmp_path) as proxy:
            proxy.ask(tools=[TOOL], headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"})
            proxy.get("/nowhere/%0a%1b[31m")
            proxy.end(signal.SIGTERM)
            log = proxy.log
    line = next(line for line in log if line.get("event") == "request")
    assert re.fullmatch(rf"POST {CHAT} 200, \d+\.\d\d s", line.pop("message"))
    assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    assert line.pop("seconds") >= 0
    named = {"level": "info", "logger": "xmlcall.proxy", "event": "request", "method": "POST", "endpoint": CHAT, "path": CHAT}
    tokens = {"prompt": 32, "completion": 5, "cached": 30}  # one of them of the question whether a tool is needed
    assert line == named | {"status": 200, "model": "tiny", "tokens": tokens, "trace_id": TRACE}
    assert all(line["time"].endswith("Z") for line in log if "time" in line)


def test_a_wrong_use_is_told_in_json_too(tmp_path: Path) -> None:
    done = run_cli("serve", "--model", "http://127.0.0.1:9/v1", "--port", "0", "--log-format", "json", home=tmp_path)
    assert done.returncode == 1
    assert "cannot connect" in json.loads(done.stderr.splitlines()[-1])["message"]


@pytest.mark.full  # it is tried for seconds
def test_a_collector_that_is_not_there_holds_nothing_up(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk.trace", reason="needs the extra `traces`")
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    with model_server("Hello.") as (model, _):
        with Serving("--model", model, "--ask", "mode=xml", "--traces", home=tmp_path, env=given) as proxy:
            assert proxy.ask(tools=[TOOL]).status_code == 200
            code, seconds = proxy.end(signal.SIGTERM)
    assert (code, seconds < 10) == (0, True)


# -- several processes -------------------------------------------------------------------------------------------------

WORKER = """
import asyncio, os, sys, httpx
from observed_harness import ask, observed
from xmlcall.proxy.observed.observer import OPEN_STREAMS, Observer

async def main():
    observer = Observer()
    async with observed(["Hello."] * 3, observer=observer) as client, observed(["Hello."], observer=Observer()) as other:
        for _ in range(int(sys.argv[1])):
            await ask(client)
        await ask(other)  # a second app of the process
        observer.metrics.add(OPEN_STREAMS)  # one that is never closed
        print(os.getpid(), flush=True)
        sys.stdin.readline()
        print((await client.get("/metrics")).text, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    folder = tmp_path / "metrics"
    folder.mkdir()
    env = environment(tmp_path, {"PROMETHEUS_MULTIPROC_DIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[1])})
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([sys.executable, "-c", WORKER, n], env=env, **pipes) for n in ("2", "3")]
    yield started
    for each in started:
        each.kill()
        each.communicate()


@pytest.mark.full  # several processes
def test_metrics_add_up_over_processes(workers: list["subprocess.Popen[str]"]) -> None:
    """Also what one counted that has ended."""
    for each in workers:
        assert each.stdout is not None
        assert each.stdout.readline().strip() == str(each.pid)
    workers[1].kill()
    workers[1].wait(SECONDS)
    text = workers[0].communicate("\n", timeout=SECONDS)[0]
    count = 'xmlcall_requests_total{endpoint="/v1/chat/completions",key="",method="POST",model="scripted",status="200"} '
    assert f"{count}7.0\n" in text  # 2 + 3, and one of each second app
    assert 'xmlcall_first_token_seconds_count{model="scripted"} 7.0' in text
    assert "xmlcall_open_requests 0.0\n" in text
    assert "xmlcall_open_streams 2.0\n" in text
    assert "pid=" not in text
