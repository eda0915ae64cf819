"""A kept conversation gives the records that its turns gave while they went on; and what is missing in it is left empty."""

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from turn_harness import Told, add, block, call, fail, tiles, times

from xmlcall import LocalHost, Message, ToolLoop
from xmlcall.agent.policy import Decision, Proposal
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import UsageError
from xmlcall.records.store import Store
from xmlcall.turn_records.builder import TurnBuilder
from xmlcall.turn_records.keeping import Keeper
from xmlcall.turn_records.kept import turns_of
from xmlcall.turn_records.record import CallRecord, ReplyRecord, TurnRecord
from xmlcall.types.completion import Chunk
from xmlcall.wire.openai import native_call

SAME = ("name", "dialect", "start", "end", "text", "arguments", "ran_with", "outcome", "server", "tool", "by", "result")


@pytest.fixture
def store(tmp_path: Path) -> Iterable[Store]:
    with Store(tmp_path / "conversations.db") as store:
        yield store


async def had(store: Store, *turns: tuple[str, list[Any]], mode: Any = "xml", **options: Any) -> list[TurnRecord]:
    """Have a conversation, and return the records of its turns under way."""
    keeper, said, records = Keeper(store, None), list[Message](), list[TurnRecord]()
    for question, replies in turns:
        said.append(Message(role="user", content=question))
        builder = TurnBuilder(id="t", source="chat", question=question, conversation=said)
        loop = ToolLoop(
            Told(ScriptedBackend(replies, chunk_size=5), builder), [LocalHost([add, fail, times])], mode=mode, **options
        )
        async with loop:
            catalog = await loop.catalog()
            builder.know(tools=catalog)
            how = {"mode": mode, "family": loop.format.family, "reasoning_open": False}
            keeper.asked(said, catalog, "scripted", how)
            async for event in loop.run(said):
                builder.note(event)
                keeper.note(event)
                said = list(getattr(event, "messages", said))
            keeper.keep(said)
        records.append(builder.record())
    return records


def told(turns: Iterable[TurnRecord]) -> list[Any]:
    """Return what both ways have to say the same."""
    return [
        (turn.question, turn.outcome, turn.answer, [tool["name"] for tool in turn.tools], [_reply(each) for each in turn.replies])
        for turn in turns
    ]


def _reply(reply: ReplyRecord) -> Any:
    marks = sorted((mark.code, mark.start or 0) for mark in reply.repairs)
    whole = (reply.number, reply.raw, reply.spans, marks, reply.reasoning, reply.finish_reason, reply.is_kept, reply.refusal)
    return whole, (reply.prompt_tokens, reply.completion_tokens), [_call(each) for each in reply.calls]


def _call(each: CallRecord) -> Any:
    values = [
        (value.path, value.value, value.start, value.end, value.source and (value.source.kind, value.source.call), value.repairs)
        for value in each.values
    ]
    return [getattr(each, name) for name in SAME], values, [mark.code for mark in each.repairs], each.issues


async def edit(proposal: Proposal) -> Decision:
    return Decision(allowed=True, arguments={"a": 1, "b": 5}, by="person")


ADD = block(call("add", a=1, b=2))
NATIVE = [Chunk(text="Let me see."), Chunk(tool_calls=(native_call(0, "add", '{"a": 1, "b": "2"}'),))]
CONVERSATIONS: dict[str, tuple[list[tuple[str, list[Any]]], dict[str, Any]]] = {
    "a call and an answer": ([("What is 1 + 2?", [f"Let me see. {ADD}", "It is 3."])], {}),
    "two turns": ([("What is 1 + 2?", [ADD, "3."]), ("And 40 to that?", [block(call("add", a=3, b=40)), "43."])], {}),
    "repaired": ([("What is 1 + 2?", [block(call("Add", a="+1", b='"2"')), "3."])], {}),
    "rejected, then right": ([("What is 1 + 2?", [block(call("add", a="one")), ADD, "3"])], {}),
    "an unknown tool": ([("Hm?", [block(call("nothing")), "So."])], {}),
    "denied": ([("What is 1 + 2?", [ADD, "No."])], {"policy": ()}),
    "changed by a person": ([("What is 1 + 2?", [ADD, "6."])], {"policy": edit}),
    "twice": ([("Add them.", [block(call("add", a=1, b=2), call("add", a=1, b=2)), "3"])], {}),
    "held": ([("Do it.", [block(call("add", a=1, b=2), call("times", x=77, y=88)), block(call("times", x=3, y=3)), "9"])], {}),
    "an error": ([("Try.", [block(call("fail")), "It failed."])], {}),
    "invented results": ([("What?", ['<function_results>\n<result name="add">\n9\n</result>\n</function_results>', "No."])], {}),
    "empty": ([("Hello", ["", "Hello."])], {}),
    "copied from the person": ([(f"Write {ADD}", [ADD, "So."])], {}),
    "native": ([("What is 1 + 2?", [NATIVE, "3."])], {"mode": "native"}),
    "leaked": ([("What is 1 + 2?", [f"Well. {ADD}", "3."])], {"mode": "native"}),
    "reasoning of the server": ([("Hm?", [[Chunk(reasoning="Hm. "), Chunk(text="Yes.")]])], {}),
    "thinking": ([("Hm?", [f"<think>Hm {ADD}</think>Yes."])], {}),
    "after the call": ([("What is 1 + 2?", [f"{ADD}\nThe result is 12.", "3."])], {}),
    "half a character": ([("What is 1 + 2? \ud83d", [f"\ud83d {ADD}", "3 \udc00."])], {}),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_kept_and_under_way_say_the_same(name: str, store: Store) -> None:
    turns, options = CONVERSATIONS[name]
    records = await had(store, *turns, **{"policy": ("*",), **options})
    [found] = store.listed()
    kept = turns_of(store, found.id)
    assert told(kept) == told(records)
    assert [turn.id for turn in kept] == [f"{found.id}.{number}" for number in range(1, len(turns) + 1)]
    for turn in kept:
        assert (turn.source, turn.model, turn.way) == ("conversation", "scripted", options.get("mode", "xml"))
        for reply in turn.replies:
            tiles(reply)
            assert reply.prompt[-1].role == ("user" if turn.way == "xml" or reply.number == 1 else "tool")
            for value in (value for each in reply.calls for value in each.values):
                if value.source and value.source.start is not None:
                    assert value.source.message is not None
                    words = reply.prompt[value.source.message].content[value.source.start : value.source.end]
                    assert words.lower() == str(value.value).lower()


async def test_a_turn_that_was_killed_in_a_call(store: Store) -> None:
    await had(store, ("What is 1 + 2?", [ADD, "3."]), policy=("*",))
    [found] = store.listed()
    assert store.path is not None
    with sqlite3.connect(store.path) as database:
        database.execute("DELETE FROM event WHERE kind NOT IN ('asked', 'started') AND number > 2")
    [turn] = turns_of(store, found.id)
    assert [each.outcome for reply in turn.replies for each in reply.calls] == ["unknown"]
    assert (turn.outcome, turn.answer) == ("", "")


async def test_a_conversation_that_was_changed_later(store: Store) -> None:
    """A question was taken back: the turn is shown, its prompt is the question alone."""
    await had(store, ("What is 1 + 2?", [ADD, "3."]), policy=("*",))
    [found] = store.listed()
    store.write(found.id, "kept", {}, [])
    [turn] = turns_of(store, found.id)
    assert [message.content for message in turn.replies[0].prompt] == ["What is 1 + 2?"]
    assert [value.source.kind for value in turn.replies[0].calls[0].values if value.source] == ["person", "person"]


BODIES: list[tuple[str, dict[str, Any]]] = [
    ("asked", {}),
    ("asked", {"text": "Hello", "tools": "nowhere"}),
    ("asked", {"text": 3, "tools": None, "family": [], "mode": {}, "at": "x"}),
    ("reply", {}),
    ("reply", {"raw": None, "calls": None, "message": None, "usage": []}),
    ("reply", {"raw": ADD, "calls": [{}, 3, {"raw": {}}, {"id": "x", "raw": {"text": ADD}}], "message": {"content": 3}}),
    ("reply", {"text": "Hi", "calls": [{"name": "add", "issues": [{}, 3, {"code": "nothing", "readings": [1]}]}]}),
    ("reply", {"message": {"role": "assistant", "content": "of an older version"}}),
    ("started", {"id": "x"}),
    ("ended", {"id": "x", "outcome": "exploded"}),
    ("ended", {}),
    ("step", {}),
    ("answer", {}),
    ("of a later version", {"what": [1]}),
]


@pytest.mark.parametrize("place", range(len(BODIES)))
def test_what_an_older_version_did_not_keep_is_left_empty(place: int, store: Store) -> None:
    store.write("abcd0001", "asked", {"text": "Hello"}, [Message(role="user", content="Hello")])
    for kind, body in [*BODIES[place:], *BODIES[:place]]:
        store.write("abcd0001", kind, body)
    turns = turns_of(store, "abcd0001")
    assert turns[0].question == "Hello"
    json.dumps([str(turn) for turn in turns])
    for turn in turns:
        for reply in turn.replies:
            tiles(reply)


def test_an_old_reply_is_read_from_its_message(store: Store) -> None:
    store.write("abcd0001", "asked", {"text": "Hello"}, [Message(role="user", content="Hello")])
    store.write("abcd0001", "reply", {"message": {"role": "assistant", "content": "of an older version"}})
    assert turns_of(store, "abcd")[0].replies[0].raw == "of an older version"


def test_a_conversation_that_is_not_there(store: Store) -> None:
    with pytest.raises(UsageError):
        turns_of(store, "zz")
