"""The same question in other ways: each is answered, nothing runs, and a page that goes ends it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import BackendStatusError
from xmlcall.proxy.http.access import Guard
from xmlcall.records.store import tool_to_json
from xmlcall.tools.catalog import Catalog
from xmlcall.turn_records.builder import Recorder
from xmlcall.turn_records.reading import read_reply
from xmlcall.turn_records.record import TurnRecord
from xmlcall.types.calls import Message, Tool
from xmlcall.ui.api import ShownPage
from xmlcall.ui.app import app_of_page, page_of
from xmlcall.ui.asking import routes

URL = "http://127.0.0.1:8486"
WEATHER = Tool.from_mcp({"name": "weather", "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}}})
CALL = '<function_calls>\n<invoke name="weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n</function_calls>'


class Asked:
    """A page about one turn, with a model that has a script."""

    def __init__(self, *script: Any) -> None:
        self.backend = ScriptedBackend(list(script))
        recorder = Recorder()
        said = (Message(role="user", content="Weather in Paris?"),)
        self.turn = recorder.begin(question="Weather in Paris?", tools=[WEATHER], conversation=said).id
        self.shown = ShownPage(recorder=recorder, about=dict, url=URL, instance="one")
        self.page = page_of(self.shown, Guard(), routes(self.shown, lambda: self.backend))

    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        async with (
            self.backend,
            httpx.AsyncClient(transport=httpx.ASGITransport(app=app_of_page(self.page)), base_url=URL) as client,
        ):
            await client.get("/ui/", params={"token": self.page.entry.token})
            yield client

    async def ask(self, *ways: Any, turn: str = "") -> tuple[int, list[dict[str, Any]]]:
        async for client in self.client():
            answer = await client.post("/ui/api/ask", json={"turn": turn or self.turn, "ways": list(ways)})
            told = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
            return answer.status_code, [each for each in told if each.get("is_over")]
        raise AssertionError("there is a client")


async def test_each_way_is_asked_once_and_nothing_runs() -> None:
    asked = Asked(CALL, "It is mild.")
    status, told = await asked.ask({"mode": "xml"}, {"mode": "xml", "dialect": "hermes"})
    assert status == 200
    assert [each["place"] for each in told] == [0, 1]
    (call,) = told[0]["reply"]["calls"]
    assert (call["name"], call["arguments"], call["outcome"]) == ("weather", {"city": "Paris"}, "not started")
    assert told[1]["reply"]["raw"] == "It is mild."
    prompts = ["\n".join(message.content for message in request.messages) for request in asked.backend.requests]
    assert len(prompts) == 2
    assert "<function_calls>" in prompts[0]
    assert "<tool_call>" in prompts[1]


async def test_a_model_server_that_fails_is_told_and_the_next_way_is_asked() -> None:
    failure = BackendStatusError("no such model", status_code=404)
    _, told = await Asked(failure, "Fine.").ask({"mode": "xml"}, {"mode": "xml"})
    assert "no such model" in told[0]["error"]
    assert told[1]["reply"]["raw"] == "Fine."


ASKED_BEFORE = (Message(role="user", content="Hi."), Message(role="assistant", content="Hello."))
QUESTION = Message(role="user", content="Weather in Paris?")


@pytest.mark.parametrize(
    "behind",
    [(), (Message(role="assistant", content=CALL), Message(role="tool", content="Mild.", name="weather"))],
    ids=["under way", "ended"],
)
async def test_the_question_is_asked_again_without_its_answers(behind: tuple[Message, ...]) -> None:
    asked = Asked("It is mild.")
    builder = asked.shown.recorder.find(asked.turn)
    assert builder is not None
    builder.know(conversation=(*ASKED_BEFORE, QUESTION, *behind))
    _, told = await asked.ask({"mode": "xml"})
    (request,) = asked.backend.requests
    assert (told[0]["error"], [message.role for message in request.messages]) == ("", ["system", "user", "assistant", "user"])
    assert request.messages[-1].content.startswith(QUESTION.content)


async def test_a_turn_of_a_file_is_asked_with_its_tools_described_once() -> None:
    """Its prompt has the description of the tools, a reminder after the question, and the beginning of a call."""
    asked = Asked("It is mild.")
    described = "Tools: weather, with city."
    prompt = (
        Message(role="system", content=described),
        *ASKED_BEFORE,
        Message(role="user", content=f"{QUESTION.content}\n\nA reminder."),
        Message(role="assistant", content="<function_calls>"),
    )
    reply = read_reply(CALL, Catalog.of([WEATHER]), conversation=prompt)
    turn = TurnRecord(id="kept", source="file", question=QUESTION.content, tools=(tool_to_json(WEATHER),), replies=(reply,))
    asked.shown.recorded = {"file/a/kept": turn}.get
    _, told = await asked.ask({"mode": "xml"}, turn="file/a/kept")
    (request,) = asked.backend.requests
    assert (told[0]["error"], [message.role for message in request.messages]) == ("", ["system", "user", "assistant", "user"])
    assert not any("A reminder." in message.content for message in request.messages)
    assert not any(described in message.content for message in request.messages)


@pytest.mark.parametrize(
    ("ways", "turn", "status"),
    [
        ((), "", 400),
        (({"mode": "xml"},) * 9, "", 400),
        (({"mode": "other"},), "", 400),
        (({"mode": "xml", "dialect": "none"},), "", 400),
        (({"mode": "xml", "call_threshold": "high"},), "", 400),
        (("xml",), "", 400),
        (({"mode": "xml"},), "none", 404),
    ],
)
async def test_what_cannot_be_asked_is_refused(ways: tuple[Any, ...], turn: str, status: int) -> None:
    asked = Asked()
    assert (await asked.ask(*ways, turn=turn))[0] == status
    assert not asked.backend.requests


async def test_one_page_asks_at_a_time() -> None:
    asked = Asked("one", "two")
    async for client in asked.client():
        body = {"turn": asked.turn, "ways": [{"mode": "xml"}]}
        answers = await asyncio.gather(*(client.post("/ui/api/ask", json=body) for _ in range(2)))
        assert {answer.status_code for answer in answers} <= {200, 409}
        assert (await client.post("/ui/api/ask", json=body)).status_code == 200
