"""BFCL's tasks of several turns: a person asks one thing after another, and tools change a state that is compared in the end.

A task is played through a `ToolLoop` and judged after each turn, by the rules of BFCL V4. Next to the state of the model's tools
there is a second one, on which the expected calls are run. A turn is right if both states are equal and each result of an
expected call is among the results that the model got so far, in whatever way. Where nothing should be called,
BFCL's scorer runs what was called and does not judge it; neither does the verdict here, but `false_calls` names the turn.
"""

import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..agent.loop import ToolLoop
from ..backends.base import Backend
from ..errors import ContextOverflow
from ..prompting.results import result_text
from ..prompting.writer import joined
from ..tools.catalog import Catalog
from ..turn.events import Answer, CallDenied, CallFinished, CallRejected, LoopEvent, TurnEnded
from ..types.calls import Message
from ..types.completion import Usage
from .bfcl_backends import StateHost, read_call
from .judge import Call
from .recorder import ReplyRecorder, kept_call, kept_tools

__all__ = [
    "DISPUTED_MULTI_TURN",
    "MULTI_TURN_CATEGORIES",
    "MultiTurnCase",
    "Reference",
    "hosts_of",
    "read_multi_turn",
    "run_case",
]

MULTI_TURN_CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")

# An expected call has an argument that its own tool does not take (173), or uses a tool before it is offered (49).
DISPUTED_MULTI_TURN = frozenset({*(f"{category}_173" for category in MULTI_TURN_CATEGORIES), "multi_turn_miss_func_49"})

_MORE_TOOLS = "I have updated some more functions you can choose from. What about now?"  # in place of a message, BFCL's words
_MAX_STEPS = 20  # BFCL's limit of replies with calls in a turn; one more reply may end it


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiTurnCase:
    """A task of several turns.

    Args:
        turns: what the person says in each, as messages with `role` and `content`.
        truth: the expected calls of each turn, in Python's notation; none where nothing should be called.
        disputed: nobody can be right who keeps to the tools as they are described; reported with and without these.
    """

    id: str
    category: str
    turns: tuple[tuple[Mapping[str, str], ...], ...]
    classes: tuple[str, ...]
    initial_config: Mapping[str, Any]
    path: tuple[str, ...] = ()
    withheld: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    truth: tuple[tuple[str, ...], ...] = ()
    disputed: bool = False


def read_multi_turn(wheel: Path, category: str) -> Iterator[MultiTurnCase]:
    """Yield the tasks of a category."""
    with zipfile.ZipFile(wheel) as archive:
        rows = _rows(archive, f"bfcl_eval/data/BFCL_v4_{category}.json")
        truths = _rows(archive, f"bfcl_eval/data/possible_answer/BFCL_v4_{category}.json")
    for row, truth in zip(rows, truths, strict=True):
        yield MultiTurnCase(
            id=row["id"],
            category=category,
            turns=tuple(tuple(messages) or ({"role": "user", "content": _MORE_TOOLS},) for messages in row["question"]),
            classes=tuple(row["involved_classes"]),
            initial_config=row["initial_config"],
            path=tuple(row["path"]),
            withheld={int(turn): tuple(names) for turn, names in row.get("missed_function", {}).items()},
            truth=tuple(tuple(calls) for calls in truth["ground_truth"]),
            disputed=row["id"] in DISPUTED_MULTI_TURN,
        )


def _rows(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in archive.read(name).decode("utf-8").splitlines() if line.strip()]


def hosts_of(case: MultiTurnCase) -> tuple[StateHost, ...]:
    """Return the tools of a task, each backend in its first state."""
    withheld = {name for names in case.withheld.values() for name in names}
    long_context = "long_context" in case.category
    return tuple(
        StateHost(name, case.initial_config.get(name), long_context=long_context, withheld=withheld) for name in case.classes
    )


class Reference:
    """The state that the expected calls lead to; turns are judged in their order, each once."""

    def __init__(self, case: MultiTurnCase) -> None:
        self._truth = case.truth
        self._hosts = hosts_of(case)
        self._got: Counter[str] = Counter()

    @property
    def catalog(self) -> Catalog:
        """All tools of the task, also those that are withheld at first."""
        return Catalog(tool for host in self._hosts for tool in host.all_tools)

    def calls(self, turn: int) -> list[Call]:
        """Return the expected calls of a turn."""
        read = [read_call(text) for text in self._truth[turn]]
        return [self._host(name).named(name, positional, by_name) for name, positional, by_name in read]

    def replay(self, turn: int) -> list[str]:
        """Run the expected calls of a turn."""
        return [result_text(self._host(name).run(name, arguments)) for name, arguments in self.calls(turn)]

    def judge(self, turn: int, hosts: Sequence[StateHost], results: Sequence[str]) -> str:
        """Run the expected calls of a turn and compare."""
        expected = self.replay(turn)
        self._got.update(results)
        if not expected:
            return ""
        if not results:
            return "no_call"
        if not all(_agrees(mine, theirs) for mine, theirs in zip(hosts, self._hosts, strict=True)):
            return "state"
        return "" if Counter(expected) <= self._got else "response"

    def _host(self, name: str) -> StateHost:
        return next(host for host in self._hosts if name in host)


def _agrees(host: StateHost, reference: StateHost) -> bool:
    state = host.state
    return all(name in state and state[name] == value for name, value in reference.state.items())


async def run_case(case: MultiTurnCase, backend: Backend, *, max_steps: int = _MAX_STEPS, **options: Any) -> dict[str, Any]:
    """Play a task and judge it. It ends with the first wrong turn, because a task with a wrong turn is wrong.

    Returns:
        A JSON object: `id`, `category`, `valid`, `failed_turn` and `error` (None and "" if valid, else `no_call`, `state`,
        `response`, `too_many_steps` or `context_overflow`), `false_calls` (the turns with calls where none should be), `turns`
        (per turn `said`, by the person, `replies`, all that the model wrote, `calls` in order, and `stop_reason`), `usage`, and

    Raises:
        BackendError: the model server failed otherwise than by a prompt that is too long.
        UsageError: a package that a backend needs is not installed, or an option cannot be.
    """
    hosts, reference, recorder = hosts_of(case), Reference(case), ReplyRecorder(backend)
    turns, messages = list[_PlayedTurn](), list[Message]()
    async with ToolLoop(recorder, hosts, policy=["*"], max_turns=max_steps + 1, **options) as loop:
        for number, said in enumerate(case.turns):
            await _release(loop, hosts, case.withheld.get(number, ()))
            turns.append(turn := _PlayedTurn(said=[message["content"] for message in said], replies=recorder.begin_turn()))
            messages = await _play(loop, _with_said(messages, said), turn)
            turn.error = _STOPS.get(turn.stop_reason) or reference.judge(number, hosts, turn.results)
            if turn.error:
                break
        tools = kept_tools(await loop.catalog(), [turn.calls for turn in turns])
    return {**_report(case, turns), "tools": tools}


_STOPS = {"max_turns": "too_many_steps", "context_overflow": "context_overflow"}


@dataclass(slots=True)
class _PlayedTurn:
    """What happened in a turn."""

    said: list[str]
    replies: list[str]
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    stop_reason: str = ""
    error: str = ""

    def note(self, event: LoopEvent) -> None:
        match event:
            case TurnEnded(usage=usage):
                self.usage = self.usage + usage
            case CallFinished() | CallDenied() | CallRejected():
                self.calls.append(kept := kept_call(event, len(self.replies)))
                self.results += [kept["result"]] if "result" in kept else []
            case Answer(stop_reason=stop_reason):
                self.stop_reason = stop_reason


def _report(case: MultiTurnCase, turns: Sequence[_PlayedTurn]) -> dict[str, Any]:
    error = turns[-1].error
    return {
        "id": case.id,
        "category": case.category,
        "valid": not error,
        "failed_turn": len(turns) - 1 if error else None,
        "error": error,
        "false_calls": [number for number, turn in enumerate(turns) if turn.results and not case.truth[number]],
        "turns": [{name: getattr(turn, name) for name in ("said", "replies", "calls", "stop_reason")} for turn in turns],
        "usage": asdict(sum((turn.usage for turn in turns), Usage())),
    }


async def _play(loop: ToolLoop, messages: Sequence[Message], turn: _PlayedTurn) -> list[Message]:
    """Run a turn; return the conversation after it."""
    try:
        async with aclosing(loop.run(messages)) as events:
            async for event in events:
                turn.note(event)
                if isinstance(event, Answer):
                    return list(event.messages)
    except ContextOverflow:
        turn.stop_reason = "context_overflow"
    return list(messages)


async def _release(loop: ToolLoop, hosts: Sequence[StateHost], names: Sequence[str]) -> None:
    await loop.catalog()  # the hosts are watched for changes from the first list on
    released = [host.release(names) for host in hosts]
    if any(released):
        await loop.router.changed.wait()


def _with_said(messages: Sequence[Message], said: Sequence[Mapping[str, str]]) -> list[Message]:
    """Add what the person says; if results came last, to these: two messages of one role may not follow each other."""
    spoken = [Message(role="user", content=message["content"]) for message in said]
    if messages and messages[-1].role == "user":
        return [*messages[:-1], joined([messages[-1], spoken[0]]), *spoken[1:]]
    return [*messages, *spoken]
