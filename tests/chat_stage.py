"""A chat of the page over a scripted model and real hosts, and a browser at it, all in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from xmlcall import LocalHost, ToolLoop, render
from xmlcall.agent.asking_person import AskingPerson, asking_person_of_repeats
from xmlcall.agent.rules import Rules
from xmlcall.backends.scripted import Piece, ScriptedBackend
from xmlcall.hosts.base import Host
from xmlcall.proxy.http.access import Guard
from xmlcall.records.audit import AuditFile
from xmlcall.records.store import Store
from xmlcall.turn.attempts import RepairPolicy
from xmlcall.turn_records.builder import Recorder
from xmlcall.types.calls import Message
from xmlcall.ui.api import ShownPage
from xmlcall.ui.app import app_of_page, page_of
from xmlcall.ui.chat import ChatRoom, PageAudit, SharedBackend, routes
from xmlcall.ui.questions import News, OpenQuestions, PageAsker

__all__ = ["SECONDS", "Stage", "call", "staged"]

URL = "http://127.0.0.1:8486"
SECONDS = 10.0


def call(name: str, **arguments: Any) -> str:
    """A call as a model writes it."""
    return render([{"name": name, "arguments": arguments}])


@dataclass
class Stage:
    """What a test acts on.

    Attributes:
        told: what a page that was open from the beginning was told.
    """

    room: ChatRoom
    browser: httpx.AsyncClient
    backend: ScriptedBackend
    recorder: Recorder
    told: list[tuple[str, Any]] = field(default_factory=list)

    async def get(self, path: str, status: int = 200) -> Any:
        answer = await self.browser.get(f"/ui/api/{path}")
        assert answer.status_code == status, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None, status: int = 202) -> Any:
        content = json.dumps(body or {})
        answer = await self.browser.post(f"/ui/api/{path}", content=content, headers={"content-type": "application/json"})
        assert answer.status_code == status, answer.text
        return answer.json()

    async def ask(self, question: str, conversation: str | None = None, **more: Any) -> tuple[str, str]:
        begun = await self.post("chat", {"conversation": conversation, "question": question, **more})
        return begun["conversation"], begun["turn"]

    async def answer(self, answer: str, status: int = 200, **more: Any) -> Any:
        """Answer the question that comes next."""
        question = await self.question()
        return await self.post(f"questions/{question['id']}", {"answer": answer, **more}, status)

    async def question(self, number: int = 1) -> dict[str, Any]:
        """Wait until so many questions are open; give the last."""
        await self.until(lambda: len(self.room.questions.open()) >= number)
        return self.room.questions.open()[-1][1]

    async def over(self, turn: str) -> dict[str, Any]:
        """Wait until a turn is over; give it as the conversation shows it."""
        conversation = turn.rpartition(".")[0]
        await self.until(lambda: conversation not in self.room._turns)
        shown = await self.get(f"chat/{conversation}")
        [found] = [each for each in shown["turns"] if each["id"] == turn]
        assert isinstance(found, dict)
        return found

    async def asked(self, question: str, conversation: str | None = None) -> dict[str, Any]:
        """Ask, and wait until the turn is over; give it."""
        return await self.over((await self.ask(question, conversation))[1])

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not is_so():  # noqa: ASYNC110 (many things are waited for)
                await asyncio.sleep(0.005)

    def sent(self, number: int = -1) -> list[tuple[str, str]]:
        """The conversation that the model was sent, without the tools."""
        return [(message.role, message.content) for message in self.backend.requests[number].messages if message.role != "system"]


@asynccontextmanager
async def staged(
    replies: Iterable[str | Exception | Sequence[Piece]],
    tools: Iterable[Callable[..., Any]] = (),
    *,
    hosts: Sequence[Host] = (),
    path: Path | None = None,
    rules: Rules | None = None,
    patience: float = 600.0,
    is_open: bool = True,
    backend: ScriptedBackend | None = None,
    start: Sequence[Message] = (),
    audit: Path | None = None,
    **options: Any,
) -> AsyncIterator[Stage]:
    """Open a chat; the tools live on a server named `local`."""
    model = backend or ScriptedBackend(list(replies))
    news, recorder = News(), Recorder()
    questions = OpenQuestions(news, patience)
    asker, ruled = PageAsker(questions, "en", recorder.changed), rules or Rules()
    local = [LocalHost(tools, name="local")]
    settings: dict[str, Any] = {"reminder": False, **options}
    loop = ToolLoop(
        SharedBackend(model, news),
        [*local, *hosts],
        policy=AskingPerson(ruled, asker),
        repair=RepairPolicy(on_repeat=asking_person_of_repeats(ruled, asker)),
        audit=PageAudit(AuditFile(audit)) if audit else None,
        **settings,
    )
    with Store(path) as store:
        async with loop, ChatRoom(loop, store, recorder, questions, start=start) as room:
            shown = ShownPage(recorder=recorder, about=dict, url=URL, instance="one", news=room.news.watch, find=room.kept_turn)
            page = page_of(shown, Guard(), routes(room))
            transport = httpx.ASGITransport(app=app_of_page(page))
            async with httpx.AsyncClient(transport=transport, base_url=URL) as browser:
                await browser.get("/ui/", params={"token": page.entry.token})
                stage = Stage(room=room, browser=browser, backend=model, recorder=recorder)
                watching = asyncio.create_task(_watch(news, stage.told)) if is_open else None
                await asyncio.sleep(0)
                try:
                    yield stage
                finally:
                    if watching:
                        watching.cancel()
                        await asyncio.wait({watching})


async def _watch(news: News, told: list[tuple[str, Mapping[str, Any]]]) -> None:
    async for each in news.watch():
        told.append(each)
