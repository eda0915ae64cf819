"""Turns for tests: tools, calls as a model writes them, a backend that tells a builder, and a turn that is played."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from xmlcall import Answer, LocalHost, Message, Tool, ToolLoop, ToolResult
from xmlcall.backends.base import KeptOpen
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import ToolHostUnavailable
from xmlcall.hosts.base import OnProgress
from xmlcall.turn.events import LoopEvent
from xmlcall.turn_records.builder import TurnBuilder
from xmlcall.turn_records.lines import _read_turn
from xmlcall.turn_records.record import CallRecord, ReplyRecord, TurnRecord, record_to_json
from xmlcall.types.completion import CompletionRequest


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail() -> str:
    """Always fail."""
    raise ValueError("no luck")


def times(x: int, y: int) -> int:
    """Multiply two numbers."""
    return x * y


def call(name: str, **arguments: Any) -> str:
    parameters = "".join(f'<parameter name="{key}">{value}</parameter>' for key, value in arguments.items())
    return f'<invoke name="{name}">{parameters}</invoke>'


def block(*calls: str) -> str:
    return f"<function_calls>{''.join(calls)}</function_calls>"


class Told(KeptOpen):
    """A backend that tells a builder what is sent and what comes."""

    def __init__(self, backend: Any, builder: TurnBuilder) -> None:
        super().__init__(backend)
        self.builder = builder

    async def stream(self, request: CompletionRequest) -> Any:
        self.builder.prompt(request.messages)
        async for chunk in self._backend.stream(request):
            self.builder.wrote(chunk.text)
            yield chunk


def tiles(reply: ReplyRecord) -> None:
    place = 0
    for span in reply.spans:
        assert span.start == place < span.end
        place = span.end
    assert place == len(reply.raw)


async def turn(
    replies: Iterable[Any],
    *,
    question: str = "What is 1 + 2?",
    host: LocalHost | None = None,
    policy: Any = ("*",),
    **options: Any,
) -> TurnRecord:
    """Play a turn; the record is looked at after each event, so that looking changes nothing."""
    script = {name: options.pop(name) for name in ("chunk_size", "finish_reasons", "capabilities") if name in options}
    messages = [Message(role="user", content=question)]
    builder = TurnBuilder(id="t", source="chat", question=question, tools=[Tool.from_function(add)], conversation=messages)
    backend = Told(ScriptedBackend(replies, **script), builder)
    loop = ToolLoop(backend, [host or LocalHost([add, fail, times])], policy=policy, **options)
    async with loop:
        async for event in loop.run(messages):
            builder.note(event)
            builder.record()
    record = builder.record()
    assert turn_from_json(record_to_json(record)) == record
    for reply in record.replies:
        tiles(reply)
    return record


def calls_of(record: TurnRecord) -> list[CallRecord]:
    return [each for reply in record.replies for each in reply.calls]


def turn_from_json(told: Mapping[str, Any]) -> TurnRecord:
    """Read what `record_to_json` wrote."""
    return _read_turn(json.loads(json.dumps(told)))


class DyingHost(LocalHost):
    """A host whose server is gone when a tool is called."""

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        raise ToolHostUnavailable("the server died; it is not known whether the tool ran", host=self.name)


def answer_of(events: list[LoopEvent]) -> Answer:
    assert isinstance(events[-1], Answer)
    return events[-1]
