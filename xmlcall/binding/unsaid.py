"""Arguments that only say that the request says nothing of them, taken out of a call before it is bound.

A prompt may ask for every parameter of a tool, with a word such as `none` for what the request leaves open: small models leave
out fewer values of the request when nothing may be left out (docs/decisions/prompt.md). The word then stands for "not given",
and it is read so only where the prompt asked for it, the parameter is optional, and the schema does not list the word itself.
"""

from dataclasses import replace
from typing import Any

from ..schema.references import resolve
from ..tools.catalog import Catalog
from ..tools.parameters import parameter_of
from ..types.calls import MISSING, RawArgument, RawCall, Tool

__all__ = ["is_unsaid", "may_be_unsaid", "without_unsaid"]


def without_unsaid(raw_call: RawCall, catalog: Catalog, word: str) -> RawCall:
    """Return a call without the arguments that say nothing."""
    name = catalog.meant_by(raw_call.name) if word else None
    tool = catalog.get(name) if name else None
    if tool is None:
        return raw_call
    kept = tuple(
        each for each in raw_call.arguments if not (is_unsaid(each, word) and may_be_unsaid(each.name, word, tool, catalog))
    )
    return raw_call if len(kept) == len(raw_call.arguments) else replace(raw_call, arguments=kept)


def is_unsaid(argument: RawArgument, word: str) -> bool:
    """Say whether an argument's value is the word, or JSON's null where the format tells types."""
    value = argument.text if argument.value is MISSING else argument.value
    return value is None or (isinstance(value, str) and value.strip().casefold() == word)


def may_be_unsaid(name: str, word: str, tool: Tool, catalog: Catalog) -> bool:
    """Say whether a parameter may be left out and does not list the word among its own values."""
    required = tool.input_schema.get("required")
    if name in (required if isinstance(required, list) else ()):
        return False
    return not _lists(parameter_of(catalog, tool, name).schema, word, tool)


def _lists(schema: Any, word: str, tool: Tool) -> bool:
    found = resolve(schema, tool.input_schema)
    if not isinstance(found, dict):
        return False
    enum = found.get("enum")
    own = [*(enum if isinstance(enum, list) else ()), found.get("const"), found.get("default")]
    return any(isinstance(value, str) and value.casefold() == word for value in own)
