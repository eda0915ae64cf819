"""Results as text: what is said twice is written once, and what is for one reader alone reaches nobody else."""

from typing import Any

import pytest

from xmlcall.prompting.format import ENGLISH
from xmlcall.prompting.results import resource_list, result_text
from xmlcall.types.calls import MISSING, EmbeddedResource, ImageContent, TextContent, ToolResult
from xmlcall.types.served import Resource, ResourceTemplate

DEEP: Any = 1
for _ in range(200):
    DEEP = [DEEP]

# texts, structured content, whether the structured content is shown beside the texts
SAID: dict[str, tuple[tuple[str, ...], Any, bool]] = {
    "the same JSON": (('{"a": 1, "b": [2]}',), {"b": [2], "a": 1}, False),
    "the same JSON in a later text": (("Here:", '{"a":\n 1}'), {"a": 1}, False),
    "other JSON": (('{"a": 1}',), {"a": 2}, True),
    "part of the JSON": (('{"a": 1}',), {"a": 1, "b": 2}, True),
    "words": (("Two books.",), {"count": 2}, True),
    "no text": ((), {"count": 2}, True),
    "a wrapped string": (("7006652",), {"result": "7006652"}, False),
    "a string in an object of one field": (("[FILE] a.md",), {"content": "[FILE] a.md"}, False),
    "a wrapped string in lines": (("a", "b"), {"result": "a\nb"}, False),
    "a wrapped number": (("7006652",), {"result": 7006652}, False),
    "a wrapped list, a text for each item": (("Emma", '{"x": 1}'), {"result": ["Emma", {"x": 1}]}, False),
    "a list, a text for each item": (("1", "2"), [1, 2], False),
    "a longer list": (("Emma",), {"result": ["Emma", "Ulysses"]}, True),
    "an empty list": (("Nothing was found.",), {"result": []}, True),
    "null": (("null",), None, False),
    "null beside words": (("none",), None, True),
    "a text that no parser ends": (("[" * 100_000,), {"a": 1}, True),
    "deep": (("[" * 200 + "1" + "]" * 200,), DEEP, False),
}


@pytest.mark.parametrize("case", SAID)
def test_structured_content_is_shown_unless_a_text_says_the_same(case: str) -> None:
    texts, structured, is_shown = SAID[case]
    result = ToolResult(content=tuple(TextContent(text=text) for text in texts), structured_content=structured)
    alone = result_text(ToolResult(structured_content=structured))
    whole = result_text(result)
    assert whole == "\n".join([*texts, alone] if is_shown else texts)
    assert MISSING is not structured


def test_what_is_for_one_reader_alone_reaches_nobody_else() -> None:
    result = ToolResult(
        content=(
            TextContent(text="both"),
            TextContent(text="person", audience=("user",)),
            TextContent(text="model", audience=("assistant",)),
            TextContent(text="both again", audience=("user", "assistant")),
        )
    )
    assert result_text(result) == "both\nmodel\nboth again"
    assert result_text(result, reader="user") == "both\nperson\nboth again"


def test_where_all_is_for_the_other_reader_that_is_said() -> None:
    assert result_text(ToolResult(content=(TextContent(text="secret", audience=("user",)),))) == (
        "(what the tool returned is shown to the person alone)"
    )
    assert result_text(ToolResult()) == "(the tool returned nothing)"


def test_what_was_written_to_a_file_tells_where() -> None:
    picture = ImageContent(data="AAEC", mime_type="image/png", path="/files/a.png")
    blob = EmbeddedResource(uri="x://1", blob="AAEC")
    assert result_text(ToolResult(content=(picture, blob))) == (
        "[image: image/png, 3 bytes, written to the file /files/a.png]\n"
        "[resource x://1: binary, 3 bytes, cannot be shown as text]"
    )


def test_a_list_of_resources() -> None:
    resources = [Resource(uri=f"note://{number}", name="a", title="A", description="x\n" * 200) for number in range(3)]
    template = ResourceTemplate(uri_template="book://{title}", name="book", mime_type="text/plain")
    text = resource_list(resources, [template], ["One was left out."], ENGLISH, limit=2)
    first, second, rest, head, book, notice = text.split("\n")
    assert first == f"- note://0 A: {'x ' * 99}x "
    assert second.startswith("- note://1 ")
    assert (rest, head) == ("[1 more are not shown]", "Addresses to fill in:")
    assert (book, notice) == ("- book://{title} book: text/plain", "One was left out.")
    assert resource_list([], [], [], ENGLISH, limit=2) == "(there are no resources)"
