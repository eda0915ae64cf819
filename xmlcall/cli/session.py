"""What `run` and `chat` share: from options to an open loop with its display."""

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ..backends.connect import connect
from ..loop import ToolLoop
from ..loop_events import Answer
from ..repair import RepairPolicy
from ..types import Message
from .approval import approval, approval_of_repeats, is_interactive
from .display import Display
from .inputs import checked_text
from .options import call_threshold_of
from .servers import described, hosts_of, servers_of
from .waiting import Opening

__all__ = ["Session", "open_session", "opening_messages", "stop_message"]

_DEMO_ONLY = ["demo.*"]


class Session:
    """An open loop and its display.

    Args:
        loop: open.
        display: of its events.
    """

    def __init__(self, loop: ToolLoop, display: Display) -> None:
        self.loop, self.display = loop, display

    async def tell_notices(self) -> None:
        """List the tools, and say what there is to know about the servers that was not said before."""
        await self.loop.catalog()
        for notice in self.loop.router.news():
            self.display.notice(notice)


@asynccontextmanager
async def open_session(options: argparse.Namespace, *, answers: bool = True) -> AsyncIterator[Session]:
    """Open the model and the servers.

    Args:
        options: from `add_model_options`.
        answers: whether answers go to standard output.

    Raises:
        UsageError: an option that cannot be.
        ToolHostError, BackendError: a server or the model did not open.
    """
    display = Display(live=sys.stdout.isatty(), answers=answers, verbose=options.verbose)
    opening = Opening(display.console)
    loop = _loop(options, display, opening)
    async with AsyncExitStack() as stack:
        async with opening:
            await stack.enter_async_context(loop)
        stack.callback(display.settle)
        session = Session(loop, display)
        await session.tell_notices()
        if options.mode == "native" and loop.backend.capabilities.native_tools is False:
            display.notice("the server says that this model has no function calling of its own; --mode xml works with any model")
        yield session


def _loop(options: argparse.Namespace, display: Display, opening: Opening) -> ToolLoop:
    servers = servers_of(options)
    backend = connect(options.model, context_length=options.context, progress=opening.progress)
    opening.model = backend.model or opening.model
    if options.verbose or (is_interactive() and options.mcp):
        for server in servers:
            display.line("", described(server), style="dim")
    return ToolLoop(
        backend,
        hosts_of(servers, options),
        mode=options.mode,
        policy=approval(_allowed(options), display),
        repair=RepairPolicy(on_repeat=approval_of_repeats(display)),
        max_turns=options.max_turns,
        parallel=options.parallel,
        reminder=options.reminder,
        call_threshold=call_threshold_of(options),
        lang=options.lang,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        seed=options.seed,
        timeout=options.timeout,
    )


def _allowed(options: argparse.Namespace) -> list[str]:
    """Return the globs that need no question: the demo server is ours, but a configured one may only call itself that."""
    if options.yes:
        return ["*"]
    return [*options.allow, *([] if options.mcp else _DEMO_ONLY)]


def opening_messages(options: argparse.Namespace) -> list[Message]:
    """Return what stands before the person's first question."""
    if options.system is None:
        return []
    return [Message(role="system", content=checked_text(options.system, "a system message"))]


_STOPS = {
    "invalid_calls": "no answer: the model's calls could not run, however often it was told why; take a larger model",
    "tool_errors": "no answer: one call after another failed; see the errors above, or ask in other words",
    "repeated_call": "no answer: the model made the same call again and again; ask in other words, or take a larger model",
}


def stop_message(answer: Answer, max_turns: int) -> str:
    """Say why a run did not end in a whole answer, and what to do; empty if it did.

    Args:
        answer: the end of the run.
        max_turns: the limit that it ran under.
    """
    if answer.stop_reason == "end":
        return "" if answer.text.strip() else "the model's answer is empty: ask in other words, or take a larger model"
    if answer.stop_reason == "max_turns":
        return f"no answer after {max_turns} replies: the model kept calling tools; allow more with --max-turns, or ask for less"
    if answer.stop_reason in _STOPS:
        return _STOPS[answer.stop_reason]
    if answer.stop_reason == "length":
        return "the reply was cut off at the limit of tokens: allow more with --max-tokens, or a larger context with --context"
    return f"expected a whole reply, the model server ended it early and gave as its reason {answer.stop_reason!r}"
