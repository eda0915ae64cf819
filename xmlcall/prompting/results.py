"""A tool's result as text for a text model: what it cannot see is named, never dropped in silence."""

import json
from collections.abc import Callable
from typing import Any

from ..errors import FailureReason
from ..types.calls import (
    MISSING,
    AudioContent,
    Content,
    EmbeddedResource,
    ImageContent,
    OtherContent,
    ResourceLink,
    TextContent,
    ToolResult,
)
from .format import ENGLISH, PromptFormat

__all__ = ["denial", "failure", "not_run", "result_text"]


def result_text(result: ToolResult, format: PromptFormat = ENGLISH) -> str:
    """Write a result as text.

    Args:
        result: the tool's answer.
        format: how the model is spoken to.

    Returns:
        Its blocks, a line or more each; structured content only where no block carries text, because servers repeat it there
        (MCP 2025-11-25, tools: SHOULD).
    """
    parts = [_WRITERS[type(block)](block, format) for block in result.content]
    has_text = any(isinstance(block, TextContent) for block in result.content)
    if result.structured_content is not MISSING and not has_text:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts) if parts else _named("nothing", format)


def denial(kind: str, format: PromptFormat, *, count: int = 0, why: str = "") -> str:
    """Say why a call did not run although it could.

    Args:
        kind: `not_allowed`, `said_no` (the person), `repeated` or `gone` (the tool).
        format: how the model is spoken to.
        count: how often a repeated call came.
        why: the person's reason for a no, in their words.
    """
    return format.render("denied_call", kind=kind, count=count, why=why).strip()


def failure(kind: FailureReason, format: PromptFormat, *, said: str = "") -> str:
    """Say in place of a result that a tool's server failed, in words that hold nothing of what it printed.

    Args:
        kind: why there is no result.
        format: how the model is spoken to.
        said: the server's own words, where it answered with an error.
    """
    return format.render("failed_call", kind=kind, said=said).strip()


def not_run(reason: str, format: PromptFormat) -> str:
    """Say in place of a result that a call did not run.

    Args:
        reason: a sentence, of `denial` or of a policy.
        format: how the model is spoken to.
    """
    return format.render("not_run", reason=reason).strip()


def _named(kind: str, format: PromptFormat, **values: Any) -> str:
    return format.render("content", kind=kind, **values).strip()


def _size(base64_text: str) -> int:
    """Return the size of data in bytes."""
    return len(base64_text) * 3 // 4


def _link(block: ResourceLink, format: PromptFormat) -> str:
    details = ", ".join(part for part in (block.mime_type, block.description) if part)
    return _named("link", format, name=block.name or block.uri, uri=block.uri, details=details)


def _embedded(block: EmbeddedResource, format: PromptFormat) -> str:
    if block.text is not None:
        return f"{_named('embedded', format, uri=block.uri)}\n{block.text}"
    return _named("binary", format, uri=block.uri, type=block.mime_type, size=_size(block.blob or ""))


_WRITERS: dict[type[Content], Callable[[Any, PromptFormat], str]] = {
    TextContent: lambda block, format: block.text,
    ImageContent: lambda block, format: _named("image", format, type=block.mime_type, size=_size(block.data)),
    AudioContent: lambda block, format: _named("audio", format, type=block.mime_type, size=_size(block.data)),
    ResourceLink: _link,
    EmbeddedResource: _embedded,
    OtherContent: lambda block, format: json.dumps(dict(block.raw), ensure_ascii=False, default=str),
}
