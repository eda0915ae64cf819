"""`xmlcall serve` from the outside: a process, a scripted model server, real callers."""

import contextlib
import json
import re
import signal
import socket
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_harness import SECONDS, call, lent_server, model_server, run_cli
from servers.fake_ollama import FakeOllama
from servers.fake_openai import FakeOpenAI, Step, chunk, llama_props
from servers.run_server import free_port
from servers.started import is_alive
from serving import CHAT, ENDLESS, TOOL, Serving

from xmlcall import parse
from xmlcall.backends.openai import FALLBACK_TEMPLATE
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write
from xmlcall.tools.catalog import Catalog

CANARY = "canary-7f3a"


def said(response: httpx.Response) -> str:
    return str(response.json()["choices"][0]["message"]["content"])


@pytest.mark.sweep  # as a program of its own, too
def test_it_prints_its_address_and_answers(tmp_path: Path) -> None:
    with model_server("No.", "Hello.") as (model, fake), Serving("--model", model, home=tmp_path) as proxy:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", proxy.url)
        assert said(proxy.ask(tools=[TOOL])) == "Hello."
        assert proxy.get("/v1/models").json()["data"][0]["id"] == "tiny"
        assert "server" not in proxy.get("/health").headers
        assert proxy.end(signal.SIGTERM)[0] == 0
        assert proxy.rest() == "", "nothing but the address goes to standard output"
        told = proxy.errors
    assert len(fake.bodies) == 2  # a trial of the server's own function calling, and the answer
    assert f"serving tiny; OpenAI clients: base URL {proxy.url}/v1; Anthropic and Ollama clients: {proxy.url}; Ctrl-C" in told
    assert re.search(rf"^\d\d:\d\d:\d\d POST {CHAT} 200, \d+\.\d\d s$", told, flags=re.MULTILINE)


def test_it_names_a_model_without_a_chat_template(tmp_path: Path) -> None:
    with model_server() as (model, fake):
        fake.props = llama_props(template=FALLBACK_TEMPLATE)
        with Serving("--model", model, home=tmp_path) as proxy:
            proxy.end(signal.SIGTERM)
            assert "xmlcall: tiny has no chat template: it looks like a base model" in proxy.errors


@pytest.mark.sweep  # as a program of its own, too
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it(number: signal.Signals, tmp_path: Path) -> None:
    with model_server() as (model, _), Serving("--model", model, home=tmp_path) as proxy, httpx.Client() as kept:
        assert kept.get(f"{proxy.url}/health").status_code == 200  # and the connection stays open
        code, seconds = proxy.end(number)
        assert (code, "Traceback" in proxy.errors) == (0, False)
        assert seconds < 4


@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["relayed", "answered"])
@pytest.mark.parametrize(
    ("signals", "least", "most"), [pytest.param(1, 4.0, 9.0, marks=pytest.mark.full, id="in vain"), (2, 0.0, 4.0)]
)
def test_a_stream_that_is_open_is_waited_for_a_while(
    tools: list[Any], signals: int, least: float, most: float, tmp_path: Path
) -> None:
    fake = FakeOpenAI(steps=ENDLESS)
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(lent_server(fake.app))
        proxy = stack.enter_context(Serving("--model", f"{model}/v1", "--ask", "mode=xml", home=tmp_path))
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "tools": tools}
        response = stack.enter_context(httpx.stream("POST", proxy.url + CHAT, json=body, timeout=SECONDS))
        pieces = response.iter_text()
        while "Hello" not in next(pieces):
            pass
        begun = time.monotonic()
        for _ in range(signals):
            proxy.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert proxy.process.wait(SECONDS) == 0
        assert least < time.monotonic() - begun < most
        assert fake.left.wait(1), "the generation goes on at the server"
        assert "Traceback" not in proxy.errors


def test_a_stream_that_ends_in_time_is_whole(tmp_path: Path) -> None:
    slow: list[Step] = [chunk({"content": "Hello"}), 0.5, chunk({"content": " world"}), chunk({}, "stop")]
    with model_server(slow) as (model, _), Serving("--model", model, "--ask", "mode=xml", home=tmp_path) as proxy:
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "tools": [TOOL]}
        with httpx.stream("POST", proxy.url + CHAT, json=body, timeout=SECONDS) as response:
            pieces = response.iter_text()
            received = next(pieces)
            proxy.process.send_signal(signal.SIGTERM)
            received += "".join(pieces)
        assert "world" in received
        assert received.endswith("data: [DONE]\n\n")
        assert proxy.process.wait(SECONDS) == 0


# -- used wrongly ------------------------------------------------------------------------------------------------------

NOWHERE = "http://127.0.0.1:9/v1"  # never asked: what is wrong is found before the model loads
WRONG = tomllib.loads(Path(__file__).with_name("used_wrongly.toml").read_text(encoding="utf-8"))["serve"]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[" ".join(case[0]) for case in WRONG])
def test_used_wrongly(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run_cli("serve", "--model", NOWHERE, *arguments, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert re.fullmatch(f"xmlcall: {message}", line), line


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_cli("serve", "--model", NOWHERE, "--port", port, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    message = (
        f"cannot listen on 127.0.0.1 port {port} (Address already in use): choose another with --port, or stop the program that "
        "has it"
    )
    assert done.stderr == f"xmlcall: {message}\n"


def test_a_model_server_that_is_not_there(tmp_path: Path) -> None:
    done = run_cli("serve", "--model", f"http://127.0.0.1:{free_port()}/v1", "--port", "0", home=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(r"xmlcall: cannot connect to http://127\.0\.0\.1:\d+ .*: start one", done.stderr)


def test_help_has_examples(tmp_path: Path) -> None:
    done = run_cli("serve", "--help-all", home=tmp_path)
    assert done.returncode == 0
    assert "examples:\n  xmlcall serve " in done.stdout
    for option in ("--model", "--mcp", "--allow", "--host", "--port", "--api-key", "--allow-origin", "--allow-host"):
        assert option in done.stdout
    assert "XMLCALL_API_KEY" in done.stdout


# -- who may call, and what is told of them ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["variable", "option"])
def test_other_machines_need_the_key(way: str, tmp_path: Path) -> None:
    given: dict[str, str] = {"XMLCALL_API_KEY": CANARY} if way == "variable" else {}
    arguments = ["--api-key", CANARY] if way == "option" else []
    with model_server("Hello.") as (model, _):
        arguments += ["--model", model, "--ask", "mode=xml", "--host", "0.0.0.0"]
        with Guarded(*arguments, home=tmp_path, env=given) as proxy:
            assert proxy.url.startswith("http://0.0.0.0:")
            assert proxy.ask().status_code == 401
            assert proxy.ask(headers={"authorization": "Bearer wrong"}).status_code == 401
            assert said(proxy.ask(tools=[TOOL], headers={"x-api-key": CANARY, "host": "any.example"})) == "Hello."
            assert proxy.end(signal.SIGINT)[0] == 0
            assert CANARY not in proxy.url + proxy.rest() + proxy.errors


class Guarded(Serving):
    """A proxy that answers nobody without the key."""

    def __enter__(self) -> "Guarded":
        assert (self.get("/health").status_code, self.get("/v1/models").status_code) == (200, 401)
        return self


def test_without_a_key_if_that_is_said(tmp_path: Path) -> None:
    with model_server() as (model, _), Serving("--model", model, "--host", "0.0.0.0", "--no-api-key", home=tmp_path) as proxy:
        assert proxy.get("/v1/models").status_code == 200


def test_pages_and_names_that_are_allowed(tmp_path: Path) -> None:
    arguments = ["--allow-origin", "http://localhost:3000", "--allow-host", "proxy.lan"]
    with model_server() as (model, _), Serving("--model", model, *arguments, home=tmp_path) as proxy:
        page = proxy.get("/v1/models", origin="http://localhost:3000")
        assert page.headers["access-control-allow-origin"] == "http://localhost:3000"
        assert proxy.get("/v1/models", origin="http://localhost:3001").status_code == 403
        assert proxy.get("/v1/models", host="proxy.lan:8485").status_code == 200
        assert proxy.get("/v1/models", host="other.lan").status_code == 403
        assert proxy.end(signal.SIGTERM)[0] == 0
        told = proxy.errors
    assert "GET /v1/models 403, " in told
    assert "Origin: the web page 'http://localhost:3001' may not call this server: allow it with --allow-origin" in told


def test_the_log_has_nothing_of_what_is_said(tmp_path: Path) -> None:
    wrong = call("f", a=CANARY)
    refused = FakeOpenAI(refusal=(400, {"error": {"message": f"unexpected {CANARY}"}}))
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool = {"type": "function", "function": {"name": "f", "description": CANARY, "parameters": schema}}
    with contextlib.ExitStack() as stack:
        model, _ = stack.enter_context(model_server(CANARY, *[wrong] * 3, [chunk({"content": CANARY}), b"data: {\n\n"]))
        proxy = stack.enter_context(Serving("--model", model, "--ask", "mode=xml", "--strict", home=tmp_path))
        statuses = [proxy.ask(CANARY, tools=[tool], headers={"authorization": f"Bearer {CANARY}"}).status_code for _ in range(3)]
        statuses += [proxy.ask(tools=[tool], **wrong).status_code for wrong in ({"seed": CANARY}, {CANARY: 1, "n": 2})]
        statuses += [httpx.post(proxy.url + CHAT, content=f'{{"{CANARY}": {CANARY}').status_code]
        assert proxy.end(signal.SIGTERM)[0] == 0
        told = proxy.errors
    with lent_server(refused.app) as model, Serving("--model", f"{model}/v1", "--ask", "mode=xml", home=tmp_path) as proxy:
        statuses += [proxy.ask(CANARY, tools=[tool]).status_code]
        assert proxy.end(signal.SIGTERM)[0] == 0
        told += proxy.errors
    assert statuses == [200, 502, 502, 400, 400, 400, 400]
    assert CANARY not in told
    assert re.findall(rf"POST {CHAT} (\d+, )[\d.]+ s(.*)", told) == [
        ("200, ", ""),
        ("502, ", ": invalid_calls"),
        ("502, ", ": model_server_error"),
        *[("400, ", ": invalid_request_error")] * 4,
    ]


# -- tools of its own --------------------------------------------------------------------------------------------------

SUM = call("calculator", operation="add", a="1", b="2")


def configured(home: Path) -> str:
    path = home / "mcp.json"
    demo = {"command": sys.executable, "args": ["-P", "-m", "xmlcall.hosts.demo_server"], "env": {"TOKEN": CANARY}}
    path.write_text(json.dumps({"mcpServers": {"demo": demo}}))
    return str(path)


@pytest.mark.sweep  # as a program of its own, too
def test_tools_of_its_own(tmp_path: Path) -> None:
    with model_server(f"I add.\n{SUM}", "It is 3.") as (model, fake):
        arguments = ["--model", model, "--mcp", configured(tmp_path), "--allow", "demo.calc*"]
        with Serving(*arguments, home=tmp_path) as proxy:
            assert said(proxy.ask("What is 1 + 2?")) == "I add.\nIt is 3."
            [server] = Path(f"/proc/{proxy.process.pid}/task/{proxy.process.pid}/children").read_text().split()
            assert proxy.end(signal.SIGTERM)[0] == 0
            assert not is_alive(int(server))
            told = proxy.errors
    assert "3" in fake.bodies[1]["messages"][-1]["content"]
    assert re.findall(r"^### (.*)$", fake.bodies[0]["messages"][0]["content"], flags=re.MULTILINE) == ["calculator"]
    assert "runs itself, without asking: calculator\n" in told
    assert "are kept in this process" in told
    assert f"starting demo: TOKEN=*** {sys.executable} -P -m xmlcall.hosts.demo_server\n" in told
    assert CANARY not in told


def test_tools_of_its_own_and_all_models_of_a_server(tmp_path: Path) -> None:
    """A second model is opened by a request, and the tools are closed by the program."""
    with model_server(f"I add.\n{SUM}", "It is 3.", f"I add.\n{SUM}", "It is 3.") as (model, fake):
        fake.models = ["one", "two"]
        more = ["--mcp", configured(tmp_path), "--allow", "demo.calc*", "--ui", "--ask", "mode=xml"]
        with Serving("--model", model, *more, home=tmp_path) as proxy:
            assert {said(proxy.ask("What is 1 + 2?", model=name)) for name in fake.models} == {"I add.\nIt is 3."}
            assert "expected one of 'one', 'two', got 'any'" in proxy.ask().text
            assert proxy.end(signal.SIGTERM)[0] == 0
            told = proxy.errors
    assert [body["model"] for body in fake.bodies] == ["one", "one", "two", "two"]
    assert "serving one, two; OpenAI clients" in told
    assert "Traceback" not in told


def test_all_models_of_ollama(tmp_path: Path) -> None:
    ollama = FakeOllama(models=[f"m{number}:1b" for number in range(12)])
    with lent_server(ollama.app) as url, Serving("--model", "ollama", home=tmp_path, env={"OLLAMA_HOST": url}) as proxy:
        assert said(proxy.ask(model="m7:1b")) == "Hello world"
        assert ollama.bodies[-1]["model"] == "m7:1b"
        assert "serving m0:1b, m1:1b, " in proxy.errors
        assert ", m9:1b and 2 more; OpenAI clients" in proxy.errors


def test_an_ollama_without_models(tmp_path: Path) -> None:
    with lent_server(FakeOllama(models=[]).app) as url:
        done = run_cli("serve", "--port", "0", "--model", "ollama", home=tmp_path, env={"OLLAMA_HOST": url})
    assert (done.returncode, "load one with `ollama pull NAME`" in done.stderr) == (1, True), done.stderr


def test_rules_of_files_hold_and_what_would_ask_is_denied(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nallow = "demo.calculator"\nwhere.a.one_of = [1, 5]\n')
    (tmp_path / "xmlcall.toml").write_text('allow = "*"\n[[rule]]\nask = "demo.calculator"\nwhere.a.one_of = [5]\n')
    five, nine = SUM.replace(">1<", ">5<"), SUM.replace(">1<", ">9<")
    with model_server(SUM, "It is 3.", nine, "I may not.", five, "Nor this.") as (model, fake):
        arguments = ["--model", model, "--mcp", configured(tmp_path), "--policy", str(rules)]
        with Serving(*arguments, home=tmp_path) as proxy:
            assert [said(proxy.ask("Add 1 and 2, 5 and 2, 9 and 2.")) for _ in range(3)] == [
                "It is 3.",
                "I may not.",
                "Nor this.",
            ]
            told = proxy.errors
    results = [fake.bodies[number]["messages"][-1]["content"] for number in (1, 3, 5)]
    assert "3" in results[0]
    assert "no rule allows it. Whoever runs the server of these tools can allow it with: --allow demo.calculator" in results[1]
    assert "A rule asks a person about this call, and nobody can be asked here: ask demo.calculator (xmlcall.toml" in results[2]
    assert "xmlcall.toml is in the working directory: only its rules that ask or deny apply" in told
    assert "runs itself, without asking: calculator\n" in told
    assert '"demo.calculator" did not run: no rule allows it; to allow it: --allow demo.calculator\n' in told
    assert "a rule asks, but there is no user to ask; to allow it, remove: ask demo.calculator (xmlcall.toml, rule 1)\n" in told


def test_no_tool_is_allowed_unless_it_was(tmp_path: Path) -> None:
    with model_server(SUM) as (model, fake):
        with Serving("--model", model, "--mcp", configured(tmp_path), home=tmp_path) as proxy:
            assert said(proxy.ask("What is 1 + 2?")) == SUM  # plain text: nothing was offered
            told = proxy.errors
    assert "none of the servers' tools is allowed, so none is offered: allow some with --allow" in told
    assert [message["role"] for message in fake.bodies[0]["messages"]] == ["user"]


@pytest.mark.parametrize("dialect", ["hermes", "qwen", "glm"])
def test_calls_in_another_format(dialect: str, tmp_path: Path) -> None:
    said = write([("f", {})], Catalog(), DIALECTS[dialect])
    with model_server(f"So.\n{said}") as (model, fake):
        with Serving("--model", model, "--ask", "mode=xml", "--ask", f"dialect={dialect}", home=tmp_path) as proxy:
            answer = proxy.ask("Call f.", tools=[TOOL]).json()["choices"][0]
    assert (answer["finish_reason"], [call["function"]["name"] for call in answer["message"]["tool_calls"]]) == (
        "tool_calls",
        ["f"],
    )
    system = fake.bodies[-1]["messages"][0]["content"]
    assert [call.name for call in parse(system, [TOOL], dialect=dialect).calls] == ["f"]
    assert "<invoke" not in system
