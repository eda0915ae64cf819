"""A grammar reads what `write` writes, and what it lets a model write is read by the parser and binds without an issue."""

import json
import random
import re
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer
from llguidance.gbnf_to_lark import gbnf_to_lark
from profiles import examples
from schema_values import value_of

import xmlcall
from xmlcall import Catalog, ToolCall, UsageError, parse
from xmlcall.dialects import DIALECTS, Body
from xmlcall.dialects.write import beginning, write
from xmlcall.grammars.calls import CallGrammar
from xmlcall.grammars.expressions import Characters, Choice, Expression, Literal, Repeat, Rule, Sequence, after, is_nullable
from xmlcall.grammars.markup import beginnings_of_tags, holds
from xmlcall.grammars.values import TWICE
from xmlcall.schema.validation import is_valid

TOKENS = LLTokenizer("byte")
LETTERS = "ab<>/&;!\"'\\]}{[ \n\r\t=|0é\u200b🙂parmINVoke"


def accepts(root: Expression, text: str, rules: Mapping[str, Expression]) -> bool:
    return is_nullable(after(root, text, rules), rules)


CHARACTER = r"\\x..|\\.|[^\"\\]"
QUOTED = re.compile(rf'\[(?:\\.|[^\]\\])*\]|"((?:{CHARACTER})*)"')


def as_lark(gbnf: str) -> str:
    """Write a grammar for llguidance, all texts as their characters: a longer token of its would be the longest that fits."""
    single = QUOTED.sub(
        lambda found: f"({' '.join(map(quoted, re.findall(CHARACTER, found[1])))})" if found[1] else found[0], gbnf
    )
    return re.sub(r"\b[A-Z]+_\d+\b", lambda token: token[0].lower(), gbnf_to_lark(single))


def quoted(character: str) -> str:
    return f'"{character}"'


def accepts_as_gbnf(gbnf: str, text: str) -> bool:
    matcher, tokens = LLMatcher(TOKENS, as_lark(gbnf)), list(text.encode())
    assert not matcher.get_error()
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


# -- a text of a grammar, chosen at random -----------------------------------------------------------------------------------


class Writer:
    """Writes texts of a grammar; beyond a depth it takes the options that end soonest."""

    def __init__(self, root: Expression, rules: Mapping[str, Expression], rng: random.Random) -> None:
        self.root, self.rules, self.rng = root, rules, rng
        self.heights: dict[str, float] = dict.fromkeys(rules, float("inf"))
        changed = True
        while changed:
            heights = {name: self.height(each) + 1 for name, each in rules.items()}
            changed, self.heights = heights != self.heights, heights

    def height(self, expression: Expression) -> float:
        match expression:
            case Rule(name):
                return self.heights[name]
            case Choice(options):
                return min(map(self.height, options), default=float("inf"))
            case Sequence(parts):
                return max(map(self.height, parts))
            case Repeat(part, least, _):
                return self.height(part) if least else 0
        return 0

    def text(self, expression: Expression | None = None, depth: int = 0) -> str:
        expression = self.root if expression is None else expression
        match expression:
            case Literal(text):
                return text
            case Characters(ranges):
                known = [each for each in LETTERS if each in expression]
                return self.rng.choice(known) if known and self.rng.random() < 0.9 else chr(self.rng.choice(ranges)[0])
            case Rule(name):
                return self.text(self.rules[name], depth + 1)
            case Sequence(parts):
                return "".join(self.text(part, depth) for part in parts)
            case Choice(options):
                least = min(map(self.height, options))
                open_ones = [each for each in options if self.height(each) < float("inf")]
                near = [each for each in options if self.height(each) == least]
                return self.text(self.rng.choice(open_ones if depth < 14 else near), depth)
            case Repeat(part, least, most):
                times = self.rng.randint(least, min(most if most is not None else least + 3, least + 3)) if depth < 14 else least
                return "".join(self.text(part, depth) for _ in range(times))


# -- schemas -----------------------------------------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "city", "content", "max_days", "is-on", "x.y"])
plain = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "format": "date"},
        {"type": "integer"},
        {"type": "integer", "minimum": -3, "maximum": 120},
        {"type": "integer", "exclusiveMinimum": 0},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["string", "null"]},
        {"type": ["integer", "string"]},
        {"enum": ["c", "f", "", "<b>", "</invoke>", 'a "b"\n', "5", "null"]},
        {"enum": [1, "1", None, True, {"a": ["<x>"]}]},
        {"const": "x"},
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        {"oneOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
        {"allOf": [{"type": "integer"}, {"minimum": 5}]},
        {"$ref": "#/$defs/tree"},
        {},
        True,
    ]
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(names, inner, max_size=4).flatmap(
        lambda properties: (
            st.lists(st.sampled_from(sorted(properties)), unique=True).map(
                lambda required: {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
            )
            if properties
            else st.just({"type": "object", "additionalProperties": False})
        )
    )


def values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            objects(inner)
            | st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 2))
        ),
        max_leaves=4,
    )


free = values(plain)
counted = values(st.sampled_from([{"type": "string", "minLength": 1}, {"type": "string", "maxLength": 4}]))
TREE = {
    "type": "object",
    "properties": {"label": {"type": "string"}, "below": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "required": ["label"],
    "additionalProperties": False,
}


def catalogs(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Catalog]:
    schemas = st.lists(objects(inner).map(lambda schema: {**schema, "$defs": {"tree": TREE}}), min_size=1, max_size=2)
    return schemas.map(lambda found: Catalog([{"name": f"tool_{at}", "inputSchema": schema} for at, schema in enumerate(found)]))


def strings_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, each in value.items() for text in (key, *strings_in(each))]
    return [text for each in value for text in strings_in(each)] if isinstance(value, list) else [value] * isinstance(value, str)


def is_bare(text: str, written: str, words: frozenset[str]) -> bool:
    """Say whether a string with the beginning of a tag stands in a call as it is: the rest of the tag is missing."""
    quoted = json.dumps(text, ensure_ascii=False)[1:-1]
    forms = (text, quoted, quoted.replace("<", "\\u003c"))
    return any(holds(form, words) and form in written and f"<![CDATA[{form}" not in written for form in forms)


HELD = [name for name, row in DIALECTS.items() if not (row.is_python or row.body is Body.GEMMA)]


@settings(max_examples=examples(60), deadline=None)
@given(catalog=catalogs(free), seed=st.integers(0, 2**32))
@pytest.mark.parametrize("dialect", HELD)
def test_a_right_call_can_be_written(dialect: str, catalog: Catalog, seed: int) -> None:
    rng, row = random.Random(seed), DIALECTS[dialect]
    calls = [(tool, value_of(tool.input_schema, tool.input_schema, rng)) for tool in catalog]
    assume(all(is_valid(catalog.validator(tool.name), value, tool.input_schema) for tool, value in calls))
    text = write([(tool.name, value) for tool, value in calls], catalog, row)
    words = beginnings_of_tags(row)
    assume(not any(is_bare(each, text, words) for _, value in calls for each in strings_in(value)))
    root, rules = CallGrammar(catalog, dialect=dialect).expressions
    assert accepts(root, text, rules), text


@settings(max_examples=examples(60), deadline=None)
@given(catalog=catalogs(st.one_of(free, counted)), seed=st.integers(0, 2**32))
@pytest.mark.parametrize("dialect", HELD)
def test_what_can_be_written_is_right(dialect: str, catalog: Catalog, seed: int) -> None:
    grammar = CallGrammar(catalog, dialect=dialect)
    text = Writer(*grammar.expressions, random.Random(seed)).text()
    reply = parse(text, catalog, dialect=dialect)
    assert reply.calls, text
    assert not reply.text.strip(), text
    for call in reply.calls:
        if not isinstance(call, ToolCall):
            assert any(each.endswith(TWICE) for each in grammar.loosened), (text, call)
            assert any("given twice" in issue.message for issue in call.issues), (text, call)


@settings(max_examples=examples(60), deadline=None)
@given(catalog=catalogs(st.one_of(free, counted)), seed=st.integers(0, 2**32), data=st.data())
@pytest.mark.parametrize("dialect", ["function_calls", "glm", "hermes"])
def test_the_notation_says_the_same(dialect: str, catalog: Catalog, seed: int, data: st.DataObject) -> None:
    """For what may be written, and for the same with a piece left out or put in, behind any beginning."""
    grammar = CallGrammar(catalog, dialect=dialect)
    root, rules = grammar.expressions
    text = Writer(root, rules, random.Random(seed)).text()
    begun = data.draw(st.integers(0, len(text)))
    place, size = data.draw(st.integers(begun, len(text))), data.draw(st.integers(0, 3))
    changed = text[:place] + data.draw(st.sampled_from(["", "<", "}", "1", "</parameter>"])) + text[place + size :]
    gbnf = grammar.after(text[:begun])
    assert accepts_as_gbnf(gbnf, text[begun:])
    assert accepts_as_gbnf(gbnf, changed[begun:]) == accepts(root, changed, rules), (text, changed)


# -- single cases ------------------------------------------------------------------------------------------------------------


def tool(properties: dict[str, Any], required: tuple[str, ...] = (), defs: Any = None) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": properties, "required": [*required], "$defs": defs or {}}
    return [{"name": "f", "inputSchema": schema}]


def rest_of(tools: Any, begun: str, dialect: str = "function_calls") -> Any:
    gbnf = xmlcall.grammar(tools, begun=begun, dialect=dialect)
    return lambda text: accepts_as_gbnf(str(gbnf), text)


VALUE = '<function_calls>\n<invoke name="f">\n<parameter name="a">'
END = "</parameter>\n</invoke>\n</function_calls>"


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (
            {"type": "integer", "minimum": 7, "maximum": 123},
            ["7", "9", "10", "99", "100", "123"],
            ["6", "124", "007", "-7", "7.0", ""],
        ),
        ({"type": "integer", "maximum": -5}, ["-5", "-12345"], ["-4", "5", "0", "-"]),
        ({"type": "integer", "exclusiveMinimum": -2.5, "exclusiveMaximum": 2}, ["-2", "-1", "0", "1"], ["-3", "2", "-0"]),
        ({"type": "number"}, ["0", "-1.5", "1e-09", "2E+10", "1e299"], ["01", ".5", "1.", "+1", "1e999"]),
        ({"type": "boolean"}, ["true", "false"], ["True", "yes"]),
        ({"type": "string", "pattern": "^[A-Z]{2}-\\d+$"}, ["AB-1", "AB-123"], ["AB-", "ab-1", "AB-1 "]),
        ({"type": "string", "pattern": "b"}, ["b", "abc"], ["", "ac"]),
        ({"type": "string", "format": "date"}, ["2026-02-28", "2024-02-29"], ["2026-02-30", "2025-02-29", "tomorrow"]),
        ({"type": "string", "format": "uuid"}, ["00000000-0000-4000-8000-00000000000a"], ["1"]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc", "<![CDATA[<>]]>"], ["a", "abcd", "<>"]),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            ["[1]", "[1, 2]"],
            ["[]", "[1,2,3]", "1"],
        ),
        ({"enum": ["c", "f"]}, ["c", "\nf\n"], ["C", "cf", ""]),
        ({"type": "string"}, ["", "a < b", "<div></div>", "<![CDATA[</invoke>]]>"], ["</invoke>", "<Parameter", "<![CDATA[x"]),
        ({"type": "array"}, ['["</b>", {"a": null}]'], ['["</invoke>"]', "[1,]"]),
    ],
)
def test_values(schema: dict[str, Any], right: list[str], wrong: list[str]) -> None:
    accepts_rest = rest_of(tool({"a": schema}), VALUE)
    assert [text for text in right if not accepts_rest(text + END)] == []
    assert [text for text in wrong if accepts_rest(text + END)] == []


def test_required_parameters_stand_once_each_in_the_declared_order() -> None:
    tools = tool({"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "integer"}}, required=("a", "c"))
    accepts_rest = rest_of(tools, '<function_calls>\n<invoke name="f">\n')
    a, b, c = (f'<parameter name="{name}">1</parameter>\n' for name in "abc")
    ends = "</invoke>\n</function_calls>"
    assert [text for text in (a + c, a + b + c) if not accepts_rest(text + ends)] == []
    assert [text for text in (a, c, c + a, a + a + c, a + b + b + c, a + c + b) if accepts_rest(text + ends)] == []


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["", "get_time"])
def test_a_call_that_is_begun_for_a_model_can_go_on(dialect: str, name: str) -> None:
    catalog = Catalog([{"name": each, "inputSchema": {"type": "object"}} for each in ("get_time", "get_date")])
    row = DIALECTS[dialect]
    begun, whole = beginning(row, name), write([("get_time", {})], catalog, row)
    assert whole.startswith(begun)
    assert dialect not in HELD or rest_of(catalog, begun, dialect)(whole[len(begun) :])


@pytest.mark.parametrize("dialect", sorted(DIALECTS.keys() - HELD))
def test_a_notation_without_grammar_is_told(dialect: str) -> None:
    with pytest.raises(UsageError, match=f"got '{dialect}': it has no grammar"):
        CallGrammar(tool({}), dialect=dialect)


def test_one_call_or_several() -> None:
    two = write([("f", {}), ("f", {})], Catalog(tool({})), DIALECTS["function_calls"])
    accepted = [accepts_as_gbnf(str(xmlcall.grammar(tool({}), parallel=parallel)), two) for parallel in (True, False)]
    assert accepted == [True, False]


def test_a_named_tool_is_the_only_one() -> None:
    catalog = Catalog([{"name": each, "inputSchema": {"type": "object"}} for each in ("f", "g")])
    calls = [write([(each, {})], catalog, DIALECTS["function_calls"]) for each in ("f", "g")]
    gbnf = str(xmlcall.grammar(catalog, tool="g"))
    assert [accepts_as_gbnf(gbnf, call) for call in calls] == [False, True]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "integer", "multipleOf": 5}, "f.a: multipleOf"),
        ({"type": "number", "minimum": 0}, "f.a: minimum"),
        ({"type": "string", "pattern": "^(?!x).*$"}, "f.a: pattern '^(?!x).*$'"),
        ({"type": "string", "pattern": "^a|b$"}, "f.a: pattern '^a|b$'"),
        ({"type": "string", "format": "uri"}, "f.a: format 'uri'"),
        ({"type": "string", "maxLength": 5000}, "f.a: maxLength of more than 64"),
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "f.a: uniqueItems"),
        ({"type": "array", "items": {"type": "object", "minProperties": 1}}, "f.a[]: minProperties"),
        ({"type": "object"}, f"f.a: {TWICE}"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "f.a: oneOf"),
        ({"type": "integer", "not": {"const": 3}}, "f.a: not"),
        ({"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]}, "f.a: allOf with two of pattern"),
    ],
)
def test_what_is_not_held_is_told(schema: dict[str, Any], told: str) -> None:
    assert told in xmlcall.loosened(tool({"a": schema}))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 3, "description": "x", "default": 4},
        {"type": "string", "format": "date"},
        {"enum": [1]},
    ],
)
def test_what_is_held_is_not_told(schema: dict[str, Any]) -> None:
    assert xmlcall.loosened(tool({"a": schema})) == ()


def test_a_tool_that_the_format_cannot_carry_is_told() -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("table", "read")]
    assert xmlcall.loosened(tools, dialect="tool_name") == ("table: it cannot be called in the format tool_name",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"begun": "<function_calls>\n<call"}, "expected the beginning of a call"),
        ({"tool": "g"}, "got the tool 'g'"),
        ({"dialect": "unheard"}, "unknown dialect"),
        ({"target": "regex"}, "target must be"),
        ({"target": "json_schema", "begun": "{"}, "goes with the target 'gbnf' only"),
        ({"target": "json_schema", "tool": "g"}, "got the tool 'g'"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        xmlcall.grammar(tool({}), **options)


def test_too_large_a_grammar_is_refused() -> None:
    tools = [
        {"name": f"tool_{at}", "inputSchema": {"type": "object", "properties": {"a": {"enum": [f"{at}{'x' * 9_000}"]}}}}
        for at in range(60)
    ]
    with pytest.raises(UsageError, match="offer fewer tools"):
        xmlcall.grammar(tools)
    assert xmlcall.grammar(tools, begun=beginning(DIALECTS["function_calls"], str(tools[3]["name"])), parallel=False)


def test_a_schema_that_refers_to_itself_becomes_a_rule_that_does() -> None:
    tools = tool({"a": {"$ref": "#/$defs/tree"}}, defs={"tree": TREE})
    tree = '{"label": "x", "below": [{"label": "y", "below": [{"label": "z"}]}]}'
    accepts_rest = rest_of(tools, VALUE)
    assert accepts_rest(tree + END)
    assert not accepts_rest(tree.replace('"z"', "5") + END)


def test_json_schemas_of_calls() -> None:
    tools = [
        *tool({"a": {"$ref": "#/$defs/tree"}}, defs={"tree": TREE}),
        {"name": "g", "inputSchema": {"type": "object"}},
    ]
    schema = xmlcall.grammar(tools, target="json_schema")
    assert isinstance(schema, dict)
    right = [{"name": "f", "arguments": {"a": {"label": "x", "below": [{"label": "y"}]}}}, {"name": "g", "arguments": {}}]
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(right)
    assert not validator.is_valid([])
    assert not validator.is_valid([{"name": "f", "arguments": {"a": {"label": 5}}}])
    assert not validator.is_valid([{"name": "h", "arguments": {}}])
    one = xmlcall.grammar(tools, target="json_schema", parallel=False)
    assert isinstance(one, dict)
    assert jsonschema.Draft202012Validator(one).is_valid(right[1])
    assert xmlcall.grammar(tools, target="json_schema", tool="g") == {"type": "object"}
