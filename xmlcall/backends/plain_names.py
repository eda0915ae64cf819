"""Names of tools for a server that takes plain ones only, such as OpenAI's own API: letters and digits of ASCII, `_` and `-`.

Most servers take names in any script, which their models read better. One that refuses them says so with status 400 and the
pattern that it asks for; then the request is made once more with other names, and its calls come back under their own.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ..errors import BackendStatusError
from ..types.completion import Chunk, CompletionRequest

__all__ = ["own_names", "plain_names", "refuses_names", "with_plain_names"]

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LENGTH: Final = 56  # of what is kept of a name; a number follows
_ASKED: Final = re.compile(r"\[a-zA-Z0-9_|alphanumeric|function[._ ]name|tools\[?\.?\d", re.IGNORECASE)


def refuses_names(error: BackendStatusError, request: CompletionRequest) -> bool:
    """Say whether a server may have refused a request for the names of its tools."""
    return error.status_code in (400, 422) and bool(plain_names(request)) and _ASKED.search(error.body or str(error)) is not None


def plain_names(request: CompletionRequest) -> dict[str, str]:
    """Return other names for the tools of a request that need one, by their own."""
    names = [tool.name for tool in request.tools]
    taken, found = {name for name in names if _PLAIN.fullmatch(name)}, dict[str, str]()
    for place, name in enumerate(names, start=1):
        if name not in taken:
            base = _OTHERS.sub("_", name)[:_LENGTH].strip("_") or "tool"
            found[name] = next(each for each in (f"{base}_{place + step}" for step in range(len(names) + 1)) if each not in taken)
            taken.add(found[name])
    return found


def with_plain_names(request: CompletionRequest, names: Mapping[str, str]) -> CompletionRequest:
    """Return a request in which tools have other names, also where they were called and where one is chosen."""
    if not names:
        return request
    messages = tuple(
        replace(
            said,
            name=names.get(said.name, said.name) if said.name else said.name,
            tool_calls=tuple(replace(call, name=names.get(call.name, call.name)) for call in said.tool_calls),
        )
        for said in request.messages
    )
    tools = tuple(replace(tool, name=names.get(tool.name, tool.name)) for tool in request.tools)
    return replace(request, messages=messages, tools=tools, extra=_chosen(request.extra, names))


def _chosen(extra: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    choice = extra.get("tool_choice")
    if not isinstance(choice, Mapping):
        return extra
    function = choice.get("function")
    if not isinstance(function, Mapping) or function.get("name") not in names:
        return extra
    return {**extra, "tool_choice": {**choice, "function": {**function, "name": names[function["name"]]}}}


def own_names(chunk: Chunk, names: Mapping[str, str]) -> Chunk:
    """Return a piece of a reply with the tools' own names."""
    if not names or not chunk.tool_calls:
        return chunk
    own = {plain: name for name, plain in names.items()}
    return replace(chunk, tool_calls=tuple(replace(call, name=own.get(call.name, call.name)) for call in chunk.tool_calls))
