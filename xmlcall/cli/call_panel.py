"""Calls as a chat shows them: one line each, with a number for `/open`, which shows the whole call.

The log keeps what that needs, also of stopped calls. It learns about the run only from its events. Sources of values are looked
up when a call is opened, in the conversation before it, whose calls have the numbers of this log.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ..binding.provenance import provenance
from ..dialects.write import replies_of
from ..prompting.results import result_text
from ..tools.catalog import Tools
from ..turn.attempts import refused_by
from ..turn.events import CallDenied, CallFinished, CallHeld, CallRejected, CallStarted, LoopEvent, ReplyEnded
from ..types.calls import InvalidCall, Message, Speaker, ToolCall, ToolReply, Written
from .plain import arguments_text, json_text, plain, visible
from .words import Say, issue_line

_STYLES = {"ok": "green", "error": "yellow", "failed": "red", "stopped": "yellow"}
_RAN = ("ok", "error", "failed")
_LEAST_RESULT = 12  # cells
_BARE = re.compile(r"[\w .,:/+-]{1,200}")  # an argument that needs no quotation marks
_PERSON = "person"  # the value of `Decision.by` for a person
# Values of `Decision.by` and `CallDenied.by` where xmlcall itself decided -> key of the words.
_BY_ITSELF = {
    "no person to ask": "by_no_person",
    "no answer in time": "by_no_answer",
    "no rule": "by_no_rule",
    "repeated too often": "by_repeated",
    "the tool changes": "by_changing_tool",
    "it only tells what is known": "by_known",
}
CallEvent = CallStarted | CallFinished | CallDenied | CallRejected | CallHeld


@dataclass(slots=True, kw_only=True)
class LoggedCall:
    number: int
    call: ToolCall | InvalidCall  # as bound; with the arguments that the person changed, if they did
    target: str
    before: tuple[Message, ...]
    outcome: str = "running"  # `ok`, `error` (of the tool), `failed` (its server), `denied`, `rejected`, `waits` or `stopped`
    text: str = ""
    by: str = ""
    began: float | None = None  # time by `time.monotonic`; None if it did not run
    seconds: float | None = None


@dataclass(slots=True)
class CallLog:
    lang: str = "en"
    calls: list[LoggedCall] = field(default_factory=list)
    earlier: int = 0  # calls of the conversation before this log began
    _said: list[Message] = field(default_factory=list)
    _before: tuple[Message, ...] = ()

    def go_on(self, messages: Iterable[Message]) -> None:
        """Continue a conversation: its calls count, but cannot be opened."""
        self._said = [*messages]
        self.earlier = sum(len(replies_of(message)) for message in self._said)

    def ask(self, question: str) -> None:
        self._said.append(Message(role="user", content=question))

    def note(self, event: LoopEvent) -> LoggedCall | None:
        """Take the next event; return the call that begins or ends with it."""
        match event:
            case ReplyEnded(reply=reply):
                self._before = tuple(self._said)
                self._said.append(Message(role="assistant", content=reply.text))
            case CallStarted(by=by):
                return self._add(event, began=time.monotonic(), by=by)
            case CallFinished(result=result, failure=failure):
                return self._end(self._running() or self._add(event), event.outcome, failure or result_text(result))
            case CallDenied(reason=reason, by=by):
                return self._end(self._add(event, by=by), "denied", reason)
            case CallRejected(call=call):
                return self._end(self._add(event), "rejected", "\n".join(issue_line(issue, self.lang) for issue in call.issues))
            case CallHeld(paths=paths):
                return self._end(self._add(event), "waits", ", ".join(path.removeprefix("$.") for path in paths))
        return None

    def stop(self) -> LoggedCall | None:
        """Note that the turn is over; return the call that was running."""
        running = self._running()
        return self._end(running, "stopped", "") if running else None

    def clear(self) -> None:
        self.calls.clear()
        self._said.clear()
        self.earlier = 0
        self._before = ()

    def _running(self) -> LoggedCall | None:
        return self.calls[-1] if self.calls and self.calls[-1].outcome == "running" else None

    def _add(self, event: CallEvent, began: float | None = None, by: str = "") -> LoggedCall:
        number, target = self.earlier + len(self.calls) + 1, target_of(event)
        entry = LoggedCall(number=number, call=event.call, target=target, before=self._before, by=by, began=began)
        self.calls.append(entry)
        return entry

    def _end(self, entry: LoggedCall, outcome: str, text: str) -> LoggedCall:
        entry.outcome, entry.text = outcome, text
        if entry.began is not None:
            entry.seconds = time.monotonic() - entry.began
        by: Speaker = "tool" if outcome in _RAN else refused_by(entry.by)
        reply = ToolReply(name=entry.call.name, start=0, end=len(text), by=by)
        self._said.append(Message(role="tool", content=text, written=Written(text=text, replies=(reply,))))
        return entry


def target_of(event: CallEvent) -> str:
    """Return the server and the tool of a call, or the name that the model wrote if the event names no server."""
    if isinstance(event, CallFinished) or not event.host:
        return visible(event.call.name)
    return f"{visible(event.host)}.{visible(event.host_tool)}"


def call_line(entry: LoggedCall, say: Say, width: int, label_width: int) -> Text:
    """Write a call on one line, as `call 1   demo.get_weather(Paris) -> temperature 13.5, humidity 66  0.1 s`."""
    label = set_cell_size(f"{say('call')} {entry.number}", label_width)
    target = _fitted(entry.target, max(width // 2, 10))
    room = width - cell_len(label + target) - len("() -> ")
    given = [*entry.call.arguments.values()] if isinstance(entry.call, ToolCall) else []
    only = next(map(_bare, given)) if len(given) == 1 else ""
    outcome = "" if entry.outcome == "ok" and entry.text.strip() else say(f"outcome_{entry.outcome}")
    rows = [_joined(outcome, text, say) for text in _result_in_short(entry.text, given)]
    least = min(cell_len(rows[-1]), room // 2)
    arguments = _fitted(only if _BARE.fullmatch(only) else arguments_text(entry.call), max(room - least, _LEAST_RESULT))
    room = max(room - cell_len(arguments), _LEAST_RESULT)
    shown = next((row for row in rows if cell_len(row) <= room), _fitted(rows[-1], room))
    took = f"  {entry.seconds:.1f} s" if entry.seconds is not None and cell_len(shown) + len("  99.9 s") <= room else ""
    style = _STYLES.get(entry.outcome, "yellow")
    line = Text.assemble((label, "cyan"), f"{target}({arguments}) -> ", (shown, style), (took, "dim"))
    line.truncate(max(width, 20))
    return line


def _joined(outcome: str, text: str, say: Say) -> str:
    return say("with_text", label=outcome, text=text) if outcome and text else outcome or text


def _result_in_short(text: str, given: Sequence[Any]) -> list[str]:
    """Return a result on one line, the longest form first: an object's new values with their names, then without."""
    flat = visible(" ".join(plain(text).split()))
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return [flat]
    if not isinstance(values, dict) or not values or any(isinstance(value, dict | list) for value in values.values()):
        return [flat]
    new = {name: value for name, value in values.items() if value not in given} or values
    named = [f"{visible(name)} {_bare(value)}" for name, value in new.items()] if len(new) > 1 else []
    return [*([", ".join(named)] if named else []), ", ".join(map(_bare, new.values()))]


def _bare(value: Any) -> str:
    return visible(value if isinstance(value, str) else json_text(value, indent=None))


def call_lines(entry: LoggedCall, say: Say, tools: Tools) -> Iterator[tuple[str, str]]:
    """Yield all that is known of a call, as pairs of a label and a text that is safe to show."""
    call = entry.call
    yield f"{say('call')} {entry.number}", entry.target
    arguments = call.arguments if isinstance(call, ToolCall) else {each.name: each.text for each in call.raw.arguments}
    if arguments:
        yield say("arguments"), "\n".join(visible(row) for row in json_text(dict(arguments)).split("\n"))
    if isinstance(call, ToolCall) and arguments:
        yield say("origin"), "\n".join(words for _, words in origins(call, entry.before, say, tools)) or say("from_nobody")
    if entry.by:
        yield say("denied_by_whom" if entry.outcome == "denied" else "allowed_by_whom"), _whom(entry.by, say)
    if entry.seconds is not None:
        yield say("time"), f"{entry.seconds:.2f} s"
    if repairs := (call.repairs if isinstance(call, ToolCall) else call.raw.repairs):
        yield say("repaired"), "\n".join(visible(f"{repair.code} {repair.path}".strip()) for repair in repairs)
    yield say("outcome"), say(f"outcome_{entry.outcome}")
    if entry.text:
        yield say("result"), plain(entry.text).strip()


def _whom(by: str, say: Say) -> str:
    """Write who or what decided: a person in the user's language, a rule or an option by its name."""
    who, _, rest = by.partition(", ")
    if who != _PERSON:
        return say(_BY_ITSELF[by]) if by in _BY_ITSELF else visible(by)
    return say("you_always") if rest else say("you")


def origins(call: ToolCall, before: Sequence[Message], say: Say, tools: Tools) -> Iterator[tuple[str, str]]:
    """Yield the kind of origin of each value that is not trivial, and where it comes from in words."""
    for path, source in provenance(call, before, tools).items():
        kind = "result_of_unknown" if source.kind == "result" and not source.tool else source.kind
        if kind != "trivial":
            key = f"from_{kind}_or_translated" if source.may_be_translation else f"from_{kind}"
            words = say(key, path=visible(path.removeprefix("$.")), tool=visible(source.tool), call=source.call)
            yield "translation" if source.may_be_translation else source.kind, words


def _fitted(text: str, cells: int) -> str:
    return text if cell_len(text) <= cells else f"{set_cell_size(text, max(cells - 3, 0)).rstrip()}..."
