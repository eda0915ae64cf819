"""The JSON family: a call is an object with name and arguments."""

from .dialect import Dialect
from .tag_patterns import bare_json, tag

__all__ = ["JSON"]

# Hermes, Qwen2.5 and many others: one JSON object a wrapper.
_HERMES = Dialect(
    name="hermes",
    tags={"block_open": tag("<tool_call"), "block_close": tag("</tool_call")},
    written={"block_open": "<tool_call>", "block_close": "</tool_call>"},
    is_json=True,
)

# JSON alone, in a Markdown fence, or in an element that a model made up; objects one after another, or in an array.
WRAPPERS = ("tools", "tool", "json", "xml", "response", "function_call", "tool_use")
_JSON = Dialect(name="json", tags={"json_open": bare_json(WRAPPERS)}, written={}, is_json=True)

JSON = (_HERMES, _JSON)
