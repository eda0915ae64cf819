"""Chats in the page: several conversations with the configured servers, kept like those of the terminal.

A conversation is locked (`Store.hold`) while one of its turns runs, and read again before each turn. So a terminal can continue
it between two turns, and the next turn includes the terminal's messages. A turn that a killed program left open is closed as
`chat --resume` does it. Each conversation runs one turn at a time; turns of several conversations wait for the one model.

Asking a question again does not remove its earlier answer: it starts a branch, which is a conversation of its own.

A turn may end with an answer, because the user stopped it, or because the model server failed. In each case the conversation can
continue, and the turn's record states the reason. Incomplete output is kept, as in the terminal. Each step is saved before the
next one, so if the program is killed, `turn_records.keeping.in_flight` can read what it left.

The page calls this over HTTP (`routes`). Bodies and answers are JSON; access is checked before a request arrives here.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final, Self

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..agent.asking_person import AskingPerson, Stopped
from ..agent.loop import ToolLoop
from ..backends.base import Backend, KeptOpen
from ..errors import UsageError, XmlcallError
from ..prompting.results import result_text, stopped
from ..proxy.formats.contract import ApiError
from ..records.audit import AuditFile
from ..records.store import Store, new_conversation_id
from ..turn.events import Answer, CallFinished, CallStarted, LoopEvent
from ..turn_records.builder import Recorder, TurnBuilder
from ..turn_records.keeping import (
    Conversation,
    Keeper,
    OnTask,
    TaskMoment,
    branched,
    checked_text,
    in_flight,
    keep_question,
    recovered,
)
from ..turn_records.kept import turns_of
from ..turn_records.record import TurnRecord, record_to_json
from ..types.calls import CallNote, Message, Tool
from ..types.completion import Chunk, CompletionRequest
from ..types.events import ReasoningDelta, TextDelta, ToolArgumentDelta
from .api import body_of, guarded, json_answer
from .questions import CURRENT, Misfit, News, OpenQuestions

_TASKS: Final[Mapping[TaskMoment, str]] = {
    "task_awaited": "a server still had a call of the turn before: its result is waited for",
    "task_unreachable": "a server cannot be asked about a call of the turn before",
    "task_ended": "a call of the turn before has ended",
}
_TEXTS: Final = (TextDelta, ReasoningDelta, ToolArgumentDelta)
_ENDED: Final = "left"  # outcome of a turn that a person stopped


class SharedBackend(KeptOpen):
    """One model for all turns: requests run one at a time; each turn hears its own, and pages see what a turn waits for."""

    def __init__(self, backend: Backend, news: News) -> None:
        super().__init__(backend)
        self._news = news
        self._one_at_a_time = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._backend.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._backend.__aexit__(*error)

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Generate a reply, piece by piece (see `Backend.stream`), once it is its turn."""
        turn = CURRENT.get()
        try:
            if turn is not None and self._one_at_a_time.locked():
                self._news.waits(turn.id, "turn")
            async with self._one_at_a_time:
                if turn is not None:
                    turn.prompt(request.messages)
                    self._news.waits(turn.id, "model")
                async with aclosing(self._backend.stream(request)) as chunks:
                    async for chunk in chunks:
                        if turn is not None:
                            self._hear(turn, chunk)
                        yield chunk
        finally:
            if turn is not None:
                self._news.waits_no_more(turn.id)

    def _hear(self, turn: TurnBuilder, chunk: Chunk) -> None:
        if chunk.progress is not None:
            self._news.waits(turn.id, "prompt", read=chunk.progress.read, total=chunk.progress.total)
        elif chunk.text or chunk.reasoning:
            self._news.waits_no_more(turn.id)
            turn.wrote(chunk.text)


class PageAudit:
    """Appends notes of calls to one file, each with the conversation of its turn."""

    def __init__(self, file: AuditFile) -> None:
        self._file = file

    def __call__(self, note: CallNote) -> None:
        turn = CURRENT.get()
        self._file.conversation = turn.id.rpartition(".")[0] if turn else ""
        self._file(note)


@dataclass(slots=True, kw_only=True)
class TurnUnderWay:
    loop: ToolLoop
    keeper: Keeper
    said: Conversation
    question: str
    builder: TurnBuilder
    recorder: Recorder
    goes_on: bool = False
    on_task: OnTask  # notified of calls of an earlier turn that servers still run
    messages: Sequence[Message] = ()
    task: asyncio.Task[None] | None = None
    servers: dict[str, str] = field(default_factory=dict)
    is_settled: bool = False

    async def keep_question(self) -> None:
        """Keep the question before the model is asked; an earlier turn that was cut off is closed first."""
        assert self.keeper.store is not None
        if self.goes_on:
            before, _ = await recovered(self.keeper, self.keeper.store, self.loop, self.on_task)
            self.said.go_on(before or self.said.messages)
        messages = self.said.ask(self.question)
        tools = await keep_question(self.keeper, self.loop, messages)
        self.messages = messages
        self.builder.know(tools=tools, conversation=messages)
        self.recorder.changed(self.builder)

    async def run(self) -> None:
        """Run the turn to its end; only a mistake of this program is raised."""
        CURRENT.set(self.builder)
        outcome, error = "", ""
        try:
            if not self.messages:
                await self.keep_question()
            await self._answered()
        except (asyncio.CancelledError, Stopped):
            outcome = _ENDED
        except XmlcallError as failure:
            outcome, error = "error", str(failure)
        except Exception as mistake:
            error = f"{type(mistake).__name__}: {mistake}"
            raise
        finally:
            self._end(outcome or "error", error)

    def leave(self) -> None:
        """End a turn that was stopped before it began to run; this has no effect on a turn that ran."""
        if not self.is_settled:
            self._end(_ENDED, "")

    async def _answered(self) -> None:
        async with aclosing(self.loop.run(self.messages, on_stop=self.said.end)) as events:
            async for event in events:
                self.keeper.note(event)
                self._note(event)
                if isinstance(event, Answer):
                    self.said.end(event.messages)

    def _note(self, event: LoopEvent) -> None:
        text = event.text if isinstance(event, _TEXTS) else ""
        if isinstance(event, CallStarted):
            self.servers[event.call.id] = event.host
        elif isinstance(event, CallFinished):
            self.servers.pop(event.call.id, None)
            text = result_text(event.result)
        self.builder.note(event)
        self.recorder.grew(self.builder, len(text))
        self.recorder.changed(self.builder)

    def _end(self, outcome: str, error: str) -> None:
        """Keep the conversation as it is now, and let others continue it."""
        self.is_settled = True
        try:
            if self.messages:
                self.keeper.keep(self.said.messages, **({"error": error} if error else {}))
        except XmlcallError as failure:
            outcome, error = "error", f"{error} {failure}".strip()
        finally:
            self.keeper.leave()
            if not self.builder.is_over or error:
                self.builder.end(outcome, error=error)
            self.recorder.grew(self.builder, sum(len(each.content) for each in self.messages))
            self.recorder.done(self.builder)


class ChatRoom:
    """The chats of a page; `async with` stops running turns at the end. The loop asks by a `PageAsker` and a `SharedBackend`."""

    def __init__(
        self, loop: ToolLoop, store: Store, recorder: Recorder, questions: OpenQuestions, *, start: Sequence[Message] = ()
    ) -> None:
        self.loop, self.store, self.recorder = loop, store, recorder
        self.news, self.questions = questions.news, questions
        self._start = tuple(start)
        self._turns: dict[str, TurnUnderWay | None] = {}  # by conversation; only those with a running turn
        self.news.opening, questions.turn_on = questions.open, self.turn_on
        self._servers_sent: list[dict[str, Any]] = []

    async def __aenter__(self) -> Self:
        self.tell_news()
        return self

    async def __aexit__(self, *error: Any) -> None:
        tasks = [turn.task for turn in self._turns.values() if turn and turn.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.news.close()

    async def ask(self, conversation: str | None, question: str, instead_of: str = "") -> tuple[str, str]:
        """Start the turn of a question; one asked `instead_of` a turn starts a branch with the conversation before it."""
        checked_text(question, "a question")
        if conversation is not None:
            conversation = self._known(conversation)
        if instead_of:
            conversation = self._branch(conversation, instead_of)
        is_new, id = conversation is None, conversation or new_conversation_id()
        if id in self._turns:
            raise ApiError(
                "a turn of this conversation is still running: wait for its end, or stop it", status=409, code="turn_running"
            )
        self._turns[id] = None
        keeper = Keeper(self.store, None)
        try:
            turn = await self._begun(keeper, id, question, is_new=is_new)
        except BaseException:
            del self._turns[id]
            keeper.leave()
            raise
        self._turns[id] = turn
        turn.task = asyncio.create_task(turn.run(), name=f"turn {turn.builder.id}")
        turn.task.add_done_callback(lambda task: self._over(id))
        return id, turn.builder.id

    def stop(self, conversation: str) -> None:
        """Stop the turn of a conversation; a server that runs a call of it is notified."""
        turn = self._turns.get(conversation)
        if turn is None or turn.task is None:
            raise ApiError("nothing is running in this conversation", status=409, code="nothing_running")
        turn.task.cancel()

    async def _begun(self, keeper: Keeper, id: str, question: str, *, is_new: bool) -> TurnUnderWay:
        """Lock the conversation and keep the question; if a server must be asked for a result first, the turn keeps it later."""
        try:
            keeper.resume(id)
        except UsageError as held:  # another program has it
            raise ApiError(str(held), status=409, code="held_elsewhere") from held
        events = [] if is_new else self.store.events(id)
        form, is_xml = self.loop.format, self.loop.mode in ("xml", "auto")  # a mode is left open only where no tools are offered
        builder = self.recorder.begin(
            id=f"{id}.{1 + sum(event.kind == 'asked' for event in events)}",
            source="chat",
            model=self.loop.backend.model,
            way="xml" if is_xml else "plain" if self.loop.mode == "none" else "native",
            dialect=form.dialect if is_xml else "",
            lang=form.lang,
            family=form.family if is_xml else "",
            question=question,
        )
        turn = TurnUnderWay(
            loop=self.loop,
            keeper=keeper,
            said=Conversation(self._start, stopped("answer", form)),
            question=question,
            builder=builder,
            recorder=self.recorder,
            goes_on=not is_new,
            on_task=self._tell_task,
        )
        if not ((cut := in_flight(events, keeper.id)) and cut.tasks):
            try:
                await turn.keep_question()
            except BaseException as error:
                builder.end("error", error=str(error))
                self.recorder.done(builder)
                raise
        self.tell_news()
        return turn

    def _tell_task(self, moment: TaskMoment, target: str, what: CallFinished | str) -> None:
        outcome = what if isinstance(what, str) else what.failure or result_text(what.result)
        self.news.notice(f"{_TASKS[moment]}: {target}{f': {outcome[:200]}' if outcome else ''}")

    def _branch(self, conversation: str | None, instead_of: str) -> str:
        parent, _, number = instead_of.rpartition(".")
        if not (number.isdecimal() and number.isascii() and len(number) < 7) or conversation not in (None, parent):
            raise ApiError(f"instead_of: expected the id of a turn of this conversation, got {instead_of[:80]!r}", status=422)
        return branched(self.store, self._known(parent), int(number))

    def _known(self, conversation: str) -> str:
        try:
            found = self.store.find(conversation).id
        except UsageError:
            found = ""
        if found != conversation:
            raise ApiError(f"there is no conversation {conversation[:80]!r}", status=404, code="no_conversation")
        return found

    def _over(self, conversation: str) -> None:
        if (turn := self._turns.pop(conversation, None)) is not None:
            turn.leave()
        self.tell_news()

    def shown(self, conversation: str) -> dict[str, Any]:
        """Return a conversation with its turns, its branches and the questions that are open in it, as JSON."""
        id = self._known(conversation)
        found, parent, turn = self.store.find(id), self.store.branch_of(id), self._turns.get(id)
        about = asdict(found) | {
            "branch_of": {"id": parent.parent, "at": parent.turn} if parent else None,
            "turn": turn.builder.id if turn else None,
        }
        branches = [{"id": each.id, "at": each.turn, "title": each.title} for each in self.store.branches(id)]
        questions = [body for _, body in self.questions.open(id)]
        turns = [record_to_json(each) for each in self.turns_of(id)]
        return {"conversation": about, "turns": turns, "branches": branches, "questions": questions}

    def turns_of(self, conversation: str) -> list[TurnRecord]:
        """Return the turns of a conversation: as this program recorded them if it ran them, else as they are kept."""
        live = ((kept, self.recorder.find(kept.id)) for kept in turns_of(self.store, conversation))
        return [builder.record() if builder else kept for kept, builder in live]

    def kept_turn(self, turn: str) -> TurnRecord | None:
        """Return a kept turn; None if no turn has this id."""
        conversation = turn.rpartition(".")[0]
        try:
            found = turns_of(self.store, conversation) if conversation else []
        except UsageError:
            return None
        return next((each for each in found if each.id == turn), None)

    def servers(self) -> list[dict[str, Any]]:
        """Return the servers with their tools, as JSON; those that are off, too."""
        router, policy = self.loop.router, self.loop.policy
        asking = policy if isinstance(policy, AskingPerson) else None
        always = asking.always_allowed() if asking else ()
        tools: dict[str, list[dict[str, Any]]] = {}
        for host, tool, is_on in router.all_tools():
            is_asked = not (asking and asking.spares(host, tool.name))
            shown = _tool(host, tool) | {"is_on": is_on, "is_asked": is_asked, "is_always_allowed": (host, tool.name) in always}
            tools.setdefault(host, []).append(shown)
        return [
            {
                "name": state.name,
                "is_on": state.kind != "off",
                "state": state.kind,
                "problem": state.problem,
                "tools": tools.get(state.name, []),
            }
            for state in router.states()
        ]

    async def switch(self, name: str, *, on: bool, is_tool: bool = False) -> list[dict[str, Any]]:
        """Offer the tools of a server, or one tool, or leave them out, from the next reply on."""
        router = self.loop.router
        if is_tool:
            router.switch_tool(*self._place(name), on=on)
        else:
            router.switch(name, on=on)
        await self.loop.catalog()
        self.tell_news()
        return self.servers()

    def take_back(self, name: str) -> list[dict[str, Any]]:
        """Ask about a tool again that the user always allowed."""
        place, policy = self._place(name), self.loop.policy
        if isinstance(policy, AskingPerson):
            policy.take_back(*place)
        self.tell_news()
        return self.servers()

    def _place(self, name: str) -> tuple[str, str]:
        for host, tool, _ in self.loop.router.all_tools():
            if f"{host}.{tool.name}" == name:
                return host, tool.name
        raise UsageError(f"expected a tool as server.tool, got {name[:80]!r}")

    def turn_on(self, server: str) -> str:
        """Return the id of the turn that has a call running on a server; "" if none has, or several have."""
        found = [turn.builder.id for turn in self._turns.values() if turn and server in turn.servers.values()]
        return found[0] if len(found) == 1 else ""

    def tell_news(self) -> None:
        for notice in self.loop.router.news():
            self.news.notice(notice)
        if (servers := self.servers()) != self._servers_sent:
            self._servers_sent = servers
            self.news.tell("servers", servers)


def _tool(host: str, tool: Tool) -> dict[str, Any]:
    hints = tool.annotations or {}
    title = tool.title or hints.get("title")
    return {
        "name": f"{host}.{tool.name}",
        "title": title if isinstance(title, str) else "",
        "description": tool.description,
        "destructive": hints.get("destructiveHint") is True,
    }


def routes(room: ChatRoom) -> list[Route]:
    answers: tuple[tuple[str, str, Callable[[ChatRoom, Request], Awaitable[Response]]], ...] = (
        ("POST", "chat", _on_ask),
        ("GET", "chat/{id}", _on_shown),
        ("POST", "chat/{id}/stop", _on_stop),
        ("POST", "questions/{id}", _on_answer),
        ("POST", "servers/{name:path}", partial(_on_switch, is_tool=False)),
        ("POST", "tools/{name:path}", partial(_on_switch, is_tool=True)),
        ("POST", "take_back/{name:path}", _on_take_back),
    )
    return [Route(f"/api/{path}", guarded(partial(answer, room)), methods=[method]) for method, path, answer in answers]


async def _on_ask(room: ChatRoom, request: Request) -> Response:
    body = await body_of(request)
    conversation = _text(body, "conversation") or None
    id, turn = await room.ask(conversation, _text(body, "question"), _text(body, "instead_of"))
    return json_answer({"conversation": id, "turn": turn}, 202)


async def _on_stop(room: ChatRoom, request: Request) -> Response:
    room.stop(request.path_params["id"])
    return json_answer({}, 202)


async def _on_shown(room: ChatRoom, request: Request) -> Response:
    return json_answer(room.shown(request.path_params["id"]))


async def _on_answer(room: ChatRoom, request: Request) -> Response:
    body = await body_of(request)
    try:
        room.questions.answer(request.path_params["id"], body)
    except Misfit as misfit:
        return json_answer({"error": {"message": str(misfit)}, "problems": list(misfit.problems)}, 422)
    return json_answer({})


async def _on_switch(room: ChatRoom, request: Request, *, is_tool: bool) -> Response:
    is_on = (await body_of(request)).get("is_on")
    if not isinstance(is_on, bool):
        raise ApiError("is_on: expected true or false", status=422)
    return json_answer(await room.switch(request.path_params["name"], on=is_on, is_tool=is_tool))


async def _on_take_back(room: ChatRoom, request: Request) -> Response:
    return json_answer(room.take_back(request.path_params["name"]))


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise ApiError(f"{name}: expected a text", status=422)
    return value or ""
