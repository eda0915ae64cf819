"""Questions before a call, in the page: every answer, several pages, none at all."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_stage import Stage, call, staged

from xmlcall import LocalHost
from xmlcall.agent.rules import Effect, Rule, Rules, one_of
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.types.calls import Tool
from xmlcall.types.completion import Chunk, CompletionRequest

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def send(text: str, times: int = 1) -> str:
    """Send something."""
    RAN.append((text, times))
    return "sent"


async def asked(stage: Stage, question: str = "Send hi", conversation: str | None = None) -> tuple[str, str, dict[str, Any]]:
    conversation, turn = await stage.ask(question, conversation)
    return conversation, turn, await stage.question()


def only_call(turn: Mapping[str, Any]) -> dict[str, Any]:
    [found] = [each for reply in turn["replies"] for each in reply["calls"]]
    assert isinstance(found, dict)
    return found


async def test_what_a_question_says() -> None:
    async with staged([call("send", text="hi \u202e<b>"), "Done."], [send]) as stage:
        conversation, turn, question = await asked(stage)
        assert (question["kind"], question["turn"], question["target"]) == ("call", turn, "local.send")
        assert question["call"]["arguments"] == {"text": "hi \u202e<b>"}
        assert question["call"]["outcome"] == "waiting"
        assert [value["source"]["kind"] for value in question["call"]["values"]] == ["invented"]
        assert question["tool"]["inputSchema"]["required"] == ["text"]
        assert (question["times_in_a_row"], question["definition_before"], question["repairs"]) == (1, None, [])
        await stage.until(lambda: ("question", question) in stage.told)
        assert (await stage.get(f"chat/{conversation}"))["questions"] == [json.loads(json.dumps(question))]
        await stage.answer("yes")
        await stage.over(turn)
        await stage.until(lambda: ("answered", {"id": question["id"], "answer": "yes"}) in stage.told)
        assert RAN == [("hi \u202e<b>", 1)]
        assert (await stage.get(f"chat/{conversation}"))["questions"] == []


async def test_no_with_a_reason() -> None:
    async with staged([call("send", text="hi"), "As you wish."], [send]) as stage:
        _, turn, _ = await asked(stage)
        await stage.answer("no", reason=" not to them ")
        made = only_call(await stage.over(turn))
        assert (made["outcome"], made["by"], made["reason"]) == ("denied", "person", "The person said no: not to them")
        assert (made["server"], made["tool"]) == ("local", "send")
        assert RAN == []
        assert "The person said no: not to them" in stage.sent()[-1][1]


async def test_other_arguments_have_to_fit() -> None:
    async with staged([call("send", text="hi"), "Done."], [send]) as stage:
        _, turn, question = await asked(stage)
        for wrong in ({"text": 7}, {"times": 2}, {"text": "x", "other": 1}, ["x"], "x", None):
            told = await stage.answer("edit", 422, arguments=wrong)
            assert told["problems"], wrong
        await stage.answer("edit", arguments={"text": "hello", "times": 3})
        made = only_call(await stage.over(turn))
        assert (made["arguments"], made["ran_with"]) == ({"text": "hi"}, {"text": "hello", "times": 3})
        assert RAN == [("hello", 3)]
        assert '"hello"' in stage.sent()[-1][1], "the model is not told"
        assert question["id"]


@pytest.mark.parametrize(("answer", "asks_again"), [("always", False), ("with", True)])
async def test_what_is_always_allowed(answer: str, asks_again: bool) -> None:
    replies = [call("send", text="hi"), "1", call("send", text="hi"), "2", call("send", text="other"), "3"]
    async with staged(replies, [send]) as stage:
        conversation, turn, _ = await asked(stage)
        await stage.answer(answer)
        await stage.over(turn)
        assert only_call(await stage.asked("Again", conversation))["by"] == "person, always"
        _, turn = await stage.ask("Another")  # another conversation, too
        if asks_again:
            await stage.answer("yes")
        assert only_call(await stage.over(turn))["outcome"] == "ok"
        assert len(RAN) == 3


@pytest.mark.parametrize("answer", ["always", "with"])
async def test_what_was_always_allowed_is_taken_back(answer: str) -> None:
    async with staged([call("send", text="hi"), "1", call("send", text="hi"), "2"], [send]) as stage:
        conversation, turn, _ = await asked(stage)
        await stage.answer(answer)
        await stage.over(turn)
        [[tool]] = [server["tools"] for server in stage.room.servers()]
        assert tool["is_always_allowed"]
        [[tool]] = [server["tools"] for server in await stage.post("take_back/local.send", {}, 200)]
        assert (tool["is_always_allowed"], tool["is_asked"]) == (False, True)
        _, turn, _ = await asked(stage, "Again", conversation)
        await stage.answer("no")
        await stage.over(turn)
        assert len(RAN) == 1
        await stage.post("take_back/local.other", {}, 422)


async def test_stopping_at_a_question() -> None:
    async with staged([call("send", text="hi"), "Fine."], [send]) as stage:
        conversation, turn, _ = await asked(stage)
        await stage.answer("stop")
        seen = await stage.over(turn)
        assert (seen["outcome"], only_call(seen)["outcome"]) == ("left", "not started")
        assert (await stage.asked("Better?", conversation))["answer"] == "Fine."
        assert RAN == []


async def test_stopping_the_turn_takes_its_question_away() -> None:
    async with staged([call("send", text="hi")], [send]) as stage:
        conversation, turn, question = await asked(stage)
        await stage.post(f"chat/{conversation}/stop")
        await stage.over(turn)
        await stage.until(lambda: ("answered", {"id": question["id"], "answer": "gone"}) in stage.told)
        await stage.post(f"questions/{question['id']}", {"answer": "yes"}, 409)
        assert RAN == []


async def test_two_pages_answer_at_once() -> None:
    async with staged([call("send", text="hi"), "Done."], [send]) as stage:
        _, turn, question = await asked(stage)
        bodies = [{"answer": "yes"}, {"answer": "no"}, {"answer": "always"}]
        headers = {"content-type": "application/json"}
        path = f"/ui/api/questions/{question['id']}"
        answers = await asyncio.gather(*(stage.browser.post(path, json=body, headers=headers) for body in bodies))
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
        await stage.over(turn)
        await stage.post("questions/q_0", {"answer": "yes"}, 404)


@pytest.mark.parametrize("body", [{}, {"answer": "late"}, {"answer": ["yes"]}, {"answer": "no", "reason": 7}, {"answer": None}])
async def test_what_is_no_answer(body: dict[str, Any]) -> None:
    async with staged([call("send", text="hi"), "Done."], [send]) as stage:
        _, turn, question = await asked(stage)
        await stage.post(f"questions/{question['id']}", body, 422)
        await stage.answer("no")
        await stage.over(turn)
        assert RAN == []


async def test_a_question_outlives_the_page_that_was_open() -> None:
    async with staged([call("send", text="hi"), "Done."], [send], is_open=False) as stage:
        _, turn, question = await asked(stage)
        for _ in range(2):  # a reload
            page = stage.room.news.watch()
            assert await anext(page) == ("question", question)
            await page.aclose()
        await stage.answer("yes")
        assert only_call(await stage.over(turn))["outcome"] == "ok"


async def test_nobody_answers() -> None:
    async with staged([call("send", text="hi"), "Nobody there."], [send], is_open=False, patience=0.1) as stage:
        _, turn, _ = await asked(stage)
        made = only_call(await stage.over(turn))
        assert (made["outcome"], made["by"]) == ("denied", "no answer in time")
        assert made["reason"] == "The person was asked, and nobody answered in time."
        assert RAN == []


async def test_somebody_thinks_for_long() -> None:
    async with staged([call("send", text="hi"), "Done."], [send], patience=0.1) as stage:
        _, turn, _ = await asked(stage)
        await asyncio.sleep(0.4)
        await stage.answer("yes")
        assert only_call(await stage.over(turn))["outcome"] == "ok"


async def test_rules_decide_before_a_person_does() -> None:
    rules = Rules(rules=(Rule(effect="deny", tools=("local.send",), source="test"),))
    async with staged([call("send", text="hi"), "Denied."], [send], rules=rules) as stage:
        made = only_call(await stage.asked("Send hi"))
        assert (made["outcome"], made["by"]) == ("denied", "deny local.send (test)")


async def test_a_call_that_comes_again_and_again_is_asked_about() -> None:
    replies = [*[call("send", text="hi")] * 4, "Done."]
    async with staged(replies, [send]) as stage:
        _, turn, _ = await asked(stage)
        await stage.answer("always")
        question = await stage.question()
        assert question["times_in_a_row"] > 1
        await stage.answer("no")
        question = await stage.question()
        await stage.answer("stop")
        await stage.over(turn)
        assert len(RAN) == question["times_in_a_row"] - 2


class Changing(LocalHost):
    """A server that says something else of its tool later."""

    words = "Send something."

    async def tools(self) -> tuple[Tool, ...]:
        self.changed.clear()
        return tuple(replace(tool, description=self.words) for tool in self._tools)


async def test_a_tool_that_is_described_in_other_words_is_asked_about_again() -> None:
    host = Changing([send], name="other")
    async with staged([call("send", text="a"), "1", call("send", text="b"), "2"], hosts=[host]) as stage:
        conversation, turn, question = await asked(stage)
        assert question["definition_before"] is None
        await stage.answer("always")
        await stage.over(turn)
        host.words = "Send something to everybody."
        host.changed.set()
        conversation, turn, question = await asked(stage, "Again", conversation)
        assert "Send something." in question["definition_before"]
        assert "to everybody" in question["definition_now"]
        await stage.answer("no")
        await stage.over(turn)


def replace_text(path: str, old_text: str, new_text: str) -> str:
    """Replace a passage."""
    return path


async def test_the_difference_of_a_write_is_shown() -> None:
    written = call("replace_text", path="a.txt", old_text="one\ntwo", new_text="one\nthree")
    async with staged([written, "Done."], [replace_text]) as stage:
        _, turn, question = await asked(stage)
        assert question["changes"] == [
            {"kind": "gap", "text": "@@ -1,2 +1,2 @@"},
            {"kind": "same", "text": "one"},
            {"kind": "removed", "text": "two"},
            {"kind": "added", "text": "three"},
        ]
        await stage.answer("yes")
        await stage.over(turn)


class Meanwhile(ScriptedBackend):
    """A model during whose third reply something happens."""

    happens: Callable[[], None]

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        if len(self.requests) == 2:
            self.happens()
        async for chunk in super().stream(request):
            yield chunk


@pytest.mark.parametrize("when", ["while the model writes", "while the person reads the question"])
async def test_a_tool_that_changes_in_the_step_is_asked_about(when: str) -> None:
    host = Changing([send], name="other")

    def swap() -> None:
        host.words = f"{host.words} And to everybody."
        host.changed.set()

    backend = Meanwhile([call("send", text="a"), "1", call("send", text="b"), "2"])
    backend.happens = swap if when == "while the model writes" else int  # type: ignore[assignment]
    async with staged([], hosts=[host], backend=backend) as stage:
        conversation, turn, _ = await asked(stage)
        await stage.answer("always" if when == "while the model writes" else "with")
        await stage.over(turn)
        RAN.clear()
        _, turn, question = await asked(stage, "Again", conversation)
        if when == "while the person reads the question":
            swap()
            await stage.answer("yes")
            question = await stage.question()
        assert "to everybody" in question["definition_now"]
        await stage.answer("no")
        await stage.over(turn)
        assert RAN == []


def of_text(effect: Effect, *texts: str) -> Rule:
    return Rule(effect=effect, tools=("local.send",), where={"text": (one_of(texts),)})


@pytest.mark.parametrize(
    ("rule", "answers", "ran", "by"),
    [
        (of_text("deny", "secret"), [], [], "deny local.send"),
        (of_text("ask", "secret"), [("yes", {})], [("secret", 1)], "person"),
        (of_text("ask", "secret"), [("no", {})], [], "person"),
        (of_text("ask", "secret"), [("edit", {"arguments": {"text": "hello"}})], [("hello", 1)], "person"),
        (of_text("ask", "secret", "hi"), [], [("secret", 1)], "person"),  # they were asked under this rule
        (of_text("deny", "other"), [], [("secret", 1)], "person"),
    ],
)
async def test_arguments_that_the_person_changes_are_held_against_the_rules(
    rule: Rule, answers: list[tuple[str, dict[str, Any]]], ran: list[tuple[str, int]], by: str
) -> None:
    async with staged([call("send", text="hi"), "Done."], [send], rules=Rules(rules=(rule,))) as stage:
        _, turn, _ = await asked(stage)
        await stage.answer("edit", arguments={"text": "secret"})
        for answer, more in answers:
            assert (await stage.question())["call"]["arguments"] == {"text": "secret"}
            await stage.answer(answer, **more)
        made = only_call(await stage.over(turn))
        assert (RAN, made["by"]) == (ran, by)


def read_file(path: str) -> str:
    """Read a file."""
    return "one\ntwo"


def write_file(path: str, content: str) -> str:
    """Write a file."""
    return path


class Reading(LocalHost):
    """A server whose read tool says that it reads."""

    async def tools(self) -> tuple[Tool, ...]:
        return tuple(replace(tool, annotations={"readOnlyHint": tool.name == "read_file"}) for tool in self._tools)


async def test_the_read_for_a_question_is_in_the_audit(tmp_path: Path) -> None:
    rules = Rules(rules=(Rule(effect="allow", tools=("files.read_file",), source="test"),))
    hosts, path = [Reading([read_file, write_file], name="files")], tmp_path / "audit.jsonl"
    replies = [call("write_file", path="a.txt", content="one\n2"), "Done."]
    async with staged(replies, hosts=hosts, rules=rules, audit=path) as stage:
        _, turn, question = await asked(stage, "Write 2 to a.txt")
        assert question["changes"]
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [(each["event"], each["tool"], each["by"]) for each in lines] == [
            (event, "read_file", "allow files.read_file (test)") for event in ("starts", "ended")
        ]
        assert lines[0]["arguments"] == {"path": "a.txt"}
        assert lines[0]["call"] != question["call"]["id"]
        await stage.answer("no")
        await stage.over(turn)
