"""A LiteLLM provider whose models our own engine asks, in LiteLLM's process; the hooks of `litellm` can only rewrite.

    litellm_settings:
      custom_provider_map:
        - {provider: xmlcall, custom_handler: xmlcall.integrations.litellm_provider.handler}
    model_list:
      - model_name: tiny
        litellm_params: {model: xmlcall/tiny, api_base: "http://127.0.0.1:8080/v1"}
        model_info: {xmlcall: {mode: xml, call_threshold: auto}}

A model of this provider works as with `xmlcall serve`: the model is asked again if a call cannot run. LiteLLM sees a model that
calls tools, so its logs, its fallbacks and its other APIs work without changes. The address is that of an OpenAI-compatible
server.

`model_info` says how a model is asked, because requests cannot override it; fields of `litellm_params` arrive mixed with those
of the request. The first request for a model opens its engine, which lives as long as the process, because LiteLLM
does not notify a provider when it ends.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from litellm import CustomLLM  # type: ignore[import-not-found]
from litellm.llms.custom_llm import CustomLLMError  # type: ignore[import-not-found]
from litellm.types.utils import Choices, Message, ModelResponseStream, Usage  # type: ignore[import-not-found]

from ..backends.connect import connect
from ..errors import UsageError
from ..proxy.engine.engine import Engine
from ..proxy.formats.contract import Asked, ResponseEnded, whole_response
from ..proxy.formats.openai_chat import CHAT, usage_dict
from ..proxy.formats.tolerance import mended
from ..proxy.http.exchange import api_error
from .tools_as_text import SETTINGS, ChoiceWriter

MOST: Final = 100  # engines, because each one has connections of its own

_OPTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "mode": (str,),
    **{name: (kind,) for name, kind in SETTINGS.items()},
    "call_threshold": (str, float, int),
    "tool_tokens": (int,),
}
_LITELLMS: Final = ("stream", "stream_options", "max_retries", "xmlcall")  # fields of the request that are not for the model


class EngineProvider(CustomLLM):  # type: ignore[misc]
    """The provider. One object serves all models."""

    def __init__(self) -> None:
        super().__init__()
        self._engines: dict[str, Engine] = {}
        self._opening: dict[str, asyncio.Lock] = {}  # one each, so that a slow model server does not delay the others

    async def acompletion(self, *_: Any, **call: Any) -> Any:
        """Answer a request in one piece: fill `model_response` among the arguments with which LiteLLM calls providers."""
        async with _errors_converted():
            asked, engine = _read(call), await self._engine(call)
            async with aclosing(engine.respond(asked.request)) as events:
                answer = whole_response([event async for event in events])
        written, response = CHAT.whole(asked, answer), call["model_response"]
        choice = written["choices"][0]
        response.choices = [Choices(message=Message(**choice["message"]), finish_reason=choice["finish_reason"])]
        response.model, response.usage = call["model"], Usage(**written["usage"])
        return response

    async def astreaming(self, *_: Any, **call: Any) -> AsyncGenerator[Any]:
        """Answer a request in pieces: yield LiteLLM's chunks."""
        async with _errors_converted():
            asked, engine = _read(call), await self._engine(call)
            writer = ChoiceWriter(asked)
            async with aclosing(engine.respond(asked.request)) as events:
                async for event in events:
                    for choices in writer.write(event):
                        if isinstance(event, ResponseEnded):
                            # LiteLLM's other form of chunks; from this form it takes the usage instead of estimating it.
                            end = {"text": "", "is_finished": True, "finish_reason": choices[0]["finish_reason"], "index": 0}
                            yield end | {"usage": usage_dict(event.usage)}
                        else:
                            yield ModelResponseStream(model=call["model"], choices=choices)

    async def _engine(self, call: Mapping[str, Any]) -> Engine:
        options = _options((call["litellm_params"].get("model_info") or {}).get("xmlcall"))
        key = json.dumps([call["api_base"], call["model"], call["api_key"], options], sort_keys=True)
        if key not in self._opening and len(self._opening) >= MOST:
            raise UsageError(f"expected at most {MOST} models of this provider")
        async with self._opening.setdefault(key, asyncio.Lock()):
            if key not in self._engines:
                backend = connect(f"{call['api_base']}#{call['model']}", api_key=call["api_key"])
                self._engines[key] = await Engine(backend, **options).__aenter__()
            return self._engines[key]


def _read(call: Mapping[str, Any]) -> Asked:
    """Read a request; LiteLLM has sorted its fields already."""
    fields = {name: value for name, value in call["optional_params"].items() if name not in _LITELLMS}
    body, _ = mended({"model": call["model"], "messages": call["messages"], **fields}, CHAT.name)
    return CHAT.read(body)


def _options(given: Any) -> dict[str, Any]:
    """Read the settings of a model; None and true mean an empty table."""
    table = {} if given is None or given is True else given
    if not isinstance(table, Mapping) or any(type(value) not in _OPTIONS.get(name, ()) for name, value in table.items()):
        raise UsageError(f"model_info: xmlcall: expected a table of {', '.join(_OPTIONS)}, got {given!r:.200}")
    return dict(table)


@asynccontextmanager
async def _errors_converted() -> AsyncGenerator[None]:
    """Convert errors into LiteLLM's, with the status that our own proxy would send."""
    try:
        yield
    except Exception as error:
        failed = api_error(error)
        raise CustomLLMError(status_code=failed.status, message=failed.message) from error


handler: Final = EngineProvider()
"""The provider, for `custom_provider_map`."""
