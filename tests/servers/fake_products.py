"""Model servers of several products, as far as a client can tell them apart; they know no model.

Each has the endpoints by which it is recognised, with answers in extracts, and a chat whose replies depend on how it is offered
tools. Sources: llama.cpp, tools/server/README.md; Ollama, docs/api.md; vLLM and SGLang, their HTTP entry points; LM Studio, REST
API v0 and v1; mlx-lm, mlx_lm/server.py; tabbyAPI, endpoints/core; KoboldCpp, its API document.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal

from servers import fake_ollama
from servers.fake_openai import DONE, chunk, final
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

__all__ = ["PRODUCTS", "VLLM_REFUSAL", "WORDS", "Product", "served_by_python"]

CALL: Final = (
    '<function_calls>\n<invoke name="multiply">\n<parameter name="a">1234</parameter>\n'
    '<parameter name="b">5678</parameter>\n</invoke>\n</function_calls>'
)
LEAK: Final = '```json\n{"name": "multiply", "arguments": {"a": 1234, "b": 5678}}\n```'
WORDS: Final = "1234 times 5678 is 7,006,652."
VLLM_REFUSAL: Final = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'

Behaviour = Literal["calls", "leaks", "drops", "refuses", "ignores", "wrong", "thinks", "empty", "breaks"]


def native_call(arguments: Mapping[str, Any]) -> bytes:
    """Write a call as a server reports one that it has read."""
    function = {"name": "multiply", "arguments": json.dumps(arguments)}
    return chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})


@dataclass
class Product:
    """A server.

    Args:
        pages: what it answers to requests of its own endpoints, by path.
        native: what becomes of `tools`.
        prompted: what the model writes if a prompt offers the tool.
        refusal: status and message where it refuses.
        logprobs: whether it reports probabilities; None refuses requests for them.
        pause: seconds before each reply.
        pause_after: seconds after the first word of each reply.
        wire: of its chat.
    """

    pages: Mapping[str, Any]
    native: Behaviour = "calls"
    prompted: str = CALL
    refusal: tuple[int, str] = (400, "this model does not support tools")
    logprobs: bool | None = True
    pause: float = 0.0
    pause_after: float = 0.0
    wire: Literal["openai", "ollama"] = "openai"
    api_key: str = ""
    paths: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    @property
    def app(self) -> Starlette:
        """The ASGI app."""
        return Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST"])])

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        self.paths.append(path)
        if self.api_key and (sent := request.headers.get("authorization", "")) != f"Bearer {self.api_key}":
            return JSONResponse({"error": {"message": f"invalid API key: {sent}"}}, 401)
        if path in ("/v1/chat/completions", "/api/chat"):
            return self.chat(await request.json())
        if path == "/apply-template":
            return JSONResponse({"prompt": "<|im_start|>assistant\n"})
        return JSONResponse(self.pages[path]) if path in self.pages else JSONResponse({"detail": "Not Found"}, 404)

    def chat(self, body: dict[str, Any]) -> Response:
        """Answer a chat completion."""
        self.bodies.append(body)
        refused = self.refused(body)
        if refused is not None:
            status, said = refused
            error: Any = said if self.wire == "ollama" else {"message": said}
            return JSONResponse({"error": error}, status)
        media = "application/x-ndjson" if self.wire == "ollama" else "text/event-stream"
        return StreamingResponse(self.pieces(body), media_type=media)

    def refused(self, body: Mapping[str, Any]) -> tuple[int, str] | None:
        """Return status and message of a refusal, if the request is refused."""
        if body.get("logprobs") and self.logprobs is None:
            return 400, "logprobs are not supported"
        if body.get("tools") and self.native == "refuses":
            return self.refusal
        return (500, "internal error") if body.get("tools") and self.native == "breaks" else None

    def pieces(self, body: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the pieces of a reply."""
        time.sleep(self.pause)
        write = self._ollama if self.wire == "ollama" else self._openai
        yield from write(body)

    def _text(self, body: Mapping[str, Any]) -> str:
        if body.get("tools"):
            return {"leaks": LEAK, "empty": "", "calls": "", "wrong": "", "thinks": ""}.get(self.native, WORDS)
        return self.prompted if "multiply" in body["messages"][0]["content"] else WORDS

    def _tokens(self, body: Mapping[str, Any]) -> int:
        shown = body.get("tools") if self.native != "drops" else None
        return len(json.dumps([body["messages"], shown])) // 4

    def _arguments(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the arguments of the call that the server reports, if it reports one."""
        kinds = {"calls": {"a": 1234, "b": 5678}, "wrong": {"a": 1, "b": 2}}
        return kinds.get(self.native) if body.get("tools") else None

    def _openai(self, body: Mapping[str, Any]) -> Iterator[bytes]:
        text, arguments = self._text(body), self._arguments(body)
        yield chunk({"role": "assistant", "content": None})
        if body.get("tools") and self.native == "thinks":
            yield chunk({"reasoning_content": "Let me think about that."})
        words = text.split(" ") if text else []
        for place, word in enumerate(words):
            yield self._piece(body, word if place == 0 else f" {word}")
            if place == 0:
                time.sleep(self.pause_after)
        if arguments is not None:
            yield native_call(arguments)
        cut = body.get("tools") and self.native == "thinks"
        yield chunk({}, "tool_calls" if arguments is not None else "length" if cut else "stop")
        yield final(prompt_tokens=self._tokens(body), completion_tokens=max(len(words), 1))
        yield DONE

    def _piece(self, body: Mapping[str, Any], text: str) -> bytes:
        if not (body.get("logprobs") and self.logprobs):
            return chunk({"content": text})
        piece = json.loads(chunk({"content": text})[len("data: ") :])
        likeliest = [{"token": text, "logprob": -0.1}, {"token": "I", "logprob": -3.0}]
        piece["choices"][0]["logprobs"] = {"content": [{"token": text, "logprob": -0.1, "top_logprobs": likeliest}]}
        return b"data: " + json.dumps(piece).encode() + b"\n\n"

    def _ollama(self, body: Mapping[str, Any]) -> Iterator[bytes]:
        for word in self._text(body).split(" "):
            yield fake_ollama.part(f"{word} ")
        if (arguments := self._arguments(body)) is not None:
            yield fake_ollama.part(tool_calls=[{"function": {"name": "multiply", "arguments": arguments}}])
        yield fake_ollama.done(prompt_eval_count=self._tokens(body))


@contextlib.contextmanager
def served_by_python(product: Product) -> Iterator[str]:
    """Serve a product with the standard library's server, by whose header mlx-lm is recognised; gives the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, product.pages[self.path]) if self.path in product.pages else self._send(404, None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if refused := product.refused(body):
                self._send(refused[0], {"error": refused[1]})
            else:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for piece in product.pieces(body):
                    self.wfile.write(piece)

        def _send(self, status: int, answer: Any) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(b"Not Found" if answer is None else json.dumps(answer).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def models(name: str = "tiny", **more: Any) -> dict[str, Any]:
    """Return an answer to `GET /v1/models`."""
    return {"object": "list", "data": [{"id": name, "object": "model", "created": 1795240876, **more}]}


def props(template: str = "{%- for message in messages %}", *, tools: bool | None = None, n_ctx: int = 16384) -> dict[str, Any]:
    """Return an answer to `GET /props`."""
    caps = {} if tools is None else {"chat_template_caps": {"supports_tools": tools, "supports_tool_calls": tools}}
    return {"default_generation_settings": {"n_ctx": n_ctx}, "total_slots": 1, "chat_template": template, **caps}


def _studio(*, tools: bool, context: int) -> dict[str, Any]:
    entry = {
        "type": "llm",
        "key": "tiny",
        "max_context_length": 32768,
        "capabilities": {"vision": False, "trained_for_tool_use": tools},
    }
    return {"models": [{**entry, "loaded_instances": [{"id": "tiny", "config": {"context_length": context}}]}]}


PRODUCTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama.cpp": {
        "/v1/models": models(owned_by="llamacpp"),
        "/props": {**props(tools=False), "build_info": "b11434-4f3a"},
        "/health": {"status": "ok"},
    },
    "llama.cpp, old": {"/v1/models": models(owned_by="llamacpp"), "/props": props("{% if tools %}{{ tools }}{% endif %}")},
    "ollama": {
        "/v1/models": models("tiny:latest", owned_by="library"),
        "/api/version": {"version": "0.32.15"},
        "/api/tags": {"models": [{"name": "tiny:latest", "model": "tiny:latest"}]},
        "/api/ps": {"models": [{"name": "tiny:latest", "model": "tiny:latest", "context_length": 4096}]},
        "/api/show": {
            "capabilities": ["completion"],
            "template": "{{ .System }}{{ .Prompt }}",
            "modelfile": "FROM x",
            "model_info": {"general.architecture": "gemma3", "gemma3.context_length": 32768},
        },
    },
    "vllm": {
        "/v1/models": models("Qwen/Qwen2.5-7B-Instruct", owned_by="vllm", max_model_len=32768),
        "/version": {"version": "0.33.0"},
    },
    "sglang": {
        "/v1/models": models("meta-llama/Llama-3.1-8B-Instruct", owned_by="sglang", max_model_len=8192),
        "/server_info": {
            "model_path": "meta-llama/Llama-3.1-8B-Instruct",
            "tool_call_parser": None,
            "context_length": None,
            "version": "0.5.23",
            "api_key": "sk-of-the-server-itself",
        },
        "/api/tags": {"models": []},
    },
    "lmstudio": {"/v1/models": models(owned_by="organization_owner"), "/api/v1/models": _studio(tools=False, context=4096)},
    "lmstudio, old": {
        "/v1/models": models(owned_by="organization_owner"),
        "/api/v0/models": {
            "object": "list",
            "data": [
                {
                    "id": "tiny",
                    "type": "llm",
                    "compatibility_type": "gguf",
                    "state": "loaded",
                    "max_context_length": 32768,
                    "loaded_context_length": 16384,
                    "capabilities": ["tool_use"],
                }
            ],
        },
    },
    "mlx-lm": {"/v1/models": models("mlx-community/Qwen3-4B-4bit"), "/health": {"status": "ok"}},
    "tabbyapi": {
        "/v1/models": models("Qwen3-Coder-exl3", owned_by="tabbyAPI"),
        "/v1/model": {"id": "Qwen3-Coder-exl3", "owned_by": "tabbyAPI", "parameters": {"max_seq_len": 32768}},
        "/.well-known/serviceinfo": {"version": 0.1, "software": {"name": "TabbyAPI"}},
        "/props": props(n_ctx=32768),
    },
    "koboldcpp": {
        "/v1/models": models("koboldcpp/tiny", owned_by="koboldcpp"),
        "/api/extra/version": {"result": "KoboldCpp", "version": "1.122.1", "protected": False},
        "/api/extra/true_max_context_length": {"value": 8192},
        "/api/version": {"version": "0.7.0"},
        "/api/tags": {"models": [{"name": "koboldcpp"}]},
        "/props": props("{{ messages }}", n_ctx=8192),
    },
    "another": {"/v1/models": models()},
    "xmlcall": {"/v1/models": models(owned_by="xmlcall")},
}
"""What each product answers to `GET`, by path."""
