"""Tolerant JSON: cases as data, and what holds for any text."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import load
from counted import count_calls
from hypothesis import assume, given
from hypothesis import strategies as st
from profiles import scaled

from xmlcall.errors import ISSUES, REPAIRS
from xmlcall.loosejson.gemma import read_gemma
from xmlcall.loosejson.machine import MAX_DEPTH, JsonMachine
from xmlcall.loosejson.python import read_python
from xmlcall.loosejson.reader import JsonReading, Unreadable, read
from xmlcall.loosejson.strings import Refused

CASES = load("jsonish.toml")
SOURCES = [Path(__file__).parents[2] / "xmlcall" / "loosejson" / f"{name}.py" for name in ("reader", "machine", "strings")]


def canonical(value: Any) -> str:
    """Tell 1, true and 1.0 apart."""
    return json.dumps(value, sort_keys=True)


def is_valid(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("case", [case for _, case in CASES], ids=[name for name, _ in CASES])
def test_case(case: dict[str, Any]) -> None:
    found = read(case["text"], kinds=case.get("kinds"), complete=case.get("complete", False))
    if "position" in case:
        assert isinstance(found, Unreadable), found
        assert (found.position, found.code) == (case["position"], case.get("code", "malformed-value"))
        assert found.expected
        assert found.got == (case["text"][found.position :][:30] or "the end of the text")
        return
    assert isinstance(found, JsonReading), found
    assert canonical(found.value) == canonical(json.loads(case["value"]))
    assert [repair.code for repair in found.repairs] == case.get("repairs", [])
    if "spans" in case:
        assert [list(repair.span) for repair in found.repairs] == case["spans"]


def test_every_code_has_a_case() -> None:
    written = {code for path in SOURCES for code in re.findall(r'"(json-[a-z-]+)"', path.read_text(encoding="utf-8"))}
    assert written == {code for _, case in CASES for code in case.get("repairs", [])}
    assert written <= REPAIRS.keys()
    assert {case["code"] for _, case in CASES if "code" in case} <= ISSUES.keys()


# -- any value, any text -----------------------------------------------------------------------------------------------

TEXTS = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\"'\\{}[],:/ \n\ud800“”")), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
STYLES = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.sampled_from([None, 0, 2, "\t"]),
        "separators": st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]),
        "sort_keys": st.booleans(),
    }
)
SOUP = st.lists(
    st.sampled_from([*"{}[](),:\"'\\/#\n ab1-.", "None", "true", "1e9", "//", "/*", "*/", '"a":', '"x"', "“", "’", "\\d", "```"])
).map("".join)


@given(VALUES, STYLES)
def test_valid_json_is_not_touched(value: Any, style: dict[str, Any]) -> None:
    found = read(json.dumps(value, **style))
    assert isinstance(found, JsonReading)
    assert canonical(found.value) == canonical(value)
    assert found.repairs == ()


@given(VALUES, STYLES)
def test_the_second_reading_agrees_on_valid_json(value: Any, style: dict[str, Any]) -> None:
    """It takes over where strict reading cannot say what is wrong, so it must know all of JSON."""
    text = json.dumps(value, **style)
    machine = JsonMachine(text, complete=True)
    assert canonical(machine.run()) == canonical(value)
    assert machine.repairs == []


@given(TEXTS | SOUP, st.booleans())
def test_no_text_raises(text: str, complete: bool) -> None:
    found = read(text, complete=complete, kinds=["object", "array", "number"])
    if isinstance(found, Unreadable):
        assert 0 <= found.position <= len(text)
        assert found.code in ISSUES
        return
    json.dumps(found.value)
    assert all(0 <= start <= end <= len(text) for start, end in (repair.span for repair in found.repairs))
    if is_valid(text) and not isinstance(json.loads(text), str):
        assert found.repairs == ()


@given(VALUES, STYLES, st.data())
def test_damage_is_refused_or_reported(value: Any, style: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value, **style)
    place = data.draw(st.integers(0, len(text) - 1))
    extra = data.draw(st.sampled_from(["", *"{}[](),:\"'\\/#\n a1-.“"]))
    damaged = text[:place] + extra + text[place + (not extra) :]
    assume(not is_valid(damaged))
    found = read(damaged, complete=data.draw(st.booleans()))
    assert isinstance(found, Unreadable) or found.repairs or canonical(found.value) == canonical(value)


@given(VALUES, STYLES, st.data())
def test_a_cut_text_is_never_completed(value: Any, style: dict[str, Any], data: st.DataObject) -> None:
    """A prefix has no reading, but for scalars: a number may go on, and so may what follows a closed value."""
    assume(isinstance(value, list | dict))
    text = json.dumps(value, **style)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    assert isinstance(read(cut), Unreadable)


@given(st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, lambda inner: st.lists(inner, max_size=3), max_leaves=8))
def test_what_python_prints_is_read_back_or_refused(value: Any) -> None:
    """Python's own escapes (\\x00) are refused, everything else is read as Python meant it."""
    found = read(repr(value))
    assert isinstance(found, Unreadable) or canonical(found.value) == canonical(value)
    if "\\" not in repr(value):
        assert isinstance(found, JsonReading)


# -- hostile texts -----------------------------------------------------------------------------------------------------

SHAPES: dict[str, Callable[[int], str]] = {
    "quotes": lambda size: '"' * size,
    "single quotes": lambda size: "'" * size,
    "backslashes": lambda size: "\\" * size,
    "escaped quotes": lambda size: '"' + '\\"' * (size // 2),
    "invalid escapes": lambda size: '"' + "\\d" * (size // 2) + '"',
    "opening brackets": lambda size: "[" * size,
    "opening braces": lambda size: '{"a":' * (size // 5),
    "closing brackets": lambda size: "[1" + "}" * size,
    "surplus braces": lambda size: "{}" + "}" * size,
    "commas": lambda size: "[" + "," * size,
    "elements": lambda size: "[" + "1," * (size // 2),
    "words in quotes": lambda size: '["' + ' "a" b' * (size // 6) + '"]',
    "apostrophes": lambda size: "'" + "a'" * (size // 2) + "'",
    "quotes and commas": lambda size: '["a "' + '", ' * (size // 3),
    "members in a string": lambda size: '{"a": "x {' + ' "b": c' * (size // 7) + '}"}',
    "keys without end": lambda size: '{"a": "x" y' + '", "k' * (size // 5),
    "spaces after quotes": lambda size: '{"a": "x" b' + '"   ' * (size // 4) + " " * size,
    "comments": lambda size: "/*" * (size // 2),
    "line comments": lambda size: '{"a": "b" c' + '"//' * (size // 3),
    "comment lines": lambda size: "\n#" * (size // 2),
    "indented lines": lambda size: "[\n" + "    \n" * (size // 5) + "1,]",
    "white space": lambda size: "[" + " " * size,
    "odd white space": lambda size: "\u00a0" * size,
    "back-ticks": lambda size: "`" * size,
    "digits": lambda size: "1" * size,
    "the same key": lambda size: "{" + "a:1," * (size // 4) + "}",
    "the same key, nested": lambda size: "{a:[" + "{b:1,b:1}," * (size // 10) + "]}",
    "brackets in an unfinished string": lambda size: "[" * 70 + '"' + '\\"[' * (size // 3),
    "double encoding": lambda size: json.dumps("[" * size),
}


def calls(text: str) -> int:
    return count_calls(lambda: read(text, complete=True, kinds=["object", "array"]))


@pytest.mark.parametrize("shape", SHAPES)
def test_work_grows_with_the_text(shape: str) -> None:
    small, large = (calls(SHAPES[shape](size)) for size in (4_000, 16_000))
    assert large <= 4 * small + 200


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_text_is_read_within_the_time_of_a_test(shape: str) -> None:
    """Quadratic work inside one regular expression shows in no count of calls; in a tenth of a megabyte it would take minutes."""
    found = read(SHAPES[shape](scaled(1_000_000)), complete=True, kinds=["object", "array"])
    assert isinstance(found, JsonReading | Unreadable)


@pytest.mark.parametrize(("opener", "closer"), ["[]", "()", ('{"a":', "}")])
def test_depth_is_bounded(opener: str, closer: str) -> None:
    def nested(levels: int) -> str:
        return opener * levels + "[1, 2]" + closer * levels

    assert isinstance(read(nested(MAX_DEPTH)), Unreadable)
    found = read(nested(MAX_DEPTH - 1))
    assert isinstance(found, JsonReading) == (opener != "("), found  # (x) is no tuple
    deep = read(nested(100_000))
    assert isinstance(deep, Unreadable)
    assert deep.position == len(opener) * MAX_DEPTH or opener == "("


def test_brackets_in_strings_are_no_depth() -> None:
    assert read(json.dumps(["[" * 1000, "\\" * 3])) == JsonReading(value=["[" * 1000, "\\" * 3])


def test_reading_does_not_recurse() -> None:
    limit = sys.getrecursionlimit()
    depth, frame = 0, sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        depth += 1
    sys.setrecursionlimit(depth + 40)
    try:
        found = read("[" * 100_000)
    finally:
        sys.setrecursionlimit(limit)
    assert isinstance(found, Unreadable)


def test_an_integer_of_too_many_digits_is_refused() -> None:
    assert isinstance(read("9" * 4300), JsonReading)
    found = read("9" * 4301)
    assert isinstance(found, Unreadable)
    assert "4300 digits" in found.expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", "a call"),
        ("f(**5)", "a dictionary after the two stars"),
        ("f(**{'a': 1}, a=2)", "a parameter once"),
        ("f(a=1, a=2)", "a parameter once"),
        (f"f(a={'[' * 300}", "levels"),
        ("f(a=[1 2])", "a comma or ]"),
        ("f(a={1: 2})", "a key in quotes"),
        ("f(a={'x': 1, 'x': 2})", "a key once"),
        ("f(a='\\x1')", "as Python writes it"),
        ("f(a='\\N{NO SUCH NAME}')", "a character that exists"),
        ("f(a='\\U00FFFFFF')", "a character that exists"),
        ("f(a='x", "the end of the string"),
        ("f(a='x' 'y')", "a comma between two strings"),
        ("f(a=-x)", "a literal"),
        ("f(a=1, 2)", "a parameter with its name"),
        ("f(a=1, **{'a': 2})", "a parameter once"),
    ],
)
def test_what_is_no_call_of_python_is_refused(text: str, expected: str) -> None:
    with pytest.raises(Refused) as refused:
        read_python(text)
    assert expected in str(refused.value.args)


def test_what_python_reads_otherwise_than_json() -> None:
    [call] = read_python("f(a=(1), b=(1,), c='\\ud83d\\ude00', d='x\\\ny')")
    assert call.arguments == {"a": 1, "b": [1], "c": "\U0001f600", "d": "xy"}


@pytest.mark.parametrize("between", [";", ","])
def test_calls_of_python_one_after_the_other(between: str) -> None:
    first, second = read_python(f"f(a=[]){between} g(b=-1)")
    assert (first.name, first.arguments) == ("f", {"a": []})
    assert (second.name, second.arguments) == ("g", {"b": -1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1}", "an object in { and }"),
        ("{a:1} b", "nothing after the object"),
        ("{a:" * 300, "levels"),
        ('{a:"\\x"}', "as JSON writes it"),
        ('{a:1 "x":2}', "a comma or }"),
        ("{[1]:2}", "a key"),
        ("{a 1}", "a colon after the key"),
        ("{a:1,a:2}", "a key once"),
        ("{a:}", "a value"),
    ],
)
def test_what_is_no_object_of_gemma_is_refused(text: str, expected: str) -> None:
    with pytest.raises(Refused) as refused:
        read_gemma(text)
    assert expected in str(refused.value.args)


@pytest.mark.parametrize("value", ["x", "it's"])
def test_a_string_of_gemma_in_single_quotes(value: str) -> None:
    [found] = read_gemma(f"{{a:'{value}'}}")
    assert (found.arguments, found.repairs) == ({"a": value}, ("json-single-quotes",))


def test_a_comma_of_gemma_before_the_end() -> None:
    assert read_gemma("{a:[1,],}")[0].arguments == {"a": [1]}
