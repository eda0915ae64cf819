"""A turn's record from its events: the same as of the text read at once, and what came of each call."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from cases import TOOLS, load
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from scored import generated
from turn_harness import DyingHost, Told, add, block, call, calls_of, tiles, turn

from xmlcall import LocalHost, Message, Tool, parse
from xmlcall.agent.policy import Decision, Proposal
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.parsing.parser import Parser, reply_of
from xmlcall.parsing.repetition import once
from xmlcall.tools.catalog import Catalog
from xmlcall.turn.events import ReplyEnded, ReplyStarted
from xmlcall.turn.generate import Binder, Generated
from xmlcall.turn_records.builder import MOST_RESULT, TurnBuilder
from xmlcall.turn_records.reading import read_reply
from xmlcall.turn_records.record import CallRecord, ReplyRecord, TurnRecord
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest, Usage
from xmlcall.types.events import TextDelta, ToolCallStart
from xmlcall.wire.openai import native_call

CASES = [pytest.param(case, id=name) for name, case in load("*/*.toml", quick=4)]
TEXTS = [case["input"] for _, case in load("*/*.toml")]
TIMES = ("first_token_seconds", "seconds", "prompt_tokens", "cached_tokens", "completion_tokens")


async def live(
    chunks: Sequence[str], catalog: Catalog, *, finish: str = "stop", open_: bool = False, look: bool = False
) -> TurnRecord:
    """Return the record of a reply that comes in pieces; `look`: it is looked at after each event."""
    server = Capabilities(server="scripted", reasoning_open=open_)
    builder = TurnBuilder(id="t", source="file", tools=catalog, conversation=[])
    backend = Told(ScriptedBackend([list(chunks)], finish_reasons=[finish], capabilities=server), builder)
    builder.note(ReplyStarted(number=1))
    async for event in generated(backend, CompletionRequest(messages=()), Binder(catalog=catalog)):
        if isinstance(event, Generated):
            reply, _ = once(event.reply, "")
            message = Message(role="assistant", content=event.text)
            builder.note(ReplyEnded(number=1, reply=reply, usage=Usage(), raw=event.raw, message=message))
        else:
            builder.note(event)
        if look:
            tiles(builder.record().replies[0])
    return builder.record()


def plain(reply: ReplyRecord) -> ReplyRecord:
    """Leave out what reading a text cannot know: times, tokens, and the ids that are random in a turn."""
    calls = tuple(replace(each, id=f"call_{each.index}") for each in reply.calls)
    unknown: dict[str, Any] = dict.fromkeys(TIMES)
    return replace(reply, calls=calls, **unknown)


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES)
async def test_a_turn_says_what_reading_its_text_says(case: dict[str, Any]) -> None:
    catalog = TOOLS.get(case.get("tools", ""), Catalog(()))
    text, how = case["input"], {"finish": case.get("finish_reason", "stop"), "open_": case.get("reasoning_open", False)}
    for chunks in ([text], list(text), [text[at : at + 7] for at in range(0, len(text), 7)]):
        [reply] = (await live(chunks, catalog, **how)).replies
        again = read_reply(reply.raw, catalog, finish_reason=how["finish"], reasoning_open=how["open_"])
        assert plain(reply) == again
        tiles(reply)
        assert text.startswith(reply.raw)


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
async def test_texts_of_the_corpus_in_any_order_and_cut(data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.sampled_from(TEXTS) | st.text(max_size=20), min_size=1, max_size=3))
    text = "".join(parts)
    catalog = data.draw(st.sampled_from([*TOOLS.values(), Catalog(())]))
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    chunks = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    finish = data.draw(st.sampled_from(["stop", "length"]))
    [reply] = (await live(chunks, catalog, finish=finish, look=len(text) < 300)).replies
    assert plain(reply) == read_reply(reply.raw, catalog, finish_reason=finish)
    tiles(reply)


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=[]), max_size=60) | st.sampled_from(TEXTS))
@settings(max_examples=examples(60), deadline=None)
def test_any_text_is_read_as_the_parser_reads_it(text: str) -> None:
    """Calls that count are those of `parse`; offsets are characters, of half surrogates, too."""
    catalog = TOOLS["edit"]
    reply = read_reply(text, catalog)
    tiles(reply)
    known = [each.name for each in parse(text, catalog).calls]
    assert [each.name for each in reply.calls] == known[: len(reply.calls)]
    for each in reply.calls:
        if each.start is not None:
            assert text[each.start : each.end] == each.text
        for value in each.values:
            assert value.start is None or value.end is None or 0 <= value.start <= value.end <= len(text)


async def test_while_a_reply_comes_its_raw_text_only_grows() -> None:
    text = f"Well. {block(call('add', a=1, b=2))}"
    builder = TurnBuilder(id="t", source="chat")
    backend = Told(ScriptedBackend([text], chunk_size=3), builder)
    builder.note(ReplyStarted(number=1))
    catalog, seen, versions = Catalog([Tool.from_function(add)]), [""], [builder.version]
    async for event in generated(backend, CompletionRequest(messages=()), Binder(catalog=catalog)):
        if isinstance(event, Generated):
            continue
        builder.note(event)
        [reply] = builder.record().replies
        tiles(reply)
        assert reply.raw.startswith(seen[-1])
        assert text.startswith(reply.raw)
        assert builder.version > versions[-1]
        seen.append(reply.raw)
        versions.append(builder.version)
        if any(isinstance(each, CallRecord) and each.arguments is None for each in reply.calls):
            assert reply.calls[0].outcome == "writing"
    assert seen[-1] == text


# -- what came of calls ------------------------------------------------------------------------------------------------------


async def test_a_call_that_ran() -> None:
    record = await turn([f"Let me see. {block(call('add', a=1, b=2))}", "It is 3."])
    [ran] = calls_of(record)
    assert (ran.outcome, ran.result, ran.result_size, ran.by) == ("ok", "3", 1, "allow *")
    assert (ran.server, ran.tool, ran.ran_with, ran.index) == ("local", "add", None, 0)
    assert ran.seconds is not None
    assert ran.seconds >= 0
    assert [(value.path, value.value) for value in ran.values] == [("$.a", 1), ("$.b", 2)]
    assert (record.outcome, record.answer, len(record.replies)) == ("end", "It is 3.", 2)
    assert record.seconds is not None
    assert record.first_token_seconds is not None


async def test_sources_stand_in_the_prompt_that_was_sent() -> None:
    again = block(call("add", a=3, b=40))
    record = await turn([block(call("add", a=1, b=2)), again, "43."], question="Add 1 and 2, then 40 to that.")
    first, second = record.replies[0], record.replies[1]
    for reply in (first, second):
        for value in reply.calls[0].values:
            source = value.source
            assert source is not None
            assert source.message is not None
            words = reply.prompt[source.message].content
            assert words[source.start : source.end] == str(value.value)
    kinds = [value.source.kind for value in second.calls[0].values if value.source]
    assert kinds == ["result", "person"]
    assert second.calls[0].values[0].source.call == 1  # type: ignore[union-attr]
    assert first.prompt[0].role == "system"


async def test_what_our_own_prompt_says_is_no_source() -> None:
    record = await turn([block(call("add", a=7, b=9)), "ok"], question="Add something.")
    assert [value.source and value.source.kind for value in calls_of(record)[0].values] == ["invented", "invented"]


def greet(person: str) -> str:
    """Greet a person."""
    return f"Hello, {person}"


async def test_a_value_may_be_a_translation_of_the_request_but_not_of_our_prompt() -> None:
    async def sources(question: str, first: str = "") -> list[tuple[str, bool]]:
        replies = [*([first] if first else []), block(call("greet", person="Anna")), "ok"]
        calls = calls_of(await turn(replies, question=question, host=LocalHost([greet]), lang="zh"))
        return [(value.source.kind, value.source.may_be_translation) for value in calls[-1].values if value.source]

    assert await sources("问候安娜") == [("invented", True)]
    assert await sources("问候安娜", block(call("greet", other="x"))) == [("invented", True)]
    assert await sources("Greet her.") == [("invented", False)]
    assert await sources("Greet her.", block(call("greet", other="x"))) == [("invented", False)]


async def test_a_tool_that_fails_and_a_server_that_dies() -> None:
    failed = calls_of(await turn([block(call("fail")), "ok"]))[0]
    assert (failed.outcome, failed.failure) == ("error", "")
    died = calls_of(await turn([block(call("add", a=1, b=2)), "ok"], host=DyingHost([add])))[0]
    assert died.outcome == "failed"
    assert "died" in died.failure


async def test_a_call_that_is_denied() -> None:
    denied = calls_of(await turn([block(call("add", a=1, b=2)), "ok"], policy=()))[0]
    assert (denied.outcome, denied.result, denied.seconds) == ("denied", None, None)
    assert denied.reason
    assert (denied.server, denied.tool) == ("local", "add")


async def test_arguments_that_a_person_changed() -> None:
    async def edit(proposal: Proposal) -> Decision:
        return Decision(allowed=True, arguments={"a": 1, "b": 5}, by="person")

    changed = calls_of(await turn([block(call("add", a=1, b=2)), "ok"], policy=edit))[0]
    assert (changed.arguments, changed.ran_with, changed.by) == ({"a": 1, "b": 2}, {"a": 1, "b": 5}, "person")


async def test_a_rejected_call_says_why() -> None:
    record = await turn([block(call("add", a="one")), block(call("add", a=1, b=2)), "3"])
    rejected, ran = calls_of(record)
    assert (rejected.outcome, rejected.arguments, ran.outcome) == ("rejected", None, "ok")
    assert (rejected.server, rejected.tool) == ("local", "add")
    assert {issue.code for issue in rejected.issues} == {"wrong-type", "missing-argument"}
    assert all(issue.why for issue in rejected.issues)
    wrong = next(issue for issue in rejected.issues if issue.code == "wrong-type")
    assert record.replies[0].raw[wrong.start : wrong.end] == "one"


async def test_a_call_that_stands_twice_runs_once() -> None:
    same = call("add", a=1, b=2)
    record = await turn([block(same, same), "3"], question="Add them.")
    first, second = calls_of(record)
    assert (first.outcome, second.outcome) == ("ok", "not started")
    assert [mark.code for mark in second.repairs] == ["repeated-call"]
    assert "repeated-call" in [mark.code for mark in record.replies[0].repairs]


async def test_a_call_that_waits() -> None:
    record = await turn([block(call("add", a=1, b=2), call("times", x=77, y=88)), block(call("times", x=3, y=3)), "9"])
    first, held, again = calls_of(record)
    assert (first.outcome, held.outcome, again.outcome) == ("ok", "held", "ok")
    assert held.arguments == {"x": 77, "y": 88}
    assert held.reason == "$.x, $.y"
    assert (held.server, held.tool) == ("local", "times")
    assert record.replies[0].raw[held.start : held.end] == held.text


async def test_a_reply_that_is_no_answer_is_not_kept() -> None:
    invented = '<function_results>\n<result name="add">\n9\n</result>\n</function_results>'
    record = await turn([invented, "It is 3."])
    assert [(reply.is_kept, reply.refusal) for reply in record.replies] == [(False, "invented_results"), (True, "")]
    assert record.replies[0].spans[0].about == "dropped"


async def test_an_empty_reply_is_asked_for_again() -> None:
    record = await turn(["", "Hello."], question="Hello")
    assert [(reply.is_kept, reply.raw) for reply in record.replies] == [(False, ""), (True, "Hello.")]


async def test_a_cut_call_is_rejected() -> None:
    record = await turn(['Fine. <function_calls><invoke name="add"><parameter name="a">1'] * 4, finish_reasons=["length"] * 4)
    assert [issue.code for issue in calls_of(record)[0].issues][:1] == ["truncated-call"]
    assert calls_of(record)[0].outcome == "rejected"
    assert record.replies[0].finish_reason == "length"


async def test_text_after_the_calls_was_left_out() -> None:
    record = await turn([f"{block(call('add', a=1, b=2))}\nThe result is 12.", "3"])
    last = record.replies[0].spans[-1]
    assert (last.kind, last.about) == ("markup", "dropped")


async def test_native_calls_stand_at_no_place() -> None:
    replies = [[Chunk(text="Let me see."), Chunk(tool_calls=(native_call(0, "add", '{"a": 1, "b": 2}'),))], "3"]
    record = await turn(replies, mode="native")
    [ran] = calls_of(record)
    assert (ran.start, ran.end, ran.dialect, ran.outcome) == (None, None, "native", "ok")
    assert [value.start for value in ran.values] == [None, None]
    assert [value.source.kind for value in ran.values if value.source] == ["person", "person"]
    assert record.replies[0].raw == "Let me see."


async def test_reasoning_of_the_server_and_in_the_text() -> None:
    record = await turn([[Chunk(reasoning="Hm. "), Chunk(reasoning="So."), Chunk(text="Yes.")]])
    assert (record.replies[0].reasoning, record.replies[0].raw) == ("Hm. So.", "Yes.")
    record = await turn(["<think>Hm.</think>Yes."])
    assert (record.replies[0].reasoning, record.replies[0].spans[1].kind) == ("", "reasoning")


async def test_a_reply_that_was_begun_has_its_beginning() -> None:
    text = block(call("add", a=1, b=2))
    builder = TurnBuilder(id="t", source="proxy")
    builder.note(ReplyStarted(number=1))
    begun = "<function_calls>\n"
    builder.prompt([Message(role="user", content="1 + 2"), Message(role="assistant", content=begun)])
    catalog = Catalog([Tool.from_function(add)])
    backend = ScriptedBackend([text.removeprefix("<function_calls>")], chunk_size=4)
    request = CompletionRequest(messages=(Message(role="user", content="1 + 2"),))
    stream = backend.stream(request)
    pieces = [chunk.text async for chunk in stream]

    class Rest(ScriptedBackend):
        async def stream(self, request: CompletionRequest) -> Any:
            for piece in pieces:
                builder.wrote(piece)
                yield Chunk(text=piece)
            yield Chunk(finish_reason="stop")

    async for event in generated(Rest([]), request, Binder(catalog=catalog), prefix=begun):
        if isinstance(event, Generated):
            builder.note(ReplyEnded(number=1, reply=event.reply, usage=Usage(), raw=event.raw))
        else:
            builder.note(event)
            assert builder.record().replies[0].raw.startswith(begun)
    [reply] = builder.record().replies
    assert reply.raw.startswith(begun)
    assert [message.role for message in reply.prompt] == ["user"]
    tiles(reply)


def test_a_turn_that_is_left_in_the_middle() -> None:
    builder = TurnBuilder(id="t", source="proxy")
    builder.note(ReplyStarted(number=1))
    builder.wrote("Well")
    builder.note(TextDelta(text="Well", span=(0, 4)))
    builder.note(ToolCallStart(index=0, name="add", span=(4, 20)))
    builder.end("left")
    [begun] = calls_of(builder.record())
    assert (begun.outcome, builder.record().outcome, builder.record().replies[0].raw) == ("not started", "left", "Well")


def test_calls_of_the_caller_are_handed_over() -> None:
    catalog = Catalog([Tool.from_function(add)])
    text = block(call("add", a=1, b=2))
    builder = TurnBuilder(id="t", source="proxy", tools=catalog)
    builder.note(ReplyStarted(number=1))
    parser = Parser(catalog)
    events = Binder(catalog=catalog).bound([*parser.feed(text), *parser.close()])
    for event in events:
        builder.note(event)
    reply, message = reply_of(events, catalog), Message(role="assistant", content=text)
    builder.note(ReplyEnded(number=1, reply=reply, usage=Usage(), raw=text, message=message))
    assert calls_of(builder.record())[0].outcome == "not started"
    builder.end("tool_calls")
    assert calls_of(builder.record())[0].outcome == "handed over"


def test_what_is_known_later() -> None:
    builder = TurnBuilder(id="t", source="proxy")
    builder.know(way="xml", question="Hi", tools=[Tool.from_function(add)], seconds=2.5)
    record = builder.record()
    assert (record.way, record.question, record.seconds, record.tools[0]["name"]) == ("xml", "Hi", 2.5, "add")
    with pytest.raises(TypeError, match="colour"):
        builder.know(colour="red")


def test_an_attempt_of_which_nothing_came_is_replaced() -> None:
    builder = TurnBuilder(id="t", source="proxy")
    builder.note(ReplyStarted(number=1))
    builder.note(ReplyStarted(number=1))
    assert len(builder.record().replies) == 1


async def test_long_results_are_kept_in_part() -> None:
    def much() -> str:
        """Return much."""
        return "x" * (MOST_RESULT + 10)

    [ran] = calls_of(await turn([block(call("much")), "ok"], host=LocalHost([much])))
    assert ran.result is not None
    assert (len(ran.result), ran.result_size) == (MOST_RESULT, MOST_RESULT + 10)


# -- cost --------------------------------------------------------------------------------------------------------------------


def test_a_long_reply_is_noted_in_linear_time_and_looked_at_as_it_comes() -> None:
    """A megabyte in 250,000 pieces, looked at 200 times, in a few seconds; nothing is kept of each piece."""
    builder = TurnBuilder(id="t", source="proxy")
    builder.note(ReplyStarted(number=1))
    begun = time.perf_counter()
    for place in range(0, 1_000_000, 4):
        builder.wrote("abcd")
        builder.note(TextDelta(text="abcd", span=(place, place + 4)))
        if place % 5000 == 0:
            builder.record()
    [reply] = builder.record().replies
    assert (len(reply.raw), len(reply.spans)) == (1_000_000, 1)
    assert time.perf_counter() - begun < 8


def test_hostile_markup_by_the_hundred_thousand() -> None:
    text = "</invoke>x" * 100_000
    begun = time.perf_counter()
    reply = read_reply(text, TOOLS["edit"])
    tiles(reply)
    assert time.perf_counter() - begun < 30


def test_a_value_of_a_megabyte() -> None:
    content = " ".join(map(str, range(150_000)))
    text = block(call("edit", path="a", content=content))
    begun = time.perf_counter()
    reply = read_reply(text, TOOLS["edit"], conversation=[{"role": "user", "content": f"Write {content} to a"}])
    assert reply.calls[0].values[1].value == content
    tiles(reply)
    assert time.perf_counter() - begun < 30


async def test_a_call_that_begins_after_the_last_one_was_not_started() -> None:
    """The formats of the two differ: the loop ends the reply while the second is under way."""
    text = (
        '<|tools_prefix|>[{"edit": {"path": "a"}}]<|tools_suffix|>'
        "<seed:tool_call>\n<function=edit>\n<parameter=path>a</parameter></parameter>\n</function>\n</seed:tool_call>"
    )
    [reply] = (await live([text], TOOLS["edit"], look=True)).replies
    assert plain(reply) == read_reply(reply.raw, TOOLS["edit"])
    assert reply.calls[-1].outcome == "not started"
