"""Chats of the page: turns, what is kept of them, and how they end."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from chat_stage import call, staged

from xmlcall.agent.rules import Rule, Rules
from xmlcall.errors import BackendUnavailable
from xmlcall.records.store import Store
from xmlcall.types.calls import Message

FREE = Rules(rules=(Rule(effect="allow", tools=("*",), repaired=True, may_flow=True),))


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def test_a_turn_is_kept_as_it_was_shown(tmp_path: Path) -> None:
    path = tmp_path / "conversations.db"
    async with staged([call("double", number=4), "It is 8."], [double], rules=FREE, path=path) as stage:
        conversation, turn = await stage.ask("Double 4")
        assert turn == f"{conversation}.1"
        seen = await stage.over(turn)
        [first, second] = seen["replies"]
        [made] = first["calls"]
        assert (made["outcome"], made["result"], made["server"], made["arguments"]) == ("ok", "8", "local", {"number": 4})
        assert first["prompt"][-1]["content"] == "Double 4"
        assert first["prompt"][0]["role"] == "system"
        assert (second["raw"], seen["outcome"], seen["answer"]) == ("It is 8.", "end", "It is 8.")
    async with staged(["Then 16."], [double], rules=FREE, path=path) as stage:  # another program, later
        shown = await stage.get(f"chat/{conversation}")
        [kept] = shown["turns"]
        assert shown["conversation"]["title"] == "Double 4"
        assert kept["id"] == turn
        assert [reply["raw"] for reply in kept["replies"]] == [reply["raw"] for reply in seen["replies"]]
        assert [each["outcome"] for reply in kept["replies"] for each in reply["calls"]] == ["ok"]
        assert (kept["outcome"], kept["answer"]) == ("end", "It is 8.")
        _, next_turn = await stage.ask("And again?", conversation)
        assert next_turn == f"{conversation}.2"
        assert (await stage.over(next_turn))["answer"] == "Then 16."
        assert [role for role, _ in stage.sent()] == ["user", "assistant", "user", "assistant", "user"]
        assert (await stage.get(f"turns/{turn}"))["answer"] == "It is 8."


async def test_an_own_system_message_begins_each_conversation() -> None:
    start = [Message(role="system", content="Be brief.")]
    async with staged(["Yes."], start=start) as stage:
        conversation, turn = await stage.ask("Hello")
        await stage.over(turn)
        assert stage.backend.requests[0].messages[0].content.endswith("Be brief.")
        assert [message.content for message in stage.room.store.messages(conversation)] == ["Be brief.", "Hello", "Yes."]


@pytest.mark.parametrize("question", ["", " \n ", "\ud800", None, 7])
async def test_what_is_no_question(question: Any) -> None:
    async with staged([]) as stage:
        told = await stage.post("chat", {"conversation": None, "question": question}, 422)
        assert told["error"]["message"]
        assert stage.room.store.listed() == []


async def test_a_question_of_a_megabyte() -> None:
    question = "long " * 200_000
    async with staged(["Read."]) as stage:
        _, turn = await stage.ask(question)
        seen = await stage.over(turn)
        assert (seen["question"], seen["answer"]) == (question, "Read.")
        await stage.post("chat", {"question": "x" * (8 << 20)}, 413)


async def test_there_is_no_such_conversation() -> None:
    async with staged([]) as stage:
        for id in ("00000000", "0", "../x", "a" * 3000):
            await stage.post("chat", {"conversation": id, "question": "Hi"}, 404)
        await stage.get("chat/00000000", 404)
        await stage.post("chat/00000000/stop", {}, 409)
        await stage.post("chat/00000000/retry", {}, 404)
        await stage.post("chat", {"question": "Hi", "instead_of": "nonsense"}, 422)
        await stage.post("chat", {"question": "Hi", "instead_of": "00000000.1"}, 404)


async def test_a_failing_model_server_ends_the_turn_and_not_the_chat() -> None:
    async with staged([BackendUnavailable("it is gone"), "Here again."]) as stage:
        conversation, turn = await stage.ask("Hello")
        seen = await stage.over(turn)
        assert seen["outcome"] == "error"
        assert "it is gone" in seen["error"]
        assert stage.room.store.messages(conversation) == []
        kept = stage.room.kept_turn(turn)
        assert kept is not None
        assert (kept.outcome, kept.error) == ("error", seen["error"])
        _, turn = await stage.ask("Hello?", conversation)
        assert turn == f"{conversation}.2"
        assert (await stage.over(turn))["answer"] == "Here again."


async def test_one_turn_at_a_time_in_a_conversation_and_several_conversations() -> None:
    going = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        await going.wait()
        return "waited"

    async with staged([call("wait"), "Other.", "Done."], [wait], rules=FREE) as stage:
        first, turn = await stage.ask("Wait")
        await stage.until(lambda: bool(stage.room.turn_on("local")))
        assert "still running" in (await stage.post("chat", {"conversation": first, "question": "Now"}, 409))["error"]["message"]
        _, other = await stage.ask("Something else")
        assert (await stage.over(other))["answer"] == "Other."
        assert (await stage.get(f"chat/{first}"))["conversation"]["turn"] == turn
        going.set()
        assert (await stage.over(turn))["answer"] == "Done."
        assert (await stage.get(f"chat/{first}"))["conversation"]["turn"] is None


async def test_a_turn_is_stopped_while_a_call_runs() -> None:
    stopped: list[str] = []

    async def hang() -> str:
        """Hang."""
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append("told")
            raise
        return "never"

    async with staged([call("hang"), "Fine."], [hang], rules=FREE) as stage:
        conversation, turn = await stage.ask("Hang")
        await stage.until(lambda: bool(stage.room.turn_on("local")))
        await stage.post(f"chat/{conversation}/stop")
        seen = await stage.over(turn)
        assert stopped == ["told"]
        assert (seen["outcome"], seen["replies"][0]["calls"][0]["outcome"]) == ("left", "unknown")
        await stage.post(f"chat/{conversation}/stop", {}, 409)
        _, turn = await stage.ask("Better?", conversation)
        assert (await stage.over(turn))["answer"] == "Fine."
        said = stage.sent()
        assert [role for role, _ in said] == ["user", "assistant", "user", "assistant", "user"]
        assert "not known whether it did its work" in said[2][1]


async def test_stopping_before_anything_came_leaves_the_question_unasked() -> None:
    async with staged(["One.", "Two."]) as stage:
        async with stage.room.loop.backend._one_at_a_time:  # type: ignore[attr-defined]
            conversation, turn = await stage.ask("First")
            await stage.until(lambda: bool(stage.recorder.find(turn)))
            await stage.post(f"chat/{conversation}/stop")
            assert (await stage.over(turn))["outcome"] == "left"
        _, turn = await stage.ask("Second", conversation)
        await stage.over(turn)
        assert stage.sent() == [("user", "Second")]


async def test_leaving_the_program_stops_turns_and_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "conversations.db"

    async def hang() -> str:
        """Hang."""
        await asyncio.sleep(60)
        return "never"

    async with staged([call("hang")], [hang], rules=FREE, path=path) as stage:
        conversation, _ = await stage.ask("Hang")
        await stage.until(lambda: bool(stage.room.turn_on("local")))
    with Store(path) as store:
        assert [message.role for message in store.messages(conversation)] == ["user", "assistant", "user", "assistant"]


async def test_the_audit_names_the_conversation_of_each_call(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    replies = [call("double", number=1), "2", call("double", number=2), "4"]
    async with staged(replies, [double], rules=FREE, audit=audit) as stage:
        one, turn = await stage.ask("One")
        await stage.over(turn)
        two, turn = await stage.ask("Two")
        await stage.over(turn)
    told = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["conversation"], line["event"]) for line in told] == [
        (one, "starts"),
        (one, "ended"),
        (two, "starts"),
        (two, "ended"),
    ]
