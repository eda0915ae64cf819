"""The `ollama` package's clients, with tool calling for every model: `xmlcall.clients.ollama.Client` for `ollama.Client`.

Only `chat` differs. Its requests go through a proxy inside this process, one for each model, and from there to the same Ollama.
The package's own types drop much of a call (ollama 0.6.3): the ids of calls and results, and everything in a tool's schema except
the type, description and enum of its top-level parameters. So requests are written here, and answers are read into types that
keep the ids.

Source: Ollama, docs/api.md; ollama 0.6.3, `_client.py` and `_types.py` for arguments and their effects.
"""

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import httpx
import ollama
from pydantic import BaseModel

from ..backends.ollama import OllamaBackend
from ..types.calls import Tool
from ..wire.ollama import JsonLines
from .transports import ADDRESS, AsyncTransport, Transport

if TYPE_CHECKING:
    from ..turn.asking import Mode

PATH = "/api/chat"

Messages = Sequence[Mapping[str, Any] | ollama.Message] | None


class CallWithId(ollama.Message.ToolCall):
    """A call, with the id that its result names as `tool_call_id`."""

    id: str | None = None


class MessageWithIds(ollama.Message):
    """A message whose calls have ids; a message of role `tool` names the call that it answers."""

    tool_calls: Sequence[CallWithId] | None = None
    tool_call_id: str | None = None


Message = MessageWithIds  # the name that the `ollama` package gives its own


class ChatResponse(ollama.ChatResponse):
    """An answer, or a piece of one that is streamed."""

    message: MessageWithIds


class ChatFields(TypedDict, total=False):
    """The further arguments of `chat`, as the `ollama` package has them; `tools` may also be `xmlcall.Tool`s."""

    tools: Sequence[Mapping[str, Any] | ollama.Tool | Tool | Callable[..., Any]] | None
    think: bool | str | None
    logprobs: bool | None
    top_logprobs: int | None
    format: Literal["", "json"] | dict[str, Any] | None
    options: Mapping[str, Any] | ollama.Options | None
    keep_alive: float | str | None


class Client(ollama.Client):
    """An `ollama.Client` whose `chat` gives tools to any model. Use it in a `with` block, or close it.

    Args:
        host: as for `ollama.Client`: None means `OLLAMA_HOST`, or else 127.0.0.1:11434.
        mode: `xml`: calls are read from the text; `native`: Ollama's own function calling; `auto`: native if a test call works.
        lang: language of the tool prompt, `en` or `zh`.
        options: as for `ollama.Client`; a chat uses only `timeout`.
    """

    def __init__(self, host: str | None = None, *, mode: "Mode" = "auto", lang: str = "en", **options: Any) -> None:
        super().__init__(host, **options)
        self._host, self._mode, self._lang, self._timeout = host, mode, lang, options.get("timeout")
        self._lock = threading.Lock()
        self._clients: dict[str, httpx.Client] = {}

    @overload  # type: ignore[override]  # the package's own two overlap
    def chat(
        self, model: str = "", messages: Messages = None, *, stream: Literal[False] = False, **fields: Unpack[ChatFields]
    ) -> ChatResponse: ...

    @overload
    def chat(
        self, model: str = "", messages: Messages = None, *, stream: Literal[True], **fields: Unpack[ChatFields]
    ) -> Iterator[ChatResponse]: ...

    def chat(
        self, model: str = "", messages: Messages = None, *, stream: bool = False, **fields: Unpack[ChatFields]
    ) -> ChatResponse | Iterator[ChatResponse]:
        """Ask a model (see `ollama.Client.chat`).

        Args:
            model: its name, as in `ollama list`.
            messages: the conversation. A result may name its call as `tool_call_id`; otherwise it is matched by tool and order.
            stream: whether the answer arrives in pieces; closing the iterator ends the generation.
            fields: see `ChatFields`.

        Raises:
            ollama.ResponseError: Ollama refused, or the model's calls cannot run.
            ConnectionError: Ollama does not answer.
            UsageError: the model's name is missing, or a function cannot be a tool.
        """
        content = _body(model, messages, stream, fields)
        client = self._client_of(model)
        if stream:
            return _streamed(client, content)
        return _whole(client.post(PATH, content=content))

    def close(self) -> None:
        """Close the connection to Ollama and all that chats have opened."""
        super().close()  # type: ignore[no-untyped-call]
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _client_of(self, model: str) -> httpx.Client:
        with self._lock:
            if model not in self._clients:
                transport = Transport(OllamaBackend(model, host=self._host), mode=self._mode, lang=self._lang)
                self._clients[model] = httpx.Client(transport=transport, base_url=ADDRESS, timeout=self._timeout)
            return self._clients[model]


class AsyncClient(ollama.AsyncClient):
    """`ollama.AsyncClient`, whose `chat` gives tools to any model. Use it in an `async with` block, or close it.

    The arguments are those of `Client`.
    """

    def __init__(self, host: str | None = None, *, mode: "Mode" = "auto", lang: str = "en", **options: Any) -> None:
        super().__init__(host, **options)
        self._host, self._mode, self._lang, self._timeout = host, mode, lang, options.get("timeout")
        self._clients: dict[str, httpx.AsyncClient] = {}

    @overload  # type: ignore[override]  # the package's own two overlap
    async def chat(
        self, model: str = "", messages: Messages = None, *, stream: Literal[False] = False, **fields: Unpack[ChatFields]
    ) -> ChatResponse: ...

    @overload
    async def chat(
        self, model: str = "", messages: Messages = None, *, stream: Literal[True], **fields: Unpack[ChatFields]
    ) -> AsyncIterator[ChatResponse]: ...

    async def chat(
        self, model: str = "", messages: Messages = None, *, stream: bool = False, **fields: Unpack[ChatFields]
    ) -> ChatResponse | AsyncIterator[ChatResponse]:
        content = _body(model, messages, stream, fields)
        client = self._client_of(model)
        if stream:
            return _streamed_async(client, content)
        return _whole(await client.post(PATH, content=content))

    async def close(self) -> None:
        """Close the connection to Ollama and all that chats have opened."""
        await super().close()  # type: ignore[no-untyped-call]
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def _client_of(self, model: str) -> httpx.AsyncClient:
        if model not in self._clients:
            transport = AsyncTransport(OllamaBackend(model, host=self._host), mode=self._mode, lang=self._lang)
            self._clients[model] = httpx.AsyncClient(transport=transport, base_url=ADDRESS, timeout=self._timeout)
        return self._clients[model]


# -- requests ----------------------------------------------------------------------------------------------------------


def _body(model: str, messages: Messages, stream: bool, fields: ChatFields) -> bytes:
    if unknown := fields.keys() - ChatFields.__annotations__.keys():
        raise TypeError(f"chat() got an unexpected keyword argument {min(unknown)!r}")
    given = {name: _plain(value) for name, value in fields.items() if value is not None and name != "tools"}
    tools = [_tool(tool) for tool in fields.get("tools") or ()]
    body = {"model": model, "messages": [_message(message) for message in messages or ()], "tools": tools, "stream": stream}
    return json.dumps(body | given).encode()  # in ASCII, because UTF-8 cannot encode lone surrogates


def _plain(value: Any) -> Any:
    """Make a JSON value from objects of the package's types; their own `model_dump` drops the fields of subclasses."""
    match value:
        case ollama.Image():
            return value.model_dump()
        case BaseModel():
            fields = type(value).model_fields
            given = ((fields[name].alias or name if name in fields else name, field) for name, field in value)
            return {name: _plain(field) for name, field in given if field is not None}
        case Mapping():
            return {name: _plain(field) for name, field in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value


def _message(message: Mapping[str, Any] | ollama.Message) -> dict[str, Any]:
    data: dict[str, Any] = _plain(message)
    if images := data.get("images"):  # in a plain message: paths, bytes, or base64
        data["images"] = [ollama.Image(value=image).model_dump() for image in images]
    return data


def _tool(tool: Mapping[str, Any] | ollama.Tool | Tool | Callable[..., Any]) -> Any:
    if not isinstance(tool, Tool) and callable(tool):
        tool = Tool.from_function(tool)
    if not isinstance(tool, Tool):
        return _plain(tool)
    function = {"name": tool.name, "description": tool.description, "parameters": _plain(tool.input_schema)}
    return {"type": "function", "function": function}


# -- answers -----------------------------------------------------------------------------------------------------------


def _streamed(client: httpx.Client, content: bytes) -> Iterator[ChatResponse]:
    lines = JsonLines()
    with client.stream("POST", PATH, content=content) as response:
        if response.is_error:
            response.read()
            raise _failure(response)
        for data in response.iter_bytes():
            yield from map(_part, filter(None, lines.feed(data)))
        yield from map(_part, lines.close())


async def _streamed_async(client: httpx.AsyncClient, content: bytes) -> AsyncIterator[ChatResponse]:
    lines = JsonLines()
    async with client.stream("POST", PATH, content=content) as response:
        if response.is_error:
            await response.aread()
            raise _failure(response)
        async for data in response.aiter_bytes():
            for part in map(_part, filter(None, lines.feed(data))):
                yield part
        for part in map(_part, lines.close()):
            yield part


def _whole(response: httpx.Response) -> ChatResponse:
    if response.is_error:
        raise _failure(response)
    return _part(response.content)


def _part(line: bytes) -> ChatResponse:
    data = json.loads(line)
    if error := data.get("error"):
        raise ollama.ResponseError(error)
    return ChatResponse.model_validate(data)


def _failure(response: httpx.Response) -> Exception:
    error = ollama.ResponseError(response.text, response.status_code)
    return ConnectionError(error.error) if response.status_code == httpx.codes.SERVICE_UNAVAILABLE else error
