"""Saves a conversation as it happens: turns the events of a loop into events and messages of the store.

A conversation has no record before its first question, so a chat without a question leaves nothing in the store. If the program
was killed, the conversation continues from its last event.

A chat's conversation can always be sent to a model: two user messages never follow each other, and every call has a result. The
part of a stopped turn that arrived is kept, because the user has seen it and a tool may have run; a note in place of the model's
answer ends it. A turn in which nothing arrived counts as not asked.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from ..agent.loop import ToolLoop
from ..dialects.write import says
from ..errors import UsageError
from ..prompting.results import result_text
from ..records.audit import AuditFile
from ..records.store import (
    KeptEvent,
    Store,
    call_from_json,
    message_from_json,
    message_to_json,
    new_conversation_id,
    raw_to_json,
    tool_to_json,
    undamaged,
)
from ..turn.attempts import refused_by
from ..turn.events import (
    Answer,
    CallDenied,
    CallFinished,
    CallHeld,
    CallRejected,
    CallStarted,
    CallTask,
    LoopEvent,
    ReplyEnded,
    StepEnded,
)
from ..types.calls import InvalidCall, Message, Speaker, TextContent, Tool, ToolCall, ToolResult


class Keeper:
    """Saves a conversation as it happens; without a store it keeps nothing."""

    def __init__(self, store: Store | None, audit: AuditFile | None) -> None:
        self.store, self.audit = store, audit
        self.is_resumed = self._is_held = False  # resumed: the conversation existed before
        self.id = ""
        self.new()

    def new(self) -> None:
        """Start another conversation with the next question."""
        self._use(new_conversation_id())

    def resume(self, conversation: str) -> None:
        assert self.store is not None
        self.store.hold(conversation)
        self._use(conversation)
        self._is_held = self.is_resumed = True

    def asked(self, messages: Sequence[Message], tools: Iterable[Tool], model: str, how: dict[str, Any]) -> None:
        if self.store is None:
            return
        if not self._is_held:
            self.store.hold(self.id)
            self._is_held = True
        offered = [tool_to_json(tool) for tool in tools]
        sha256 = hashlib.sha256(json.dumps(offered, sort_keys=True).encode()).hexdigest()
        self.store.keep_tools(sha256, offered)
        asked = {"text": messages[-1].content, "at": len(messages) - 1, "tools": sha256, **how}
        self.store.write(self.id, "asked", asked, messages, model=model)

    def note(self, event: LoopEvent) -> None:
        """Save an event, if its kind is kept. The start of a call is saved before the call runs."""
        if self.store is None:
            return
        if isinstance(event, StepEnded):
            self.store.write(self.id, "step", {"turn": event.number}, event.messages)
        elif body := _body(event):
            self.store.write(self.id, *body)

    def keep(self, messages: Sequence[Message], kind: str = "kept", **body: Any) -> None:
        """Save the conversation as it is between two questions."""
        if self.store is not None:
            self.store.write(self.id, kind, body, messages)

    def leave(self) -> None:
        """Let other programs continue the conversation."""
        if self.store is not None and self._is_held:
            self.store.free(self.id)
            self._is_held = False

    def _use(self, conversation: str) -> None:
        self.leave()
        self.id = conversation
        if self.audit is not None:
            self.audit.conversation = conversation


def _body(event: LoopEvent) -> tuple[str, dict[str, Any]] | None:
    """Return the kind and the body of an event that is kept; None for one that is not."""
    match event:
        case ReplyEnded(reply=reply, message=message):
            calls = [_call(call) for call in reply.calls]
            repairs = [repair.code for repair in reply.repairs]
            body = {"turn": event.number, "raw": event.raw, "message": message and message_to_json(message), "calls": calls}
            body |= {"text": reply.text, "reasoning": reply.reasoning, "finish_reason": reply.finish_reason, "repairs": repairs}
            return "reply", body | {"usage": asdict(event.usage)}
        case CallStarted(call=call):
            body = {"id": call.id, "name": call.name, "server": event.host, "tool": event.host_tool, "arguments": call.arguments}
            return "started", body | {"by": event.by, "reason": event.reason}
        case CallTask(call=call, task=task):
            return "task", {"id": call.id, "name": call.name, "task": task}
        case CallFinished(call=call, result=result, failure=failure):
            return "ended", _ended(call, event.outcome, result_text(result)) | ({"failure": failure} if failure else {})
        case CallDenied(call=call, reason=reason, by=by):
            return "ended", _ended(call, "denied", reason) | {"by": by, "server": event.host, "tool": event.host_tool}
        case CallRejected(call=call):
            body = _ended(call, "rejected", " ".join(issue.why for issue in call.issues))
            return "ended", body | {"server": event.host, "tool": event.host_tool}
        case CallHeld(call=call, paths=paths):
            return "ended", _ended(call, "held", ", ".join(paths)) | {"server": event.host, "tool": event.host_tool}
        case Answer(stop_reason=stop_reason, usage=usage):
            return "answer", {"stop_reason": stop_reason, "usage": asdict(usage)}
    return None


def _call(call: ToolCall | InvalidCall) -> dict[str, Any]:
    body: dict[str, Any] = {"id": call.id, "name": call.name, "raw": raw_to_json(call.raw)}
    if isinstance(call, InvalidCall):
        repairs, issues = call.raw.repairs, [asdict(issue) for issue in call.issues]
        return body | {"issues": issues, "repairs": [repair.code for repair in repairs]}
    return body | {"arguments": call.arguments, "repairs": [repair.code for repair in call.repairs]}


def _ended(call: ToolCall | InvalidCall, outcome: str, text: str) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "outcome": outcome, "text": text}


# -- the conversation of a chat, question by question -----------------------------------------------------------------


class Conversation:
    """The messages of a chat, and where each question begins; `note` replaces the model's answer if a turn ended without one."""

    def __init__(self, start: Sequence[Message], note: str) -> None:
        self.messages = list(start)
        self.question = ""  # the last one, whatever its outcome
        self._start, self._note = tuple(start), note
        self._begun: list[tuple[str, int]] = []  # each kept question, and its index
        self._is_kept = False  # whether the last question was kept

    def go_on(self, messages: Sequence[Message]) -> None:
        """Continue earlier messages. They are fixed: none of their questions can be dropped."""
        self.messages = list(messages)

    def as_said(self) -> list[Message]:
        """Return the messages with the user's own words only, without the reminder of the tools after them."""
        said = list(self.messages)
        for question, at in self._begun:
            said[at] = replace(said[at], content=question)
        return said

    def ask(self, question: str) -> list[Message]:
        """Record a question; return the messages to send."""
        self.question, self._is_kept = question, False
        return [*self.messages, Message(role="user", content=question)]

    def end(self, messages: Sequence[Message]) -> bool:
        """End the turn of the last question with the messages of its run; return whether the question is kept."""
        at = len(self.messages)
        if len(messages) <= at + 1:
            return False
        self.messages = [*messages]
        if messages[-1].role != "assistant":
            self.messages.append(Message(role="assistant", content=self._note))
        self._begun.append((self.question, at))
        self._is_kept = True
        return True

    def drop_last(self) -> str:
        """Drop the last question and everything after it; return it, or "" if there is none."""
        if not self._begun:
            return ""
        question, at = self._begun.pop()
        del self.messages[at:]
        self.question, self._is_kept = (self._begun[-1][0], True) if self._begun else ("", False)
        return question

    def take_back(self) -> str:
        """Undo the last question, so that it or another can be asked in its place; return it."""
        question = self.question
        if self._is_kept:
            self.drop_last()
            self.question = question
        return question

    def clear(self) -> None:
        self.messages, self.question = list(self._start), ""
        self._begun, self._is_kept = [], False


def checked_text(text: str, what: str) -> str:
    """Check that a text can be sent to a model, and return it."""
    if not text.strip():
        raise UsageError(f"expected {what}, got an empty text")
    if any("\ud800" <= char <= "\udfff" for char in text):  # how Python marks bytes of an argument that are not UTF-8
        raise UsageError(f"expected {what} in UTF-8, got bytes that are not")
    return text


# -- what a person asks: kept, and put in the place of another question ------------------------------------------------


async def keep_question(keeper: Keeper, loop: ToolLoop, messages: Sequence[Message]) -> Sequence[Tool]:
    """Save a person's question with the offered tools, before the model is asked."""
    mode = (await loop.way()).mode
    is_xml = mode == "xml"
    offered = tuple((await loop.tool_prompt()).catalog)
    how: dict[str, Any] = {"mode": mode, "family": loop.format.family, "lang": loop.format.lang}
    how |= {"dialect": loop.format.dialect} if is_xml else {}
    how |= {"reasoning_open": loop.backend.capabilities.reasoning_open}
    keeper.asked(messages, offered, loop.backend.model, how)
    return offered


def branched(store: Store, conversation: str, turn: int) -> str:
    """Start a conversation from the messages that another had before a turn; raise a `UsageError` if they are not kept."""
    messages = store.messages(conversation)
    asked = [event.body for event in store.events(conversation) if event.kind == "asked"]
    if not 0 < turn <= len(asked):
        raise UsageError(f"conversation {conversation} has no turn {turn}")
    places = _places(asked, messages)
    at, later = places[turn - 1], places[turn:]
    # They are the first of the conversation, unless an earlier question was asked again.
    if at is None or at > len(messages) or any(each is not None and each < at for each in later):
        raise UsageError(f"what was said before turn {turn} of conversation {conversation} is not kept any more")
    return store.branch(conversation, turn, messages[:at])


def _places(asked: Sequence[dict[str, Any]], messages: Sequence[Message]) -> list[int | None]:
    """Return the index of each question; older versions did not save it, so theirs are searched for."""
    places: list[int | None] = []
    for body in asked:
        if not isinstance(at := body.get("at"), int):
            start = 1 + max((each for each in places if each is not None), default=-1)
            found = (place for place in range(start, len(messages)) if says(messages[place], body["text"]))
            at = next(found, None)
        places.append(at)
    return places


# -- what a killed program had begun, and how it continues--------------------------------------------------------------------

_WHOLE: Final = frozenset({"answer", "kept", "recovered"})  # the turn has ended
_MARKS: Final = _WHOLE | {"asked", "step"}  # after these the stored messages are complete


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTask:
    server: str
    tool: str
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    reply: Message | None = None  # in the conversation's form; None if it was not complete, or not kept
    calls: tuple[ToolCall, ...] = ()  # the reply's calls; those that could not be read have no arguments
    ended: Mapping[str, ToolResult | None] = field(default_factory=dict)  # call id -> result; None if it only started
    unknown: tuple[str, ...] = ()
    tasks: Mapping[str, KeptTask] = field(default_factory=dict)  # call id -> the task that its server made of it


def in_flight(events: Sequence[KeptEvent], conversation: str = "") -> InFlight | None:
    """Return what was cut off; None if the last turn had ended."""
    with undamaged(conversation):
        return _in_flight(events)


def _in_flight(events: Sequence[KeptEvent]) -> InFlight | None:
    last = max((place for place, event in enumerate(events) if event.kind in _MARKS), default=-1)
    if last < 0 or events[last].kind in _WHOLE:
        return None
    reply: Message | None = None
    calls: tuple[ToolCall, ...] = ()
    ended: dict[str, ToolResult | None] = {}
    places: dict[str, tuple[str, str]] = {}
    tasks: dict[str, KeptTask] = {}
    for event in events[last + 1 :]:
        body = event.body
        match event.kind:
            case "reply":
                reply = message_from_json(body["message"]) if body["message"] else None
                calls = tuple(map(call_from_json, body["calls"])) if reply else ()
            case "started":
                ended[body["id"]], places[body["id"]] = None, (body["server"], body["tool"])
            case "task":
                server, tool = places[body["id"]]
                tasks[body["id"]] = KeptTask(server=server, tool=tool, task=body["task"])
            case "ended":
                text, outcome = TextContent(text=body["text"]), body["outcome"]
                by: Speaker = "tool" if outcome in ("ok", "error", "failed") else refused_by(body.get("by", ""))
                ended[body["id"]] = ToolResult(content=(text,), is_error=outcome != "ok", call_id=body["id"], by=by)
                tasks.pop(body["id"], None)
    unknown = tuple(".".join(places[id]) for id, result in ended.items() if result is None)
    return InFlight(reply=reply, calls=calls, ended=ended, unknown=unknown, tasks=tasks)


TaskMoment = Literal["task_awaited", "task_unreachable", "task_ended"]
OnTask = Callable[[TaskMoment, str, CallFinished | str], None]
"""Notified of a call that runs as a task of its server: the moment, `server.tool`, and its end or why that is unknown."""


async def recovered(keeper: Keeper, store: Store, loop: ToolLoop, on_task: OnTask) -> tuple[list[Message], InFlight | None]:
    """Return the messages to resume from and the interrupted step; the repaired conversation is saved."""
    messages, cut = store.messages(keeper.id), in_flight(store.events(keeper.id), keeper.id)
    if cut and cut.tasks:
        await _ask_for_tasks(keeper, cut, loop, on_task)
        cut = in_flight(store.events(keeper.id), keeper.id)
    step = cut or InFlight()
    closed = await loop.closed(messages, step.reply, step.calls, step.ended)
    if cut or closed != messages:
        keeper.keep(closed, "recovered", unknown=list(step.unknown))
    return closed, cut


async def _ask_for_tasks(keeper: Keeper, cut: InFlight, loop: ToolLoop, on_task: OnTask) -> None:
    """Ask servers for the results of calls that they run as tasks; each is saved as it comes."""
    for call in cut.calls:
        if (task := cut.tasks.get(call.id)) is None:
            continue
        target = f"{task.server}.{task.tool}"
        on_task("task_awaited", target, "")
        ended, why = await loop.taken_up(call, task.server, task.tool, task.task)
        if ended is None:
            if why:
                on_task("task_unreachable", target, why)
            continue
        keeper.note(ended)
        on_task("task_ended", target, ended)
