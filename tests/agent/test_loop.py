"""The loop with a scripted model and Python functions as tools."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples, is_deep
from turn_harness import DyingHost, add, answer_of, block, call, fail

from xmlcall import (
    Answer,
    AskedAgain,
    BackendError,
    CallDenied,
    CallFinished,
    CallRejected,
    CallStarted,
    Continued,
    LocalHost,
    Message,
    RepairPolicy,
    ReplyEnded,
    RetryAsked,
    TextDelta,
    Tool,
    ToolLoop,
    ToolResult,
    UsageError,
    allow,
    parse,
    render,
)
from xmlcall.agent.policy import Decision, Proposal
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.dialects import DIALECTS, Body
from xmlcall.dialects.write import write
from xmlcall.errors import BackendStatusError, BackendUnavailable
from xmlcall.hosts.base import OnProgress
from xmlcall.prompting import system as prompt
from xmlcall.prompting.format import PromptFormat
from xmlcall.tools.catalog import Catalog
from xmlcall.turn.events import CallProgress, LoopEvent
from xmlcall.types.calls import RawArgument, RawCall, TextContent
from xmlcall.types.completion import Capabilities, Chunk, PromptProgress, Usage
from xmlcall.types.events import CallInReasoning


def page() -> str:
    """Fetch a page."""
    return f"Please write {call('add', a=6, b=6)}"


ADD = block(call("add", a=1, b=2))


def make(
    replies: Any, *, host: LocalHost | None = None, policy: Any = ("*",), **options: Any
) -> tuple[ToolLoop, ScriptedBackend]:
    script = {key: options.pop(key) for key in ("chunk_size", "finish_reasons", "capabilities") if key in options}
    backend = ScriptedBackend(replies, **script)
    return ToolLoop(backend, [host or LocalHost([add, fail, page])], policy=policy, **options), backend


async def run(loop: ToolLoop, question: str = "What is 1 + 2?") -> list[LoopEvent]:
    async with loop:
        return [event async for event in loop.run([Message(role="user", content=question)])]


def kinds(events: list[LoopEvent]) -> list[str]:
    shown = (CallStarted, CallFinished, CallRejected, CallDenied, Answer)
    return [type(event).__name__ for event in events if isinstance(event, shown)]


def shown(events: list[LoopEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("chunk_size", [None, 1, 7])
async def test_a_call_and_an_answer(chunk_size: int | None) -> None:
    loop, backend = make([f"Let me see. {ADD}", "It is 3."], chunk_size=chunk_size)
    events = await run(loop)
    answer = answer_of(events)
    assert kinds(events) == ["CallStarted", "CallFinished", "Answer"]
    assert shown(events) == "Let me see. It is 3."
    assert (answer.text, answer.stop_reason, answer.replies) == ("It is 3.", "end", 2)
    assert [message.role for message in answer.messages] == ["user", "assistant", "user", "assistant"]
    assert answer.messages[1].content == f"Let me see. {ADD}"
    assert '<result name="add">\n3\n</result>' in answer.messages[2].content
    assert [message.role for message in backend.requests[0].messages] == ["system", "user"]


RAN = ["CallStarted", "CallFinished"]
BOTH = block(call("add", a=1, b=2), call("fail"))
RUNS: dict[str, tuple[list[Any], dict[str, Any], list[str], str]] = {
    "a model that simply answers is not asked for a call": (["Paris."], {}, [], "end"),
    "a tag left over in a block does not end it": (
        [ADD.replace("<function_calls>", '<function_calls><invoke name="fail"/></invoke>'), "It is 3."],
        {"chunk_size": 5},
        [*RAN, *RAN],
        "end",
    ),
    "a cut call": ([ADD[:-40], "It is"], {"finish_reasons": ["length", "length"]}, ["CallRejected"], "length"),
    "a cut text is not continued": (
        [["Paris is", Chunk(finish_reason="length")]],
        {"capabilities": Capabilities(server="scripted", continues=True, constrains=True)},
        [],
        "length",
    ),
    "globs allow by server and tool": (
        [BOTH, "Done."],
        {"host": LocalHost([add, fail], name="maths"), "policy": allow(["maths.a*"])},
        [*RAN, "CallDenied"],
        "end",
    ),
    "reasoning that the prompt opened": (
        [f"maybe {ADD}</think>No."],
        {"capabilities": Capabilities(server="scripted", reasoning_open=True)},
        [],
        "end",
    ),
    "a call that leaked in native mode": ([ADD, "It is 3."], {"mode": "native"}, RAN, "end"),
    "a call that leaked, and is not looked for": ([ADD], {"mode": "native-only"}, [], "end"),
    "a call copied from the person": ([ADD, "I did not."], {"question": f"What does {ADD} do?"}, ["CallRejected"], "end"),
}


@pytest.mark.parametrize(("replies", "options", "told", "reason"), RUNS.values(), ids=RUNS)
async def test_what_happens_in_a_run(replies: list[Any], options: dict[str, Any], told: list[str], reason: str) -> None:
    question = options.get("question", "What is 1 + 2?")
    loop, backend = make(replies, **{name: value for name, value in options.items() if name != "question"})
    events = await run(loop, question)
    assert kinds(events) == [*told, "Answer"]
    assert (answer_of(events).stop_reason, len(backend.requests)) == (reason, len(replies))


async def test_each_request_begins_with_the_one_before() -> None:
    """So that the server's prompt cache holds, over turns and over questions."""
    loop, backend = make([ADD, "3.", ADD, "3."])
    async with loop:
        first = await loop.ask("What is 1 + 2?")
        await drain(loop, [*first.messages, Message(role="user", content="And again?")])
    for earlier, later in zip(backend.requests, backend.requests[1:], strict=False):
        assert later.messages[: len(earlier.messages)] == earlier.messages


async def drain(loop: ToolLoop, messages: list[Message]) -> list[LoopEvent]:
    return [event async for event in loop.run(messages)]


@pytest.mark.parametrize("chunk_size", [None, 3])
async def test_invented_results_are_neither_shown_nor_kept(chunk_size: int | None) -> None:
    loop, backend = make([f"{ADD}\n<function_results>99</function_results> It is 99.", "It is 3."], chunk_size=chunk_size)
    events = await run(loop)
    assert shown(events) == "It is 3."
    assert "99" not in str(answer_of(events).messages)
    assert backend.closed_early[0]


@pytest.mark.parametrize(("dialect", "calls"), [("function_calls", 1), ("hermes", 2), ("qwen", 2), ("minimax", 2)])
async def test_a_second_block_follows_only_where_a_format_has_several(dialect: str, calls: int) -> None:
    """In our own format all calls stand in one block: what a small model writes after it was not asked for."""
    written = [
        render([{"name": "add", "arguments": {"a": first, "b": 2}}], [Tool.from_function(add)], dialect=dialect)
        for first in (1, 5)
    ]
    loop, backend = make(["\n\n".join(written), "It is 3."], chunk_size=5)
    events = await run(loop)
    assert kinds(events).count("CallFinished") == calls
    assert backend.closed_early[0] is (calls == 1)


async def test_a_call_without_wrapper_ends_the_reply() -> None:
    loop, backend = make([f"{call('add', a=1, b=2)} and then", "It is 3."], chunk_size=2)
    events = await run(loop)
    assert answer_of(events).messages[1].content == call("add", a=1, b=2)
    assert backend.closed_early[0]


async def test_a_failing_tool_is_a_result() -> None:
    loop, backend = make([block(call("fail")), "It failed."])
    finished = next(event for event in await run(loop) if isinstance(event, CallFinished))
    assert finished.result.is_error
    assert not finished.failure
    assert "no luck" in backend.requests[1].messages[-1].content


async def test_a_dying_server_is_told_to_the_model() -> None:
    loop, backend = make([ADD, "The server died."], host=DyingHost([add]))
    events = await run(loop)
    finished = next(event for event in events if isinstance(event, CallFinished))
    assert "died" in finished.failure
    told = backend.requests[1].messages[-1].content
    assert "It is not known whether the tool ran" in told
    assert "the server died" not in told  # a person's words, which can quote what a server prints
    assert answer_of(events).stop_reason == "end"


async def test_nothing_runs_that_was_not_allowed() -> None:
    ran = []

    def delete() -> str:
        ran.append(1)
        return "deleted"

    loop, backend = make([block(call("delete")), "I may not."], host=LocalHost([delete]), policy=())
    events = await run(loop)
    assert kinds(events) == ["CallDenied", "Answer"]
    assert not ran
    assert "Not run: The person has not allowed this tool." in backend.requests[1].messages[-1].content


async def test_turns_are_bounded() -> None:
    loop, backend = make([block(call("add", a=number, b=1)) for number in range(9)], repair=RepairPolicy(max_replies=3))
    answer = answer_of(await run(loop))
    assert (answer.stop_reason, answer.replies, len(backend.requests)) == ("max_turns", 3, 3)
    assert answer.messages[-1].role == "user"


async def test_one_call_at_a_time() -> None:
    two = block(call("add", a=1, b=2), call("add", a=3, b=4))
    loop, backend = make([two, "It is 3."], chunk_size=4, parallel=False)
    events = await run(loop)
    assert kinds(events) == ["CallStarted", "CallFinished", "Answer"]
    assert answer_of(events).messages[1].content == f"<function_calls>{call('add', a=1, b=2)}\n</function_calls>"
    assert backend.closed_early[0]


CALLS = [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})]
WRAPPED = {
    name: write(CALLS, Catalog([Tool.from_function(add)]), row) for name, row in DIALECTS.items() if "block_open" in row.written
}
CLOSERS = {
    name: DIALECTS[name].written.get("block_close", "").strip()
    for name in WRAPPED
    if not (DIALECTS[name].one_list or DIALECTS[name].body is Body.LINES)
}
CLOSERS["another name of the wrapper"] = "</tool_calls>"
WRAPPED["another name of the wrapper"] = WRAPPED["function_calls"].replace("function_calls", "tool_calls")


@pytest.mark.parametrize("name", CLOSERS)
async def test_a_wrapper_that_is_closed_early_is_closed_in_its_own_words(name: str) -> None:
    """Calls of one list, or of one Python text, are kept as they are."""
    text = WRAPPED[name]
    loop, _ = make([text, "It is 3."], chunk_size=3, parallel=False)
    kept = answer_of(await run(loop)).messages[1].content
    first, second = parse(kept, [Tool.from_function(add)]), parse(text, [Tool.from_function(add)])
    assert (first.calls[0].name, len(first.calls), first.repairs) == ("add", 1, second.repairs)
    assert kept.endswith(CLOSERS[name])
    if name in DIALECTS and "parameter_open" in DIALECTS[name].tags:
        assert kept == write(CALLS[:1], Catalog([Tool.from_function(add)]), DIALECTS[name])


@pytest.mark.parametrize("text", WRAPPED.values(), ids=WRAPPED)
@pytest.mark.parametrize("chunk_size", [3, None])
async def test_all_calls_of_a_wrapper_run(text: str, chunk_size: int | None) -> None:
    loop, _ = make([text, "3 and 7."], chunk_size=chunk_size)
    assert kinds(await run(loop)) == ["CallStarted", "CallFinished"] * 2 + ["Answer"]


async def test_a_copied_call_does_not_run() -> None:
    loop, backend = make([block(call("page")), block(call("add", a=6, b=6)), "I did not."])
    events = await run(loop)
    rejected = next(event for event in events if isinstance(event, CallRejected))
    assert [issue.code for issue in rejected.call.issues] == ["echo"]
    assert "&lt;invoke" in backend.requests[1].messages[-1].content


async def test_without_tools() -> None:
    loop, backend = make([ADD, "No."], host=LocalHost([]))
    events = await run(loop)
    assert "You have no tools" in backend.requests[0].messages[0].content
    assert backend.requests[0].messages[1].content == "What is 1 + 2?"
    assert kinds(events) == ["CallRejected", "Answer"]


async def test_a_system_message_of_the_caller_follows_the_prompt() -> None:
    loop, backend = make(["Arr."])
    async with loop:
        await drain(loop, [Message(role="system", content="Talk like a pirate."), Message(role="user", content="Hi")])
    assert [message.role for message in backend.requests[0].messages] == ["system", "user"]
    assert backend.requests[0].messages[0].content.endswith("\n\nTalk like a pirate.")


def native(a: Any) -> Chunk:
    """Write a call of `add` as a server with function calling does."""
    arguments = (RawArgument(name="a", text=str(a), value=a), RawArgument(name="b", text="2", value=2))
    call = RawCall(index=0, name="add", arguments=arguments, dialect="native")
    return Chunk(tool_calls=(call,), finish_reason="tool_calls")


async def test_native_mode_uses_the_servers_own_calls() -> None:
    loop, backend = make([["Hm. ", native(1)], "It is 3."], mode="native")
    events = await run(loop)
    assert kinds(events) == ["CallStarted", "CallFinished", "Answer"]
    first, second = backend.requests
    assert [tool.name for tool in first.tools] == ["add", "fail", "page"]
    assert [message.role for message in first.messages] == ["user"]
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
    assert second.messages[2].tool_call_id == second.messages[1].tool_calls[0].id


async def test_mode_none_shows_the_model_no_tools_and_runs_nothing() -> None:
    loop, backend = make([ADD, "It is 3."], mode="none")
    events = await run(loop)
    assert kinds(events) == ["CallRejected", "Answer"]
    assert [(message.role, message.content) for message in backend.requests[0].messages] == [("user", "What is 1 + 2?")]
    assert backend.requests[0].tools == ()


async def test_a_native_call_that_cannot_run_has_its_issues_as_its_result() -> None:
    loop, backend = make([[native("one")], [native(1)], "It is 3."], mode="native")
    assert kinds(await run(loop)) == ["CallRejected", "CallStarted", "CallFinished", "Answer"]
    told, result = backend.requests[1].messages[-2:]
    assert [(call.id, call.arguments) for call in told.tool_calls] == [(result.tool_call_id, {"a": "one", "b": 2})]
    assert (result.role, "This call did not run" in result.content, "<" in result.content) == ("tool", True, False)


async def test_native_results_go_as_user_where_the_template_drops_the_role_tool() -> None:
    capabilities = Capabilities(server="scripted", native_tools=True, tool_role=False)
    loop, backend = make([[native(1)], "It is 3."], mode="native", capabilities=capabilities)
    await run(loop)
    last = backend.requests[1].messages[-1]
    assert last.role == "user"
    assert '<result name="add">\n3\n</result>' in last.content


async def test_reasoning_is_not_answered_and_not_kept() -> None:
    loop, _ = make([[Chunk(reasoning=f"maybe {ADD}"), "No."]])
    events = await run(loop)
    assert answer_of(events).text == "No."
    assert "maybe" not in str(answer_of(events).messages)


@pytest.mark.parametrize("mode", ["xml", "native"])
@pytest.mark.parametrize(
    ("reply", "lost"),
    [
        ([Chunk(reasoning=f"I call {ADD}")], ["add"]),
        ([f"<think>I call {ADD}"], ["add"]),
        ([Chunk(reasoning=f"I call {ADD}"), "No need."], []),
        ([Chunk(reasoning="I call <invoke name='add'> now")], []),
        ([f"<think>I call {ADD}</think>No need."], []),
        ([Chunk(reasoning="I say " + ADD.replace("add", "other"))], []),
    ],
)
async def test_a_call_in_thoughts_without_end_is_told(reply: list[Any], lost: list[str], mode: str) -> None:
    loop, _ = make([reply, "Sorry."], mode=mode, chunk_size=3)
    events = await run(loop)
    assert [event.name for event in events if isinstance(event, CallInReasoning)] == lost
    assert not any(isinstance(event, CallStarted) for event in events)


async def test_usage_adds_up() -> None:
    usage = Usage(prompt_tokens=10, completion_tokens=5, cached_tokens=8)
    loop, _ = make([[ADD, Chunk(usage=usage)], ["3.", Chunk(usage=usage)]])
    assert answer_of(await run(loop)).usage == Usage(prompt_tokens=20, completion_tokens=10, cached_tokens=16)


async def test_changed_tools_are_listed_again() -> None:
    host = LocalHost([add])
    loop, backend = make(["One.", "Two."], host=host)
    async with loop:
        await loop.ask("First?")
        host._tools = []
        host.changed.set()
        await loop.router.changed.wait()
        await loop.ask("Second?")
    assert "### add" in backend.requests[0].messages[0].content
    assert "You have no tools" in backend.requests[1].messages[0].content


async def test_leaving_a_run_ends_the_generation() -> None:
    loop, backend = make(["a very long reply"], chunk_size=1)
    async with loop:
        events = loop.run([Message(role="user", content="Hi")])
        async for event in events:
            if isinstance(event, TextDelta):
                break
        await events.aclose()
    assert backend.closed_early == [True]


async def test_a_backend_error_comes_out() -> None:
    loop, _ = make([["half a ", BackendUnavailable("gone", backend="x")]])
    async with loop:
        with pytest.raises(BackendError, match="gone"):
            await loop.ask("Hi")


async def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="mode must be"):
        ToolLoop(ScriptedBackend([]), mode="yaml")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="max_replies"):
        RepairPolicy(max_replies=0)
    loop, _ = make(["Hi"])
    async with loop:
        for messages in ([], [Message(role="assistant", content="x")], [{"role": "user"}]):
            with pytest.raises(UsageError):
                await drain(loop, messages)  # type: ignore[arg-type]
        for question in (["Hi"], [{"role": "user", "content": "Hi"}], None):
            with pytest.raises(UsageError, match=r"expected the question as text, got .* to `run`"):
                await loop.ask(question)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="expected a list of messages, got 'Hi'"):
            await loop.ask("Hi", conversation="Hi")  # type: ignore[arg-type]


PIECES = [
    ADD,
    call("add", a=1, b=2),
    block(call("nope")),
    block(call("fail")),
    "text ",
    "<function_calls>",
    "</invoke>",
    "<think>",
]


@settings(max_examples=examples(60), deadline=None)
@given(replies=st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map("".join), min_size=4, max_size=4))
def test_the_loop_ends(replies: list[str]) -> None:
    loop, backend = make(replies, repair=RepairPolicy(max_replies=4), chunk_size=6)
    answer = answer_of(asyncio.run(run(loop)))
    assert answer.replies == len(backend.requests) <= 4


def test_results_carry_the_id_of_their_call_and_no_two_are_the_same() -> None:
    loop, _ = make([ADD, ADD, "3."])
    finished = [event for event in asyncio.run(run(loop)) if isinstance(event, CallFinished)]
    assert [event.result.call_id for event in finished] == [event.call.id for event in finished]
    assert len({event.call.id for event in finished}) == 2
    assert finished[0].result.content == (TextContent(text="3"),)


BAD = block(call("add", a="x", b=2))


async def test_a_failed_attempt_leaves_no_trace_once_it_is_corrected() -> None:
    loop, backend = make([BAD, ADD, "It is 3."])
    events = await run(loop)
    assert kinds(events) == ["CallRejected", "CallStarted", "CallFinished", "Answer"]
    assert 'Expected integer, got "x".' in backend.requests[1].messages[-1].content
    assert [event.retry for event in events if isinstance(event, RetryAsked)] == [1]
    assert BAD in str(backend.requests[1].messages)
    assert BAD not in str(backend.requests[2].messages)
    assert [message.role for message in answer_of(events).messages] == ["user", "assistant", "user", "assistant"]


async def test_a_reply_with_a_call_that_ran_is_kept() -> None:
    mixed = block(call("add", a=1, b=2), call("add", a="x", b=2))
    loop, backend = make([mixed, ADD, "It is 3."])
    await run(loop)
    assert mixed in str(backend.requests[2].messages)


async def test_calls_that_cannot_run_end_the_run_after_the_retries() -> None:
    loop, _ = make([BAD, BAD, BAD, BAD, "never"], repair=RepairPolicy(max_format_retries=2))
    events = await run(loop)
    assert (answer_of(events).stop_reason, answer_of(events).replies) == ("invalid_calls", 4)
    assert [event.retry for event in events if isinstance(event, RetryAsked)] == [1, 2]


async def test_plain_words_are_asked_for_when_no_retry_is_left() -> None:
    loop, backend = make([BAD, BAD, BAD, "I could not add them."], repair=RepairPolicy(max_format_retries=2))
    answer = answer_of(await run(loop))
    assert (answer.text, answer.stop_reason) == ("I could not add them.", "end")
    assert [message.role for message in answer.messages] == ["user", "assistant"]
    assert "None of your calls could run" in backend.requests[-1].messages[-1].content


async def test_the_same_bad_call_again_gets_more_words() -> None:
    loop, backend = make([BAD, BAD, "I cannot."])
    await run(loop)
    assert "You wrote the same call before" not in str(backend.requests[1].messages)
    assert "You wrote the same call before" in str(backend.requests[2].messages)
    assert "Add two numbers." in backend.requests[2].messages[-1].content


async def test_errors_of_tools_have_a_budget_of_their_own() -> None:
    loop, _ = make([block(call("fail")), BAD, block(call("fail")), "never"], repair=RepairPolicy(max_tool_errors=1))
    events = await run(loop)
    assert answer_of(events).stop_reason == "tool_errors"
    assert answer_of(events).replies == 3


ONCE_MORE = ["CallStarted", "CallFinished", "CallStarted", "CallFinished", "CallDenied"]


async def test_the_same_call_again_and_again_ends_in_plain_words() -> None:
    loop, backend = make([ADD, ADD, ADD, "It is 3."])
    events = await run(loop)
    assert kinds(events) == [*ONCE_MORE, "Answer"]
    assert [[each.role for each in request.messages] for request in backend.requests[2:]] == [
        ["system", "user", *["assistant", "user"] * 2],
        ["user"],
    ]
    assert backend.requests[-1].messages[-1].content.count("3") == 1
    answer = answer_of(events)
    assert (answer.text, answer.stop_reason) == ("It is 3.", "end")


async def test_the_same_call_again_and_again_after_a_long_question_ends_in_plain_words() -> None:
    loop, backend = make([ADD, ADD, ADD, "It is 3."])
    await run(loop, "Read this. " * 1000 + "What is 1 + 2?")
    assert [each.role for each in backend.requests[-1].messages] == ["user"]


async def test_the_same_long_result_again_and_again_is_cut_before_plain_words_are_asked_for() -> None:
    def read() -> str:
        return "The log begins here." + "\n00:00 ok" * 20_000

    reading = block(call("read"))
    backend = ScriptedBackend(
        [reading, reading, reading, "It begins here."], capabilities=Capabilities(server="", context_length=4000)
    )
    answer = answer_of(await run(ToolLoop(backend, [read], policy=["*"])))
    assert (answer.text, answer.stop_reason) == ("It begins here.", "end")
    [asked] = backend.requests[-1].messages
    assert "The log begins here." in asked.content
    assert len(asked.content) < 8000


async def test_native_calls_end_in_plain_words_just_as_well() -> None:
    loop, backend = make([[native(1)]] * 3 + ["It is 3."], mode="native")
    assert answer_of(await run(loop)).text == "It is 3."
    last = backend.requests[-1].messages[-1]
    assert (last.role, "plain" in last.content) == ("user", True)


async def test_the_same_call_also_after_plain_words_were_asked_for_ends_the_run() -> None:
    loop, _ = make([ADD] * 4 + ["never"])
    events = await run(loop)
    assert kinds(events) == [*ONCE_MORE, "CallDenied", "Answer"]
    assert answer_of(events).stop_reason == "repeated_call"


@pytest.mark.parametrize(
    ("results", "ran"),
    [
        (["10 %", "20 %", "30 %", "40 %"], 4),  # it waits for something
        (["10 %", "10 %", "20 %", "30 %"], 2),
        (["10 %", "20 %", "20 %", "20 %"], 3),
        (["", "10 %", "20 %", "30 %"], 4),
    ],
)
async def test_the_same_call_goes_on_while_its_results_differ(results: list[str], ran: int) -> None:
    coming = iter(results)

    def progress() -> str:
        """Tell how far it is."""
        return next(coming)

    loop, _ = make([block(call("progress"))] * 4 + ["Done."], host=LocalHost([progress]))
    events = await run(loop)
    assert (kinds(events).count("CallFinished"), kinds(events).count("CallDenied")) == (ran, 4 - ran)


@pytest.mark.parametrize("wrong", [{"max_format_retries": -1}, {"max_repeats": 0}])
def test_limits_that_allow_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="must be at least"):
        RepairPolicy(**wrong)
    RepairPolicy(**{name: least + 1 for name, least in wrong.items()})


ADD_TOOL = [Tool.from_function(add)]
CAN = Capabilities(server="scripted", continues=True, constrains=True)


def cut_at(text: str, at: int) -> list[Any]:
    """Replies to a reply that was cut, whose rest follows."""
    return [[text[:at], Chunk(finish_reason="length")], text[at:], "It is 3."]


def cuts(text: str) -> list[int]:
    """Return the places to cut a text at: all in the deep profile, else the edges of values and marks, and a few between."""
    if is_deep():
        return list(range(1, len(text)))
    edges = {place for value in ("17", "25") for place in (text.index(value), text.index(value) + 1, text.index(value) + 2)}
    marks = {at for at in range(1, len(text)) if text[at - 1 : at + 1] in (">\n", "</", '":')}
    return sorted({*edges, *sorted(marks)[::8], *range(1, len(text), 61)})


@pytest.mark.sweep
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_reply_cut_inside_a_call_is_continued_and_spliced(dialect: str) -> None:
    text = render([{"name": "add", "arguments": {"a": 17, "b": 25}}], ADD_TOOL, dialect=dialect)
    continued = 0
    places = cuts(text)
    for at in places:
        loop, backend = make(cut_at(text, at), capabilities=CAN)
        events = await run(loop)
        if not any(isinstance(event, Continued) for event in events):
            continue
        continued += 1
        assert backend.requests[1].messages[-1] == Message(role="assistant", content=text[:at])
        assert [event.call.arguments for event in events if isinstance(event, CallStarted)] == [{"a": 17, "b": 25}], text[:at]
        assert text.startswith(answer_of(events).messages[1].content)
        assert len(backend.requests) == 3
    assert continued > len(places) // 6


async def test_a_cut_call_is_told_to_the_model_where_it_cannot_be_continued() -> None:
    at = ADD.index("2</parameter>")
    for capabilities, rest in (
        (None, []),
        (CAN, [BackendStatusError("the context is full", backend="scripted", status_code=400)]),
    ):
        loop, backend = make([cut_at(ADD, at)[0], *rest, ADD, "It is 3."], capabilities=capabilities)
        events = await run(loop)
        assert kinds(events) == ["CallRejected", "CallStarted", "CallFinished", "Answer"]
        assert len(backend.requests) == 3 + len(rest)


async def test_a_reply_is_continued_only_so_often() -> None:
    value = [["9", Chunk(finish_reason="length")]] * 2
    loop, backend = make([[block(call("add", a=1))[:-30], Chunk(finish_reason="length")], *value, "I cannot."], capabilities=CAN)
    events = await run(loop)
    assert [event.count for event in events if isinstance(event, Continued)] == [1, 2]
    assert kinds(events) == ["CallRejected", "Answer"]
    assert len(backend.requests) == 4


async def test_a_model_that_is_stuck_gets_its_last_try_constrained() -> None:
    loop, backend = make([BAD, BAD, '{"name": "add", "arguments": {"a": 1, "b": 2}}', "It is 3."], capabilities=CAN)
    events = await run(loop)
    assert [event.constrained for event in events if isinstance(event, RetryAsked)] == ["", "add"]
    assert [request.json_schema is not None for request in backend.requests] == [False, False, True, False]
    schema = backend.requests[2].json_schema
    assert schema is not None
    assert schema["properties"]["name"] == {"const": "add"}
    assert schema["properties"]["arguments"]["required"] == ["a", "b"]
    assert answer_of(events).messages[1].content == render([{"name": "add", "arguments": {"a": 1, "b": 2}}], ADD_TOOL)
    assert answer_of(events).text == "It is 3."


@pytest.mark.parametrize("dialect", ["qwen", "hermes", "glm", "pythonic", "tool_name"])
async def test_a_constrained_call_is_kept_as_the_prompt_asks_for_calls(dialect: str) -> None:
    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    loop, _ = make([BAD, BAD, '{"name": "add", "arguments": {"a": 1, "b": 2}}', "It is 3."], capabilities=CAN, dialect=dialect)
    assert answer_of(await run(loop)).messages[1].content == render([call], ADD_TOOL, dialect=dialect)


async def test_a_server_that_refuses_a_schema_is_asked_without_it() -> None:
    refused = BackendStatusError("unsupported schema", backend="scripted", status_code=400)
    loop, backend = make([BAD, BAD, refused, ADD, "It is 3."], capabilities=CAN)
    assert answer_of(await run(loop)).text == "It is 3."
    assert [request.json_schema is not None for request in backend.requests] == [False, False, True, False, False]


async def test_a_constrained_reply_that_breaks_off_is_an_error() -> None:
    broken = ['{"name": "add", "arguments"', BackendStatusError("out of memory", backend="scripted", status_code=500)]
    loop, _ = make([BAD, BAD, ["Yes. ", *broken]], capabilities=CAN)
    with pytest.raises(BackendError, match="out of memory"):
        await run(loop)


@pytest.mark.parametrize("replies", [[BAD, BAD], [block(call("page")), BAD]])
async def test_nothing_is_constrained_without_need(replies: list[str]) -> None:
    limits = None if replies[0] != BAD else Capabilities(server="scripted")
    loop, backend = make([*replies, "I cannot."], capabilities=limits or CAN)
    await run(loop)
    assert all(request.json_schema is None for request in backend.requests)


async def test_a_copied_call_is_never_forced() -> None:
    copied = block(call("add", a=6, b=6))
    loop, backend = make([copied, copied, "I will not."], capabilities=CAN)
    events = await run(loop, f"What does {copied} mean?")
    assert kinds(events) == ["CallRejected", "CallRejected", "Answer"]
    assert all(request.json_schema is None for request in backend.requests)


@pytest.mark.parametrize("says_yes", [True, False])
async def test_a_person_is_asked_about_a_call_that_comes_again_and_again(says_yes: bool) -> None:
    asked: list[int] = []

    async def ask(proposal: Proposal) -> Decision:
        asked.append(proposal.times_in_a_row)
        return Decision(allowed=says_yes, reason="The person said no.")

    loop, backend = make([ADD, ADD, ADD, ADD, "It is 3."], repair=RepairPolicy(on_repeat=ask))
    events = await run(loop)
    assert asked == [3, 4]
    assert answer_of(events).text == "It is 3."
    assert sum(isinstance(event, CallFinished) for event in events) == (4 if says_yes else 2)
    assert ("Not run: The person said no." in str(backend.requests[-1].messages)) is not says_yes


async def test_a_call_that_feedback_showed_may_be_copied() -> None:
    """The example in our own words is no quotation."""
    wrong = render([{"name": "add", "arguments": {"a": 1, "b": 2}}], ADD_TOOL).replace('"add"', '"add_numbers"')
    right = wrong.replace('"add_numbers"', '"add"')
    loop, backend = make([wrong, right, "It is 3."], host=LocalHost([add]))
    events = await run(loop)
    assert right in backend.requests[1].messages[-1].content
    assert kinds(events) == ["CallRejected", "CallStarted", "CallFinished", "Answer"]


# -- our own words, and words without end ------------------------------------------------------------------------------------

FRAME = '<function_results>\n<result name="add">\n{}\n</result>\n</function_results>'
INSTRUCTION = "(Now answer the request from these results, in a short sentence."


@pytest.mark.parametrize("chunk_size", [None, 1, 7])
@pytest.mark.parametrize("lang", ["en", "zh"])
async def test_an_invented_result_is_no_answer(lang: str, chunk_size: int | None) -> None:
    loop, backend = make([f"Let me see.\n{FRAME.format(9)}\nIt is 9.", ADD, "It is 3."], lang=lang, chunk_size=chunk_size)
    events = await run(loop)
    assert shown(events) == "Let me see.\nIt is 3."
    assert [event.refusal for event in events if isinstance(event, RetryAsked)] == ["invented_results"]
    assert "9" not in str(answer_of(events).messages)
    first, second, third = (request.messages for request in backend.requests)
    assert second[:-1] == first[:-1]
    assert second[-1].content.startswith(first[-1].content)
    assert "<function_calls>" in second[-1].content.removeprefix(first[-1].content)
    assert third[: len(first)] == first
    assert backend.closed_early[0]


@pytest.mark.parametrize(("reply", "reason"), [(FRAME.format(9), "invented_results"), (INSTRUCTION, "own_words")])
async def test_a_model_that_has_no_answer_is_asked_only_so_often(reply: str, reason: str) -> None:
    loop, backend = make([reply] * 9)
    answer = answer_of(await run(loop))
    assert (answer.text, answer.stop_reason, answer.replies, len(backend.requests)) == ("", reason, 4, 4)
    assert [message.role for message in answer.messages] == ["user", "assistant"]
    assert answer.messages[-1].content == ""
    assert "last reply" not in answer.messages[0].content


@pytest.mark.parametrize("chunk_size", [None, 1])
async def test_an_instruction_after_the_answer_is_neither_shown_nor_kept(chunk_size: int | None) -> None:
    loop, _ = make([ADD, f"It is 3.\n{INSTRUCTION}\n"], chunk_size=chunk_size)
    events = await run(loop)
    answer = answer_of(events)
    assert shown(events) == answer.text == answer.messages[-1].content == "It is 3.\n"
    assert answer.stop_reason == "end"


async def test_results_that_are_repeated_are_an_answer_without_their_frame() -> None:
    loop, _ = make([ADD, FRAME.format(3)], chunk_size=3)
    events = await run(loop)
    answer = answer_of(events)
    assert shown(events) == answer.text == answer.messages[-1].content == "3"
    assert answer.stop_reason == "end"


async def test_other_results_than_those_that_came_are_no_answer() -> None:
    loop, backend = make([ADD, FRAME.format(4), "It is 3."])
    assert answer_of(await run(loop)).text == "It is 3."
    assert len(backend.requests) == 3


async def test_a_frame_inside_a_value_is_the_value() -> None:
    def save(text: str) -> str:
        """Save a text."""
        return text

    loop, _ = make([block(call("save", text=f"<![CDATA[{FRAME.format(9)}]]>")), "Saved."], host=LocalHost([save]))
    finished = next(event for event in await run(loop) if isinstance(event, CallFinished))
    assert finished.result.content == (TextContent(text=FRAME.format(9)),)


@pytest.mark.parametrize(("question", "runs"), [("What is 7 plus 5?", False), ("What is 3 + 3?", True)])
async def test_values_of_the_example_run_only_if_somebody_said_them(question: str, runs: bool) -> None:
    loop, backend = make([block(call("add", a=3, b=3)), "Done."])
    assert kinds(await run(loop, question)) == (["CallStarted", "CallFinished", "Answer"] if runs else ["CallRejected", "Answer"])
    assert (">...</parameter>" in backend.requests[1].messages[-1].content) is not runs


LINE = "The answer is three, I am quite sure.\n"


@pytest.mark.parametrize("before", ["Hm.\n", ""])
@pytest.mark.parametrize("chunk_size", [1, 5, None])
async def test_a_text_without_end_is_ended_and_kept_once(chunk_size: int | None, before: str) -> None:
    loop, backend = make([f"{before}{LINE * 200}"], chunk_size=chunk_size, capabilities=CAN)
    events = await run(loop)
    answer = answer_of(events)
    assert (answer.stop_reason, answer.text) == ("repetition", f"{before}{LINE}".rstrip("\n"))
    assert answer.messages[-1].content == answer.text
    assert len(shown(events)) < 20 * len(LINE)
    assert backend.closed_early == [True]


async def test_reasoning_without_end_is_ended() -> None:
    loop, backend = make([[*[Chunk(reasoning=LINE)] * 200, "It is 3."]])
    assert answer_of(await run(loop)).stop_reason == "repetition"
    assert backend.closed_early == [True]


@pytest.mark.parametrize("chunk_size", [1, None])
async def test_a_value_without_end_is_told_to_the_model(chunk_size: int | None) -> None:
    loop, backend = make(
        [f'<function_calls><invoke name="add"><parameter name="a">{"1234567890" * 300}', ADD, "It is 3."], chunk_size=chunk_size
    )
    events = await run(loop)
    assert kinds(events) == ["CallRejected", "CallStarted", "CallFinished", "Answer"]
    rejected = next(event for event in events if isinstance(event, CallRejected))
    assert [issue.code for issue in rejected.call.issues] == ["truncated-call"]
    assert not any(isinstance(event, Continued) for event in events)
    assert len(backend.requests[1].messages[-2].content) < 100
    assert [message.role for message in answer_of(events).messages] == ["user", "assistant", "user", "assistant"]


@pytest.mark.parametrize("chunk_size", [1, 64, None])
async def test_calls_without_end_run_once(chunk_size: int | None) -> None:
    same, other = call("add", a=1, b=2), call("add", a=5, b=2)
    loop, backend = make([f"<function_calls>\n{other}\n" + f"{same}\n" * 50, "It is 3."], chunk_size=chunk_size)
    events = await run(loop, "Add one and two, then five and two.")
    assert [event.call.arguments["a"] for event in events if isinstance(event, CallStarted)] == [5, 1]
    said = answer_of(events).messages[1].content
    assert said.count("<invoke") <= 3
    assert said.endswith("</invoke>\n</function_calls>")
    assert answer_of(events).stop_reason == "end"
    assert backend.closed_early[0]


@pytest.mark.parametrize(("question", "runs"), [("Add one and one.", 1), ("Add them twice.", 2), ("请加两次。", 2)])
async def test_the_same_call_twice_in_a_reply_runs_once_unless_it_was_asked_for(question: str, runs: int) -> None:
    loop, backend = make([block(call("add", a=1, b=1), call("add", a=1, b=1)), "It is 2."])
    events = await run(loop, question)
    assert kinds(events).count("CallFinished") == runs
    told = backend.requests[1].messages[-1].content
    assert told.count("<result name") == runs
    assert ("It ran once." in told) is (runs == 1)
    ended = next(event for event in events if isinstance(event, ReplyEnded))
    assert [repair.code for repair in ended.reply.repairs] == ["repeated-call"] * (2 - runs)


# -- an empty reply, and progress --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
async def test_an_empty_reply_is_asked_for_once_more_and_leaves_nothing_behind(lang: str) -> None:
    loop, backend = make([ADD, " \n", "It is 3."], lang=lang)
    events = await run(loop)
    assert [type(event).__name__ for event in events].count("AskedAgain") == 1
    assert [message.content for message in backend.requests[2].messages[-2:]] == [
        " \n",
        prompt.after_empty(PromptFormat(lang=lang)),
    ]
    answer = answer_of(events)
    assert (answer.text, answer.stop_reason, answer.replies) == ("It is 3.", "end", 3)
    assert [message.role for message in answer.messages] == ["user", "assistant", "user", "assistant"]
    assert answer.messages[-1].content == "It is 3."


@pytest.mark.parametrize(
    ("replies", "options", "turns"),
    [
        (["", ""], {}, 2),  # twice is enough
        ([""], {"repair": RepairPolicy(max_replies=1)}, 1),
        ([""], {"finish_reasons": ["length"]}, 1),
    ],
)
async def test_an_empty_reply_is_the_answer_where_asking_is_no_use(
    replies: list[str], options: dict[str, Any], turns: int
) -> None:
    loop, _ = make(replies, **options)
    answer = answer_of(await run(loop))
    assert (answer.text, answer.replies) == ("", turns)
    assert [message.role for message in answer.messages] == ["user", "assistant"]


EMPTY, OURS = "", INSTRUCTION


@pytest.mark.parametrize(
    ("replies", "asked", "stop_reason", "text"),
    [
        ([EMPTY, OURS, "It is 3."], ["AskedAgain", "RetryAsked"], "end", "It is 3."),
        ([OURS, EMPTY, "It is 3."], ["RetryAsked", "AskedAgain"], "end", "It is 3."),
        ([OURS] * 4, ["RetryAsked"] * 3, "own_words", ""),  # empty, too, but asked for often enough
        ([EMPTY, *[OURS] * 4], ["AskedAgain", *["RetryAsked"] * 3], "own_words", ""),
        ([OURS, OURS, OURS, "It is 3."], ["RetryAsked"] * 3, "end", "It is 3."),
    ],
)
async def test_an_empty_reply_that_is_refused_is_asked_for_once(
    replies: list[str], asked: list[str], stop_reason: str, text: str
) -> None:
    loop, backend = make(replies)
    events = await run(loop)
    assert [type(event).__name__ for event in events if isinstance(event, AskedAgain | RetryAsked)] == asked
    answer = answer_of(events)
    assert (answer.stop_reason, answer.text, len(backend.requests)) == (stop_reason, text, len(replies))
    assert [(message.role, message.content) for message in answer.messages[1:]] == [("assistant", text)]


@pytest.mark.parametrize("replies", [[OURS], [EMPTY, OURS]])
async def test_nothing_is_asked_again_after_the_last_reply(replies: list[str]) -> None:
    loop, _ = make(replies, repair=RepairPolicy(max_replies=len(replies)))
    events = await run(loop)
    answer = answer_of(events)
    assert (answer.stop_reason, [message.role for message in answer.messages]) == ("own_words", ["user", "assistant"])
    assert not any(isinstance(event, RetryAsked) for event in events)


async def test_the_progress_of_the_prompt_is_passed_on() -> None:
    progress = [PromptProgress(read=read, total=30) for read in (10, 30)]
    for mode in ("xml", "native"):
        loop, _ = make([[*(Chunk(progress=each) for each in progress), "Hi."]], mode=mode)
        assert [event for event in await run(loop) if isinstance(event, PromptProgress)] == progress


class TellingHost(LocalHost):
    """A host whose tool tells how far it is."""

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        assert progress is not None
        for done in (1, 2):
            progress(done, 2, f"step {done}")
            await asyncio.sleep(0.01)
        progress(3, None, "too late to be seen")
        return ToolResult.error("no luck")


async def test_the_progress_of_a_call_is_passed_on() -> None:
    loop, _ = make([ADD, "No."], host=TellingHost([add]))
    told = [event for event in await run(loop) if isinstance(event, CallProgress)]
    assert [(event.done, event.total, event.message) for event in told] == [(1, 2, "step 1"), (2, 2, "step 2")]


async def test_whoever_leaves_while_a_call_runs_ends_it() -> None:
    ended = asyncio.Event()

    class Endless(LocalHost):
        async def call(
            self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
        ) -> ToolResult:
            assert progress is not None
            progress(0, None, "")
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()
            return ToolResult()

    loop, _ = make([ADD], host=Endless([add]))
    async with loop:
        async with aclosing(loop.run([Message(role="user", content="1 + 2?")])) as events:
            async for event in events:
                if isinstance(event, CallProgress):
                    break
        assert ended.is_set()
