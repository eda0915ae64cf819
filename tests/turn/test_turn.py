"""A turn without I/O: driven by hand, in any cut, and by whatever comes."""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from proxy_harness import add, block

from xmlcall import (
    Ask,
    AskedAgain,
    Asking,
    BackendError,
    CallDenied,
    CallFinished,
    Catalog,
    Chunk,
    Denied,
    Done,
    FirstToken,
    Message,
    RepairPolicy,
    ReplyStarted,
    Run,
    Score,
    StepEnded,
    TextDelta,
    Tool,
    ToolCall,
    ToolResult,
    Turn,
    UsageError,
    begin_turn,
    run_turn,
)
from xmlcall.errors import BackendProtocolError, BackendStatusError, BackendUnavailable, ContextOverflow, OutputRejected
from xmlcall.turn.turn_setup import Offer
from xmlcall.types.calls import TextContent
from xmlcall.types.completion import Capabilities, CompletionRequest, Usage

INTEGER = {"type": "integer"}
PLUS = Tool(
    name="add",
    description="Add two integers.",
    input_schema={"type": "object", "properties": {"a": INTEGER, "b": INTEGER}, "required": ["a", "b"]},
)
ASKED = [{"role": "user", "content": "What is 1 + 2?"}]


def test_a_result_in_a_dict_keeps_the_call_that_it_answers() -> None:
    told = {"role": "tool", "content": "3", "tool_call_id": "c1", "name": "add"}
    assert begin_turn([*ASKED, told], [PLUS]).conversation[-1] == Message(**told)  # type: ignore[arg-type]


def scripted(*replies: str | Exception, size: int = 7) -> Callable[[CompletionRequest], Iterable[Chunk]]:
    """Return a model that says replies one after the other, in pieces."""
    left = iter(replies)

    def stream(request: CompletionRequest) -> Iterable[Chunk]:
        reply = next(left)
        if isinstance(reply, Exception):
            raise reply
        yield from (Chunk(text=reply[at : at + size]) for at in range(0, len(reply), size))
        yield Chunk(finish_reason="stop")

    return stream


def running(reply: str, turn: Turn | None = None) -> tuple[Turn, Run]:
    """Give a turn a reply; return it and the call that is to run."""
    turn = turn or begin_turn(ASKED, [PLUS])
    turn.receive(Chunk(text=reply))
    turn.end("stop")
    run = turn.next()
    assert isinstance(run, Run)
    return turn, run


def test_a_turn_is_driven_without_an_event_loop() -> None:
    heard: list[Any] = []
    done = run_turn(begin_turn(ASKED, [PLUS]), scripted(add(1, 2), "It is 3."), lambda call: "3", heard.append)
    assert (done.reason, done.text) == ("end", "It is 3.")
    assert [message.role for message in done.conversation] == ["user", "assistant", "user", "assistant"]
    assert "3" in done.conversation[2].content
    assert [event.call.arguments for event in heard if isinstance(event, CallFinished)] == [{"a": 1, "b": 2}]


def test_a_stream_is_left_where_nothing_useful_can_follow() -> None:
    taken: list[str] = []

    def stream(request: CompletionRequest) -> Iterable[Chunk]:
        for piece in (add(1, 2), "\nThe result is 4.", " So it is 4."):
            taken.append(piece)
            yield Chunk(text=piece)

    done = run_turn(begin_turn(ASKED, [PLUS], repair=RepairPolicy(max_replies=1, asks_for_unsaid=True)), stream, lambda call: "3")
    assert taken == [add(1, 2), "\nThe result is 4."]
    assert "4" not in done.conversation[1].content


@pytest.mark.parametrize("changed", [False, True])
def test_another_result_says_that_a_call_came_not_in_vain_if_it_ran_as_it_was_written(changed: bool) -> None:
    turn, heard = begin_turn(ASKED, [PLUS]), list[Any]()
    for number in range(3):
        heard += turn.receive(Chunk(text=add(1, 2)))
        heard += turn.end("stop")
        if isinstance(action := turn.next(), Run):
            call = replace(action.call, arguments={"a": 5, "b": 6}) if changed else action.call
            result = ToolResult(content=(TextContent(text=str(number)),), call_id=call.id)
            heard += turn.note(CallFinished(call=call, result=result))
    assert any(isinstance(event, CallDenied) for event in heard) == changed


def test_what_is_to_be_done_is_the_same_until_it_was_done() -> None:
    turn = begin_turn(ASKED, [PLUS])
    first = turn.next()
    assert isinstance(first, Ask)
    assert turn.next() is first
    assert list(turn.receive(Chunk(text="Thr"))) == [TextDelta(text="Thr", span=(0, 3))]
    assert turn.next() is first
    list(turn.receive(Chunk(text="ee.")))
    turn.end("stop")
    done = turn.next()
    assert isinstance(done, Done)
    assert (done.text, turn.next()) == ("Three.", done)


def test_nothing_useful_follows_a_block() -> None:
    turn = begin_turn(ASKED, [PLUS])
    turn.receive(Chunk(text=f"{add(1, 2)}\n"))
    assert isinstance(turn.next(), Ask)
    assert not turn.has_enough
    turn.receive(Chunk(text="<function_results>4</function_results>"))
    assert isinstance(turn.next(), Ask)
    assert turn.has_enough
    assert list(turn.receive(Chunk(text="more"))) == []
    turn.end()
    run = turn.next()
    assert isinstance(run, Run)
    assert (run.call.name, run.call.arguments, run.times) == ("add", {"a": 1, "b": 2}, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda turn: turn.give("call_1", "3"),
        lambda turn: turn.start("call_1"),
        lambda turn: turn.scored(FirstToken()),
        lambda turn: turn.receive(None),
        lambda turn: turn.refuse(ValueError("x")),
    ],
    ids=["give", "start", "scored", "no chunk", "no error of a model server"],
)
def test_an_input_that_nobody_asked_for_is_an_error_of_use(wrong: Callable[[Turn], Any]) -> None:
    turn = begin_turn(ASKED, [PLUS])
    with pytest.raises(UsageError, match=r"expected|answer to"):
        wrong(turn)
    assert isinstance(turn.next(), Ask), "nothing has changed"


def test_another_calls_result_is_an_error_of_use() -> None:
    turn, run = running(add(1, 2))
    with pytest.raises(UsageError, match=f"expected the id of the call to run, '{run.call.id}', got 'other'"):
        turn.give("other", "3")
    turn.give(run.call.id, "3")
    assert isinstance(turn.next(), Ask)


@pytest.mark.parametrize("happened", ["garbage", None, Run, ToolResult.error("x"), CallFinished], ids=str)
def test_what_happened_to_no_call_or_another_one_is_an_error_of_use(happened: Any) -> None:
    turn, run = running(add(1, 2))
    if happened is CallFinished:
        happened = CallFinished(call=replace(run.call, id="other"), result=ToolResult.error("x"))
    with pytest.raises(UsageError, match=f"expected an event of the call {run.call.id!r}"):
        turn.note(run if happened is Run else happened)
    with pytest.raises(UsageError, match="expected a result, a text or Denied"):
        turn.give(run.call.id, 5)  # type: ignore[arg-type]
    assert turn.next() is run, "nothing has changed"


@pytest.mark.parametrize("most", [0, -1])
def test_no_reply_is_none_that_can_be_asked_for(most: int) -> None:
    with pytest.raises(UsageError, match=f"max_replies must be at least 1, got {most}"):
        RepairPolicy(max_replies=most)


@pytest.mark.parametrize(
    ("now", "outcome"),
    [
        ({"a": {"type": "string"}, "b": INTEGER}, {"a": "2", "b": 3}),
        ({"a": {"type": "boolean"}, "b": INTEGER}, None),
        ({"c": INTEGER}, None),
    ],
)
def test_a_call_fits_the_tool_as_it_is_when_its_turn_comes(now: dict[str, Any], outcome: dict[str, Any] | None) -> None:
    turn, run = running(block(("add", {"a": 1, "b": 2}), ("add", {"a": 2, "b": 3})))
    changed = replace(PLUS, input_schema={"type": "object", "properties": now, "required": [*now], "additionalProperties": False})
    turn.renew(Offer(catalog=Catalog([changed])), lambda request: request)
    turn.give(run.call.id, "3")
    then = turn.next()
    assert (then.call.arguments if isinstance(then, Run) else None) == outcome


@pytest.mark.parametrize(
    "messages", [[], ["a"], [None], [{"role": "assistant", "content": "Hi"}], [{"role": "user", "content": 5}]]
)
def test_what_is_no_conversation_is_an_error_of_use(messages: list[Any]) -> None:
    with pytest.raises(UsageError):
        begin_turn(messages, [PLUS])


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ("Hi", """a list of messages, got a text: write [{"role": "user", "content": 'Hi'}]"""),
        (["Hi"], """{"role": "user", "content": "..."}, got 'Hi'"""),
        ({"role": "user", "content": "Hi"}, "put it in brackets"),
        (Message(role="user", content="Hi"), "put it in brackets"),
        (None, "a list of messages, got None"),
    ],
)
def test_what_is_expected_in_place_of_a_text_is_shown(messages: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=re.escape(expected)):
        begin_turn(messages, [PLUS])


@pytest.mark.parametrize(
    ("happened", "kept"),
    [
        (lambda turn: turn.end(), []),  # an empty reply, for which the model is asked again
        (lambda turn: turn.receive(Chunk(text="It is ")), [("assistant", "It is")]),
    ],
)
def test_the_conversation_of_a_turn_that_failed_can_be_continued(
    happened: Callable[[Turn], Iterable[Any]], kept: list[tuple[str, str]]
) -> None:
    turn = begin_turn(ASKED, [PLUS])
    assert isinstance(turn.next(), Ask)
    list(happened(turn))
    assert isinstance(turn.next(), Ask)
    turn.refuse(BackendUnavailable("gone"))
    done = turn.next()
    assert isinstance(done, Done)
    assert [(message.role, message.content) for message in done.conversation[1:]] == kept


def test_who_asks_about_repeated_calls() -> None:
    async def ask(proposal: Any) -> Any:
        raise AssertionError(proposal)

    with pytest.raises(UsageError, match="asked by ToolLoop alone"):
        begin_turn(ASKED, [PLUS], repair=RepairPolicy(on_repeat=ask))


def test_a_call_that_is_not_allowed_is_told() -> None:
    done = run_turn(begin_turn(ASKED, [PLUS]), scripted(add(1, 2), "I may not."), lambda call: Denied(reason="Not on Sundays."))
    assert "Not on Sundays." in done.conversation[2].content


@pytest.mark.parametrize(
    ("error", "told"), [(BackendUnavailable("gone"), "gone"), (BackendStatusError("no", status_code=500), "no")]
)
def test_a_model_server_that_fails_ends_the_turn(error: BackendError, told: str) -> None:
    done = run_turn(begin_turn(ASKED, [PLUS]), scripted(error), lambda call: "3")
    assert (done.reason, str(done.error)) == ("failed", told)


def test_a_turn_that_is_stopped_leaves_no_call_without_a_result() -> None:
    turn, run = running(block(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})))
    list(turn.start(run.call.id))
    turn.stop()
    done = turn.next()
    assert isinstance(done, Done)
    assert done.reason == "stopped"
    assert done.conversation[-1].content.count("<result") == 2
    turn.stop()


def test_a_model_that_tells_probabilities_is_asked_whether_a_tool_is_needed() -> None:
    turn = begin_turn(ASKED, [PLUS], asking=Asking(call_threshold=0.0), server=Capabilities(server="llama.cpp", continues=True))
    score = turn.next()
    assert isinstance(score, Score)
    assert score.request.max_tokens == 1
    turn.scored(FirstToken(candidates=(("<", -0.001),), text="<"))
    ask = turn.next()
    assert isinstance(ask, Ask)
    assert ask.request.messages[-1].content.startswith('<function_calls>\n<invoke name="add">')


def test_the_driver_asks_for_probabilities_where_a_threshold_is_given() -> None:
    asked: list[CompletionRequest] = []

    def stream(request: CompletionRequest) -> Iterable[Chunk]:
        asked.append(request)
        if request.max_tokens == 1:
            return [Chunk(text="I", top_logprobs=(("I", -0.001), ("<", -9.0))), Chunk(text="f")]
        return [Chunk(text="It is 3.", finish_reason="stop")]

    turn = begin_turn(ASKED, [PLUS], asking=Asking(call_threshold=2.0), server=Capabilities(server="llama.cpp"))
    done = run_turn(turn, stream, lambda call: "3")
    assert (done.text, [request.max_tokens for request in asked]) == ("It is 3.", [1, None])
    told_nothing = begin_turn(ASKED, [PLUS], asking=Asking(call_threshold=2.0))
    done = run_turn(told_nothing, scripted("I", "never"), lambda call: "3")
    assert "probabilities" in str(done.error)


@pytest.mark.parametrize(("name", "runs"), [("read_account", True), ("pay_account", False)])
def test_what_nobody_said_is_not_written_where_nobody_can_be_asked(name: str, runs: bool) -> None:
    schema = {"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account"]}
    ran, heard = list[str](), list[Any]()
    insists = block((name, {"account": "DE-7781-XK"}))
    turn = begin_turn([{"role": "user", "content": "Do it for me."}], [Tool(name=name, input_schema=schema)])

    def run(call: ToolCall) -> str:
        ran.append(call.name)
        return "done"

    run_turn(turn, scripted(insists, insists, "I cannot."), run, heard.append)
    assert bool(ran) is runs
    assert any(isinstance(event, CallDenied) for event in heard) is not runs
    assert isinstance(heard[0], ReplyStarted)


@pytest.mark.parametrize("mode", ["native", "native-only"])
def test_the_servers_own_function_calling(mode: Any) -> None:
    turn = begin_turn(ASKED, [PLUS], asking=Asking(mode=mode))
    ask = turn.next()
    assert isinstance(ask, Ask)
    assert [tool.name for tool in ask.request.tools] == ["add"]
    with pytest.raises(UsageError, match="a turn checks no server"):
        begin_turn(ASKED, [PLUS], asking=Asking(mode="auto"))


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ("", "empty"),
        (OutputRejected("x", status_code=500), "unread"),
        (OutputRejected("x", status_code=500, output="I think."), "unread"),
        (BackendStatusError("no tools", status_code=400), "failed"),
        (BackendProtocolError("ended"), "failed"),
    ],
)
def test_a_native_reply_that_came_to_nothing_is_asked_for_in_text(lost: str | Exception, why: str) -> None:
    requests, heard = list[CompletionRequest](), list[Any]()
    replies = scripted(lost, add(1, 2), "It is 3.")

    def stream(request: CompletionRequest) -> Iterable[Chunk]:
        requests.append(request)
        return replies(request)

    turn = begin_turn(ASKED, [PLUS], asking=Asking(mode="native"))
    done = run_turn(turn, stream, lambda call: "3", heard.append)
    assert (done.reason, done.text) == ("end", "It is 3.")
    assert [event for event in heard if isinstance(event, AskedAgain)] == [AskedAgain(why=why, in_text=True)]  # type: ignore[arg-type]
    assert [bool(request.tools) for request in requests] == [True, False, False]
    assert [message.role for message in done.conversation] == ["user", "assistant", "user", "assistant"]
    with contextlib.suppress(BackendError):  # asked for native calls alone
        done = run_turn(begin_turn(ASKED, [PLUS], asking=Asking(mode="native-only")), scripted(lost, ""), lambda call: "3")
        assert (done.reason, done.text) in (("end", ""), ("failed", ""))


@pytest.mark.parametrize(("outcome", "has_run"), [(Denied(reason="no"), False), ("3", True)])
def test_a_call_that_was_denied_has_not_run(outcome: str | Denied, has_run: bool) -> None:
    turn, run = running(add(1, 2))
    assert (turn.has_run, turn.has_called) == (False, True)
    turn.give(run.call.id, outcome)
    assert isinstance(turn.next(), Ask)
    assert turn.has_run is has_run


def test_a_call_that_started_may_have_run() -> None:
    turn, run = running(add(1, 2))
    turn.start(run.call.id)
    assert isinstance(turn.next(), Run)
    assert turn.has_run


@pytest.mark.parametrize("mode", ["xml", "native"])
def test_tokens_that_are_counted_at_the_end_are_no_estimate(mode: Any) -> None:
    turn = begin_turn(ASKED, [PLUS], asking=Asking(mode=mode))
    turn.receive(Chunk(text="It is 3."))
    turn.end("stop", Usage(prompt_tokens=90, completion_tokens=5))
    assert turn.next() == Done(
        reason="end", text="It is 3.", conversation=turn.conversation, usage=Usage(prompt_tokens=90, completion_tokens=5)
    )


@pytest.mark.parametrize("mode", ["xml", "native"])
def test_tokens_are_estimated_where_the_server_counts_none(mode: Any) -> None:
    done = run_turn(begin_turn(ASKED, [PLUS], asking=Asking(mode=mode)), scripted("It is 3.", size=4), lambda call: "3")
    assert (done.usage.completion_tokens, done.usage.is_estimated) == (2, True)


def test_a_score_is_answered_by_a_first_token() -> None:
    turn = begin_turn(ASKED, [PLUS], asking=Asking(call_threshold=0.0), server=Capabilities(server="llama.cpp"))
    with pytest.raises(UsageError, match="expected a FirstToken as the answer to Score, got Chunk"):
        turn.scored(Chunk(text="Y"))  # type: ignore[arg-type]


def test_the_tool_that_describes_tools_is_answered_by_the_turn() -> None:
    tools = [Tool(name=f"tool_{number}", description="Do it. " * 40, input_schema={"type": "object"}) for number in range(40)]
    turn = begin_turn(ASKED, tools, asking=Asking(tool_tokens=300))
    turn.receive(Chunk(text=block(("describe_tools", {"names": '["tool_7"]'}))))
    turn.end("stop")
    ask = turn.next()
    assert isinstance(ask, Ask)
    assert "tool_7" in ask.request.messages[-1].content


@pytest.mark.parametrize("is_taken", [True, False], ids=["after the events", "among them"])
def test_other_tools_are_offered_from_the_next_reply_on(is_taken: bool) -> None:
    (turn, run), other = running(add(1, 2)), Tool(name="subtract", input_schema=PLUS.input_schema)
    heard = []
    for event in turn.give(run.call.id, "3"):
        heard.append(type(event).__name__)
        if isinstance(event, StepEnded) and not is_taken:
            turn.renew(Offer(catalog=Catalog([other])), lambda request: request)
    if is_taken:
        turn.renew(Offer(catalog=Catalog([other])), lambda request: request)
    assert heard == ["CallFinished", "StepEnded", "ReplyStarted"]
    assert running(block(("subtract", {"a": 1, "b": 2})), turn)[1].tool == other


# -- properties --------------------------------------------------------------------------------------------------------

REPLIES = [
    add(1, 2),
    "It is 3.",
    f"Let me see. {add(1, 2)}",
    block(("add", {"a": "x", "b": 2})),
    block(("unknown", {"a": 1})),
    '<function_calls>\n<invoke name="add">\n<parameter name="a">1',
    "<function_results>\n<result>4</result>\n</function_results>",
    "",
    "<think>I call add.</think>" + add(3, 4),
]


def played(reply: str, cuts: Sequence[int]) -> tuple[list[Any], Any]:
    """Return what follows from a reply that comes in pieces: the text and the calls told, and what is to be done."""
    turn = begin_turn(ASKED, [PLUS])
    places = sorted({0, len(reply), *(cut % (len(reply) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        turn.receive(Chunk(text=reply[start:end]))
        if turn.has_enough:
            break
    turn.end("stop")
    action = turn.next()
    told = [action.call.arguments] if isinstance(action, Run) else []
    kept = [(message.role, message.content) for message in turn.added]
    return [type(action).__name__, *told], kept


@pytest.mark.sweep
@pytest.mark.parametrize("reply", REPLIES)
@settings(max_examples=examples(60))
@given(cuts=st.lists(st.integers(0, 10_000), max_size=8))
def test_any_cut_of_a_reply_leads_to_the_same(reply: str, cuts: list[int]) -> None:
    assert played(reply, cuts) == played(reply, [])


FAILURES = st.sampled_from(
    [
        BackendUnavailable("gone"),
        BackendStatusError("no", status_code=400),
        BackendStatusError("busy", status_code=503),
        ContextOverflow("too long", status_code=400),
    ]
)
OUTCOMES: st.SearchStrategy[ToolResult | str | Denied] = st.sampled_from(
    ["3", "", ToolResult.error("broken"), Denied(reason="no")]
)
THRESHOLDS = st.sampled_from([None, "auto", 0.0])
FIRST = st.sampled_from([FirstToken(), FirstToken(text="I"), FirstToken(candidates=(("<", -0.1), ("I", -2.0)), text="<")])


@pytest.mark.sweep
@settings(max_examples=examples(300), deadline=None)
@given(data=st.data(), threshold=THRESHOLDS, continues=st.booleans(), constrains=st.booleans(), parallel=st.booleans())
def test_whatever_comes_the_turn_ends(
    data: st.DataObject, threshold: Any, continues: bool, constrains: bool, parallel: bool
) -> None:
    server = Capabilities(server="llama.cpp", continues=continues, constrains=constrains)
    asking = Asking(call_threshold=threshold, parallel=parallel)
    turn = begin_turn(ASKED, [PLUS], asking=asking, server=server, repair=RepairPolicy(asks_for_unsaid=True, max_replies=6))
    for _ in range(400):
        match turn.next():
            case Done(conversation=conversation):
                assert conversation[0].content.startswith("What is 1 + 2?")
                return
            case Score():
                if data.draw(st.booleans()):
                    turn.scored(data.draw(FIRST))
                else:
                    turn.refuse(data.draw(FAILURES))
            case Ask():
                if data.draw(st.integers(0, 9)) == 0:
                    turn.refuse(data.draw(FAILURES))
                    continue
                turn.receive(Chunk(text=data.draw(st.sampled_from(REPLIES))))
                turn.end(data.draw(st.sampled_from(["stop", "length", None])))
            case Run(call=call):
                turn.give(call.id, data.draw(OUTCOMES))
    raise AssertionError("a turn of six replies does not end")
