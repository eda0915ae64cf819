"""Every sentence that a model reads comes from `prompts/`, in the language that was asked for."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from catalogs import ALL, WEATHER

from xmlcall import InvalidCall, Message, Tool, ToolCall, ToolResult, parse
from xmlcall.binding.echo import Sources, echo_of
from xmlcall.binding.grounds import groundless_call
from xmlcall.errors import ISSUES
from xmlcall.prompting import system as prompt
from xmlcall.prompting.fit_context import fit
from xmlcall.prompting.format import LANGUAGES, PromptFormat
from xmlcall.prompting.leaks import refusal
from xmlcall.prompting.results import denial, feedback, not_run, result_text, results
from xmlcall.tools.catalog import Catalog
from xmlcall.types.calls import AudioContent, EmbeddedResource, ImageContent, RawCall, ResourceLink

PROMPTS = Path(__file__).parents[2] / "prompts"
CHINESE = PromptFormat(lang="zh")
# Three words of English in a row are a sentence, or a part of one.
SENTENCE = re.compile(r"[A-Za-z']+(?:[ ,;]+[A-Za-z']+){2}")
HAN = re.compile(r"[\u4e00-\u9fff]")
CALL = ToolCall(id="call_0", name="ping", arguments={}, raw=RawCall(index=0, name="ping"))

PICTURES = ToolResult(
    content=(
        ImageContent(data="aGVsbG8=", mime_type="image/png"),
        AudioContent(data="aGVsbG8=", mime_type="audio/wav"),
        ResourceLink(uri="file:///a", name="a", mime_type="text/plain"),
        EmbeddedResource(uri="file:///b", text="…"),
        EmbeddedResource(uri="file:///c", mime_type="application/pdf", blob="aGVsbG8="),
    )
)
TOOL = Tool(
    name="f",
    input_schema={
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "integer", "minimum": 1},
            "c": {"type": "array", "items": {"type": "integer"}},
            "d": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "number"}]},
        },
        "required": ["a"],
        "additionalProperties": False,
    },
)
SEARCH = Tool(name="search", input_schema={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]})
LOOP = Tool(name="g", input_schema={"$ref": "#"})
A = '<parameter name="a">x</parameter>'


def f(parameters: str) -> str:
    return f'<function_calls><invoke name="f">{parameters}</invoke></function_calls>'


# Replies -> what is wrong with their call, each in a way of its own.
WRONG = {
    "a tool that nobody has": ('<invoke name="nothing"></invoke>', "unknown-tool"),
    "a missing argument": (f(""), "missing-argument"),
    "an argument too many": (f(f'{A}<parameter name="z">1</parameter>'), "ambiguous"),
    "an argument too many in JSON": ('{"name": "f", "arguments": {"a": "x", "z": 1}}', "unexpected-argument"),
    "a word for a number": (f(f'{A}<parameter name="b">many</parameter>'), "wrong-type"),
    "a number too small": (f(f'{A}<parameter name="b">0</parameter>'), "invalid-value"),
    "two values": (f(f'{A}<parameter name="a">y</parameter>'), "duplicate-argument"),
    "broken JSON": (f(f'{A}<parameter name="c">[1, 2 and more</parameter>'), "malformed-value"),
    "a value in an attribute": ('<function_calls><invoke name="f" a="x"></invoke></function_calls>', "malformed-value"),
    "text in a call": (f(f"And now for the text {A}"), "malformed-value"),
    "JSON without end": ('<tool_call>{"name": "f", "arguments": {"a": "x", ]}</tool_call>', "malformed-value"),
    "JSON of another form": ('<tool_call>{"name": "f", "tool": "f", "arguments": {}}</tool_call>', "malformed-value"),
    "two ends of a value": (f('<parameter name="a">The </parameter> ends it, and </invoke> ends\n'), "ambiguous"),
    "a call without end": ('<function_calls><invoke name="f"><parameter name="a">x', "truncated-call"),
    "a call that cannot be read": ("<tool_call>f<arg_key>a>x</tool_call>", "unread-call"),
    "a call in a sentence": ('Never write <invoke name="f"></invoke>, please.', "mentioned-call"),
    "JSON that was cut": ('<tool_call>{"name": "f", "arguments": {"a": "x', "truncated-call"),
}


def wrong_calls() -> Iterator[tuple[str, InvalidCall, Catalog]]:
    """Yield a name, a call and the tools, for every way to be wrong; echoes are found in what was said."""
    catalog = Catalog([TOOL, SEARCH])
    for name, (reply, code) in WRONG.items():
        call = parse(reply, catalog).calls[0]
        assert isinstance(call, InvalidCall), name
        assert code in {issue.code for issue in call.issues}, (name, call.issues)
        yield name, call, catalog
    copied = parse(f(A), catalog).calls[0]
    yield "a copied call", _echo(copied, catalog, Sources(said=[f(A)])), catalog
    example = parse('<invoke name="search"><parameter name="query">query value</parameter></invoke>', catalog).calls[0]
    yield "a value of the example", _echo(example, catalog, Sources()), catalog
    assert isinstance(copied, ToolCall)
    yield "a value that nobody said", groundless_call(copied, list(copied.arguments)), catalog
    alone = parse('<invoke name="f"></invoke>', Catalog([LOOP])).calls[0]
    assert isinstance(alone, InvalidCall)
    yield "a tool nobody can call", alone, Catalog([LOOP])


def _echo(call: object, catalog: Catalog, sources: Sources) -> InvalidCall:
    assert isinstance(call, ToolCall)
    found = echo_of(call, catalog, sources)
    assert found is not None
    return found


CALLS = list(wrong_calls())


def test_every_code_is_among_them() -> None:
    assert {issue.code for _, call, _ in CALLS for issue in call.issues} == set(ISSUES)


@pytest.mark.parametrize(("call", "catalog"), [pytest.param(call, catalog, id=name) for name, call, catalog in CALLS])
def test_what_is_wrong_is_told_in_chinese(call: InvalidCall, catalog: Catalog) -> None:
    text = feedback(call, catalog, CHINESE, request="请做。")
    lines = [line for line in text.splitlines() if line.startswith("- ")][: len(call.issues)]
    assert len(lines) == len(call.issues)
    for line, issue in zip(lines, call.issues, strict=True):
        for value in filter(None, (issue.expected, issue.got, *issue.readings)):
            line = line.replace(value, "").replace(value.replace("<", "&lt;"), "")
        assert HAN.search(line), line
        assert not SENTENCE.search(line), line
    english = feedback(call, catalog)
    assert all(issue.message.partition("<")[0] in english for issue in call.issues)


# -- all other texts ---------------------------------------------------------------------------------------------------------

RESULTS = [(CALL, ToolResult()), (CALL, PICTURES), (CALL, ToolResult.error(not_run("…", CHINESE)))]
LONG = [Message(role="user", content="做"), Message(role="tool", content="一" * 9000)]
TEXTS = {
    "tools": prompt.tool_prompt([Tool(name="f")], CHINESE),
    "no tools": prompt.tool_prompt([], CHINESE),
    "reminder": prompt.reminder([WEATHER], CHINESE),
    "plain words": prompt.reminder([WEATHER], CHINESE, needs_tool=False),
    "demand": prompt.demand(CHINESE),
    "demand of a tool": prompt.demand(CHINESE, "get_weather"),
    "empty": prompt.after_empty(CHINESE),
    "JSON": prompt.json_answer({}, CHINESE),
    "begin": prompt.begin("…", CHINESE),
    "invented": refusal("invented_results", CHINESE),
    "repeated words": refusal("own_words", CHINESE),
    "results": results(RESULTS, ALL, CHINESE, repeated={"call_0"}).content,
    "nothing": result_text(ToolResult(), CHINESE),
    **{kind: denial(kind, CHINESE, count=3) for kind in ("not_allowed", "said_no", "repeated", "gone")},
    "left out": fit([Message(role="user", content="一" * 300)] * 40, 900, lang="zh").messages[0].content,
    "shortened": fit(LONG, 900, lang="zh").messages[1].content,
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_for_a_model_are_chinese(name: str) -> None:
    text = TEXTS[name]
    assert HAN.search(text)
    assert not SENTENCE.search(re.sub(r"<[^>]*>", "", text.replace("true, false", "")))


def test_all_languages_have_the_same_templates() -> None:
    named = {lang: {path.name for path in (PROMPTS / lang).iterdir()} for lang in LANGUAGES}
    assert named["en"] == named["zh"]
    assert set(LANGUAGES) == {path.name for path in PROMPTS.iterdir() if path.is_dir()}


SAYS = {"Message": "content", "ToolResult": "content", "error": "", "Decision": "reason"}  # what holds words -> in which argument
PACKAGE = PROMPTS.parent / "xmlcall"
OTHERS = {
    "model_server.py",
    "local.py",
    "session.py",
}  # a person's words in a trial; a tool's own error; what is told of wrong options


def words_in(node: ast.Call) -> Iterator[str]:
    """Yield the fixed strings that a call of one of `SAYS` is given as words."""
    name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
    values = [each.value for each in node.keywords if each.arg == SAYS.get(name)] + (node.args if name == "error" else [])
    parts = (part.value for value in values for part in ast.walk(value) if isinstance(part, ast.Constant))
    yield from (part for part in parts if isinstance(part, str))


@pytest.mark.parametrize("folder", ["agent", "proxy/engine", "hosts", "prompting", "cli"])
def test_no_sentence_for_a_model_stands_in_the_code(folder: str) -> None:
    for path in (PACKAGE / folder).rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
        found = [words for node in calls for words in words_in(node) if SENTENCE.search(words)]
        assert not found or path.name in OTHERS, (path.name, found)
