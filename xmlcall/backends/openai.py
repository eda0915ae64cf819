"""Talks to any server with OpenAI's chat completions: llama.cpp, vLLM, SGLang, LM Studio, hosted services.

Replies are always streamed, because closing a stream frees llama.cpp's slot at once, while closing a plain request did not within
40 s (measured, b11549). Connections to llama.cpp are not reused, because it drops idle ones after a stream, and a request on such
a connection fails (measured, b11549).

Reasoning on llama.cpp: a template may end the prompt with an open `<think>`. The server then either removes the reasoning from
the text, if it knows the template's tags, or leaves it in without its opener; it does not report which. `reasoning_format:
"none"` makes it leave the reasoning in, and `StreamReader` drops the opener that it repeats, so that with `reasoning_open` the
text of a reply always begins inside the reasoning (measured with both kinds of template).
"""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

import httpx2

from ..dialects.model_family import family_of
from ..errors import BackendProtocolError, BackendStatusError, UsageError
from ..models.recommended import recommended_values
from ..types.completion import Capabilities, Chunk, CompletionRequest
from ..wire.openai import StreamReader, count, joined, mapping, mappings, read_error, read_json, request_body, text_of
from ..wire.sse import EventDecoder
from .http import (
    KEPT_CONNECTIONS,
    KEPT_SECONDS,
    LISTED_MODELS,
    READ_SECONDS,
    HttpBackend,
    is_loopback,
    json_bytes,
    json_object,
    plain_address,
    read_whole,
    retry_after,
    status_error,
    timeouts,
)
from .server_facts import of_name, of_template

START: Final = "start one, for example `llama-server -m MODEL.gguf -c 8192 --port 8080`, or check the address"
LARGER_CONTEXT: Final = "start its server with a larger context (`llama-server -c N`, `vllm serve --max-model-len N`)"
END_SECONDS: Final = 0.05

FALLBACK_TEMPLATE: Final = (
    "{%- for message in messages -%}\n"
    "  {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "  {{- '<|im_start|>assistant\n' -}}\n"
    "{%- endif -%}"
)
"""The template that llama.cpp uses, and reports in `/props`, if a model's file has none (common/chat.cpp, b11549)."""

_UNUSABLE = (401, 403, 429, 500, 502, 503, 504)  # 503: llama.cpp while it loads the model
_VERSIONED = re.compile(r"/v\d")
_NO_SUCH_MODEL = re.compile(
    r"model.*(not found|not exist|not available|unknown|invalid)|(unknown|invalid|no such) model", re.I | re.S
)
_OPEN_THINK = re.compile(r"<think>\s*\Z")


class OpenAIBackend(HttpBackend):
    """A model behind an OpenAI-compatible server.

    Args:
        model: the server's name of the model; None takes the first that the server lists.
        api_key: sent as a bearer token; None takes `OPENAI_API_KEY`, but only for an https address of another machine.
        larger_context: how to enlarge the server's context, as a clause for messages.

    Attributes:
        capabilities: what the server reported about itself when it was opened.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = READ_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
        larger_context: str = LARGER_CONTEXT,
    ) -> None:
        parsed = _parse(url)
        path = parsed.path.rstrip("/")
        root, api = path.removesuffix("/v1"), path if _VERSIONED.search(path) else f"{path}/v1"
        super().__init__(parsed, plain_address(parsed.copy_with(path=root)), root=root, api=api, start=START, seconds=timeout)
        self.model = model or ""
        self._api_key = _checked_key(api_key, parsed)
        self._transport = transport
        self._larger_context = larger_context
        self._plain_names = False  # the server has refused others
        self._models: list[str] = []
        self._echo = ""  # the open `<think>` at the end of the prompt
        self.capabilities = Capabilities(server="openai-compatible")

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`); if the server refuses the tools' names, it gets plain ones."""
        names = plain_names(request) if self._plain_names else {}
        while True:  # at most twice, because plain names are not refused
            try:
                async with aclosing(self._stream(with_plain_names(request, names))) as chunks:
                    async for chunk in chunks:
                        yield own_names(chunk, names)
                return
            except BackendStatusError as error:
                if names or not refuses_names(error, request):
                    raise
            self._plain_names, names = True, plain_names(request)

    async def _stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        content = json_bytes(self._body(request))
        reader, decoder = StreamReader(echo="" if request.tools else self._echo), EventDecoder()
        with self._errors():
            async with self._request("POST", f"{self._api}/chat/completions", content) as response:
                await self._refuse_unless_stream(response)
                rest = response.aiter_bytes()
                async for data in rest:
                    for chunk in joined(self._chunks(decoder.feed(data), reader)):
                        yield chunk
                    if reader.done:
                        await _read_out(rest)
                        break
                for chunk in self._chunks(decoder.close(), reader):
                    yield chunk
            if not reader.finished:
                raise BackendProtocolError(f"{self._server} ended the reply without a finish reason: see its log")
        yield reader.close()

    async def copy_slot(self, source: int, target: int, filename: str) -> bool:
        """Copy llama.cpp's cached prompt to another slot."""
        with self._errors():
            for slot, action in ((source, "save"), (target, "restore")):
                path, content = f"{self._root}/slots/{slot}", json_bytes({"filename": filename})
                status, _ = await self._json("POST", path, content, query=f"action={action}")
                if status != 200:
                    return False
        return True

    def _connections(self, kept: int = 0) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self._api_key}"} if self._api_key else {},
            timeout=httpx2.Timeout(**timeouts(self._timeout)),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=kept, keepalive_expiry=KEPT_SECONDS),
            trust_env=not is_loopback(self._url.host),  # HTTP_PROXY is not meant for this machine
            transport=self._transport or self._transport_here(kept),
        )

    def _body(self, request: CompletionRequest) -> dict[str, Any]:
        own: dict[str, Any] = {}
        if self.capabilities.server == "llama.cpp":
            own["cache_prompt"] = True
            own["timings_per_token"] = True  # these have the counts, and many replies are closed before the final report
            if request.progress:
                own["return_progress"] = True
        if self._echo and not request.tools:
            own["reasoning_format"] = "none"
        return own | request_body(request, self.model, is_llama=self.capabilities.server == "llama.cpp")

    def _chunks(self, payloads: Iterable[str], reader: StreamReader) -> Iterator[Chunk]:
        for payload in payloads:
            if payload == "[DONE]":
                reader.done = True
            if reader.done:
                return
            data = read_json(payload)
            if data.get("error"):
                raise self._status_error(200, data)
            if chunk := reader.feed(data):
                yield chunk

    # -- what the server is ------------------------------------------------------------------------------------------

    async def _probe(self) -> None:
        await self._ask_about_itself()
        if self._client is not None and self.capabilities.server != "llama.cpp" and self._transport is None:
            await self._client.aclose()
            self._client = self._connections(KEPT_CONNECTIONS)

    async def _ask_about_itself(self) -> None:
        status, props = await self._json("GET", f"{self._root}/props")
        is_llama = status == 200 and "default_generation_settings" in props
        status, models = await self._list_models()
        self.model = self.model or self._only_model(status)
        if is_llama:
            self._echo = await self._open_think()
            self.capabilities = _llama_capabilities(props, self.model, reasoning_open=bool(self._echo))
            return
        own = next((item for item in models if item.get("id") == self.model), {})
        # vLLM and SGLang add `max_model_len` to OpenAI's model object.
        self.capabilities = Capabilities(
            server="openai-compatible",
            context_length=count(own.get("max_model_len")),
            family=family_of("", self.model),
            fingerprints=(of_name(self.model),),
            recommended=recommended_values(self.model),
        )

    async def _list_models(self) -> tuple[int, list[dict[str, Any]]]:
        """Ask for the list of models; return the status, and the models with all that the server says of them."""
        status, listing = await self._json("GET", f"{self._api}/models")
        if status in _UNUSABLE:
            raise self._status_error(status, listing)
        models = mappings(listing.get("data"))
        self._models = [name for item in models if (name := text_of(item.get("id")))]
        return status, models

    async def _listed(self) -> tuple[str, ...]:
        status, _ = await self._list_models()
        self._only_model(status)
        return tuple(self._models)

    def _only_model(self, status: int) -> str:
        if self._models:
            return self._models[0]
        raise BackendProtocolError(
            f"expected a list of models from {self._server} ({self._api}/models), got status {status} without one: "
            "check the address, or name the model (URL#MODEL)"
        )

    async def _open_think(self) -> str:
        """Render a prompt and return its open `<think>`, if it ends with one."""
        body = {"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": True}
        status, answer = await self._json("POST", f"{self._root}/apply-template", json_bytes(body))
        match = _OPEN_THINK.search(text_of(answer.get("prompt"))) if status == 200 else None
        return match[0] if match else ""

    # -- HTTP --------------------------------------------------------------------------------------------------------

    async def _json(self, method: str, path: str, content: bytes = b"", *, query: str = "") -> tuple[int, Mapping[str, Any]]:
        """Request a JSON object; return `{"message": text}` if the answer is something else."""
        async with self._request(method, path, content, query=query) as response:
            body = await read_whole(response)
        data = json_object(body)
        return response.status_code, {"message": body.decode("utf-8", "replace")} if data is None else data

    async def _refuse_unless_stream(self, response: httpx2.Response) -> None:
        media = response.headers.get("content-type", "")
        if response.status_code == 200 and not media.startswith("application/json"):
            return
        body = (await read_whole(response)).decode("utf-8", "replace")
        if response.status_code == 200 and '"error"' not in body:
            raise BackendProtocolError(f"expected a stream (text/event-stream) from {self._server}, got {media}: {body[:80]!r}")
        raise self._status_error(response.status_code, body, retry_after(response.headers.get("retry-after", "")))

    def _status_error(self, status: int, body: Any, wait: float | None = None) -> BackendStatusError:
        error = read_error(body)
        advice = self._advice(status, error.message)
        return status_error(
            error,
            server=self._server,
            status=status,
            larger_context=self._larger_context,
            advice=advice,
            secret=self._api_key,
            wait=wait,
        )

    def _advice(self, status: int, said: str) -> str:
        if status in (401, 403):
            return "give its API key (`api_key`; OPENAI_API_KEY is sent to https addresses only)"
        if status in (400, 404) and _NO_SUCH_MODEL.search(said):
            more = len(self._models) - LISTED_MODELS
            listed = ", ".join(self._models[:LISTED_MODELS]) + (f" and {more} more" if more > 0 else "")
            return f"asked for the model {self.model!r}, the server has: {listed or 'no list of its models'}"
        wrong_place = status in (404, 405) or 300 <= status < 400
        return "check the address: expected OpenAI's /v1/chat/completions there" if wrong_place else ""


async def _read_out(rest: AsyncIterator[bytes]) -> None:
    """Read the end of a finished answer without waiting, so that its connection can be reused."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            async for _ in rest:
                pass


def _parse(url: str) -> httpx2.URL:
    shown = url.rpartition("@")[2][:100]  # the part before may be a password
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise UsageError(f"expected the URL of a server, such as http://127.0.0.1:8080/v1, got {shown!r}: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"expected the URL of a server, such as http://127.0.0.1:8080/v1, got {shown!r}")
    return parsed.copy_with(query=None, fragment=None)


def _checked_key(given: str | None, url: httpx2.URL) -> str:
    key = given
    if key is None and url.scheme == "https" and not is_loopback(url.host):
        key = os.environ.get("OPENAI_API_KEY")  # never in clear over a network, never to what runs on this machine
    key = (key or "").strip()
    if not key.isascii() or not key.isprintable():
        raise UsageError("expected an API key of printable ASCII characters, got others in it")
    return key


def _llama_capabilities(props: Mapping[str, Any], model: str, *, reasoning_open: bool) -> Capabilities:
    # llama.cpp, tools/server/README.md, GET /props. Without `supports_tool_calls` the template drops tools and their results
    # in silence; without `chat_template_caps` the server is too old to say.
    caps = mapping(props.get("chat_template_caps"))
    tools = caps.get("supports_tool_calls")
    sees = mapping(props.get("modalities")).get("vision")
    template, file = text_of(props.get("chat_template")), PurePath(text_of(props.get("model_path"))).name
    return Capabilities(
        server="llama.cpp",
        native_tools=tools if isinstance(tools, bool) else None,
        context_length=count(mapping(props["default_generation_settings"]).get("n_ctx")) or None,
        tool_role=tools if isinstance(tools, bool) else None,
        reasoning_open=reasoning_open,
        build=text_of(props.get("build_info")),
        continues=not reasoning_open,  # refused where the template may think (measured, b11549)
        constrains=True,
        sees=sees if isinstance(sees, bool) else None,
        most_logprobs=1000,  # it reports all; the opening of a call is among these even after small talk
        chat_template=template != FALLBACK_TEMPLATE if template else None,
        family=family_of(template, file or model),
        model_file=file,
        fingerprints=(of_template(file or model, template),),
        recommended=recommended_values(file, model, opens_thought=reasoning_open),
    )


# -- names of tools for a server that takes plain ones only ------------------------------------------------------------
# Most servers take names in any script, which their models read better. One that refuses them says so with status 400 and the
# pattern that it asks for; then the request is made once more with other names, and its calls come back under their own.


_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LENGTH: Final = 56  # most characters kept of a name; a number follows
_ASKED: Final = re.compile(r"\[a-zA-Z0-9_|alphanumeric|function[._ ]name|tools\[?\.?\d", re.IGNORECASE)


def refuses_names(error: BackendStatusError, request: CompletionRequest) -> bool:
    """Say whether a server may have refused a request because of the tools' names."""
    return error.status_code in (400, 422) and bool(plain_names(request)) and _ASKED.search(error.body or str(error)) is not None


def plain_names(request: CompletionRequest) -> dict[str, str]:
    """Map the tools of a request whose names are not plain to other names."""
    names = [tool.name for tool in request.tools]
    taken, found = {name for name in names if _PLAIN.fullmatch(name)}, dict[str, str]()
    for place, name in enumerate(names, start=1):
        if name not in taken:
            base = _OTHERS.sub("_", name)[:_LENGTH].strip("_") or "tool"
            found[name] = next(each for each in (f"{base}_{place + step}" for step in range(len(names) + 1)) if each not in taken)
            taken.add(found[name])
    return found


def with_plain_names(request: CompletionRequest, names: Mapping[str, str]) -> CompletionRequest:
    """Rename the tools of a request, also in earlier calls and in a tool choice."""
    if not names:
        return request
    messages = tuple(
        replace(
            said,
            name=names.get(said.name, said.name) if said.name else said.name,
            tool_calls=tuple(replace(call, name=names.get(call.name, call.name)) for call in said.tool_calls),
        )
        for said in request.messages
    )
    tools = tuple(replace(tool, name=names.get(tool.name, tool.name)) for tool in request.tools)
    return replace(request, messages=messages, tools=tools, extra=_chosen(request.extra, names))


def _chosen(extra: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    choice = extra.get("tool_choice")
    if not isinstance(choice, Mapping):
        return extra
    function = choice.get("function")
    if not isinstance(function, Mapping) or function.get("name") not in names:
        return extra
    return {**extra, "tool_choice": {**choice, "function": {**function, "name": names[function["name"]]}}}


def own_names(chunk: Chunk, names: Mapping[str, str]) -> Chunk:
    """Restore the tools' own names in a piece of a reply."""
    if not names or not chunk.tool_calls:
        return chunk
    own = {plain: name for name, plain in names.items()}
    return replace(chunk, tool_calls=tuple(replace(call, name=own.get(call.name, call.name)) for call in chunk.tool_calls))
