"""The loop: generate, parse, bind, approve, call, feed back, until a reply has no call.

One loop serves any number of conversations at once; a conversation is the list of messages that goes in and comes out. The tool
prompt is not part of it: it is written in front of every request, the same characters each time, so that the server's prompt
cache holds. A reminder is part of it (`turn.opening`).

Calls of one reply run one after the other, in the order written: the second may rely on what the first did to the world.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from ..backends.base import Backend
from ..errors import UsageError
from ..hosts.base import Host
from ..hosts.router import Router
from ..prompting.fit_context import Fitted, estimate
from ..prompting.format import PromptFormat
from ..prompting.grades import ToolPrompt, budget_for, tool_prompt_within
from ..prompting.results import LONG, piece_tokens, texts_of
from ..prompting.tokens import Scale
from ..tools.catalog import Catalog
from ..turn.asking import Asking, AskingFields, Mode
from ..turn.attempts import RepairPolicy
from ..turn.builtin_tools import Answering, describing, more_tool
from ..turn.events import Answer, CallFinished, LoopEvent, Shortened, StepEnded
from ..turn.opening import Opening, conversation_of
from ..turn.outcomes import closed
from ..turn.turn_setup import Limits, Offer
from ..types.calls import Message, ToolCall, ToolResult
from .audited import Audit
from .drive import Scores, drive, new_id
from .fitted_backend import FittedBackend
from .own_tools import OwnTool, resource_tools
from .policy import Policy
from .rules import allow
from .run_call import Calling, taken_up

__all__ = ["ToolLoop"]


class ToolLoop:
    """Gives a model tools. Open it with `async with`: that opens the backend and the hosts.

    Args:
        backend: a model, as from `connect`.
        hosts: where tools live; each with its own name.
        policy: asked before each call; or globs over `server.tool` that may run, such as `["*"]`. By default nothing may.
        asking: how the model is asked; None for the defaults.
        repair: how often the model may try again, and what is kept of it.
        max_turns: replies in one run.
        timeout: seconds for each call; None leaves it to the host.
        audit: is told of each call before it runs and after, such as an `AuditFile`; where it raises, the call does not run.
        files: folder for pictures, sound and other data in results; None to keep none.
        asked: fields of `asking` by their names, such as `mode="native"`.

    Raises:
        UsageError: a setting that cannot be.
    """

    def __init__(
        self,
        backend: Backend,
        hosts: Iterable[Host] = (),
        *,
        policy: Policy | Iterable[str] = (),
        asking: Asking | None = None,
        repair: RepairPolicy | None = None,
        max_turns: int = 10,
        timeout: float | None = None,
        audit: Audit | None = None,
        files: Path | None = None,
        **asked: Unpack[AskingFields],
    ) -> None:
        if max_turns < 1:
            raise UsageError(f"max_turns must be at least 1, got {max_turns}")
        self.backend = backend
        self.router = Router(hosts)
        self.asking = asking or Asking()
        self._limits = Limits(repair=repair or RepairPolicy(), max_turns=max_turns)
        policy = policy if callable(policy) else allow(policy)
        calling = Calling(
            router=self.router, policy=policy, timeout=timeout, audit=audit, files=files, repair=self._limits.repair
        )
        self._calling = calling
        self._catalog: Catalog | None = None
        self._own: dict[str, OwnTool] = {}
        self._all = Catalog(())  # with our own tools
        self._longer: tuple[Catalog, Catalog, str, Answering] | None = None  # a catalog, and the same with the tool to read on
        self._scale = Scale()
        self._told = _ToldCuts()
        self._stack = AsyncExitStack()
        self.ask_by(**asked)

    def ask_by(self, **asked: Unpack[AskingFields]) -> None:
        """Ask the model in another way, from the next run on: what is right for it may be known only once it is open.

        Args:
            asked: fields of `Asking` by their names; the others stay.

        Raises:
            UsageError: a setting that cannot be.
        """
        self.asking = replace(self.asking, **asked)
        self._calling = replace(self._calling, format=self.asking.format)
        self._offered: tuple[Catalog, dict[str, str], ToolPrompt] | None = None
        self._scores = Scores()

    async def __aenter__(self) -> Self:
        """Open the hosts, then the backend (it may take long to load)."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.router)
            await self.backend.__aenter__()
            stack.push_async_exit(self._leave_backend)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close everything."""
        await self._stack.__aexit__(kind, error, trace)

    @property
    def mode(self) -> Mode:
        """How tools are offered to the model by now."""
        return self.asking.mode

    @property
    def format(self) -> PromptFormat:
        """How the model is spoken to by now."""
        return self._calling.format

    async def _leave_backend(self, *error: Any) -> None:
        await self.backend.__aexit__(*error)

    async def change_model(self, backend: Backend) -> None:
        """Go on with another model, from the next run on; how it is asked stays (see `ask_by`).

        Args:
            backend: not yet open. The one before is closed once this one has opened.

        Raises:
            BackendError: it did not open; the one before stays.
        """
        await backend.__aenter__()
        before, self.backend = self.backend, backend
        self._offered, self._scale, self._scores = None, Scale(), Scores()
        await before.__aexit__(None, None, None)

    async def catalog(self) -> Catalog:
        """Return the tools of the servers, listed again if one said that they changed."""
        if self._catalog is None or self.router.changed.is_set():
            self._catalog = Catalog(await self.router.tools())
            self._own = await resource_tools(self.router, self._catalog, self.format)
            own = [each.tool for each in self._own.values()]
            self._all = Catalog([*self._catalog, *own]) if own else self._catalog
        return self._catalog

    async def system_prompt(self) -> str:
        """Return the tool prompt as the model gets it in mode `xml`."""
        return (await self.tool_prompt()).system

    async def tool_prompt(self) -> ToolPrompt:
        """Return how the tools on offer are described to the model in mode `xml`; rendered once for the same tools."""
        await self.catalog()
        catalog, instructions = self._all, dict(self.router.instructions())
        if self._offered is None or self._offered[0] is not catalog or self._offered[1] != instructions:
            budget = budget_for(self.backend.capabilities.context_length, self.asking.tool_tokens)
            offered = tool_prompt_within(budget, catalog, self.format, instructions=instructions)
            self._offered = (catalog, instructions, offered)
        return self._offered[2]

    async def ask(self, question: str) -> Answer:
        """Run a conversation of one question to its end.

        Args:
            question: the person's words.

        Raises:
            BackendError: the model server failed.
        """
        async with aclosing(self.run([Message(role="user", content=question)])) as events:
            async for event in events:
                if isinstance(event, Answer):
                    return event
        raise AssertionError("a run ends with an Answer")

    async def run(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        *,
        on_stop: Callable[[tuple[Message, ...]], None] | None = None,
    ) -> AsyncGenerator[LoopEvent]:
        """Go on with a conversation until the model answers without a call.

        Args:
            messages: what was said so far, the person's message last; `Answer.messages` of an earlier run, or
                `{"role", "content"}` dicts. A system message of your own comes first and is kept, after the tool prompt.
            on_stop: if the run ends without an Answer (the generator is closed, or the model server fails), it is given the
                conversation so far: a call that had started counts as one of which nobody knows whether it ran. The last message
                may be the person's or a result; somebody has to answer it before the next question.

        Yields:
            Events as they happen, an Answer last. Closing the generator ends the generation, and tells the server of a running
            call.

        Raises:
            BackendError: the model server failed.
            UsageError: the messages are not a conversation that can go on.
        """
        opened = conversation_of(messages)
        shortened: list[Shortened] = []
        on_cut = self._told.teller(len(opened), shortened)
        backend = FittedBackend(self.backend, self._scale, lang=self.asking.lang, on_cut=on_cut)
        opening, offer, calling = await self._opening(opened, opened, backend)
        turn = opening.turn(offer, backend.capabilities, self._limits)
        driven = drive(
            turn,
            backend,
            scores=self._scores,
            run=lambda action: calling.run(action),  # that of now: tools may change between replies
            hear=lambda events: calling.noted(events, turn),
        )
        try:
            async with aclosing(driven) as events:
                async for event in events:
                    while shortened:
                        yield shortened.pop()
                    if not isinstance(event, StepEnded):
                        yield event
                        continue
                    yield replace(event, messages=turn.conversation)
                    if not turn.stop_reason:
                        before = opening.offered
                        opening, offer, calling = await self._opening(opened, turn.conversation, backend)
                        if offer.catalog is not turn.offer.catalog or opening.offered is not before:
                            turn.renew(offer, opening.put_in_place_of(before))
        finally:
            if on_stop is not None and not turn.stop_reason:
                on_stop((*turn.kept_before(), *turn.so_far()))
        assert turn.generated is not None
        text = turn.generated.reply.text
        yield Answer(text=text, stop_reason=turn.stop_reason, messages=turn.conversation, turns=turn.count, usage=turn.usage)

    async def closed(
        self,
        messages: Sequence[Message],
        reply: Message | None = None,
        calls: Sequence[ToolCall] = (),
        ended: Mapping[str, ToolResult | None] | None = None,
    ) -> list[Message]:
        """Return a conversation that was cut off inside a turn, in a form that can go on with the person's words.

        Args:
            messages: of the last `StepEnded`, or those with which the turn began.
            reply: the message of the `TurnEnded` behind it, if there was one.
            calls: of that reply.
            ended: id of a call -> its result; None for one that had started and has none; without a key it had not started.
        """
        catalog, has_tool_role = await self.catalog(), self.backend.capabilities.tool_role is not False
        return closed(messages, reply, calls, ended or {}, catalog, self.format, has_tool_role=has_tool_role)

    async def taken_up(self, call: ToolCall, server: str, own_name: str, task: str) -> tuple[CallFinished | None, str]:
        """Ask what became of a call that its server runs as a task, and that another program had started.

        Args:
            call: that had started.
            server: its name.
            own_name: of the tool there.
            task: as in the `CallTask` of that time.

        Returns:
            How the call ended; None if that is not known, and why, "" if the server does not know the task any more.
        """
        return await taken_up(self._calling, call, server, own_name, task, await self.catalog())

    async def _opening(
        self, opened: Sequence[Message], conversation: Sequence[Message], backend: FittedBackend
    ) -> tuple[Opening, Offer, Calling]:
        """Return a turn's opening with the tools that the servers have now, and what runs them.

        Where no prompt offers tools, they are as their servers list them. With them stands the tool to read on, once there is a
        result that may be sent in part. The prompt never describes it: the note in the place of what is left out does.
        """
        offered = None if self.asking.is_native else await self.tool_prompt()
        await self.catalog()
        catalog, own = offered.catalog if offered else self._all, describing(offered)
        if _may_be_cut(conversation, backend.context_length):
            if self._longer is None or self._longer[0] is not catalog:
                tool, answer = more_tool(catalog, self.format, lambda: piece_tokens(backend.context_length))
                self._longer = (catalog, Catalog([*catalog, tool]), tool.name, answer)
            _, catalog, backend.more, answer = self._longer
            own = {**own, backend.more: answer}
        described = [text for _, text in self.router.instructions()]
        opening = Opening(messages=opened, asking=self.asking, offered=offered, described=described, new_id=new_id)
        calling = replace(self._calling, catalog=catalog, describing=offered.own if offered else "", own=self._own)
        return opening, Offer(catalog=catalog, own=own), calling


def _may_be_cut(messages: Sequence[Message], context_length: int | None) -> bool:
    """Say whether a conversation has a long result, and may not fit into the context with tools and reply."""
    if not any(len(text) > LONG for text in texts_of(messages)):
        return False
    return context_length is None or estimate(messages) > context_length / 4


@dataclass(slots=True)
class _ToldCuts:
    """The cuts that were told: what is cut stays cut in the turns that follow, and is told once.

    Args:
        length: of that, in messages; one that is not longer is another one.
    """

    events: set[Shortened] = field(default_factory=set)
    length: int = 0

    def teller(self, length: int, shortened: list[Shortened]) -> Callable[[Fitted], None]:
        """Return what notes how requests of a run are shortened."""
        if length <= self.length:
            self.events.clear()
        self.length = length

        def tell(fitted: Fitted) -> None:
            event = Shortened(results=fitted.cuts, messages=fitted.left_out)
            if event not in self.events:
                self.events.add(event)
                shortened.append(event)

        return tell
