"""Drives a turn without an event loop; `agent.drive` does the same with one."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from ..errors import BackendError
from ..types.calls import ToolCall, ToolResult
from ..types.completion import Chunk, CompletionRequest
from .machine import Ask, Denied, Done, FirstToken, Run, Score
from .turn import Turn

Stream = Callable[[CompletionRequest], Iterable[Chunk]]
RunCall = Callable[[ToolCall], "ToolResult | str | Denied"]


def run_turn(turn: Turn, stream: Stream, run: RunCall, hear: Callable[[Any], None] = lambda event: None) -> Done:
    """Drive a turn to its end.

    Args:
        turn: from `begin_turn`.
        stream: generates a reply; raises a `BackendError` if the server refuses or fails. If it is a generator, it is closed once
            nothing useful can follow.
        run: runs a call that is valid against its tool's schema, or returns `Denied`. It does not receive calls that write values
            which appear nowhere in the conversation.
        hear: receives each event as it happens.

    Returns:
        How the turn ended; failures are returned, not raised.
    """
    events = turn.events()
    while True:
        for event in events:
            hear(event)
        action = turn.next()
        if isinstance(action, Done):
            return action
        if isinstance(action, Run) and (reason := turn.why_not(action)):
            events = turn.give(action.call.id, Denied(reason=reason))
        elif isinstance(action, Run):
            for event in turn.start(action.call.id):
                hear(event)
            events = turn.give(action.call.id, run(action.call))
        else:
            events = _asked(turn, action, stream, hear)


def _asked(turn: Turn, action: Score | Ask, stream: Stream, hear: Callable[[Any], None]) -> Iterator[Any]:
    """Ask the model, and pass its output to the turn; return the remaining events."""
    try:
        if isinstance(action, Score):
            return turn.scored(_first_token(stream, action.request))
        with _closing(chunks := stream(action.request)):
            for chunk in chunks:
                for event in turn.receive(chunk):
                    hear(event)
                if turn.has_enough:
                    break
        return turn.end()
    except BackendError as error:
        return turn.refuse(error)


def _first_token(stream: Stream, request: CompletionRequest) -> FirstToken:
    token = FirstToken()
    with _closing(chunks := stream(request)):
        for chunk in chunks:
            token = token.after(chunk)
            if token.lacks_candidates:
                break
    return token


def _closing(chunks: Iterable[Chunk]) -> AbstractContextManager[Any]:
    return closing(chunks) if isinstance(chunks, Generator) else nullcontext()
