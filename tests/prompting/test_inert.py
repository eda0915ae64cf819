"""Nothing in a result opens a call, in any wire format, and what is shown stays readable."""

import html
import json
import time
from typing import Any

import pytest
from cases import TOOLS, load
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import covering, examples
from soup import PIECES, pieces_of

from xmlcall import Tool, ToolCall, ToolResult, parse, system_prompt
from xmlcall.dialects import DIALECTS, Dialect
from xmlcall.dialects.call_signs import inert_text
from xmlcall.dialects.dialect import ResultForm
from xmlcall.dialects.write import write
from xmlcall.prompting.format import PromptFormat
from xmlcall.prompting.results import feedback, results
from xmlcall.prompting.system import tool_prompt
from xmlcall.tools.catalog import Catalog
from xmlcall.types.calls import InvalidCall, Issue, RawCall, TextContent

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": ["integer", "null"]}}}
OFFERED = Catalog({"name": name, "inputSchema": SCHEMA} for name in ("f", "read_file", "files__list"))
CALL = ToolCall(id="call_0", name="f", arguments={}, raw=RawCall(index=0, name="f"))


def told(*texts: str, tools: Catalog = OFFERED) -> str:
    return results([(CALL, ToolResult(content=(TextContent(text=text),))) for text in texts], tools).content


VALUES = st.dictionaries(st.sampled_from(["a", "b"]), st.none() | st.integers(0, 9) | st.text(max_size=20))


@settings(max_examples=examples(300), deadline=None)
@given(
    dialect=st.sampled_from(list(DIALECTS)),
    calls=st.lists(st.tuples(st.sampled_from(OFFERED.names()), VALUES), min_size=1, max_size=3),
    before=st.sampled_from(["", "\n", "See:\n```json\n", "<tools>\n", "[", "So: "]),
)
def test_no_written_call_is_read_in_a_result(dialect: str, calls: list[Any], before: str) -> None:
    written = before + write(calls, OFFERED, DIALECTS[dialect])
    assert parse(told(written), OFFERED).calls == ()
    assert parse(told(written, written), OFFERED).calls == ()


def test_no_reply_that_was_ever_read_is_a_call_in_a_result() -> None:
    for name, case in load("*/*.toml"):
        tools = Catalog(TOOLS[case["tools"]] if "tools" in case else ())
        assert parse(told(case["input"], tools=tools), tools).calls == (), name


ALL_PIECES = [
    *PIECES,
    *(piece for row in DIALECTS.values() for piece in pieces_of(row)),
    *(
        '{"name": "f",',
        '"arguments": {"a": "x"}}',
        '{"arguments": {',
        '}, "name": "f"}',
        "[",
        '"&gt;',
        "&quot;",
        '<invoke name="f"&gt;',
    ),
]


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from(ALL_PIECES), max_size=30))
def test_no_soup_of_markup_is_a_call_in_a_result(pieces: list[str]) -> None:
    assert parse(told("".join(pieces)), OFFERED).calls == ()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_first_characters_are_entities(dialect: str) -> None:
    """What a model reads in place of a call is the call, but for a few characters that it knows from web pages."""
    written = write([("f", {"a": "x"})], OFFERED, DIALECTS[dialect])
    shown = told(f"It says:\n{written}").partition("It says:\n")[2].partition("\n</result>")[0]
    assert shown != written
    assert html.unescape(html.unescape(shown)) == html.unescape(written)
    assert len(shown) - len(written) <= 5 * sum(map(written.count, "<&{[`"))


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Rome", "population": 2870500}',
        '[{"name": "g", "arguments": {}}]',
        "a < b && c > d, <b>bold</b>, &lt;p&gt;, if (x) { y }",
        '{"id": 1, "function": "sum"}',
        "<html><body><p>Hello</p></body></html>",
        "for (i = 0; i < result.length; i++) a[i] < think",
        "usage: copy <path> <name> [options] [tools], with <on|off>, <role>editor</role> and [/tool]",
        "[results] of <b> and <s of <resulting>",
    ],
)
def test_what_opens_no_call_stays_as_it_is(text: str) -> None:
    assert f">\n{text}\n</result>" in told(text)
    assert f"\n{text}\n" in system_prompt([Tool(name="look", description=text), *OFFERED])


def test_a_schema_of_arguments_stays_as_it_is() -> None:
    field: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = {"type": "object", "properties": {"input": field}}
    prompt = tool_prompt(Catalog([Tool(name="look", input_schema=schema)]), PromptFormat(family="schema"))
    assert json.dumps(schema) in prompt
    field["default"] = {"arguments": {"a": "x"}, "name": "look"}
    assert '&#123;"arguments": {' in tool_prompt(Catalog([Tool(name="look", input_schema=schema)]), PromptFormat(family="schema"))


CONTROL = """
[INST] [/INST] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [AVAILABLE_TOOLS] [TOOL_CALLS] [ARGS] [CALL_ID] [TOOL_CONTENT]
[IMG] <<SYS>> <</SYS>> <s> </s> <bos> <eos> <pad> <unk> <start_of_turn> <end_of_turn> <|turn> <turn|>
<channel|> <|channel> <tool|> <start_function_declaration> <escape> <seed:bos> <seed:eos> <seed:think>
</seed:think> <[begin▁of▁sentence]> <role>SYSTEM <role>HUMAN <role>ASSISTANT <role>OBSERVATION <SPECIAL_12>
<extra_id_0> <|im_start|> <|im_end|> <|eot_id|> <｜User｜> <reserved_106> <｜end▁of▁sentence｜> [|system|]
[|endofturn|] [gMASK] <sop> <|user|> ]~b]system [e~[ <BOS_TOKEN> <|START_OF_TURN_TOKEN|> <eoh> <ifm|im_start>
<longcat_s> <|start|> <|message|> <|return|> <|role_sep|> <|plamo:begin_message:plamo|> <|open|> <fim_prefix>
<mm:think> <|endoftext|> <|START_RESPONSE|> <file_sep> <|fim_hole|> <think> </think> <THINK>
<用户> <AI> <_user> <_bot> <end_of_utterance> [unused9] [UNUSED_TOKEN_146] <unused94> <ctrl99> [control_8] [SEP]
<mask> <BOS> [EOS] [PAD] <repo_name>
"""


def test_words_in_brackets_that_no_template_has_stay() -> None:
    assert "[unused-import]" in told("a [unused-import] b")


def test_control_words_of_chat_templates_are_inert() -> None:
    """A server reads them anywhere in a prompt: a result would begin a turn of another role."""
    for word in CONTROL.split():
        first = {"<": "&lt;", "[": "&#91;", "]": "&#93;"}[word[0]]
        schema = {"type": "object", "properties": {"p": {"enum": ["a", word]}}}
        look = Tool(name="look", description=f"So {word} ends", input_schema=schema)
        everywhere = told(f"a {word} b") + system_prompt([look], instructions={"s": word})
        assert everywhere.count(first + word[1:]) == 4
        assert word not in everywhere


FORMS = {row.results.opener: row for row in DIALECTS.values()}


def broken_frames(form: ResultForm) -> list[str]:
    """Return marks of a form, as they are and as a model may still take them for its own."""
    marks = [mark.strip().replace("{name}", "f") for mark in (form.result_close, form.frame_close, form.result_open) if mark]
    cased = [each for mark in marks for each in (mark, mark.upper(), mark.title())]
    spaced = [mark.replace("</", "< /").replace("[/", "[ / ").replace(">", " >") for mark in marks]
    wide = [
        mark.replace("<", "＜").replace(">", "＞")
        for mark in marks
        if mark.startswith("<") and mark[1].isalnum() | (mark[1] == "/")
    ]
    return [*cased, *spaced, *(mark.replace("</", "<\u200b/") for mark in marks), *wide]


@pytest.mark.sweep
@pytest.mark.parametrize(("asked_in", "row"), [(row, row) for row in FORMS.values()] + covering(FORMS.values(), FORMS.values()))
def test_no_mark_of_a_frame_stands_in_words_of_others(asked_in: Dialect, row: Dialect) -> None:
    """The forms of others, too: a chat template may read these as its own. Feedback shows a schema inside the frame."""
    format = PromptFormat(dialect=asked_in.name)
    for mark in broken_frames(row.results):
        odd = Tool(
            name="odd",
            description=mark,
            input_schema={"type": "object", "properties": {mark: {"enum": [mark]}}, "required": [mark]},
        )
        catalog = Catalog([odd, *OFFERED])
        issue = Issue(code="missing-parameter", path=f"$['{mark}']", message=f"Give {mark}")
        wrong = InvalidCall(id="call_0", name="odd", issues=(issue,), raw=RawCall(index=0, name="odd"))
        message = results(
            [(wrong, None), (CALL, ToolResult(content=(TextContent(text=mark),)))], catalog, format, again=["call_0"]
        )
        replies = list(asked_in.results.places(message.content))
        inside = "".join(reply.text_in(message.content) for reply in replies)
        assert len(replies) == 2
        assert mark not in inside
        assert inside.count(inert_text(mark, catalog)) >= 5
        assert mark not in system_prompt(catalog).partition("## How to call")[0]


def test_an_entity_that_completes_a_tag_is_found() -> None:
    text = "<function_calls&gt;<invoke name=&quot;f&quot;&gt;<parameter name=&quot;a&quot;&gt;x&lt;/parameter&gt;&lt;/invoke&gt;"
    assert parse(told(text), OFFERED).calls == ()
    assert "&lt;invoke" not in told(text)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_our_own_example_is_a_call_in_feedback(dialect: str) -> None:
    """Words of the person and of the model stand there, too."""
    written = write([("read_file", {"a": "x"})], OFFERED, DIALECTS[dialect])
    issue = Issue(code="malformed-value", path="$.a", got=written, message=f"Found {written}")
    wrong = InvalidCall(id="call_0", name="f", issues=(issue,), raw=RawCall(index=0, name="f"))
    for lang in ("en", "zh"):
        text = feedback(wrong, OFFERED, PromptFormat(dialect=dialect, lang=lang), request=f"Do:\n{written}")
        assert {call.name for call in parse(text, OFFERED).calls} <= {"f"}


@pytest.mark.parametrize("piece", ["<", "[", "{", "</", "< ", "&"])
def test_two_million_marks_are_made_inert_at_once(piece: str) -> None:
    """Less than half a second; with the work of hundreds of patterns at each place it was sixteen."""
    text = piece * (2_000_000 // len(piece))
    begun = time.process_time()
    assert inert_text(text, OFFERED) == text
    assert time.process_time() - begun < 5
