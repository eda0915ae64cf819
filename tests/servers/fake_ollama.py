"""A server that speaks Ollama's native API as documented; it knows no model.

What it streams is a list of steps: bytes are sent as they are, a number is a pause in seconds, `CUT` breaks the connection off.
Source: Ollama, docs/api.md.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from servers.run_server import played
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

__all__ = ["CUT", "FakeOllama", "Step", "done", "line", "part", "reply"]

CUT = "cut"

Step = bytes | float | str


def line(data: Any) -> bytes:
    """One line of the stream; U+0085 stays as it is, as Go writes it."""
    return json.dumps(data, ensure_ascii=False).encode() + b"\n"


def part(content: str = "", **message: Any) -> bytes:
    """A line with a piece of the reply."""
    body = {"role": "assistant", "content": content, **message}
    return line({"model": "tiny", "created_at": "2026-11-21T00:00:00Z", "message": body, "done": False})


def done(prompt_eval_count: int | None = 100, eval_count: int = 4, done_reason: str = "stop") -> bytes:
    """The last line."""
    counts = {} if prompt_eval_count is None else {"prompt_eval_count": prompt_eval_count}
    head = {"model": "tiny", "created_at": "2026-11-21T00:00:00Z", "message": {"role": "assistant", "content": ""}}
    durations = {"total_duration": 9, "load_duration": 1, "prompt_eval_duration": 3, "eval_count": eval_count, "eval_duration": 5}
    return line({**head, "done": True, "done_reason": done_reason, **durations, **counts})


def reply(*texts: str) -> list[bytes]:
    """A whole plain stream."""
    return [*(part(text) for text in texts), done()]


@dataclass
class FakeOllama:
    """The server's state; change it between requests.

    Args:
        steps: what a chat streams.
        in_text: what a chat without tools streams, whatever `refusal` says; None for no difference.
        refusal: status and text of the error that a chat gets instead.
        models: names of what is present.
        running: entries of `/api/ps`.
        capabilities: of each model; None for an old server that does not say.
        template: of each model.
        modelfile: of each model, in extracts.
        context_length: what each model was trained for.
        digest: of each model's manifest, in hex; "" for a server that does not tell it.
    """

    steps: Sequence[Step] = field(default_factory=lambda: reply("Hello", " world"))
    in_text: Sequence[Step] | None = None
    refusal: tuple[int, Any] | None = None
    models: Sequence[str] = ("tiny:latest", "gemma3:4b")
    running: Sequence[dict[str, Any]] = ()
    capabilities: Sequence[str] | None = ("completion",)
    template: str = "{{ .Prompt }}"
    modelfile: str = "FROM /blobs/sha256-0"
    context_length: int = 131072
    digest: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client goes away in mid-stream."""

    @property
    def app(self) -> Starlette:
        """The ASGI app."""
        routes = [
            Route("/api/chat", self._chat, methods=["POST"]),
            Route("/api/show", self._show, methods=["POST"]),
            Route("/api/ps", self._ps),
            Route("/api/tags", self._tags),
        ]
        return Starlette(routes=routes)

    def _missing(self, name: str) -> Response | None:
        tagged = name if ":" in name else f"{name}:latest"
        return None if tagged in self.models else JSONResponse({"error": f"model '{name}' not found"}, 404)

    async def _show(self, request: Request) -> Response:
        if missing := self._missing((await request.json())["model"]):
            return missing
        info = {"general.architecture": "gemma3", "gemma3.context_length": self.context_length}
        told = {} if self.capabilities is None else {"capabilities": list(self.capabilities)}
        texts = {"template": self.template, "modelfile": self.modelfile}
        return JSONResponse({**texts, "details": {"family": "gemma3"}, "model_info": info, **told})

    async def _ps(self, request: Request) -> Response:
        return JSONResponse({"models": list(self.running)})

    async def _tags(self, request: Request) -> Response:
        told = {"digest": self.digest} if self.digest else {}
        return JSONResponse({"models": [{"name": name, "model": name, **told} for name in self.models]})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        if missing := self._missing(body["model"]):
            return missing
        if self.in_text is not None and not body.get("tools"):
            return StreamingResponse(played(self.left, self.in_text), media_type="application/x-ndjson")
        if self.refusal is not None:
            status, text = self.refusal
            return JSONResponse({"error": text}, status)
        return StreamingResponse(played(self.left, self.steps), media_type="application/x-ndjson")
