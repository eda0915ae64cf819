"""What `run` and `chat` keep: the conversation, saved as it happens, and the audit of its calls.

A conversation has no record before its first question, so that a chat in which nothing is asked leaves nothing behind.
"""

import argparse
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ..agent.events import (
    Answer,
    CallDenied,
    CallFinished,
    CallHeld,
    CallRejected,
    CallStarted,
    CallTask,
    LoopEvent,
    StepEnded,
    TurnEnded,
)
from ..errors import UsageError
from ..prompting.results import result_text
from ..records.as_json import message_to_json, raw_to_json, tool_to_json
from ..records.audit import AuditFile
from ..records.folder import private_folder
from ..records.store import Store, new_id
from ..types.calls import InvalidCall, Message, Tool, ToolCall
from .display import Display
from .lines import LineReader, is_interactive
from .plain import visible

__all__ = ["Keeper", "add_record_options", "audit_path", "chosen", "kept", "store_path"]

_CHOICES: Final = 10  # conversations to choose from


def store_path() -> Path:
    """Return where conversations are, in a folder that is there."""
    return private_folder() / "conversations.db"


def audit_path() -> Path:
    """Return where the audit is, in a folder that is there."""
    return private_folder() / "audit.jsonl"


def add_record_options(parser: argparse.ArgumentParser, *, resumes: bool = False) -> None:
    """Declare what is kept, and with what a conversation goes on.

    Args:
        parser: of the command.
        resumes: whether it goes on with conversations.
    """
    records = parser.add_argument_group("records")
    which = records.add_mutually_exclusive_group()
    which.add_argument(
        "--no-record", action="store_true", help="keep nothing of the conversation and its calls (see `xmlcall log`)"
    )
    if resumes:
        which.add_argument(
            "--resume",
            nargs="?",
            const="",
            metavar="ID",
            help="go on with a conversation of `xmlcall log list`; without ID choose one (without a terminal: the newest)",
        )
        which.add_argument("--continue", dest="continues", action="store_true", help="go on with the newest conversation")
    records.add_argument(
        "--audit",
        metavar="FILE",
        help="append a line for each call, before it runs and after, to this file (default: audit.jsonl in the folder of "
        "records; --no-record has none)",
    )


class Keeper:
    """Saves a conversation as it happens; without a store it keeps nothing.

    Args:
        store: of conversations; None to keep nothing.
        audit: of calls; None for none.

    Attributes:
        id: of the conversation.
        is_resumed: whether it was there before.
    """

    def __init__(self, store: Store | None, audit: AuditFile | None) -> None:
        self.store, self.audit = store, audit
        self.is_resumed = self._is_held = False
        self.id = ""
        self.new()

    def new(self) -> None:
        """Begin another conversation, with the next question."""
        self._use(new_id())

    def resume(self, conversation: str) -> None:
        """Go on with a conversation.

        Raises:
            UsageError: another program does so just now.
        """
        assert self.store is not None
        self.store.hold(conversation)
        self._use(conversation)
        self._is_held = self.is_resumed = True

    def asked(self, messages: Sequence[Message], tools: Iterable[Tool], model: str, how: dict[str, Any]) -> None:
        """Save a question.

        Args:
            messages: the conversation, the question last.
            tools: on offer.
            model: that is asked.
            how: replies are read, for `xmlcall log replay`.
        """
        if self.store is None:
            return
        if not self._is_held:
            self.store.hold(self.id)
            self._is_held = True
        offered = [tool_to_json(tool) for tool in tools]
        sha256 = hashlib.sha256(json.dumps(offered, sort_keys=True).encode()).hexdigest()
        self.store.keep_tools(sha256, offered)
        self.store.write(self.id, "asked", {"text": messages[-1].content, "tools": sha256, **how}, messages, model=model)

    def note(self, event: LoopEvent) -> None:
        """Save what happened, if it is kept; a call that starts is saved before it runs."""
        if self.store is None:
            return
        if isinstance(event, StepEnded):
            self.store.write(self.id, "step", {"turn": event.turn}, event.messages)
        elif body := _body(event):
            self.store.write(self.id, *body)

    def keep(self, messages: Sequence[Message], kind: str = "kept", **body: Any) -> None:
        """Save the conversation as it is between two questions.

        Args:
            messages: all of them.
            kind: of the event.
            body: of the event.
        """
        if self.store is not None:
            self.store.write(self.id, kind, body, messages)

    def _use(self, conversation: str) -> None:
        if self.store is not None and self._is_held:
            self.store.free(self.id)
        self.id, self._is_held = conversation, False
        if self.audit is not None:
            self.audit.conversation = conversation


@contextmanager
def kept(options: argparse.Namespace) -> Iterator[Keeper]:
    """Open what a command keeps.

    Args:
        options: from `add_record_options`.

    Raises:
        XmlcallError: it cannot be written.
    """
    with ExitStack() as stack:
        store = None if options.no_record else stack.enter_context(Store(store_path()))
        path = options.audit or (None if options.no_record else audit_path())
        yield Keeper(store, AuditFile(path) if path else None)


async def chosen(keeper: Keeper, options: argparse.Namespace, display: Display) -> None:
    """Take the conversation that is to be gone on with, if one is; the person is asked where they named none.

    Args:
        keeper: with a store.
        options: from `add_record_options`.
        display: where to ask.

    Raises:
        UsageError: there is none, or it is open elsewhere.
    """
    asked_for = getattr(options, "resume", None)
    if keeper.store is None or (asked_for is None and not getattr(options, "continues", False)):
        return
    if options.system is not None:
        raise UsageError("--system begins a new conversation: it does not go with --resume and --continue")
    if asked_for:
        keeper.resume(keeper.store.find(asked_for).id)
        return
    found = keeper.store.listed(_CHOICES)
    if not found:
        raise UsageError("there is no conversation to go on with yet")
    place = 1
    if asked_for is not None and is_interactive() and len(found) > 1:
        for number, each in enumerate(found, start=1):
            display.line("", visible(f"{number:2}  {each.changed[:16].replace('T', ' ')}  {each.title}"))
        display.ask(display.say("choose", count=len(found)))
        typed = ((await LineReader().line()) or "").strip()
        if typed and not (typed.isdecimal() and 1 <= int(typed) <= len(found)):
            raise UsageError(f"expected a number from 1 to {len(found)}, got {typed[:80]!r}")
        place = int(typed or 1)
    keeper.resume(found[place - 1].id)


def _body(event: LoopEvent) -> tuple[str, dict[str, Any]] | None:
    """Return the kind and the body of an event that is kept; None for one that is not."""
    match event:
        case TurnEnded(reply=reply, message=message):
            calls = [_call(call) for call in reply.calls]
            repairs = [repair.code for repair in reply.repairs]
            told = {"turn": event.turn, "raw": event.raw, "message": message and message_to_json(message), "calls": calls}
            told |= {"text": reply.text, "reasoning": reply.reasoning, "finish_reason": reply.finish_reason, "repairs": repairs}
            return "reply", told | {"usage": asdict(event.usage)}
        case CallStarted(call=call):
            told = {"id": call.id, "name": call.name, "server": event.host, "tool": event.host_tool, "arguments": call.arguments}
            return "started", told | {"by": event.by}
        case CallTask(call=call, task=task):
            return "task", {"id": call.id, "name": call.name, "task": task}
        case CallFinished(call=call, result=result, failure=failure):
            outcome = "failed" if failure else "error" if result.is_error else "ok"
            return "ended", _ended(call, outcome, result_text(result))
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
