"""A machine: it says what is to be done, and is told what came of it. It does nothing itself.

What it does is written as a script, a generator that reads from top to bottom:

    generated = yield from generate(...)      # a part of it is a script, too
    answers = yield Score(requests)           # an action: the script goes on once that is done
    yield ReplyEnded(...)                     # anything else is an event: it goes on at once

An action is yielded again and again while pieces of its outcome come: an `Ask` for each chunk until `Ended`. What fails is raised
where the script waits for it, so that `try` and `except` work in it as anywhere. The idea is that of h11's connection
(https://h11.readthedocs.io): whoever has a socket, an event loop, or neither, can drive it.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar, cast

from ..errors import BackendError, UsageError
from ..types.calls import Message, Tool, ToolCall
from ..types.completion import Chunk, CompletionRequest, FinishReason, Usage

__all__ = ["ENOUGH", "Action", "Ask", "Done", "Ended", "FirstToken", "Kind", "Machine", "OfferedAnew", "Run", "Score", "Script"]

T = TypeVar("T")
Kind = Literal["reply", "rest", "forced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Ask for the first token of each request, with the probabilities of those that could stand in its place.

    Args:
        requests: of one token each.
        keep: whether the answers follow from the model and the requests alone, so that they may be kept for later turns.
    """

    requests: tuple[CompletionRequest, ...]
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """The first token of a reply.

    Args:
        candidates: the likeliest tokens, each with the natural logarithm of its probability; empty if the server tells none.
        text: what it is; "" where it is half a character.
        reasoning: what came in the server's own reasoning field.
        usage: what asking cost.
    """

    candidates: tuple[tuple[str, float], ...] = ()
    text: str = ""
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)

    def after(self, chunk: Chunk) -> "FirstToken":
        """Return what is known of it after a piece of the reply; once there is a text without candidates, none will come.

        Args:
            chunk: the next piece, in order.
        """
        return FirstToken(
            candidates=self.candidates or chunk.top_logprobs,
            text=self.text + chunk.text,
            reasoning=self.reasoning + chunk.reasoning,
            usage=chunk.usage or self.usage,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Generate a reply.

    Args:
        request: all that is sent.
        kind: `rest` goes on with a reply that was cut inside a call, `forced` has to be one call by a JSON Schema.
    """

    request: CompletionRequest
    kind: Kind = "reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Run a call, if it is allowed.

    Args:
        call: fits the tool's schema.
        tool: that is called.
        times: how often the same call came in a row, this time included.
        unsaid: parameters whose values nobody said, although the model was told.
        conversation: the messages before the call.
    """

    call: ToolCall
    tool: Tool
    times: int = 1
    unsaid: tuple[str, ...] = ()
    conversation: Sequence[Message] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The turn has ended.

    Args:
        reason: as `Answer.stop_reason`; or `failed`, `stopped`, or `tool_calls`, if the calls are somebody else's to run.
        text: the last reply's visible text.
        conversation: to go on with.
        usage: the tokens of all replies.
        error: of the model server; None if it did not fail.
    """

    reason: str
    text: str
    conversation: tuple[Message, ...]
    usage: Usage
    error: BackendError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a reply's stream."""

    finish_reason: FinishReason | None = None
    usage: Usage | None = None


class OfferedAnew(Exception):
    """Raised in a script that asks for a reply: the tools have changed, and it asks anew."""


ENOUGH: Final = object()
"""What a script says of the reply that it reads: nothing useful can follow."""

Action = Score | Ask | Run
_ACTIONS: Final = (Score, Ask, Run)
Script = Generator[Any, Any, T]
"""Yields actions and events, is sent what came of an action, and returns what came of it all."""


class Machine(Generic[T]):
    """Runs a script.

    Each input gives the events that follow from it, one at a time: the script goes on only as they are taken. What is not taken
    is left out with the next input.

    Attributes:
        error: why it failed; None if it did not.
        result: what the script returned; None before its end.
        has_enough: whether nothing useful can follow in the reply that is asked for: close its stream, and call `end`.
        is_demanding: whether the work between two events may take long: a driver with an event loop does it in a thread.
    """

    def __init__(self, script: Script[T], hear: Callable[[Any], None] = lambda event: None) -> None:
        self.error: BackendError | None = None
        self.result: T | None = None
        self.has_enough = False
        self.is_demanding = False
        self._script, self._hear = script, hear
        self._is_settled = False  # the script waits at its action
        self._has_come = False  # something of the reply that is asked for
        self._action: Action | None = None
        self._events = self._following(lambda: next(script))

    @property
    def action(self) -> Action | None:
        """What is to be done; None once the script has ended."""
        for _ in self._events:
            pass
        return self._action

    def events(self) -> Iterator[Any]:
        """Take the events that were not taken yet, at the beginning those from before the first action."""
        yield from self._events

    def scored(self, answers: Sequence[FirstToken]) -> Iterator[Any]:
        """Take the answers to a `Score`, in its order."""
        score = self._doing(Score)
        if len(answers) != len(score.requests):
            raise UsageError(f"{len(score.requests)} requests were to be scored, got {len(answers)} answers")
        return self._go_on(tuple(answers))

    def receive(self, chunk: Chunk) -> Iterator[Any]:
        """Take a piece of the reply that was asked for; what comes after `has_enough` is not read.

        Raises:
            UsageError: no reply was asked for, or it is no piece of one.
        """
        self._doing(Ask)
        if not isinstance(chunk, Chunk):
            raise UsageError(f"expected a Chunk as the answer to Ask, got {chunk!r:.80}")
        self._has_come = True
        return iter(()) if self.has_enough else self._go_on(chunk)

    def end(self, finish_reason: FinishReason | None = None, usage: Usage | None = None) -> Iterator[Any]:
        """Take the end of the reply."""
        self._doing(Ask)
        return self._go_on(Ended(finish_reason=finish_reason, usage=usage))

    def refuse(self, error: BackendError) -> Iterator[Any]:
        """Take the failure of a request: it is made otherwise, or the script has ended with this error."""
        self._doing(Score, Ask)
        return self._throw(error)

    def note(self, happened: Any) -> Iterator[Any]:
        """Take what happened to the call that is to be run, its end last."""
        self._doing(Run)
        return self._go_on(happened)

    def close(self) -> None:
        """End here; nothing is to be done any more."""
        self._script.close()
        self._action, self._events = None, iter(())

    def ask_anew(self) -> Iterator[Any]:
        """Have a reply that is to be asked for asked for otherwise, before anything of it has come.

        A script that has not come to that yet asks so anyhow; one that reads a reply goes on with it.
        """
        is_due = self._is_settled and isinstance(self._action, Ask) and not self._has_come
        return self._throw(OfferedAnew()) if is_due else iter(())

    def _doing(self, *kinds: type) -> Any:
        action = self.action
        if not isinstance(action, kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            doing = "it has ended" if action is None else f"{type(action).__name__} is to be done"
            raise UsageError(f"this is the answer to {expected}, and {doing}")
        return action

    def _throw(self, error: Exception) -> Iterator[Any]:
        self._events = self._following(lambda: self._script.throw(error))
        return self._events

    def _go_on(self, answer: Any) -> Iterator[Any]:
        self._events = self._following(lambda: self._script.send(answer))
        return self._events

    def _following(self, step: Callable[[], Any]) -> Iterator[Any]:
        """Take the script to its next action, or its end; yield the events on the way."""
        self._is_settled = False
        try:
            item = step()
            while not isinstance(item, _ACTIONS):
                if item is ENOUGH:
                    self.has_enough = True
                else:
                    self._hear(item)
                    yield item
                item = next(self._script)
            if item is not self._action:
                self.has_enough = self._has_come = False
            self._action = item
        except StopIteration as end:
            self._action, self.result = None, cast(T, end.value)
        except BackendError as error:
            self._action, self.error = None, error
        self._is_settled = True
