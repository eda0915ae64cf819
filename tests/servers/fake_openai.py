"""A server that speaks OpenAI's chat completions as documented, and llama.cpp's further endpoints if asked to; it knows no model.

What it streams is a list of steps: bytes are sent as they are, a number is a pause in seconds, `CUT` breaks the connection off.
Sources: OpenAI API reference, "The chat completion chunk object"; llama.cpp, tools/server/README.md.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from servers.run_server import played
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

__all__ = ["CUT", "DONE", "FakeOpenAI", "Step", "chunk", "event", "final", "llama_props", "reply"]

CUT = "cut"
DONE = b"data: [DONE]\n\n"

Step = bytes | float | str


def event(data: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def chunk(delta: Mapping[str, Any], finish_reason: str | None = None, **more: Any) -> bytes:
    """One chunk of the stream."""
    choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish_reason}
    head = {"id": "chatcmpl-x", "object": "chat.completion.chunk", "created": 1795240876, "model": "tiny"}
    return event({**head, "choices": [choice], **more})


def final(**usage: Any) -> bytes:
    """The last chunk of `stream_options.include_usage`: no choices."""
    head = {"id": "chatcmpl-x", "object": "chat.completion.chunk", "created": 1795240876, "model": "tiny"}
    return event({**head, "choices": [], "usage": usage})


def reply(*texts: str, finish_reason: str = "stop") -> list[bytes]:
    """A whole plain stream."""
    first = chunk({"role": "assistant", "content": None})  # null, as llama.cpp sends it
    usage = final(prompt_tokens=32, completion_tokens=4, total_tokens=36, prompt_tokens_details={"cached_tokens": 30})
    return [first, *(chunk({"content": text}) for text in texts), chunk({}, finish_reason), usage, DONE]


def llama_props(*, tools: bool = False, n_ctx: int = 4096, template: str = "{%- for message in messages %}") -> dict[str, Any]:
    """What llama.cpp answers to `GET /props`, in extracts."""
    return {
        "default_generation_settings": {"n_ctx": n_ctx},
        "total_slots": 1,
        "chat_template_caps": {"supports_tools": tools, "supports_tool_calls": tools, "supports_system_role": True},
        "chat_template": template,
        "build_info": "b11434-x",
    }


@dataclass
class FakeOpenAI:
    """The server's state; change it between requests.

    Args:
        steps: what a chat completion streams.
        in_text: what a chat completion without tools streams, whatever `refusal` says; None for no difference.
        first_token: what a request for one token and its probabilities streams instead; such requests are not in `bodies`. None
            for no difference.
        refusal: status and body that a chat completion gets instead.
        models: entries of `/v1/models`, names or whole objects; None for a server that has no such list.
        props: what `GET /props` answers, None for a server that is not llama.cpp.
        prompt_end: what the chat template ends the prompt with.
        api_key: wanted of every request, if any.
        content_type: of the stream.
        n_ctx: tokens of the context; a longer prompt is refused as llama.cpp does it. None for no end. With it the server counts
            the tokens of prompts: llama.cpp where it is asked to, any for a reply of one token; neither is in `bodies`.
        token_length: characters of a token.
    """

    steps: Sequence[Step] = field(default_factory=lambda: reply("Hello", " world"))
    in_text: Sequence[Step] | None = None
    first_token: Sequence[Step] | None = None
    refusal: tuple[int, Any] | None = None
    models: Sequence[Any] | None = ("tiny",)
    props: dict[str, Any] | None = None
    prompt_end: str = "<|im_start|>assistant\n"
    api_key: str = ""
    content_type: str = "text/event-stream"
    n_ctx: int | None = None
    token_length: float = 3.0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client goes away in mid-stream."""

    @property
    def app(self) -> Starlette:
        """The ASGI app."""
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/chat/completions/input_tokens", self._count, methods=["POST"]),
            Route("/v1/models", self._list_models),
            Route("/props", self._tell_props),
            Route("/apply-template", self._apply_template, methods=["POST"]),
        ]
        return Starlette(routes=routes)

    def _note(self, request: Request) -> Response | None:
        self.paths.append(request.url.path)
        self.headers.append(dict(request.headers))
        self.ports.append(request.client.port if request.client else 0)
        sent = request.headers.get("authorization")
        if self.api_key and sent != f"Bearer {self.api_key}":
            text = f"Invalid API Key: {sent}"  # careless servers repeat it
            return JSONResponse({"error": {"message": text, "type": "authentication_error", "code": 401}}, 401)
        return None

    async def _list_models(self, request: Request) -> Response:
        if refusal := self._note(request):
            return refusal
        if self.models is None:
            return JSONResponse({"detail": "Not Found"}, 404)
        data = [{"id": model, "object": "model"} if isinstance(model, str) else model for model in self.models]
        return JSONResponse({"object": "list", "data": data})

    async def _tell_props(self, request: Request) -> Response:
        if refusal := self._note(request):
            return refusal
        return JSONResponse({"detail": "Not Found"}, 404) if self.props is None else JSONResponse(self.props)

    async def _apply_template(self, request: Request) -> Response:
        if refusal := self._note(request):
            return refusal
        content = (await request.json())["messages"][-1]["content"]
        return JSONResponse({"prompt": f"<|im_start|>user\n{content}<|im_end|>\n{self.prompt_end}"})

    async def _chat(self, request: Request) -> Response:
        if refusal := self._note(request):
            return refusal
        body = await request.json()
        if self.first_token is not None and body.get("logprobs"):
            return StreamingResponse(played(self.left, self.first_token), media_type=self.content_type)
        if self.n_ctx is not None and body.get("max_tokens") == 1:
            usage = final(prompt_tokens=self._tokens(body), completion_tokens=1, total_tokens=self._tokens(body) + 1)
            return StreamingResponse(played(self.left, [*reply("I")[:-2], usage, DONE]), media_type=self.content_type)
        self.bodies.append(body)
        if self.in_text is not None and not body.get("tools"):
            return StreamingResponse(played(self.left, self.in_text), media_type=self.content_type)
        if refused := self.refusal or self._overflow(body):
            status, said = refused
            return Response(said, status) if isinstance(said, str) else JSONResponse(said, status)
        return StreamingResponse(played(self.left, self.steps), media_type=self.content_type)

    async def _count(self, request: Request) -> Response:
        if self.n_ctx is None or self.props is None:
            return JSONResponse({"detail": "Not Found"}, 404)
        return self._note(request) or JSONResponse({"input_tokens": self._tokens(await request.json())})

    def _tokens(self, body: dict[str, Any]) -> int:
        return int(sum(len(message["content"] or "") for message in body["messages"]) / self.token_length)

    def _overflow(self, body: dict[str, Any]) -> tuple[int, Any] | None:
        tokens = self._tokens(body)
        if self.n_ctx is None or tokens < self.n_ctx:
            return None
        said = f"request ({tokens} tokens) exceeds the available context size ({self.n_ctx} tokens), try increasing it"
        figures = {"n_prompt_tokens": tokens, "n_ctx": self.n_ctx}
        return 400, {"error": {"code": 400, "message": said, "type": "exceed_context_size_error", **figures}}
