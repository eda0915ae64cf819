"""A tool's result as text for a text model: what it cannot see is named, never dropped in silence."""

import json
from collections.abc import Callable
from typing import Any

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

__all__ = ["is_result_message", "result_text"]


def is_result_message(text: str) -> bool:
    """Say whether a message of role `user` holds results, and not a person's words."""
    return text.startswith("<function_results>")


def result_text(result: ToolResult) -> str:
    """Write a result as text.

    Args:
        result: the tool's answer.

    Returns:
        Its blocks, a line or more each; structured content only where no block carries text, because servers repeat it there
        (MCP 2025-11-25, tools: SHOULD).
    """
    parts = [_WRITERS[type(block)](block) for block in result.content]
    has_text = any(isinstance(block, TextContent) for block in result.content)
    if result.structured_content is not MISSING and not has_text:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts) if parts else "(the tool returned nothing)"


def _size(base64_text: str) -> str:
    return f"{len(base64_text) * 3 // 4} bytes"


def _link(block: ResourceLink) -> str:
    details = ", ".join(part for part in (block.mime_type, block.description) if part)
    return f"[resource {block.name or block.uri}: {block.uri}{f' ({details})' if details else ''}]"


def _embedded(block: EmbeddedResource) -> str:
    if block.text is not None:
        return f"[resource {block.uri}]\n{block.text}"
    return f"[resource {block.uri}: {block.mime_type or 'binary'}, {_size(block.blob or '')}, cannot be shown as text]"


_WRITERS: dict[type[Content], Callable[[Any], str]] = {
    TextContent: lambda block: block.text,
    ImageContent: lambda block: f"[image: {block.mime_type}, {_size(block.data)}, cannot be shown as text]",
    AudioContent: lambda block: f"[audio: {block.mime_type}, {_size(block.data)}, cannot be shown as text]",
    ResourceLink: _link,
    EmbeddedResource: _embedded,
    OtherContent: lambda block: json.dumps(dict(block.raw), ensure_ascii=False, default=str),
}
