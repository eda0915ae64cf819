"""The loop: generate, parse, bind, approve, call, feed back, until a reply has no calls.

One loop serves any number of conversations at once; a conversation is the list of messages that goes in and comes out. The tool
prompt is not part of it: it precedes every request, always with the same characters, so that the server's prompt cache stays
valid. A reminder is part of the conversation (`turn.opening`).

The calls of one reply run one after the other, in the order written, because the second may depend on the effects of the first.
"""

import inspect
import logging
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, Self, Unpack, cast

from ..backends.base import Backend
from ..backends.connect import connect
from ..errors import UsageError
from ..hosts.base import Host
from ..hosts.local import LocalHost
from ..hosts.router import Router
from ..prompting.fit_context import Fitted, estimate
from ..prompting.format import PromptFormat
from ..prompting.results import LONG, piece_tokens, texts_of
from ..prompting.system import Budget, Scale, ToolPrompt, budget_for, native_tools_within, tool_prompt_within
from ..tools.catalog import Catalog
from ..turn.asking import Asking, AskingFields, ChosenWay, Mode
from ..turn.attempts import RepairPolicy, closed
from ..turn.events import Answer, CallFinished, LoopEvent, Shortened, StepEnded
from ..turn.opening import Opening, conversation_of
from ..turn.turn_setup import Offer, reading_on, with_reading_on
from ..types.calls import Message, ToolCall, ToolResult, items_of
from ..types.completion import Capabilities
from .drive import drive, new_call_id, prepare_beside
from .fitted_backend import FittedBackend
from .policy import Policy
from .rules import allow
from .run_call import Audit, Calling, OwnTool, resource_tools, taken_up
from .scores import Scores
from .way_check import check_way

log: Final = logging.getLogger("xmlcall.agent")
_NO_TOOLS: Final = Catalog(())
_KEPT: Final = 4  # prompts: with and without tools, in two formats


class _LoopFields(AskingFields, total=False):
    """The keywords of a loop beside its parameters; `max_turns` is the old name of `RepairPolicy.max_replies`."""

    max_turns: int


class ToolLoop:
    """Gives a model tools. Use it in an `async with` statement, which opens the backend and the hosts.

    Args:
        backend: a model, as from `connect`, or its name; then, without `asking`, its profile sets what `asked` leaves open.
        hosts: the tool servers, each with its own name, and Python functions, which become the tools of the server `local`.
        policy: decides whether a call may run; or globs over `server.tool` that may run, such as `["*"]`. By default none may.
        asking: how the model is asked; None for the defaults.
        repair: how many replies a run may have, and how often the model may try again; None for the defaults,
            with `asks_for_unsaid` for a model given by its name.
        timeout: seconds for each call; None leaves it to the host.
        audit: receives a note of each call before and after it runs, such as an `AuditFile`; if it raises, the call does not run.
        files: folder where pictures, sound and other data of results are saved; None to save none.
        asked: fields of `asking` as keywords, such as `mode="native"`.

    Raises:
        UsageError: a setting is invalid.
    """

    def __init__(
        self,
        backend: Backend | str,
        hosts: Iterable[Host | Callable[..., Any]] = (),
        *,
        policy: Policy | Iterable[str] = (),
        asking: Asking | None = None,
        repair: RepairPolicy | None = None,
        timeout: float | None = None,
        audit: Audit | None = None,
        files: Path | None = None,
        **asked: Unpack[_LoopFields],
    ) -> None:
        self.backend = _model_of(backend)
        self.router = Router(_tools_of(hosts))
        self.conversation: tuple[Message, ...] = ()  # after the last answer to `ask`; the next question continues it
        self.asking = asking or Asking()
        self._limits = repair or RepairPolicy(asks_for_unsaid=isinstance(backend, str))
        if (most := asked.pop("max_turns", None)) is not None:
            advice = "ToolLoop(max_turns=...) is now ToolLoop(repair=RepairPolicy(max_replies=...))"
            warnings.warn(advice, DeprecationWarning, stacklevel=2)
            self._limits = replace(self._limits, max_replies=most)
        self.policy: Policy = policy if callable(policy) else allow(policy)
        # For a model given by name, what the program set itself: the profile, known once it is open, sets the rest.
        self._given: AskingFields | None = {} if isinstance(backend, str) and asking is None else None
        self._calling = Calling(
            router=self.router, policy=self.policy, timeout=timeout, audit=audit, files=files, repair=self._limits
        )
        self._catalog: Catalog | None = None
        self._own, self._all = dict[str, OwnTool](), Catalog(())  # our own tools; all tools
        # Of the current tools: a turn has to be given other ones only if they are other objects.
        self._in_prompt, self._natively = lru_cache(_KEPT)(tool_prompt_within), lru_cache(_KEPT)(native_tools_within)
        self._with_reading_on = lru_cache(_KEPT)(with_reading_on)
        self._scale = Scale()
        self._cuts: set[Shortened] = set()  # reported already, because what is cut stays cut in later turns
        self._length = 0  # messages in the last conversation
        self._stack = AsyncExitStack()
        self.ask_by(**cast(AskingFields, asked))

    def ask_by(self, **asked: Unpack[AskingFields]) -> None:
        """Change how the model is asked, from the next run on, because the right settings may be known only once it is open.

        Args:
            asked: fields of `Asking` as keywords; the others stay as they are.

        Raises:
            UsageError: a setting is invalid.
        """
        if self._given is not None:
            self._given = {**self._given, **asked}
        self._set_asking(replace(self.asking, **asked))

    def _set_asking(self, asking: Asking) -> None:
        """Set how the model is asked, and forget what depends on that or on the model."""
        self.asking = asking
        self._calling = replace(self._calling, format=asking.format)
        self._scores = Scores()
        self._way: ChosenWay | None = None

    async def __aenter__(self) -> Self:
        """Open the hosts, then the backend, which may take long to load; meanwhile patterns compile in a thread."""
        async with AsyncExitStack() as stack:
            prepare_beside(stack)
            await stack.enter_async_context(self.router)
            await self.backend.__aenter__()
            stack.push_async_exit(self._leave_backend)
            if self._given is not None:
                self._set_asking(_by_profile(self.backend.capabilities, self._given))
                if self.asking.mode == "none":
                    log.warning('%s is shown no tools, as its profile says; mode="xml" shows them', self.backend.model)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    @property
    def mode(self) -> Mode:
        """How tools are currently offered to the model; `auto` before the check that decides it."""
        return self._way.mode if self._way else self.asking.mode

    async def way(self) -> ChosenWay:
        """Return how tools are offered to the model, and why; in mode `auto` the model server is checked at first use.

        Raises:
            BackendError: the model server failed.
        """
        if self._way is not None:
            return self._way
        mode = self.asking.mode
        if mode == "auto" and not len(await self.catalog()):
            return ChosenWay(mode="xml")  # nothing is offered, at least for now
        self._way = await check_way(self.backend) if mode == "auto" else ChosenWay(mode=mode)
        return self._way

    @property
    def format(self) -> PromptFormat:
        """The prompt format currently used."""
        return self._calling.format

    async def _leave_backend(self, *error: Any) -> None:
        await self.backend.__aexit__(*error)  # of the backend in use by then; what it returns must not hide an error

    async def change_model(self, backend: Backend) -> None:
        """Switch to another model, from the next run on; the settings stay as they are (see `ask_by`).

        Args:
            backend: the new backend, not yet open. The old one is closed once it has opened.

        Raises:
            BackendError: the new backend did not open; the old one stays in use.
        """
        await backend.__aenter__()
        before, self.backend = self.backend, backend
        self._scale = Scale()
        self._set_asking(self.asking)
        await before.__aexit__(None, None, None)

    async def catalog(self) -> Catalog:
        """Return the tools of the servers; list them again if a server reported a change."""
        if self._catalog is None or self.router.changed.is_set():
            self._catalog = Catalog(await self.router.tools())
            self._own = await resource_tools(self.router, self._catalog, self.format)
            own = [each.tool for each in self._own.values()]
            self._all = Catalog([*self._catalog, *own]) if own else self._catalog
        return self._catalog

    async def tool_prompt(self) -> ToolPrompt:
        """Return how the tools are offered in the current mode; determined again only if they change."""
        await self.catalog()
        return self._sent() if self.mode.startswith("native") else self._shown()

    def _shown(self) -> ToolPrompt:
        is_shown = self.mode != "none"
        catalog, instructions = (self._all, tuple(self.router.instructions())) if is_shown else (_NO_TOOLS, ())
        return self._in_prompt(self._budget, catalog, self.format, instructions)

    def _sent(self) -> ToolPrompt:
        return self._natively(self._budget, self._all, self.format)

    @property
    def _budget(self) -> Budget:
        return budget_for(self.backend.capabilities.context_length, self.asking.tool_tokens)

    async def ask(self, question: str, *, conversation: Sequence[Message | Mapping[str, Any]] | None = None) -> Answer:
        """Answer a question in the conversation of the questions before it; one that fails leaves the conversation as it was.

        Args:
            question: the user's message.
            conversation: what is continued in place of `conversation`; `[]` begins a new one.

        Raises:
            BackendError: the model server failed.
        """
        if not isinstance(question, str):
            raise UsageError(f"expected the question as text, got {question!r:.80}: a list of messages goes to `run`")
        before = self.conversation if conversation is None else items_of(conversation, "messages")
        async with aclosing(self.run([*before, Message(role="user", content=question)])) as events:
            async for event in events:
                if isinstance(event, Answer):
                    self.conversation = event.messages
                    return event
        raise AssertionError("a run ends with an Answer")

    async def run(
        self, messages: Sequence[Message | Mapping[str, Any]], *, on_stop: Callable[[tuple[Message, ...]], object] | None = None
    ) -> AsyncGenerator[LoopEvent]:
        """Continue a conversation until the model answers without a call.

        Args:
            messages: the conversation so far, the user's message last: `Answer.messages` of an earlier run, or `{"role",
                "content"}` dicts. A system message of your own comes first; it is kept, after the tool prompt.
            on_stop: receives the conversation so far if the run ends without an Answer, because the generator is closed or the
                model server fails. In it, a call that had started is marked as one that may or may not have run. The last message
                may be the user's or a result; it then needs an answer before the next question.

        Yields:
            Events as they happen, an Answer last. Closing the generator stops the generation, and cancels a running call.

        Raises:
            BackendError: the model server failed.
            UsageError: the messages are not a conversation that can continue.
        """
        opened, shortened = conversation_of(messages), list[Shortened]()
        if len(opened) <= self._length:  # another conversation
            self._cuts.clear()
        self._length = len(opened)
        backend = FittedBackend(self.backend, self._scale, lang=self.asking.lang, on_cut=partial(self._note_cut, shortened))
        asking = replace(self.asking, mode=(await self.way()).mode)
        opening, offer, calling = await self._opening(opened, opened, backend, asking)
        turn = opening.turn(offer, backend.capabilities, self._limits)
        driven = drive(
            turn,
            backend,
            scores=self._scores,
            run=lambda action: calling.run(action),  # looked up each time, because tools may change between replies
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
                        now = replace(asking, mode="xml") if turn.is_in_text else asking
                        opening, offer, calling = await self._opening(opened, turn.conversation, backend, now)
                        if offer.catalog is not turn.offer.catalog or opening.offered is not before:
                            turn.renew(offer, opening.put_in_place_of(before))
        finally:
            if on_stop is not None and not turn.stop_reason:
                on_stop((*turn.kept_before(), *turn.so_far()))
        assert turn.generated is not None
        text = turn.generated.reply.text
        yield Answer(text=text, stop_reason=turn.stop_reason, messages=turn.conversation, replies=turn.count, usage=turn.usage)

    def _note_cut(self, shortened: list[Shortened], fitted: Fitted) -> None:
        event = Shortened(results=fitted.cuts, messages=fitted.left_out)
        if event not in self._cuts:
            self._cuts.add(event)
            shortened.append(event)

    async def closed(
        self,
        messages: Sequence[Message],
        reply: Message | None = None,
        calls: Sequence[ToolCall] = (),
        ended: Mapping[str, ToolResult | None] | None = None,
    ) -> list[Message]:
        """Complete a conversation that was cut off inside a turn, so that the user can continue it.

        Args:
            messages: the messages of the last `StepEnded`, or those with which the turn began.
            reply: the message of the `ReplyEnded` after it, if there was one.
            calls: the calls of that reply.
            ended: maps the id of a call to its result, or to None if it had started but has none; a call that had not started is
                missing.
        """
        catalog, has_tool_role = await self.catalog(), self.backend.capabilities.tool_role is not False
        return closed(messages, reply, calls, ended or {}, catalog, self.format, has_tool_role=has_tool_role)

    async def taken_up(self, call: ToolCall, server: str, own_name: str, task: str) -> tuple[CallFinished | None, str]:
        """Fetch the outcome of a call that another program started and that the server runs as a task.

        Args:
            call: the call that had started.
            server: the server's name.
            own_name: the tool's own name there.
            task: the task, from the `CallTask` event.

        Returns:
            How the call ended, or None with the reason why that is unknown; "" if the server no longer knows the task.
        """
        return await taken_up(self._calling, call, server, own_name, task, await self.catalog())

    async def _opening(
        self, opened: Sequence[Message], conversation: Sequence[Message], backend: FittedBackend, asking: Asking
    ) -> tuple[Opening, Offer, Calling]:
        """Return a turn's opening and offer with the servers' current tools, and the object that runs their calls.

        The tool that reads the rest of a result is added once a result may be sent in part. The prompt never describes that tool;
        the note in place of the omitted text does.
        """
        await self.catalog()
        described = [text for _, text in self.router.instructions()]
        opening = Opening(messages=opened, asking=asking, described=described, new_id=new_call_id)
        opening, offer = opening.offering(self._shown, self._sent, self.backend.capabilities)
        describing = (self._sent() if asking.is_native else self._shown()).own
        if _may_be_cut(conversation, backend.context_length):
            catalog, backend.more = self._with_reading_on(offer.catalog, self.format)
            answer = reading_on(backend.more, self.format, lambda: piece_tokens(backend.context_length))
            offer = replace(offer, catalog=catalog, own={**offer.own, backend.more: answer})
        return opening, offer, replace(self._calling, catalog=offer.catalog, describing=describing, own=self._own)


def _may_be_cut(messages: Sequence[Message], context_length: int | None) -> bool:
    """Say whether a conversation has a long result, and may not fit into the context with tools and reply."""
    if not any(len(text) > LONG for text in texts_of(messages)):
        return False
    return context_length is None or estimate(messages) > context_length / 4


def _model_of(given: Backend | str) -> Backend:
    if isinstance(given, str):
        return connect(given)
    if not hasattr(given, "stream"):
        raise UsageError(f'expected a backend or a model\'s name, such as "local", got {given!r:.80}')
    return given


def _tools_of(given: Iterable[Host | Callable[..., Any]]) -> list[Host]:
    """Return the hosts; all functions become one, in the place of the first."""
    items = list(items_of(given, "hosts and functions"))
    functions = [each for each in items if inspect.isroutine(each)]
    own: list[Host] = [LocalHost(functions)] if functions else []
    hosts: list[Host] = []
    for each in items:
        if inspect.isroutine(each):
            hosts, own = [*hosts, *own], []
        elif hasattr(each, "call") and hasattr(each, "tools"):
            hosts.append(cast(Host, each))
        else:
            raise UsageError(f"expected a host, such as McpHost(...), or a Python function, got {each!r:.80}")
    return hosts


def _by_profile(capabilities: Capabilities, given: AskingFields) -> Asking:
    """Return how the profile of an open model asks it, beside what was given; as the commands do, at temperature 0."""
    from ..profiles.profile import asking_by, find

    usual, found = Asking(sampling="greedy"), find(capabilities.fingerprints, log.warning)
    if found is None or found.profile is None:
        return replace(usual, **given)
    return asking_by(usual, given, found.profile)
