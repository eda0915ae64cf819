"""A request that the server lets the model answer with nothing but one call of one tool.

The last resort for a model that cannot get a call's form right, where the server can constrain a reply to a JSON Schema. The
reply is the call as a JSON object, its name fixed, its arguments after the tool's own schema; it is read like any other, and the
conversation keeps it in the format of the prompt, so that the model does not learn a second one.
"""

from dataclasses import replace

from ..errors import UsageError
from ..parsing.reply import render
from ..schema.call_schema import call_schema
from ..tools.catalog import Catalog
from ..types.calls import ToolCall
from ..types.completion import CompletionRequest
from ..types.tool import Tool
from .generate import Binder, Generated, NotTaken, ReplyOptions, generate
from .machine import Script

__all__ = ["generate_call"]


def generate_call(request: CompletionRequest, binder: Binder, tool: Tool, how: ReplyOptions, dialect: str) -> Script[Generated]:
    """Generate a call of a tool; without the constraint, if the server refuses the tool's schema."""
    try:
        constrained = replace(request, json_schema=call_schema(tool))
        generated = yield from generate(constrained, binder, replace(how, kind="forced", falls_back=True))
    except NotTaken:
        return (yield from generate(request, binder, how))
    return replace(generated, text=_as_taught(generated, binder.catalog, dialect))


def _as_taught(generated: Generated, catalog: Catalog, dialect: str) -> str:
    """Return the text for the history: the call as the prompt asks for it."""
    calls = [call for call in generated.reply.calls if isinstance(call, ToolCall)]
    try:
        return render(calls, catalog, dialect=dialect) if calls else generated.text
    except UsageError:  # a name that the format cannot carry
        return generated.text
