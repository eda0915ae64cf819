"""MCP's dicts <-> our types: tools and results (spec 2025-11-25 and 2026-07-28; the older revisions are subsets).

Servers are hostile or merely sloppy, so nothing here raises on a result: a block of an unknown kind, or an incomplete one, is
kept whole as `OtherContent`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, cast

from ...types.calls import (
    MISSING,
    Audience,
    AudioContent,
    Content,
    EmbeddedResource,
    ImageContent,
    OtherContent,
    ResourceLink,
    TextContent,
    Tool,
    ToolResult,
)
from ...types.served import Completion, Prompt, PromptArgument, PromptMessage, PromptText, Resource, ResourceTemplate

ROLES: Final = ("user", "assistant")  # the roles in annotations, and in the messages of prompts
MOST_BLOCKS: Final = 1_000  # the most blocks of a result other than text; each is named to the model
_LONGEST_TYPE = 255  # characters of a MIME type (RFC 6838, 4.2)
_OF_RESULTS = ("content", "structuredContent", "toolResult", "isError", "resultType", "_meta")


def result_from_mcp(result: Mapping[str, Any]) -> ToolResult:
    """Read a CallToolResult; a `content` of one block or a string is read as that, and unknown fields replace a missing one."""
    content = _contents(result.get("content"))
    structured = result.get("structuredContent", result.get("toolResult", MISSING))
    other = {key: value for key, value in result.items() if key not in _OF_RESULTS}
    if not content and structured is MISSING and other:
        content = (OtherContent(raw=other),)
    return ToolResult(content=content, structured_content=structured, is_error=bool(result.get("isError")))


def _contents(blocks: Any) -> tuple[Content, ...]:
    if isinstance(blocks, str | dict):
        blocks = [blocks] if blocks else []
    if not isinstance(blocks, list):
        return () if blocks is None else (OtherContent(raw={"value": blocks}),)
    return tuple(TextContent(text=block) if isinstance(block, str) else content_from_mcp(block) for block in blocks)


def content_from_mcp(block: Any) -> Content:
    """Read a content block; one that cannot be read is kept whole."""
    if not isinstance(block, Mapping):
        return OtherContent(raw={"value": block})
    kind = block.get("type")
    needed, reader = _READERS.get(kind if isinstance(kind, str) else "", ("", lambda block: None))
    content = reader(block) if not needed or isinstance(block.get(needed), str) else None
    content = content or OtherContent(raw=dict(block))
    return replace(content, audience=audience) if (audience := _audience(block)) else content


def _audience(block: Mapping[str, Any]) -> Audience:
    """Return for whom a block is meant; unknown names mean everybody."""
    annotations = block.get("annotations")
    named = annotations.get("audience") if isinstance(annotations, Mapping) else None
    return tuple(role for role in ROLES if role in named) if isinstance(named, list) else ()


def _resource_link(block: Mapping[str, Any]) -> ResourceLink:
    name, description = string_in(block, "name"), string_in(block, "description")
    return ResourceLink(uri=block["uri"], name=name, description=description, mime_type=_type_in(block))


def contents_from_mcp(resource: Any) -> EmbeddedResource | None:
    """Read a resource of `resources/read` or of a content block; None if it has neither text nor data."""
    if not isinstance(resource, Mapping):
        return None
    text, blob = resource.get("text"), resource.get("blob")
    if not isinstance(text, str) and not isinstance(blob, str):
        return None
    return EmbeddedResource(
        uri=string_in(resource, "uri"),
        mime_type=_type_in(resource),
        text=text if isinstance(text, str) else None,
        blob=blob if isinstance(blob, str) else None,
    )


# Type of a block -> the member that must be a string, "" for none, and its reader.
_READERS: dict[str, tuple[str, Callable[[Mapping[str, Any]], Content | None]]] = {
    "text": ("text", lambda block: TextContent(text=block["text"])),
    "image": ("data", lambda block: ImageContent(data=block["data"], mime_type=_type_in(block))),
    "audio": ("data", lambda block: AudioContent(data=block["data"], mime_type=_type_in(block))),
    "resource_link": ("uri", _resource_link),
    "resource": ("", lambda block: contents_from_mcp(block.get("resource"))),
}


def string_in(block: Mapping[str, Any], key: str) -> str:
    """Return a member that is a string; "" if it is missing or anything else."""
    value = block.get(key)
    return value if isinstance(value, str) else ""


def _type_in(block: Mapping[str, Any]) -> str:
    return string_in(block, "mimeType")[:_LONGEST_TYPE]


def tool_to_mcp(tool: Tool) -> dict[str, Any]:
    """Write a tool as `list` has it; the inverse of `Tool.from_mcp`."""
    described = {"title": tool.title, "description": tool.description or None}
    more = described | {"outputSchema": tool.output_schema, "annotations": tool.annotations}
    given = {name: value for name, value in more.items() if value is not None}
    return {"name": tool.name, "inputSchema": tool.input_schema} | given


def requires_task(tool: Mapping[str, Any]) -> bool:
    """Return whether a tool of `list` can only run as a task (2025-11-25, `execution.taskSupport`)."""
    execution = tool.get("execution")
    return isinstance(execution, Mapping) and execution.get("taskSupport") == "required"


def cut_result(result: ToolResult, limit: int) -> ToolResult:
    """Limit the characters of a result, for all blocks and for the structured value; a text block in the copy reports a cut."""
    kept = _first_blocks(result.content)
    blocks, total = list[Content](), 0
    for block in kept:
        size = _shown_size(block)
        fits = not size or total + size <= limit
        blocks += [block] if fits else [cut] if (cut := _cut_block(block, limit - total)) else []
        total += size
    structured = result.structured_content
    structured_size = 0 if structured is MISSING else len(json.dumps(structured, ensure_ascii=False))
    notes = [
        f"[{what} cut: {size} {unit} came, {most} is the limit]"
        for what, size, unit, most in (
            ("text", total, "characters", limit),
            ("structured content", structured_size, "characters", limit),
            ("pictures and resources", len(result.content) - len(kept) + MOST_BLOCKS, "blocks", MOST_BLOCKS),
        )
        if size > most
    ]
    if not notes:
        return result
    content = (*blocks, *(TextContent(text=note) for note in notes))
    return replace(result, content=content, structured_content=structured if structured_size <= limit else MISSING)


def _first_blocks(blocks: Sequence[Content]) -> list[Content]:
    counted = accumulate(not isinstance(block, TextContent) for block in blocks)
    return [
        block for block, others in zip(blocks, counted, strict=True) if isinstance(block, TextContent) or others <= MOST_BLOCKS
    ]


def _shown_size(block: Content) -> int:
    match block:
        case TextContent(text=text):
            return len(text)
        case EmbeddedResource(uri=uri, text=text):
            return len(uri) + len(text or "")
        case ResourceLink(uri=uri, name=name, description=description):
            return len(uri) + len(name) + len(description)
        case OtherContent(raw=raw):
            return len(json.dumps(raw, ensure_ascii=False))
        case _:
            return 0  # binary data is shown to a model as a placeholder


def _cut_block(block: Content, room: int) -> Content | None:
    match block:
        case TextContent(text=text) if room > 0:
            return replace(block, text=text[:room])
        case EmbeddedResource(uri=uri, text=str(text)) if room > len(uri):
            return replace(block, text=text[: room - len(uri)])
        case _:
            return None


# -- resources ---------------------------------------------------------------------------------------------------------


def resource_from_mcp(entry: Mapping[str, Any]) -> Resource | None:
    """Read an entry of `resources/list`; None if it has no address."""
    if not (uri := string_in(entry, "uri")):
        return None
    size = entry.get("size")
    has_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    return Resource(uri=uri, size=size if has_size else None, **_described(entry))


def template_from_mcp(entry: Mapping[str, Any]) -> ResourceTemplate | None:
    """Read an entry of `resources/templates/list`; None if it has no address."""
    uri = string_in(entry, "uriTemplate")
    return ResourceTemplate(uri_template=uri, **_described(entry)) if uri else None


def _described(entry: Mapping[str, Any]) -> dict[str, str]:
    return {"mime_type": string_in(entry, "mimeType")} | {key: string_in(entry, key) for key in ("name", "title", "description")}


# -- prompts and completion --------------------------------------------------------------------------------------------

MAX_MESSAGES: Final = 1000
MAX_VALUES: Final = 100  # of a completion (MCP 2025-11-25, completion: MUST)


def prompt_from_mcp(entry: Mapping[str, Any]) -> Prompt | None:
    """Read an entry of `prompts/list`; None if it has no name."""
    if not (name := string_in(entry, "name")):
        return None
    listed = entry.get("arguments")
    arguments = (
        PromptArgument(name=named, description=string_in(each, "description"), required=each.get("required") is True)
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, Mapping) and (named := string_in(each, "name"))
    )
    described = {key: string_in(entry, key) for key in ("title", "description")}
    return Prompt(name=name, arguments=tuple(arguments), **described)


def prompt_text_from_mcp(answer: Mapping[str, Any]) -> PromptText:
    messages = answer.get("messages")
    entries = [each for each in messages if isinstance(each, Mapping)] if isinstance(messages, list) else []
    read = tuple(
        PromptMessage(role=cast(Any, entry["role"]), content=content_from_mcp(entry.get("content")))
        for entry in entries[:MAX_MESSAGES]
        if entry.get("role") in ROLES
    )
    return PromptText(description=string_in(answer, "description"), messages=read)


def completion_from_mcp(answer: Mapping[str, Any]) -> Completion:
    """Read an answer to `completion/complete`; values that are no texts are left out."""
    completion = answer.get("completion")
    if not isinstance(completion, Mapping) or not isinstance(completion.get("values"), list):
        return Completion()
    values = [value for value in completion["values"] if isinstance(value, str)]
    return Completion(values=tuple(values[:MAX_VALUES]))
