"""A request that the server lets the model answer with nothing but one call of one tool.

The last resort for a model that cannot get a call's form right, where the server can constrain a reply to a JSON Schema. The
reply is the call as a JSON object, its name fixed, its arguments after the tool's own schema; it is read like any other, and the
conversation keeps it in the format of the prompt, so that the model does not learn a second one.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from ..backends.base import Backend
from ..errors import BackendStatusError, UsageError
from ..grammars.json_schema import call_schema
from ..parsing.reply import render
from ..tools.catalog import Catalog
from ..types.calls import ToolCall
from ..types.completion import CompletionRequest, PromptProgress
from ..types.events import Event
from ..types.tool import Tool
from .generate import Binder, Continued, Generated, generate

__all__ = ["generate_call"]


async def generate_call(
    backend: Backend, request: CompletionRequest, binder: Binder, tool: Tool, dialect: str
) -> AsyncGenerator[Event | Continued | PromptProgress | Generated]:
    """Generate a call of a tool; without the constraint, if the server refuses the tool's schema.

    Args:
        backend: open.
        request: the conversation.
        binder: binds the call.
        tool: one that was offered.
        dialect: the wire format that the prompt asks for.

    Yields:
        The parser's events as they come, then one Generated.

    Raises:
        BackendError: from the stream.
    """
    begun = False
    constrained = replace(request, json_schema=call_schema(tool))
    try:
        async with aclosing(generate(backend, constrained, binder, parallel=False)) as events:
            async for event in events:
                begun = True
                if isinstance(event, Generated):
                    event = replace(event, text=_as_taught(event, binder.catalog, dialect))
                yield event
        return
    except BackendStatusError:
        if begun:
            raise
    async with aclosing(generate(backend, request, binder, parallel=False)) as events:
        async for event in events:
            yield event


def _as_taught(generated: Generated, catalog: Catalog, dialect: str) -> str:
    """Return the text for the history: the call as the prompt asks for it."""
    calls = [call for call in generated.reply.calls if isinstance(call, ToolCall)]
    try:
        return render(calls, catalog, dialect=dialect) if calls else generated.text
    except UsageError:  # a name that the format cannot carry
        return generated.text
