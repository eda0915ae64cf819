"""A parameter that a call has without a value is left out, where it may be left out; else the model is asked."""

import json
from typing import Any

import pytest

from xmlcall import Catalog, InvalidCall, ToolCall, parse, render
from xmlcall.binding.bind import bind
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write
from xmlcall.wire.openai import native_call

SEARCH = {
    "query": {"type": "string"},
    "cursor": {"type": "string"},
    "limit": {"type": "integer", "default": None},
    "deep": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "sort": {"enum": ["new", "old"]},
    "filter": {"type": "object", "properties": {"year": {"type": "integer"}, "by": {"type": "string"}}, "required": ["by"]},
    "either": {"type": ["string", "integer"]},
    "state": {"enum": ["open", "none"]},
    "flag": {"enum": ["True", "False"]},
    "nullable": {"type": ["string", "null"]},
    "told": {"type": "string", "description": "An id, or `null` for the root."},
}
TOOLS = Catalog([{"name": "search", "inputSchema": {"type": "object", "properties": SEARCH, "required": ["query"]}}])
TAGS = [
    "function_calls",
    "prefixed",
    "minimax",
    "qwen",
    "seed",
    "function_name",
    "glm",
    "tool_name",
    "invoke_tool_name",
    "escaped",
]
MARKED = ["function_calls", "prefixed", "minimax", "dsml", "function_name", "kimi_k3"]
JSON = ["hermes", "llama3", "mistral", "harmony", "kimi_k2", "deepseek", "cherry", "gemma4", "pythonic", "json"]

# Parameter, its value, and what is called with; ... where it is left out.
IN_JSON = [
    *((name, None, ...) for name in ("cursor", "limit", "deep", "tags", "sort", "filter", "either", "state", "told")),
    *((name, "", ...) for name in ("limit", "deep", "tags", "sort")),
    *((name, "N/A", ...) for name in ("limit", "deep", "sort")),
    *((name, "None", ...) for name in ("limit", "deep", "sort")),
    *((name, word, ...) for name in ("limit", "sort") for word in ("any", "Don't care", "not specified", "undefined")),
    ("cursor", "null", "null"),
    ("cursor", "any", "any"),
    ("cursor", "", ""),
    ("flag", False, "False"),
    ("state", "None", "none"),
    ("nullable", None, None),
    ("filter", {"by": "x", "year": None}, {"by": "x"}),
]
IN_TAGS = [
    *((name, word, ...) for name in ("cursor", "limit", "deep", "tags", "sort", "filter", "either") for word in ("null", "None")),
    *((name, "n/a", ...) for name in ("limit", "deep", "sort")),
    *((name, "", ...) for name in ("limit", "deep", "tags", "sort")),
    ("cursor", "nothing", "nothing"),
    ("cursor", "N/A", "N/A"),
    ("cursor", "", ""),
    ("state", "none", "none"),
    ("told", "null", "null"),
    ("nullable", "null", None),
]


def expected(name: str, value: Any) -> dict[str, Any]:
    return {"query": "cats"} if value is ... else {"query": "cats", name: value}


@pytest.mark.parametrize(("name", "value", "wanted"), IN_JSON)
def test_in_json(name: str, value: Any, wanted: Any) -> None:
    call = bind(native_call(0, "search", json.dumps({"query": "cats", name: value})), TOOLS)
    assert isinstance(call, ToolCall), call
    assert call.arguments == expected(name, wanted)
    assert ("empty-argument" in [repair.code for repair in call.repairs]) == (wanted is ... or name == "filter")


@pytest.mark.parametrize("dialect", JSON)
def test_in_each_format_with_types(dialect: str) -> None:
    text = write([("search", {"query": "cats", "cursor": None, "limit": None})], TOOLS, DIALECTS[dialect])
    (call,) = parse(text, TOOLS).calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {"query": "cats"}


@pytest.mark.parametrize("dialect", TAGS)
def test_in_tags(dialect: str) -> None:
    for name, text, wanted in IN_TAGS:
        written = write([("search", {"query": "cats", name: "@@"})], TOOLS, DIALECTS[dialect]).replace("@@", text)
        (call,) = parse(written, TOOLS).calls
        assert isinstance(call, ToolCall), call
        assert call.arguments == expected(name, wanted)


@pytest.mark.parametrize("dialect", MARKED)
@pytest.mark.parametrize("word", ["null", "None"])
def test_a_string_of_that_word_has_a_mark(dialect: str, word: str) -> None:
    call = {"name": "search", "arguments": {"query": word, "cursor": word}}
    (read,) = parse(render([call], TOOLS, dialect=dialect), TOOLS).calls
    assert isinstance(read, ToolCall)
    assert read.arguments == call["arguments"]


@pytest.mark.parametrize("default", [{}, {"default": None}])
def test_a_required_parameter_is_asked_for_unless_its_default_is_null(default: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer", **default}}, "required": ["x"]}
    call = bind(native_call(0, "f", '{"x": null}'), [{"name": "f", "inputSchema": schema}])
    assert isinstance(call, ToolCall) == bool(default)
    if isinstance(call, InvalidCall):
        assert [issue.code for issue in call.issues] == ["wrong-type"]
