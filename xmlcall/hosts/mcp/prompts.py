"""Prompts of an MCP server, and completion of what a person types (MCP 2025-11-25 and 2026-07-28)."""

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp import types as mcp

from ...types.served import Completion, Prompt, PromptArgument, PromptMessage, PromptText, ResourceTemplate
from .wire import ROLES, content_from_mcp, string_in

__all__ = ["completion_from_mcp", "prompt_from_mcp", "prompt_text_from_mcp", "reference_to"]

MAX_MESSAGES: Final = 1000
MAX_VALUES: Final = 100
"""Of a completion (MCP 2025-11-25, completion: MUST)."""


def prompt_from_mcp(entry: Mapping[str, Any]) -> Prompt | None:
    """Read an entry of `prompts/list`; None if it has no name."""
    if not (name := string_in(entry, "name")):
        return None
    arguments = entry.get("arguments")
    return Prompt(
        name=name,
        title=string_in(entry, "title"),
        description=string_in(entry, "description"),
        arguments=tuple(map(_argument, filter(_is_named, arguments))) if isinstance(arguments, list) else (),
    )


def _is_named(argument: Any) -> bool:
    return isinstance(argument, Mapping) and bool(string_in(argument, "name"))


def _argument(argument: Mapping[str, Any]) -> PromptArgument:
    description = string_in(argument, "description")
    return PromptArgument(name=argument["name"], description=description, required=argument.get("required") is True)


def prompt_text_from_mcp(answer: Mapping[str, Any]) -> PromptText:
    """Read an answer to `prompts/get`."""
    messages = answer.get("messages")
    entries = [each for each in messages if isinstance(each, Mapping)] if isinstance(messages, list) else []
    read = tuple(
        PromptMessage(role=cast(Any, entry["role"]), content=content_from_mcp(entry.get("content")))
        for entry in entries[:MAX_MESSAGES]
        if entry.get("role") in ROLES
    )
    return PromptText(description=string_in(answer, "description"), messages=read)


def reference_to(of: Prompt | ResourceTemplate) -> mcp.PromptReference | mcp.ResourceTemplateReference:
    """Write whose argument is to be completed."""
    if isinstance(of, Prompt):
        return mcp.PromptReference(type="ref/prompt", name=of.name)
    return mcp.ResourceTemplateReference(type="ref/resource", uri=of.uri_template)


def completion_from_mcp(answer: Mapping[str, Any]) -> Completion:
    """Read an answer to `completion/complete`.

    Args:
        answer: `{"completion": {"values": [...], "hasMore"?}}`; values that are no texts are left out.
    """
    completion = answer.get("completion")
    if not isinstance(completion, Mapping) or not isinstance(completion.get("values"), list):
        return Completion()
    values = [value for value in completion["values"] if isinstance(value, str)]
    return Completion(values=tuple(values[:MAX_VALUES]), has_more=completion.get("hasMore") is True or len(values) > MAX_VALUES)
