"""The events that a chat sends to its open pages, and the questions that it asks the user there.

Each page has a queue of events. If a page reads so slowly that its queue is full, it has to reconnect, and then receives all open
questions again. So no question depends on a page that was open when the question was asked.

A question belongs to the program, not to a page: every page receives it, the first answer counts, and a second answer is rejected
as too late. A question stays open while any page is open; once no page has been open for `patience`, it ends as `late`.

`agent.asking_person` decides what must be asked before a call runs and what an answer means, as in the terminal. This module
turns questions into JSON, and the page's replies into answers or into a sentence that explains why a reply is invalid. All text
in a question comes from a model or a server, so the page shows it as plain text.

Servers ask the user to fill in a form, to visit an address, or to allow a completion (MCP elicitation and sampling). The page
names the server that asks. An address is shown in full and never opened automatically. A completion is shown before the model is
asked and again before the server gets it. An unanswered request is cancelled, and a line in the page reports it.
"""

import asyncio
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any, Final, get_args

from ..agent.asking_person import Choice, PersonAnswer, Question, read_arguments
from ..agent.policy import Proposal
from ..agent.rules import Rule, Ruling
from ..agent.sampling import completed
from ..backends.base import Backend
from ..errors import BackendError
from ..hosts.mcp.server_requests import (
    ElicitAnswer,
    Field,
    FormRequest,
    SampleReply,
    SampleRequest,
    UrlRequest,
    fields,
    problems,
    with_defaults,
)
from ..proxy.formats.contract import ApiError
from ..records.store import tool_to_json
from ..turn_records.builder import TurnBuilder
from ..turn_records.record import CallRecord
from ..types.calls import MISSING
from .api import Told

_PATIENCE: Final = 600.0  # seconds without an open page after which questions end as `late`
_REMEMBERED: Final = 1000  # answered questions that are remembered
_SHORTEST: Final = 0.05  # seconds between two checks, at least
CURRENT: ContextVar[TurnBuilder | None] = ContextVar("the turn under way", default=None)
"""The turn that a task belongs to, because one loop serves all conversations."""
_LONGEST_REASON: Final = 2000
_CHOICES: Final[tuple[Choice, ...]] = tuple(choice for choice in get_args(Choice) if choice != "late")
_SIGNS: Final = {"+": "added", "-": "removed", " ": "same"}
_DECLINED: Final = ElicitAnswer(action="decline")
_CANCELLED: Final = ElicitAnswer(action="cancel")
_MOST: Final = 1000  # unread events of a page
_NOTICES: Final = 20  # earlier notices that a new page gets

Given = Mapping[str, Any]  # what a page sends as an answer


class News:
    """Sends events to the pages that are open."""

    def __init__(self) -> None:
        self.opening: Callable[[], Sequence[Told]] = tuple  # returns the events that a page gets first
        self._pages: set[asyncio.Queue[Told | None]] = set()
        self._notices: list[str] = []
        self._waiting: dict[str, tuple[float, dict[str, Any]]] = {}  # turn -> since when it waits, and for what
        self._last_left = time.monotonic()
        self._is_closed = False

    @property
    def seconds_alone(self) -> float:
        """For how long no page has been open; 0 while one is."""
        return 0.0 if self._pages else time.monotonic() - self._last_left

    def tell(self, name: str, data: Any) -> None:
        for page in tuple(self._pages):
            if page.qsize() >= _MOST:
                self._leave(page)
                page.get_nowait()
                page.put_nowait(None)
            else:
                page.put_nowait((name, data))

    def notice(self, text: str) -> None:
        """Send a line to all pages; the latest lines also go to pages that open later."""
        self._notices = [*self._notices[1 - _NOTICES :], text]
        self.tell("notice", {"text": text})

    def waits(self, turn: str, what: str, **more: int) -> None:
        """Report to pages, also later ones, what a turn waits for: another `turn`, the `model`, or the end of the `prompt`."""
        since, _ = self._waiting.get(turn, (time.monotonic(), None))
        self._waiting[turn] = since, {"turn": turn, "for": what, **more}
        self.tell("waiting", self._waited(turn))

    def waits_no_more(self, turn: str) -> None:
        """Note that a turn no longer waits; pages learn that from its next event."""
        self._waiting.pop(turn, None)

    def _waited(self, turn: str) -> dict[str, Any]:
        since, what = self._waiting[turn]
        return what | {"seconds": time.monotonic() - since}

    async def watch(self) -> AsyncGenerator[Told]:
        """Yield the events for one page, which counts as open from the first `anext` on."""
        if self._is_closed:
            return
        page: asyncio.Queue[Told | None] = asyncio.Queue()
        self._pages.add(page)
        try:
            waiting = [("waiting", self._waited(turn)) for turn in self._waiting]
            for event in (*self.opening(), *(("notice", {"text": text}) for text in self._notices), *waiting):
                yield event
            while (next_event := await page.get()) is not None:
                yield next_event
        finally:
            self._leave(page)

    def close(self) -> None:
        self._is_closed = True
        for page in tuple(self._pages):
            page.put_nowait(None)

    def _leave(self, page: asyncio.Queue[Told | None]) -> None:
        if page in self._pages:
            self._pages.discard(page)
            self._last_left = time.monotonic()


class Misfit(Exception):
    """An answer that does not fit its question."""

    def __init__(self, *problems: str) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


@dataclass(slots=True, kw_only=True)
class _Open:
    event: str
    body: dict[str, Any]
    read: Callable[[Given], Any]
    answer: asyncio.Future[Any]


class OpenQuestions:
    def __init__(self, news: News, patience: float = _PATIENCE) -> None:
        self.news, self._patience = news, patience
        self.turn_on: Callable[[str], str] = lambda server: ""  # returns the id of the turn that uses a server, or ""
        self._open: dict[str, _Open] = {}
        self._over: OrderedDict[str, None] = OrderedDict()

    async def ask(self, event: str, body: Mapping[str, Any], read: Callable[[Given], Any], late: Any) -> Any:
        id = f"q_{secrets.token_hex(8)}"
        loop = asyncio.get_running_loop()
        asked = loop.time()
        question = _Open(event=event, body={"id": id, **body}, read=read, answer=loop.create_future())
        self._open[id] = question
        self.news.tell(event, question.body)
        try:
            while not question.answer.done():
                left = self._patience - min(self.news.seconds_alone, loop.time() - asked)
                if left <= 0:
                    self._end(id, "late")
                    return late
                await asyncio.wait({question.answer}, timeout=max(left, _SHORTEST))
            return question.answer.result()
        finally:
            self._end(id, "gone")

    def answer(self, id: str, given: Given) -> None:
        if id in self._over:
            raise ApiError("this question has its answer", status=409, code="already_answered")
        if (question := self._open.get(id)) is None:
            raise ApiError("there is no such question any more", status=404, code="no_question")
        question.answer.set_result(question.read(given))
        self._end(id, str(given.get("answer")))

    def open(self, conversation: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Return the questions that are open, each with the name of its event."""
        found = [(each.event, each.body) for each in self._open.values()]
        return [each for each in found if conversation is None or each[1]["turn"].rpartition(".")[0] == conversation]

    def _end(self, id: str, answer: str) -> None:
        if self._open.pop(id, None) is None:
            return
        self._over[id] = None
        while len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)
        self.news.tell("answered", {"id": id, "answer": answer})


class PageAsker:
    def __init__(self, questions: OpenQuestions, lang: str, changed: Callable[[TurnBuilder], None]) -> None:
        self._questions, self.lang, self._changed = questions, lang, changed

    def is_there(self) -> bool:
        """Return True, because a page may be opened at any time."""
        return True

    async def ask(self, question: Question) -> PersonAnswer:
        turn, proposal = CURRENT.get(), question.proposal
        if turn is not None:
            turn.waiting(proposal.call.id)
            self._changed(turn)
        head, late = {"turn": turn.id if turn else "", "kind": "call"}, PersonAnswer(choice="late")
        body = head | _shown(question, _call(turn, proposal)) | await _changes(question)
        answer: PersonAnswer = await self._questions.ask("question", body, lambda given: _read(given, proposal), late)
        return answer

    def tell_denied(self, proposal: Proposal, rule: Rule) -> None:
        """Do nothing, because the record of the call has the rule."""

    def tell_nobody(self, proposal: Proposal, ruling: Ruling) -> None:
        """Do nothing, because this never happens."""


def _shown(question: Question, call: CallRecord) -> dict[str, Any]:
    proposal, ruling = question.proposal, question.ruling
    return {
        "call": asdict(call),
        "target": proposal.target,
        "server": proposal.host,
        "tool": tool_to_json(proposal.tool),
        "foreign": dict(ruling.foreign),
        "repairs": list(ruling.repairs),
        "unsaid": list(ruling.unsaid),
        "definition_before": question.approved,
        "definition_now": question.definition,
        "times_in_a_row": proposal.times_in_a_row,
    }


async def _changes(question: Question) -> dict[str, Any]:
    rows = await question.changes()
    kinds = (("gap" if row.startswith("@@") else _SIGNS.get(row[:1], "gap"), row) for row in rows)
    return {"changes": [{"kind": kind, "text": row if kind == "gap" else row[1:]} for kind, row in kinds]}


def _call(turn: TurnBuilder | None, proposal: Proposal) -> CallRecord:
    """Return the record of a call, with its place in the reply and where its values came from, unless it was changed."""
    call = proposal.call
    replies = turn.record().replies if turn else ()
    records = (each for reply in reversed(replies) for each in reply.calls if each.id == call.id)
    found = (each for each in records if each.arguments == dict(call.arguments))
    own = CallRecord(id=call.id, index=call.raw.index, name=call.name, text=call.raw.text, arguments=dict(call.arguments))
    return next(found, own)


def _read(given: Given, proposal: Proposal) -> PersonAnswer:
    answer, reason = given.get("answer"), given.get("reason") or ""
    choice = next((each for each in _CHOICES if each == answer), None)
    if choice is None or not isinstance(reason, str):
        raise Misfit(f"answer: expected one of {', '.join(_CHOICES)}, and a reason as text, got {json.dumps(answer)[:80]}")
    if choice != "edit":
        return PersonAnswer(choice=choice, reason=reason.strip()[:_LONGEST_REASON] if choice == "no" else "")
    arguments, problem = read_arguments(json.dumps(given.get("arguments")), proposal.tool)
    if problem:
        raise Misfit(problem)
    return PersonAnswer(choice="edit", arguments=arguments)


@dataclass(frozen=True, slots=True)
class ServerRequests:
    """Asks the person what servers want while a call runs."""

    questions: OpenQuestions
    backend: Callable[[], Backend]  # returns the model that completes for a server
    max_tokens: int | None = None  # the most that a completion may have; None for what the server asks for
    is_asked: bool = True  # whether a completion is shown before the model is asked, and again before the server gets it

    async def elicit(self, request: FormRequest | UrlRequest) -> ElicitAnswer:
        """Have the person fill in a form, or visit an address."""
        if isinstance(request, UrlRequest):
            body = _address(request)
        else:
            body = {"kind": "form", "message": request.message, "fields": [_field(each) for each in fields(request.schema)]}

        def read(given: Given) -> ElicitAnswer:
            if (step := _step(given)) != "yes":
                return _DECLINED if step == "no" else _CANCELLED
            return ElicitAnswer(action="accept") if isinstance(request, UrlRequest) else _filled_in(request, given)

        answer: ElicitAnswer = await self._ask(request.server, body, read, _CANCELLED)
        return answer

    async def sign_in(self, server: str, url: str) -> bool:
        """Show the address of a sign-in, and say whether the person agreed to go there."""
        return await self._agreed(server, _address(UrlRequest(server=server, message="", url=url)))

    async def sample(self, request: SampleRequest) -> SampleReply | None:
        """Ask, have the model complete, and ask again; None where the person refuses or the model fails."""
        limit = min(request.max_tokens, self.max_tokens or request.max_tokens)
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        body = {"kind": "completion", "messages": messages, "limit": limit}
        if self.is_asked and not await self._agreed(request.server, body):
            return None
        try:
            reply = await completed(self.backend(), request, limit)
        except BackendError as error:
            self.questions.news.notice(f"{request.server}: the completion that it asked for failed: {error}")
            return None
        is_allowed = not self.is_asked or await self._agreed(request.server, {"kind": "reply", "text": reply.text})
        return reply if is_allowed else None

    async def _agreed(self, server: str, body: Mapping[str, Any]) -> bool:
        return bool(await self._ask(server, body, lambda given: _step(given) == "yes", late=False))

    async def _ask(self, server: str, body: Mapping[str, Any], read: Callable[[Given], Any], late: Any) -> Any:
        data = {"turn": self.questions.turn_on(server), "server": server, **body}
        return await self.questions.ask("request", data, read, late)


def _address(request: UrlRequest) -> dict[str, Any]:
    return {"kind": "address", "message": request.message, "url": request.url, "host": request.spelled_host}


def _step(given: Given) -> str:
    answer = given.get("answer")
    if answer not in ("yes", "no", "stop"):
        raise Misfit("answer: expected yes, no or stop")
    return str(answer)


def _filled_in(request: FormRequest, given: Given) -> ElicitAnswer:
    values = given.get("arguments")
    if not isinstance(values, dict):
        raise Misfit("arguments: expected an object with a value for each field")
    content = with_defaults(request.schema, values)
    if wrong := problems(request.schema, content):
        raise Misfit(*wrong)
    return ElicitAnswer(action="accept", content=content)


def _field(field: Field) -> dict[str, Any]:
    data = {name: getattr(field, name) for name in ("name", "kind", "title", "description", "is_required")}
    default = None if field.default is MISSING else field.default
    return data | {"default": default, "options": [list(option) for option in field.options]}
