"""Writes a tool's result as text for a text model: content that it cannot see is named, never dropped silently.

The model receives only the beginning and the end of a long result, and requests the rest piece by piece. The conversation keeps
every result whole; only the messages that are sent are cut (`fit_context`). So nothing is stored here: a handle is a digest of
the result's text, and the text is found in the conversation, even in one that was saved and continues elsewhere.

A picture is sent, to a model that can see, only if its first bytes match its declared type.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

from ..dialects.replies import named_results
from ..errors import FailureReason
from ..types.calls import (
    MISSING,
    AudioContent,
    Content,
    EmbeddedResource,
    ImageContent,
    Message,
    OtherContent,
    ResourceLink,
    TextContent,
    ToolResult,
)
from ..types.served import Resource, ResourceTemplate
from .format import ENGLISH, PromptFormat
from .tokens import CHARACTERS_A_TOKEN, tokens_of

_LONGEST_DESCRIPTION = 200  # characters

Reader = Literal["user", "assistant"]

LONG: Final = 2000
"""Characters from which a result may be sent only in part, so that the model may request the rest."""

_HANDLE_DIGITS: Final = 6
_NEAR: Final = 4  # cut at a line end only in the last quarter of the kept text, so that no more than that is lost

LARGEST_PICTURE: Final = 5_000_000
MOST_PICTURES: Final = 4

# Type -> its first bytes and its file suffix. "\0" means any byte.
PICTURES: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n", ".png"),
    "image/jpeg": (b"\xff\xd8\xff", ".jpg"),
    "image/gif": (b"GIF8", ".gif"),
    "image/webp": (b"RIFF\0\0\0\0WEBP", ".webp"),
}


def result_text(result: ToolResult, format: PromptFormat = ENGLISH, *, reader: Reader = "assistant") -> str:
    """Write a result as text, for the model (`assistant`) or the person (`user`), without content that is only for the other one.

    Structured content is added unless a text block repeats it, as servers should (MCP 2025-11-25, annotations and tools).
    """
    blocks = [block for block in result.content if not block.audience or reader in block.audience]
    parts = [_WRITERS[type(block)](block, format) for block in blocks]
    if result.structured_content is not MISSING and not _is_said(result.structured_content, blocks):
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts) if parts else _named("hidden" if result.content else "nothing", format)


def _is_said(structured: Any, blocks: Iterable[Content]) -> bool:
    """Say whether text blocks already contain a structured value as JSON.

    FastMCP wraps values other than objects in `{"result": ...}`, and server-filesystem wraps a text in `{"content": ...}`. The
    text block then has the bare value, and a list has a text block for each item.
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
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return MISSING


def mismatch(problem: str, format: PromptFormat) -> str:
    """Render that a structured result violates its tool's output schema."""
    return _named("mismatch", format, problem=problem)


def unchecked(format: PromptFormat) -> str:
    """Render that a structured result could not be checked, because its tool's output schema is unusable."""
    return _named("unchecked", format)


def resource_list(
    resources: Sequence[Resource],
    templates: Sequence[ResourceTemplate],
    notices: Iterable[str],
    format: PromptFormat,
    *,
    limit: int,
) -> str:
    """List resources for a model, one on each line."""

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
    label = ": ".join(part for part in (name if name != uri else "", ", ".join(filter(None, details))) if part)
    return f"- {uri}{f' {label}' if label else ''}"


def denial(kind: str, format: PromptFormat, *, count: int = 0, why: str = "") -> str:
    """Render why a valid call did not run.

    Args:
        kind: `not_allowed`, `said_no` (by the person), `no_answer` (from the person), `nobody` (there is no person to ask),
            `nobody_rule` (a rule requires asking, but there is no person), `unsaid` (values, and no person to ask for them),
            `repeated` or `gone` (the tool).
        why: the person's reason for a no, in their words; without a person, the line that would allow the call, the rule,
            or the parameters.
    """
    return format.render("denied_call", kind=kind, count=count, why=why).strip()


def failure(kind: FailureReason, format: PromptFormat, *, said: str = "") -> str:
    """Render, in place of a result, that a tool's server failed, without anything that the server printed."""
    return format.render("failed_call", kind=kind, said=said).strip()


def not_run(reason: str, format: PromptFormat) -> str:
    """Render, in place of a result, that a call did not run."""
    return format.render("not_run", reason=reason).strip()


def stopped(kind: str, format: PromptFormat) -> str:
    """Render what became of a call (`running`, `not_begun`, or `cancelled` by its server) or an `answer` when its turn ended."""
    return format.render("stopped", kind=kind).strip()


def _named(kind: str, format: PromptFormat, **values: Any) -> str:
    return format.render("content", kind=kind, **values).strip()


def _size(base64_text: str) -> int:
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


def handle_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HANDLE_DIGITS]


def texts_of(messages: Iterable[Message]) -> list[str]:
    return [text for message in messages for _, text in named_results(message)]


def result_with(handle: str, messages: Sequence[Message]) -> str | None:
    texts = (text for text in reversed(texts_of(messages)) if len(text) > _HANDLE_DIGITS)
    return next((text for text in texts if handle_of(text) == handle.strip().lower()), None)


def piece_tokens(context_length: int | None) -> int:
    """Return the maximum length of a piece in tokens: an eighth of the context."""
    return 1024 if context_length is None else max(context_length // 8, 128)


def piece(text: str, start: int, tokens: int) -> str:
    """Return as much of a text as `tokens` allows, up to a line end if one is near."""
    found = text[start : start + round(tokens * CHARACTERS_A_TOKEN)]
    while (size := tokens_of(found)) > tokens and len(found) > 1:
        found = found[: max(int(len(found) * tokens / size), 1)]
    whole = start + len(found) == len(text)
    return found if whole else found[: line_end(found, len(found))]


def line_end(text: str, end: int) -> int:
    """Return where to end a text's beginning: after the last line end before `end` if one is near, else at `end`."""
    found = text.rfind("\n", end - end // _NEAR, end)
    return end if found < 0 else found + 1


def line_start(text: str, start: int) -> int:
    """Return where to begin a text's end: after the first line end from `start` if one is near, else at `start`."""
    found = text.find("\n", start, start + (len(text) - start) // _NEAR)
    return start if found < 0 else found + 1


def pictures(results: Iterable[ToolResult]) -> tuple[str, ...]:
    """Return the pictures in results for a model that can see, as `data:` URLs, except those only for the person."""
    blocks = [block for result in results for block in result.content if isinstance(block, ImageContent)]
    shown = (block for block in blocks if not block.audience or "assistant" in block.audience)
    urls = [f"data:{block.mime_type};base64,{block.data}" for block in shown if _is_picture(block)]
    return tuple(urls[:MOST_PICTURES])


def _is_picture(block: ImageContent) -> bool:
    data = decoded(block.data, LARGEST_PICTURE) if block.mime_type in PICTURES else None
    return data is not None and begins(data, PICTURES[block.mime_type][0])


def begins(data: bytes, begin: bytes) -> bool:
    """Say whether data has these first bytes; a zero in `begin` matches any byte."""
    return len(data) >= len(begin) and all(wanted in (0, byte) for wanted, byte in zip(begin, data, strict=False))


def decoded(text: str, largest: int) -> bytes | None:
    """Decode base64; return None if it is invalid or larger than allowed."""
    if not text or len(text) * 3 // 4 > largest + 2:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
