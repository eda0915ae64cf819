"""Reading on in a result: every piece fits, and all pieces together are the result."""

from hypothesis import given
from hypothesis import strategies as st

from xmlcall.prompting.feedback import results
from xmlcall.prompting.fit_context import fit
from xmlcall.prompting.results import handle_of, line_end, line_start, piece, piece_tokens, result_with, texts_of
from xmlcall.prompting.tokens import tokens_of
from xmlcall.proxy.formats.bodies import call_of
from xmlcall.types.calls import Message, TextContent, ToolResult

TEXTS = st.text(alphabet=st.sampled_from("ab1\n字 é😀"), max_size=3000)


def person(text: str) -> Message:
    return Message(role="user", content=text)


def told(text: str) -> Message:
    return results([(call_of("", "read_file", {}, 0), ToolResult(content=(TextContent(text=text),)))])


@given(TEXTS, st.integers(1, 500))
def test_pieces_fit_and_join_to_the_whole(text: str, tokens: int) -> None:
    start, pieces = 0, list[str]()
    while start < len(text):
        pieces.append(piece(text, start, tokens))
        assert pieces[-1]
        assert tokens_of(pieces[-1]) <= tokens or len(pieces[-1]) == 1
        start += len(pieces[-1])
    assert "".join(pieces) == text


@given(TEXTS, st.data())
def test_line_ends_are_near_and_never_go_backwards(text: str, data: st.DataObject) -> None:
    one, other = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    assert line_end(text, one) <= line_end(text, other)
    assert line_start(text, one) <= line_start(text, other)
    assert one - one // 4 <= line_end(text, one) <= one
    assert one <= line_start(text, one) <= one + (len(text) - one) // 4


def test_a_shortened_result_is_cut_at_line_ends_and_says_how_to_read_on() -> None:
    text = "\n".join(f"line {number}" for number in range(3000))
    messages = [person("Go."), Message(role="assistant", content="call"), told(text)]
    (whole,) = texts_of(messages)
    (shown,) = texts_of(fit(messages, 2000, more="read_more").messages[-1:])
    head, _, rest = shown.partition("\n[...")
    note, _, tail = rest.partition("...]\n")
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert whole[len(head)] == "\n"
    assert head.rpartition("\n")[2] in text.split("\n")
    assert tail.partition("\n")[0] in text.split("\n")
    handle, start = handle_of(whole), len(head) + 1
    assert f'call read_more with handle "{handle}" and start {start} ' in note
    assert result_with(handle, messages) == whole
    assert "read_more" not in fit(messages, 2000).messages[-1].content


def test_a_handle_finds_results_of_either_kind_and_nothing_else() -> None:
    long = "x" * 3000
    messages = [person(long), Message(role="tool", content="y" * 3000, name="t"), told("z" * 3000)]
    for text in texts_of(messages):
        assert result_with(f" {handle_of(text).upper()} ", messages) == text
    assert len(texts_of(messages)) == 2
    assert result_with(handle_of(long), messages) is None
    assert result_with("", messages) is None


def test_a_piece_follows_from_the_context() -> None:
    assert [piece_tokens(length) for length in (None, 512, 8192, 131_072)] == [1024, 128, 1024, 16_384]
