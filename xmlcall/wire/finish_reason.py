"""Why a reply ended: the words of all servers, read as the few of `FinishReason`. Pure.

Only here is a server's own word looked at. What is above compares with `FinishReason`, so that a reply which is whole for one
part of the program is whole for all.
"""

from collections.abc import Mapping
from typing import Final

from ..types.completion import FinishReason

__all__ = ["finish_reason_of"]

# OpenAI's word comes first in each row. Then: llama.cpp's native API (`eos`, `word`, `limit`), Ollama (`load`, `unload`), TGI
# (`eos_token`), Anthropic (`end_turn`, `stop_sequence`, `tool_use`, `max_tokens`, `refusal`), Mistral (`model_length`), Cohere
# (`complete`, `tool_call`), Gemini (`stop`, `max_tokens`, `safety`, `recitation` ..., in capitals), Bedrock (`content_filtered`).
# Ollama says `load` where it has loaded the model and generated nothing: an empty reply, which is asked for again as any other.
_WORDS: Final[Mapping[FinishReason, str]] = {
    "stop": "stop eos eos_token end end_turn stop_sequence stop_token word complete completed finished load unload",
    "tool_calls": "tool_calls tool_call tool_use function_call",
    "length": "length max_tokens max_output_tokens max_length model_length limit model_context_window_exceeded",
    "content_filter": "content_filter content_filtered refusal safety recitation blocklist prohibited_content spii",
}
_REASONS: Final[Mapping[str, FinishReason]] = {word: reason for reason, words in _WORDS.items() for word in words.split()}


def finish_reason_of(word: str) -> FinishReason:
    """Read a server's word for why a reply ended.

    Args:
        word: in any case of letters; "" if the server ended the reply without one.

    Returns:
        "stop" for no word; "other" for one that is not known here. A reply that ended for an unknown reason may be cut, and half
        a call must not run.
    """
    word = word.strip().lower()
    return _REASONS.get(word, "other") if word else "stop"
