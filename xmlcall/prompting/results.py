"""A tool's result as text for a text model: what it cannot see is named, never dropped in silence."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

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
from ..types.served import Resource, ResourceTemplate
from .format import ENGLISH, PromptFormat

__all__ = ["Reader", "denial", "failure", "mismatch", "not_run", "resource_list", "result_text", "stopped", "unchecked"]

_LONGEST_DESCRIPTION = 200  # characters

Reader = Literal["user", "assistant"]


def result_text(result: ToolResult, format: PromptFormat = ENGLISH, *, reader: Reader = "assistant") -> str:
    """Write a result as text.

    Args:
        reader: the model (`assistant`) or the person (`user`); what is for the other one alone is left out (MCP 2025-11-25,
            annotations).

    Returns:
        Its blocks, a line or more each, and the structured content, unless a text says the same: servers should repeat it there
    """
    blocks = [block for block in result.content if not block.audience or reader in block.audience]
    parts = [_WRITERS[type(block)](block, format) for block in blocks]
    if result.structured_content is not MISSING and not _is_said(result.structured_content, blocks):
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts) if parts else _named("hidden" if result.content else "nothing", format)


def _is_said(structured: Any, blocks: Iterable[Content]) -> bool:
    """Say whether texts are the JSON of a structured value.

    FastMCP wraps what is no object in `{"result": ...}`, and server-filesystem a text in `{"content": ...}`; the text is the
    value alone, and a list has a text for each item.
    """
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    bare = next(iter(structured.values())) if isinstance(structured, dict) and len(structured) == 1 else structured
    if isinstance(bare, str) and (bare in texts or bare == "\n".join(texts)):
        return True
    values = [_json_of(text) for text in texts]
    if any(value in (structured, bare) for value in values):
        return True
    if not isinstance(bare, list) or not 0 < len(bare) <= len(texts):
        return False
    pairs = zip(bare, texts, values, strict=False)
    return all(item in (text, value) for item, text, value in pairs)


def _json_of(text: str) -> Any:
    """Return the JSON value that a text is; MISSING if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return MISSING


def mismatch(problem: str, format: PromptFormat) -> str:
    """Say that a structured result is not what its tool promises."""
    return _named("mismatch", format, problem=problem)


def unchecked(format: PromptFormat) -> str:
    """Say that nobody knows whether a structured result is what its tool promises, since its schema cannot be used."""
    return _named("unchecked", format)


def resource_list(
    resources: Sequence[Resource],
    templates: Sequence[ResourceTemplate],
    notices: Iterable[str],
    format: PromptFormat,
    *,
    limit: int,
) -> str:
    """List resources for a model, a line each."""

    def words(part: str, **values: Any) -> str:
        return format.render("own_tools", part=part, **values).strip()

    def lines(items: Sequence[tuple[str, Resource | ResourceTemplate]]) -> list[str]:
        shown = [_resource_line(uri, item) for uri, item in items[:limit]]
        return [*shown, *([words("not_shown", count=len(items) - limit)] if len(items) > limit else [])]

    rows = lines([(resource.uri, resource) for resource in resources])
    if templates:
        rows += [words("template"), *lines([(template.uri_template, template) for template in templates])]
    return "\n".join([*(rows or [words("none")]), *notices])


def _resource_line(uri: str, item: Resource | ResourceTemplate) -> str:
    name = item.title or item.name
    details = (item.mime_type, " ".join(item.description.split())[:_LONGEST_DESCRIPTION])
    told = ": ".join(part for part in (name if name != uri else "", ", ".join(filter(None, details))) if part)
    return f"- {uri}{f' {told}' if told else ''}"


def denial(kind: str, format: PromptFormat, *, count: int = 0, why: str = "") -> str:
    """Say why a call did not run although it could.

    Args:
        kind: `not_allowed`, `said_no` (the person), `no_answer` (of the person), `nobody` (to ask), `nobody_rule` (a rule
            asks), `unsaid` (values, and nobody to ask), `repeated` or `gone` (the tool).
        why: the person's reason for a no, in their words; where nobody can be asked, the line that would allow it, the rule,
            or the parameters.
    """
    return format.render("denied_call", kind=kind, count=count, why=why).strip()


def failure(kind: FailureReason, format: PromptFormat, *, said: str = "") -> str:
    """Say in place of a result that a tool's server failed, in words that hold nothing of what it printed."""
    return format.render("failed_call", kind=kind, said=said).strip()


def not_run(reason: str, format: PromptFormat) -> str:
    """Say in place of a result that a call did not run."""
    return format.render("not_run", reason=reason).strip()


def stopped(kind: str, format: PromptFormat) -> str:
    """Say what became of something when its turn was ended from outside.

    Args:
        kind: `running` (a call that had started), `cancelled` (one, by its server), `not_begun` (one) or `answer`.
    """
    return format.render("stopped", kind=kind).strip()


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
    return _named("binary", format, uri=block.uri, type=block.mime_type, size=_size(block.blob or ""), path=block.path)


_WRITERS: dict[type[Content], Callable[[Any, PromptFormat], str]] = {
    TextContent: lambda block, format: block.text,
    ImageContent: lambda block, format: _named("image", format, type=block.mime_type, size=_size(block.data), path=block.path),
    AudioContent: lambda block, format: _named("audio", format, type=block.mime_type, size=_size(block.data), path=block.path),
    ResourceLink: _link,
    EmbeddedResource: _embedded,
    OtherContent: lambda block, format: json.dumps(dict(block.raw), ensure_ascii=False, default=str),
}
