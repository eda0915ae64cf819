"""Guesses the wire format that a model was trained on, from its chat template or, without one, from its name.

The template is more reliable, because it contains the tags that it teaches. A format fits if the template contains all tags that
open its calls. If several fit, the one with the most tag text wins, because `<tool_call>` alone belongs to three formats. The
result is a hint for people and for the choice of a prompt; reading never depends on it, because models write other formats, too.
"""

import functools
from collections.abc import Mapping
from typing import Final

import regex

from . import DIALECTS, Dialect

_OPENERS: Final = ("block_open", "call_open", "parameter_open", "name_end", "quote")
# Formats of prompts and clients that no model was trained on.
_OWN: Final = frozenset({"function_calls", "prefixed", "escaped", "invoke_tool_name", "tool_name", "cherry"})
_SHORTEST: Final = 4  # characters; a shorter tag proves nothing

# Parts of models' names, in lower case, the more specific ones first.
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
    """Return the name of the wire format that a model was most likely trained on; "" if unknown."""
    fitting = [(length, row.name) for row in DIALECTS.values() if (length := _length_of_tags(row, template))]
    if fitting:
        return max(fitting)[1]
    lowered = name.lower()
    return next((family for part, family in _NAMES.items() if regex.search(part, lowered)), "")


def _length_of_tags(row: Dialect, template: str) -> int:
    """Return the total length of a row's tags if a template contains all of them, else 0."""
    if row.name in _OWN or not template:
        return 0
    parts = [part.strip() for kind in _OPENERS if kind in row.written for part in row.written[kind].split("{name}")]
    parts = [part for part in parts if len(part) >= _SHORTEST]
    return sum(map(len, parts)) if parts and all(part in template for part in parts) else 0
