"""The core of the proxy: an open model, the servers whose tools the proxy runs itself, and the choice of how to answer.

A request is answered in one of three ways. *Text*: the prompt offers the tools, and calls are read from the text (`answers.py`).
*Native*: the model server's own function calling, where it works; a reply that comes to nothing is asked for again as text.
*Plain*: no tools on offer, and the model's text as it is. If the caller uses the model server's own wire format, plain requests
bypass the engine: their bytes are passed on (`routes.py`).

In mode `auto`, the engine checks the server's own function calling once, before the first request with tools (`way_check`).
"""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from ...agent.drive import drive, new_call_id, prepare_beside
from ...agent.rules import Rules
from ...agent.run_call import Calling
from ...agent.scores import Scores
from ...agent.way_check import check_way, known_way
from ...backends.base import Backend
from ...backends.retrying import Retrying
from ...dialects.write import beginning
from ...errors import BackendError, ContextOverflow, UsageError
from ...hosts.base import Host
from ...prompting import system as prompt
from ...prompting.format import PromptFormat
from ...prompting.system import Budget, budget_for
from ...prompting.writer import Known, PromptWriter, callers_in_text, hidden_rounds, system_first, with_reminder, with_words
from ...tools.catalog import Catalog
from ...turn.asking import Asking, AskingFields, ChosenWay
from ...turn.attempts import RepairPolicy, calls_made
from ...turn.machine import Script
from ...turn.opening import last_request, offer_of
from ...turn.tool_need import settled
from ...turn.turn import Turn
from ...turn.turn_setup import FirstRequest, Generation, History, InText, Offer, decide, describing
from ...types.calls import Message, Tool, ToolCall
from ...types.completion import Capabilities, CompletionRequest
from ...wire import ollama as ollama_wire
from ...wire import openai as openai_wire
from ..formats.contract import ChatRequest, ResponseEvent
from .answers import AnswerPart, Catalogs, OfferedTools, PlainAnswer, PromptedAnswer, key_of
from .filters import Formed, begun_by_caller, offered_names, own_names, renamed, with_beginning, without_beginning, wordless
from .model_server import Fitting, SaidOnce, WithWholeMessages, count_tokens
from .own_tools import OwnTools, native_rounds, with_own_results

if TYPE_CHECKING:
    from ...turn_records.builder import Recorder
    from ..observed.observer import Observing

RECHECK_SECONDS: Final = 300.0
"""Seconds until the next check after one that was too slow, because each check costs a reply that is thrown away."""


class Engine:
    """A model with tool calling. Open it with `async with`: that opens the backend and the hosts.

    The arguments are those of `create_app`; several engines may share `OwnTools`. Sampling options of a request take priority.
    """

    def __init__(
        self,
        backend: Backend,
        hosts: Iterable[Host] | OwnTools = (),
        *,
        allowed: Iterable[str] | Rules = (),
        asking: Asking | None = None,
        repair: RepairPolicy | None = None,
        strict: bool = False,
        recorder: "Recorder | None" = None,
        **asked: Unpack[AskingFields],
    ) -> None:
        self.backend = Retrying(backend)
        self.strict, self.recorder = strict, recorder
        self.asking = replace(asking or Asking(mode="auto"), **asked)
        said = SaidOnce()
        self.say_once = said.note
        self._fitting = Fitting(self.backend, lang=self.asking.lang, said=said)
        self.own = hosts if isinstance(hosts, OwnTools) else OwnTools(hosts, allowed, lang=self.asking.lang)
        self._calling = Calling(router=self.own.router, policy=self.own.rules)
        self._limits = repair or RepairPolicy()
        self._catalogs = Catalogs(self.say_once, reminder=self.asking.reminder)
        self._way: asyncio.Task[ChosenWay] | None = None
        self._checked = 0.0  # when that began
        self._stack = AsyncExitStack()
        self.ask_by()

    def ask_by(self, **asked: Unpack[AskingFields]) -> None:
        """Change how the model is asked, from the next request on; what suits a model may be known only once it is open."""
        self.asking = replace(self.asking, **asked)
        if self.asking.mode == "native-only":
            raise UsageError("mode must be one of 'auto', 'xml', 'native', got 'native-only'")
        self.format = self.asking.format  # how prompts are written, including the format in which the model writes calls
        self._calling = replace(self._calling, format=self.format)
        self._scores = Scores()

    async def __aenter__(self) -> Self:
        """Open the hosts, then the backend (it may take long to load); meanwhile patterns compile in a thread."""
        async with AsyncExitStack() as stack:
            prepare_beside(stack)
            await stack.enter_async_context(self.own)
            await stack.enter_async_context(self.backend)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        if self._way is not None:
            self._way.cancel()
            await asyncio.gather(self._way, return_exceptions=True)
        await self._stack.__aexit__(*raised)

    @property
    def model(self) -> str:
        return self.backend.model

    @property
    def wire(self) -> str:
        """The wire format of the model server, `openai` or `ollama`."""
        return "ollama" if self.backend.capabilities.server == "ollama" else "openai"

    async def way(self) -> ChosenWay:
        """Return how tools are offered to the model; in mode `auto` the model server is checked at first use."""
        if (known := self.known_way()) is not None:
            return known
        if self._way is None or self._may_be_checked_again(self._way):
            self._way, self._checked = asyncio.create_task(check_way(self.backend)), time.monotonic()
        return await asyncio.shield(self._way)

    def _may_be_checked_again(self, check: asyncio.Task[ChosenWay]) -> bool:
        """Say whether a check has ended without a finding, or was too slow for one some time ago: the model may be loaded now."""
        is_early = time.monotonic() - self._checked < RECHECK_SECONDS
        return check.done() and (_way_found(check) is None or not is_early)

    def known_way(self) -> ChosenWay | None:
        """Return how tools are offered to the model; None in mode `auto` before the check."""
        if self.asking.mode != "auto":
            return ChosenWay(mode=self.asking.mode)
        found = _way_found(self._way)
        if found is not None and found.finding != "slow":
            return found
        return known_way(self.backend.capabilities)

    async def count_tokens(self, request: ChatRequest) -> int:
        """Count the tokens of a request's prompt; estimated where the model server does not count."""
        request = renamed(request, offered_names(request.tools))
        shown = await self._shown(request)
        messages = self._writer(request, shown, self._recalled(request, shown)).messages(request.messages)
        return await count_tokens(self.backend, messages)

    # -- answers -----------------------------------------------------------------------------------------------------

    async def respond(self, request: ChatRequest, *, recording: "Observing | None" = None) -> AsyncGenerator[ResponseEvent]:
        """Answer a request; the last event is a ResponseEnded, and closing the generator ends the generation."""
        names = offered_names(request.tools, {tool.name for tool in await self.own.listed()})
        request, begun = begun_by_caller(renamed(request, names))
        shown = await self._shown(request)
        offers = (
            bool(shown.tools)
            and request.choice.mode != "none"
            and (self.asking.mode != "none" or request.choice.mode == "required")
        )
        if not offers:
            first = self._plain(request, begun, self._recalled(request), recording)
        elif request.is_simple and not begun and not self.own and (await self.way()).mode == "native":
            first = self._natively(request, shown, recording)
        else:
            first = self._text(request, begun, shown, recording)
        if names:
            first.filters.append(own_names(names))
        following: AnswerPart | None = first
        while (answer := following) is not None:
            try:
                async with answer.driven() as events:
                    async for event in events:
                        for piece in answer.pieces(event):
                            yield piece
                for piece in answer.ending():
                    yield piece
                following = answer.again()
            except BackendError as error:
                following = answer.instead(error)
                if following is None and offers and isinstance(error, ContextOverflow):
                    raise self._fitting.with_tools_told(error, shown.prompt.system, len(shown.tools)) from error
                if following is None:
                    raise

    async def _shown(self, request: ChatRequest) -> OfferedTools:
        """Return the tools on offer; a new tool list is compiled in a thread, so that other requests do not wait for it."""
        tools = self._offered(request)
        key, instructions = key_of(tools), tuple(self.own.router.instructions())
        show = partial(self._catalogs.offered, tools, key, self._format_of(request), instructions, self._budget())
        return show() if self._catalogs.knows(key) else await asyncio.to_thread(_compiled, show)

    def _budget(self) -> Budget:
        return budget_for(self.backend.capabilities.context_length, self.asking.tool_tokens)

    def _offered(self, request: ChatRequest) -> tuple[Tool, ...]:
        """Return the caller's tools and those of the proxy's own servers; if two share a name, the caller's wins."""
        theirs = {tool.name for tool in request.tools}
        return (*request.tools, *(tool for tool in self.own.tools if tool.name not in theirs))

    def _text(self, request: ChatRequest, begun: str, shown: OfferedTools, recording: "Observing | None") -> AnswerPart:
        prompts, theirs = shown.prompt, {tool.name for tool in request.tools}
        known, allowed = self._recalled(request, shown), self._callable(request, shown)
        origins = {name: origin for name, origin in self.own.origins.items() if name not in theirs}
        hidden = (hidden_rounds(message, known) for message in request.messages)
        results = [text for rounds in hidden if rounds is not None for text in rounds.results]
        sources = shown.sources(request.messages, results, (text for _, text in self.own.router.instructions()))
        schema = None if request.choice.mode == "required" else request.sampling.json_schema
        backend = self._fitting.backend_for(recording)
        calling = replace(self._calling, catalog=allowed, origins=origins, describing=prompts.own, of_caller=frozenset(theirs))
        if recording is not None:
            recording.goes("xml", allowed, self.format)
        turn = Turn(
            Generation(server=backend.capabilities, format=self._format_of(request), is_for_caller=True, new_id=new_call_id),
            Offer(
                catalog=allowed,
                of_caller=frozenset(allowed.names()) - origins.keys() - {prompts.own},
                own=describing(prompts),
                is_required=request.choice.mode == "required",
                required_name=request.choice.name,
            ),
            self._limits,
            History(
                request=last_request(request.messages),
                sources=replace(sources, offered=shown.catalog, shown=[prompts.listed]),
                conversation=with_own_results(request.messages, known),
                made=_made(request),
            ),
            partial(self._first, backend.capabilities, request, begun, self._writer(request, shown, known), allowed, schema),
        )
        driven = drive(turn, backend, scores=self._scores, run=calling.run, hear=lambda events: calling.noted(events, turn))
        keep = self.own.rounds.keep
        answer = PromptedAnswer(turn, driven, self.format, is_strict=self.strict, keep=keep, recording=recording)
        if schema is not None:
            self._give_form(answer, schema, partial(self._constrained, turn, schema, backend, recording))
        elif request.sampling.json_schema is not None:  # a required call has the form of its tool instead
            answer.filters.append(wordless)
        if begun and self._goes_on(request):
            answer.filters.append(without_beginning(begun))
        return answer

    def _give_form(self, answer: AnswerPart, schema: Mapping[str, Any], constrained: Callable[[], AnswerPart]) -> None:
        """Check an answer against a schema, and let a constrained answer follow if it does not fit."""
        form = Formed(schema)
        answer.filters.append(form)

        def again() -> AnswerPart | None:
            if form.unfit is None:
                return None
            following = constrained()
            following.filters = [form.with_both, *answer.filters[1:]]
            return following

        answer.again = again

    def _first(
        self,
        server: Capabilities,
        request: ChatRequest,
        begun: str,
        writer: PromptWriter,
        allowed: Catalog,
        schema: Mapping[str, Any] | None,
    ) -> Script[FirstRequest]:
        """Decide how the first reply is asked for; `server` is asked whether a tool is needed."""
        completion = self._completion(request)
        threshold = self.asking.call_threshold if writer.reminder else None
        is_asked = threshold is not None and request.is_open_question and not begun
        if threshold is not None and not server.reasoning_open:
            threshold = yield from settled(threshold, server, completion, self.format)
            # If a decision is made for each question, earlier questions carry no reminder: otherwise the prompt would change
            # with each question and result. The last question carries one if its call is not begun for the model.
            if threshold is not None:
                is_reminded = request.messages[-1].role == "user" or not server.continues
                writer = replace(writer, stands="question", reminder=writer.reminder if is_reminded else "")
        forms = writer.forms(request.messages, completion, is_asked=is_asked)
        first = self._begun(request, forms.reminded, begun) or self._demanded(request, forms.reminded)
        if first is None:
            lang = prompt.language_of(last_request(request.messages), self.format.lang)
            first = yield from decide(threshold, server, allowed, self.format, forms, lang=lang)
        if schema is None:
            return first
        words = prompt.json_answer(schema, self.format)
        return first.changed(lambda completion: replace(completion, messages=with_reminder(words, completion.messages)))

    def _constrained(self, turn: Turn, schema: Mapping[str, Any], backend: Backend, recording: "Observing | None") -> PlainAnswer:
        """Ask again in place of the last reply, and let the server constrain the new reply to a schema."""
        request = turn.first.request
        messages = (*request.messages, *turn.added[:-1])
        completion = replace(request, messages=messages, json_schema=schema)
        return PlainAnswer(backend, completion, recording, number=turn.count + 1)

    def _goes_on(self, request: ChatRequest) -> bool:
        """Return whether an answer holds only what follows the caller's beginning; if not, the model server decides."""
        return self.backend.capabilities.continues or request.goes_on

    def _begun(self, request: ChatRequest, completion: CompletionRequest, begun: str) -> FirstRequest | None:
        """Return the request that continues the caller's beginning of a reply; None if there is no beginning."""
        if not begun:
            return None
        asked = self._asked_to_begin(completion, begun)
        if self.backend.capabilities.continues:
            return FirstRequest(request=completion, otherwise=asked, begun=begun)
        if request.goes_on:
            return FirstRequest(request=asked)
        return FirstRequest(request=with_beginning(completion, begun), otherwise=asked)

    def _asked_to_begin(self, completion: CompletionRequest, begun: str) -> CompletionRequest:
        return replace(completion, messages=with_words(prompt.begin(begun, self.format), completion.messages))

    def _demanded(self, request: ChatRequest, completion: CompletionRequest) -> FirstRequest | None:
        """Begin the call for a model that must make one, if the server can continue it; else None."""
        is_last_said = completion.messages[-1].role == "assistant"
        if request.choice.mode != "required" or is_last_said or not self.backend.capabilities.continues:
            return None
        begun = beginning(self.format.row, request.choice.name)
        return FirstRequest(request=completion, otherwise=completion, begun=begun)

    def _recalled(self, request: ChatRequest, shown: OfferedTools | None = None) -> Known:
        """Return the rounds of the proxy's own tools in a conversation; empty if there are no such tools."""
        has_own = self.own or (shown is not None and shown.prompt.own)
        return self.own.rounds.recall(request.messages) if has_own else {}

    def _callable(self, request: ChatRequest, shown: OfferedTools) -> Catalog:
        """Return what may be called: the tools that the caller's choice allows and, in mode `auto`, our describing tool."""
        chosen = tuple(tool for tool in shown.tools if request.choice.allows(tool.name))
        own = shown.prompt.describing if request.choice.mode == "auto" else ()
        if len(chosen) == len(shown.tools):
            return shown.prompt.catalog if own else shown.catalog
        return self._catalogs.of((*chosen, *own))

    def _writer(self, request: ChatRequest, shown: OfferedTools, known: Known) -> PromptWriter:
        """Return the writer of the caller's conversation; a tool that must be called is described first."""
        return PromptWriter(
            offered=shown.prompt,
            reminder=shown.reminder,
            stands="each",
            first=(request.choice.name,) if request.choice.name else (),
            in_text=partial(callers_in_text, catalog=shown.catalog, format=self.format, known=known),
        )

    def _format_of(self, request: ChatRequest) -> PromptFormat:
        return replace(self.format, parallel=request.parallel)

    def _plain(self, request: ChatRequest, begun: str, known: Known, recording: "Observing | None") -> AnswerPart:
        """Answer without tools; calls in the history are written as text."""
        backend = self._fitting.backend_for(recording)
        if recording is not None:
            recording.goes("plain", (), self.format)
        messages = callers_in_text(request.messages, Catalog(()), self.format, known)
        completion = replace(self._completion(request, tuple(messages)), json_schema=request.sampling.json_schema)
        if not begun:
            return PlainAnswer(backend, completion, recording)

        def asked() -> AnswerPart:
            answer = PlainAnswer(backend, self._asked_to_begin(completion, begun), recording)
            answer.filters.append(without_beginning(begun))
            return answer

        if not self._goes_on(request) or self.backend.capabilities.continues:
            return PlainAnswer(backend, with_beginning(completion, begun), recording, otherwise=asked)
        return asked()

    def _natively(self, request: ChatRequest, shown: OfferedTools, recording: "Observing | None") -> AnswerPart:
        """Answer with the server's own function calling; feedback on invalid calls goes to the model, as for calls in text."""
        tools = self._catalogs.natively(shown.catalog, self._format_of(request), self._budget())
        catalog, listed = tools.catalog, key_of(shown.tools) if tools.own else ""
        known = {**self._recalled(request, shown), **(self.own.rounds.recall(request.messages, listed) if tools.own else {})}
        rounds = native_rounds(request.messages, known)
        messages = [*itertools.chain.from_iterable(rounds)]
        completion = self._completion(request, tuple(system_first(messages)))
        write = _MESSAGE_WRITERS[self.wire]
        if request.wire == self.wire and not offered_names(request.tools):  # pass on every field that the caller set
            ours = _OURS | {"tools"} if tools.own else _OURS
            said = {name: value for name, value in request.whole.items() if name not in ours}
            if known and len(said.get("messages", ())) == len(rounds):
                said["messages"] = _as_sent(said["messages"], rounds, write)
            completion = replace(completion, extra={**completion.extra, **said})
        if recording is not None:
            recording.goes("native", catalog, self.format)
        backend = WithWholeMessages(self._fitting.backend_for(recording), len(completion.messages), write)
        turn = Turn(
            Generation(
                server=backend.capabilities,
                format=self._format_of(request),
                is_native=True,
                reads_reasoning=self.asking.reasoned_calls,
                is_for_caller=True,
                new_id=new_call_id,
            ),
            offer_of(
                tools, messages, of_caller=frozenset(shown.catalog.names()), in_text=partial(self._in_text, request, shown, known)
            ),
            self._limits,
            History(request=last_request(request.messages), sources=shown.sources(messages), made=_made(request)),
            partial(_undecided, completion),
        )
        keep = partial(self.own.rounds.keep, messages=request.messages, tools=listed) if tools.own else None
        driven = drive(turn, backend)
        return PromptedAnswer(turn, driven, self.format, is_strict=self.strict, keep=keep, recording=recording)

    def _in_text(self, request: ChatRequest, shown: OfferedTools, known: Known) -> InText:
        """Return the tools in the prompt, for a native reply that came to nothing."""
        allowed, prompts = self._callable(request, shown), shown.prompt
        writer = self._writer(request, shown, known)
        forms = writer.forms(request.messages, self._completion(request), is_asked=False)
        of_caller = frozenset(allowed.names()) - {prompts.own}
        offer = Offer(catalog=allowed, of_caller=of_caller, own=describing(prompts))
        return InText(offer=offer, request=forms.reminded, listed=prompts.listed)

    def _completion(self, request: ChatRequest, messages: tuple[Message, ...] = ()) -> CompletionRequest:
        """Return a request to the model server; extra fields are passed on only if the server shares the caller's wire format."""
        sampling = request.sampling
        extra = _sent_on(sampling.extra) if request.wire == self.wire else {}
        if self.wire == "ollama" and "options" in extra:
            extra["options"] = _sent_on(extra["options"])
        options = {**self.asking.sampled(self.backend.capabilities), **sampling.options}
        usual = options.pop("temperature", None)
        return CompletionRequest(
            messages=messages,
            max_tokens=sampling.max_tokens,
            temperature=usual if sampling.temperature is None else sampling.temperature,
            seed=sampling.seed,
            options=options,
            stop=sampling.stop,
            extra=extra,
        )


def _as_sent(
    whole: Sequence[Mapping[str, Any]], rounds: Sequence[Sequence[Message]], write: Callable[[Message], dict[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the caller's messages as it sent them, with hidden rounds; a message with calls keeps its other fields."""
    sent: list[Mapping[str, Any]] = []
    for row, found in zip(whole, rounds, strict=True):
        own = max((place for place, each in enumerate(found) if each.role == "assistant"), default=0)
        rows = [{**row, **write(each)} if place == own else write(each) for place, each in enumerate(found)]
        sent += rows if len(found) > 1 else [row]
    return sent


def _way_found(check: asyncio.Task[ChosenWay] | None) -> ChosenWay | None:
    """Return what a check found; None if there was none, it has not ended, or it failed."""
    if check is None or not check.done() or check.cancelled() or check.exception() is not None:
        return None
    return check.result()


def _made(request: ChatRequest) -> list[tuple[ToolCall, str]]:
    """Return the calls that the caller ran for this request; none if it wants a call, whatever was called before."""
    return [] if request.choice.mode == "required" else calls_made(request.messages)


def _sent_on(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _NOT_SENT_ON}


def _compiled(show: Callable[[], OfferedTools]) -> OfferedTools:
    """Compile tools and, if their calls may be slow to check, the validators of the calls."""
    shown = show()
    if shown.catalog.is_demanding:
        for name in shown.catalog.names():
            shown.catalog.validator(name)
    return shown


# Ollama's options: the first two make it cut a prompt that is too long, and a new value of the third reloads the model.
_NOT_SENT_ON: Final = frozenset({"truncate", "shift", "num_ctx"})
_OURS = frozenset({"model", "stream", "stream_options", "n"})  # where the proxy reads the reply, it sets these fields itself
_MESSAGE_WRITERS: Final = {"openai": openai_wire.message_dict, "ollama": ollama_wire.message_dict}


def _undecided(completion: CompletionRequest) -> Script[FirstRequest]:
    yield from ()
    return FirstRequest(request=completion)
