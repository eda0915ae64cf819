"""Questions to the proxy's engine without a network: chat completion bodies in, events or a whole answer out."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from xmlcall.backends.base import Backend
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.formats.contract import ResponseEvent, WholeResponse, whole_response
from xmlcall.proxy.formats.openai_chat import CHAT

__all__ = [
    *("ADD", "ECHO", "add", "ask", "ask_engine", "bad_bodies", "block", "body", "client_of", "double", "events_of", "function"),
    "texts",
]

BAD_BODIES: dict[str, dict[str, list[Any]]] = json.loads(
    Path(__file__).parent.joinpath("proxy", "bad_bodies.json").read_text(encoding="utf-8")
)


def bad_bodies(kind: str) -> list[tuple[Any, str]]:
    """Return what is wrong in a body of a kind, and the field that is named for it."""
    return [(body, field) for field, bodies in BAD_BODIES[kind].items() for body in bodies]


def function(name: str, description: str = "", required: Iterable[str] | None = None, **properties: Any) -> dict[str, Any]:
    """Describe a tool as OpenAI's clients do; all parameters are required unless told."""
    wanted = list(properties) if required is None else list(required)
    schema = {"type": "object", "properties": properties, "required": wanted}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


ADD = function("add", "Add two integers.", a={"type": "integer"}, b={"type": "integer"})
ECHO = function("echo", "Say a text again.", text={"type": "string"})


def block(*calls: tuple[str, Mapping[str, Any]]) -> str:
    """Write calls as a model should."""
    invokes = "".join(
        f'<invoke name="{name}">\n'
        + "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in arguments.items())
        + "</invoke>\n"
        for name, arguments in calls
    )
    return f"<function_calls>\n{invokes}</function_calls>"


def add(a: Any, b: Any) -> str:
    """Write a call of `add`."""
    return block(("add", {"a": a, "b": b}))


def body(*messages: Mapping[str, Any] | str, tools: Iterable[Mapping[str, Any]] = (ADD, ECHO), **fields: Any) -> dict[str, Any]:
    """Write a chat completion body; a text is the person's message."""
    said = [{"role": "user", "content": each} if isinstance(each, str) else dict(each) for each in messages]
    return {"model": "any", "messages": said or [{"role": "user", "content": "1 + 2?"}], "tools": list(tools), **fields}


async def events_of(engine: Engine, data: Mapping[str, Any]) -> list[ResponseEvent]:
    """Ask an open engine."""
    async with aclosing(engine.respond(CHAT.read(data).request)) as events:
        return [event async for event in events]


async def ask_engine(engine: Engine, data: Mapping[str, Any]) -> WholeResponse:
    """Ask an open engine; give the whole answer."""
    return whole_response(await events_of(engine, data))


async def ask(backend: Backend, data: Mapping[str, Any], **options: Any) -> WholeResponse:
    """Ask once, in mode `xml` unless told otherwise."""
    async with Engine(backend, **{"mode": "xml", **options}) as engine:
        return await ask_engine(engine, data)


@asynccontextmanager
async def client_of(backend: Any, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Give an HTTP client of a proxy in this process, in mode `xml` unless told otherwise."""
    from xmlcall.proxy import create_app  # loads all of a server, which most tests need not

    app = create_app(backend, **{"mode": "xml", **options})
    transport = httpx.ASGITransport(app=app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


def texts(backend: Any, number: int = -1) -> list[tuple[str, str]]:
    """Give role and content of what a scripted backend was asked."""
    return [(message.role, message.content) for message in backend.requests[number].messages]


def double(n: int) -> int:
    """Double a number."""
    return 2 * n
