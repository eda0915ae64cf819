"""Tool names that a model cannot write: it is offered others, and the caller hears its own again.

A name becomes part of the prompt and of tags, so white space, quotes, `<` and `>` cannot stand in it, and it cannot be very long.
Such a name is written with `_` in these places. Other names stay as they are, in any script. A request is renamed on its way in
and its events on their way out, so no wire format knows of it. The same tools get the same names each time: the prompt stays
cached.
"""

import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from ...types.calls import Message, Tool
from ..formats.contract import CallClosed, CallOpened, ChatRequest, ResponseEvent, ToolChoice

__all__ = ["offered_names", "renamed", "with_own_names"]

_WRITABLE: Final = re.compile(r"""[^\s<>"'`\x00-\x1f\x7f]{1,128}""")
_OTHERS: Final = re.compile(r"""[\s<>"'`\x00-\x1f\x7f]+""")
_LENGTH: Final = 100  # of what is kept of a name that is too long; a number may follow

Names = Mapping[str, str]


def offered_names(tools: Iterable[Tool], taken: Iterable[str] = ()) -> dict[str, str]:
    """Choose a name for each tool that needs another.

    Returns:
        The names to offer by the tools' own; empty if all can be written.
    """
    names = [tool.name for tool in tools]
    used = {*taken, *names}
    chosen: dict[str, str] = {}
    counts: dict[str, int] = {}
    for name in names:
        if _WRITABLE.fullmatch(name):
            continue
        base = _OTHERS.sub("_", name)[:_LENGTH].strip("_") or "tool"
        offered = base
        while offered in used:
            counts[base] = counts.get(base, 1) + 1
            offered = f"{base}_{counts[base]}"
        used.add(offered)
        chosen[name] = offered
    return chosen


def renamed(request: ChatRequest, names: Names) -> ChatRequest:
    """Return a request in which tools have other names, also where the history calls them and where one is chosen."""
    if not names:
        return request

    def name(own: str) -> str:
        return names.get(own, own)

    def message(said: Message) -> Message:
        calls = tuple(replace(call, name=name(call.name)) for call in said.tool_calls)
        return replace(said, tool_calls=calls, name=said.name and name(said.name))

    choice = request.choice
    allowed = None if choice.allowed is None else frozenset(map(name, choice.allowed))
    return replace(
        request,
        messages=tuple(map(message, request.messages)),
        tools=tuple(replace(tool, name=name(tool.name)) for tool in request.tools),
        choice=ToolChoice(mode=choice.mode, name=name(choice.name), allowed=allowed),
    )


def with_own_names(events: AsyncGenerator[ResponseEvent], names: Names) -> AsyncGenerator[ResponseEvent]:
    """Return an answer with its calls under the names that the caller knows."""
    return _renamed_back(events, names) if names else events


async def _renamed_back(events: AsyncGenerator[ResponseEvent], names: Names) -> AsyncGenerator[ResponseEvent]:
    own = {offered: name for name, offered in names.items()}
    async with aclosing(events):
        async for event in events:
            match event:
                case CallOpened(name=name):
                    yield replace(event, name=own.get(name, name))
                case CallClosed(call=call):
                    yield replace(event, call=replace(call, name=own.get(call.name, call.name)))
                case _:
                    yield event
