"""Several models and keys over HTTP: a request's model chooses, and a key sees its own."""

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from proxy_harness import ADD, add
from servers.fake_openai import FakeOpenAI, llama_props, reply
from servers.run_server import run_server

from xmlcall.proxy import configured_app

ALICE, BOB, CAROL = "alice-key-5d1f", "bob-key-77aa", "carol-key-0c3e"
CHAT = "/v1/chat/completions"

SETTINGS = """
[[model]]
name = "small"
address = "{small}/v1"
profile = "off"
way = "xml"
aliases = ["gpt-*"]

[[model]]
name = "large:7b"
address = "{large}/v1"
profile = "off"
way = "xml"

[[key]]
name = "alice"
key = "{alice}"

[[key]]
name = "bob"
key = "{bob}"
models = ["small"]

[[key]]
name = "carol"
key_file = "{carol}"
models = ["large:7b"]
"""


class Proxy:
    """A proxy with two models behind it."""

    def __init__(self, url: str, fakes: dict[str, FakeOpenAI], http: httpx.Client) -> None:
        self.url, self.fakes, self._http = url, fakes, http

    def get(self, path: str, key: str = ALICE, **params: str) -> httpx.Response:
        return self._http.get(self.url + path, headers={"x-api-key": key}, params=params)

    def post(self, path: str, key: str = ALICE, **body: Any) -> httpx.Response:
        return self._http.post(self.url + path, headers={"authorization": f"Bearer {key}"}, json=body)

    def ask(self, model: str | None, key: str = ALICE, **more: Any) -> httpx.Response:
        named = {} if model is None else {"model": model}
        return self.post(CHAT, key, messages=[{"role": "user", "content": "Hi"}], **named, **more)


@contextlib.contextmanager
def proxy_of(folder: Path, settings: str = SETTINGS) -> Iterator[Proxy]:
    (folder / "carol").write_text(f"{CAROL}\n")
    fakes = {
        name: FakeOpenAI(steps=reply(f"I am {name}."), models=[f"{name}-inside"], props=llama_props())
        for name in ("small", "large")
    }
    with run_server(fakes["small"].app) as small, run_server(fakes["large"].app) as large:
        names = {"small": small, "large": large, "alice": ALICE, "bob": BOB, "carol": folder / "carol"}
        (folder / "xmlcall.toml").write_text(settings.format(**names))
        with run_server(configured_app(folder / "xmlcall.toml"), lifespan="on") as url, httpx.Client(timeout=20) as http:
            yield Proxy(url, fakes, http)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxy_of(tmp_path_factory.mktemp("proxy")) as running:
        yield running


@pytest.mark.parametrize("tools", [[], [ADD]], ids=["relayed", "answered"])
@pytest.mark.parametrize(
    ("name", "answers"),
    [("small", "small"), ("small:latest", "small"), ("gpt-5", "small"), ("large:7b", "large"), (None, "small")],
)
def test_the_model_of_a_request_answers(proxy: Proxy, name: str | None, answers: str, tools: list[Any]) -> None:
    response = proxy.ask(name, tools=tools, stream=False)
    assert f"I am {answers}." in response.text, response.text


NO_SUCH = [("other", ALICE), ("large", ALICE), ("large:7b", BOB), ("small", CAROL), ("gpt-5", CAROL), (["small"], ALICE)]


@pytest.mark.parametrize(("name", "key"), NO_SUCH)
@pytest.mark.parametrize(
    "path", [CHAT, "/v1/responses", "/v1/messages", "/api/chat", "/v1/embeddings", "/v1/messages/count_tokens"]
)
def test_a_model_of_others_is_as_one_that_is_not_there(proxy: Proxy, path: str, name: Any, key: str) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    response = proxy.post(path, key, model=name, messages=messages, input="Hi", max_tokens=9)
    assert response.status_code == 404, response.text
    said = response.text
    assert "model" in said
    if key == BOB:
        assert "large:7b'" not in said.replace("got 'large:7b'", "")
    if key == CAROL:
        assert "small'" not in said.replace("got 'small'", "")


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings", "/v1/messages", "/api/chat", "/api/generate"])
def test_a_models_name_in_other_letters_is_checked(proxy: Proxy, path: str) -> None:
    asked = {"messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi", "input": "Hi", "max_tokens": 9}
    assert proxy.post(path, BOB, Model="large:7b", **asked).status_code == 404
    proxy.fakes["small"].bodies.clear()
    proxy.post(path, BOB, model="small", MODEL="large:7b", **asked)
    assert all(body["model"] == "small-inside" and "MODEL" not in body for body in proxy.fakes["small"].bodies)


@pytest.mark.parametrize(("key", "names"), [(ALICE, ["small", "large:7b"]), (BOB, ["small"]), (CAROL, ["large:7b"])])
def test_lists_hold_what_a_key_may_use(proxy: Proxy, key: str, names: list[str]) -> None:
    assert [each["id"] for each in proxy.get("/v1/models", key).json()["data"]] == names
    assert [each["name"] for each in proxy.get("/api/tags", key).json()["models"]] == names
    assert [each["name"] for each in proxy.get("/api/ps", key).json()["models"]] == names
    shown = {name: proxy.post("/api/show", key, model=name).status_code for name in ("small", "large:7b")}
    assert shown == {name: 200 if name in names else 404 for name in shown}
    assert {name: proxy.get(f"/v1/models/{name}", key).status_code for name in shown} == shown
    assert {name: proxy.get("/props", key, model=name).status_code for name in shown} == shown
    pulled = {name: proxy.post("/api/pull", key, model=name, stream=False).status_code for name in shown}
    assert pulled == shown


@pytest.mark.parametrize("sent", ["none", "wrong", ALICE[:-1], f"{ALICE}x", f"{ALICE},{BOB}"])
def test_a_wrong_key_is_refused(proxy: Proxy, sent: str) -> None:
    response = proxy.ask("small", sent)
    assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")


def test_a_call_through_a_chosen_model_is_read(proxy: Proxy) -> None:
    proxy.fakes["large"].steps = reply(add(1, 2))
    message = proxy.ask("large:7b", tools=[ADD]).json()["choices"][0]["message"]
    proxy.fakes["large"].steps = reply("I am large.")
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"a": 1, "b": 2}


def test_keys_are_in_no_log_and_no_representation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with proxy_of(tmp_path) as proxy:
        for key in (ALICE, BOB, "wrong-key-99"):
            proxy.ask("small", key)
            proxy.ask("other", key)
            httpx.get(proxy.url + "/nowhere", headers={"x-api-key": key, "authorization": f"Basic {key}"})
    app = repr(configured_app(tmp_path / "xmlcall.toml").__dict__)
    told = caplog.text + app
    assert not [key for key in (ALICE, BOB, CAROL, "wrong-key-99") if key in told]
