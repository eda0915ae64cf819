"""Which product a server is, and what is read of its own endpoints."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from cli_harness import lent_server
from servers.fake_ollama import FakeOllama
from servers.fake_products import PRODUCTS, Product
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from xmlcall.backends.ollama import OllamaBackend
from xmlcall.backends.openai import OpenAIBackend
from xmlcall.backends.server_facts import Answered, recognized


class Pages:
    """A server that answers with these pages, or raises."""

    def __init__(self, pages: Mapping[str, Any], server: str = "") -> None:
        self._pages, self._server = pages, server

    async def look(self, path: str, body: Mapping[str, Any] | None = None) -> Answered:
        if path == "/health" and self._server == "hangs":
            await asyncio.sleep(60)
        return Answered(data=self._pages.get(path, {}), server=self._server)


@pytest.mark.parametrize("name", PRODUCTS)
async def test_each_product_is_recognised(name: str) -> None:
    facts = await recognized(Pages(PRODUCTS[name], "BaseHTTP/0.6 Python/3.12.4"), "tiny")
    assert facts.kind == ("" if name == "another" else name.partition(",")[0])


async def test_a_server_that_hangs_at_an_endpoint_is_recognised_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xmlcall.backends.server_facts.LOOK_SECONDS", 0.05)
    assert (await recognized(Pages(PRODUCTS["llama.cpp"], "hangs"), "tiny")).kind == "llama.cpp"


async def test_other_products_are_named_by_what_they_say() -> None:
    pages = {"/.well-known/serviceinfo": {"software": {"name": "Aphrodite Engine", "version": "0.9"}}}
    facts = await recognized(Pages(pages), "tiny")
    assert (facts.kind, facts.name, facts.version) == ("", "Aphrodite Engine", "0.9")


FACTS: list[tuple[str, dict[str, Any], str, Any]] = [
    ("sglang", {"/server_info": {"tool_call_parser": "qwen25", "version": "1"}}, "tool_parser", "qwen25"),
    ("sglang", {}, "tool_parser", ""),
    ("sglang", {}, "context_length", None),  # of another model
    ("lmstudio", {}, "context_length", 4096),
    ("lmstudio", {}, "template_has_tools", None),
    ("lmstudio, old", {}, "context_length", 16384),
    ("lmstudio, old", {}, "template_has_tools", True),
    ("koboldcpp", {}, "context_length", 8192),
    ("koboldcpp", {"/api/extra/true_max_context_length": {"value": -1}}, "context_length", None),
    ("tabbyapi", {}, "context_length", 32768),
    ("tabbyapi", {"/v1/model": {"parameters": {"prompt_template_content": "{{ tools }}"}}}, "template_has_tools", True),
    ("llama.cpp", {}, "template_has_tools", False),
    ("llama.cpp, old", {}, "template_has_tools", True),
    ("ollama", {"/api/ps": {"models": []}}, "context_length", None),
    ("ollama", {"/api/show": {"capabilities": ["completion", "tools"]}}, "template_has_tools", True),
]


@pytest.mark.parametrize(("name", "changes", "field", "expected"), FACTS)
async def test_what_is_read_of_a_server(name: str, changes: dict[str, Any], field: str, expected: Any) -> None:
    model = "tiny:latest" if name == "ollama" else "tiny"
    assert getattr(await recognized(Pages({**PRODUCTS[name], **changes}), model), field) == expected


@pytest.mark.parametrize(
    ("body", "status", "data"),
    [
        (b'{"version": "1"}', 200, {"version": "1"}),
        (b'{"version": "1"}', 404, {}),
        (b"[1]", 200, {}),
        (b"\xff", 200, {}),
        (b"[" * 100_000, 200, {}),
        (b"", 200, {}),
    ],
)
async def test_what_a_look_returns(body: bytes, status: int, data: dict[str, Any]) -> None:
    models = Product(PRODUCTS["another"]).app.routes[0]
    page = Route("/own", lambda _: Response(body, status, headers={"server": "toy"}), methods=["GET", "POST"])
    with lent_server(Starlette(routes=[page, models])) as url:
        async with OpenAIBackend(url) as backend:
            answered = await backend.look("/own")
            posted = await backend.look("/own", {"model": "tiny"})
    assert answered.data == posted.data == data
    assert "toy" in answered.server


async def test_ollama_is_looked_at_over_its_own_api() -> None:
    with lent_server(FakeOllama(capabilities=("completion", "tools")).app) as url:
        async with OllamaBackend("tiny", host=url) as backend:
            assert (await backend.look("/api/show", {"model": "tiny"})).data["capabilities"] == ["completion", "tools"]
            assert (await backend.look("/api/version")).data == {}
