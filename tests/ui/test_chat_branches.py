"""Branches of conversations: a question asked anew takes nothing away."""

from pathlib import Path

import pytest
from chat_stage import Stage, staged

from xmlcall.errors import UsageError
from xmlcall.records.store import Store
from xmlcall.turns.keeping import branched
from xmlcall.types.calls import Message


async def talked(stage: Stage, *questions: str) -> str:
    conversation: str | None = None
    for question in questions:
        conversation, turn = await stage.ask(question, conversation)
        await stage.over(turn)
    assert conversation is not None
    return conversation


def questions_of(stage: Stage, conversation: str) -> list[str]:
    return [turn.question for turn in stage.room.turns_of(conversation)]


async def test_a_branch_begins_as_the_conversation_was_before_the_turn() -> None:
    async with staged(["1", "2", "3", "other 2", "deeper"]) as stage:
        first = await talked(stage, "One", "Two", "Three")
        branch, turn = await stage.ask("Instead of two", first, instead_of=f"{first}.2")
        assert (branch != first, turn) == (True, f"{branch}.2")
        await stage.over(turn)
        assert stage.sent() == [("user", "One"), ("assistant", "1"), ("user", "Instead of two")]
        assert questions_of(stage, first) == ["One", "Two", "Three"]
        assert questions_of(stage, branch) == ["One", "Instead of two"]
        shown, parent = await stage.get(f"chat/{branch}"), await stage.get(f"chat/{first}")
        assert shown["conversation"]["branch_of"] == {"id": first, "at": 2}
        assert shown["branches"] == []
        assert parent["conversation"]["branch_of"] is None
        assert parent["branches"] == [{"id": branch, "at": 2, "title": "One"}]
        deeper, turn = await stage.ask("Instead", branch, instead_of=f"{branch}.2")  # a branch of a branch is one of that alone
        await stage.over(turn)
        assert (await stage.get(f"chat/{deeper}"))["conversation"]["branch_of"] == {"id": branch, "at": 2}
        assert len((await stage.get(f"chat/{first}"))["branches"]) == 1


async def test_a_branch_at_the_first_turn_is_titled_by_its_own_question() -> None:
    async with staged(["1", "other"], start=[Message(role="system", content="Be brief.")]) as stage:
        first = await talked(stage, "One")
        branch, turn = await stage.ask("Another", first, instead_of=f"{first}.1")
        await stage.over(turn)
        assert turn == f"{branch}.1"
        assert stage.sent() == [("user", "Another")]
        assert stage.room.store.find(branch).title == "Another"
        assert [message.content for message in stage.room.store.messages(branch)] == ["Be brief.", "Another", "other"]


async def test_the_last_question_is_asked_again_in_a_branch() -> None:
    async with staged(["1", "2", "again 2"]) as stage:
        first = await talked(stage, "One", "Two")
        begun = await stage.post(f"chat/{first}/retry")
        assert begun["conversation"] != first
        assert (await stage.over(begun["turn"]))["answer"] == "again 2"
        assert questions_of(stage, begun["conversation"]) == ["One", "Two"]


async def test_branches_that_cannot_be() -> None:
    async with staged(["1", "2"]) as stage:
        first, other = await talked(stage, "One"), await talked(stage, "Two")
        for turn in (f"{first}.0", f"{first}.2", f"{first}.x", f"{first}.-1", f"{first}.99999999", "1", "."):
            await stage.post("chat", {"conversation": first, "question": "Hi", "instead_of": turn}, 422)
        await stage.post("chat", {"conversation": other, "question": "Hi", "instead_of": f"{first}.1"}, 422)
        assert len(stage.room.store.listed()) == 2


def said(*texts: str) -> list[Message]:
    roles = ("user", "assistant")
    return [Message(role=roles[place % 2], content=text) for place, text in enumerate(texts)]  # type: ignore[arg-type]


@pytest.mark.parametrize("has_places", [True, False])
def test_questions_of_older_versions_are_looked_for(tmp_path: Path, has_places: bool) -> None:
    with Store(tmp_path / "conversations.db") as store:
        for place, text in ((0, "One"), (2, "One"), (4, "Three")):
            store.write("12345678", "asked", {"text": text, **({"at": place} if has_places else {})})
        store.write("12345678", "kept", {}, said("One [reminder]", "1", "One", "2", "Three", "3"))
        branch = branched(store, "12345678", 2)
        assert store.messages(branch) == said("One [reminder]", "1")
        assert [event.kind for event in store.events(branch)] == ["branched", "asked"]


def test_what_was_taken_back_in_a_terminal_is_not_made_up(tmp_path: Path) -> None:
    with Store(tmp_path / "conversations.db") as store:
        for place, text in ((0, "One"), (2, "Two"), (0, "Anew"), (2, "Then")):
            store.write("12345678", "asked", {"text": text, "at": place})
        store.write("12345678", "kept", {}, said("Anew", "1", "Then", "2"))
        assert store.messages(branched(store, "12345678", 4)) == said("Anew", "1")
        assert store.messages(branched(store, "12345678", 1)) == []
        with pytest.raises(UsageError, match="not kept any more"):
            branched(store, "12345678", 2)


def test_deleting_a_conversation_leaves_its_branches(tmp_path: Path) -> None:
    with Store(tmp_path / "conversations.db") as store:
        store.write("12345678", "asked", {"text": "One", "at": 0})
        store.write("12345678", "kept", {}, said("One", "1"))
        store.write("12345678", "asked", {"text": "Two", "at": 2}, said("One", "1", "Two"))
        branch = branched(store, "12345678", 2)
        store.delete(["12345678"])
        assert store.messages(branch) == said("One", "1")
        assert [event.kind for event in store.events(branch)] == ["branched", "asked", "kept"]
