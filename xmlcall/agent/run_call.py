"""Runs the calls of a turn: asks the policy about each, and runs it or refuses it.

A call that a server runs as a task outlives the program that made it, so its result is fetched after a restart. The server's
report on the task then replaces "it is not known whether it ran". If the server is gone, has forgotten the task, or is not done
in time, the call keeps that state.

The audit note before a call is written when its `CallStarted` is passed on, and the call runs only after that event was consumed:
if the note fails, the call does not run. After the call there is always a note, even if the run was abandoned meanwhile.

Pictures, sound and other data of a result are saved to files, because a text model cannot see them but the user wants to.
Whatever a server sends, each file gets a name made here and an extension from a fixed table, is readable only by its owner, is
never executed, and has a limited size.

A tool's structured result is validated against the tool's output schema (MCP 2025-11-25, tools: clients SHOULD). The tool has
already run, so a mismatch loses nothing: model and user get a note with the result.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..binding.echo import words_of
from ..binding.provenance import ValueSource, provenance
from ..errors import ToolHostError
from ..hosts.base import Host, OnProgress, OnTask, Served
from ..hosts.router import Router
from ..private_folders import make_private
from ..prompting.format import ENGLISH, PromptFormat
from ..prompting.results import PICTURES, begins, decoded, denial, failure, mismatch, not_run, resource_list, stopped, unchecked
from ..prompting.system import free_name
from ..schema.references import limited
from ..schema.validation import compiled_as_mended, find_issues, issues_or_reason
from ..tools.catalog import Catalog
from ..turn.attempts import RepairPolicy
from ..turn.events import CallDenied, CallFinished, CallHeld, CallProgress, CallRejected, CallStarted, CallTask, LoopEvent
from ..turn.machine import Run
from ..turn.turn import Turn
from ..turn.turn_setup import OURS, text_result, words_for
from ..types.calls import (
    MISSING,
    AudioContent,
    CallNote,
    Content,
    EmbeddedResource,
    ImageContent,
    InvalidCall,
    Message,
    TextContent,
    Tool,
    ToolCall,
    ToolResult,
)
from .policy import Decision, Policy, Proposal

# -- tools of ours for the resources of servers ------------------------------------------------------------------------
# | tool | what it does | the policy is asked about |
# |---|---|---|
# | `list_resources` | lists the resources of a server | `server.list_resources` |
# | `read_resource` | reads one of these | `server.read_resource` |
#
# They are offered if a server actually has resources; declaring the capability is not enough. The built-in tools that need no
# server are in `turn.builtin_tools`.


PATIENCE: Final = 3.0  # seconds within which a server has to say whether it has resources
SHOWN: Final = 500  # the most resources that are listed for a model; if the list is still too long, it is sent in part

Answer = Callable[[Mapping[str, Any]], Awaitable[ToolResult]]  # answers a call from its arguments; fails with a `ToolHostError`


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTool:
    tool: Tool
    answer: Answer
    acts_as: str  # the tool name for the policy, even if the tool is offered under another name
    server_of: Callable[[Mapping[str, Any]], str]  # returns the server for the policy, from the arguments of a call


async def resource_tools(router: Router, catalog: Catalog, format: PromptFormat) -> dict[str, OwnTool]:
    """Return the tools that list and read resources, by offered name; none if no server has resources."""
    servers = router.having("resources")
    has = await asyncio.gather(*map(_has_resources, servers.values()))
    names = [name for name, has_any in zip(servers, has, strict=True) if has_any]
    if not names:
        return {}

    def server_of(arguments: Mapping[str, Any]) -> str:
        return str(arguments.get("server", names[0]))

    def served(arguments: Mapping[str, Any]) -> Served:
        found = router.having("resources").get(name := server_of(arguments))
        if found is None:
            raise ToolHostError(f"{name}: the server is gone", host=name)
        return found

    async def listed(arguments: Mapping[str, Any]) -> ToolResult:
        server = served(arguments)
        resources, templates = await asyncio.gather(server.resources(), server.resource_templates())
        notices = (*resources.notices, *templates.notices)
        return text_result(resource_list(resources.items, templates.items, notices, format, limit=SHOWN))

    async def read(arguments: Mapping[str, Any]) -> ToolResult:
        return await served(arguments).read_resource(arguments["uri"])

    server: dict[str, Any] = {"server": {"type": "string", "enum": names}} if len(names) > 1 else {}
    uri = {"uri": {"type": "string", "description": words_for("uri", format)}}
    tools = (("list_resources", server, listed), ("read_resource", server | uri, read))
    found: dict[str, OwnTool] = {}
    for acts_as, properties, answer in tools:
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        name, description = free_name(acts_as, catalog), words_for(acts_as, format)
        tool = Tool(name=name, description=description, input_schema=schema, annotations={"readOnlyHint": True})
        found[name] = OwnTool(tool=tool, answer=answer, acts_as=acts_as, server_of=server_of)
    return found


async def _has_resources(served: Served) -> bool:
    """Say whether a server has resources; one that does not answer in time counts as having none for now."""
    try:
        async with asyncio.timeout(PATIENCE):
            return bool((await served.resources()).items or (await served.resource_templates()).items)
    except (ToolHostError, TimeoutError):
        return False


# -- a call runs -------------------------------------------------------------------------------------------------------


UNKNOWN: Final = "(unknown)"  # the server name if it may be one of several
CALLER: Final = "(the caller)"  # the server name for a tool that the caller ran
NOTHING: Final = Catalog(())

_TO_SHOW: Final = "to show a person what another call would change"  # the reason for a call that no model made
_MOST_CHANGES: Final = 3  # changes of a tool's definition while the policy decides about a call
_TAKEN_UP: Final = "a task, after a restart"
_MOST_ISSUES: Final = 3  # reported; one wrong value often violates several rules
LARGEST_FILE: Final = 20_000_000  # bytes of a file
MOST_FILES: Final = 20  # files of one result

# Type -> how its data begins, and the file extension. "\0" matches any byte.
_ENDINGS: Final = {
    "audio/wav": (b"RIFF\0\0\0\0WAVE", ".wav"),
    "audio/x-wav": (b"RIFF\0\0\0\0WAVE", ".wav"),
    "audio/mpeg": (b"", ".mp3"),
    "audio/ogg": (b"OggS", ".ogg"),
    "audio/flac": (b"fLaC", ".flac"),
    "application/pdf": (b"%PDF-", ".pdf"),
    **PICTURES,
}

_Noted = CallStarted | CallFinished | CallDenied | CallRejected
Audit = Callable[[CallNote], None]  # records a note, and raises if it cannot; a call that has not started yet then does not run


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    router: Router
    policy: Policy
    catalog: Catalog = NOTHING
    timeout: float | None = None
    format: PromptFormat = ENGLISH
    origins: Mapping[str, tuple[Host, str]] | None = None  # when the tools were offered; one that has moved since does not run
    describing: str = ""  # the tool that describes tools
    audit: Audit | None = None
    files: Path | None = None  # folder where pictures, sound and other data of results are saved
    own: Mapping[str, OwnTool] = field(default_factory=dict)
    of_caller: frozenset[str] = frozenset()  # the caller runs them: their results come from no server here
    repair: RepairPolicy = field(default_factory=RepairPolicy)  # has the policy for repeated calls

    def run(self, action: Run) -> AsyncGenerator[LoopEvent]:
        events = self._run(action)
        return events if self.audit is None else audited(events, self.audit, self.router, action.tool, action.conversation)

    def noted(self, events: Iterable[LoopEvent], turn: Turn) -> Iterator[LoopEvent]:
        """Pass on the events of a turn; name the server of the calls that it refused itself, and record these and its answers."""
        for event in map(self._placed, events):
            if self.audit is not None and (note := self._note_of(event, turn)):
                self.audit(note)
            yield event

    def _placed(self, event: LoopEvent) -> LoopEvent:
        """Return the event; if its call does not run, with the tool's server, which the turn does not know."""
        if not isinstance(event, CallRejected | CallDenied | CallHeld) or event.host or event.call.name in self.of_caller:
            return event
        found = self.router.find(event.call.name)
        return replace(event, host=found[0].name, host_tool=found[1]) if found else event

    def _note_of(self, event: LoopEvent, turn: Turn) -> CallNote | None:
        if isinstance(event, CallStarted | CallFinished):
            if event.call.name not in turn.offer.own:
                return None
        elif not isinstance(event, CallRejected | CallDenied):
            return None
        note = note_of(event, self.router, turn.offer.catalog.get(event.call.name), turn.before_calls)
        if not isinstance(event, CallFinished):
            return note
        return replace(note, moment="ended", host=OURS, by="", result=event.result, seconds=0.0)

    async def _run(self, action: Run) -> AsyncGenerator[LoopEvent]:
        call = action.call
        own = self.own.get(call.name)
        place = self.router.find(call.name)
        if own is None and (place is None or (self.origins and place != self.origins[call.name])):
            yield self._gone(call)
            return
        proposal, decision = await self._judged(action)
        tool, host, host_tool = proposal.tool, proposal.host, proposal.host_tool
        if own is None and decision.allowed and self.router.find(call.name) != place:  # switched off, or moved to another server
            yield self._gone(call)
            return
        words = ""
        if decision.allowed and decision.arguments is not None:
            call = replace(call, arguments=dict(decision.arguments), repairs=())
            words = self.format.render("changed_call", arguments=call.arguments).strip()
            decision = await self._with_changes(replace(action, call=call), proposal, decision)
            host, host_tool = self._place(call)
        if not decision.allowed:
            reason = decision.reason or denial("not_allowed", self.format)
            yield CallDenied(call=call, reason=reason, by=decision.by, host=host, host_tool=host_tool)
            return
        yield CallStarted(call=call, host=host, host_tool=host_tool, by=decision.by, reason=decision.reason)
        request = partial(own.answer, call.arguments) if own else None
        async with aclosing(self._running(call, tool, request)) as events:
            async for event in events:
                yield replace(event, result=_with_words(event.result, words)) if isinstance(event, CallFinished) else event

    async def _judged(self, action: Run) -> tuple[Proposal, Decision]:
        """Ask the policy about a call, with the tool's current definition; ask again if that changes meanwhile."""
        tool = await self._described_now(action.tool)
        for _ in range(_MOST_CHANGES):
            proposal = self._proposal(replace(action, tool=tool))
            decision = await self._decide(proposal)
            now = tool if not decision.allowed else await self._described_now(action.tool)
            if now == tool:
                return proposal, decision
            tool = now
        return proposal, Decision(allowed=False, by="the tool changes")

    async def _with_changes(self, action: Run, before: Proposal, decision: Decision) -> Decision:
        """Check arguments that the policy changed: they must be valid; if they name another server, the policy decides again."""
        if problem := misfit(action.call.arguments, action.tool.name, self.catalog):
            return replace(decision, allowed=False, reason=problem)
        proposal = self._proposal(action)
        if proposal.host == before.host:
            return decision
        decision = await self._decide(proposal)  # our own tools act on the server that an argument names
        return replace(decision, allowed=decision.allowed and decision.arguments is None)

    async def _described_now(self, tool: Tool) -> Tool:
        """Return a tool with its current definition, because the user may have allowed an earlier one."""
        if tool.name in self.own or self.router.find(tool.name) is None:
            return tool
        now = await self.router.rewritten(tool.name)
        return tool if now is None else Catalog([now]).get(tool.name) or tool

    def _proposal(self, action: Run) -> Proposal:
        host, host_tool = self._place(action.call)
        return Proposal(
            call=action.call,
            tool=action.tool,
            host=host,
            host_tool=host_tool,
            times_in_a_row=action.times,
            conversation=action.conversation,
            server_of=self._server_of,
            described=self._described,
            beside=self._beside(host),
            run_beside=self._run_beside,
            unsaid=action.unsaid,
        )

    async def _run_beside(self, call: ToolCall, by: str, timeout: float | None) -> ToolResult:
        """Run a call whose result a policy needs; it is recorded like any other."""
        events = self._read(call, by, timeout)
        if self.audit is not None:
            events = audited(events, self.audit, self.router, self.catalog.get(call.name), ())
        async with aclosing(events):
            *_, finished = [event async for event in events]
        assert isinstance(finished, CallFinished)
        return finished.result

    async def _read(self, call: ToolCall, by: str, timeout: float | None) -> AsyncGenerator[LoopEvent]:
        host, host_tool = self._place(call)
        yield CallStarted(call=call, host=host, host_tool=host_tool, by=by, reason=_TO_SHOW)
        yield CallFinished(call=call, result=await self.router.call(call.name, call.arguments, timeout))

    def _gone(self, call: ToolCall) -> CallFinished:
        return CallFinished(call=call, result=ToolResult.error(not_run(denial("gone", self.format), self.format), by="program"))

    def _server_of(self, name: str) -> str:
        """Return the server of a tool, "" for the one that describes tools; it is `UNKNOWN` if it is gone or was not declared."""
        if name and name == self.describing:
            return ""
        if name in self.of_caller:
            return CALLER
        if found := self.router.find(name):
            return found[0].name
        hosts = self.router.hosts
        return hosts[0].name if name in self.own and len(hosts) == 1 else UNKNOWN

    def _beside(self, host: str) -> dict[str, Tool]:
        """Return the offered tools of a server, by their own names."""
        places = ((self.router.find(tool.name), tool) for tool in self.catalog)
        return {found[1]: tool for found, tool in places if found is not None and found[0].name == host}

    def _described(self) -> Iterator[tuple[str, str]]:
        """Yield the servers' descriptions of themselves and their tools, each with the server's name."""
        yield from self.router.instructions()
        for tool in self.catalog:
            if found := self.router.find(tool.name):
                yield found[0].name, words_of(tool)

    def _place(self, call: ToolCall) -> tuple[str, str]:
        if own := self.own.get(call.name):
            return own.server_of(call.arguments), own.acts_as
        host, host_tool = self.router.origin(call.name)
        return host.name, host_tool

    async def _decide(self, proposal: Proposal) -> Decision:
        on_repeat = self.repair.on_repeat if proposal.times_in_a_row > self.repair.max_repeats else None
        decision: Decision = await (on_repeat or self.policy)(proposal)
        return decision

    async def _running(
        self, call: ToolCall, tool: Tool, request: Callable[[], Awaitable[ToolResult]] | None
    ) -> AsyncGenerator[CallProgress | CallTask | CallFinished]:
        """Run a call in a task, so that its progress can be passed on meanwhile; the task ends with the generator."""
        reported = asyncio.Event()
        latest: list[CallProgress] = []
        tasks: list[CallTask] = []

        def progress(done: float, total: float | None, message: str) -> None:
            latest[:] = [CallProgress(call=call, done=done, total=total, message=message)]
            reported.set()

        def is_task(task_id: str) -> None:
            tasks.append(CallTask(call=call, task=task_id))
            reported.set()

        task = asyncio.create_task(self._result(call, tool, request, progress, is_task))
        task.add_done_callback(lambda _: reported.set())
        try:
            while not task.done():
                await reported.wait()
                reported.clear()
                while tasks and not task.done():
                    yield tasks.pop()
                if latest and not task.done():
                    yield latest.pop()
            result, failure = task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})
        yield CallFinished(call=call, result=replace(result, call_id=call.id), failure=failure)

    async def _result(
        self,
        call: ToolCall,
        tool: Tool,
        request: Callable[[], Awaitable[ToolResult]] | None,
        progress: OnProgress,
        on_task: OnTask,
    ) -> tuple[ToolResult, str]:
        """Run a call, by a request of our own or at its server; if that fails, the model gets an error and the run continues."""
        try:
            if request is not None:
                async with asyncio.timeout(self.timeout):
                    result = await request()
            else:
                result = await self.router.call(call.name, call.arguments, self.timeout, progress=progress, on_task=on_task)
        except ToolHostError as error:
            text = failure(error.reason, self.format, said=error.said)  # not its message, which can quote a server's output
            return ToolResult.error(text), str(error)
        except TimeoutError:
            return ToolResult.error(failure("unknown", self.format, said="")), f"no answer within {self.timeout:g} s"
        return kept(checked(result, tool, self.format), self.files), ""


def misfit(arguments: Mapping[str, Any], name: str, catalog: Catalog) -> str:
    """Say why edited arguments are not valid for a tool; "" if they are."""
    validator = catalog.validator(name)
    if isinstance(validator, str):
        return validator
    with limited():  # a server's schema may be slow on purpose
        return " ".join(f"{issue.path}: {issue.message}" for issue in find_issues(validator, dict(arguments)))


def _with_words(result: ToolResult, words: str) -> ToolResult:
    return replace(result, content=(*result.content, TextContent(text=words))) if words else result


async def taken_up(
    calling: Calling, call: ToolCall, server: str, own_name: str, task: str, catalog: Catalog
) -> tuple[CallFinished | None, str]:
    """Fetch the outcome of a call that a server runs as a task (see `ToolLoop.taken_up`)."""
    try:
        found = await calling.router.task_result(server, own_name, task, calling.timeout)
    except ToolHostError as error:
        if error.reason != "error":
            return None, str(error)
        result, why = ToolResult.error(failure(error.reason, calling.format, said=error.said)), str(error)
    else:
        if found == "unknown":
            return None, ""
        tool = catalog.get(call.name)
        result = found if isinstance(found, ToolResult) else ToolResult.error(stopped("cancelled", calling.format))
        result, why = kept(checked(result, tool, calling.format) if tool else result, calling.files), ""
    result = replace(result, call_id=call.id)
    if calling.audit is not None:
        note = CallNote(moment="ended", call=call, host=server, host_tool=own_name, by=_TAKEN_UP)
        calling.audit(replace(note, result=result, failure=why))
    return CallFinished(call=call, result=result, failure=why), ""


def checked(result: ToolResult, tool: Tool, format: PromptFormat) -> ToolResult:
    """Return a result, with a note if its structured content does not match the tool's output schema."""
    if tool.output_schema is None or result.is_error:
        return result
    return _with_words(result, _output_problem(result, tool, format))


def _output_problem(result: ToolResult, tool: Tool, format: PromptFormat) -> str:
    if result.structured_content is MISSING:
        return mismatch("it is missing.", format)
    validator = compiled_as_mended(tool.output_schema)
    issues = validator if isinstance(validator, str) else issues_or_reason(validator, result.structured_content)
    if isinstance(issues, str):  # the schema is at fault, so the result cannot be checked
        return unchecked(format)
    problem = " ".join(f"{issue.path}: {issue.message}" for issue in issues[:_MOST_ISSUES])
    return mismatch(problem, format) if problem else ""


# -- notes for an audit ------------------------------------------------------------------------------------------------------


async def audited(
    events: AsyncGenerator[LoopEvent], audit: Audit, router: Router, tool: Tool | None, conversation: Sequence[Message]
) -> AsyncGenerator[LoopEvent]:
    started: CallNote | None = None  # once it is recorded
    ended: CallNote | None = None
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, CallStarted):
                    note = note_of(event, router, tool, conversation)
                    audit(note)
                    started, begun = note, time.monotonic()
                elif isinstance(event, CallFinished) and started is not None:
                    took = time.monotonic() - begun
                    ended = replace(started, moment="ended", result=event.result, failure=event.failure, seconds=took)
                elif isinstance(event, CallFinished):
                    audit(note_of(event, router, tool, conversation))
                yield event
    finally:
        if started is not None:
            audit(ended or replace(started, moment="interrupted", seconds=time.monotonic() - begun))


def note_of(event: _Noted, router: Router, tool: Tool | None, conversation: Sequence[Message]) -> CallNote:
    call = event.call
    if isinstance(event, CallStarted):
        server, own_name = event.host, event.host_tool
    else:
        found = router.find(call.name)
        server, own_name = (found[0].name, found[1]) if found else ("", call.name)
    named: dict[str, Any] = {"call": call, "host": server, "host_tool": own_name}
    if isinstance(call, InvalidCall):
        return CallNote(moment="rejected", **named)
    found_in = provenance(call, conversation, [tool] if tool else [])
    named["sources"] = {path: _told(source) for path, source in found_in.items()}
    match event:
        case CallStarted(by=by, reason=reason):
            return CallNote(moment="starts", by=by, reason=reason, **named)
        case CallDenied(by=by, reason=reason):
            return CallNote(moment="denied", by=by, reason=reason, **named)
    assert isinstance(event, CallFinished)
    return CallNote(moment="denied", by="the tool is gone", result=event.result, **named)  # it had not started


def _told(source: ValueSource) -> dict[str, Any]:
    return {name: part for name, part in asdict(source).items() if part is not False and part not in (None, "")}


# -- data of results, in files -----------------------------------------------------------------------------------------------


def kept(result: ToolResult, folder: Path | None) -> ToolResult:
    """Write the data of a result to files, whose paths its blocks then have; a block that could not be saved has none."""
    if folder is None:
        return result
    left, blocks = MOST_FILES, list[Content]()
    for block in result.content:
        if isinstance(block, ImageContent | AudioContent | EmbeddedResource) and left:
            path = _written(block, folder)
            left, block = left - bool(path), replace(block, path=path) if path else block
        blocks.append(block)
    return replace(result, content=tuple(blocks))


def _written(block: ImageContent | AudioContent | EmbeddedResource, folder: Path) -> str:
    """Write a block's data to a file; return the path, "" if there is no data or that fails."""
    packed = (block.blob if block.text is None else None) if isinstance(block, EmbeddedResource) else block.data
    data = None if packed is None else decoded(packed, LARGEST_FILE)
    if data is None:
        return ""
    begin, ending = _ENDINGS.get(block.mime_type, (b"", ".bin"))
    if not begins(data, begin):
        ending = ".bin"  # which no program opens by itself
    path = folder / f"{hashlib.sha256(data).hexdigest()[:16]}{ending}"
    try:
        make_private(folder)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except FileExistsError:  # the same data, because the name is its hash
        return str(path) if path.is_file() else ""
    except OSError:  # for example a full disk, or another user's folder
        return ""
    return str(path)
