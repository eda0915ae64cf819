"""Rounds in which the proxy ran tools itself, kept until the caller comes back with the results of its own calls.

What the model said is written from what the caller sends (`history.py`), so that every replica of the proxy writes the same. But
a caller knows nothing of the proxy's own tools: their calls and results are kept in a store, which replicas may share, under the
id of the caller's first call. The id is random, so that nobody can ask for the rounds of others. What is kept is shown to the
model again only behind the same calls with the same arguments.

Who can write to the store could write anything: what is read from it is checked, and what does not fit is not known.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from ...types.calls import Message, TextContent, ToolCall, ToolResult
from ..formats.bodies import call_of
from ..sharing.store import Store, StoreError

__all__ = ["BYTES_LIMIT", "SECONDS", "Known", "NoRoundsError", "OwnRounds", "RoundsKept", "decoded", "encoded", "rounds_behind"]

BYTES_LIMIT: Final = 2_000_000
"""What the rounds behind one call may take; more is not kept."""

SECONDS: Final = 86_400.0
"""After which rounds are forgotten."""

WAIT: Final = 1.0  # seconds for all that a request asks the store for
AT_ONCE: Final = 8  # values that a request asks for at the same time
_OUR_ID: Final = re.compile(r"call_[0-9a-f]{24}")


class NoRoundsError(ValueError):
    """A value of the store is no rounds, or rounds are more than it keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRounds:
    """What the model is shown with calls of the caller's tools, and the caller does not know.

    Args:
        before: messages between the caller's last one and the reply: rounds in which the proxy ran tools itself.
        shown: text of these replies, which the caller was shown.
        calls: all calls of the reply in order, with the results of those that the proxy ran; the caller's have none yet.
        results: texts of all results of tools that the proxy ran.
    """

    before: tuple[Message, ...]
    shown: str
    calls: tuple[tuple[ToolCall, ToolResult | None], ...]
    results: tuple[str, ...]

    @property
    def theirs(self) -> tuple[ToolCall, ...]:
        """The calls that the caller was given."""
        return tuple(call for call, result in self.calls if result is None)

    def rest_of(self, content: str) -> str:
        """Return the part of a message's text that belongs to the reply with the calls; some callers take white space off."""
        for text, begun in ((content, self.shown), (content.strip(), self.shown.strip())):
            if text.startswith(begun):
                return text[len(begun) :]
        return content


Known = Mapping[str, OwnRounds]
"""Rounds by the id of the first call that the caller was given behind them."""


def rounds_behind(message: Message, known: Known) -> OwnRounds | None:
    """Return the proxy's own rounds behind a message of the model's; None if there are none, or the calls are not the same.

    Args:
        message: the caller's.
        known: what the store had for the conversation.
    """
    found = known.get(message.tool_calls[0].id) if message.tool_calls else None
    return found if found is not None and _told(found.theirs) == _told(message.tool_calls) else None


def _told(calls: Iterable[ToolCall]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(call.id, call.name, call.arguments) for call in calls]


class RoundsKept:
    """Rounds in a store. A store that fails, or is slow, costs a request one second at most: the rounds are not known then.

    Args:
        store: of this process or shared by replicas.
        say: told once what is wrong.
    """

    def __init__(self, store: Store, say: Callable[[str], None]) -> None:
        self._store, self._say = store, say

    async def recall(self, messages: Iterable[Message]) -> Known:
        """Return the rounds behind a conversation.

        Args:
            messages: the caller's.
        """
        asked = [message.tool_calls[0].id for message in messages if message.tool_calls]
        ids = [each for each in dict.fromkeys(asked) if _OUR_ID.fullmatch(each)]
        permits = asyncio.Semaphore(AT_ONCE)
        try:
            async with asyncio.timeout(WAIT):
                values = await asyncio.gather(*(self._value(each, permits) for each in ids))
        except (StoreError, TimeoutError) as error:
            self._say(f"rounds of the proxy's own tools are not known now: {error or 'the store is slow'}")
            return {}
        found = ((each, self._rounds(value)) for each, value in zip(ids, values, strict=True) if value is not None)
        return {each: rounds for each, rounds in found if rounds is not None}

    async def _value(self, identity: str, permits: asyncio.Semaphore) -> bytes | None:
        async with permits:
            return await self._store.get(_key(identity))

    def _rounds(self, value: bytes) -> OwnRounds | None:
        try:
            return decoded(value)
        except NoRoundsError:
            self._say("the store has a value that is no rounds of the proxy's own tools; it is passed over")
            return None

    async def keep(self, rounds: OwnRounds) -> None:
        """Keep rounds until the caller has run its calls.

        Args:
            rounds: with at least one call of the caller's.
        """
        try:
            value = encoded(rounds)
            async with asyncio.timeout(WAIT):
                await self._store.put(_key(rounds.theirs[0].id), value, seconds=SECONDS)
        except (StoreError, TimeoutError, NoRoundsError) as error:
            self._say(f"rounds of the proxy's own tools are not kept: {error or 'the store is slow'}")


def _key(identity: str) -> str:
    return f"rounds:{identity}"


# -- as bytes ----------------------------------------------------------------------------------------------------------


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Message(_Strict):
    role: Literal["user", "assistant"]
    content: str
    images: list[str]


class _Call(_Strict):
    """A call; `id` is that of a caller's, `result` the text that one of the proxy's own returned."""

    id: str
    name: Annotated[str, Field(min_length=1)]
    arguments: dict[str, Any]
    result: str | None
    is_error: bool


class _Rounds(_Strict):
    version: Literal[1]
    before: list[_Message]
    shown: str
    calls: list[_Call]
    results: list[str]


def encoded(rounds: OwnRounds) -> bytes:
    """Write rounds as bytes.

    Args:
        rounds: whose results are texts, as the model is shown them.

    Raises:
        NoRoundsError: they are larger than what is kept.
    """
    value = {
        "version": 1,
        "before": [{"role": said.role, "content": said.content, "images": list(said.images)} for said in rounds.before],
        "shown": rounds.shown,
        "calls": [_call(call, result) for call, result in rounds.calls],
        "results": list(rounds.results),
    }
    written = json.dumps(value, separators=(",", ":")).encode()
    if len(written) > BYTES_LIMIT:
        raise NoRoundsError(f"they take {len(written):,} bytes, and {BYTES_LIMIT:,} are kept")
    return written


def _call(call: ToolCall, result: ToolResult | None) -> dict[str, Any]:
    text = None if result is None else "\n".join(each.text for each in result.content if isinstance(each, TextContent))
    is_error = result is not None and result.is_error
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "result": text, "is_error": is_error}


def decoded(value: bytes) -> OwnRounds:
    """Read rounds of bytes.

    Args:
        value: anything.

    Raises:
        NoRoundsError: they are no rounds.
    """
    if len(value) > BYTES_LIMIT:
        raise NoRoundsError("too large")
    try:
        read = json.loads(value, parse_constant=_no_number)
        json.dumps(read, allow_nan=False)  # a number may be too large for a float
        rounds = _Rounds.model_validate(read)
    except (RecursionError, ValueError) as error:  # pydantic's, too
        raise NoRoundsError("no rounds") from error
    calls = tuple((call_of(call.id, call.name, call.arguments, index), _result(call)) for index, call in enumerate(rounds.calls))
    if not any(result is None for _, result in calls):
        raise NoRoundsError("no call of the caller's")
    before = tuple(Message(role=said.role, content=said.content, images=tuple(said.images)) for said in rounds.before)
    return OwnRounds(before=before, shown=rounds.shown, calls=calls, results=tuple(rounds.results))


def _result(call: _Call) -> ToolResult | None:
    return None if call.result is None else ToolResult(content=(TextContent(text=call.result),), is_error=call.is_error)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
