"""What comes of one call: it is checked, approved and run, and what happened becomes what the model is told.

A call runs only if it is valid, not repeated without end, and allowed by the policy.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..binding.echo import words_of
from ..errors import ToolHostError
from ..hosts.base import Host, OnProgress, OnTask
from ..hosts.router import Router
from ..prompting.format import ENGLISH, PromptFormat
from ..prompting.grades import ToolPrompt
from ..prompting.results import denial, failure, not_run, stopped
from ..schema.validation import find_issues, limited
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, Issue, Message, TextContent, Tool, ToolCall, ToolResult
from .attempts import Attempts
from .audited import Audit
from .events import CallDenied, CallFinished, CallProgress, CallRejected, CallStarted, CallTask, LoopEvent
from .kept_files import kept
from .own_tools import OwnTool, describing_tool
from .policy import Decision, Policy, Proposal
from .result_check import checked

__all__ = ["CALLER", "OURS", "UNKNOWN", "Calling", "misfit", "outcome"]

OURS: Final = "xmlcall"
"""Stands for a server's name where a tool is our own."""

UNKNOWN: Final = "(unknown)"
"""Stands for a server's name where it may be one of several."""

CALLER: Final = "(the caller)"
"""Stands for a server's name where the caller has run a tool."""

_REPEATED: Final = "repeated too often"  # by what a call is denied, for the record


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """How calls run.

    Args:
        router: where tools live.
        policy: asked about each call.
        timeout: seconds for each; None leaves it to the host.
        format: of the prompt, for what the model is told of a call that does not run.
        origins: where tools were when they were offered: one that is somewhere else by now does not run; None to run it anyhow.
        offered: how tools were offered; None where the prompt does not offer them.
        audit: is told of each call before it runs and after; None for nobody.
        files: folder for pictures, sound and other data of results; None to keep none.
        own: tools of our own, by the names under which they are offered.
        of_caller: tools that the caller runs: what they return is none of any server here.
    """

    router: Router
    policy: Policy
    timeout: float | None = None
    format: PromptFormat = ENGLISH
    origins: Mapping[str, tuple[Host, str]] | None = None
    offered: ToolPrompt | None = None
    audit: Audit | None = None
    files: Path | None = None
    own: Mapping[str, OwnTool] = field(default_factory=dict)
    of_caller: frozenset[str] = frozenset()

    async def run(
        self,
        call: ToolCall | InvalidCall,
        catalog: Catalog,
        attempts: Attempts,
        conversation: Sequence[Message] = (),
        unsaid: tuple[str, ...] = (),
    ) -> AsyncGenerator[LoopEvent]:
        """Check, approve and run a call.

        Args:
            call: as bound.
            catalog: what was offered.
            attempts: what the turn has tried so far.
            conversation: what stands before the call.
            unsaid: parameters whose values nobody said, although the model was told.

        Yields:
            CallRejected, or CallDenied, or CallStarted, CallTask and CallProgress as they come, and CallFinished.
        """
        tool = catalog.get(call.name)
        if isinstance(call, ToolCall) and tool is None:
            call = _not_offered(call)
        if isinstance(call, InvalidCall) or tool is None:
            assert isinstance(call, InvalidCall)
            yield CallRejected(call=call)
            return
        own = self._own_tool(call.name)
        if own is not None and not own.acts_as:
            async for event in self._answer(call, own, attempts, conversation):
                yield event
            return
        place = self.router.find(call.name)
        if own is None and (place is None or place != (self.origins or {call.name: place})[call.name]):
            yield self._gone(call)
            return
        proposal = self._proposal(call, tool, own, catalog, attempts.count(call), conversation)
        proposal = replace(proposal, unsaid=unsaid)
        host, host_tool = proposal.host, proposal.host_tool
        decision = await self._decide(proposal, attempts)
        if own is None and decision.allowed and self.router.find(call.name) != place:  # switched off, or another's by now
            yield self._gone(call)
            return
        note = ""
        if decision.allowed and decision.arguments is not None:
            call, note = self._changed(call, decision.arguments)
            problem = misfit(call.arguments, tool.name, catalog)
            host, host_tool = self._place(call, own)
            decision = replace(decision, allowed=not problem, reason=problem)
        if not decision.allowed:
            yield CallDenied(call=call, reason=decision.reason or denial("not_allowed", self.format), by=decision.by)
            return
        yield CallStarted(call=call, host=host, host_tool=host_tool, by=decision.by, reason=decision.reason)
        request = partial(own.answer, call.arguments, conversation) if own else None
        async with aclosing(self._running(call, tool, request)) as events:
            async for event in events:
                yield _with_note(event, note)

    def _proposal(
        self,
        call: ToolCall,
        tool: Tool,
        own: OwnTool | None,
        catalog: Catalog,
        times: int,
        conversation: Sequence[Message],
    ) -> Proposal:
        host, host_tool = self._place(call, own)
        return Proposal(
            call=call,
            tool=tool,
            host=host,
            host_tool=host_tool,
            times_in_a_row=times,
            conversation=conversation,
            server_of=self._server_of,
            described=lambda: self._described(catalog),
            beside=self._beside(catalog, host),
            run_beside=self.router.call,
        )

    def _gone(self, call: ToolCall) -> CallFinished:
        return CallFinished(call=call, result=ToolResult.error(not_run(denial("gone", self.format), self.format)))

    def _changed(self, call: ToolCall, arguments: Mapping[str, Any]) -> tuple[ToolCall, str]:
        """Return a call with other arguments, and what the model is told of that."""
        note = self.format.render("changed_call", arguments=dict(arguments)).strip()
        return replace(call, arguments=dict(arguments), repairs=()), note

    def _server_of(self, name: str) -> str:
        """Return the server of a tool; "" for the tool that describes tools. Results of some families do not name their tool."""
        if name and self.offered is not None and name == self.offered.own:
            return ""
        if name in self.of_caller:
            return CALLER
        found, hosts = self.router.find(name), self.router.hosts
        return found[0].name if found else hosts[0].name if len(hosts) == 1 else UNKNOWN

    def _beside(self, catalog: Catalog, host: str) -> dict[str, Tool]:
        """Return the tools of a server that are on offer, by their own names."""
        places = ((self.router.find(tool.name), tool) for tool in catalog)
        return {found[1]: tool for found, tool in places if found is not None and found[0].name == host}

    def _described(self, catalog: Catalog) -> Iterator[tuple[str, str]]:
        """Yield what servers say of themselves and of their tools."""
        yield from self.router.instructions()
        for tool in catalog:
            if found := self.router.find(tool.name):
                yield found[0].name, words_of(tool)

    def _own_tool(self, name: str) -> OwnTool | None:
        describing = describing_tool(self.offered) if self.offered is not None and name == self.offered.own else None
        return describing or self.own.get(name)

    def _place(self, call: ToolCall, own: OwnTool | None) -> tuple[str, str]:
        """Return a tool's server and its name there."""
        if own is not None:
            return own.server_of(call.arguments), own.acts_as
        host, host_tool = self.router.origin(call.name)
        return host.name, host_tool

    def is_own(self, name: str) -> bool:
        """Say whether a tool is one of ours whose call changes nothing, and nobody is asked about it."""
        own = self._own_tool(name)
        return own is not None and not own.acts_as

    async def _answer(
        self, call: ToolCall, own: OwnTool, attempts: Attempts, conversation: Sequence[Message]
    ) -> AsyncGenerator[LoopEvent]:
        if (times := attempts.count(call)) > attempts.policy.max_repeats:
            attempts.stop("repeated_call")
            yield CallDenied(call=call, reason=denial("repeated", self.format, count=times), by=_REPEATED)
            return
        yield CallStarted(call=call, host=OURS, host_tool=call.name, by="it only tells what is known")
        result = await own.answer(call.arguments, conversation)
        yield CallFinished(call=call, result=replace(result, call_id=call.id))

    async def _decide(self, proposal: Proposal, attempts: Attempts) -> Decision:
        limits = attempts.policy
        if proposal.times_in_a_row <= limits.max_repeats:
            return await self.policy(proposal)
        if limits.on_repeat is not None:
            return await limits.on_repeat(proposal)
        attempts.stop("repeated_call")
        return Decision(allowed=False, reason=denial("repeated", self.format, count=proposal.times_in_a_row), by=_REPEATED)

    async def _running(
        self, call: ToolCall, tool: Tool, request: Callable[[], Awaitable[ToolResult]] | None
    ) -> AsyncGenerator[CallProgress | CallTask | CallFinished]:
        """Run a call in a task, so that what it tells meanwhile can be passed on; it ends with the generator."""
        told = asyncio.Event()
        latest: list[CallProgress] = []
        tasks: list[CallTask] = []

        def progress(done: float, total: float | None, message: str) -> None:
            latest[:] = [CallProgress(call=call, done=done, total=total, message=message)]
            told.set()

        def is_task(task_id: str) -> None:
            tasks.append(CallTask(call=call, task=task_id))
            told.set()

        task = asyncio.create_task(self._result(call, tool, request, progress, is_task))
        task.add_done_callback(lambda _: told.set())
        try:
            while not task.done():
                await told.wait()
                told.clear()
                while tasks and not task.done():
                    yield tasks.pop()
                if latest and not task.done():
                    yield latest.pop()
            result, failure = task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})
        yield CallFinished(call=call, result=result, failure=failure)

    async def _result(
        self,
        call: ToolCall,
        tool: Tool,
        request: Callable[[], Awaitable[ToolResult]] | None,
        progress: OnProgress,
        on_task: OnTask,
    ) -> tuple[ToolResult, str]:
        """Run a call, by a request of our own or where it lives; a server that fails is an error for the model, not the end."""
        try:
            if request is not None:
                async with asyncio.timeout(self.timeout):
                    result = await request()
            else:
                result = await self.router.call(call.name, call.arguments, self.timeout, progress=progress, on_task=on_task)
        except ToolHostError as error:
            told = failure(error.reason, self.format, said=error.said)  # never its message: it can quote what a server prints
            return replace(ToolResult.error(told), call_id=call.id), str(error)
        except TimeoutError:
            told = failure("unknown", self.format, said="")
            return replace(ToolResult.error(told), call_id=call.id), f"no answer within {self.timeout:g} s"
        result = kept(checked(result, tool, self.format), self.files)
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


def when_stopped(
    calls: Iterable[ToolCall | InvalidCall], started: str, format: PromptFormat
) -> list[tuple[ToolCall | InvalidCall, ToolResult | None]]:
    """Return what the model is told of calls without a result, when their turn is ended from outside.

    Args:
        calls: of the reply.
        started: id of the one that had started, if one had.
        format: of the prompt.
    """

    def told(call: ToolCall | InvalidCall) -> ToolResult | None:
        text = stopped("running" if call.id == started else "not_begun", format)
        return None if isinstance(call, InvalidCall) else ToolResult.error(text)

    return [(call, told(call)) for call in calls]


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


def _with_note(event: CallProgress | CallTask | CallFinished, note: str) -> CallProgress | CallTask | CallFinished:
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
