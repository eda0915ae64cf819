"""What a page asks of a chat, over HTTP. Bodies and answers are JSON; who may call is seen to before."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..proxy.formats.contract import ApiError
from .answers import json_answer
from .api import body_of, guarded
from .chat import ChatRoom
from .open_questions import Misfit

__all__ = ["routes"]


def routes(room: ChatRoom) -> list[Route]:
    """Return the routes of a chat, under `/api/`."""
    answers: tuple[tuple[str, str, Callable[[ChatRoom, Request], Awaitable[Response]]], ...] = (
        ("POST", "chat", _ask),
        ("GET", "chat/{id}", _shown),
        ("POST", "chat/{id}/stop", _stop),
        ("POST", "chat/{id}/retry", _retry),
        ("POST", "questions/{id}", _answer),
        ("POST", "servers/{name:path}", _server),
        ("POST", "tools/{name:path}", _tool),
    )
    return [Route(f"/api/{path}", guarded(_with(answer, room)), methods=[method]) for method, path, answer in answers]


def _with(answer: Callable[[ChatRoom, Request], Awaitable[Response]], room: ChatRoom) -> Callable[[Request], Awaitable[Response]]:
    return lambda request: answer(room, request)


async def _ask(room: ChatRoom, request: Request) -> Response:
    body = await body_of(request)
    conversation = _text(body, "conversation") or None
    return _begun(*await room.ask(conversation, _text(body, "question"), _text(body, "instead_of")))


async def _retry(room: ChatRoom, request: Request) -> Response:
    return _begun(*await room.retry(request.path_params["id"]))


async def _stop(room: ChatRoom, request: Request) -> Response:
    room.stop(request.path_params["id"])
    return json_answer({}, 202)


async def _shown(room: ChatRoom, request: Request) -> Response:
    return json_answer(room.shown(request.path_params["id"]))


async def _answer(room: ChatRoom, request: Request) -> Response:
    body = await body_of(request)
    try:
        room.questions.answer(request.path_params["id"], body)
    except Misfit as misfit:
        return json_answer({"error": {"message": str(misfit)}, "problems": list(misfit.problems)}, 422)
    return json_answer({})


async def _server(room: ChatRoom, request: Request) -> Response:
    return json_answer(await room.switch(request.path_params["name"], on=_is_on(await body_of(request))))


async def _tool(room: ChatRoom, request: Request) -> Response:
    return json_answer(await room.switch(request.path_params["name"], on=_is_on(await body_of(request)), is_tool=True))


def _begun(conversation: str, turn: str) -> Response:
    return json_answer({"conversation": conversation, "turn": turn}, 202)


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise ApiError(f"{name}: expected a text", status=422)
    return value or ""


def _is_on(body: dict[str, Any]) -> bool:
    value = body.get("is_on")
    if not isinstance(value, bool):
        raise ApiError("is_on: expected true or false", status=422)
    return value
