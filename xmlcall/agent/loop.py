"""The loop: generate, parse, bind, approve, call, feed back, until a reply has no call.

One loop serves any number of conversations at once; a conversation is the list of messages that goes in and comes out. The tool
prompt is not part of it: it is rendered from the catalog in front of every request, the same characters each time, so that the
server's prompt cache holds. The reminder is part of it, at the end of the person's message, and stays there for the same reason.
Where it was decided whether the message needs a tool (`tool_need`), there is no such reminder: the reply is begun for the model,
or plain words are asked for in the requests of this turn only, since a model that reads it in its history goes on in plain words.

Calls of one reply run one after the other, in the order written: the second may rely on what the first did to the world.
"""

import secrets
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self

from ..backends.base import Backend
from ..backends.fitted import FittedBackend
from ..binding.echo import Sources, echo_of, words_of
from ..dialects import DIALECTS
from ..errors import UsageError
from ..hosts.base import Host
from ..hosts.router import Router
from ..parsing.repeated import once
from ..prompting import system as prompt
from ..prompting.feedback import feedback, results
from ..prompting.fitting import Fitted, Scale
from ..prompting.leaks import refusal
from ..prompting.placement import with_reminder, with_system, without_reminder
from ..prompting.results import result_text
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, Message, ToolCall
from ..types.completion import CompletionRequest, Usage
from ..types.tool import Tool
from .events import Answer, AskedAgain, CallFinished, LoopEvent, RetryAsked, Shortened, TurnEnded, TurnStarted
from .forced_call import generate_call
from .generate import Generated, generate, generate_begun
from .native import generate_native
from .policy import Policy, allow
from .retries import Answered, Attempts, RepairPolicy
from .run_call import Calling, outcome
from .tool_need import Threshold, ToolNeed, ToolNeeds

__all__ = ["Mode", "ToolLoop"]

Mode = Literal["xml", "native"]
_UNCUT = frozenset({"stop", "tool_calls"})
_DIALECT = DIALECTS["function_calls"]


@dataclass(slots=True)
class _Run:
    """One conversation under way."""

    messages: list[Message]
    attempts: Attempts
    request: str  # the person's last words
    asked: int  # where these stand among the messages
    lang: str  # of what asks for plain words behind them
    said: tuple[str, ...]  # by others before the run; what the run adds are results, which are in `seen`, and our own words
    backend: FittedBackend
    shortened: list[Shortened] = field(default_factory=list)  # not yet told
    seen: list[str] = field(default_factory=list)  # raw results, for the echo check
    usage: Usage = field(default_factory=Usage)
    repeated: frozenset[str] = frozenset()  # calls of the last reply that stood in it more than once
    begun: str = ""  # how the first reply begins, written for the model
    was_begun: str = ""  # how the last reply was to begin; a server may have refused it
    was_pressed: bool = False  # plain words were asked for because of the same call again and again
    aside: str = ""  # asks for plain words, behind the person's; no message of the conversation keeps it
    refusal: str = ""  # why the last reply was no answer, in words for the model; stands in the next request only
    empty_at: int | None = None  # where an empty reply stands in `messages`, while the model is asked for another
    was_empty: bool = False  # it was asked, which is done once in a run


class ToolLoop:
    """Gives a model tools. Open it with `async with`: that opens the backend and the hosts.

    Args:
        backend: a model, as from `connect`.
        hosts: where tools live; each with its own name.
        mode: `xml` offers tools in the prompt and reads calls from the text; `native` uses the server's own function calling.
        read_text: in mode `native`, whether calls that the server left in the text are calls.
        repair: how often the model may try again, and what is kept of it.
        policy: asked before each call; or globs over `server.tool` that may run, such as `["*"]`. By default nothing may.
        max_turns: replies in one run.
        parallel: whether one reply may hold several calls.
        reminder: whether the person's message ends in a reminder of the tools.
        call_threshold: log-odds of a call above which the person's message is answered with a call, and below which in plain
            words (see `tool_need`); `auto` finds the model's own; None leaves it to the model. Only in mode `xml`, with servers
            that tell the probabilities of tokens.
        lang: language of the prompts, `en` or `zh`.
        max_tokens: of each reply; None leaves it to the server.
        temperature: None leaves it to the server.
        seed: None leaves it to the server.
        timeout: seconds for each call; None leaves it to the host.
    """

    def __init__(
        self,
        backend: Backend,
        hosts: Iterable[Host] = (),
        *,
        mode: Mode = "xml",
        read_text: bool = True,
        policy: Policy | Iterable[str] = (),
        repair: RepairPolicy | None = None,
        max_turns: int = 10,
        parallel: bool = True,
        reminder: bool = True,
        call_threshold: Threshold | None = None,
        lang: str = "en",
        max_tokens: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        timeout: float | None = None,
    ) -> None:
        if mode not in ("xml", "native"):
            raise UsageError(f"mode must be 'xml' or 'native', got {mode!r}")
        if max_turns < 1:
            raise UsageError(f"max_turns must be at least 1, got {max_turns}")
        self.backend = backend
        self.router = Router(hosts)
        self._mode = mode
        self._read_text = read_text
        self._calling = Calling(router=self.router, policy=policy if callable(policy) else allow(policy), timeout=timeout)
        self._repair = repair or RepairPolicy()
        self._max_turns = max_turns
        self._parallel = parallel
        self._reminder_wanted = reminder
        self._needs = None if call_threshold is None else ToolNeeds(call_threshold)
        self._lang = lang
        self._sampling = CompletionRequest(messages=(), max_tokens=max_tokens, temperature=temperature, seed=seed)
        self._catalog: Catalog | None = None
        self._scale = Scale()
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
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close everything."""
        await self._stack.__aexit__(kind, error, trace)

    async def catalog(self) -> Catalog:
        """Return the tools on offer, listed again if a server said that they changed."""
        if self._catalog is None or self.router.changed.is_set():
            self._catalog = Catalog(await self.router.tools())
        return self._catalog

    async def system_prompt(self) -> str:
        """Return the tool prompt as the model gets it in mode `xml`."""
        return self._system(await self.catalog())

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

    async def run(self, messages: Sequence[Message | Mapping[str, Any]]) -> AsyncGenerator[LoopEvent]:
        """Go on with a conversation until the model answers without a call.

        Args:
            messages: what was said so far, the person's message last; `Answer.messages` of an earlier run, or
                `{"role", "content"}` dicts. A system message of your own comes first and is kept, after the tool prompt.

        Yields:
            Events as they happen, an Answer last. Closing the generator ends the generation.

        Raises:
            BackendError: the model server failed.
            UsageError: the messages are not a conversation that can go on.
        """
        state = self._opened_run(messages)
        for turn in range(1, self._max_turns + 1):
            yield TurnStarted(turn=turn)
            catalog = await self.catalog()
            if turn == 1 and (need := await self._decide(state, catalog)):
                yield need
            async with aclosing(self._reply(state, catalog)) as events:
                async for event in events:
                    if isinstance(event, Generated):
                        generated = event
                    else:
                        yield event
            reply = generated.reply
            state.usage = state.usage + generated.usage
            if turn < self._max_turns and self._takes_back(state, generated, catalog):
                yield TurnEnded(turn=turn, reply=reply, usage=generated.usage)
                continue
            if turn < self._max_turns and self._refuse(state, generated):
                yield TurnEnded(turn=turn, reply=reply, usage=generated.usage)
                limit = self._repair.max_format_retries
                yield RetryAsked(retry=state.attempts.retries, limit=limit, refusal=generated.refusal)
                continue
            self._keep(state, generated)
            yield TurnEnded(turn=turn, reply=reply, usage=generated.usage)
            if turn < self._max_turns and self._ask_again(state, generated):
                yield AskedAgain()
                continue
            if not reply.calls:
                stop_reason = generated.refusal or ("end" if reply.finish_reason in _UNCUT else reply.finish_reason)
                break
            answered: Answered = []
            for call in reply.calls:
                async with aclosing(self._run_call(call, state, catalog)) as events:
                    async for event in events:
                        yield event
                        if ended := outcome(event):
                            answered.append(ended)
            state.messages += self._told(answered, state, catalog, as_text=generated.calls_in_text)
            if (stop_reason := state.attempts.after(answered)) and not self._press(state, stop_reason, catalog):
                break
            if retry := state.attempts.retries:
                forced = self._forced(state, catalog)
                yield RetryAsked(retry=retry, limit=self._repair.max_format_retries, constrained=forced.name if forced else "")
        else:
            stop_reason = "max_turns"
        yield Answer(text=reply.text, stop_reason=stop_reason, messages=tuple(state.messages), turns=turn, usage=state.usage)

    def _opened_run(self, messages: Sequence[Message | Mapping[str, Any]]) -> _Run:
        opened, shortened = self._opened(messages), list[Shortened]()
        told: set[Shortened] = set()

        def tell(fitted: Fitted) -> None:
            event = Shortened(results=fitted.cuts, messages=fitted.left_out)
            if event not in told:
                told.add(event)
                shortened.append(event)

        return _Run(
            messages=opened,
            attempts=Attempts(self._repair),
            request=_last_request(messages),
            asked=len(opened) - 1,
            lang=prompt.language_of(_last_request(messages), self._lang),
            said=_said_by_others(opened),
            backend=FittedBackend(self.backend, self._scale, lang=self._lang, on_cut=tell),
            shortened=shortened,
        )

    def _opened(self, messages: Sequence[Message | Mapping[str, Any]]) -> list[Message]:
        """Copy the conversation and check that a reply can follow."""
        opened = [as_message(message) for message in messages]
        if not opened or opened[-1].role not in ("user", "tool"):
            raise UsageError("the last message must be the person's (role 'user') or a result")
        return opened

    async def _decide(self, state: _Run, catalog: Catalog) -> ToolNeed | None:
        """Ask whether the person's words need a tool, if that is wanted, and prepare what follows from it."""
        reminder = prompt.reminder(catalog, lang=self._lang) if self._reminder_wanted and self._mode == "xml" else ""
        need = await self._need(state, catalog, reminder)
        if need is None or not need.is_sure:
            state.messages = list(with_reminder(reminder, state.messages))
        elif not need.needs_tool:
            state.aside = prompt.reminder(catalog, lang=state.lang, needs_tool=False)
        elif need.begun:
            state.begun = need.begun
        else:
            state.messages = list(with_reminder(reminder, state.messages))
        return need

    async def _need(self, state: _Run, catalog: Catalog, reminder: str) -> ToolNeed | None:
        last = state.messages[-1]
        if not reminder or self._needs is None or last.role != "user" or last.content.startswith("<function_results>"):
            return None
        state.messages = list(without_reminder(reminder, state.messages))
        asked = replace(self._sampling, messages=with_system(self._system(catalog), state.messages))
        if (need := await self._needs.ask(state.backend, asked, catalog, _DIALECT)) is not None:
            state.usage = need.usage
        return need

    def _refuse(self, state: _Run, generated: Generated) -> bool:
        """Ask for another reply if this one is no answer, and the model may try again."""
        asks = bool(generated.refusal) and state.attempts.refuse()
        state.refusal = refusal(generated.refusal, lang=self._lang) if asks else ""
        return asks

    def _takes_back(self, state: _Run, generated: Generated, catalog: Catalog) -> bool:
        """Ask for plain words in place of a call that was begun for the model, if all it has are the values of our example.

        A model that has nothing else to call with shows that no tool is needed, whatever its first token said.
        """
        sources, calls = self._sources(state, catalog), generated.reply.calls
        if not _is_begun(state, generated) or not calls or not all(echo_of(call, catalog, sources) for call in calls):
            return False
        state.aside = prompt.reminder(catalog, lang=state.lang, needs_tool=False)
        return True

    def _press(self, state: _Run, stop_reason: str, catalog: Catalog) -> bool:
        """Ask for plain words, once in a run, where a model makes the same call again and again: it has the result."""
        if stop_reason != "repeated_call" or state.was_pressed:
            return False
        state.was_pressed = True
        state.attempts.stop("")
        state.refusal = prompt.reminder(catalog, lang=state.lang, needs_tool=False)
        return True

    def _ask_again(self, state: _Run, generated: Generated) -> bool:
        """Ask for another reply if this one is whole and empty, once in a run; one that was refused had its retries."""
        reply = generated.reply
        if generated.refusal or reply.calls or reply.text.strip() or reply.finish_reason not in _UNCUT or state.was_empty:
            return False
        state.was_empty, state.empty_at = True, len(state.messages) - 1
        state.messages.append(Message(role="user", content=prompt.after_empty(lang=self._lang)))
        return True

    async def _reply(self, state: _Run, catalog: Catalog) -> AsyncGenerator[LoopEvent | Generated]:
        """Generate a reply, the Generated last: a call that stands in it twice is left out, and each has an id of its own."""
        async with aclosing(self._generate(state, catalog)) as events:
            async for event in events:
                while state.shortened:
                    yield state.shortened.pop()
                if isinstance(event, Generated):
                    event = _identified(event)
                    reply, state.repeated = once(event.reply, state.request)
                    event = replace(event, reply=reply)
                yield event

    def _generate(self, state: _Run, catalog: Catalog) -> AsyncGenerator[Any]:
        native = self._mode == "native"
        system = "" if native else self._system(catalog)
        messages = with_system(system, with_reminder(state.refusal, _with_aside(state)))
        tools = tuple(catalog) if native else ()
        request = replace(self._sampling, messages=messages, tools=tools, progress=True)
        if native:
            return generate_native(state.backend, request, catalog, read_text=self._read_text)
        if forced := self._forced(state, catalog):
            return generate_call(state.backend, request, catalog, forced)
        options: dict[str, Any] = {"parallel": self._parallel, "continuations": self._repair.max_format_retries}
        begun, state.begun = state.begun, ""
        state.was_begun = begun
        if not begun:
            return generate(state.backend, request, catalog, **options)
        reminded = with_reminder(prompt.reminder(catalog, lang=self._lang), request.messages)
        return generate_begun(state.backend, request, begun, replace(request, messages=reminded), catalog, **options)

    async def _run_call(self, call: ToolCall | InvalidCall, state: _Run, catalog: Catalog) -> AsyncGenerator[LoopEvent]:
        """Run a call; what it gave counts as said from then on."""
        async with aclosing(self._calling.run(call, catalog, state.attempts, self._sources(state, catalog))) as events:
            async for event in events:
                yield event
                if isinstance(event, CallFinished):
                    state.seen.append(result_text(event.result))

    def _forced(self, state: _Run, catalog: Catalog) -> Tool | None:
        """Return the tool that the next reply has to call, because the model cannot write the call in any other way."""
        stuck = state.attempts.stuck
        if self._mode == "native" or stuck is None or not self.backend.capabilities.constrains:
            return None
        if any(issue.code == "echo" for issue in stuck.issues):
            return None
        return catalog.get(catalog.meant_by(stuck.name) or "")

    def _system(self, catalog: Catalog) -> str:
        instructions = dict(self.router.instructions())
        return prompt.system_prompt(catalog, lang=self._lang, parallel=self._parallel, instructions=instructions)

    def _keep(self, state: _Run, generated: Generated) -> None:
        """Put a reply into the conversation, and take out what it makes needless: an empty one, and attempts that failed."""
        if state.empty_at is not None:  # what was said about it stands behind it
            del state.messages[state.empty_at : state.empty_at + 2]
            state.empty_at = None
        state.messages.append(self._said(generated))
        state.attempts.forget(state.messages, generated.reply.calls)

    def _said(self, generated: Generated) -> Message:
        calls = tuple(call for call in generated.reply.calls if isinstance(call, ToolCall))
        return Message(role="assistant", content=generated.text, tool_calls=() if generated.calls_in_text else calls)

    def _told(self, answered: Answered, state: _Run, catalog: Catalog, *, as_text: bool) -> list[Message]:
        """Turn results into messages: one of role `user` if the calls are text or the template drops role `tool`; else that."""
        if as_text or self.backend.capabilities.tool_role is False:
            again = {call.id for call, _ in answered if isinstance(call, InvalidCall) and state.attempts.came_before(call)}
            text = results(answered, catalog, lang=self._lang, again=again, repeated=state.repeated, request=state.request)
            return [Message(role="user", content=text)]
        told = []
        for call, result in answered:
            if isinstance(call, ToolCall) and result is not None:
                told.append(Message(role="tool", content=result_text(result), tool_call_id=call.id, name=call.name))
            elif isinstance(call, InvalidCall):
                text = feedback(call, catalog, lang=self._lang, request=state.request)
                told.append(Message(role="user", content=text))
        return told

    def _sources(self, state: _Run, catalog: Catalog) -> Sources:
        """Return the texts by others that a call must not be copied from."""
        described = [*map(words_of, catalog), *(text for _, text in self.router.instructions())]
        return Sources(said=[*state.seen, *state.said], described=described)


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


def _is_begun(state: _Run, generated: Generated) -> bool:
    return bool(state.was_begun) and generated.raw.startswith(state.was_begun)


def _identified(generated: Generated) -> Generated:
    """Give each call an id that is unique in the conversation; the core's ids only count the calls of one reply."""
    calls = tuple(replace(call, id=f"call_{secrets.token_hex(12)}") for call in generated.reply.calls)
    return replace(generated, reply=replace(generated.reply, calls=calls))


def _with_aside(state: _Run) -> list[Message]:
    """Return the conversation as it is sent."""
    last, aside = state.messages[state.asked], state.aside
    asked = replace(last, content=f"{last.content}\n\n{aside}") if aside else last
    return [*state.messages[: state.asked], asked, *state.messages[state.asked + 1 :]]


def _last_request(messages: Sequence[Message | Mapping[str, Any]]) -> str:
    said = [message.content for message in map(as_message, messages) if message.role == "user"]
    return said[-1] if said else ""


def _said_by_others(messages: Iterable[Message]) -> tuple[str, ...]:
    return tuple(message.content for message in messages if message.role != "assistant")
