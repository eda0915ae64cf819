"""The loop: generate, parse, bind, approve, call, feed back, until a reply has no call.

One loop serves any number of conversations at once; a conversation is the list of messages that goes in and comes out. The tool
prompt is not part of it: it is rendered from the catalog in front of every request, the same characters each time, so that the
server's prompt cache holds. The reminder is part of it, at the end of the person's message, and stays there for the same reason.
Where it was decided whether the message needs a tool (`tool_need`), there is no such reminder: the reply is begun for the model,
or plain words are asked for in the requests of this turn only, since a model that reads it in its history goes on in plain words.

Calls of one reply run one after the other, in the order written: the second may rely on what the first did to the world.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args

from ..backends.base import Backend
from ..binding.echo import Sources, words_of
from ..errors import UsageError
from ..hosts.base import Host
from ..hosts.router import Router
from ..prompting import system as prompt
from ..prompting.fit_context import Fitted, Scale, estimate
from ..prompting.format import PromptFormat
from ..prompting.grades import ToolPrompt, budget_for, tool_prompt_within
from ..prompting.more import LONG, piece_tokens, texts_of
from ..prompting.placement import with_fitting, with_reminder, with_system, without_reminder
from ..prompting.result_frame import is_result_message
from ..prompting.without_calls import without_calls
from ..tools.catalog import Catalog
from ..turn.attempts import RepairPolicy
from ..turn.events import Answer, CallFinished, LoopEvent, Shortened, StepEnded
from ..turn.first_request import FirstRequest, Forms, decide
from ..turn.machine import Script
from ..turn.tool_need import Threshold, checked_threshold
from ..turn.turn import Turn
from ..turn.turn_setup import Generation, Limits, Offer, Words
from ..types.calls import Message, ToolCall, ToolResult
from ..types.capabilities import Capabilities
from ..types.completion import CompletionRequest
from .audited import Audit
from .cut_off import closed
from .drive import Scores, drive
from .fitted_backend import FittedBackend
from .own_tools import OwnTool, by_name, more_tool, resource_tools
from .policy import Policy
from .rules import allow
from .run_call import Calling
from .taken_up import taken_up

__all__ = ["Mode", "ToolLoop"]

Mode = Literal["xml", "native", "native-only"]
_MODES: Final[tuple[str, ...]] = get_args(Mode)


class ToolLoop:
    """Gives a model tools. Open it with `async with`: that opens the backend and the hosts.

    Args:
        backend: a model, as from `connect`.
        hosts: where tools live; each with its own name.
        mode: `xml` offers tools in the prompt and reads calls from the text; `native` uses the server's own function calling, and
            reads calls that the server left in the text; `native-only` leaves those alone.
        repair: how often the model may try again.
        policy: asked before each call; or globs over `server.tool` that may run, such as `["*"]`. By default nothing may.
        max_turns: replies in one run.
        parallel: whether one reply may hold several calls.
        reminder: whether the person's message ends in a reminder of the tools.
        call_threshold: log-odds of a call above which the person's message is answered with a call, and below which in plain
            words (see `tool_need`); `auto` finds the model's own; None leaves it to the model. Only in mode `xml`, with servers
            that tell the probabilities of tokens.
        dialect: name of the format in which the model is asked to write calls (docs/dialects.md); all formats are read.
        lang: language of the prompts, `en` or `zh`.
        family: how the system prompt shows tools (see `prompting.families`).
        max_tokens: of each reply; None leaves it to the server.
        temperature: None leaves it to the server.
        seed: None leaves it to the server.
        timeout: seconds for each call; None leaves it to the host.
        tool_tokens: what the description of the tools may take of a prompt, by our estimate; where it is more, tools are shown in
            part (see `grades`). None goes by the model's context.
        audit: is told of each call before it runs and after, such as an `AuditFile`; where it raises, the call does not run.
        files: folder for pictures, sound and other data in results; None to keep none.
    """

    def __init__(
        self,
        backend: Backend,
        hosts: Iterable[Host] = (),
        *,
        mode: Mode = "xml",
        policy: Policy | Iterable[str] = (),
        repair: RepairPolicy | None = None,
        max_turns: int = 10,
        parallel: bool = True,
        reminder: bool = True,
        call_threshold: Threshold | None = None,
        dialect: str = "function_calls",
        lang: str = "en",
        family: str = "list",
        max_tokens: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        timeout: float | None = None,
        tool_tokens: int | None = None,
        audit: Audit | None = None,
        files: Path | None = None,
    ) -> None:
        if max_turns < 1:
            raise UsageError(f"max_turns must be at least 1, got {max_turns}")
        self.backend = backend
        self.router = Router(hosts)
        self._limits = Limits(repair=repair or RepairPolicy(), max_turns=max_turns)
        self._format = PromptFormat(lang=lang, parallel=parallel)
        self._calling = Calling(
            router=self.router,
            policy=policy if callable(policy) else allow(policy),
            timeout=timeout,
            format=self._format,
            audit=audit,
            files=files,
            repair=self._limits.repair,
        )
        self._reminder_wanted = reminder
        self.ask_by(mode=mode, dialect=dialect, family=family, call_threshold=call_threshold)
        self._sampling = CompletionRequest(messages=(), max_tokens=max_tokens, temperature=temperature, seed=seed, progress=True)
        self._tool_tokens = tool_tokens
        self._catalog: Catalog | None = None
        self._own: dict[str, OwnTool] = {}
        self._all = Catalog(())  # with our own tools
        self._longer: tuple[Catalog, Catalog, OwnTool] | None = None  # a catalog, and the same with the tool to read on
        self._offered: tuple[Catalog, dict[str, str], ToolPrompt] | None = None
        self._scale = Scale()
        self._told = _ToldCuts()
        self._stack = AsyncExitStack()

    def ask_by(self, *, mode: Mode, dialect: str, family: str, call_threshold: Threshold | None) -> None:
        """Ask the model in another way, from the next run on: what is right for it may be known only once it is open.

        Args:
            mode: as of the loop.
            dialect: as of the loop.
            family: as of the loop.
            call_threshold: as of the loop.

        Raises:
            UsageError: a setting that there is not.
        """
        if mode not in _MODES:
            raise UsageError(f"mode must be one of {', '.join(map(repr, _MODES))}, got {mode!r}")
        self._mode = mode
        self._format = replace(self._format, dialect=dialect, family=family)
        self._calling = replace(self._calling, format=self._format)
        self._threshold = None if call_threshold is None else checked_threshold(call_threshold)
        self._scores = Scores()
        self._offered = None

    async def __aenter__(self) -> Self:
        """Open the hosts, then the backend (it may take long to load).

        Raises:
            ToolHostError: no host answered.
            BackendError: the backend did not open.
        """
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
        return self._mode

    @property
    def format(self) -> PromptFormat:
        """How the model is spoken to by now."""
        return self._format

    @property
    def family(self) -> str:
        """How the system prompt shows tools by now."""
        return self._format.family

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
            self._own = by_name(await resource_tools(self.router, self._catalog, self._format))
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
            budget = budget_for(self.backend.capabilities.context_length, self._tool_tokens)
            offered = tool_prompt_within(budget, catalog, self._format, instructions=instructions)
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
        opened = [as_message(message) for message in messages]
        if not opened or opened[-1].role not in ("user", "tool"):
            raise UsageError("the last message must be the person's (role 'user') or a result")
        shortened: list[Shortened] = []
        on_cut = self._told.teller(len(opened), shortened)
        backend = FittedBackend(self.backend, self._scale, lang=self._format.lang, on_cut=on_cut)
        turn, calling = await self._turn(opened, backend)
        try:
            run, hear = (lambda action: calling.run(action)), (lambda events: calling.noted(events, turn))
            async with aclosing(drive(turn, backend, scores=self._scores, run=run, hear=hear)) as events:
                async for event in events:
                    while shortened:
                        yield shortened.pop()
                    if isinstance(event, StepEnded):
                        said = (*self._kept(opened, turn), *turn.added)
                        yield replace(event, messages=said)
                        if not turn.stop_reason:
                            calling = await self._renew(turn, calling, backend, [*opened, *turn.added])
                    else:
                        yield event
        finally:
            if on_stop is not None and not turn.stop_reason:
                on_stop((*self._kept(opened, turn), *turn.so_far()))
        assert turn.generated is not None
        text = turn.generated.reply.text
        yield Answer(text=text, stop_reason=turn.stop_reason, messages=said, turns=turn.count, usage=turn.usage)

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
        return closed(messages, reply, calls, ended or {}, catalog, self._format, has_tool_role=has_tool_role)

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

    async def _turn(self, opened: list[Message], backend: FittedBackend) -> tuple[Turn, Calling]:
        offer, calling = await self._offer(backend, opened)
        generation = Generation(
            server=backend.capabilities,
            format=self._format,
            is_native=self._mode != "xml",
            reads_text=self._mode == "native",
        )
        words = Words(request=_last_request(opened), sources=self._sources(opened, offer.catalog), conversation=opened)
        decide = partial(self._decided, opened, backend.capabilities, calling.offered)
        return Turn(generation, offer, self._limits, words, decide), calling

    async def _offer(self, backend: FittedBackend, conversation: Sequence[Message]) -> tuple[Offer, Calling]:
        """Return the tools of a turn, and what runs them; where no prompt offers them, they are as their servers list them.

        With them stands the tool to read on, once there is a result that may be sent in part. The prompt never describes it: the
        note in the place of what is left out does.
        """
        offered = await self.tool_prompt() if self._mode == "xml" else None
        await self.catalog()
        catalog, own = offered.catalog if offered else self._all, self._own
        if _may_be_cut(conversation, backend.context_length):
            if self._longer is None or self._longer[0] is not catalog:
                more = more_tool(catalog, self._format, lambda: piece_tokens(backend.context_length))
                self._longer = (catalog, Catalog([*catalog, more.tool]), more)
            _, catalog, more = self._longer
            own = {**own, more.tool.name: more}
            backend.more = more.tool.name
        calling = replace(self._calling, catalog=catalog, offered=offered, own=own)
        return Offer(catalog=catalog, own=calling.tells_only()), calling

    def _decided(self, opened: list[Message], server: Capabilities, offered: ToolPrompt | None) -> Script[FirstRequest]:
        """Ask whether the person's words need a tool, if that is wanted, and prepare what follows from it."""
        if offered is None:
            return FirstRequest(request=replace(self._sampling, messages=tuple(opened)))
        reminder, system = self._reminder(offered.catalog), offered.system
        bare = without_reminder(reminder, opened)
        shown = with_fitting(offered.fitting, bare)
        is_asked = bool(reminder) and bare[-1].role == "user" and not is_result_message(bare[-1].content)
        forms = Forms(
            reminded=replace(self._sampling, messages=with_system(system, with_reminder(reminder, shown))),
            bare=replace(self._sampling, messages=with_system(system, bare)),
            shown=replace(self._sampling, messages=with_system(system, shown)),
            unoffered=replace(self._sampling, messages=without_calls(bare)),
        )
        threshold, lang = self._threshold if is_asked else None, prompt.language_of(_last_request(opened), self._format.lang)
        return (yield from decide(threshold, server, offered.catalog, self._format, forms, lang=lang))

    async def _renew(self, turn: Turn, before: Calling, backend: FittedBackend, conversation: Sequence[Message]) -> Calling:
        """Offer the tools that a server has by now; only the tool prompt changes."""
        offer, calling = await self._offer(backend, conversation)
        was, now = before.offered, calling.offered

        def offered(request: CompletionRequest) -> CompletionRequest:
            first, *rest = request.messages
            if was is None or now is None or not first.content.startswith(was.system):  # answered without tools
                return request
            own = first.content.removeprefix(was.system)
            return replace(request, messages=(replace(first, content=now.system + own), *rest))

        if offer.catalog is not turn.offer.catalog or was is not now:
            turn.renew(offer, offered)
        return calling

    def _kept(self, opened: list[Message], turn: Turn) -> tuple[Message, ...]:
        """Return the person's part of the conversation to go on with: without the tool prompt and without what was said aside."""
        reminder = self._reminder(turn.offer.catalog)
        bare = without_reminder(reminder, opened)
        sent = turn.first.request.messages  # none before it was decided how to ask
        return with_reminder(reminder, bare) if sent and sent[-1].content.endswith(reminder) else bare

    def _reminder(self, catalog: Catalog) -> str:
        if not self._reminder_wanted or self._mode != "xml":
            return ""
        return prompt.reminder(catalog, self._format)

    def _sources(self, opened: Iterable[Message], catalog: Catalog) -> Sources:
        """Return the texts by others that a call must not be copied from."""
        described = [*map(words_of, catalog), *(text for _, text in self.router.instructions())]
        return Sources(said=[message.content for message in opened if message.role != "assistant"], described=described)


def as_message(message: Message | Mapping[str, Any]) -> Message:
    """Read a message from a Message or a `{"role", "content"}` dict.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(message, Message):
        return message
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "user", "assistant", "tool") or not isinstance(content, str):
        raise UsageError(f'expected {{"role": "user", "content": "..."}}, got {dict(message)!r:.120}')
    return Message(role=role, content=content)


def _may_be_cut(messages: Sequence[Message], context_length: int | None) -> bool:
    """Say whether a conversation has a long result, and may not fit into the context with tools and reply."""
    if not any(len(text) > LONG for text in texts_of(messages)):
        return False
    return context_length is None or estimate(messages) > context_length / 4


def _last_request(messages: Iterable[Message]) -> str:
    said = [message.content for message in messages if message.role == "user"]
    return said[-1] if said else ""


@dataclass(slots=True)
class _ToldCuts:
    """The cuts that were told: what is cut stays cut in the turns that follow, and is told once.

    Args:
        events: of the conversation that was last gone on with.
        length: of that, in messages; one that is not longer is another one.
    """

    events: set[Shortened] = field(default_factory=set)
    length: int = 0

    def teller(self, length: int, shortened: list[Shortened]) -> Callable[[Fitted], None]:
        """Return what notes how requests of a run are shortened.

        Args:
            length: of the conversation that the run begins with, in messages.
            shortened: gets what is to be told.
        """
        if length <= self.length:
            self.events.clear()
        self.length = length

        def tell(fitted: Fitted) -> None:
            event = Shortened(results=fitted.cuts, messages=fitted.left_out)
            if event not in self.events:
                self.events.add(event)
                shortened.append(event)

        return tell
