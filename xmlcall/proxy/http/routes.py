"""The paths of the proxy and their handlers.

A `QuestionPath` is a row: a path, a wire format, and the same path at a model server that uses the format. Requests without tools
are passed on to that server, rewritten from the parsed body with the server's name of the model; the answer comes back byte for
byte. The engine answers all other requests, in the caller's format.
"""

import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from ...backends.base import Relayed, Relaying
from ...backends.http import json_bytes
from ...errors import BackendProtocolError
from ...wire.openai import mapping, read_error, sampling_fields
from ..engine.engine import Engine
from ..formats import ollama
from ..formats.anthropic import MESSAGES, read_count
from ..formats.contract import ApiError, Format
from ..formats.ollama import OLLAMA_CHAT, OLLAMA_GENERATE, loaded
from ..formats.openai_chat import CHAT, mentions_tools
from ..formats.openai_responses import RESPONSES
from ..formats.tolerance import mended
from ..observed.observer import Observing, relaying
from .access import NAMES_SHOWN, Caller, Guard, ServedModel, ServedModels
from .exchange import Ending, Exchange, api_error
from .incoming import content_of, data_and_left_out, data_of, object_of, refuse_many

if TYPE_CHECKING:
    from ..engine.recording import Recording

log = logging.getLogger("xmlcall.proxy")

PATH_LIMIT: Final = 200  # characters of a path in the log
SAID_LIMIT: Final = 1000  # bytes of a model server's refusal that are read
ABOUT_LIMIT: Final = 16 * 1024 * 1024  # bytes of a model server's description of its models, licenses included
_UNKNOWN: Final = (404, 405, 501)  # 501: llama.cpp, if it was not started for embeddings or ranking
_INVALID: Final = (400, 422, 501)  # the statuses by which servers refuse `n` > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPath:
    """A path that asks the model; `upstream` is its twin at a model server, "" for none."""

    path: str
    form: Format
    upstream: str = ""
    is_answered: bool = True  # whether the engine may answer; otherwise requests are only passed on


QUESTIONS: Final = (
    QuestionPath(path="/v1/chat/completions", form=CHAT, upstream="/chat/completions"),
    QuestionPath(path="/v1/responses", form=RESPONSES),
    QuestionPath(path="/v1/messages", form=MESSAGES),
    QuestionPath(path="/api/chat", form=OLLAMA_CHAT, upstream="/api/chat"),
    QuestionPath(path="/api/generate", form=OLLAMA_GENERATE, upstream="/api/generate"),
)

# Paths without tools.
RELAYED: Final = (
    QuestionPath(path="/v1/completions", form=CHAT, upstream="/completions", is_answered=False),
    QuestionPath(path="/v1/embeddings", form=CHAT, upstream="/embeddings", is_answered=False),
    QuestionPath(path="/v1/rerank", form=CHAT, upstream="/rerank", is_answered=False),
    QuestionPath(path="/api/embed", form=OLLAMA_CHAT, upstream="/api/embed", is_answered=False),
    QuestionPath(path="/api/embeddings", form=OLLAMA_CHAT, upstream="/api/embeddings", is_answered=False),
)

_TEXTS: Final = frozenset({"/v1/completions"})  # the paths among these whose answer is text


def format_of(path: str) -> Format:
    """Return the wire format in which a path's errors are written."""
    found = next((question.form for question in (*QUESTIONS, *RELAYED) if path.startswith(question.path)), None)
    return found or (OLLAMA_CHAT if path.startswith("/api/") else CHAT)


@dataclass(frozen=True, slots=True)
class Handler:
    """An ASGI app for one path: it applies the guard, logs, and writes errors in the caller's format."""

    served: ServedModels
    guard: Guard
    form: Format
    answer: "Responder"
    ending: Ending
    observed: Callable[[Request], Observing]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, started = Request(scope, receive), time.monotonic()
        observing, headers = self.observed(request), self.guard.cors(request.headers.get("origin"))
        exchange = Exchange(receive, send, self.form, headers, ending=self.ending, observing=observing)
        try:
            is_preflight = request.method == "OPTIONS"
            key = self.guard.check(request.headers, is_preflight=is_preflight)
            if key is not None:
                observing.key = key.name
            if is_preflight:
                await exchange.json({})
            else:
                await self.answer(Caller(self.served, key), request, exchange)
        except ClientDisconnect:
            exchange.leave()
        except Exception as error:
            failed = api_error(error)
            if not exchange.status:
                await exchange.fail(failed)
        finally:
            facts = observing.over(status=exchange.status, error=exchange.error, has_left=exchange.has_left)
            exchange.recorded()
        failure = f": {exchange.failure}" if exchange.failure else ""
        path = quote(request.url.path[:PATH_LIMIT])  # so that no caller can write lines or colours into the log
        line = (request.method, path, exchange.status, time.monotonic() - started, failure)
        log.info("%s %s %s, %.2f s%s", *line, extra={"facts": {**facts, "path": path}})


Responder = Callable[[Caller, Request, Exchange], Awaitable[None]]


# -- questions ---------------------------------------------------------------------------------------------------------


def asking(question: QuestionPath) -> Responder:
    async def answer(caller: Caller, request: Request, exchange: Exchange) -> None:
        recording = exchange.recording = _recording(caller.served.engine, question, request)
        assert exchange.observing is not None
        observing = exchange.observing
        data, left_out = data_and_left_out(await content_of(request))
        async with caller.using(data.get("model")) as model:
            for word in left_out:
                model.engine.say_once(
                    f"fields with {word!r} in their names are left out (said once): they may choose other models, addresses or "
                    "files"
                )
            observing.model = model.name
            if recording is not None:
                recording.is_about(model.name)
            await _answer(model.engine, question, data, exchange)

    return answer


async def _answer(engine: Engine, question: QuestionPath, data: Mapping[str, Any], exchange: Exchange) -> None:
    """Pass a request on to the model server, or have the engine answer it."""
    recording, observing = exchange.recording, exchange.observing
    assert observing is not None
    if opened := await _relayed(engine, question, data):
        if recording is not None:
            recording.relayed(data, question.form.name)
        passed = relaying(opened, observing, engine.backend.capabilities.server)
        await exchange.relay(_in_our_words(passed, question, data))
    elif question.is_answered:
        await _answered(engine, question.form, data, exchange, observing)
    else:
        raise _missing(question.path)


def _answered(engine: Engine, form: Format, data: Mapping[str, Any], exchange: Exchange, observing: Observing) -> Awaitable[None]:
    refuse_many(data)
    body = _mended(engine, data, form)
    asked = form.read(body)
    chat = replace(asked.request, whole=body)
    if asked.shape.get("load"):
        return exchange.json(loaded(asked))
    if exchange.recording is not None:
        exchange.recording.asked(chat)
        observing.recording = exchange.recording
    events = engine.respond(chat, recording=observing)
    return (exchange.stream if asked.stream else exchange.whole)(events, asked)


def _recording(engine: Engine, question: QuestionPath, request: Request) -> "Recording | None":
    """Record a request if there is a recorder; requests without a text answer are skipped: they are many and show nothing."""
    if engine.recorder is None or not (question.is_answered or question.path in _TEXTS):
        return None
    from ..engine.recording import Recording, client_of  # only here, because nothing else needs their imports

    return Recording(engine.recorder, client=client_of(request.headers.get("user-agent", "")), model=engine.model)


def _missing(path: str, said: str = "") -> ApiError:
    words = f": it said {said[:SAID_LIMIT]!r}" if said else ""
    return ApiError(f"the model server has no {path}, and xmlcall only passes it on{words}", status=404, code="not_found")


def _several(n: int, said: str) -> ApiError:
    words = f" (it said {said[:SAID_LIMIT]!r})" if said else ""
    return ApiError(f"n: expected 1, got {n}, which the model server refuses{words}: ask once for each answer", param="n")


def _in_our_words(
    opened: AbstractAsyncContextManager[Relayed], question: QuestionPath, data: Mapping[str, Any]
) -> AbstractAsyncContextManager[Relayed]:
    """Pass on an answer, except for two refusals in which the model server does not explain what to do."""
    if not question.is_answered:
        return _unless_refused(opened, _UNKNOWN, partial(_missing, question.path))
    n = data.get("n")
    if question.form is CHAT and isinstance(n, int) and n > 1:
        return _unless_refused(opened, _INVALID, partial(_several, n))
    return opened


@asynccontextmanager
async def _unless_refused(
    opened: AbstractAsyncContextManager[Relayed], refusals: Container[int], error: Callable[[str], ApiError]
) -> AsyncIterator[Relayed]:
    async with opened as relayed:
        if relayed.status in refusals:
            said = b""
            async for chunk in relayed.chunks:
                said += chunk[:SAID_LIMIT]
                if len(said) >= SAID_LIMIT:
                    break
            raise error(read_error(said.decode("utf-8", "replace")).message)
        yield relayed


def _mended(engine: Engine, data: Mapping[str, Any], form: Format) -> Mapping[str, Any]:
    """Correct harmless deviations, and log each kind once."""
    if engine.strict:
        return data
    body, notes = mended(data, form.name)
    for note in notes:
        engine.say_once(f"{form.name}: {note} (said once; --strict refuses such requests)")
    return body


async def _relayed(
    engine: Engine, question: QuestionPath, data: Mapping[str, Any]
) -> AbstractAsyncContextManager[Relayed] | None:
    """Return the model server's answer to the same request, if the proxy has nothing to add; else None."""
    backend = engine.backend.inner
    if not (question.upstream and question.form.name == engine.wire and isinstance(backend, Relaying)):
        return None
    if question.is_answered and (engine.own or mentions_tools(data)):
        return None  # even if the server has function calling, because it may leave a call in the text
    usual = engine.asking.sampled(backend.capabilities) if question.is_answered else {}
    if usual and engine.wire == "ollama":
        data = {**data, "options": {**usual, **mapping(data.get("options"))}}
    elif usual:
        data = {**sampling_fields(usual, is_llama=backend.capabilities.server == "llama.cpp"), **data}
    return engine.backend.relay("POST", question.upstream, json_bytes({**data, "model": engine.model}))


# -- descriptions of the models ----------------------------------------------------------------------------------------


def _model(engine: Engine, name: str) -> dict[str, Any]:
    """Describe the model for clients of OpenAI and Anthropic, with the context length under vLLM's and OpenRouter's names."""
    openai = {"id": name, "object": "model", "created": 0, "owned_by": "xmlcall"}
    length = engine.backend.capabilities.context_length
    size = {"max_model_len": length, "context_length": length} if length is not None else {}
    return openai | {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"} | size


async def _listed(caller: Caller) -> tuple[ServedModel, ...]:
    """Return the models that a caller may use; lists of model servers are read again."""
    await caller.served.reread()
    return caller.models


async def _models(caller: Caller, request: Request, exchange: Exchange) -> None:
    models = [_model(model.engine, model.name) for model in await _listed(caller)]
    ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]} if models else {"first_id": None, "last_id": None}
    await exchange.json({"object": "list", "data": models, "has_more": False} | ends)


async def _one_model(caller: Caller, request: Request, exchange: Exchange) -> None:
    if name := request.path_params["name"]:
        async with caller.using(name) as model:
            await exchange.json(_model(model.engine, name))
    else:
        await _models(caller, request, exchange)


async def _props(caller: Caller, request: Request, exchange: Exchange) -> None:
    """Report the context length like llama.cpp's server, for clients that are set up for it; some of them name a model."""
    async with caller.using(request.query_params.get("model")) as model:
        length = model.engine.backend.capabilities.context_length
    size = {"n_ctx": length} if length is not None else {}
    await exchange.json({"default_generation_settings": size, "total_slots": 1, "model_alias": model.name, **size})


async def _alive(caller: Caller, request: Request, exchange: Exchange) -> None:
    models = caller.models
    await exchange.json({"status": "ok", "model": models[0].name if models else ""})


async def _count(caller: Caller, request: Request, exchange: Exchange) -> None:
    data = data_of(await content_of(request))
    refuse_many(data)
    async with caller.using(data.get("model")) as model:
        asked = read_count(_mended(model.engine, data, MESSAGES))
        tokens = await model.engine.count_tokens(asked.request)
    await exchange.json({"input_tokens": tokens})


def _ollama(path: str, write: Callable[[Sequence[ServedModel]], dict[str, Any]]) -> Responder:
    """Make the responder of one of Ollama's small paths; if a single model is served, a real Ollama's own answer is used."""

    async def answer(caller: Caller, request: Request, exchange: Exchange) -> None:
        await content_of(request)
        body = await _about(caller.served.engine, "GET", path) if caller.served.takes_any_name else None
        await exchange.json(write(await _listed(caller)) if body is None else body)

    return answer


async def _about(engine: Engine, method: str, path: str, content: bytes = b"") -> dict[str, Any] | None:
    """Ask an Ollama about itself; None if there is none, or it lacks the path. Rewritten, its JSON cannot be a page."""
    if engine.wire != "ollama" or not isinstance(engine.backend.inner, Relaying):
        return None
    said = bytearray()
    async with engine.backend.relay(method, path, content) as relayed:
        if 400 <= relayed.status < 500:
            return None
        if relayed.status != 200:
            raise BackendProtocolError(f"{path}: the model server answered with status {relayed.status}")
        async for chunk in relayed.chunks:
            said += chunk
            if len(said) > ABOUT_LIMIT:
                raise BackendProtocolError(f"{path}: the model server answered with more than {ABOUT_LIMIT} bytes")
    try:
        body = object_of(said)
    except ValueError as error:
        raise BackendProtocolError(f"{path}: the model server answered with something else than JSON: {error}") from None
    if path in _SHAPES and not _SHAPES[path](body):
        raise BackendProtocolError(f"{path}: the model server answered with JSON of another shape")
    return body


def _lists_models(body: Mapping[str, Any]) -> bool:
    models = body.get("models")
    return isinstance(models, list) and all(isinstance(model, dict) for model in models)


_SHAPES: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    "/api/tags": _lists_models,
    "/api/ps": _lists_models,
    "/api/version": lambda body: isinstance(body.get("version"), str),
}


def _running(models: Sequence[ServedModel]) -> dict[str, Any]:
    """List the models that are open; the context of one that a server lists is known only then."""
    lengths = {model.name: (model, model.engine.backend.capabilities.context_length) for model in models}
    return ollama.running({name: length for name, (model, length) in lengths.items() if length is not None or model.use is None})


async def _pull(caller: Caller, request: Request, exchange: Exchange) -> None:
    """Report success if the model is served here; refuse any other model."""
    content = await content_of(request)
    data = data_of(content) if content else {}
    name = data.get("model") or data.get("name")
    models = await _listed(caller)
    if not isinstance(name, str) or not any(ollama.is_named(model.name, name) for model in models):
        here = ", ".join(repr(model.name) for model in models[:NAMES_SHOWN])
        message = f"model: only {here} is served here, got {name!r:.80}: fetch others with the model server itself"
        raise ApiError(message, status=404, code="not_found")
    if data.get("stream") is False:
        await exchange.json(ollama.PULLED[-1])
        return

    async def lines() -> AsyncIterator[bytes]:
        for each in ollama.PULLED:
            yield json.dumps(each).encode() + b"\n"

    relayed = Relayed(status=200, media_type=OLLAMA_CHAT.media_type, chunks=lines())
    await exchange.relay(nullcontext(relayed))


async def _refuse_change(caller: Caller, request: Request, exchange: Exchange) -> None:
    message = f"{request.url.path}: xmlcall does not change the model server's models: do it with the model server itself"
    raise ApiError(message, status=403, code="not_allowed")


async def _show(caller: Caller, request: Request, exchange: Exchange) -> None:
    """Describe a model, and add `tools` to its capabilities, because the proxy provides them."""
    content = await content_of(request)
    asked = {} if caller.served.takes_any_name else data_of(content)
    async with caller.using(asked.get("model") or asked.get("name")) as model:
        engine = model.engine
        shown = ollama.show(model.name, engine.backend.capabilities.context_length)
        answer = await _about(engine, "POST", "/api/show", json_bytes({"model": engine.model}))
    await exchange.json(shown if answer is None else ollama.with_tools(answer))


class Endpoint(NamedTuple):
    path: str
    method: str
    answer: Responder


ENDPOINTS: Final = (
    *(Endpoint(question.path, "POST", asking(question)) for question in (*QUESTIONS, *RELAYED)),
    Endpoint("/v1/messages/count_tokens", "POST", _count),
    Endpoint("/v1/models", "GET", _models),
    Endpoint("/v1/models/{name:path}", "GET", _one_model),
    Endpoint("/api/tags", "GET", _ollama("/api/tags", lambda models: ollama.tags(each.name for each in models))),
    Endpoint("/api/show", "POST", _show),
    Endpoint("/api/pull", "POST", _pull),
    *(Endpoint(path, method, _refuse_change) for method, path in ollama.REFUSED),
    Endpoint("/api/version", "GET", _ollama("/api/version", lambda models: {"version": ollama.VERSION})),
    Endpoint("/api/ps", "GET", _ollama("/api/ps", _running)),
    Endpoint("/props", "GET", _props),
    Endpoint("/", "GET", _alive),
)
