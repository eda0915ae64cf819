"""A state machine without I/O: it says which action comes next, and its driver reports the outcome.

Its logic is written as a script, a generator that reads from top to bottom:

    generated = yield from generate(...)      # scripts can be nested
    first_token = yield Score(request)        # an action: the script continues once the driver has done it
    yield ReplyEnded(...)                     # anything else is an event: the script continues at once

A script yields the same action repeatedly while its outcome arrives in pieces: an `Ask` for each chunk, until `Ended`. A failure
is raised where the script waits for it, so that `try` and `except` work as usual. The idea is that of h11's connection
(https://h11.readthedocs.io): any program can drive it, with a socket, an event loop, or neither.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar, cast

from ..errors import BackendError, UsageError
from ..types.calls import Message, Tool, ToolCall
from ..types.completion import Chunk, CompletionRequest, FinishReason, Usage

T = TypeVar("T")
Kind = Literal["reply", "rest", "forced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Ask for the first token of a reply, with the probabilities of the alternatives.

    Args:
        request: everything that is sent; it generates one token.
        keep: whether the answer depends only on the model and the request, so that it may be cached for later turns.
    """

    request: CompletionRequest
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """The first token of a reply.

    Args:
        candidates: the likeliest tokens, each with the natural logarithm of its probability; empty if the server reports none.
        text: the token; "" if it is half a character.
        reasoning: text in the server's separate reasoning field.
        usage: the tokens that the request cost.
    """

    candidates: tuple[tuple[str, float], ...] = ()
    text: str = ""
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)

    @property
    def lacks_candidates(self) -> bool:
        """Whether the server reports no candidates; as it may ignore `max_tokens`, too, no more of the reply should be read."""
        return bool(self.text) and not self.candidates

    def after(self, chunk: Chunk) -> "FirstToken":
        """Add a piece of the reply.

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
        request: everything that is sent.
        kind: `rest` continues a reply that was cut inside a call; `forced` has to be one call, constrained by a JSON Schema.
    """

    request: CompletionRequest
    kind: Kind = "reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Run a call, if it is allowed.

    Args:
        call: the call, valid against the tool's schema.
        tool: the tool that is called.
        times: how often the same call was made in a row, including this time.
        unsaid: parameters whose values appear nowhere in the conversation, although the model was asked to check them.
        conversation: the messages before the call.
    """

    call: ToolCall
    tool: Tool
    times: int = 1
    unsaid: tuple[str, ...] = ()
    conversation: Sequence[Message] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """A call was not allowed.

    Args:
        reason: why, in words for the model.
        by: who or what decided.
    """

    reason: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The turn has ended.

    Args:
        reason: as `Answer.stop_reason`; or `failed`, `stopped`, or `tool_calls` if the caller has to run the calls.
        text: the last reply's visible text.
        conversation: the conversation to continue with; of a failed turn it may end with the user's message or with results.
        usage: the tokens of all replies.
        error: the failure of the model server, if it failed.
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
    """Raised in a script that waits for a reply: the tools have changed, so it has to ask again."""


ENOUGH: Final = object()
"""Yielded by a script when nothing useful can follow in the reply it reads."""

Action = Score | Ask | Run
_ACTIONS: Final = (Score, Ask, Run)
Script = Generator[Any, Any, T]
"""Yields actions and events, is sent the outcome of each action, and returns its result."""


class Machine(Generic[T]):
    """Runs a script.

    Each input returns an iterator over the events that follow from it. The script advances only as they are consumed; events that
    were not consumed are dropped at the next input.

    Attributes:
        error: the error with which the script failed, if it did.
        result: what the script returned; None before its end.
        has_enough: whether nothing useful can follow in the current reply, as far as its events were consumed: close its stream,
            and call `end`.
        is_demanding: whether the work between two events may take long, so that a driver with an event loop uses a thread.
    """

    def __init__(self, script: Script[T], hear: Callable[[Any], None] = lambda event: None) -> None:
        self.error: BackendError | None = None
        self.result: T | None = None
        self.has_enough = False
        self.is_demanding = False
        self._script, self._hear = script, hear
        self._is_settled = False  # the script waits at its action
        self._has_begun = False  # whether a piece of the current reply has arrived
        self._action: Action | None = None
        self._events = self._advance(lambda: next(script))

    @property
    def action(self) -> Action | None:
        """The action to do next; None once the script has ended."""
        for _ in self._events:
            pass
        return self._action

    def events(self) -> Iterator[Any]:
        """Return the events not consumed yet; at the beginning, those before the first action."""
        yield from self._events

    def scored(self, token: FirstToken) -> Iterator[Any]:
        """Process the answer to a `Score`.

        Raises:
            UsageError: no first token was requested, or the argument is not a FirstToken.
        """
        self._expect(Score)
        if not isinstance(token, FirstToken):
            raise UsageError(f"expected a FirstToken as the answer to Score, got {token!r:.80}")
        return self._send(token)

    def receive(self, chunk: Chunk) -> Iterator[Any]:
        """Process a piece of the requested reply; ignore it after `has_enough`.

        Raises:
            UsageError: no reply was requested, or the argument is not a Chunk.
        """
        self._expect(Ask)
        if not isinstance(chunk, Chunk):
            raise UsageError(f"expected a Chunk as the answer to Ask, got {chunk!r:.80}")
        self._has_begun = True
        return iter(()) if self.has_enough else self._send(chunk)

    def end(self, finish_reason: FinishReason | None = None, usage: Usage | None = None) -> Iterator[Any]:
        """Process the end of a whole reply, with what no piece had; for a reply that broke off, call `refuse`."""
        self._expect(Ask)
        return self._send(Ended(finish_reason=finish_reason, usage=usage))

    def refuse(self, error: BackendError) -> Iterator[Any]:
        """Process the failure of a request: depending on its kind the script makes another request, or ends with this error."""
        self._expect(Score, Ask)
        if not isinstance(error, BackendError):
            raise UsageError(f"expected a BackendError as the failure of a request, got {error!r:.80}")
        return self._throw(error)

    def note(self, happened: Any) -> Iterator[Any]:
        """Process an event of the call to run; its end comes last."""
        self._expect(Run)
        return self._send(happened)

    def close(self) -> None:
        """End the script; no action remains."""
        self._script.close()
        self._action, self._events = None, iter(())

    def ask_anew(self) -> Iterator[Any]:
        """Restart the request for a reply, unless a piece of the reply has arrived.

        A script that has not reached the request yet will make the new one anyway; a script that is reading a reply continues.
        """
        is_due = self._is_settled and isinstance(self._action, Ask) and not self._has_begun
        return self._throw(OfferedAnew()) if is_due else iter(())

    def _expect(self, *kinds: type) -> Any:
        action = self.action
        if not isinstance(action, kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            due = "nothing is left to do" if action is None else f"the next action is {type(action).__name__}"
            raise UsageError(f"this is the answer to {expected}, but {due}")
        return action

    def _throw(self, error: Exception) -> Iterator[Any]:
        self._events = self._advance(lambda: self._script.throw(error))
        return self._events

    def _send(self, answer: Any) -> Iterator[Any]:
        self._events = self._advance(lambda: self._script.send(answer))
        return self._events

    def _advance(self, step: Callable[[], Any]) -> Iterator[Any]:
        """Advance the script to its next action or its end; yield the events on the way."""
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
                self.has_enough = self._has_begun = False
            self._action = item
        except StopIteration as end:
            self._action, self.result = None, cast(T, end.value)
        except BackendError as error:
            self._action, self.error = None, error
        self._is_settled = True
