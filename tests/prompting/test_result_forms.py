"""Results in the form of each family: read back as written, closed by nobody else, known as results and never said by a model."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlcall import parse
from xmlcall.binding.provenance import provenance
from xmlcall.dialects import DIALECTS, result_form_of
from xmlcall.dialects.dialect import OWN_RESULTS, Dialect, ResultForm
from xmlcall.dialects.write import named_results, replies_of
from xmlcall.errors import UsageError
from xmlcall.prompting.fit_context import fit
from xmlcall.prompting.format import PromptFormat
from xmlcall.prompting.leaks import Leaks, results_in
from xmlcall.prompting.results import results
from xmlcall.types.calls import Message, RawCall, TextContent, Tool, ToolCall, ToolResult
from xmlcall.types.events import TextDelta

READ = Tool(name="read", input_schema={"type": "object", "properties": {"path": {"type": "string"}}})
FORMS = {row.results: name for name, row in reversed(DIALECTS.items())}
MARKS = sorted({part for form in FORMS for part in (form.opener, form.closer, form.result_opener, form.result_close.strip())})


def message(text: str, dialect: str, *, failed: bool = False, name: str = "read") -> Message:
    call = ToolCall(id="1", name=name, arguments={}, raw=RawCall(index=0, name=name))
    return results(
        [(call, ToolResult(content=(TextContent(text=text),), is_error=failed))], [READ], PromptFormat(dialect=dialect)
    )


def person(text: str) -> Message:
    return Message(role="user", content=text)


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("function_calls", '<function_results>\n<result name="read">\nok\n</result>\n</function_results>\n\n('),
        ("hermes", "<tool_response>\nok\n</tool_response>\n\n("),
        ("qwen", "<tool_response>\nok\n</tool_response>\n\n("),
        ("glm", "<tool_response>\nok\n</tool_response>\n\n("),
        ("mistral", "[TOOL_RESULTS]ok[/TOOL_RESULTS]\n\n("),
        ("lfm2", "<|tool_response_start|>ok<|tool_response_end|>\n\n("),
        ("gemma4", '<|tool_response>response:read{value:<|"|>ok<|"|>}<tool_response|>\n\n('),
        ("deepseek", "<｜tool▁output▁begin｜>ok<｜tool▁output▁end｜>\n\n("),
        ("llama3", '<function_results>\n<result name="read">\nok\n</result>\n</function_results>\n\n('),
    ],
)
def test_results_go_back_in_the_form_of_the_family(dialect: str, expected: str) -> None:
    assert message("ok", dialect).content.startswith(expected)


@pytest.mark.parametrize("dialect", FORMS.values())
@given(
    st.lists(st.sampled_from([*MARKS, "read", "\n", "</", "<", "[", "{", " ", '"', "a", "…", "&lt;"]), max_size=12).map("".join)
)
def test_a_result_ends_where_its_text_ends(dialect: str, text: str) -> None:
    written = message(text, dialect)
    ((name, told),) = named_results(written)
    assert result_form_of(written.content) == DIALECTS[dialect].results
    ((read_name, read),) = named_results(replace(written, written=None))
    assert (read_name, read.strip("\n")) == (name, told.strip("\n"))
    assert replies_of(written)[0].name == "read"
    # Brackets may be entities, and nothing else is changed: what was a mark is none.
    assert told.replace("&lt;", "<").replace("&#91;", "[").replace("&#123;", "{").strip() in (
        text.replace("&lt;", "<").strip(),
        "(the tool returned nothing)",
    )


@pytest.mark.parametrize("dialect", FORMS.values())
def test_an_error_is_told_as_one(dialect: str) -> None:
    row, said = DIALECTS[dialect], message("no such file", dialect, failed=True)
    assert replies_of(said)[0].is_error
    assert replies_of(replace(said, written=None))[0].is_error
    written = said.content
    assert 'error="true"' in written if row.results.error_open else "Error: no such file" in written


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_known_as_results_and_opens_no_call(form: ResultForm) -> None:
    written = form.write([("read", "one", False), ("list", "two", True)]).text
    told = named_results(person(written))
    assert [text for _, text in told] == ["one", "two"]
    assert {name for name, _ in told} in ({"read", "list"}, {""})
    assert parse(written, [READ]).calls == ()


@pytest.mark.parametrize("form", FORMS)
def test_a_value_is_found_in_a_result(form: ResultForm) -> None:
    told = person(form.write([("list", "report-2024.txt", False)]).text)
    source = provenance(
        ToolCall(id="2", name="read", arguments={"path": "report-2024.txt"}, raw=RawCall(index=0, name="read")), [told], [READ]
    )["$.path"]
    assert (source.kind, source.call) == ("result", 1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_model_that_writes_results_is_stopped(form: ResultForm, size: int) -> None:
    text, leaks = f"Let me see.\n{form.write([('read', 'made up', False)]).text}\nIt is made up.", Leaks()
    pieces = [(at, text[at : at + size]) for at in range(0, len(text), size)]
    events = [event for at, piece in pieces for event in leaks.pass_on(TextDelta(text=piece, span=(at, at + len(piece))))]
    shown = "".join(event.text for event in (*events, *leaks.close()) if isinstance(event, TextDelta))
    assert (shown.strip(), leaks.found) == ("Let me see.", "invented_results")


@pytest.mark.parametrize("form", FORMS)
def test_a_reply_that_is_a_result_word_for_word_is_the_answer(form: ResultForm) -> None:
    written = form.write([("read", "It is 7.", False)]).text
    leaks = Leaks(results_in([person(written)]))
    events = [*leaks.pass_on(TextDelta(text=written, span=(0, len(written)))), *leaks.close()]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["It is 7."]
    assert leaks.found == ""


@pytest.mark.parametrize("form", FORMS)
def test_a_long_result_is_shortened_in_its_marks(form: ResultForm) -> None:
    said = [person("Read it."), Message(role="assistant", content="Yes.")]
    fitted = fit([*said, person(form.write([("read", "word " * 20_000, False)]).text)], 2000)
    (told,) = named_results(fitted.messages[-1])
    assert fitted.fits
    assert told[1].startswith("word word")
    assert "are left out here" in told[1]
    assert fitted.messages[-1].content.endswith(form.closer)


@pytest.mark.parametrize(
    "text", ["Fix <response>", "[1] is a source", "<tool_responsible>", "`<tool_response>` is what?", "", "<", "["]
)
def test_a_person_may_begin_with_a_bracket(text: str) -> None:
    assert not replies_of(person(text))


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        (ResultForm(result_open="Result of {name}:\n", result_close="\n(end)"), "expected that results begin with a mark"),
        (ResultForm(result_open="<r>", result_close="\n"), "expected a mark at the end of each result"),
    ],
)
def test_a_form_that_others_could_pass_for_is_refused(form: ResultForm, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Dialect(
            name="mine",
            tags={"block_open": "<mine>"},
            written={"block_open": "<mine>"},
            body=DIALECTS["hermes"].body,
            results=form,
        )


def test_all_forms_begin_in_their_own_way() -> None:
    openers = [form.opener for form in FORMS]
    assert OWN_RESULTS in FORMS
    assert not [(a, b) for a in openers for b in openers if a != b and a.startswith(b)]
