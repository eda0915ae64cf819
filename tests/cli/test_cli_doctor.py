"""`xmlcall doctor`: what it finds at fakes of each product, what it advises, and what it must not show."""

import contextlib
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_harness import lent_server, run_cli, run_here
from servers.fake_products import PRODUCTS, VLLM_REFUSAL, WORDS, Product, served_by_python
from servers.run_server import free_port
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from xmlcall.backends.server_facts import ServerFacts
from xmlcall.cli import doctor
from xmlcall.cli.doctor_findings import CheckedCall, Findings, Outcome, Pace, Plain, Trial, speed
from xmlcall.cli.doctor_report import PARSERS, advice, lines_of, redacted, report_of, serve_line
from xmlcall.cli.waiting import SlowStatus
from xmlcall.dialects import DIALECTS
from xmlcall.types.completion import Capabilities, Chunk, Usage

ROOT = Path(__file__).parents[2]
NO_TOOLS = (400, "registry.ollama.ai/library/tiny:latest does not support tools")
NO_JINJA = (500, "tools param requires --jinja flag")


@pytest.fixture(autouse=True)
def no_servers_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OLLAMA_HOST", "OLLAMA_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(doctor, "PORTS", {})


@contextlib.contextmanager
def served(name: str, **how: Any) -> Iterator[tuple[str, Product]]:
    product = Product(PRODUCTS[name], **how)
    with served_by_python(product) if name == "mlx-lm" else lent_server(product.app) as url:
        yield url, product


def examined(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = run_here("doctor", *arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def lines(report: Mapping[str, Any]) -> list[str]:
    return [line for item in report["advice"] for line in item["lines"]]


SERVE = "xmlcall serve --model URL"
CASES: list[tuple[str, dict[str, Any], str, Outcome, str, list[str]]] = [
    ("llama.cpp", {"native": "calls"}, "llama.cpp b11434-4f3a", "works", "native", ["xmlcall serve --model URL --ui"]),
    (
        "llama.cpp",
        {"native": "drops"},
        "llama.cpp b11434-4f3a",
        "drops",
        "prompt",
        [SERVE, "llama-server -m MODEL.gguf --jinja --chat-template-file TEMPLATE.jinja"],
    ),
    ("llama.cpp", {"native": "leaks"}, "llama.cpp b11434-4f3a", "leaks", "prompt", [SERVE]),
    (
        "llama.cpp, old",
        {"native": "refuses", "refusal": NO_JINJA},
        "llama.cpp ",
        "refuses",
        "prompt",
        [SERVE, "llama-server -m MODEL.gguf --jinja"],
    ),
    (
        "ollama",
        {"native": "refuses", "refusal": NO_TOOLS},
        "Ollama 0.32.15",
        "refuses",
        "prompt",
        ["OLLAMA_HOST=URL-1 xmlcall serve --model ollama:tiny:latest", "OLLAMA_CONTEXT_LENGTH=16384 ollama serve"],
    ),
    (
        "vllm",
        {"native": "refuses", "refusal": (400, VLLM_REFUSAL)},
        "vLLM 0.33.0",
        "refuses",
        "prompt",
        [
            SERVE,
            "vllm serve Qwen/Qwen2.5-7B-Instruct --enable-auto-tool-choice --tool-call-parser hermes",
            "xmlcall template > tools.jinja",
            "vllm serve Qwen/Qwen2.5-7B-Instruct --chat-template tools.jinja "
            "--enable-auto-tool-choice --tool-call-parser xmlcall",
        ],
    ),
    (
        "sglang",
        {"native": "leaks"},
        "SGLang 0.5.23",
        "leaks",
        "prompt",
        [
            SERVE,
            "sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --tool-call-parser llama3",
            "xmlcall template > tools.jinja",
            "sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --chat-template tools.jinja --tool-call-parser xmlcall",
        ],
    ),
    ("lmstudio", {"native": "ignores"}, "LM Studio ", "ignores", "prompt", [SERVE, "lms load tiny --context-length 16384"]),
    ("lmstudio, old", {"native": "leaks"}, "LM Studio ", "leaks", "prompt", [SERVE]),
    ("mlx-lm", {"native": "drops", "logprobs": None}, "mlx-lm ", "drops", "prompt", [SERVE]),
    ("tabbyapi", {"native": "leaks"}, "tabbyAPI ", "leaks", "prompt", [SERVE, "model:", "  tool_format: qwen3_coder"]),
    (
        "koboldcpp",
        {"native": "wrong"},
        "KoboldCpp 1.122.1",
        "wrong",
        "prompt",
        [SERVE, "koboldcpp --model MODEL.gguf --jinja --jinja_tools"],
    ),
    ("another", {"native": "empty"}, " ", "empty", "prompt", [SERVE]),
    ("another", {"native": "breaks"}, " ", "fails", "prompt", [SERVE]),
    ("another", {"native": "thinks"}, " ", "thinking", "prompt", [SERVE]),
    ("another", {"native": "ignores", "prompted": WORDS}, " ", "ignores", "no", ["xmlcall probe URL", "xmlcall models list"]),
    ("xmlcall", {"native": "ignores", "prompted": WORDS}, "xmlcall serve ", "ignores", "no", ["xmlcall doctor MODEL"]),
]


@pytest.mark.parametrize(("name", "how", "server", "outcome", "works", "expected"), CASES)
def test_what_is_found_and_advised(
    name: str, how: dict[str, Any], server: str, outcome: Outcome, works: str, expected: list[str]
) -> None:
    with served(name, **how) as (url, _):
        code, report = examined(f"{url}/v1")
        address = f"{url}/v1"
    assert f"{report['server']['name']} {report['server']['version']}" == server
    assert (report["native"]["outcome"], report["works"], code) == (outcome, works, 0 if works == "native" else 1)
    found = lines(report)
    for line in expected:
        assert line.replace("URL-1", url).replace("URL", address) in found
    is_client_line = ["OPENAI_BASE_URL=http://127.0.0.1:8485/v1 your-client"] if works != "no" else []
    assert [line for line in found if line.startswith("OPENAI_BASE_URL")] == is_client_line
    assert report["streaming"] == "yes"
    assert report["logprobs"] is (how.get("logprobs", True) is not None)


def test_ollama_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with served("ollama", native="refuses", refusal=NO_TOOLS, wire="ollama") as (url, product):
        monkeypatch.setenv("OLLAMA_HOST", url)
        code, report = examined("ollama:tiny")
    assert (code, report["native"]["outcome"], report["works"]) == (1, "refuses", "prompt")
    assert report["server"]["version"] == "0.32.15"
    assert lines(report)[0] == "xmlcall serve --model ollama:tiny"
    assert {body["options"]["num_ctx"] for body in product.bodies} == {16384}


def test_ollama_that_answers_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    with served("ollama", native="calls", wire="ollama") as (url, _):
        monkeypatch.setenv("OLLAMA_HOST", url)
        code, report = examined("ollama:tiny")
    assert (code, report["works"]) == (0, "native")
    assert report["native"]["calls"][0]["by"] == "server"


def test_it_asks_few_short_questions() -> None:
    with served("llama.cpp", native="leaks") as (url, product):
        examined(f"{url}/v1")
    assert [body["max_tokens"] for body in product.bodies] == [16, 128, 128]
    assert [bool(body.get("tools")) for body in product.bodies] == [False, True, False]
    assert [len(body["messages"]) for body in product.bodies] == [1, 1, 2]


def test_a_reply_that_was_cut_in_its_reasoning_gets_more_tokens() -> None:
    with served("another", native="thinks") as (url, product):
        examined(f"{url}/v1")
    assert [body["max_tokens"] for body in product.bodies if body.get("tools")] == [128, 1024]


PACES: list[tuple[list[float], str]] = [
    ([], "unknown"),
    ([0.1], "yes"),  # too short to know
    ([0.1, 0.11, 0.12], "yes"),
    ([0.1 * place for place in range(1, 12)], "yes"),
    ([0.5 + 0.001 * place for place in range(12)], "yes"),  # a fast server
    ([3.0 + 0.001 * place for place in range(12)], "at once"),
]


@pytest.mark.parametrize(("times", "streaming"), PACES)
def test_a_buffered_stream_is_seen_by_its_times(times: list[float], streaming: str) -> None:
    clock = iter([0.0, *times])
    pace = Pace(lambda: next(clock))
    for _ in times:
        pace.hear(Chunk(text="word "))
    assert pace.plain().streaming == streaming


def test_a_long_reply_in_one_piece_is_no_stream() -> None:
    clock = iter([0.0, 0.2])
    pace = Pace(lambda: next(clock))
    pace.hear(Chunk(text="one two three four five six seven eight nine", usage=Usage(prompt_tokens=200, completion_tokens=9)))
    assert pace.plain().streaming == "at once"
    assert speed(pace.read, 50) == pytest.approx(1000)
    assert speed(pace.written, 8) is None  # all of it at one time
    assert "proxy_buffering off;" in [line for item in advice(replace(FOUND, plain=pace.plain())) for line in item["lines"]]


def test_a_server_that_does_not_stream() -> None:
    answer = {"choices": [{"message": {"role": "assistant", "content": WORDS}}]}
    routes = [
        Route("/v1/models", lambda _: JSONResponse(PRODUCTS["another"]["/v1/models"])),
        Route("/v1/chat/completions", lambda _: JSONResponse(answer), methods=["POST"]),
    ]
    with lent_server(Starlette(routes=routes)) as url:
        code, report = examined(f"{url}/v1")
    assert (code, report["streaming"], report["native"]["outcome"]) == (1, "no", "fails")
    assert lines(report) == [f"xmlcall doctor {url}/v1"]


# -- as a program ------------------------------------------------------------------------------------------------------


def normal(text: str, url: str) -> str:
    """Replace what differs from run to run."""
    text = text.replace(url, "http://127.0.0.1:8080")
    text = re.sub(r"^xmlcall [\w.]+, Python [\d.]+, \w+$", "xmlcall 0.2.0, Python 3.11.7, Linux", text, flags=re.MULTILINE)
    return re.sub(r"^speed .*$", "speed       about 210 tokens/s of the prompt", text, flags=re.MULTILINE)


def test_the_transcript_of_the_page(tmp_path: Path) -> None:
    with served("llama.cpp", native="drops") as (url, _):
        done = run_cli("doctor", f"{url}/v1#tiny", home=tmp_path)
    assert done.returncode == 1
    [shown] = re.findall(r"```console\n(\$ xmlcall doctor .*?)```", (ROOT / "docs/why.md").read_text("utf-8"), flags=re.DOTALL)
    assert f"$ xmlcall doctor http://127.0.0.1:8080/v1#tiny\n{normal(done.stdout, url)}" == shown


def test_what_takes_long_is_said_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlowStatus.start, "__kwdefaults__", {"after": 0.05})
    with served("another", pause=0.3) as (url, _):
        done = run_here("doctor", f"{url}/v1")
    for step in ("a question without tools", "it with the server's own function calling", "it with the tools in our prompt"):
        assert f"asking {step} ...\n" in done.stderr
    assert "asking" not in done.stdout


SCHEMA: dict[str, Any] = {
    "xmlcall": str,
    "python": str,
    "system": str,
    "address": str,
    "model": str,
    "model_file": str,
    "is_first_model": bool,
    "fingerprint": str,
    "server": {"kind": str, "name": str, "version": str, "tool_parser": str | None},
    "template": {"exists": bool | None, "tools": bool | None, "family": str, "opens_reasoning": bool},
    "context_length": int | None,
    "plain_error": str,
    "streaming": str,
    "logprobs": bool | None,
    "speed": {"prompt": float | None, "reply": float | None},
    "profile": str,
    "works": str,
    "barrier": str,
    "problem": str,
    "advice": [{"why": str, "lines": [str]}],
}
TRIAL_SCHEMA = {
    "outcome": str,
    "summary": str,
    "text": str,
    "reasoning": str,
    "calls": [{"name": str, "arguments": str | None, "issues": [str], "by": str, "repairs": [str]}],
    "error": str,
    "prompt_tokens": int | None,
}


def assert_fits(value: Any, schema: Any) -> None:
    if isinstance(schema, dict):
        assert value.keys() == schema.keys()
        for key, part in schema.items():
            assert_fits(value[key], part)
    elif isinstance(schema, list):
        for part in value:
            assert_fits(part, schema[0])
    else:
        assert isinstance(value, schema)


def test_the_json_has_one_schema(tmp_path: Path) -> None:
    whole = {**SCHEMA, "native": TRIAL_SCHEMA, "prompt": TRIAL_SCHEMA}
    with served("sglang", native="leaks") as (url, _):
        done = run_cli("doctor", f"{url}/v1", "--json", home=tmp_path)
    assert_fits(json.loads(done.stdout), whole)
    unreached = examined(f"http://127.0.0.1:{free_port()}/v1")[1]
    assert_fits(unreached, whole)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nonsense"], "expected a model as"),
        (["none.gguf"], "expected a GGUF file at none.gguf"),
        (["http://"], "expected"),
        (["local", "--timeout", "0"], "expected a number above 0"),
        (["http://127.0.0.1:9/v1", "--api-key-from", "sk-the-key"], "expected the name of an environment variable"),
        (["local", "more"], "unrecognized arguments"),
    ],
)
def test_wrong_usage(arguments: list[str], problem: str) -> None:
    done = run_here("doctor", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert "sk-the-key" not in done.stderr


# -- servers that cannot be tested ---------------------------------------------------------------------------------------


def test_a_server_that_is_not_there() -> None:
    port = free_port()
    code, report = examined(f"http://127.0.0.1:{port}/v1")
    assert (code, report["barrier"], report["works"]) == (1, "no connection", "no")
    assert lines(report) == [f"llama-server -m MODEL.gguf --jinja --port {port}", "xmlcall doctor local"]


def test_a_server_elsewhere_on_this_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, nothing = listener.getsockname()[1], free_port()
        monkeypatch.setattr(doctor, "PORTS", {port: "Ollama", nothing: "vLLM"})
        _, report = examined(f"http://localhost:{free_port()}/v1")
        _, far = examined("http://192.0.2.1:9/v1", "--timeout", "0.2")
    assert lines(report)[0] == f"xmlcall doctor http://127.0.0.1:{port}/v1"
    assert "where Ollama usually does" in report["advice"][0]["why"]
    assert not any(str(port) in line for line in (*lines(report)[1:], *lines(far)))


def test_ollama_without_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {**PRODUCTS["ollama"]}
    del pages["/api/show"]
    product = Product(pages, wire="ollama")
    with lent_server(product.app) as url:
        monkeypatch.setenv("OLLAMA_HOST", url)
        code, report = examined("ollama:gemma3:4b")
    assert (code, report["barrier"], lines(report)) == (1, "no model", ["ollama pull gemma3:4b"])


def test_something_else_at_the_address() -> None:
    with lent_server(Starlette(routes=[Route("/", lambda _: JSONResponse({"name": "a page"}))])) as url:
        code, report = examined(url)
    assert (code, report["barrier"], lines(report)) == (1, "no model", [f"xmlcall doctor {url}/v1"])


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """Accept connections and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []
        thread = threading.Thread(target=_accept, args=(listener, accepted))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in accepted:
                each.close()


def _accept(listener: socket.socket, accepted: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):
        while True:
            accepted.append(listener.accept()[0])


def test_a_silent_server_ends_within_the_limit() -> None:
    with silent_server() as url:
        started = time.monotonic()
        code, report = examined(url, "--timeout", "0.5")
        took = time.monotonic() - started
    assert (code, report["barrier"]) == (1, "no answer")
    assert took < 4
    assert lines(report) == [f"xmlcall doctor {url} --timeout 600"]


def test_what_was_written_before_the_time_was_up_is_shown() -> None:
    with served("another", native="ignores", pause_after=3.0) as (url, _):
        code, report = examined(f"{url}/v1", "--timeout", "3")
    assert (code, report["native"]["outcome"], report["native"]["text"]) == (1, "silent", "1234")
    assert report["logprobs"] is True


def test_a_server_that_hangs_in_mid_reply_ends_within_the_limit() -> None:
    with served("another", pause=1.5) as (url, _):
        started = time.monotonic()
        code, report = examined(f"{url}/v1", "--timeout", "1")
        took = time.monotonic() - started
    assert (code, report["native"]["outcome"], report["works"]) == (1, "silent", "no")
    assert took < 5
    assert lines(report) == [f"xmlcall doctor {url}/v1 --timeout 600"]


# -- secrets, and hostile answers ------------------------------------------------------------------------------------------

KEY, PASSWORD, HOME = "geheim-4711-key", "geheim-0815-password", "/home" + "/alice"


def everything(*arguments: str) -> str:
    shown = [run_here("doctor", *arguments), run_here("doctor", *arguments, "--json")]
    return "".join(f"{done.stdout}{done.stderr}" for done in shown)


@pytest.mark.parametrize("echo", [f"Bearer {KEY}", KEY, f"path {HOME}/models/x.gguf of {KEY}"])
def test_no_secret_is_shown_whatever_the_server_repeats(echo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABBY_KEY", KEY)
    pages = {**PRODUCTS["tabbyapi"], "/v1/models": {"data": [{"id": f"{HOME}/models/{KEY}.gguf"}]}}
    with lent_server(Product(pages, native="refuses", refusal=(400, echo), api_key=KEY).app) as url:
        shown = everything(f"{url}/v1", "--api-key-from", "TABBY_KEY")
        refused = everything(f"{url}/v1")
    for text in (shown, refused):
        assert KEY not in text
        assert HOME not in text
    assert "TABBY_KEY" in shown
    assert "--api-key-from VARIABLE" in refused


def test_no_password_of_an_address_is_shown() -> None:
    with served("another", native="refuses", refusal=(400, f"no tools for robin:{PASSWORD}")) as (url, _):
        shown = everything(url.replace("://", f"://robin-user:{PASSWORD}@") + "/v1?token=secret-in-query")
    for secret in (PASSWORD, "robin-user", "secret-in-query"):
        assert secret not in shown
    assert f"xmlcall serve --model {url.replace('://', '://USER:PASSWORD@')}/v1" in shown


def test_no_token_in_an_address_is_shown() -> None:
    with served("another", native="refuses", refusal=(400, f"no tools for {PASSWORD}")) as (url, _):
        assert PASSWORD not in everything(f"{url.replace('://', f'://{PASSWORD}@')}/v1")


@pytest.mark.parametrize("owner", ["vllm", "nobody"])
def test_hostile_answers_are_cut_and_escaped(owner: str) -> None:
    nasty = "\x1b[2J\u202e" + "x" * 5000
    pages = {
        "/v1/models": {"data": [{"id": "tiny" + nasty, "owned_by": owner}]},
        "/.well-known/serviceinfo": {"software": {"name": nasty, "version": nasty}},
        "/server_info": [[[]]],
        "/props": {"default_generation_settings": None, "chat_template": 7},
        "/api/v1/models": {"models": [None, {"loaded_instances": 3}]},
    }
    if owner == "vllm":
        del pages["/.well-known/serviceinfo"]
    with lent_server(Product(pages, native="refuses", refusal=(400, nasty), prompted=nasty).app) as url:
        done = run_here("doctor", f"{url}/v1")
        _, report = examined(f"{url}/v1")
    assert done.returncode == 1
    for text in (done.stdout, json.dumps(report, ensure_ascii=False)):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert len(text) < 5000


def test_a_reply_without_end_is_cut() -> None:
    with served("another", prompted=" ".join(str(7**power) for power in range(100, 420))) as (url, _):
        code, report = examined(f"{url}/v1")
    assert (code, report["works"], report["prompt"]["outcome"]) == (0, "native", "fails")
    assert "expected a short reply" in report["prompt"]["error"]


@pytest.mark.parametrize("name", ["a\nb", "$(reboot)", "--trust", "x" * 300, "'", "日本"])
def test_a_name_that_a_server_chose_is_not_put_into_a_command(name: str) -> None:
    found = replace(FOUND, model=name, facts=ServerFacts(kind="vllm"), native=Trial(error="x", status=400))
    shown = [line for item in advice(found) for line in item["lines"]]
    assert [line for line in shown if name in line] == []
    assert any(line.startswith("vllm serve MODEL ") for line in shown)


REDACTED = [
    ("http://robin:pw@host/v1", "http://***@host/v1"),
    (f"{HOME}/models/x.gguf", "~/models/x.gguf"),
    ("/Users/bob/x", "~/x"),
    (r"C:\Users\bob\x", r"~\x"),
    ("/opt/home/models", "/opt/home/models"),
    ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
    ("api_key=abcdef123456", "api_key=***"),
    ("tools param requires --jinja flag", "tools param requires --jinja flag"),
    ("a k1234 key", "a *** key"),
]


@pytest.mark.parametrize(("text", "expected"), REDACTED)
def test_what_is_redacted(text: str, expected: str) -> None:
    assert redacted(text, ["k1234"], "/srv/me") == expected


def test_our_home_is_redacted_wherever_it_is() -> None:
    assert redacted("/srv/me/models/x.gguf", home="/srv/me") == "~/models/x.gguf"


# -- findings and advice as values ---------------------------------------------------------------------------------------

RIGHT = CheckedCall(name="multiply", arguments={"a": 1234, "b": 5678}, by="server", is_right=True)
FOUND = Findings(
    named="http://h:1/v1",
    address="http://h:1/v1",
    model="m",
    known=Capabilities(server="openai-compatible"),
    plain=Plain(streaming="yes", prompt_tokens=40),
    native=Trial(text="No.", prompt_tokens=90),
    prompt=Trial(calls=(replace(RIGHT, by="xmlcall"),)),
)

NATIVE: list[tuple[Trial | None, Outcome]] = [
    (Trial(calls=(RIGHT,)), "works"),
    (Trial(calls=(RIGHT,), prompt_tokens=40), "works"),
    (Trial(calls=(replace(RIGHT, by="xmlcall"),)), "leaks"),
    (Trial(calls=(RIGHT, RIGHT)), "wrong"),
    (Trial(calls=(replace(RIGHT, is_right=False),)), "wrong"),
    (Trial(calls=(replace(RIGHT, is_right=False, arguments=None, issues=("no `a`",)),)), "invalid"),
    (Trial(text="No.", prompt_tokens=90), "ignores"),
    (Trial(text="No.", prompt_tokens=41), "drops"),
    (Trial(text="No.", prompt_tokens=12), "ignores"),  # without what it had cached
    (Trial(text="No."), "ignores"),
    (Trial(text="", prompt_tokens=90), "empty"),
    (Trial(reasoning="Hm.", is_cut=True, prompt_tokens=90), "thinking"),
    (Trial(error="no tools", status=400), "refuses"),
    (Trial(error="tools param requires --jinja flag", status=500), "refuses"),
    (Trial(error="internal error", status=500), "fails"),
    (Trial(error="bad key", status=401), "fails"),
    (Trial(error="in mid-reply", status=200), "fails"),
    (Trial(error="gone"), "fails"),
    (Trial(is_late=True), "silent"),
    (None, "untested"),
]


@pytest.mark.parametrize(("trial", "outcome"), NATIVE)
def test_what_a_trial_means(trial: Trial | None, outcome: Outcome) -> None:
    assert replace(FOUND, native=trial).native_outcome == outcome


@pytest.mark.parametrize(("has_tools", "outcome"), [(False, "drops"), (True, "ignores"), (None, "ignores")])
def test_a_server_that_counts_no_tokens_is_judged_by_its_template(has_tools: bool | None, outcome: Outcome) -> None:
    facts = ServerFacts(template_has_tools=has_tools)
    assert replace(FOUND, native=Trial(text="No."), plain=Plain(), facts=facts).native_outcome == outcome


ADVISED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["xmlcall serve --model http://h:1/v1", "OPENAI_BASE_URL=http://127.0.0.1:8485/v1 your-client"]),
    ({"named": "~/models/a b.gguf", "address": "", "is_local": True}, ["xmlcall serve --model ~/'models/a b.gguf'"]),
    ({"context_option": 4096}, ["xmlcall serve --model http://h:1/v1 --context 4096"]),
    (
        {"is_local": True, "named": "local", "known": Capabilities(server="llama.cpp", context_length=2048)},
        ["xmlcall serve --model local", "xmlcall serve --model local --context 16384"],
    ),
    ({"known": Capabilities(server="llama.cpp", context_length=2048)}, ["-c 16384"]),
    ({"facts": ServerFacts(kind="vllm", context_length=2048)}, ["--max-model-len 16384"]),
    ({"facts": ServerFacts(kind="sglang", context_length=2048)}, ["--context-length 16384"]),
    ({"facts": ServerFacts(kind="koboldcpp", context_length=2048)}, ["--contextsize 16384"]),
    ({"facts": ServerFacts(kind="tabbyapi", context_length=2048)}, ["  max_seq_len: 16384"]),
    ({"facts": ServerFacts(kind="ollama")}, ["OLLAMA_CONTEXT_LENGTH=16384 ollama serve"]),
    ({"native": Trial(text="No.", prompt_tokens=41)}, ["xmlcall template > tools.jinja"]),
    ({"known": Capabilities(server="", chat_template=False)}, ["xmlcall models list"]),
    ({"native": None, "prompt": None, "barrier": "key", "problem": "401"}, ["export VARIABLE=..."]),
    ({"barrier": "loading", "problem": "503"}, ["xmlcall doctor http://h:1/v1"]),
    ({"barrier": "no connection", "problem": "x", "named": "ollama:m"}, ["ollama serve"]),
    ({"prompt": Trial(error="x", status=500)}, ["xmlcall doctor http://h:1/v1"]),
    ({"prompt": None, "native": None, "plain": Plain(is_late=True)}, ["xmlcall doctor http://h:1/v1 --timeout 600"]),
]


@pytest.mark.parametrize(("changes", "expected"), ADVISED)
def test_what_is_advised(changes: dict[str, Any], expected: list[str]) -> None:
    found = [line for item in advice(replace(FOUND, **changes)) for line in item["lines"]]
    assert [line for line in expected if line not in found] == []


SMALL = Capabilities(server="llama.cpp", context_length=2048)


@pytest.mark.parametrize("native", [Trial(error="needs --jinja", status=500), Trial(text="No.", prompt_tokens=41)])
def test_a_server_with_a_small_context_and_without_tools_gets_one_command(native: Trial) -> None:
    found = [line for item in advice(replace(FOUND, known=SMALL, native=native)) for line in item["lines"]]
    assert len([line for line in found if line.startswith("llama-server")]) == 1
    assert "-c 16384" in found


def test_a_key_goes_into_the_command_as_a_variable() -> None:
    line = serve_line(replace(FOUND, key_variable="TABBY_KEY"))
    shell = ["sh", "-c", line.replace("xmlcall serve", "printenv XMLCALL_MODEL")]
    done = subprocess.run(shell, capture_output=True, text=True, check=True, env={"TABBY_KEY": KEY, "PATH": "/usr/bin:/bin"})
    assert json.loads(done.stdout) == [{"name": "m", "address": "http://h:1/v1", "api_key": KEY}]


def test_a_report_without_anything_tested() -> None:
    report = report_of(replace(FOUND, plain=Plain(), native=None, prompt=None))
    assert report["works"] == "no"
    assert "\n".join(lines_of(report)).count("not tested") == 2


def test_parsers_are_of_formats_that_we_know() -> None:
    assert PARSERS.keys() <= DIALECTS.keys()
    assert all(row[0] for row in PARSERS.values())


ENGINES = ROOT / "build" / "engines"


@pytest.mark.skipif(not ENGINES.exists(), reason="needs the engines' files: tests/engines/fetch.py")
def test_parsers_are_those_of_the_engines() -> None:
    vllm = max(ENGINES.glob("vllm-*/vllm/tool_parsers/__init__.py")).read_text("utf-8")
    sglang = max(ENGINES.glob("sglang-*/sglang/srt/function_call/function_call_parser.py")).read_text("utf-8")
    assert [row[0] for row in PARSERS.values() if f'"{row[0]}"' not in vllm] == []
    assert [row[1] for row in PARSERS.values() if row[1:] and f'"{row[1]}"' not in sglang] == []


# -- with a model --------------------------------------------------------------------------------------------------------


@pytest.mark.live
@pytest.mark.timeout(600)
def test_the_default_model_needs_our_prompt() -> None:
    """On two idle cores within 30 seconds."""
    started = time.monotonic()
    code, report = examined("local", "--timeout", "500")  # on a machine with other work, too
    print(f"{time.monotonic() - started:.1f} s")
    assert (code, report["server"]["kind"], report["native"]["outcome"], report["works"]) == (1, "llama.cpp", "leaks", "prompt")
    assert lines(report)[0] == "xmlcall serve --model local"
    assert report["prompt"]["calls"][0]["arguments"] == '{"a": 1234, "b": 5678}'
