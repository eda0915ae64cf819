"""Saves a conversation as it happens: turns the events of a loop into events and messages of the store.

A conversation has no record before its first question, so a chat without a question leaves nothing in the store.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ..agent.loop import ToolLoop
from ..dialects.replies import says
from ..errors import UsageError
from ..prompting.results import result_text
from ..records.as_json import message_to_json, raw_to_json, tool_to_json
from ..records.audit import AuditFile
from ..records.store import Store, new_id
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
from ..types.calls import InvalidCall, Message, Tool, ToolCall

__all__ = ["Keeper", "branched", "keep_question"]


class Keeper:
    """Saves a conversation as it happens; without a store it keeps nothing.

    Attributes:
        id: The id of the conversation.
        is_resumed: Whether the conversation existed before.
    """

    def __init__(self, store: Store | None, audit: AuditFile | None) -> None:
        self.store, self.audit = store, audit
        self.is_resumed = self._is_held = False
        self.id = ""
        self.new()

    def new(self) -> None:
        """Start another conversation with the next question."""
        self._use(new_id())

    def resume(self, conversation: str) -> None:
        """Continue a conversation."""
        assert self.store is not None
        self.store.hold(conversation)
        self._use(conversation)
        self._is_held = self.is_resumed = True

    def asked(self, messages: Sequence[Message], tools: Iterable[Tool], model: str, how: dict[str, Any]) -> None:
        """Save a question."""
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
            told = {"turn": event.number, "raw": event.raw, "message": message and message_to_json(message), "calls": calls}
            told |= {"text": reply.text, "reasoning": reply.reasoning, "finish_reason": reply.finish_reason, "repairs": repairs}
            return "reply", told | {"usage": asdict(event.usage)}
        case CallStarted(call=call):
            told = {"id": call.id, "name": call.name, "server": event.host, "tool": event.host_tool, "arguments": call.arguments}
            return "started", told | {"by": event.by, "reason": event.reason}
        case CallTask(call=call, task=task):
            return "task", {"id": call.id, "name": call.name, "task": task}
        case CallFinished(call=call, result=result, failure=failure):
            outcome = "failed" if failure else "error" if result.is_error else "ok"
            return "ended", _ended(call, outcome, result_text(result)) | ({"failure": failure} if failure else {})
        case CallDenied(call=call, reason=reason, by=by):
            return "ended", _ended(call, "denied", reason) | {"by": by}
        case CallRejected(call=call):
            return "ended", _ended(call, "rejected", " ".join(issue.message for issue in call.issues))
        case CallHeld(call=call, paths=paths):
            return "ended", _ended(call, "held", ", ".join(paths))
        case Answer(stop_reason=stop_reason, usage=usage):
            return "answer", {"stop_reason": stop_reason, "usage": asdict(usage)}
    return None


def _call(call: ToolCall | InvalidCall) -> dict[str, Any]:
    told: dict[str, Any] = {"id": call.id, "name": call.name, "raw": raw_to_json(call.raw)}
    if isinstance(call, InvalidCall):
        repairs, issues = call.raw.repairs, [asdict(issue) for issue in call.issues]
        return told | {"issues": issues, "repairs": [repair.code for repair in repairs]}
    return told | {"arguments": call.arguments, "repairs": [repair.code for repair in call.repairs]}


def _ended(call: ToolCall | InvalidCall, outcome: str, text: str) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "outcome": outcome, "text": text}


# -- what a person asks: kept, and put where another question stood ----------------------------------------------------


async def keep_question(keeper: Keeper, loop: ToolLoop, messages: Sequence[Message]) -> Sequence[Tool]:
    """Save a person's question with the offered tools, before the model is asked."""
    is_xml = loop.mode == "xml"
    offered = tuple((await loop.tool_prompt()).catalog if is_xml else await loop.catalog())
    how: dict[str, Any] = {"mode": loop.mode, "family": loop.format.family, "lang": loop.format.lang}
    how |= {"dialect": loop.format.dialect} if is_xml else {}
    how |= {"reasoning_open": loop.backend.capabilities.reasoning_open}
    keeper.asked(messages, offered, loop.backend.model, how)
    return offered


def branched(store: Store, conversation: str, turn: int) -> str:
    """Start a conversation from the messages that another had before one of its turns.

    Raises:
        UsageError: the turn does not exist, or the messages before it are no longer kept.
    """
    return store.branch(conversation, turn, _before(store, conversation, turn))


def _before(store: Store, conversation: str, turn: int) -> list[Message]:
    """Return the messages before a turn: the first of the conversation, unless an earlier question was asked again."""
    messages = store.messages(conversation)
    asked = [event.body for event in store.events(conversation) if event.kind == "asked"]
    if not 0 < turn <= len(asked):
        raise UsageError(f"conversation {conversation} has no turn {turn}")
    places = _places(asked, messages)
    at, later = places[turn - 1], places[turn:]
    if at is None or at > len(messages) or any(each is not None and each < at for each in later):
        raise UsageError(f"what was said before turn {turn} of conversation {conversation} is not kept any more")
    return messages[:at]


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
