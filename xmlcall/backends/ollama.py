"""Talks to Ollama through its native API.

Its OpenAI-compatible API is not used, because it cannot set the context length: a prompt beyond 4096 tokens silently loses its
beginning, which describes the tools. Here `num_ctx` is always sent, and always with the same value, because another value reloads
the model.

Its own client, the package `ollama`, is not used either: it has no parameters for `truncate` and `shift`, drops unknown parts of
tools and messages (ollama 0.6.3), and takes U+2028 inside a JSON string for the end of a line.
"""

import json
import os
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Final

import httpx2

from ..dialects.model_family import family_of
from ..errors import BackendProtocolError, BackendStatusError, ContextOverflow, UsageError
from ..models.recommended import recommended_values
from ..types.completion import Capabilities, Chunk, CompletionRequest, Usage
from ..wire.ollama import JsonLines, chat_body, context_length_of, has_chat_template, least_tokens, stream_chunk, tool_role_of
from ..wire.openai import count, mapping, mappings, read_error, text_of
from .http import KEPT_CONNECTIONS, LISTED_MODELS, READ_SECONDS, HttpBackend, json_bytes, read_whole, status_error, timeouts
from .server_facts import of_digest

DEFAULT_NUM_CTX: Final = 16384
"""Tokens: room for tools, results and a reply. Ollama's own default is 4096 on machines with less than 23 GiB of video memory."""

FULL_MARGIN: Final = 4
"""Tokens. A prompt that comes this near to the context's end was cut there, or leaves no room for a reply."""


LARGER_CONTEXT: Final = "give the model a larger context with --context N (in Python `num_ctx`)"
START: Final = "start it with `ollama serve`, or set OLLAMA_HOST to where it runs"

# What Ollama says (server/routes.go, server/images.go), and what to do about it.
_ADVICE: Final = (
    (re.compile(r"does not support[\s\S]*\btools\b"), "this model has no function calling of its own: use mode xml"),
    (re.compile(r"model .*not found"), "fetch it with `ollama pull {model}`"),
    (re.compile(r"more system memory|out of memory"), "take a smaller model or a smaller num_ctx"),
)


class OllamaBackend(HttpBackend):
    """A model that Ollama serves.

    Args:
        num_ctx: tokens that prompt and reply share; None takes 16384, or the model's limit if that is less, or the
            loaded context length if that is larger.

    Attributes:
        capabilities: what Ollama reported about the model when it was opened; many models that claim `tools` fail to use them.
    """

    def __init__(self, model: str, *, host: str | None = None, num_ctx: int | None = None, timeout: float = READ_SECONDS) -> None:
        if not model:
            raise UsageError("expected the name of a model, as in `ollama list`, got none")
        address = host or os.environ.get("OLLAMA_HOST") or "127.0.0.1:11434"
        url, server = _parse(address), f"Ollama at {address.rpartition('@')[2]}"  # without a password
        path = url.path.rstrip("/")
        super().__init__(url, server, root=path, api=path, start=START, seconds=timeout)
        self.model = model
        self._num_ctx = num_ctx
        self._api_key = os.environ.get("OLLAMA_API_KEY", "")
        self.capabilities = Capabilities(server="ollama")

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        body = chat_body(request, self.model, num_ctx=self._num_ctx or DEFAULT_NUM_CTX)
        calls = 0
        async with aclosing(self._lines(json_bytes(body))) as lines:
            async for data in lines:
                chunk = stream_chunk(data, calls_before=calls)
                if chunk is None:
                    continue
                calls += len(chunk.tool_calls)
                if chunk.finish_reason is None:
                    yield chunk
                    continue
                self._check_prompt(request, chunk.usage, body["options"]["num_ctx"])
                yield chunk
                return
        raise BackendProtocolError(
            f"{self._server} ended the reply without a line with `done`: see its log", backend=self._server
        )

    async def _lines(self, content: bytes) -> AsyncGenerator[dict[str, Any]]:
        lines = JsonLines()
        with self._errors():
            async with self._request("POST", f"{self._root}/api/chat", content) as response:
                if not response.is_success:
                    raise await self._refused(response)
                async for data in response.aiter_bytes():
                    for line in lines.feed(data):
                        yield self._message(line)
                for line in lines.close():
                    yield self._message(line)

    def _message(self, line: bytes) -> dict[str, Any]:
        data = _object(line)
        if error := data.get("error"):
            raise self._refusal(error, 200)
        if not isinstance(data.get("message"), dict):
            raise BackendProtocolError(f"expected lines with a message from {self._server}, got one without")
        return data

    def _check_prompt(self, request: CompletionRequest, usage: Usage | None, num_ctx: int) -> None:
        """Refuse a reply if the prompt was cut despite `truncate: false`, which older servers ignore."""
        read = usage.prompt_tokens if usage else None
        if not read:
            return
        least = least_tokens(request.messages)
        if least <= read < num_ctx - FULL_MARGIN:
            return
        message = (
            f"{self._server} read {read} tokens of a prompt of at least {max(least, read)}, its context holds {num_ctx}: it "
            f"cut the prompt or has no room for a reply; {LARGER_CONTEXT}"
        )
        raise ContextOverflow(message, backend=self._server, status_code=200, context_length=num_ctx, advice=LARGER_CONTEXT)

    # -- what the model is -------------------------------------------------------------------------------------------

    async def _probe(self) -> None:
        shown = await self._shown()
        loaded = [model for model in await self._models("/api/ps") if self._is_this(model)]
        present = [model for model in await self._models("/api/tags") if self._is_this(model)]
        info = shown.get("model_info")
        if not isinstance(info, dict):
            raise BackendProtocolError(f"expected Ollama's JSON from {self._server}, got a model without `model_info`")
        trained = context_length_of(info)
        wanted = self._num_ctx or max(DEFAULT_NUM_CTX, *(count(model.get("context_length")) or 0 for model in loaded), 0)
        self._num_ctx = min(wanted, trained or wanted)  # Ollama lowers it in silence
        self.capabilities = self._capabilities(shown, [digest for model in present if (digest := text_of(model.get("digest")))])

    async def _shown(self) -> dict[str, Any]:
        async with self._request("POST", f"{self._root}/api/show", json_bytes({"model": self.model})) as response:
            if response.status_code != 404:
                return await self._answer(response)
            refusal = await self._refused(response)
        raise self._missing(await self._listed()) from refusal

    async def _listed(self) -> tuple[str, ...]:
        return tuple(name for model in await self._models("/api/tags") if (name := text_of(model.get("model"))))

    async def _models(self, path: str) -> list[dict[str, Any]]:
        async with self._request("GET", f"{self._root}{path}") as response:
            models = (await self._answer(response)).get("models")
        if not isinstance(models, list):
            raise BackendProtocolError(f"expected Ollama's JSON from {self._server}, got a list of models without `models`")
        return list(mappings(models))

    def _is_this(self, model: dict[str, Any]) -> bool:
        return _tagged(text_of(model.get("model"))) == _tagged(self.model)

    def _capabilities(self, shown: dict[str, Any], digests: list[str]) -> Capabilities:
        abilities, template = shown.get("capabilities"), text_of(shown.get("template"))
        known = abilities if isinstance(abilities, list) else None
        return Capabilities(
            server="ollama",
            native_tools=None if known is None else "tools" in known,
            context_length=self._num_ctx,
            sees=None if known is None else "vision" in known,
            tool_role=tool_role_of(known or (), template),
            chat_template=has_chat_template(template, text_of(shown.get("modelfile"))),
            family=family_of(template, self.model),
            constrains=True,  # whether it continues depends on the template, and cannot be asked
            fingerprints=tuple(of_digest(digest) for digest in digests[:1]),
            recommended=recommended_values(self.model, text_of(mapping(shown.get("model_info")).get("general.name"))),
        )

    def _missing(self, present: tuple[str, ...]) -> BackendStatusError:
        listed = ", ".join(present[:LISTED_MODELS]) or "none"
        message = f"{self._server} has no model {self.model!r}: fetch it with `ollama pull {self.model}`; it has: {listed}"
        return BackendStatusError(message, backend=self._server, status_code=404)

    # -- HTTP --------------------------------------------------------------------------------------------------------

    def _connections(self) -> httpx2.AsyncClient:
        key = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        here = self._transport_here(KEPT_CONNECTIONS)
        return httpx2.AsyncClient(
            headers={"Accept": "application/json"} | key,
            timeout=httpx2.Timeout(**timeouts(self._timeout)),
            transport=here or httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None)),
            follow_redirects=True,
        )

    async def _answer(self, response: httpx2.Response) -> dict[str, Any]:
        if not response.is_success:
            raise await self._refused(response)
        return _object(await read_whole(response))

    async def _refused(self, response: httpx2.Response) -> BackendStatusError:
        text = (await read_whole(response)).decode(errors="replace")
        try:
            error = json.loads(text)
        except ValueError:
            return self._refusal(text, response.status_code)
        if not isinstance(error, dict):
            raise BackendProtocolError(f"expected Ollama's JSON from {self._server}, got {text[:200]!r}")
        return self._refusal(error.get("error", text), response.status_code)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with super()._errors():
            try:
                yield
            except UsageError:
                raise
            except (ValueError, RecursionError) as error:  # a line is not JSON, or not an object
                said = " ".join(str(error).split())[:200]
                message = f"expected Ollama's JSON from {self._server}, got {type(error).__name__}: {said}"
                raise BackendProtocolError(message) from error

    def _refusal(self, error: Any, status: int) -> BackendStatusError:
        said = read_error(error)
        advice = next((advice for pattern, advice in _ADVICE if pattern.search(said.message)), "")
        return status_error(
            said,
            server=self._server,
            status=status,
            larger_context=LARGER_CONTEXT,
            advice=advice.format(model=self.model),
            secret=self._api_key,
        )


def _object(line: bytes) -> dict[str, Any]:
    data = json.loads(line.decode(errors="replace"))
    if not isinstance(data, dict):
        raise ValueError(f"{type(data).__name__} in place of an object")
    return data


def _parse(address: str) -> httpx2.URL:
    """Read an address as Ollama's client does: scheme, port and path may be missing."""
    try:
        local = f"127.0.0.1{address}" if address.startswith(":") else address
        url = httpx2.URL(local if "://" in local else f"http://{local}")
    except (httpx2.InvalidURL, ValueError) as error:
        raise UsageError(f"expected the address of Ollama, such as 127.0.0.1:11434, got {address[:100]!r}: {error}") from None
    return url if url.port or "://" in address else url.copy_with(port=11434)


def _tagged(name: str | None) -> str:
    """Add the tag that Ollama adds: `gemma3` is `gemma3:latest`."""
    name = name or ""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
