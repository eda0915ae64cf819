"""The parser's invariants over tag soup (docs/design.md, section 4)."""

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from soup import PIECES, TOOLS, check_invariants, pieces_of

from xmlcall import InvalidCall, Parser, Repaired, TextDelta, Tool, ToolCall, UsageError, parse, render, system_prompt
from xmlcall.dialects import DIALECTS, Body, Dialect

LONGEST_TAG = 2_500  # six attributes of 256 characters, their names and white space

soup = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
dialect_soup = st.sampled_from(list(DIALECTS.values())).flatmap(
    lambda dialect: st.lists(st.sampled_from(pieces_of(dialect)), max_size=30)
)
mixed_soup = st.lists(st.sampled_from([piece for dialect in DIALECTS.values() for piece in pieces_of(dialect)]), max_size=30)
any_soup = st.one_of(soup, dialect_soup.map("".join), mixed_soup.map("".join))
catalogs = st.sampled_from([(), TOOLS])
reasons = st.sampled_from(["stop", "length"])


@settings(max_examples=examples(600), deadline=None)
@given(text=any_soup, tools=catalogs, reason=reasons, reasoning_open=st.booleans(), data=st.data())
def test_any_soup_cut_anywhere(text: str, tools: object, reason: str, reasoning_open: bool, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=40))
    check_invariants(text, places, tools, reason, reasoning_open)


@settings(max_examples=examples(150), deadline=None)
@given(text=any_soup, tools=catalogs)
def test_nothing_unfinished_runs(text: str, tools: object) -> None:
    for call in parse(text, tools, finish_reason="length").calls:  # type: ignore[arg-type]
        assert not isinstance(call, ToolCall) or call.raw.complete


like_json = st.sampled_from(["null", "true", "5", " 1.0\n", "02134", "[]", '{"a": 1}', '"a"', "&lt;", "a &amp; b"])
values = st.fixed_dictionaries(
    {},
    optional={
        "a": any_soup,
        "b": st.integers(),
        "c": st.one_of(st.none(), soup, like_json, st.lists(soup, max_size=2)),
        "d": st.lists(soup, max_size=3),
        "e": st.one_of(soup, like_json, st.integers(), st.booleans(), st.dictionaries(soup, soup, max_size=2)),
    },
)


@settings(max_examples=examples(100), deadline=None)
@given(arguments=st.lists(values, min_size=1, max_size=3))
@pytest.mark.parametrize("dialect", DIALECTS)
def test_round_trip(dialect: str, arguments: list[dict[str, object]]) -> None:
    calls = [{"name": "f", "arguments": each} for each in arguments]
    try:
        text = render(calls, TOOLS, dialect=dialect)
    except UsageError:
        strings = {"a", "b", "d"}  # the others may be read as another type where the dialect has no mark for it
        assert DIALECTS[dialect].string_mark is None
        assert any(set(each) - strings for each in arguments)
        return
    reply = parse(text, TOOLS)
    assert [call.arguments for call in reply.calls if isinstance(call, ToolCall)] == arguments
    assert {call.raw.dialect for call in reply.calls} == {dialect}
    assert reply.repairs == ()


@settings(max_examples=examples(200), deadline=None)
@given(text=st.text())
def test_any_text_is_read(text: str) -> None:
    reply = parse(text)
    assert reply.text == text or "<" in text or "`" in text


ODD_NAMES = ["StartTime<", 'a"b', "a'b", "a>b", "a b", "$filter", "a/b", "a=b", "a&lt;b", "</a", "查询", "récupérer", "हिन्दी"]
letters = st.characters(categories=["L"], exclude_characters="\u02bc")
tool_names = st.text(letters, min_size=1, max_size=8).map(lambda name: f"{name}_x")
odd_characters = st.sampled_from("""<>"'&=/\\|:;,.{}[]()#$@!?*+-~^%` _0aéж中""")
parameter_names = st.one_of(st.sampled_from(ODD_NAMES), st.text(st.one_of(odd_characters, letters), min_size=1, max_size=8))


def tool_of(name: str, parameters: list[str]) -> dict[str, object]:
    properties = {each: {"type": "string"} for each in parameters}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties, "additionalProperties": False}}


@settings(max_examples=examples(30), deadline=None)
@given(name=tool_names, odd=parameter_names, more=st.lists(parameter_names, max_size=2), data=st.data())
@pytest.mark.parametrize("dialect", DIALECTS)
def test_names_of_any_kind_round_trip(dialect: str, name: str, odd: str, more: list[str], data: st.DataObject) -> None:
    parameters = list(dict.fromkeys([odd, *more]))
    tools, arguments = [tool_of(name, parameters)], dict.fromkeys(parameters, "some words")
    try:
        text = render([{"name": name, "arguments": arguments}], tools, dialect=dialect)
    except UsageError:
        assert cannot_tell_apart(DIALECTS[dialect], parameters)
        return
    check_invariants(text, data.draw(st.lists(st.integers(0, len(text)), max_size=8)), tools, "stop", False)


def cannot_tell_apart(row: Dialect, names: list[str]) -> bool:
    """Say whether a name is one that a format has a use of its own for, or holds all that ends another one's tag."""
    if row.parameter_elements and any(name.startswith("/") or name in "abipqu" for name in names):
        return True
    return any(one != other and other in one for one in names for other in names)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_odd_name_is_written_as_it_is_shown(dialect: str) -> None:
    for name in ODD_NAMES:
        tag = DIALECTS[dialect].written.get("parameter_open", "<").replace("{name}", name)
        call = {"name": "查询天气", "arguments": {name: "x < y", "other": f"see {tag}"}}
        tools = [tool_of("查询天气", [name, "other"])]
        reply = parse(render([call], tools, dialect=dialect), tools)
        assert [(each.name, each.arguments) for each in reply.calls if isinstance(each, ToolCall)] == [tuple(call.values())]
        assert name in system_prompt(tools, dialect=dialect)


def test_entities_in_a_name_mean_the_characters() -> None:
    text = '<function_calls><invoke name="f"><parameter name="StartTime&lt;">5</parameter></invoke></function_calls>'
    (call,) = parse(text, [tool_of("f", ["StartTime<"])]).calls
    assert isinstance(call, ToolCall)
    assert (call.arguments, [repair.code for repair in call.repairs]) == ({"StartTime<": "5"}, ["parameter-name"])


def test_what_render_refuses() -> None:
    for call in (
        {"name": 'a"b', "arguments": {}},
        {"name": "f", "arguments": {"a<b": "x"}},
        {"name": "f", "arguments": {"b": 1e999}},
    ):
        with pytest.raises(UsageError):
            render([call])


def test_wrong_use() -> None:
    parser = Parser()
    with pytest.raises(UsageError, match="takes str, got bytes"):
        parser.feed(b"x")  # type: ignore[arg-type]
    parser.close()
    with pytest.raises(UsageError, match="closed"):
        parser.feed("x")
    with pytest.raises(UsageError, match="closed"):
        parser.close()
    with pytest.raises(UsageError, match="unknown dialect"):
        Parser(dialect="nope")


def closers_of(row: Dialect) -> str:
    """Return the pattern of what ends something in a format."""
    ends = [tag for kind, tag in row.tags.items() if kind.endswith("_close") and kind in row.written]
    return "|".join(
        [*ends, *(["</[ab]>"] if row.parameter_elements else []), *([r"[)\]}\"]"] if row.body is not Body.TAGS else [])]
    )


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("dialect", [name for name, dialect in DIALECTS.items() if closers_of(dialect)])
def test_a_lost_closer_changes_no_argument(dialect: str, data: st.DataObject) -> None:
    """Leave out one closing tag: the call is read as it was meant, or it does not run."""
    plain = st.text(alphabet="abc 1\n.,", max_size=12).filter(lambda value: value == value.strip())
    arguments = data.draw(st.fixed_dictionaries({"a": plain, "b": st.integers()}))
    text = render([{"name": "f", "arguments": arguments}, {"name": "f", "arguments": {"a": "z"}}], TOOLS, dialect=dialect)
    start, end = data.draw(st.sampled_from([match.span() for match in regex.finditer(closers_of(DIALECTS[dialect]), text)]))
    for call in parse(text[:start] + text[end:], TOOLS).calls:
        assert isinstance(call, InvalidCall) or call.arguments in (arguments, {"a": "z"}), call


@settings(max_examples=examples(200), deadline=None)
@given(text=any_soup, data=st.data())
@pytest.mark.parametrize("opener", ["<think>", "<thinking>", "<reasoning>", "<think>x<think>a</think>"])
def test_nothing_in_reasoning_runs(opener: str, text: str, data: st.DataObject) -> None:
    reasoning = regex.sub("</(?:think|thinking|reasoning|seed:think)>", "", text)
    reply = parse(opener + reasoning, TOOLS)
    assert reply.calls == ()
    assert reasoning in reply.reasoning


@settings(max_examples=examples(200), deadline=None)
@given(text=any_soup)
def test_nothing_in_inline_code_runs(text: str) -> None:
    code = regex.sub(r"`|\n\s*\n|\n", "", text)
    assert parse(f"See `{code}` there.", TOOLS).calls == ()


@settings(max_examples=examples(200), deadline=None)
@given(
    text=st.lists(
        st.sampled_from(["<", "</", "<invoke name=", '"f', "x", " ", "`", "\n", "{", "[", '{"na', "&", "&lt;inv", "<f"]),
        max_size=200,
    )
)
def test_visible_text_is_held_back_by_a_constant(text: list[str]) -> None:
    parser, emitted, fed = Parser(TOOLS), 0, 0
    for piece in text:
        emitted += sum(event.span[1] - event.span[0] for event in parser.feed(piece) if not isinstance(event, Repaired))
        fed += len(piece)
        assert fed - emitted <= LONGEST_TAG


@pytest.mark.parametrize(("begun", "held"), [("I ", "a"), ("It is a", "d"), ("\n- a. ", "c"), ("", "a"), ("Done.", "a")])
def test_a_word_waits_only_where_a_call_without_its_mark_may_begin(begun: str, held: str) -> None:
    parser = Parser([Tool(name="add"), Tool(name="call")])
    shown = "".join(event.text for piece in (begun, held) for event in parser.feed(piece) if isinstance(event, TextDelta))
    may_begin = not begun or begun.endswith(".")
    assert shown == (begun if may_begin else begun + held)


def test_text_after_an_endless_tag_is_released() -> None:
    parser = Parser(TOOLS)
    events = [event for character in '<invoke name="' + "x" * 5000 for event in parser.feed(character)]
    assert sum(event.span[1] for event in events[-1:]) > 5000 - LONGEST_TAG
