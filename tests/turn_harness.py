"""Turns for tests: tools, calls as a model writes them, a backend that tells a builder, and a turn that is played."""

from collections.abc import Iterable, Mapping
from typing import Any

from xmlcall import LocalHost, Message, Tool, ToolLoop
from xmlcall.backends.base import KeptOpen
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.turns.builder import TurnBuilder
from xmlcall.turns.record import (
    CallRecord,
    MarkRecord,
    MessageRecord,
    ReplyRecord,
    SourceRecord,
    SpanRecord,
    TurnRecord,
    ValueRecord,
    record_to_json,
)
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
    """Play a turn; the record is looked at behind each event, so that looking changes nothing."""
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
    return TurnRecord(**{**told, "tools": tuple(told["tools"]), "replies": tuple(map(_reply, told["replies"]))})


def _reply(told: Mapping[str, Any]) -> ReplyRecord:
    parts = {
        "prompt": tuple(MessageRecord(**each) for each in told["prompt"]),
        "spans": tuple(SpanRecord(**each) for each in told["spans"]),
        "repairs": _marks(told["repairs"]),
        "calls": tuple(map(_call_record, told["calls"])),
    }
    return ReplyRecord(**{**told, **parts})


def _call_record(told: Mapping[str, Any]) -> CallRecord:
    parts = {"values": tuple(map(_value, told["values"])), "issues": _marks(told["issues"]), "repairs": _marks(told["repairs"])}
    return CallRecord(**{**told, **parts})


def _value(told: Mapping[str, Any]) -> ValueRecord:
    source = told["source"] and SourceRecord(**told["source"])
    return ValueRecord(**{**told, "source": source, "repairs": tuple(told["repairs"])})


def _marks(told: Any) -> tuple[MarkRecord, ...]:
    return tuple(MarkRecord(**{**each, "readings": tuple(each["readings"])}) for each in told)
