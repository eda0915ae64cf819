"""Requests of real clients, recorded on their way into the proxy and kept without what is personal or somebody's prose.

A kept conversation is a file of lines, a JSON object each: the request, its answer's status, and what the answer said. Of
requests of the same shape the first is kept. Long texts are cut to the lines that the scripted model goes by, since what matters
is the shape of a request; names, keywords and short texts stay as they are. `test_clients_recorded.py` plays them again.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
from clients.answers import summary
from clients.scripted import PRODUCT
from proxy_harness import client_of

__all__ = ["RECORDED", "Exchange", "Recorder", "again", "file_of", "read", "write"]

RECORDED = Path(__file__).resolve().parent / "recorded"
LONGEST: Final = 120  # characters of a text that stays
KEPT_LINES: Final = ("1234", PRODUCT, "as an object", "too long", "<function_calls>")
ASKED: Final = ("/chat/completions", "/responses", "/messages", "/api/chat", "/api/generate")
HEADERS: Final = ("content-type", "accept", "anthropic-version", "anthropic-beta")

PERSONAL: Final = (
    (re.compile(r"(?:/[\w.@+-]+)+/build/clients/[\w.-]+"), "/home/person"),
    (re.compile(r"/(?:tmp|root|home|work|var)(?:/[\w.@+-]+)+"), "/home/person/project"),
    (re.compile(r"/root\b"), "/home/person"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "00000000-0000-4000-8000-000000000000"),
    (re.compile(r"\b[0-9a-f]{32,}\b"), "0" * 32),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "http://127.0.0.1:8485"),
    (re.compile(r"(it needs about [\d,]+ tokens)\b.*", re.DOTALL), r"\1"),  # the rest tells of texts that are cut here
)

Exchange = dict[str, Any]
"""`method`, `path`, `headers`, `body`, `status`, and `answer`: see `clients.answers`."""


class Recorder:
    """An ASGI app around the proxy that keeps what passes."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.exchanges: list[Exchange] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked, answered, status = bytearray(), bytearray(), [0]

        async def receiving() -> Any:
            message = await receive()
            asked.extend(message.get("body", b""))
            return message

        async def sending(message: Any) -> None:
            status[0] = message.get("status", status[0])
            answered.extend(message.get("body", b""))
            await send(message)

        await self._app(scope, receiving, sending)
        query = scope["query_string"].decode()
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.exchanges.append(
            {
                "method": scope["method"],
                "path": scope["path"] + (f"?{query}" if query else ""),
                "headers": {name: headers[name] for name in HEADERS if name in headers},
                "body": _parsed(bytes(asked)),
                "status": status[0],
                "answer": _parsed_answer(scope["path"], answered.decode(errors="replace")),
            }
        )


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode(errors="replace")


def _parsed_answer(path: str, body: str) -> Any:
    return summary(path, body) if path.rstrip("/").endswith(ASKED) else None


def file_of(name: str) -> Path:
    """Return where the conversation of a client is kept."""
    return RECORDED / f"{name}.jsonl"


def write(name: str, exchanges: Iterable[Exchange]) -> None:
    """Keep the conversation of a client."""
    kinds = {_shape(exchange): impersonal(exchange) for exchange in reversed(list(exchanges))}
    lines = [json.dumps(exchange, ensure_ascii=False) + "\n" for exchange in reversed(kinds.values())]
    RECORDED.mkdir(exist_ok=True)
    file_of(name).write_text("".join(lines), encoding="utf-8")


def read(path: Path) -> list[Exchange]:
    """Read a conversation."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _shape(exchange: Mapping[str, Any]) -> str:
    """Name what is alike in requests of the same kind: all but texts, and how often a role is repeated."""
    body = exchange["body"] if isinstance(exchange["body"], dict) else {}
    said = body.get("messages") or body.get("input") or ()
    roles = [[each.get("role"), each.get("type"), sorted(each)] for each in said if isinstance(each, dict)]
    fields = {name: value for name, value in body.items() if isinstance(value, bool | int | float)}
    asked = json.dumps([exchange["method"], exchange["path"], sorted(body), fields, roles, _tool_names(body)])
    return asked + str(exchange["status"])


def _tool_names(body: Mapping[str, Any]) -> list[str]:
    tools = [tool for tool in body.get("tools") or () if isinstance(tool, dict)]
    return [str(tool.get("name") or (tool.get("function") or {}).get("name") or tool.get("type")) for tool in tools]


def impersonal(value: Any) -> Any:
    """Return a copy of a JSON value without long prose, paths, addresses and identities."""
    match value:
        case dict():
            return {key: impersonal(each) for key, each in value.items()}
        case list():
            return [impersonal(each) for each in value]
        case str():
            return _impersonal_text(value)
        case _:
            return value


def _impersonal_text(text: str) -> str:
    for pattern, stand_in in PERSONAL:
        text = pattern.sub(stand_in, text)
    if len(text) <= LONGEST:
        return text
    try:
        return json.dumps(impersonal(json.loads(text)))
    except ValueError:
        kept = [line[: 3 * LONGEST] for line in text.splitlines() if any(words in line for words in KEPT_LINES)]
        return "\n".join([*kept, f"[text of {len(text)} characters]"])


async def again(exchange: Exchange, model: Any) -> httpx.Response:
    """Send a recorded request to a proxy in this process."""
    body = exchange["body"]
    sent = {"json": body} if isinstance(body, dict | list) else {"content": body}
    async with client_of(model) as client:
        return await client.request(exchange["method"], exchange["path"], headers=exchange["headers"], **sent)
