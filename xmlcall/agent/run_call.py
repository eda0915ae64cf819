"""What comes of one call: it is checked, approved and run, and what happened becomes what the model is told.

A call runs only if it is valid, not repeated without end, and allowed by the policy.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from ..errors import ToolHostError
from ..hosts.base import Host, OnProgress
from ..hosts.router import Router
from ..prompting.format import ENGLISH, PromptFormat
from ..prompting.grades import ToolPrompt
from ..prompting.results import denial, failure, not_run
from ..schema.validation import find_issues, limited
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, Issue, Message, TextContent, ToolCall, ToolResult
from .attempts import Attempts
from .events import CallDenied, CallFinished, CallProgress, CallRejected, CallStarted, LoopEvent
from .policy import Decision, Policy, Proposal

__all__ = ["OURS", "UNKNOWN", "Calling", "misfit", "outcome"]

OURS: Final = "xmlcall"
"""Stands for a server's name where a tool is our own."""

UNKNOWN: Final = "(unknown)"
"""Stands for a server's name where it may be one of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """How calls run.

    Args:
        router: where tools live.
        policy: asked about each call.
        timeout: seconds for each; None leaves it to the host.
        format: of the prompt, for what the model is told of a call that does not run.
        origins: where tools were when they were offered: one that is somewhere else by now does not run; None to run it anyhow.
        offered: how tools were offered; it answers calls of the tool that describes them.
    """

    router: Router
    policy: Policy
    timeout: float | None = None
    format: PromptFormat = ENGLISH
    origins: Mapping[str, tuple[Host, str]] | None = None
    offered: ToolPrompt | None = None

    async def run(
        self, call: ToolCall | InvalidCall, catalog: Catalog, attempts: Attempts, conversation: Sequence[Message] = ()
    ) -> AsyncGenerator[LoopEvent]:
        """Check, approve and run a call.

        Args:
            call: as bound.
            catalog: what was offered.
            attempts: what the turn has tried so far.
            conversation: what stands before the call.

        Yields:
            CallRejected, or CallDenied, or CallStarted, CallProgress as it comes, and CallFinished.
        """
        tool = catalog.get(call.name)
        if isinstance(call, ToolCall) and tool is None:
            call = _not_offered(call)
        if isinstance(call, InvalidCall) or tool is None:
            assert isinstance(call, InvalidCall)
            yield CallRejected(call=call)
            return
        if self.is_own(call.name):
            async for event in self._describe(call, attempts):
                yield event
            return
        if self.origins is not None and self.router.find(call.name) != self.origins[call.name]:
            yield CallFinished(call=call, result=ToolResult.error(not_run(denial("gone", self.format), self.format)))
            return
        host, host_tool = self.router.origin(call.name)
        proposal = Proposal(
            call=call,
            tool=tool,
            host=host.name,
            host_tool=host_tool,
            times_in_a_row=attempts.count(call),
            conversation=conversation,
            server_of=self._server_of,
        )
        decision = await self._decide(proposal, attempts)
        note = ""
        if decision.allowed and decision.arguments is not None:
            call, note = self._changed(call, decision.arguments)
            problem = misfit(call.arguments, tool.name, catalog)
            decision = replace(decision, allowed=not problem, reason=problem)
        if not decision.allowed:
            yield CallDenied(call=call, reason=decision.reason or denial("not_allowed", self.format))
            return
        yield CallStarted(call=call, host=host.name, host_tool=host_tool)
        async with aclosing(self._running(call)) as events:
            async for event in events:
                yield _with_note(event, note)

    def _changed(self, call: ToolCall, arguments: Mapping[str, Any]) -> tuple[ToolCall, str]:
        """Return a call with other arguments, and what the model is told of that."""
        note = self.format.render("changed_call", arguments=dict(arguments)).strip()
        return replace(call, arguments=dict(arguments), repairs=()), note

    def _server_of(self, name: str) -> str:
        """Return the server of a tool; "" for our own. Results of some families do not name their tool."""
        if name and self.is_own(name):
            return ""
        found, hosts = self.router.find(name), self.router.hosts
        return found[0].name if found else hosts[0].name if len(hosts) == 1 else UNKNOWN

    def is_own(self, name: str) -> bool:
        """Say whether a tool is the one that describes tools: a call of it changes nothing, and nobody is asked."""
        return self.offered is not None and name == self.offered.own

    async def _describe(self, call: ToolCall, attempts: Attempts) -> AsyncGenerator[LoopEvent]:
        assert self.offered is not None
        if (times := attempts.count(call)) > attempts.policy.max_repeats:
            attempts.stop("repeated_call")
            yield CallDenied(call=call, reason=denial("repeated", self.format, count=times))
            return
        yield CallStarted(call=call, host=OURS, host_tool=call.name)
        text = TextContent(text=self.offered.describe(call.arguments))
        yield CallFinished(call=call, result=ToolResult(content=(text,), call_id=call.id))

    async def _decide(self, proposal: Proposal, attempts: Attempts) -> Decision:
        limits = attempts.policy
        if proposal.times_in_a_row <= limits.max_repeats:
            return await self.policy(proposal)
        if limits.on_repeat is not None:
            return await limits.on_repeat(proposal)
        attempts.stop("repeated_call")
        return Decision(allowed=False, reason=denial("repeated", self.format, count=proposal.times_in_a_row))

    async def _running(self, call: ToolCall) -> AsyncGenerator[CallProgress | CallFinished]:
        """Run a call in a task, so that what it tells meanwhile can be passed on; it ends with the generator."""
        told = asyncio.Event()
        latest: list[CallProgress] = []

        def progress(done: float, total: float | None, message: str) -> None:
            latest[:] = [CallProgress(call=call, done=done, total=total, message=message)]
            told.set()

        task = asyncio.create_task(self._result(call, progress))
        task.add_done_callback(lambda _: told.set())
        try:
            while not task.done():
                await told.wait()
                told.clear()
                if latest and not task.done():
                    yield latest.pop()
            result, failure = task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})
        yield CallFinished(call=call, result=result, failure=failure)

    async def _result(self, call: ToolCall, progress: OnProgress) -> tuple[ToolResult, str]:
        """Run a call; a server that fails is an error for the model, not the end of the run."""
        try:
            result = await self.router.call(call.name, call.arguments, self.timeout, progress=progress)
        except ToolHostError as error:
            told = failure(error.reason, self.format, said=error.said)  # never its message: it can quote what a server prints
            return replace(ToolResult.error(told), call_id=call.id), str(error)
        return replace(result, call_id=call.id), ""


def outcome(event: LoopEvent, format: PromptFormat) -> tuple[ToolCall | InvalidCall, ToolResult | None] | None:
    """Return a call and what the model is told of it, for the event with which the call ends; None for other events."""
    match event:
        case CallRejected(call=call):
            return call, None
        case CallDenied(call=denied, reason=reason):
            return denied, ToolResult.error(not_run(reason, format))
        case CallFinished(call=finished, result=result):
            return finished, result
    return None


def misfit(arguments: Mapping[str, Any], name: str, catalog: Catalog) -> str:
    """Say why arguments that no model wrote do not fit a tool; "" if they do.

    Args:
        arguments: JSON values.
        name: of a tool of the catalog.
        catalog: keeps the tool's schema ready.
    """
    validator = catalog.validator(name)
    if isinstance(validator, str):
        return validator
    with limited():  # a server's schema may be slow on purpose
        return " ".join(f"{issue.path}: {issue.message}" for issue in find_issues(validator, dict(arguments)))


def _with_note(event: CallProgress | CallFinished, note: str) -> CallProgress | CallFinished:
    """Say something to the model behind a result."""
    if not note or not isinstance(event, CallFinished):
        return event
    result = replace(event.result, content=(*event.result.content, TextContent(text=note)))
    return replace(event, result=result)


def _not_offered(call: ToolCall) -> InvalidCall:
    message = f"There is no tool {call.name!r}: no tools are offered."
    return InvalidCall(
        id=call.id, name=call.name, issues=(Issue(code="unknown-tool", got=call.name, message=message),), raw=call.raw
    )
