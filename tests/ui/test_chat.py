"""Chats of the page: turns, what is kept of them, and how they end."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest
from chat_stage import Stage, call, staged

from xmlcall import LocalHost, ToolHostError
from xmlcall.agent.asking_person import AskingPerson
from xmlcall.agent.rules import Rule, Rules
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import BackendUnavailable, UsageError
from xmlcall.hosts.base import OnProgress, OnTask, TaskResult
from xmlcall.hosts.mcp.server_requests import FormRequest, SampleRequest, UrlRequest
from xmlcall.records.store import Store
from xmlcall.turn_records.keeping import branched
from xmlcall.types.calls import Message, TextContent, ToolResult
from xmlcall.types.completion import Chunk, CompletionRequest, PromptProgress
from xmlcall.ui.questions import News, OpenQuestions, PageAsker, ServerRequests

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
        seen = await stage.asked(question)
        assert (seen["question"], seen["answer"]) == (question, "Read.")
        await stage.post("chat", {"question": "x" * (8 << 20)}, 413)


async def test_there_is_no_such_conversation() -> None:
    async with staged([]) as stage:
        for id in ("00000000", "0", "../x", "a" * 3000):
            await stage.post("chat", {"conversation": id, "question": "Hi"}, 404)
        await stage.get("chat/00000000", 404)
        await stage.post("chat/00000000/stop", {}, 409)
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
        assert (await stage.asked("Better?", conversation))["answer"] == "Fine."
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
        await stage.asked("Second", conversation)
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


# -- branches of conversations: a question asked anew takes nothing away -----------------------------------------------


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


# -- a call that its server ran as a task when the page's program was killed: what becomes of it stands in the next turn


def bake() -> str:
    """Bake."""
    return ""


class Oven(LocalHost):
    """A server that makes a task of a call, and does not end by itself."""

    def __init__(self) -> None:
        super().__init__([bake], name="oven")
        self.is_done = asyncio.Event()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = None,
        *,
        progress: OnProgress | None = None,
        on_task: OnTask | None = None,
    ) -> ToolResult:
        assert on_task is not None
        on_task("t1")
        await asyncio.sleep(60)
        raise AssertionError("it is stopped before")

    async def task_result(self, name: str, task: str, timeout: float | None = None) -> TaskResult:
        assert (name, task) == ("bake", "t1")
        await self.is_done.wait()
        return ToolResult(content=(TextContent(text="bread"),))


async def killed(tmp_path: Path) -> tuple[Path, str]:
    """Give the store as a program leaves it that is killed while the task runs."""
    path, left = tmp_path / "conversations.db", tmp_path / "left.db"
    async with staged([call("bake")], hosts=[Oven()], rules=FREE, path=path) as stage:
        conversation, _ = await stage.ask("Bake")
        kinds = [""]
        while kinds[-1] != "task":
            await asyncio.sleep(0.01)
            kinds = [event.kind for event in stage.room.store.events(conversation)] or [""]
        with contextlib.closing(sqlite3.connect(path)) as one, contextlib.closing(sqlite3.connect(left)) as other:
            one.backup(other)
    return left, conversation


async def taken_up(stage: Stage, conversation: str) -> str:
    conversation, turn = await stage.ask("And?", conversation)
    await stage.until(lambda: any("is waited for: oven.bake" in str(told) for told in stage.told))
    assert (await stage.get(f"chat/{conversation}"))["conversation"]["turn"] == turn
    return turn


async def test_the_turn_waits_for_the_task_and_not_the_page(tmp_path: Path) -> None:
    left, conversation = await killed(tmp_path)
    oven = Oven()
    async with staged(["Good."], hosts=[oven], path=left) as stage:
        turn = await taken_up(stage, conversation)
        oven.is_done.set()
        assert (await stage.over(turn))["answer"] == "Good."
        assert [role for role, _ in stage.sent()] == ["user", "assistant", "user", "assistant", "user"]
        assert "bread" in stage.sent()[2][1]
        await stage.until(lambda: any("has ended: oven.bake: bread" in str(told) for told in stage.told))


async def test_stopping_while_a_task_is_waited_for_loses_nothing(tmp_path: Path) -> None:
    left, conversation = await killed(tmp_path)
    oven = Oven()
    async with staged(["Good."], hosts=[oven], path=left) as stage:
        await taken_up(stage, conversation)
        await stage.post(f"chat/{conversation}/stop")
        await stage.until(lambda: conversation not in stage.room._turns)
        assert [found.question for found in stage.room.turns_of(conversation)] == ["Bake"]
        oven.is_done.set()
        assert (await stage.asked("And?", conversation))["answer"] == "Good."
        assert "bread" in stage.sent()[2][1]


def home() -> str:
    """Tell where the person lives."""
    return "Lisbon"


def weather(city: str) -> str:
    """Tell the weather."""
    return "mild"


@pytest.mark.parametrize(("reply", "source"), [(1, "invented"), (2, "result"), (9, "invented"), (None, "invented")])
async def test_a_text_of_a_turn_is_read_with_what_its_reply_knew(reply: int | None, source: str) -> None:
    async with staged([call("home"), call("weather", city="Lisbon"), "Mild."], [home, weather], rules=FREE) as stage:
        _, turn = await stage.ask("How is the weather at home?")
        await stage.over(turn)
        body = {"text": call("weather", city="Lisbon"), "turn": turn, "reply": reply}
        read = (await stage.post("read", body, 200))["reply"]
        assert read["calls"][0]["values"][0]["source"]["kind"] == source


# -- servers and tools of a chat: on and off, dying, asking the person themselves --------------------------------------


SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1}}, "required": ["age"]}


def one() -> str:
    """First."""
    return "1"


def two() -> str:
    """Second."""
    return "2"


async def test_servers_and_tools_are_switched() -> None:
    async with staged(["All.", "One.", "None."], [one, two]) as stage:
        [server] = stage.room.servers()
        assert (server["name"], server["is_on"], server["state"]) == ("local", True, "answers")
        assert [(tool["name"], tool["is_on"]) for tool in server["tools"]] == [("local.one", True), ("local.two", True)]
        assert [tool["name"] for tool in (await stage.asked("First"))["tools"]] == ["one", "two"]
        [server] = await stage.post("tools/local.two", {"is_on": False}, 200)
        assert [tool["is_on"] for tool in server["tools"]] == [True, False]
        await stage.until(lambda: ("servers", [server]) in stage.told)
        assert [tool["name"] for tool in (await stage.asked("Second"))["tools"]] == ["one"]
        assert "Second." not in stage.backend.requests[-1].messages[0].content
        [server] = await stage.post("servers/local", {"is_on": False}, 200)
        assert (server["is_on"], server["state"], len(server["tools"])) == (False, "off", 2)
        assert (await stage.asked("Third"))["tools"] == []
        await stage.post("servers/local", {"is_on": True}, 200)
        [server] = await stage.post("tools/local.two", {"is_on": True}, 200)
        assert all(tool["is_on"] for tool in server["tools"])


@pytest.mark.parametrize(
    ("rules", "asked"),
    [
        ((), [True, True]),
        ((Rule(effect="allow", tools=("local.one",)),), [False, True]),
        ((Rule(effect="allow", tools=("*",)), Rule(effect="ask", tools=("local.two",))), [False, True]),
        ((Rule(effect="allow", tools=("*",)),), [False, False]),
    ],
)
async def test_pages_are_told_which_tools_ask(rules: tuple[Rule, ...], asked: list[bool]) -> None:
    async with staged([], [one, two], rules=Rules(rules=rules)) as stage:
        [server] = stage.room.servers()
        assert [tool["is_asked"] for tool in server["tools"]] == asked


async def test_a_tool_that_the_person_always_allows_does_not_ask() -> None:
    async with staged([call("one"), "Done."], [one, two]) as stage:
        _, turn = await stage.ask("One, please")
        await stage.answer("always")
        await stage.over(turn)
        [server] = stage.room.servers()
        assert [tool["is_asked"] for tool in server["tools"]] == [False, True]


def test_a_session_that_says_yes_to_all_does_not_ask() -> None:
    asker = PageAsker(OpenQuestions(News()), "en", lambda turn: None)
    assert AskingPerson(Rules(), asker, yes=True).spares("any", "tool")


async def test_pages_are_told_what_a_turn_waits_for() -> None:
    pieces: list[str | Chunk | Exception] = [Chunk(progress=PromptProgress(read=677, total=749)), "Read."]
    async with staged([], backend=ScriptedBackend([pieces])) as stage:
        _, turn = await stage.ask("Long")
        await stage.over(turn)
        waited = [data for name, data in stage.told if name == "waiting"]
        assert [each["for"] for each in waited] == ["model", "prompt"]
        assert {key: waited[1][key] for key in ("turn", "read", "total")} == {"turn": turn, "read": 677, "total": 749}


async def test_a_page_that_comes_later_is_told_what_is_waited_for() -> None:
    news = News()
    news.waits("c.1", "prompt", read=1, total=2)
    name, data = await anext(news.watch())
    assert (name, data["turn"], data["for"], data["read"]) == ("waiting", "c.1", "prompt", 1)
    assert data["seconds"] >= 0
    news.waits_no_more("c.1")
    news.notice("said")
    name, _ = await anext(news.watch())
    assert name == "notice"


class Held(ScriptedBackend):
    """Answers once it may."""

    def __init__(self, replies: list[str]) -> None:
        super().__init__(replies)
        self.let_go = asyncio.Event()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        await self.let_go.wait()
        async for chunk in super().stream(request):
            yield chunk


async def test_a_turn_that_waits_for_another_says_so() -> None:
    backend = Held(["1", "2"])
    async with staged([], backend=backend) as stage:
        _, first = await stage.ask("One")
        _, second = await stage.ask("Two")
        await stage.until(lambda: len([name for name, _ in stage.told if name == "waiting"]) == 2)
        backend.let_go.set()
        await stage.over(first)
        await stage.over(second)
        waited = [(data["turn"], data["for"]) for name, data in stage.told if name == "waiting"]
        assert waited == [(first, "model"), (second, "turn"), (second, "model")]


async def test_switches_that_are_none() -> None:
    async with staged([], [one]) as stage:
        for path in ("servers/other", "tools/local.other", "tools/one", "tools/a/b%2Fc"):
            await stage.post(path, {"is_on": False}, 422)
        for wrong in ({}, {"is_on": "no"}, {"is_on": None}):
            await stage.post("servers/local", wrong, 422)


@pytest.mark.parametrize("path", ["tools/local.one", "servers/local"])
async def test_a_tool_that_is_switched_off_while_its_call_is_asked_about(path: str) -> None:
    async with staged([call("one"), "Gone."], [one]) as stage:
        _, turn = await stage.ask("Run it")
        await stage.question()
        await stage.post(path, {"is_on": False}, 200)
        await stage.answer("yes")
        seen = await stage.over(turn)
        assert (seen["outcome"], seen["answer"]) == ("end", "Gone.")
        assert "does not have this tool any more" in stage.sent()[-1][1]


class Dying(LocalHost):
    """A server that dies in a call."""

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        raise ToolHostError("other: it ended with code 9")


async def test_a_server_that_dies_in_a_call() -> None:
    async with staged([call("one"), "It failed."], hosts=[Dying([one], name="other")], rules=FREE) as stage:
        _, turn = await stage.ask("Run it")
        seen = await stage.over(turn)
        [made] = seen["replies"][0]["calls"]
        assert (made["outcome"], made["failure"]) == ("failed", "other: it ended with code 9")
        assert seen["answer"] == "It failed."
        kept = stage.room.kept_turn(turn)
        assert kept is not None
        assert kept.replies[0].calls[0].failure == "other: it ended with code 9"


async def test_a_form_is_filled_in() -> None:
    async with staged([]) as stage:
        elicit = ServerRequests(stage.room.questions, lambda: ScriptedBackend([])).elicit
        asking = asyncio.create_task(elicit(FormRequest(server="files", message="How old?", schema=SCHEMA)))
        question = await stage.question()
        assert (question["kind"], question["server"], question["message"]) == ("form", "files", "How old?")
        assert [(field["name"], field["kind"], field["is_required"], field["default"]) for field in question["fields"]] == [
            ("age", "integer", True, None)
        ]
        await stage.until(lambda: ("request", question) in stage.told)
        for wrong in ({"age": 0}, {"age": "7"}, {}, {"age": 7, "other": 1}, None):
            await stage.answer("yes", 422, arguments=wrong)
        await stage.answer("maybe", 422)
        await stage.answer("yes", arguments={"age": 7})
        answer = await asking
        assert (answer.action, answer.content) == ("accept", {"age": 7})


@pytest.mark.parametrize(("given", "action"), [("yes", "accept"), ("no", "decline"), ("stop", "cancel")])
async def test_an_address_is_shown(given: str, action: str) -> None:
    async with staged([]) as stage:
        elicit = ServerRequests(stage.room.questions, lambda: ScriptedBackend([])).elicit
        asking = asyncio.create_task(elicit(UrlRequest(server="files", message="Sign in", url="https://ex\u0430mple.com/a")))
        question = await stage.question()
        assert (question["url"], question["host"]) == ("https://ex\u0430mple.com/a", "xn--exmple-4nf.com")
        await stage.answer(given)
        assert (await asking).action == action


async def test_nobody_fills_in_a_form() -> None:
    async with staged([], is_open=False, patience=0.05) as stage:
        elicit = ServerRequests(stage.room.questions, lambda: ScriptedBackend([])).elicit
        assert (await elicit(FormRequest(server="files", message="How old?", schema=SCHEMA))).action == "cancel"
        assert stage.room.questions.open() == []


def wanted() -> SampleRequest:
    return SampleRequest(server="files", messages=(Message(role="user", content="Sum up"),), max_tokens=20)


async def test_a_completion_is_asked_about_before_and_after() -> None:
    async with staged([]) as stage:
        backend = ScriptedBackend(["<think>hm</think>Short.", "Other."])
        sample = ServerRequests(stage.room.questions, lambda: backend, max_tokens=10).sample
        asking = asyncio.create_task(sample(wanted()))
        question = await stage.question()
        assert (question["kind"], question["limit"]) == ("completion", 10)
        assert question["messages"] == [{"role": "user", "content": "Sum up"}]
        assert backend.requests == []
        await stage.answer("yes")
        await stage.until(lambda: [each[1]["kind"] for each in stage.room.questions.open()] == ["reply"])
        assert (await stage.question())["text"] == "Short."
        await stage.answer("yes")
        reply = await asking
        assert reply is not None
        assert reply.text == "Short."
        refused = asyncio.create_task(sample(wanted()))
        await stage.answer("no")
        assert await refused is None


async def test_a_completion_that_fails_is_told() -> None:
    async with staged([]) as stage:
        backend = ScriptedBackend([BackendUnavailable("it is gone")])
        sample = ServerRequests(stage.room.questions, lambda: backend, is_asked=False).sample
        assert await sample(wanted()) is None
        await stage.until(lambda: any(name == "notice" for name, _ in stage.told))
        page = stage.room.news.watch()
        assert "it is gone" in (await anext(page))[1]["text"], "a page that comes later is not told"
        await page.aclose()
