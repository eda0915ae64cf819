"""Servers and tools of a chat: on and off, dying, asking the person themselves."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from chat_stage import call, staged

from xmlcall import LocalHost, ToolHostError
from xmlcall.agent.rules import Rule, Rules
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import BackendUnavailable
from xmlcall.hosts.base import OnProgress
from xmlcall.hosts.mcp.server_requests import FormRequest, SampleRequest, UrlRequest
from xmlcall.types.calls import Message, ToolResult
from xmlcall.ui.questions import PageElicitation, PageSampling

FREE = Rules(rules=(Rule(effect="allow", tools=("*",), repaired=True, may_flow=True),))
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
        _, turn = await stage.ask("First")
        assert [tool["name"] for tool in (await stage.over(turn))["tools"]] == ["one", "two"]
        [server] = await stage.post("tools/local.two", {"is_on": False}, 200)
        assert [tool["is_on"] for tool in server["tools"]] == [True, False]
        await stage.until(lambda: ("servers", [server]) in stage.told)
        _, turn = await stage.ask("Second")
        assert [tool["name"] for tool in (await stage.over(turn))["tools"]] == ["one"]
        assert "Second." not in stage.backend.requests[-1].messages[0].content
        [server] = await stage.post("servers/local", {"is_on": False}, 200)
        assert (server["is_on"], server["state"], len(server["tools"])) == (False, "off", 2)
        _, turn = await stage.ask("Third")
        assert (await stage.over(turn))["tools"] == []
        await stage.post("servers/local", {"is_on": True}, 200)
        [server] = await stage.post("tools/local.two", {"is_on": True}, 200)
        assert all(tool["is_on"] for tool in server["tools"])


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
        elicit = PageElicitation(stage.room.questions, lambda server: "")
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
        elicit = PageElicitation(stage.room.questions, lambda server: "")
        asking = asyncio.create_task(elicit(UrlRequest(server="files", message="Sign in", url="https://ex\u0430mple.com/a")))
        question = await stage.question()
        assert (question["url"], question["host"]) == ("https://ex\u0430mple.com/a", "xn--exmple-4nf.com")
        await stage.answer(given)
        assert (await asking).action == action


async def test_nobody_fills_in_a_form() -> None:
    async with staged([], is_open=False, patience=0.05) as stage:
        elicit = PageElicitation(stage.room.questions, lambda server: "")
        assert (await elicit(FormRequest(server="files", message="How old?", schema=SCHEMA))).action == "cancel"
        assert stage.room.questions.open() == []


def wanted() -> SampleRequest:
    return SampleRequest(server="files", messages=(Message(role="user", content="Sum up"),), max_tokens=20)


async def test_a_completion_is_asked_about_before_and_behind() -> None:
    async with staged([]) as stage:
        backend = ScriptedBackend(["<think>hm</think>Short.", "Other."])
        sample = PageSampling(stage.room.questions, stage.room.news, lambda: backend, lambda server: "", max_tokens=10)
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
        sample = PageSampling(stage.room.questions, stage.room.news, lambda: backend, lambda server: "", is_asked=False)
        assert await sample(wanted()) is None
        await stage.until(lambda: any(name == "notice" for name, _ in stage.told))
        page = stage.room.news.watch()
        assert "it is gone" in (await anext(page))[1]["text"], "a page that comes later is not told"
        await page.aclose()
