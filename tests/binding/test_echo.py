"""Calls that the model copied from the prompt's example, and calls that it wrote more than once."""

import html
import json
import re
import time
from dataclasses import replace
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlcall import Catalog, InvalidCall, Tool, ToolCall, bind, parse, render
from xmlcall.binding.echo import Sources, echo_of, letters, of_keys, readings, skeleton, skeletons
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write
from xmlcall.parsing.repetition import is_asked_for, once
from xmlcall.prompting.results import feedback
from xmlcall.tools.outline import example_arguments
from xmlcall.wire.openai import native_call


def tool(name: str, **properties: Any) -> Tool:
    return Tool(name=name, input_schema={"type": "object", "properties": properties, "required": list(properties)})


NUMBER, INTEGER, STRING = {"type": "number"}, {"type": "integer"}, {"type": "string"}
TOOLS = [
    tool("calculator", operation={"enum": ["add", "subtract"]}, a=NUMBER, b=NUMBER),
    tool("add", a=INTEGER, b=INTEGER),
    tool("roll", dice=INTEGER),
    tool("log", repo_path=STRING, limit={"type": "integer", "default": 5}),
    tool("sum", values={"type": "array", "items": NUMBER}),
    tool("send", to={"type": "object", "properties": {"city": STRING}, "required": ["city"]}),
    tool("light", on={"type": "boolean"}, colour={"enum": ["red", "blue"]}, level={"type": "integer", "minimum": 10}),
]
CATALOG = Catalog(TOOLS)
SAVE, NOTE = Catalog([tool("save", text=STRING)]), Catalog([tool("save_note", id=STRING, why=STRING)])
HALF = {"operation": "add", "a": 2.5, "b": 2.5}

# tool, arguments, what the person says -> the parameters that were copied
EXAMPLES: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("calculator", HALF, "What is 7 plus 5?", ["$.a", "$.b"]),
    ("calculator", HALF | {"operation": "subtract"}, "Hi", ["$.a", "$.b"]),
    ("calculator", HALF, "Add 2.5 and 2.5.", []),
    ("calculator", HALF, "2,5 + 2,5?", []),
    ("calculator", HALF, "Twice two and a half?", []),
    ("calculator", HALF, "2½ + 2½", []),
    ("calculator", HALF | {"b": 7}, "What is 7 plus 5?", []),
    ("calculator", HALF | {"a": 3.5}, "What is 7 plus 5?", []),
    ("add", {"a": 3, "b": 3}, "What is 7 plus 5?", ["$.a", "$.b"]),
    ("add", {"a": 4, "b": 4}, "What is 7 plus 5?", []),
    ("add", {"a": 3, "b": 3}, "Three and three?", []),
    ("add", {"a": 3, "b": 3}, "三加三等于几？", []),
    ("add", {"a": 3, "b": 3}, "At 14:03", []),
    ("roll", {"dice": 3}, "Roll some dice.", []),
    ("log", {"repo_path": "repo_path value", "limit": 5}, "Show the log.", ["$.repo_path"]),
    ("log", {"repo_path": "repo_path value", "limit": 5}, "Is 'repo_path value' a path?", []),
    ("log", {"repo_path": "path value", "limit": 5}, "Show the log.", []),
    ("sum", {"values": [2.5]}, "Sum up.", ["$.values"]),
    ("sum", {"values": [2.5, 1]}, "Sum up.", []),
    ("send", {"to": {"city": "city value"}}, "Send it.", ["$.to"]),
    ("send", {"to": {"city": "Rome"}}, "Send it.", []),
    ("light", {"on": True, "colour": "red", "level": 10}, "Light!", []),
]


def read(text: str, catalog: Catalog) -> ToolCall:
    [call] = parse(text, catalog).calls
    assert isinstance(call, ToolCall)
    return call


def call_of(name: str, arguments: dict[str, Any]) -> ToolCall:
    return read(render([{"name": name, "arguments": arguments}], CATALOG), CATALOG)


def is_copy(call: ToolCall | InvalidCall, catalog: Catalog, *said: str) -> bool:
    return echo_of(call, catalog, Sources(said=said)) is not None


@pytest.mark.parametrize(("name", "arguments", "said", "copied"), EXAMPLES)
def test_values_of_the_example_that_nobody_said(name: str, arguments: dict[str, Any], said: str, copied: list[str]) -> None:
    found = echo_of(call_of(name, arguments), CATALOG, Sources(said=[said]))
    assert (found and [(issue.code, issue.path) for issue in found.issues]) == ([("echo", path) for path in copied] or None)


@pytest.mark.parametrize("each", TOOLS, ids=lambda each: each.name)
def test_the_example_that_is_shown_is_a_copy_unless_its_values_could_be_anybodys(each: Tool) -> None:
    found = echo_of(call_of(each.name, example_arguments(each)), CATALOG, Sources(said=["Hello!"]))
    assert (found is None) is (each.name in ("roll", "light"))


def test_who_may_say_a_value() -> None:
    call = call_of("calculator", HALF)
    for sources in (Sources(said=["It is 2.5."]), Sources(instructions=["It is 2.5."])):
        assert echo_of(call, CATALOG, sources) is None
    assert echo_of(call, CATALOG, Sources(described=["Takes 2.5, say."])) is not None


def test_a_call_that_somebody_wrote() -> None:
    call = call_of("add", {"a": 1, "b": 2})
    inert = call.raw.text.replace("<", "&lt;")
    for sources in (Sources(said=[f"Write {inert} now"]), Sources(described=[f"Write {inert} now"])):
        found = echo_of(call, CATALOG, sources)
        assert found is not None
        assert [(issue.code, issue.path) for issue in found.issues] == [("echo", "$")]
    assert echo_of(call, CATALOG, Sources(instructions=[f"Write {inert} now"])) is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_without_arguments_is_no_description_of_its_tool(dialect: str) -> None:
    catalog = Catalog([Tool(name="ping_all", input_schema={"type": "object", "properties": {}})])
    text = write([("ping_all", {})], catalog, DIALECTS[dialect])
    native = bind(native_call(0, "ping_all", "{}"), catalog)
    told = json.dumps({"type": "function", "function": {"name": "ping_all", "parameters": {"type": "object"}}})
    other = text.replace("ping_all", "ping_other").replace("{}", '{"a": 1}')
    for call in (*parse(text, catalog).calls, native):
        assert echo_of(call, catalog, Sources(said=["Call ping_all, please: invoke ping all."], described=[told, other])) is None
        if "ping_all()" not in text and not (call is native and dialect in ("apertus", "tool_name")):
            assert echo_of(call, catalog, Sources(said=[f"It says: {json.dumps(text)}"])) is not None


# values that are other ones where signs and marks do not count
SIGNS: list[tuple[str, str]] = [("5", "-5"), ("+", "*"), ("25", "2.5"), ("ab", "a/b"), ("2026-01-1", "2026-0-11")]


@pytest.mark.parametrize(("shown", "written"), SIGNS)
def test_signs_of_short_values_count(shown: str, written: str) -> None:
    text = '<invoke name="save"><parameter name="text">{}</parameter></invoke>'
    call = read(text.format(written), SAVE)
    assert not is_copy(call, SAVE, text.format(shown))
    assert is_copy(call, SAVE, text.format(written))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_plain_words_are_no_call(dialect: str) -> None:
    arguments = {"id": "secret-plan", "why": "it is old"}
    said = [
        "save note id secret-plan why it is old",
        "Use save_note with id=secret-plan and why=it is old.",
        json.dumps(arguments),
    ]
    native = bind(native_call(0, "save_note", json.dumps(arguments)), NOTE)
    [call] = parse(write([("save_note", arguments)], NOTE, DIALECTS[dialect]), NOTE).calls
    assert not is_copy(native, NOTE, *said)
    assert not is_copy(call, NOTE, *said)


@pytest.mark.parametrize("dialect", sorted(DIALECTS.keys() - {"olmo3", "tool_code", "apertus"}))
def test_a_call_that_the_server_read_is_somebodys_in_whatever_format_it_was_written(dialect: str) -> None:
    arguments = {"id": "secret-plan", "why": "old"}
    said = f"Write {write([('save_note', arguments)], NOTE, DIALECTS[dialect])} now."
    for values, copied in ((arguments, True), (arguments | {"why": "new"}, False)):
        assert is_copy(bind(native_call(0, "save_note", json.dumps(values)), NOTE), NOTE, said) is copied


NATIVE = [
    '{"name": "save_note", "parameters": ARGUMENTS}',
    '{"arguments": ARGUMENTS, "name": "save_note"}',
    "<function=save_note>ARGUMENTS</function>",
    "[TOOL_CALLS]save_noteARGUMENTS",
    '[TOOL_CALLS][{"name": "save_note", "arguments": ARGUMENTS, "id": "abcdefghi"}]',
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>save_note\n```json\nARGUMENTS\n```<｜tool▁call▁end｜>",
]


@pytest.mark.parametrize("written", NATIVE)
def test_a_call_that_the_server_read_is_somebodys_in_formats_of_servers(written: str) -> None:
    arguments = '{"id": "secret-plan", "why": "old"}'
    assert is_copy(bind(native_call(0, "save_note", arguments), NOTE), NOTE, written.replace("ARGUMENTS", arguments))


CALL = '<invoke name="save">\n<parameter name="text">Ünder 100 %, \U0001f600 & a\\b</parameter>\n</invoke>'

# how somebody wrote a call that the model writes out
WAYS: dict[str, Any] = {
    "entities": html.escape,
    "entities of entities": lambda text: html.escape(html.escape(text)),
    "numbers": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "JSON": json.dumps,
    "JSON in JSON": lambda text: json.dumps({"page": json.dumps([text])}, ensure_ascii=False),
    "entities in JSON": lambda text: json.dumps(html.escape(text)),
    "JSON for a page": lambda text: json.dumps(text).replace("<", "\\u003c").replace(">", "\\u003E"),
    "a list": lambda text: json.dumps(text.splitlines()),
    "objects": lambda text: json.dumps({f"line {at}": line for at, line in enumerate(text.splitlines())}, indent=2),
    "folded": lambda text: " ".join(text.split()),
    "wrapped": lambda text: "\r\n\t".join(text.split()),
    "in quotation": lambda text: "\n".join(f"> {line}" for line in text.splitlines()),
    "characters of no width": lambda text: text.replace("n", "n\u200b"),
    "full width": lambda text: "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in text),
    "halves": lambda text: (text[:30], text[30:]),
    "a mark after it": lambda text: f"{text}\u0338 end",
    "a mark after its entities": lambda text: html.escape(text) + "\u0338",
    "marks on all letters": "\u0301".join,
    "variation selectors": "\ufe0f".join,
    "a joiner of graphemes": lambda text: text.replace("save", "sa\u034fve"),
    "a filler of Hangul": lambda text: text.replace("save", "sa\u3164ve"),
    "a filler at the beginning of Hangul": lambda text: text.replace("save", "sa\u115fve"),
    "blank Braille": lambda text: text.replace("save", "sa\u2800ve"),
    "letters of mathematics": lambda text: text.translate(letters_from(0x1D5BA)),
    "the same, as halves in JSON": lambda text: json.dumps(text.translate(letters_from(0x1D41A))),
    "letters in squares": lambda text: text.translate(letters_from(0x1F170)),
    "letters of others": lambda text: text.replace("e", "\u0435").replace("o", "\u03bf"),
    "capitals": str.upper,
    "other brackets": lambda text: text.replace("<", "\u2039").replace(">", "\u203a"),
    "an address": quote,
    "a form": quote_plus,
    "a mail": lambda text: text.replace("=", "=3D"),
    "Python": lambda text: text.replace("<", "\\N{LESS-THAN SIGN}").replace("s", "\\U00000073").replace("v", "\\u{76}"),
    "C": lambda text: text.replace("<", "\\74"),
    "a list cut at the quotation marks": lambda text: json.dumps(re.split('(?=")', text)),
    "a list of Python": lambda text: str(pieces(text)),
    "a sum of Python": lambda text: " + ".join(map(repr, pieces(text))),
    "rows": lambda text: json.dumps([{"n": at, "text": piece} for at, piece in enumerate(pieces(text))]),
    "rows of Python": lambda text: str([{"n": at, "text": piece} for at, piece in enumerate(pieces(text))]),
    "blocks": lambda text: json.dumps([{"type": "text", "text": piece} for piece in pieces(text)]),
    "blocks in JSON": lambda text: json.dumps({"a": json.dumps([{"type": "text", "text": piece} for piece in pieces(text)])}),
    "halves, one of them in JSON": lambda text: (text[:30], json.dumps({"rest": text[30:]})),
    "halves, one of them quoted": lambda text: (text[:30], f"> {text[30:]}"),
    "numbered halves": lambda text: (f"1/2: {text[:30]}", f"2/2: {text[30:]}"),
    "a listing": lambda text: "\n".join(f"  {at}\t{line}" for at, line in enumerate(text.splitlines())),
    "a listing in JSON": lambda text: json.dumps("\n".join(f"  {at}\t{line}" for at, line in enumerate(text.splitlines()))),
    "a search": lambda text: "\n".join(f"src/a.xml:{at}:{line}" for at, line in enumerate(text.splitlines())),
    "a difference": lambda text: "\n".join(f"+{line}" for line in text.splitlines()),
    "a comment": lambda text: "\n".join(f" * {line}" for line in text.splitlines()),
    "a table": lambda text: "\n".join(f"| {line} |" for line in text.splitlines()),
    "a quotation in entities": lambda text: "\n".join(f"&gt; {line}" for line in text.splitlines()),
    "bold": lambda text: text.replace("save", "sa**ve**"),
    "bold in HTML": lambda text: text.replace("save", "sa<b>ve</b>"),
    "each letter in HTML": lambda text: "".join(f"<span>{html.escape(each)}</span>" for each in text),
    "a comment in HTML": lambda text: text.replace("save", "sa<!-- -->ve"),
    "colours": lambda text: text.replace("save", "\x1b[31msave\x1b[0m"),
    "points": ".".join,
    "halves of characters, as numbers": lambda text: text.replace("\U0001f600", "&#xD83D;&#56832;").replace("<", "&lt;"),
    "a list cut in escapes": lambda text: json.dumps(pieces(json.dumps(text.replace("\n", "")), 3)),
    "without its end": lambda text: text.partition("</parameter>")[0],
}


def letters_from(first: int) -> dict[int, int]:
    return {ord("a") + at: first + at for at in range(26)}


def pieces(text: str, length: int = 9) -> list[str]:
    return [text[at : at + length] for at in range(0, len(text), length)]


@pytest.mark.parametrize("way", ["JSON", "numbers", "JSON in JSON", "a list", "a listing", "blocks"])
@pytest.mark.parametrize("value", ["\\\ufb01", "\\\uff4eo", "\U0001f600", "\u1100\u1161", "&amp;", "%41", "\\n", "=3D"])
def test_a_call_with_what_looks_like_an_escape_is_somebodys_too(value: str, way: str) -> None:
    text = CALL.replace("100", value)
    assert is_copy(read(text, SAVE), SAVE, WAYS[way](text))


@pytest.mark.parametrize("way", WAYS)
def test_a_call_is_somebodys_however_it_was_written(way: str) -> None:
    written = WAYS[way](CALL)
    assert is_copy(read(CALL, SAVE), SAVE, *([written] if isinstance(written, str) else written))
    assert not is_copy(read(CALL, SAVE), SAVE, CALL.replace("100", "200"), "save Ünder 100 %, a\\b")


@pytest.mark.parametrize("way", sorted(WAYS.keys() - {"a mail", "without its end", "halves, one of them in JSON"}))
def test_a_call_in_few_words_is_somebodys_however_it_was_written(way: str) -> None:
    call = ("save_note", {"id": "secret-plan", "why": "it is of old"})
    for notation in ("pythonic", "olmo3", "apertus", "hermes"):
        text = write([call], NOTE, DIALECTS[notation]).replace(", ", ",\n")
        written = WAYS[way](text)
        assert is_copy(read(text, NOTE), NOTE, *([written] if isinstance(written, str) else written)), notation


@pytest.mark.parametrize(
    "shown", [{"default": CALL}, {"enum": ["a", CALL]}, {"properties": {CALL: STRING}}, {"examples": [[CALL]]}]
)
def test_all_that_a_schema_names_is_somebodys(shown: dict[str, Any]) -> None:
    catalog = Catalog([tool("save", text=STRING), tool("other", topic=shown)])
    call = read(CALL, catalog)
    assert is_copy(call, catalog)
    assert not is_copy(call, SAVE)


def test_a_short_call_is_no_part_of_another_text() -> None:
    catalog = Catalog([Tool(name="ping")])
    call = read("<function_calls><ping/></function_calls>", catalog)
    assert not is_copy(call, catalog, "Use <ping/path> or <ping/host>.")
    assert is_copy(call, catalog, "Use <ping />.")


def test_a_number_of_any_length_in_what_is_said_is_read() -> None:
    call, digits = read(CALL, SAVE), f"&#{'1' * 5000};"
    assert echo_of(call, SAVE, Sources(said=[digits], described=[digits])) is None
    assert is_copy(call, SAVE, digits + html.escape(CALL))


UNITS = ["&amp;", "\\", '\\"', '", ', '", "a": "', "&#38;#38;", "＆lt；", "a < b ", "> > \n"]
UNITS += ["\u0315\u0300", "\\u0315\\u0300", '"a":', "'", "<b ", "1:", "%41", "=3D", "\\N{A", "a/"]


@pytest.mark.parametrize("end", ["", 'q"'])
@pytest.mark.parametrize("unit", UNITS)
def test_time_for_a_skeleton_grows_with_the_text(unit: str, end: str) -> None:
    def seconds(count: int) -> float:
        start = time.process_time()
        skeletons(unit * count + end)
        readings(unit * count + end)
        of_keys((unit * count + end,))
        return time.process_time() - start

    most = 0.1 + 9 * max(seconds(2_000), 0.002)  # by the square 16 times
    assert any(seconds(8_000) < most for _ in range(2))


def test_feedback_shows_dots_for_values_of_the_example_and_no_form_for_somebodys_call() -> None:
    call = call_of("calculator", HALF)
    copied = echo_of(call, CATALOG, Sources(said=["1 + 2?"]))
    assert isinstance(copied, InvalidCall)
    told = feedback(copied, CATALOG, request="1 + 2?")
    assert '<parameter name="operation">add</parameter>' in told
    assert told.count(">...</parameter>") == 2
    assert "2.5" not in told
    quoted = echo_of(call, CATALOG, Sources(said=[call.raw.text]))
    assert isinstance(quoted, InvalidCall)
    assert "..." not in feedback(quoted, CATALOG, request="1 + 2?")


# -- calls that stand in a reply more than once ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "request_", "expected"),
    [
        (2, "Do it twice.", True),
        (3, "Roll three times.", True),
        (3, "Roll it 3 times.", True),
        (2, "掷两次骰子", True),
        (3, "说三遍", True),
        (12, "12 of them", True),
        (2, "Do it 2x.", True),
        (2, "Do it x2", True),
        (2, "Post the Q2 figures.", False),
        (2, "Delete the 2nd file.", False),
        (2, "Do it.", False),
        (2, "What is 12 + 2.5?", False),
        (3, "Do it twice.", False),
        (2, "Tell me a network joke", False),
        (2, "", False),
    ],
)
def test_whether_a_person_asked_for_so_many(times: int, request_: str, expected: bool) -> None:
    assert is_asked_for(times, request_) is expected


def test_the_same_call_again_is_left_out() -> None:
    one, other, wrong = (f'<invoke name="add"><parameter name="a">{a}</parameter>{b}</invoke>' for a, b in (
        (1, '<parameter name="b">2</parameter>'),
        (1, '<parameter name="b">3</parameter>'),
        (1, ""),
    ))  # fmt: skip
    reply = parse(f"<function_calls>{one}{other}{wrong}{one}{wrong}{one}</function_calls>", CATALOG)
    reply = replace(reply, calls=tuple(replace(call, id=str(number)) for number, call in enumerate(reply.calls)))
    kept, repeated = once(reply, "Add.")
    assert [call.id for call in kept.calls] == ["0", "1", "2"]
    assert [repair.code for repair in kept.repairs] == [*(repair.code for repair in reply.repairs), *["repeated-call"] * 3]
    assert repeated == {"0", "2"}
    assert [call.id for call in once(reply, "Three times!")[0].calls] == ["0", "1", "2", "3", "5"]
    assert once(kept, "Add.") == (kept, frozenset())


@given(st.text(st.characters(max_codepoint=127)), st.sampled_from(["", "[]()=", "()=", "[]{}:", "{}"]))
def test_ascii_is_read_as_it_is_beside_another_character(text: str, signs: str) -> None:
    assert skeleton(text) == skeleton(text + "\u00df").removesuffix("\u00df")
    assert letters(text, signs) == letters(text + "\u4e2d", signs).removesuffix("\u4e2d")
