"""Formats of one's own: a row that can be read is, whatever its tags begin with; one that cannot is refused when it is made."""

import itertools
import re
from typing import Any

import pytest

from xmlcall import Parser, ToolCall, UsageError, coalesce, parse, render
from xmlcall.dialects import DIALECTS, Dialect
from xmlcall.dialects.call_signs import attempts_call, opening_places
from xmlcall.dialects.dialect import Body, TypeMark, certain_part
from xmlcall.dialects.write import beginning

TOOLS = [{"name": "f", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}}]


def between(name: str, opening: str, closing: str) -> dict[str, Any]:
    """A format whose tags stand between these characters."""
    texts = {"call_open": "call:{name}", "call_close": "/call", "parameter_open": "arg:{name}", "parameter_close": "/arg"}
    left, right, any_name = re.escape(opening), re.escape(closing), r"[\w.\-]{1,64}"
    tags = {kind: f"{left}{text.replace('{name}', any_name)}{right}" for kind, text in texts.items()}
    written = {kind: f"{opening}{text}{closing}" for kind, text in texts.items()}
    return {"name": name, "tags": tags, "written": written, "name_in_tag": r":([\w.\-]+)"}


PIPES, BRACKETS = between("pipes", "<|", "|>"), between("brackets", "[", "]")
CORNERS, MARKED, WORDS = between("corners", "\u3010", "\u3011"), between("marked", "@@", ";"), between("words", "Tool-", "!")
ROWS = [Dialect(**row) for row in (PIPES, BRACKETS, CORNERS, MARKED, WORDS)]
WRAPPED = Dialect(
    name="wrapped",
    tags={"block_open": r"\[TOOL_CALLS\]", "block_close": r"\[/TOOL_CALLS\]"},
    written={"block_open": "[TOOL_CALLS]", "block_close": "[/TOOL_CALLS]"},
    body=Body.JSON,
)
VALUES: list[dict[str, Any]] = [{}, {"a": "x", "b": 5}, {"a": "[/call] <|/arg|> a < b [1] @@ \u3010"}, {"a": "\n"}]


@pytest.mark.parametrize("row", [*ROWS, WRAPPED, *DIALECTS.values()], ids=lambda row: row.name)
def test_a_format_that_was_made_is_read_and_written(row: Dialect) -> None:
    for arguments in VALUES:
        text = render([{"name": "f", "arguments": arguments}], TOOLS, dialect=row)
        reply = parse(text, TOOLS, dialect=row)
        assert [call.arguments for call in reply.calls if isinstance(call, ToolCall)] == [arguments]
        assert reply.repairs == ()
        assert all(text.startswith(beginning(row, name)) for name in ("", "f"))  # a call that is begun for a model


@pytest.mark.parametrize("row", [*ROWS, WRAPPED], ids=lambda row: row.name)
def test_it_is_read_in_text_however_that_is_cut(row: Dialect) -> None:
    text = "See [1] and 3 < 4.\n" + render([{"name": "f", "arguments": {"a": "v [2]\n", "b": 5}}], TOOLS, dialect=row)
    events = []
    for size in (len(text), 1, 3):
        parser = Parser(TOOLS, dialect=row)
        chunks = ("".join(part) for part in itertools.zip_longest(*[iter(text)] * size, fillvalue=""))
        events.append(coalesce([*(event for chunk in chunks for event in parser.feed(chunk)), *parser.close()]))
    assert events[0] == events[1] == events[2]
    assert parse(text, TOOLS, dialect=row).text == "See [1] and 3 < 4.\n"


@pytest.mark.parametrize("row", [*ROWS, WRAPPED], ids=lambda row: row.name)
def test_its_fragments_are_known(row: Dialect) -> None:
    text = render([{"name": "f", "arguments": {"a": "x"}}], TOOLS, dialect=row)
    assert attempts_call(text, [row])
    places = opening_places([row])(text)
    calls = parse("".join("-" if at in places else char for at, char in enumerate(text)), TOOLS, dialect=row).calls
    assert {issue.code for call in calls for issue in call.raw.issues} <= {"unread-call"}
    assert not any(isinstance(call, ToolCall) for call in calls)


GOOD = between("good", "<", ">")


def json_mark(written: str) -> TypeMark:
    return TypeMark(written=written, attribute="type", value="json")


def changed(**changes: Any) -> dict[str, Any]:
    return GOOD | changes


def with_tag(kind: str, pattern: str) -> dict[str, Any]:
    return changed(tags=GOOD["tags"] | {kind: pattern})


def without(part: str, kind: str) -> dict[str, Any]:
    return changed(**{part: {key: value for key, value in GOOD[part].items() if key != kind}})


REFUSED = {
    "a name that is none": (changed(name="a b"), "name"),
    "a name that means all": (changed(name="auto"), "name"),
    "an unknown kind": (with_tag("cal_open", "<x>"), "cal_open"),
    "an unknown kind that is written": (changed(written=GOOD["written"] | {"cal_open": "<x>"}), "cal_open"),
    "no pattern": (with_tag("call_close", "</call("), "regular expression"),
    "a group": (with_tag("call_close", "</(call)>"), "group"),
    "a star": (with_tag("call_close", r"</call\s*>"), r"\*"),
    "a plus": (with_tag("call_close", "</call>+"), r"\+"),
    "a bound without end": (with_tag("call_close", "</cal{1,}>"), r"\{1,\}"),
    "a pattern that calls itself": (with_tag("call_close", "</call(?R)?>"), "R"),
    "nothing as a tag": (with_tag("call_close", "(?:</call>)?"), "empty"),
    "a look ahead alone": (with_tag("call_close", "(?=</call>)"), "call_close"),
    "anything as a first character": (with_tag("call_close", ".call>"), "begin"),
    "white space as a first character": (with_tag("call_close", r"\s?</call>"), "white space"),
    "no opener of a call": (without("tags", "call_open"), "call_open"),
    "no closer of a call": (without("tags", "call_close"), "call_close"),
    "no closer of a parameter": (without("tags", "parameter_close"), "parameter_close"),
    "no written opener": (without("written", "call_open"), "call_open"),
    "no body": (changed(json_body=True), "body_open"),
    "no wrapper around JSON": (changed(body=Body.JSON), "block_open"),
    "a written tag that is not read": (with_tag("call_close", "</other>"), "call_close"),
    "a tag that another one hides": (changed(tags={"block_open": r"<call:[\w.\-]{1,64}>"} | GOOD["tags"]), "call_open"),
    "a name that is not found": (changed(name_in_tag=r"name=([^>]+)"), "name_in_tag"),
    "a name without its group": (changed(name_in_tag=r":\w+"), "name_in_tag"),
    "a name with two groups": (changed(name_in_tag=r"(:)(\w+)"), "name_in_tag"),
    "a name in no attribute": (changed(name_in_tag=""), "name"),
    "no name in what is written": (changed(written=GOOD["written"] | {"call_open": "<call:x>"}), r"\{name\}"),
    "a mark on a tag that is not read": (changed(json_mark=json_mark("<other:{name}>")), "json_mark"),
    "a name after another tag": (changed(name_after="<other>", tags=GOOD["tags"] | {"block_open": "<other>"}), "name_after"),
    "a mark that is not read": (changed(json_mark=json_mark("<arg:{name}>")), 'type="json"'),
}


@pytest.mark.parametrize(
    ("pattern", "part"), [("<call>", "<call>"), ("(?:x|y)<call>?z", "<call"), ("ab*cd", "cd"), ("<a>|<bcd>", "")]
)
def test_what_stands_in_every_match_of_a_pattern(pattern: str, part: str) -> None:
    assert certain_part(pattern) == part


@pytest.mark.parametrize(("row", "word"), REFUSED.values(), ids=REFUSED)
def test_a_row_that_could_not_be_read_is_refused(row: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word) as refusal:
        Dialect(**row)
    assert "expected" in str(refusal.value)
    assert "got" in str(refusal.value)
    Dialect(**GOOD)
