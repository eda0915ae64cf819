"""One reading of a body, which all who look at a request share.

JSON can hold a key twice, and its readers differ: Go, in which Ollama is written, takes `Model` for `model`, and the last of both
holds; others know `model` alone. So what was checked here could be another request there. A name in other letters becomes the
name that it means, and each name stands once. Nothing goes on that would have a model server take another model.
"""

from collections.abc import Mapping
from typing import Any, Final

from .anthropic import MessagesBody
from .ollama import OllamaChatBody, OllamaGenerateBody, OllamaMessage, OllamaOptions
from .openai_chat import ChatBody, ChatMessage
from .openai_responses import ResponsesBody

__all__ = ["one_reading"]

_BODIES: Final = (ChatBody, ResponsesBody, MessagesBody, OllamaChatBody, OllamaGenerateBody)
_NAMES: Final = frozenset(
    {
        *(name for body in (*_BODIES, ChatMessage, OllamaMessage, OllamaOptions) for name in body.model_fields),
        *("function_call", "functions", "input", "name", "num_ctx", "query"),
    }
)
# OpenRouter's and LiteLLM's ways to name other models, and where they are.
_ELSEWHERE: Final = frozenset(
    {"models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "api_base", "base_url", "model_list"}
)


def one_reading(data: Mapping[str, Any]) -> dict[str, Any]:
    """Give each field of a body its one name.

    Args:
        data: as JSON was read, the last of several equal keys.
    """
    body = {name: value for name, value in _named(data).items() if name.casefold() not in _ELSEWHERE}
    if isinstance(options := body.get("options"), dict):
        body["options"] = _named(options)
    if isinstance(messages := body.get("messages"), list):
        body["messages"] = [_named(message) if isinstance(message, dict) else message for message in messages]
    return body


def _named(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Bring names that are known into small letters; one that stands in these already holds."""
    if fields.keys() <= _NAMES:
        return fields
    found: dict[str, Any] = {}
    for name, value in fields.items():
        folded = name.casefold()  # also the long s and the Kelvin sign, which Go folds, too
        meant = folded if folded in _NAMES else name
        if meant == name or meant not in fields:
            found[meant] = value
    return found
