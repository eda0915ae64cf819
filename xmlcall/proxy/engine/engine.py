"""The proxy's heart: an open model, the servers whose tools it runs itself, and the way in which each request is answered.

Three ways. *Text*: tools are offered in the prompt and calls are read from the text (`prompted.py`). *Native*: the model server's
own function calling, where it works. *Plain*: no tools on offer, the model's text as it is. Where the caller speaks the model
server's own wire format, native and plain requests need no engine: their bytes are passed on (`routes.py`).

In mode `auto` the first request with tools is preceded by one trial of the server's own function calling (`probe.py`).
"""

import asyncio
import fnmatch
import itertools
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import quote

from ...agent.policy import allow
from ...agent.retries import Attempts, RepairPolicy
from ...agent.run_call import Calling
from ...agent.tool_need import Threshold, ToolNeeds
from ...backends.base import Backend
from ...backends.fitted import FittedBackend
from ...backends.retrying import Retrying
from ...binding.echo import Sources, words_of
from ...dialects import DIALECTS
from ...errors import ContextOverflow
from ...hosts.base import Host
from ...hosts.router import Router
from ...prompting import system as prompt
from ...prompting.fitting import Fitted, Scale, estimate
from ...prompting.placement import with_reminder
from ...tools.catalog import Catalog
from ...types.calls import Message, Tool
from ...types.completion import CompletionRequest, Usage
from ..formats.contract import Sampling, TurnEvent, TurnRequest
from .begun import asked_to_begin, begun_by_caller, continued_or, without_beginning
from .call_stream import Sender
from .formed import formed, wordless
from .history import DIALECT, last_request, model_messages, prompts, said_by_others, system_first
from .naming import offered_names, renamed, with_own_names
from .native import native_answer, plain_answer
from .probe import calls_natively, count_tokens
from .prompted import Answering, answer
from .reply_cache import Memory

__all__ = ["Engine", "Mode"]

Mode = Literal["auto", "xml", "native"]

log = logging.getLogger("xmlcall.proxy")

NOTES_LIMIT: Final = 100  # of what was mended that are told
_SHOWN: Final = " :;,.\"'_-()$[]{}/#"  # in the log, besides letters and digits
CATALOGS_KEPT: Final = 32  # compiled validators of the tool lists that callers send again and again
# Ollama's: with the first two it cuts a prompt that is too long, another value of the third loads the model anew.
_NOT_SENT_ON: Final = frozenset({"truncate", "shift", "num_ctx"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """How a message is answered.

    Args:
        completion: what to generate with.
        otherwise: the same for a server that refuses beginnings, if the reply is begun with a call for the model.
        plain: the same for plain words, if the reply is begun with a call.
        begun: how it is begun.
        usage: what deciding cost.
    """

    completion: CompletionRequest
    otherwise: CompletionRequest | None = None
    plain: CompletionRequest | None = None
    begun: str = ""
    usage: Usage = field(default_factory=Usage)


class Engine:
    """A model with tool calling. Open it with `async with`: that opens the backend and the hosts.

    Args:
        backend: a model, as from `connect`.
        hosts: servers whose tools the proxy runs itself.
        mode: `xml`, `native`, or `auto`: native where a trial call works.
        allowed: globs over `server.tool`: the hosts' tools that are offered and run; nobody is asked about them.
        stream_arguments: whether arguments go out before their call is complete.
        lang: language of the prompts, `en` or `zh`.
        reminder: whether the person's messages end in a reminder of the tools.
        call_threshold: log-odds of a call above which a person's message is answered with a call, and below which in plain words
            (see `tool_need`); `auto` finds the model's own; None leaves it to the model.
        repair: how often the model may try again.
        max_turns: replies in one answer.
        strict: whether requests are refused that leave their wire format where it cannot matter (see `tolerance`).
    """

    def __init__(
        self,
        backend: Backend,
        hosts: Iterable[Host] = (),
        *,
        mode: Mode = "auto",
        allowed: Iterable[str] = (),
        stream_arguments: bool = False,
        lang: str = "en",
        reminder: bool = True,
        call_threshold: Threshold | None = None,
        repair: RepairPolicy | None = None,
        max_turns: int = 10,
        strict: bool = False,
    ) -> None:
        self.backend = Retrying(backend)
        self.strict = strict
        self._said: set[str] = set()  # what was mended in requests, and told
        self._scale = Scale()
        self._fitted = FittedBackend(self.backend, self._scale, lang=lang, on_cut=_log_cut)
        self.router = Router(hosts)
        self.mode = mode
        self._allowed = tuple(allowed)
        self._calling = Calling(router=self.router, policy=allow(self._allowed))
        self._stream_arguments = stream_arguments
        self._lang = lang
        self._reminder = reminder
        self._needs = None if call_threshold is None else ToolNeeds(call_threshold)
        self._repair = repair or RepairPolicy()
        self._max_turns = max_turns
        self._memory = Memory()
        self._catalogs: OrderedDict[str, tuple[Catalog, list[str]]] = OrderedDict()
        self._rendered: OrderedDict[tuple[int, bool], tuple[Catalog, dict[str, str], tuple[str, str]]] = OrderedDict()
        self._own: tuple[Tool, ...] = ()
        self._origins: dict[str, tuple[Host, str]] = {}
        self._listing = asyncio.Lock()
        self._native: asyncio.Task[bool] | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the hosts, then the backend (it may take long to load).

        Raises:
            ToolHostError: no host answered.
            BackendError: the backend did not open.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.router)
            await stack.enter_async_context(self.backend)
            self.router.changed.set()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close everything."""
        if self._native is not None:
            self._native.cancel()
            await asyncio.gather(self._native, return_exceptions=True)
        await self._stack.__aexit__(kind, error, trace)

    @property
    def model(self) -> str:
        """The model's name."""
        return self.backend.model

    def say_once(self, note: str) -> None:
        """Log what was put right in a request, the first time; in the log of a server nobody else chooses signs or sizes.

        Args:
            note: may hold words of the caller's.
        """
        if note not in self._said and len(self._said) < NOTES_LIMIT:
            self._said.add(note)
            log.info("%s", quote(note, safe=_SHOWN, errors="replace"))

    @property
    def wire(self) -> str:
        """The wire format of the model server, `openai` or `ollama`."""
        return "ollama" if self.backend.capabilities.server == "ollama" else "openai"

    @property
    def has_own_tools(self) -> bool:
        """Whether the proxy runs tools itself."""
        return bool(self.router.hosts)

    async def own_tools(self) -> tuple[Tool, ...]:
        """Return the tools that the proxy offers and runs itself, listed again if a server said that they changed."""
        async with self._listing:  # or a request that comes meanwhile would find none
            if self.router.changed.is_set():
                listed = {tool.name: (tool, self.router.origin(tool.name)) for tool in await self.router.tools()}
                self._own = tuple(tool for tool, origin in listed.values() if self._may_run(*origin))
                self._origins = {tool.name: listed[tool.name][1] for tool in self._own}
            for notice in self.router.news():
                log.warning("%s", notice)
        return self._own

    async def is_native(self) -> bool:
        """Say whether tools go to the model server's own function calling.

        Raises:
            BackendError: the model server failed when it was asked.
        """
        if self.mode != "auto":
            return self.mode == "native"
        if self.backend.capabilities.native_tools is False:
            return False
        if self._native is None or (self._native.done() and (self._native.cancelled() or self._native.exception())):
            self._native = asyncio.create_task(calls_natively(self.backend))
        return await asyncio.shield(self._native)

    async def count_tokens(self, request: TurnRequest) -> int:
        """Count the tokens of a request's prompt; estimated where the model server does not count.

        Args:
            request: from a wire format.

        Raises:
            BackendError: the model server failed.
        """
        request = renamed(request, offered_names(request.tools))
        catalog = self._catalog(self._offered(request))
        system, reminder = self._prompts(catalog, request)
        messages = model_messages(request.messages, catalog, self._memory, system=system, reminder=reminder, lang=self._lang)
        return await count_tokens(self.backend, messages)

    # -- answers -----------------------------------------------------------------------------------------------------

    async def turn(self, request: TurnRequest, *, is_streamed: bool = True) -> AsyncGenerator[TurnEvent]:
        """Answer a request.

        Args:
            request: from a wire format.
            is_streamed: the caller sees events as they come; if not, arguments come whole.

        Yields:
            Events for the caller, a TurnEnded last. Closing the generator ends the generation.

        Raises:
            ApiError: the request cannot be answered as asked.
            BackendError: the model server failed.
        """
        names = offered_names(request.tools, {tool.name for tool in await self.own_tools()})
        request, begun = begun_by_caller(renamed(request, names))
        offered = self._offered(request)
        if not offered or request.choice.mode == "none":
            events = self._plain(request, begun)
        elif _is_simple(request) and not begun and not self.has_own_tools and await self.is_native():
            events = self._natively(request)
        else:
            events = await self._text(request, begun, offered, stream_arguments=self._stream_arguments and is_streamed)
        async with aclosing(with_own_names(events, names)) as named:
            try:
                async for event in named:
                    yield event
            except ContextOverflow as error:
                raise self._with_tools_told(error, request, offered) from error

    def _with_tools_told(self, error: ContextOverflow, request: TurnRequest, offered: tuple[Tool, ...]) -> ContextOverflow:
        """Add to an error what the tools take of the context; an agent's own are often more than half."""
        if not offered or request.choice.mode == "none":
            return error
        system, _ = self._prompts(self._catalog(offered), request)
        tokens = round(estimate([Message(role="system", content=system)]) * self._scale.bounds[0])
        message = f"{error} (the {len(offered)} tools take about {tokens:,} tokens: fewer tools, or a larger context)"
        return ContextOverflow(
            message,
            backend=error.backend,
            status_code=error.status_code,
            body=error.body,
            prompt_tokens=error.prompt_tokens,
            context_length=error.context_length,
            advice=error.advice,
        )

    def _may_run(self, host: Host, name: str) -> bool:
        return any(fnmatch.fnmatchcase(f"{host.name}.{name}", glob) for glob in self._allowed)

    def _offered(self, request: TurnRequest) -> tuple[Tool, ...]:
        """Return all tools; where a server's has the name of the caller's, the caller's it is."""
        theirs = {tool.name for tool in request.tools}
        return (*request.tools, *(tool for tool in self._own if tool.name not in theirs))

    async def _text(
        self, request: TurnRequest, begun: str, offered: tuple[Tool, ...], *, stream_arguments: bool
    ) -> AsyncGenerator[TurnEvent]:
        (catalog, words), theirs = self._known(offered), {tool.name for tool in request.tools}
        system, reminder = self._prompts(catalog, request)
        written = partial(model_messages, request.messages, catalog, self._memory, system=system, lang=self._lang)
        completion = self._completion(request, written(reminder=reminder))
        bare = replace(completion, messages=written()) if self._needs and reminder else None
        chosen = tuple(tool for tool in offered if request.choice.allows(tool.name))
        allowed = catalog if len(chosen) == len(offered) else self._catalog(chosen)
        decision = self._begun(request, completion, begun) or await self._decided(request, completion, bare, allowed)
        answering = Answering(
            backend=self._fitted,
            catalog=allowed,
            origins={name: origin for name, origin in self._origins.items() if name not in theirs},
            calling=self._calling,
            completion=decision.completion,
            choice=request.choice,
            otherwise=decision.otherwise,
            plain=decision.plain,
            begun=decision.begun,
            parallel=request.parallel,
            attempts=Attempts(self._repair),
            max_turns=self._max_turns,
            sources=self._sources(request, words),
            request=last_request(request.messages),
            lang=self._lang,
            sender=Sender(allowed, stream_arguments=stream_arguments),
            memory=self._memory,
            strict=self.strict,
            usage=decision.usage,
        )
        events = self._in_form(answering, request)
        return without_beginning(events, begun) if begun and self._goes_on(request) else events

    def _in_form(self, answering: Answering, request: TurnRequest) -> AsyncGenerator[TurnEvent]:
        """Answer in the form that the caller demands, if it demands one; of a required call the form is the tool's."""
        schema = request.sampling.json_schema
        if schema is None:
            return answer(answering)
        return wordless(answer(answering)) if request.choice.mode == "required" else self._formed(answering, schema)

    def _goes_on(self, request: TurnRequest) -> bool:
        """Say whether an answer is what follows the caller's beginning; what it is else is the model server's to say."""
        return self.backend.capabilities.continues or request.wire == "anthropic"

    def _begun(self, request: TurnRequest, completion: CompletionRequest, begun: str) -> _Decision | None:
        """Go on with a reply that the caller has begun; None if it has not.

        Args:
            request: from a wire format, without the beginning.
            completion: how to generate, without the beginning.
            begun: the beginning.
        """
        if not begun:
            return None
        asked = replace(completion, messages=asked_to_begin(completion.messages, begun, lang=self._lang))
        if self.backend.capabilities.continues:
            return _Decision(completion=completion, otherwise=asked, begun=begun)
        if request.wire == "anthropic":
            return _Decision(completion=asked)
        return _Decision(completion=_with_beginning(completion, begun), otherwise=asked)

    def _formed(self, answering: Answering, schema: Mapping[str, Any]) -> AsyncGenerator[TurnEvent]:
        """Answer with calls, or with JSON that fits a schema."""
        words = prompt.json_answer(schema, lang=self._lang)

        def asking(completion: CompletionRequest) -> CompletionRequest:
            return replace(completion, messages=with_reminder(words, completion.messages))

        answering.completion = asking(answering.completion)
        answering.otherwise = answering.otherwise and asking(answering.otherwise)
        answering.plain = answering.plain and asking(answering.plain)

        def again() -> AsyncGenerator[TurnEvent]:
            messages = (*answering.completion.messages, *answering.added)
            return plain_answer(self._fitted, replace(answering.completion, messages=messages, json_schema=schema))

        return formed(answer(answering), schema, again)

    async def _decided(
        self, request: TurnRequest, reminded: CompletionRequest, bare: CompletionRequest | None, catalog: Catalog
    ) -> _Decision:
        """Ask whether a person's words need a tool, where there is a threshold and a choice.

        Args:
            request: from a wire format.
            reminded: the conversation with reminders.
            bare: the same without; None where nothing is to be decided.
            catalog: what may be called.
        """
        if self._needs is None or bare is None or not _is_open_question(request):
            return _Decision(completion=reminded)
        need = await self._needs.ask(self._fitted, bare, catalog, DIALECTS[DIALECT])
        if need is None:
            return _Decision(completion=reminded)
        lang = prompt.language_of(last_request(request.messages), self._lang)
        aside = prompt.reminder(catalog, lang=lang, needs_tool=False)
        plain = replace(bare, messages=with_reminder(aside, bare.messages))
        if need.begun:
            return _Decision(completion=bare, otherwise=reminded, plain=plain, begun=need.begun, usage=need.usage)
        return _Decision(completion=reminded if need.needs_tool else plain, usage=need.usage)

    def _prompts(self, catalog: Catalog, request: TurnRequest) -> tuple[str, str]:
        """Return the tool prompt and the reminder, rendered once for each catalog."""
        key = (id(catalog), request.parallel)
        instructions = dict(self.router.instructions())
        found = self._rendered.get(key)
        if found is None or found[:2] != (catalog, instructions):
            texts = prompts(
                catalog, lang=self._lang, parallel=request.parallel, reminder=self._reminder, instructions=instructions
            )
            found = self._rendered[key] = (catalog, instructions, texts)
            while len(self._rendered) > CATALOGS_KEPT:
                self._rendered.popitem(last=False)
        return found[2]

    def _plain(self, request: TurnRequest, begun: str) -> AsyncGenerator[TurnEvent]:
        """Answer without tools; a history with calls in it is written as text."""
        messages = model_messages(request.messages, self._catalog(()), self._memory, lang=self._lang)
        completion = replace(self._completion(request, messages), json_schema=request.sampling.json_schema)
        if not begun:
            return plain_answer(self._fitted, completion)

        def asked() -> AsyncGenerator[TurnEvent]:
            messages = asked_to_begin(completion.messages, begun, lang=self._lang)
            return without_beginning(plain_answer(self._fitted, replace(completion, messages=messages)), begun)

        if not self._goes_on(request) or self.backend.capabilities.continues:
            return continued_or(plain_answer(self._fitted, _with_beginning(completion, begun)), asked)
        return asked()

    def _natively(self, request: TurnRequest) -> AsyncGenerator[TurnEvent]:
        catalog, words = self._known(request.tools)
        sources = self._sources(request, words)
        return native_answer(self._fitted, self._completion(request, tuple(system_first(request.messages))), catalog, sources)

    def _sources(self, request: TurnRequest, words: list[str]) -> Sources:
        """Return the texts by others that a call must not be copied from."""
        instructions = [text for _, text in self.router.instructions()]
        remembered = [text for message in request.messages for text in self._memory.results_before(message)]
        system = [message.content for message in request.messages if message.role == "system"]
        said = [*said_by_others(request.messages), *remembered]
        return Sources(said=said, described=[*words, *instructions], instructions=system)

    def _catalog(self, tools: tuple[Tool, ...]) -> Catalog:
        """Return the catalog of a list of tools, the same one for the same list."""
        return self._known(tools)[0]

    def _known(self, tools: tuple[Tool, ...]) -> tuple[Catalog, list[str]]:
        """Return the catalog of a list of tools and the words of their descriptions; callers send the same list each time."""
        key = json.dumps([[tool.name, tool.description, tool.input_schema] for tool in tools], default=dict)
        known = self._catalogs.pop(key, None) or (Catalog(tools), [words_of(tool) for tool in tools])
        self._catalogs[key] = known
        for notice in known[0].notices:
            self.say_once(notice)
        while len(self._catalogs) > CATALOGS_KEPT:
            self._catalogs.popitem(last=False)
        return known

    def _completion(self, request: TurnRequest, messages: tuple[Message, ...]) -> CompletionRequest:
        sampling = request.sampling
        return CompletionRequest(
            messages=messages,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            seed=sampling.seed,
            stop=sampling.stop,
            extra=self._extra(sampling, request.wire),
        )

    def _extra(self, sampling: Sampling, wire: str) -> dict[str, Any]:
        """Return what the model server gets besides; what would cut a prompt or load the model anew stays here."""
        own = {name: value for name, value in sampling.extra.items() if name not in _NOT_SENT_ON} if wire == self.wire else {}
        if self.wire != "ollama":
            return own | dict(sampling.options)
        options = {name: value for name, value in own.pop("options", {}).items() if name not in _NOT_SENT_ON}
        return own | {"options": {**options, **sampling.options}}


def _with_beginning(completion: CompletionRequest, begun: str) -> CompletionRequest:
    return replace(completion, messages=(*completion.messages, Message(role="assistant", content=begun)))


def _is_open_question(request: TurnRequest) -> bool:
    """Say whether a person spoke last, with nothing demanded of the reply; a person's words may also stand beside results."""
    since = itertools.takewhile(lambda message: message.role in ("user", "tool"), reversed(request.messages))
    return request.choice.mode == "auto" and {message.role for message in since} == {"user"}


def _log_cut(fitted: Fitted) -> None:
    """Tell whoever runs the proxy; without names, which others chose."""
    missing = sum(cut.left_out for cut in fitted.cuts)
    what = "to fit the model's context: %d results lack %d characters, %d of the oldest messages are left out"
    log.info(what, len(fitted.cuts), missing, fitted.left_out)


def _is_simple(request: TurnRequest) -> bool:
    """Say whether a request asks for nothing that only the prompt can do: servers take choices in their own ways, or not."""
    choice = request.choice
    return choice.mode == "auto" and choice.allowed is None and request.parallel and request.sampling.json_schema is None
