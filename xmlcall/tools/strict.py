"""The strict reading of a text: what it stands for by its schema alone, without any liberty.

| the schema admits | the text is read as |
|---|---|
| a string and nothing else | itself, always |
| a string and something else | the other member that it fits as plain JSON; itself if it fits none |
| no string | JSON: `bind.py` |

So `null` for `string or null` is null, and `02134`, which is no JSON number, stays a string. Where nothing is declared, every
type is admitted. A text of plain JSON has one type, and its value fits a schema or does not: there is nothing to choose between.
The same rule decides which values `write` has to mark.
"""

from typing import Any

from ..loosejson import reader as jsonish
from ..schema.validation import is_valid
from ..types.calls import MISSING, Tool
from .catalog import Catalog
from .parameters import Parameter, parameter_of

__all__ = ["needs_mark", "other_than_string", "read_text"]


def other_than_string(text: str, schema: Any, validator: Any) -> Any:
    """Return what a text stands for if that is no string.

    Args:
        text: of a value whose schema admits a string.
        schema: of the value.
        validator: of the tool's whole schema; a reason why there is none admits nothing.

    Returns:
        The value of the text as plain JSON, if it is valid; else MISSING.
    """
    if isinstance(validator, str):
        return MISSING
    value = jsonish.strict(text)
    return MISSING if value is MISSING or isinstance(value, str) or not is_valid(validator, value, schema) else value


def read_text(text: str, parameter: Parameter, tool: Tool, catalog: Catalog) -> Any:
    """Return what a parameter's text stands for: the text itself, or the value of another type that it fits.

    Args:
        text: as written, without a mark of its type.
        parameter: one that admits a string.
        tool: that it belongs to.
        catalog: that the tool is in.
    """
    if parameter.is_plain_string:
        return text
    other = other_than_string(text, parameter.schema, catalog.validator(tool.name))
    return text if other is MISSING else other


def needs_mark(value: Any, text: str, name: str, tool: Tool | None, catalog: Catalog) -> bool:
    """Say whether the type of a value must be written beside its text, which alone would be read otherwise.

    Args:
        value: of a parameter.
        text: of the value: itself if it is a string, else JSON.
        name: of the parameter.
        tool: that it belongs to; None if that is not known, and every text is a string.
        catalog: that the tool is in.
    """
    parameter = parameter_of(catalog, tool, name) if tool else None
    if parameter is not None and not parameter.admits_string:
        return False
    read = read_text(text, parameter, tool, catalog) if tool and parameter else text
    return isinstance(read, str) != isinstance(value, str)
