"""All models of a model server: listed, opened at their first use, read again when an unknown one is named."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from proxy_harness import ADD
from servers.fake_ollama import FakeOllama
from servers.fake_openai import FakeOpenAI
from servers.run_server import run_server

from xmlcall.backends.connect import ModelServer, server_of
from xmlcall.errors import BackendUnavailable, UsageError
from xmlcall.proxy import configured_app
from xmlcall.proxy.configured import all_at
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.engine.own_tools import OwnTools
from xmlcall.proxy.http import access
from xmlcall.proxy.http.access import Caller, ListedModels, ServedModels

CHAT, OLLAMA_CHAT = "/v1/chat/completions", "/api/chat"
HI = [{"role": "user", "content": "Hi"}]
ROW = '[[model]]\nname = "*"\nprofile = "off"\nask.mode = "xml"\n'

# -- over HTTP ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def proxy_of(folder: Path, settings: str) -> Iterator[httpx.Client]:
    (folder / "xmlcall.toml").write_text(settings)
    with (
        run_server(configured_app(folder / "xmlcall.toml"), lifespan="on") as url,
        httpx.Client(base_url=url, timeout=20) as http,
    ):
        yield http


@pytest.fixture
def ollama() -> FakeOllama:
    return FakeOllama()


@pytest.fixture
def proxy(ollama: FakeOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    with run_server(ollama.app) as url:
        monkeypatch.setenv("OLLAMA_HOST", url)
        with proxy_of(tmp_path, f'{ROW}address = "ollama"\n') as http:
            yield http


def test_the_models_of_ollama_are_listed(proxy: httpx.Client) -> None:
    names = ["tiny:latest", "gemma3:4b"]
    assert [model["id"] for model in proxy.get("/v1/models").json()["data"]] == names
    assert [model["model"] for model in proxy.get("/api/tags").json()["models"]] == names
    assert proxy.get("/api/ps").json()["models"] == []
    assert proxy.get("/ready").status_code == 200


@pytest.mark.parametrize("path", [CHAT, OLLAMA_CHAT, "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize(("named", "asked"), [("gemma3:4b", "gemma3:4b"), ("tiny", "tiny:latest"), (None, "tiny:latest")])
def test_a_request_goes_to_the_model_that_it_names(
    proxy: httpx.Client, ollama: FakeOllama, path: str, named: str | None, asked: str
) -> None:
    content = {"input": "Hi"} if path == "/v1/responses" else {"messages": HI, "max_tokens": 9}
    answer = proxy.post(path, json={**content, **({"model": named} if named else {})})
    assert (answer.status_code, ollama.bodies[-1]["model"]) == (200, asked)
    assert [model["model"] for model in proxy.get("/api/ps").json()["models"]] == [asked]


def test_what_is_known_of_a_model_is_known_once_it_is_open(proxy: httpx.Client) -> None:
    assert "context_length" not in proxy.get("/v1/models").json()["data"][1]
    assert proxy.get("/v1/models/gemma3:4b").json()["context_length"] == 16384
    assert proxy.get("/v1/models").json()["data"][1]["context_length"] == 16384


@pytest.mark.parametrize("path", [CHAT, OLLAMA_CHAT])
def test_an_unknown_name_is_told_what_there_is(proxy: httpx.Client, path: str) -> None:
    answer = proxy.post(path, json={"model": "gpt-4o", "messages": HI})
    assert answer.status_code == 404
    assert "model: expected one of 'tiny:latest', 'gemma3:4b', got 'gpt-4o'" in answer.text


def test_a_model_that_is_fetched_later_is_found(proxy: httpx.Client, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    new = {"model": "qwen3:1b", "messages": HI}
    assert proxy.post(CHAT, json=new).status_code == 404
    ollama.models = ["gemma3:4b", "qwen3:1b"]
    assert proxy.post(CHAT, json=new).status_code == 404  # the list was read a moment ago
    monkeypatch.setattr(access, "REREAD_SECONDS", 0.0)
    assert proxy.post(CHAT, json=new).json()["choices"][0]["message"]["content"] == "Hello world"
    assert proxy.post("/api/pull", json={"model": "qwen3:1b"}).status_code == 200
    assert proxy.post(CHAT, json={**new, "model": "tiny"}).status_code == 404


def test_a_model_that_is_gone_says_so(proxy: httpx.Client, ollama: FakeOllama) -> None:
    ollama.models = ["tiny:latest"]
    answer = proxy.post(CHAT, json={"model": "gemma3:4b", "messages": HI})
    assert "fetch it with `ollama pull gemma3:4b`; it has: tiny:latest" in answer.text


def test_keys_and_rows_of_two_servers(tmp_path: Path) -> None:
    first, second = FakeOpenAI(models=["a", "b"]), FakeOpenAI(models=["b", "c"])
    with run_server(first.app) as one, run_server(second.app) as two:
        keys = '[[key]]\nname = "k"\nkey = "all"\n[[key]]\nname = "l"\nkey = "some"\nmodels = ["b", "own"]\n'
        own = f'[[model]]\nname = "own"\nprofile = "off"\naddress = "{two}/v1#c"\nask.mode = "xml"\n'
        with proxy_of(tmp_path, f'{ROW}address = "{one}/v1"\n{own}{ROW}address = "{two}/v1"\n{keys}') as http:
            seen = {
                key: [model["id"] for model in http.get("/v1/models", headers={"x-api-key": key}).json()["data"]]
                for key in ("all", "some")
            }
            assert seen == {"all": ["a", "b", "own", "b", "c"], "some": ["b", "own", "b"]}
            for name, body in (("c", second), ("own", second), ("b", first)):
                asked = {"model": name, "messages": HI, "tools": [ADD]}
                assert http.post(CHAT, json=asked, headers={"x-api-key": "all"}).status_code == 200
                assert body.bodies[-1]["model"] == name.replace("own", "c")
            refused = http.post(CHAT, json={"model": "a", "messages": HI}, headers={"x-api-key": "some"})
            assert "expected one of 'b', 'own', 'b', got 'a'" in refused.text


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            f'{ROW}address = "ollama:tiny"\n',
            "expected the address of a server without a model, such as ollama, got 'ollama:tiny'",
        ),
        (f'{ROW}address = "ollama"\naliases = ["gpt-*"]\n', "expected aliases of one model, got them for all of a server"),
        (f'{ROW}address = "http://127.0.0.1:1/v1"\ncontext = 9\n', "the context length of a server is set where it is started"),
    ],
)
def test_settings_that_do_not_fit(settings: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "xmlcall.toml").write_text(settings)
    with pytest.raises(UsageError, match=told):
        configured_app(tmp_path / "xmlcall.toml")


@pytest.mark.parametrize(
    ("address", "models", "is_all"),
    [
        ("{url}/v1", ("a", "b"), True),
        ("{url}/v1", ("a",), False),
        ("{url}/v1#a", ("a", "b"), False),
        ("ollama", (), True),
        ("ollama:tiny", (), False),
        ("local", (), False),
    ],
)
async def test_which_addresses_mean_all_models(address: str, models: Sequence[str], is_all: bool) -> None:
    with run_server(FakeOpenAI(models=models).app) as url:
        assert await all_at(address.format(url=url), wait=0) is is_all


async def test_a_server_without_a_list() -> None:
    with run_server(FakeOpenAI(models=None).app) as url:
        server = server_of(f"{url}/v1")
        assert server is not None
        with pytest.raises(Exception, match="name the model"):
            await server.list_models()


# -- open and closed ------------------------------------------------------------------------------------------------------


class Models:
    """A server, and engines that note what is done with them."""

    def __init__(self, *names: str) -> None:
        self.names: Sequence[str] = names
        self.done: list[str] = []
        self.broken: set[str] = set()
        self.now, self.readings = 0.0, 0
        server = ModelServer(address="ollama", list_models=self._list)
        make = cast(Callable[[str], Engine], lambda name: FakeEngine(self, name))
        self.list = ListedModels(server, make=make, prepare=self._prepare, own=OwnTools(), clock=lambda: self.now)

    async def _list(self) -> tuple[str, ...]:
        self.readings += 1
        if "server" in self.broken:
            raise BackendUnavailable("gone")
        return tuple(self.names)

    def _prepare(self, name: str, engine: Engine) -> None:
        if f"profile of {name}" in self.broken:
            raise UsageError("no such profile")
        self.done.append(f"prepare {name}")

    @contextlib.asynccontextmanager
    async def using(self, name: str) -> AsyncIterator[Any]:
        async with Caller(ServedModels(rows=(self.list,))).using(name) as model:
            yield model.engine

    async def use(self, *names: str) -> None:
        for name in names:
            async with self.using(name):
                pass


class FakeEngine:
    def __init__(self, models: Models, name: str) -> None:
        self.models, self.name = models, name

    async def __aenter__(self) -> "FakeEngine":
        await asyncio.sleep(0)
        if self.name in self.models.broken:
            raise BackendUnavailable(f"{self.name} is broken")
        self.models.done.append(f"open {self.name}")
        return self

    async def __aexit__(self, *failure: object) -> None:
        for _ in range(5):  # others have their turn meanwhile
            await asyncio.sleep(0)
        self.models.done.append(f"close {self.name}")


def opened(models: Models) -> list[str]:
    return [what for what in models.done if not what.startswith("prepare")]


async def test_a_model_is_opened_once_and_prepared() -> None:
    models = Models("a", "b")
    async with models.list:
        assert models.done == []
        await asyncio.gather(models.use("a"), models.use("a"), models.use("a"))
        assert models.done == ["open a", "prepare a"]
        assert cast(FakeEngine, models.list.engine).name == "a"
    assert models.done[2:] == ["close a"]


async def test_those_not_used_for_longest_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "OPEN_LIMIT", 2)
    models = Models("a", "b", "c")
    async with models.list:
        await models.use("a", "b", "a", "c", "b")
        assert opened(models) == ["open a", "open b", "close b", "open c", "close a", "open b"]


async def test_a_model_in_use_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "OPEN_LIMIT", 1)
    models = Models("a", "b", "c")
    async with models.list:
        async with models.using("a") as engine:
            await models.use("b")
            models.names, models.now = ["b", "c"], 100.0
            with pytest.raises(Exception, match="expected one of 'b', 'c', got 'x'"):
                await models.use("x")  # the list is read, and `a` is not in it
            models.names, models.now = ["a", "b", "c"], 200.0
            async with models.using("a") as again:
                assert again is engine
        await models.use("c")
        assert opened(models) == ["open a", "open b", "close b", "close a", "open c"]


async def test_a_model_that_is_taken_while_another_one_closes_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is lower than what is open stands for two models that were opened at once."""
    models = Models("a", "b", "c")
    async with models.list:
        await models.use("a", "b")
        monkeypatch.setattr(access, "OPEN_LIMIT", 1)

        async def take_b() -> None:
            await asyncio.sleep(0)  # `a` is being closed
            async with models.using("b"):
                for _ in range(20):
                    await asyncio.sleep(0)
                assert "close b" not in models.done

        await asyncio.gather(models.use("c"), take_b())


@pytest.mark.parametrize("broken", ["a", "profile of a"])
async def test_a_model_that_does_not_open_is_opened_at_the_next_request(broken: str) -> None:
    models = Models("a")
    models.broken.add(broken)
    async with models.list:
        with pytest.raises((BackendUnavailable, UsageError)):
            await models.use("a")
        models.broken.clear()
        await models.use("a")
    assert models.done[-3:] == ["open a", "prepare a", "close a"]
    assert models.done.count("open a") == models.done.count("close a")


async def test_a_list_is_read_at_most_once_in_some_seconds(caplog: pytest.LogCaptureFixture) -> None:
    models = Models("a")
    async with models.list:
        for moment, readings in ((0.0, 1), (4.9, 1), (5.0, 2), (5.1, 2), (11.0, 3)):
            models.now = moment
            with pytest.raises(Exception, match="got 'x'"):
                await models.use("x")
            assert models.readings == readings
        models.broken, models.now = {"server"}, 20.0
        with pytest.raises(Exception, match="expected one of 'a', got 'x'"):
            await models.use("x")
        assert "the list of models stays as it was: gone" in caplog.text
        await models.use("a")


async def test_a_list_has_an_end() -> None:
    models = Models(*(f"m{number}" for number in range(3000)), "n" * 1000)
    async with models.list:
        assert len(models.list.models) == access.LISTED_LIMIT
        with pytest.raises(Exception, match="'m39' and 960 more, got 'x'"):
            await models.use("x")


async def test_a_server_without_models() -> None:
    models = Models()
    with pytest.raises(BackendUnavailable, match="an empty list: load one with `ollama pull NAME`"):
        await models.list.__aenter__()
