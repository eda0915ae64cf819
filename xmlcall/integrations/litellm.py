"""Hooks for LiteLLM's proxy that give tool calls to models without them.

    litellm_settings:
      callbacks: xmlcall.integrations.litellm.handler
    model_list:
      - model_name: tiny
        litellm_params: {model: openai/tiny, api_base: "http://127.0.0.1:8080/v1", api_key: none}
        model_info: {xmlcall: true}

For a model marked like this, the tools of chat completions move into the prompt before the request is sent, and calls are read
from the reply's text (`tools_as_text`). All other requests pass unchanged. Written against LiteLLM 1.110.2, with three of its
hooks:

* `async_pre_call_hook` runs once per request, before a deployment is chosen, so a fallback gets the same prompt. It returns a new
  body and does not change the original, because LiteLLM calls the hook again with the original if it falls back this early.
* `async_post_call_success_hook` gets the whole answer, and `async_post_call_streaming_iterator_hook` the whole stream. The hook
  for single chunks could neither hold back a chunk nor turn one into two.

The proxy looks for each hook in the handler's own class, not in its base classes. The state that links a request to its reply is
keyed by the request's logging object, which lives as long as the request and is never sent. Fields of the request would be sent
on or logged, and its id is chosen by the caller.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from litellm.integrations.custom_logger import CustomLogger  # type: ignore[import-not-found]
from litellm.proxy import proxy_server  # type: ignore[import-not-found]
from litellm.proxy._types import ProxyException  # type: ignore[import-not-found]
from litellm.types.utils import Message, ModelResponse, ModelResponseStream  # type: ignore[import-not-found]

from ..errors import UsageError
from ..proxy.formats.contract import ApiError, Asked, ResponseEvent, whole_response
from ..proxy.formats.openai_chat import CHAT
from ..turn.asking import Asking
from .tools_as_text import ChoiceWriter, Rewriter, Rewritten, StreamedReply, read_asking

log = logging.getLogger("xmlcall.integrations")

_CALLS: Final = ("acompletion", "completion")  # other kinds of request have other bodies
_OWN_PROVIDER: Final = "xmlcall/"  # has the tools to itself (`litellm_provider`)


class ToolsAsText(CustomLogger):  # type: ignore[misc]
    """The hooks. One object serves all requests, and keeps a request's state only as long as the request's logging object lives.

    `otherwise` is for models whose `model_info` does not mention xmlcall; None leaves these models alone.
    """

    def __init__(self, otherwise: Asking | None = None) -> None:
        super().__init__()
        self._otherwise = otherwise
        self._rewriter = Rewriter()
        self._under_way: WeakKeyDictionary[Any, Rewritten] = WeakKeyDictionary()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any] | None:
        """Write the tools of a request into its prompt: return a new body, or None to pass the request on unchanged."""
        if call_type not in _CALLS:
            return None
        try:
            asking = self._asking(data.get("model"), getattr(user_api_key_dict, "team_id", None))
            rewritten = self._rewriter.rewritten(data, asking) if asking else None
        except ApiError as error:
            raise _converted(error) from None
        if rewritten is None:
            return None
        self._under_way[data["litellm_logging_obj"]] = rewritten
        return rewritten.over(data)

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> Any:
        """Read the calls out of a whole answer, which is changed in place."""
        rewritten = self._taken(data)
        if rewritten is None or rewritten.reading is None or not isinstance(response, ModelResponse):
            return response
        try:
            for choice in response.choices:
                _read_whole(choice, rewritten.asked, rewritten.reading())
        except ApiError as error:
            raise _converted(error) from None
        return response

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: AsyncIterator[Any], request_data: dict[str, Any]
    ) -> AsyncGenerator[Any]:
        """Read the calls out of a stream, and yield the chunks for the caller."""
        rewritten = self._taken(request_data)
        if rewritten is None or rewritten.reading is None:
            async for chunk in response:
                yield chunk
            return
        stream = _AnswerStream(rewritten.asked, rewritten.reading())
        try:
            async for chunk in response:  # to its end, even if nothing follows the calls, so that the proxy counts the usage
                for written in stream.chunks(chunk):
                    yield written
            for written in stream.end():
                yield written
        except ApiError as error:
            raise _converted(error) from None

    def _asking(self, model: Any, team: Any) -> Asking | None:
        """Return how a model is asked, from its first deployment that has any; None for models of our own provider."""
        router = proxy_server.llm_router
        known = router.registry().deployments(model_name=model, team_id=team) if router and isinstance(model, str) else None
        if any(str(deployment["litellm_params"].get("model")).startswith(_OWN_PROVIDER) for deployment in known or ()):
            return None
        given = (deployment.get("model_info") or {} for deployment in known or ())
        marks = [mark for info in given if (mark := info.get("xmlcall")) is not None]
        try:
            return read_asking(marks[0]) if marks else self._otherwise
        except UsageError as error:
            log.error("model_info of %r: %s", model, error)
            raise ApiError("the model is not configured rightly", status=500, kind="server_error") from None

    def _taken(self, data: Mapping[str, Any]) -> Rewritten | None:
        request = data.get("litellm_logging_obj")
        return None if request is None else self._under_way.pop(request, None)


# -- answers in LiteLLM's objects --------------------------------------------------------------------------------------


def _read_whole(choice: Any, asked: Asked, reading: StreamedReply) -> None:
    """Replace the written text by what was read from it; calls that the model server read itself stay."""
    if choice.message.tool_calls:
        return
    events = reading.feed(choice.message.content or "", getattr(choice.message, "reasoning_content", None) or "")
    events += reading.end(choice.finish_reason or "stop")
    written = CHAT.whole(asked, whole_response(events))["choices"][0]
    choice.message, choice.finish_reason = Message(**written["message"]), written["finish_reason"]


class _AnswerStream:
    """One streamed answer: the chunks that our own proxy would write, with the head of the original chunks."""

    def __init__(self, asked: Asked, reading: StreamedReply) -> None:
        self._writer = ChoiceWriter(asked)
        self._reading = reading
        self._last: Any = None
        self._has_ended = False

    def chunks(self, chunk: Any) -> Iterator[Any]:
        """Take a chunk and yield the chunks that go out."""
        choice = chunk.choices[0] if chunk.choices else None
        if self._last is None:
            yield _chunk(chunk, self._writer.begin())
        self._last = chunk
        if choice is not None and not self._has_ended:
            text, thought = choice.delta.get("content") or "", choice.delta.get("reasoning_content") or ""
            yield from self._written(self._reading.feed(text, thought))
            if choice.finish_reason:
                yield from self._ended(choice.finish_reason)
        if getattr(chunk, "usage", None) is not None or (choice is not None and choice.delta.get("tool_calls")):
            for each in chunk.choices:  # their other fields were already read
                each.finish_reason, each.delta.content, each.delta.reasoning_content = None, None, None
            yield chunk

    def end(self) -> Iterator[Any]:
        """Yield what is left after the last chunk."""
        if self._last is not None and not self._has_ended:
            yield from self._ended("stop")

    def _ended(self, finish_reason: str) -> Iterator[Any]:
        self._has_ended = True
        yield from self._written(self._reading.end(finish_reason))

    def _written(self, events: Iterable[ResponseEvent]) -> Iterator[Any]:
        return (_chunk(self._last, choices) for event in events for choices in self._writer.write(event))


def _chunk(like: Any, choices: list[dict[str, Any]]) -> Any:
    made = ModelResponseStream(id=like.id, created=like.created, model=like.model, choices=choices)
    made._hidden_params = getattr(like, "_hidden_params", {})
    return made


def _converted(error: ApiError) -> Exception:
    converted = ProxyException(
        message=error.message, type=error.kind, param=error.param or None, code=error.status, openai_code=error.code or None
    )
    assert isinstance(converted, Exception)
    return converted


handler: Final = ToolsAsText()
"""The hooks for models whose `model_info` has `xmlcall`."""

handler_for_all: Final = ToolsAsText(otherwise=Asking())
"""The hooks for all models except those whose `model_info` has `xmlcall: false`."""
