"""Guesses the wire format that a model was trained on, from its chat template or, without one, from its name.

The template is more reliable, because it contains the tags that it teaches. A format fits if the template contains all tags that
open its calls. If several fit, the one with the most tag text wins, because `<tool_call>` alone belongs to three formats. The
result is a hint for people and for the choice of a prompt; reading never depends on it, because models write other formats, too.
"""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import regex

from . import DIALECTS, Dialect

_OPENERS: Final = ("block_open", "call_open", "parameter_open", "name_end", "quote")
# Formats of prompts and clients that no model was trained on.
_OWN: Final = frozenset({"function_calls", "prefixed", "escaped", "invoke_tool_name", "tool_name", "cherry"})
_SHORTEST: Final = 4  # characters; a shorter tag proves nothing

_NAMES: Final[Mapping[str, str]] = tomllib.loads(Path(__file__).with_name("model_names.toml").read_text("utf-8"))
"""Patterns for parts of models' names, and their wire formats; the first that fits counts."""


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
