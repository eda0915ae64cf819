"""MCP's dicts <-> our types: every kind of block, whatever servers make of them, and the size limit."""

from typing import Any

import pytest

from xmlcall.hosts.mcp.wire import MOST_BLOCKS, content_from_mcp, cut_result, requires_task, result_from_mcp, tool_to_mcp
from xmlcall.types.calls import (
    MISSING,
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

BLOCKS: list[tuple[dict[str, Any], Content]] = [
    ({"type": "text", "text": "a"}, TextContent(text="a")),
    ({"type": "image", "data": "AA==", "mimeType": "image/png"}, ImageContent(data="AA==", mime_type="image/png")),
    ({"type": "audio", "data": "AA==", "mimeType": "audio/wav"}, AudioContent(data="AA==", mime_type="audio/wav")),
    ({"type": "resource_link", "uri": "file:///a", "name": "a"}, ResourceLink(uri="file:///a", name="a")),
    (
        {"type": "resource_link", "uri": "file:///a", "name": "a", "description": "d", "mimeType": "text/plain"},
        ResourceLink(uri="file:///a", name="a", description="d", mime_type="text/plain"),
    ),
    ({"type": "resource", "resource": {"uri": "u:1", "text": "t"}}, EmbeddedResource(uri="u:1", text="t")),
    (
        {"type": "resource", "resource": {"uri": "u:1", "mimeType": "image/png", "blob": "AA=="}},
        EmbeddedResource(uri="u:1", mime_type="image/png", blob="AA=="),
    ),
    ({"type": "text", "text": "a", "annotations": {"audience": ["user"]}}, TextContent(text="a", audience=("user",))),
    (
        {"type": "resource", "resource": {"uri": "u:1", "text": "t"}, "annotations": {"audience": ["user", "assistant"]}},
        EmbeddedResource(uri="u:1", text="t", audience=("user", "assistant")),
    ),
    ({"type": "hologram", "voxels": [1]}, OtherContent(raw={"type": "hologram", "voxels": [1]})),
]


@pytest.mark.parametrize("annotations", [None, 3, [], {"audience": "user"}, {"audience": ["nobody", 7, {}]}, {"audience": []}])
def test_an_audience_that_names_nobody_is_everybody(annotations: Any) -> None:
    assert content_from_mcp({"type": "text", "text": "a", "annotations": annotations}) == TextContent(text="a")


@pytest.mark.parametrize(("block", "content"), BLOCKS)
def test_blocks(block: dict[str, Any], content: Content) -> None:
    assert result_from_mcp({"content": [block]}) == ToolResult(content=(content,))


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "image", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "u:1"}},
        {"type": "resource", "resource": "u:1"},
        {"type": "resource_link", "name": "a"},
        {"type": ["text"], "text": "a"},
        {"text": "a"},
        {},
    ],
)
def test_a_block_that_lacks_what_its_kind_needs_is_kept_whole(block: dict[str, Any]) -> None:
    assert result_from_mcp({"content": [block]}).content == (OtherContent(raw=block),)


@pytest.mark.parametrize("block", [None, 5, ["text"]])
def test_a_block_that_is_no_object_is_kept(block: Any) -> None:
    assert result_from_mcp({"content": [block]}).content == (OtherContent(raw={"value": block}),)


@pytest.mark.parametrize(
    ("document", "result"),
    [
        ({}, ToolResult()),
        ({"content": None}, ToolResult()),
        ({"content": "text"}, ToolResult(content=(TextContent(text="text"),))),
        ({"content": ""}, ToolResult()),
        ({"content": ["text", 7]}, ToolResult(content=(TextContent(text="text"), OtherContent(raw={"value": 7})))),
        ({"content": {"type": "text", "text": "a"}}, ToolResult(content=(TextContent(text="a"),))),
        ({"content": 7}, ToolResult(content=(OtherContent(raw={"value": 7}),))),
        (
            {"output": "x", "_meta": {"a": 1}, "isError": True},
            ToolResult(content=(OtherContent(raw={"output": "x"}),), is_error=True),
        ),
        ({"content": [], "isError": False, "_meta": {"a": 1}}, ToolResult()),
        ({"content": [], "isError": True}, ToolResult(is_error=True)),
        ({"content": [], "structuredContent": None}, ToolResult(structured_content=None)),
        ({"content": [], "structuredContent": {"a": 1}}, ToolResult(structured_content={"a": 1})),
        ({"toolResult": [1]}, ToolResult(structured_content=[1])),
    ],
)
def test_results(document: dict[str, Any], result: ToolResult) -> None:
    assert result_from_mcp(document) == result


@pytest.mark.parametrize(
    "tool",
    [
        Tool(name="a"),
        Tool(
            name="a",
            description="d",
            title="t",
            input_schema={"type": "object"},
            output_schema={},
            annotations={"readOnlyHint": True},
        ),
    ],
)
def test_tools_both_ways(tool: Tool) -> None:
    assert Tool.from_mcp(tool_to_mcp(tool)) == tool


@pytest.mark.parametrize(
    ("execution", "required"),
    [({"taskSupport": "required"}, True), ({"taskSupport": "optional"}, False), ({}, False), ("required", False), (None, False)],
)
def test_tools_that_only_run_as_tasks(execution: Any, required: bool) -> None:
    assert requires_task({"name": "a", "execution": execution}) is required


def texts(*values: str) -> tuple[TextContent, ...]:
    return tuple(TextContent(text=value) for value in values)


PICTURE = ImageContent(data="A" * 100, mime_type="image/png")
CUT = "[text cut: 12 characters came, 10 is the limit]"


@pytest.mark.parametrize(
    ("content", "cut"),
    [
        (texts("0123456789"), texts("0123456789")),
        ((*texts("0123456789"), PICTURE), (*texts("0123456789"), PICTURE)),  # binary data is not text
        (texts("0123456789ab"), texts("0123456789", CUT)),
        (texts("012345", "6789ab"), texts("012345", "6789", CUT)),
        (texts("0123456789ab", ""), texts("0123456789", "", CUT)),
        ((*texts("0123456789ab"), PICTURE), (*texts("0123456789"), PICTURE, *texts(CUT))),
        ((EmbeddedResource(uri="u:1", text="012345678"),), (EmbeddedResource(uri="u:1", text="0123456"), *texts(CUT))),
        ((EmbeddedResource(uri="u:" + "1" * 10, text=""),), texts(CUT)),
        ((EmbeddedResource(uri="u:" + "1" * 10, blob="AAAA"),), texts(CUT)),
        ((ResourceLink(uri="u:1", name="n" * 9),), texts(CUT)),
        ((ResourceLink(uri="u:1", description="d" * 9), PICTURE), (PICTURE, *texts(CUT))),
        ((ResourceLink(uri="u:" + "1" * 8), *texts("23")), (ResourceLink(uri="u:" + "1" * 8), *texts(CUT))),
        ((OtherContent(raw={"a": "12345"}),), (*texts("[text cut: 14 characters came, 10 is the limit]"),)),
    ],
)
def test_a_result_is_cut_at_its_limit(content: tuple[Content, ...], cut: tuple[Content, ...]) -> None:
    assert cut_result(ToolResult(content=content, is_error=True), 10) == ToolResult(content=cut, is_error=True)


def test_so_many_blocks_are_named_to_a_model() -> None:
    pictures = (PICTURE,) * MOST_BLOCKS
    whole = ToolResult(content=(*texts("a"), *pictures, *texts("b")))
    assert cut_result(whole, 10) is whole
    cut = cut_result(ToolResult(content=(*texts("a"), *pictures * 2, *texts("b"))), 10)
    note = f"[pictures and resources cut: {2 * MOST_BLOCKS} blocks came, {MOST_BLOCKS} is the limit]"
    assert cut.content == (*whole.content, *texts(note))


def test_a_type_is_no_longer_than_types_are() -> None:
    kinds: list[dict[str, Any]] = [
        {"type": "image", "data": "AAAA"},
        {"type": "audio", "data": "AAAA"},
        {"type": "resource_link", "uri": "u:1"},
        {"type": "resource", "resource": {"uri": "u:1", "text": "x", "mimeType": "t" * 1_000}},
    ]
    for kind in kinds:
        assert getattr(content_from_mcp({**kind, "mimeType": "t" * 1_000}), "mime_type", "") == "t" * 255


def test_a_structured_value_past_the_limit_is_left_out_with_a_note() -> None:
    whole = ToolResult(structured_content=[1, 2])
    assert cut_result(whole, 6) is whole
    cut = cut_result(ToolResult(content=texts("ok"), structured_content=["12345"]), 6)
    assert cut.structured_content is MISSING
    assert cut.content == texts("ok", "[structured content cut: 9 characters came, 6 is the limit]")
