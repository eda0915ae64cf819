"""Talks to Ollama through its own client and its native API.

Its OpenAI-compatible API is not used, because it cannot set the context length: a prompt beyond 4096 tokens silently loses its
beginning, which describes the tools. Here `num_ctx` is always sent, and always with the same value, because another value reloads
the model.

The client has no parameters for `truncate` and `shift`, and drops unknown parts of tools and messages (ollama 0.6.3), so the body
of its request to `/api/chat` is replaced by ours. In answers, U+0085, U+2028 and U+2029 are escaped: JSON allows them in strings,
and Go writes the first unescaped, but httpx would treat them as line ends.
"""

import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Final, Self, cast

import httpx
import ollama

from ..dialects.model_family import family_of
from ..errors import BackendProtocolError, BackendStatusError, BackendUnavailable, ContextOverflow, UsageError
from ..types.completion import Chunk, CompletionRequest, Usage
from ..wire.ollama import chat_body, context_length_of, has_chat_template, least_tokens, stream_chunk, tool_role_of
from ..wire.openai import read_error
from .base import Capabilities, Relayed
from .fingerprint import of_digest
from .http import READ_SECONDS, http_errors, json_bytes, json_headers, status_error, timeouts

__all__ = ["DEFAULT_NUM_CTX", "OllamaBackend"]

DEFAULT_NUM_CTX: Final = 16384
"""Tokens: room for tools, results and a reply. Ollama's own default is 4096 on machines with less than 23 GiB of video memory."""

FULL_MARGIN: Final = 4
"""Tokens. A prompt that comes this near to the context's end was cut there, or leaves no room for a reply."""

LINE_LIMIT: Final = 16 * 1024 * 1024  # bytes; the longest answer, the license and metadata of a model, has well under 1 MB
LISTED_MODELS: Final = 20

LARGER_CONTEXT: Final = "give the model a larger context with --context N (in Python `num_ctx`)"
START: Final = "start it with `ollama serve`, or set OLLAMA_HOST to where it runs"

# In UTF-8: NEL, LINE SEPARATOR, PARAGRAPH SEPARATOR.
_LINE_END = re.compile(rb"\xc2\x85|\xe2\x80[\xa8\xa9]")
_CUT_LINE_END = re.compile(rb"(?:\xc2|\xe2\x80?)\Z")

_Responses = AsyncGenerator[ollama.ChatResponse]

# What Ollama says (server/routes.go, server/images.go), and what to do about it.
_ADVICE: Final = (
    (re.compile(r"does not support[\s\S]*\btools\b"), "this model has no function calling of its own: use mode xml"),
    (re.compile(r"model .*not found"), "fetch it with `ollama pull {model}`"),
    (re.compile(r"more system memory|out of memory"), "take a smaller model or a smaller num_ctx"),
)


class OllamaBackend:
    """A model that Ollama serves.

    Args:
        num_ctx: tokens that prompt and reply share; None takes 16384, or the model's limit if that is less, or the length it is
            loaded with if that is more.

    Attributes:
        capabilities: what Ollama reported about the model when it was opened; many models that claim `tools` fail to use them.
    """

    def __init__(self, model: str, *, host: str | None = None, num_ctx: int | None = None, timeout: float = READ_SECONDS) -> None:
        if not model:
            raise UsageError("expected the name of a model, as in `ollama list`, got none")
        self.model = model
        self._host = host
        self._num_ctx = num_ctx
        self._timeout = timeout
        address = host or os.environ.get("OLLAMA_HOST") or "127.0.0.1:11434"
        self._url = _parse(address)
        self._server = f"Ollama at {address.rpartition('@')[2]}"  # without a password
        self._network: httpx.AsyncBaseTransport | None = None
        self.capabilities = Capabilities(server="ollama")

    async def __aenter__(self) -> Self:
        self._network = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None))
        try:
            await self._probe(self._client())
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        network, self._network = self._network, None
        if network is not None:
            await network.aclose()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`)."""
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

    @asynccontextmanager
    async def relay(self, method: str, path: str, content: bytes = b"") -> AsyncIterator[Relayed]:
        """Pass a request on as it is (see `Relaying`)."""
        if self._network is None:
            raise UsageError(f"the backend of {self._server} is not open: use it inside `async with`")
        headers = json_headers()
        if key := os.environ.get("OLLAMA_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        client = httpx.AsyncClient(
            transport=_Borrowed(self._network), timeout=httpx.Timeout(**timeouts(self._timeout)), headers=headers
        )
        with self._errors():
            async with client.stream(
                method, self._url.copy_with(path=self._url.path.rstrip("/") + path), content=content
            ) as response:
                media_type = response.headers.get("content-type", "application/json")
                yield Relayed(status=response.status_code, media_type=media_type, chunks=response.aiter_bytes())

    async def _lines(self, content: bytes) -> AsyncGenerator[dict[str, Any]]:
        client = self._client(content)
        with self._errors():
            # The transport puts `content` in the place of what the client writes.
            async with aclosing(cast(_Responses, await client.chat(model=self.model, stream=True))) as responses:
                async for response in responses:
                    yield response.model_dump(exclude_none=True)

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

    async def _probe(self, client: ollama.AsyncClient) -> None:
        with self._errors():
            try:
                shown = await client.show(self.model)
            except ollama.ResponseError as error:
                if error.status_code != 404:
                    raise
                raise self._missing([model.model or "" for model in (await client.list()).models]) from error
            running = (await client.ps()).models
            present = (await client.list()).models
        trained = context_length_of(shown.modelinfo or {})
        loaded = [model.context_length or 0 for model in running if _tagged(model.model) == _tagged(self.model)]
        digests = [model.digest for model in present if model.digest and _tagged(model.model) == _tagged(self.model)]
        wanted = self._num_ctx or max(DEFAULT_NUM_CTX, *loaded, 0)
        self._num_ctx = min(wanted, trained or wanted)  # Ollama lowers it in silence
        abilities = shown.capabilities
        self.capabilities = Capabilities(
            server="ollama",
            native_tools=None if abilities is None else "tools" in abilities,
            context_length=self._num_ctx,
            sees=None if abilities is None else "vision" in abilities,
            tool_role=tool_role_of(abilities or (), shown.template or ""),
            chat_template=has_chat_template(shown.template or "", shown.modelfile or ""),
            family=family_of(shown.template or "", self.model),
            constrains=True,  # whether it continues depends on the template, and cannot be asked
            fingerprints=tuple(of_digest(digest) for digest in digests[:1]),
        )

    def _missing(self, present: list[str]) -> BackendStatusError:
        listed = ", ".join(present[:LISTED_MODELS]) or "none"
        message = f"{self._server} has no model {self.model!r}: fetch it with `ollama pull {self.model}`; it has: {listed}"
        return BackendStatusError(message, backend=self._server, status_code=404)

    # -- HTTP --------------------------------------------------------------------------------------------------------

    def _client(self, content: bytes = b"") -> ollama.AsyncClient:
        if self._network is None:
            raise UsageError(f"the backend of {self._server} is not open: use it inside `async with`")
        transport = _Wire(self._network, content)
        return ollama.AsyncClient(
            self._host, transport=transport, timeout=httpx.Timeout(**timeouts(self._timeout)), headers=json_headers()
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with http_errors(self._server, start=START, seconds=self._timeout):
            try:
                yield
            except ollama.ResponseError as error:
                raise self._refused(error) from error
            except ConnectionError as error:  # the client's own translation, without the cause
                raise BackendUnavailable(f"cannot connect to {self._server}: {START}", backend=self._server) from error
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                # Everything that the client lets through when a line is no JSON, no object, or an object of other fields.
                raise BackendProtocolError(f"expected Ollama's JSON from {self._server}, got {_one_line(error)}") from error

    def _refused(self, error: ollama.ResponseError) -> BackendStatusError:
        said = read_error(error.error)
        status = error.status_code if error.status_code > 0 else 200  # -1: a line of the stream
        advice = next((advice for pattern, advice in _ADVICE if pattern.search(said.message)), "")
        secret = os.environ.get("OLLAMA_API_KEY", "")  # the client sends it
        return status_error(
            said,
            server=self._server,
            status=status,
            larger_context=LARGER_CONTEXT,
            advice=advice.format(model=self.model),
            secret=secret,
        )


class _Borrowed(httpx.AsyncBaseTransport):
    """The network, for a client of one request. Closing it leaves the network open."""

    def __init__(self, network: httpx.AsyncBaseTransport) -> None:
        self._network = network

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._network.handle_async_request(request)


class _Wire(httpx.AsyncBaseTransport):
    """The network, with our body in each chat request and our decoding of each answer. Closing it leaves the network open."""

    def __init__(self, network: httpx.AsyncBaseTransport, content: bytes) -> None:
        self._network = network
        self._content = content

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/api/chat"):
            headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
            request = httpx.Request(
                request.method, request.url, headers=headers, content=self._content, extensions=request.extensions
            )
        response = await self._network.handle_async_request(request)
        stream = _SafeLines(cast("httpx.AsyncByteStream", response.stream))
        return httpx.Response(response.status_code, headers=response.headers, stream=stream, extensions=response.extensions)


class _SafeLines(httpx.AsyncByteStream):
    """An answer with the line ends that JSON does not mean escaped, and an end to lines that have none."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = b""  # the beginning of a line end that was cut in two
        length = 0
        async for data in self._stream:
            piece = held + data
            held = match[0] if (match := _CUT_LINE_END.search(piece)) else b""
            newline = piece.rfind(b"\n")
            length = length + len(data) if newline < 0 else len(piece) - newline
            if length > LINE_LIMIT:
                raise BackendProtocolError(f"expected lines of JSON, got one of more than {LINE_LIMIT} bytes")
            yield _LINE_END.sub(lambda end: f"\\u{ord(end[0].decode()):04x}".encode(), piece.removesuffix(held))
        yield held

    async def aclose(self) -> None:
        await self._stream.aclose()


def _parse(address: str) -> httpx.URL:
    """Read an address as Ollama's client does: scheme, port and path may be missing."""
    try:
        local = f"127.0.0.1{address}" if address.startswith(":") else address
        url = httpx.URL(local if "://" in local else f"http://{local}")
    except (httpx.InvalidURL, ValueError) as error:
        raise UsageError(f"expected the address of Ollama, such as 127.0.0.1:11434, got {address[:100]!r}: {error}") from None
    return url if url.port or "://" in address else url.copy_with(port=11434)


def _tagged(name: str | None) -> str:
    """Add the tag that Ollama adds: `gemma3` is `gemma3:latest`."""
    name = name or ""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
