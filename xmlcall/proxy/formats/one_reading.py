"""One reading of a body, which all who look at a request share.

JSON can hold a key twice, and its readers differ: Go, in which Ollama is written, takes `Model` for `model`, and the last of both
holds; others know `model` alone. So what was checked here could be another request there. A name in other letters becomes the
name that it means, and each name stands once. Nothing goes on that would have a model server take another model, address or file.
"""

import re
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
# Words in names of fields that no format here has, by what a model server would take from them. Each gateway has its own
# (LiteLLM's `user_config`, OpenRouter's `preset`, SGLang's `lora_path` and `bootstrap_host`, vLLM's `kv_transfer_params`), and
# new ones come; fields of sampling have none of these words.
_WORDS: Final = {
    "another model": "adapter adapters deployment draft engine fallback fallbacks lora loras model models preset presets",
    "an address": "address api apibase azure aws base baseurl bootstrap endpoint endpoints host hosts hostname litellm port "
    "proxy provider providers remote router server servers source sources transfer uri uris url urls vertex webhook webhooks",
    "a key": "apikey credential credentials header headers key keys langfuse password secret",
    "a file": "dir directory file filename files folder path paths",
    "a program": "callback callbacks config plugin plugins processor processors template templates",
    "anything": "extra mock override overrides",
}
_ELSEWHERE: Final = frozenset(word for words in _WORDS.values() for word in words.split())
_HARMLESS: Final = frozenset({"chat_template_kwargs", "mm_processor_kwargs", "prompt_cache_key"})
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9\u017f\u212a]+")  # Go folds the long s and the Kelvin sign, too


def one_reading(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Give each field of a body its one name, and leave out what would have a model server go elsewhere.

    Returns:
        The body, and what the names of fields have that are left out.
    """
    named = _named(data)
    words = {name: word for name in named if (word := _word_of_elsewhere(name))}
    body = {name: value for name, value in named.items() if name not in words}
    if isinstance(options := body.get("options"), dict):
        body["options"] = _named(options)
    if isinstance(messages := body.get("messages"), list):
        body["messages"] = [_named(message) if isinstance(message, dict) else message for message in messages]
    return body, sorted({*words.values()})


def _word_of_elsewhere(name: str) -> str:
    """Return the word by which the name of a field chooses another model, an address or a file; "" if none does."""
    if name in _NAMES or name.casefold() in _HARMLESS:
        return ""
    return next((word for part in _HUMP.split(name) if (word := part.casefold()) in _ELSEWHERE), "")


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
