"""Calls that a server with function calling left in the text."""

import asyncio
import contextlib
import time
from typing import Any

import pytest
from cases import cuts
from hypothesis import given
from hypothesis import strategies as st

from xmlcall import Catalog, LocalHost, Message, Reply, TextDelta, ToolCall, ToolLoop
from xmlcall.agent.drive import drive
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import OutputRejected
from xmlcall.turn.generate import Binder, Generated
from xmlcall.turn.machine import Machine
from xmlcall.turn.native import NativeOptions, _overlap, generate_native
from xmlcall.types.calls import RawArgument, RawCall
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest, PromptProgress
from xmlcall.types.events import Event


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


CATALOG = Catalog(
    [{"name": "add", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}]
)
CALL = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
FENCED = f"```json\n{CALL}\n```"
XML = '<function_calls><invoke name="add"><parameter name="a">1</parameter><parameter name="b">2</parameter></invoke>'
OTHER = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>'
ADDED: list[Any] = [("add", {"a": 1, "b": 2})]


def native(a: int, b: int) -> Chunk:
    """A call that the server found."""
    given = tuple(RawArgument(name=name, text=str(value), value=value) for name, value in (("a", a), ("b", b)))
    return Chunk(tool_calls=(RawCall(index=0, name="add", arguments=given, dialect="native"),), finish_reason="tool_calls")


async def _generated(
    pieces: list[Any], read_text: bool, capabilities: Capabilities | None
) -> tuple[Generated, list[Event | PromptProgress]]:
    backend, events = ScriptedBackend([pieces], capabilities=capabilities), list[Event | PromptProgress]()
    request, binder = CompletionRequest(messages=()), Binder(catalog=CATALOG)
    machine = Machine(generate_native(request, binder, NativeOptions(server=backend.capabilities, reads_text=read_text)))
    async for event in drive(machine, backend):
        events.append(event)
    assert machine.result is not None
    return machine.result, events


def generated(
    *pieces: Any, read_text: bool = True, capabilities: Capabilities | None = None
) -> tuple[Generated, list[Event | PromptProgress]]:
    return asyncio.run(_generated(list(pieces), read_text, capabilities))


def calls(reply: Reply) -> list[Any]:
    return [
        (each.name, each.arguments if isinstance(each, ToolCall) else [issue.code for issue in each.issues])
        for each in reply.calls
    ]


# what the model wrote -> the text that is shown, the calls
CASES: list[tuple[str, str, str, list[Any]]] = [
    ("no call", "It is 3.", "It is 3.", []),
    ("JSON in a fence", FENCED, "\n", ADDED),
    ("JSON alone", CALL, "", ADDED),
    ("JSON after words", f"I add them.\n\n{FENCED}\n", "I add them.\n\n\n", ADDED),
    ("the format of the prompt", XML, "", ADDED),
    ("a wrapper", f"<tool_call>\n{CALL}\n</tool_call>", "", ADDED),
    ("a broken wrapper", f"<tool_call>\n{CALL}", "", ADDED),
    ("an invented result", f"{FENCED}\nThe result is 9.", "\n", ADDED),
    ("another spelling", CALL.replace("add", "functions.add"), "", ADDED),
    ("a wrong argument", CALL.replace("2", '"two"'), "", [("add", ["wrong-type"])]),
    ("a tool that is not offered", f"See {OTHER} there.", f"See {OTHER} there.", []),
    ("a tool that is not offered, in tags", '<invoke name="x"></invoke> is a call.', '<invoke name="x"></invoke> is a call.', []),
    ("a tool that is not offered, and one that is", f"{OTHER}\n{CALL}", "\n", [("weather", ["unknown-tool"]), *ADDED]),
    ("inline code", f"Write `{CALL}` for it.", f"Write `{CALL}` for it.", []),
    ("thinking", f"<think>{CALL}</think>It is 3.", "It is 3.", []),
    ("JSON in a sentence", f"The call is {CALL} then.", f"The call is {CALL} then.", []),
]


@pytest.mark.parametrize(("written", "text", "found"), [pytest.param(*case, id=name) for name, *case in CASES])
def test_calls_in_the_text(written: str, text: str, found: list[Any]) -> None:
    for pieces in cuts(written, most=20):
        reply, events = generated(*pieces)
        assert calls(reply.reply) == found, pieces
        assert reply.reply.text == text
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text
        assert reply.raw == written
        leaked = [repair.code for repair in reply.reply.repairs].count("leaked-call")
        assert leaked == len(found)


def test_each_call_says_that_it_leaked() -> None:
    reply, _ = generated(FENCED)
    assert [repair.code for repair in reply.reply.calls[0].raw.repairs] == ["leaked-call"]


def test_text_comes_as_it_is_written() -> None:
    _, events = generated("One ", "two ", "three.")
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["One ", "two ", "three."]


@pytest.mark.parametrize("own", [native(1, 2), native(3, 4)])
def test_calls_that_the_server_found_are_the_only_ones(own: Chunk) -> None:
    reply, _ = generated(f"So: {FENCED}", own)
    assert calls(reply.reply) == [("add", {argument.name: argument.value for argument in own.tool_calls[0].arguments})]
    assert reply.reply.text == reply.text == f"So: {FENCED}"
    assert reply.reply.repairs == ()


def test_a_cut_call_does_not_run() -> None:
    reply, _ = generated("<tool_call>" + CALL[:-5], Chunk(finish_reason="length"))
    assert calls(reply.reply) == [("add", ["truncated-call"])]


def test_what_is_measured_is_left_as_it_is() -> None:
    reply, _ = generated(f"<think>x</think>{FENCED}", read_text=False)
    assert (reply.reply.text, reply.reply.calls) == (f"<think>x</think>{FENCED}", ())


@pytest.mark.parametrize(("pieces", "found"), [((FENCED,), []), ((Chunk(reasoning="Hm."), FENCED), ADDED)])
def test_a_text_that_may_begin_in_the_thinking_is_not_read(pieces: tuple[Any, ...], found: list[Any]) -> None:
    reply, _ = generated(*pieces, capabilities=Capabilities(server="llama.cpp", reasoning_open=True))
    assert calls(reply.reply) == found


# -- what a server could not read, and quotes -----------------------------------------------------------------------------


def rejected(output: str) -> OutputRejected:
    return OutputRejected("could not read it", status_code=500, output=output)


@pytest.mark.parametrize(
    "call", [XML, FENCED, f"<tool_call>\n{CALL}\n</tool_call>", "<|tool_call_start|>[add(a=1, b=2)]<|tool_call_end|>"]
)
def test_what_was_streamed_and_what_is_quoted_are_one_text(call: str) -> None:
    """Whatever was streamed before, the quotation goes on from there, or from somewhere before."""
    written = f"I add them.\n{call}"
    begin = written.index(call)
    for streamed in range(len(written) + 1):
        for start in {0, min(streamed, begin)}:
            reply, events = generated(written[:streamed], rejected(written[start:]))
            assert calls(reply.reply) == ADDED, (streamed, start)
            shown = "".join(event.text for event in events if isinstance(event, TextDelta)).strip()
            assert shown == "I add them." or start == streamed  # then a letter may count as an overlap by chance


@given(st.integers(0, 80), st.integers(0, 80))
def test_a_call_is_never_put_together_wrongly(streamed: int, start: int) -> None:
    """A quotation that begins in the middle of a call may overlap by chance with what was streamed."""
    written = '<invoke name="add"><parameter name="a">1111</parameter><parameter name="b">2222</parameter></invoke>'
    with contextlib.suppress(OutputRejected):
        reply, _ = generated(written[:streamed], rejected(written[start:]))
        found = [call for call in reply.reply.calls if isinstance(call, ToolCall)]
        assert [each.arguments for each in found] in ([], [{"a": 1111, "b": 2222}])


@given(st.text("ab", max_size=30), st.text("ab", max_size=30))
def test_the_longest_overlap(said: str, output: str) -> None:
    lengths = [length for length in range(min(len(said), len(output)) + 1) if said.endswith(output[:length])]
    assert _overlap(said, output) == (max(lengths) if output else 0)


def test_a_quotation_is_read_in_linear_time() -> None:
    long = "a" * 200_000
    started = time.perf_counter()
    assert _overlap(long + "b", long) == 0
    assert _overlap(long, long + "b") == len(long)
    assert time.perf_counter() - started < 5.0


@pytest.mark.parametrize("output", ["", "It is 3.", '{"a": 1, "b": 2}', OTHER])
def test_a_reply_of_which_nothing_can_be_read_is_the_servers_failure(output: str) -> None:
    with pytest.raises(OutputRejected):
        generated(rejected(output))
    reply, _ = generated("I add them.", rejected(output))  # what was shown stays
    assert (reply.reply.text, reply.reply.calls) == ("I add them.", ())


@pytest.mark.parametrize("length", range(0, len(XML), 3))
def test_half_a_call_does_not_run_because_its_server_gave_up(length: int) -> None:
    """The server holds back what it could not read, so a call that is not closed may lack arguments."""
    with contextlib.suppress(OutputRejected):
        reply, _ = generated(XML[:length], rejected(""))
        assert not [call for call in reply.reply.calls if isinstance(call, ToolCall)]


# -- what the model is shown of it -------------------------------------------------------------------------------------


def asked(first: str, tool_role: bool | None = True) -> tuple[Message, ...]:
    """Let the model write a reply and then an answer; return the second request's messages after the question."""

    async def run() -> tuple[Message, ...]:
        backend = ScriptedBackend([first, "It is 3."], capabilities=Capabilities(server="scripted", tool_role=tool_role))
        async with ToolLoop(backend, [LocalHost([add])], mode="native", policy=["*"]) as loop:
            assert (await loop.ask("What is 1 + 2?")).text == "It is 3."
        return backend.requests[1].messages[1:]

    return asyncio.run(run())


@pytest.mark.parametrize("tool_role", [True, None])
def test_a_call_that_leaked_goes_on_as_if_the_server_had_found_it(tool_role: bool | None) -> None:
    said, told = asked(f"I add.\n{FENCED}", tool_role)
    assert (said.role, said.content) == ("assistant", "I add.")
    assert [(each.name, each.arguments) for each in said.tool_calls] == ADDED
    assert (told.role, told.content, told.tool_call_id) == ("tool", "3", said.tool_calls[0].id)


def test_a_call_stays_text_where_the_template_drops_calls() -> None:
    said, told = asked(f"I add.\n{FENCED}\nIt is 9.", tool_role=False)
    assert (said.content, said.tool_calls) == (f"I add.\n{FENCED}", ())
    assert told.role == "user"
    assert '<result name="add">\n3\n</result>' in told.content


def test_a_call_that_cannot_run_stays_text_and_is_answered() -> None:
    written = CALL.replace("2", '"two"')
    said, told = asked(written)
    assert (said.content, said.tool_calls) == (written, ())
    assert told.role == "user"
    assert "two" in told.content
