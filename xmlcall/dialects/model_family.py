"""In which wire format a model was trained to write calls, from its chat template or, without one, from its name.

The template is the surer sign: it holds the tags that it teaches. A format fits if all tags that open its calls stand there; of
several that fit, the one with most text of tags, since `<tool_call>` alone is a part of three formats. What is found is a hint
for people and for the choice of a prompt; reading never depends on it, because models write other formats, too.
"""

import functools
from collections.abc import Mapping
from typing import Final

import regex

from . import DIALECTS, Dialect

__all__ = ["family_of"]

_OPENERS: Final = ("block_open", "call_open", "parameter_open", "name_end", "quote")
# Formats of prompts and clients, which no model was trained on.
_OWN: Final = frozenset({"function_calls", "prefixed", "escaped", "invoke_tool_name", "tool_name", "cherry"})
_SHORTEST: Final = 4  # characters of a tag that tells anything

# Parts of models' names, in lower case, the more special ones first.
_NAMES: Final[Mapping[str, str]] = {
    "qwen-?3-?coder|qwen3\\.5|step-?3\\.5": "qwen",
    "qwen|hermes|qwq": "hermes",
    "llama-?4": "llama4",
    "llama-?3\\.2": "pythonic",
    "llama-?3": "llama3",
    "mi[sx]tral-?(?:7b|8x)|mistral-nemo": "mistral_list",
    "m[ia][sxg](?:tral|istral)|ministral|devstral|codestral": "mistral",
    "gemma-?4": "gemma4",
    "functiongemma": "functiongemma",
    "gemma": "tool_code",
    "gpt-?oss": "harmony",
    "kimi-?k3": "kimi_k3",
    "kimi": "kimi_k2",
    "deepseek-?v3\\.2|deepseek-?v4": "dsml",
    "deepseek": "deepseek",
    "glm-?[45]": "glm",
    "granite": "granite",
    "phi-?4": "functools",
    "command": "command",
    "apertus": "apertus",
    "minimax-?m3": "minimax_m3",
    "minimax": "minimax",
    "lfm-?2": "lfm2",
    "olmo-?3": "olmo3",
    "hunyuan": "hunyuan",
    "solar": "solar",
    "longcat": "longcat",
    "gigachat": "gigachat",
    "internlm": "internlm",
    "nemotron": "nemotron",
    "seed-?oss": "seed",
    "step-?3": "step3",
    "k2-?horizon": "k2_horizon",
    "plamo-?3": "plamo",
    "inkling": "inkling",
}


@functools.lru_cache(maxsize=64)
def family_of(template: str, name: str) -> str:
    """Return the name of the wire format that a model was most likely trained on; "" if nothing tells.

    Args:
        template: the text of its chat template; "" if it is not known.
    """
    fitting = [(length, row.name) for row in DIALECTS.values() if (length := _length_of_tags(row, template))]
    if fitting:
        return max(fitting)[1]
    lowered = name.lower()
    return next((family for part, family in _NAMES.items() if regex.search(part, lowered)), "")


def _length_of_tags(row: Dialect, template: str) -> int:
    """Return how much text of a row's tags stands in a template; 0 if one of them does not."""
    if row.name in _OWN or not template:
        return 0
    parts = [part.strip() for kind in _OPENERS if kind in row.written for part in row.written[kind].split("{name}")]
    parts = [part for part in parts if len(part) >= _SHORTEST]
    return sum(map(len, parts)) if parts and all(part in template for part in parts) else 0
