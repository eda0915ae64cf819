"""A call that does not fit its tool's schema, with its arguments as the model wrote them: for those who check it themselves."""

from typing import Any, Final

from ..tools.catalog import Catalog
from ..types.calls import MISSING, InvalidCall, RawArgument, ToolCall
from ..types.tool import Tool
from .bind import bind_argument

__all__ = ["as_written"]

_NEVER: Final = frozenset({"echo", "mentioned-call", "not-said", "truncated-call", "unread-call"})


def as_written(call: InvalidCall, catalog: Catalog) -> ToolCall | None:
    """Return a call that does not fit its tool's schema, with its arguments as they are.

    Returns:
        None if its tool is not known, or if what it wrote is no list of arguments, a copy, or holds a made up
    """
    tool = catalog.get(catalog.meant_by(call.name) or "")
    codes = {issue.code for issue in call.issues}
    if tool is None or not call.raw.complete or codes & _NEVER or not (call.raw.arguments or codes == {"missing-argument"}):
        return None
    arguments = {each.name: _value(each, tool, catalog) for each in call.raw.arguments}
    return ToolCall(id=call.id, name=tool.name, arguments=arguments, raw=call.raw)


def _value(argument: RawArgument, tool: Tool, catalog: Catalog) -> Any:
    """Return an argument by its own schema, or as it is written."""
    if argument.value is not MISSING:
        return argument.value
    value = bind_argument(argument, tool, catalog)
    return argument.text if value is MISSING else value
