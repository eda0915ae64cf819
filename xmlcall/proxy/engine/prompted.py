"""One answer of a model whose calls are text: rounds of generation until there is something to give the caller.

A round is a reply. Its text goes out as it comes, its calls of the caller's tools once they are bound; tools of the proxy's own
servers run here, and their results begin the next round. Calls that cannot run are answered with feedback, as in the loop, before
anything of them has gone out; when no retry is left, the answer is an error: half a call, or a call left out in silence, is
worse than none.
"""

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Hashable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from ...agent.events import CallFinished
from ...agent.forced_call import generate_call
from ...agent.generate import REPETITION, Continued, Generated, generate, is_refused_beginning
from ...agent.retries import Attempts
from ...agent.run_call import Calling, outcome
from ...backends.base import Backend
from ...binding.bind import bind
from ...binding.echo import Sources, echo_of
from ...dialects import select
from ...dialects.write import beginning
from ...errors import BackendError
from ...hosts.base import Host
from ...parsing.repeated import identity, is_asked_for
from ...prompting.feedback import results
from ...prompting.leaks import refusal
from ...prompting.placement import with_reminder
from ...prompting.results import result_text
from ...tools.catalog import Catalog
from ...types.calls import InvalidCall, Message, RawCall, ToolCall, ToolResult
from ...types.completion import CompletionRequest, PromptProgress, Usage
from ...types.events import Event, Markup, ReasoningDelta, TextDelta, ToolArgumentDelta, ToolCallEnd, ToolCallStart
from ...types.tool import Tool
from ..formats.contract import ApiError, Choice, ReasoningPiece, TextPiece, TurnEnded, TurnEvent
from .arguments import as_written
from .call_stream import Sender, broken_off, new_identity
from .history import DIALECT
from .reply_cache import Answered, Memory, Remembered

__all__ = ["Answering", "answer"]

log = logging.getLogger("xmlcall.proxy")

_UNCUT = frozenset({"stop", "tool_calls"})
_DEMAND = "(Call a tool now: reply with a <function_calls> block and nothing else.)"
_NO_ANSWER: Mapping[str, str] = {
    "invented_results": "no answer: the model wrote results that no tool gave, however often it was told",
    "own_words": "no answer: the model only repeated its instructions, however often it was told",
}
_DEMAND_NAMED = "(Call the tool {name} now: reply with a <function_calls> block that calls it, and nothing else.)"


@dataclass(slots=True, kw_only=True)
class Answering:
    """An answer under way.

    Args:
        backend: open.
        catalog: the tools that may be called.
        origins: where those are that the proxy runs itself, as when they were offered.
        calling: runs them.
        completion: how to generate; its messages are the conversation as the model gets it.
        choice: whether a tool has to be called.
        otherwise: how to generate where the server refuses a beginning, if the first reply is begun: with a call for the model,
            since the message needs a tool, or by the caller; else None.
        plain: how to generate plain words instead, if all that such a call has are the values of our example; else None.
        begun: how that reply begins; "" if the model begins it.
        parallel: whether one reply may hold several calls.
        attempts: how often the model may try again.
        max_turns: replies.
        sources: texts by others before the answer, from which a call must not be copied.
        request: the person's last words.
        lang: of results and feedback.
        sender: of the calls that the caller gets.
        memory: told what the model said, if calls go to the caller.
        strict: whether calls that cannot run are an error of the server's, and not the caller's to answer.
    """

    backend: Backend
    catalog: Catalog
    origins: Mapping[str, tuple[Host, str]]
    calling: Calling
    completion: CompletionRequest
    choice: Choice
    otherwise: CompletionRequest | None
    plain: CompletionRequest | None
    begun: str
    parallel: bool
    attempts: Attempts
    max_turns: int
    sources: Sources
    request: str
    lang: str
    sender: Sender
    memory: Memory
    strict: bool = False
    usage: Usage = field(default_factory=Usage)
    added: list[Message] = field(default_factory=list)  # by this answer, behind the caller's messages
    visible: str = ""
    calls: list[ToolCall | InvalidCall] = field(default_factory=list)  # of the last reply
    written: Counter[Hashable] = field(default_factory=Counter)  # how often the last reply has each call
    repeats: list[ToolCall | InvalidCall] = field(default_factory=list)  # those that it had before
    generated: Generated | None = None  # the last reply
    demanded: bool = False  # the model was told to call a tool
    ran: bool = False  # a tool of the proxy's own ran, or would have
    results: list[str] = field(default_factory=list)  # of those
    refusal: str = ""  # why the last reply was no answer, in words for the model; stands in the next request only
    is_retry: bool = False  # the reply answers our own words, not the caller's
    prefix_refused: bool = False
    parting: list[TurnEvent] = field(default_factory=list)  # what the caller gets although the model did not get it right


async def answer(state: Answering) -> AsyncGenerator[TurnEvent]:
    """Generate an answer.

    Args:
        state: of the answer; used up.

    Yields:
        Events for the caller, a TurnEnded last.

    Raises:
        ApiError: the model's calls cannot run, however often it was told why.
        BackendError: the model server failed.
    """
    for _ in range(state.max_turns):
        try:
            async with aclosing(_reply(state)) as events:
                async for event in events:
                    yield event
        except BackendError as error:
            if not _is_refused_prefix(state, error):
                raise _after_tools(state, error) if state.ran else error from None
            state.prefix_refused, state.completion = True, state.otherwise or state.completion
            continue
        if reason := await _settle(state):
            for event in state.parting:
                yield event
            if name := state.sender.unfinished:
                raise broken_off(name)
            yield _turn_ended(reason, state)
            return
    raise _failed(state, f"no answer after {state.max_turns} replies: the model kept calling tools", "max_turns")


def _turn_ended(reason: str, state: Answering) -> TurnEnded:
    """Say what the answer took: its last prompt is what the conversation has grown to."""
    last, whole = state.generated.usage if state.generated else Usage(), state.usage
    shown = replace(whole, prompt_tokens=last.prompt_tokens, cached_tokens=last.cached_tokens)
    return TurnEnded(finish_reason=reason, usage=shown, all_usage=whole if whole != shown else None)


def _is_refused_prefix(state: Answering, error: BackendError) -> bool:
    """Say whether a server may have refused the beginning that was written for the model: some templates allow none."""
    is_begun = bool(_prefix(state)) or (state.otherwise is not None and not state.prefix_refused)
    return is_refused_beginning(error) and is_begun and state.generated is None


def _after_tools(state: Answering, error: BackendError) -> ApiError:
    """Make an error that clients do not answer by asking again: what ran would run twice."""
    return _failed(state, f"{error}; tools had run before", "failed_after_tools")


async def _settle(state: Answering) -> str:
    """Do what the last reply asks for; return why the answer ends with it, or "" if another reply is needed."""
    assert state.generated is not None
    if state.generated.refusal:
        _refuse(state, state.generated)
        return ""
    state.refusal = ""
    if _takes_back(state, state.generated):
        return ""
    reason = state.generated.reply.finish_reason
    repeats = reason == REPETITION  # no wire format knows this word; a call that was ended so is told to the model
    cut = "" if reason in _UNCUT else "length" if repeats else reason
    calls = [call for call in state.calls if repeats or not (cut and _is_truncated(call))]
    if not calls and not cut and state.choice.mode == "required" and not (state.sender.sent or state.ran):
        _demand(state, state.generated)
        return ""
    if not calls:
        return cut or ("tool_calls" if state.sender.sent else "stop")
    answered = [await _outcome(state, call) for call in calls]
    state.added.append(Message(role="assistant", content=state.generated.text))
    state.attempts.forget(state.added, calls)
    if state.sender.sent and not any(isinstance(call, InvalidCall) for call, _ in answered):
        _remember(state, answered)
        return cut or "tool_calls"
    told = [(call, result) for call, result in answered if isinstance(call, InvalidCall) or result is not None]
    _tell(state, told)
    if given_up := state.attempts.after(told):
        _part(state, given_up, told)
        return "tool_calls"
    return ""


def _takes_back(state: Answering, generated: Generated) -> bool:
    """Ask for plain words in place of a call that was begun for the model, if all it has are the values of our example.

    A model that has nothing else to call with shows that no tool is needed, whatever its first token said.
    """
    is_begun = bool(state.begun) and generated.raw.startswith(state.begun)
    if state.plain is None or not is_begun or not state.calls or not all(map(_is_echo, state.calls)):
        return False
    state.completion, state.plain, state.begun = state.plain, None, ""
    return True


def _is_echo(call: ToolCall | InvalidCall) -> bool:
    return isinstance(call, InvalidCall) and any(issue.code == "echo" for issue in call.issues)


def _refuse(state: Answering, generated: Generated) -> None:
    """Ask again after a reply that is no answer.

    Raises:
        ApiError: the model has tried often enough.
    """
    if not state.attempts.refuse():
        raise _failed(state, _NO_ANSWER[generated.refusal], generated.refusal)
    state.refusal = refusal(generated.refusal, lang=state.lang)


def _is_truncated(call: ToolCall | InvalidCall) -> bool:
    return isinstance(call, InvalidCall) and any(issue.code == "truncated-call" for issue in call.issues)


# -- a reply -----------------------------------------------------------------------------------------------------------


async def _reply(state: Answering) -> AsyncGenerator[TurnEvent]:
    """Generate one reply; the text of a retry is shown only if it has no call."""
    held = ""
    state.calls, state.repeats = [], []
    state.written.clear()
    state.is_retry = state.attempts.retries > 0 or state.demanded or bool(state.sender.unfinished)
    state.sender.begin()
    async with aclosing(_events(state)) as events:
        async for event in events:
            match event:
                case TextDelta(text=text) if state.is_retry:
                    held += text
                case TextDelta(text=text):
                    state.visible += text
                    yield TextPiece(text=text)
                case ReasoningDelta(text=text):
                    yield ReasoningPiece(text=text)
                case Generated():
                    state.generated = event
                    state.usage = state.usage + event.usage
                case _:
                    for piece in _call_events(state, event):
                        yield piece
    for call in state.repeats:
        for piece in _repeated(state, call):
            yield piece
    if held.strip() and not state.calls and not (state.generated and state.generated.refusal):
        state.visible += held
        yield TextPiece(text=held)


def _call_events(state: Answering, event: Event | Continued | PromptProgress) -> list[TurnEvent]:
    match event:
        case ToolCallStart(name=name) if not state.is_retry and name not in state.origins:
            state.sender.start(event)
        case Markup(kind="parameter_close") if not state.is_retry:
            return state.sender.end_parameter()
        case ToolArgumentDelta() if not state.is_retry:
            return state.sender.add(event)
        case ToolCallEnd(raw=raw):
            return _ended(state, raw)
    return []


def _ended(state: Answering, raw: RawCall) -> list[TurnEvent]:
    bound = bind(raw, state.catalog)
    call = echo_of(bound, state.catalog, _sources(state)) or replace(bound, id=new_identity())
    state.written[identity(call)] += 1
    if state.written[identity(call)] > 1:
        state.repeats.append(call)
        return []
    return _take(state, call)


def _repeated(state: Answering, call: ToolCall | InvalidCall) -> list[TurnEvent]:
    """Take a call that the reply had before, if the person asked for so many: that is known at the reply's end."""
    if is_asked_for(state.written[identity(call)], state.request):
        return _take(state, call)
    log.info("left out a call of %r that stood in the same reply before", call.name)
    return []


def _take(state: Answering, call: ToolCall | InvalidCall) -> list[TurnEvent]:
    if isinstance(call, InvalidCall):
        state.sender.drop()
    elif call.name not in state.origins:
        before = len(state.sender.sent)
        events = state.sender.end(call, is_retry=state.is_retry)
        state.calls += state.sender.sent[before:] or [call]
        return events
    state.calls.append(call)
    return []


def _events(state: Answering) -> AsyncGenerator[Event | Continued | PromptProgress | Generated]:
    messages = with_reminder(state.refusal, (*state.completion.messages, *state.added))
    request = replace(state.completion, messages=messages)
    if forced := _forced(state):
        return generate_call(state.backend, request, state.catalog, forced)
    # The caller's own limit of tokens is the caller's; a reply cut at the server's is continued.
    limit = 0 if request.max_tokens else state.attempts.policy.max_format_retries
    return generate(state.backend, request, state.catalog, parallel=state.parallel, continuations=limit, prefix=_prefix(state))


def _forced(state: Answering) -> Tool | None:
    """Return the tool that the server has to make the model call: it is stuck, or was told to call and did not."""
    if not state.backend.capabilities.constrains:
        return None
    stuck = state.attempts.stuck
    if stuck is not None and not any(issue.code == "echo" for issue in stuck.issues):
        return state.catalog.get(state.catalog.meant_by(stuck.name) or "")
    names = state.catalog.names()
    return state.catalog.get(names[0]) if state.demanded and not state.attempts.retries and len(names) == 1 else None


def _prefix(state: Answering) -> str:
    """Begin the call for a model that has to make one, where the server goes on from there."""
    is_first = not state.added and state.completion.messages[-1].role != "assistant" and not state.prefix_refused
    if not is_first or not state.backend.capabilities.continues:
        return ""
    if state.choice.mode == "required" and not state.begun:
        return beginning(select(DIALECT)[0], state.choice.name or "")
    return state.begun


def _demand(state: Answering, generated: Generated) -> None:
    """Tell the model that it has to call a tool; once."""
    if state.demanded:
        message = "tool_choice: a call was required, and the model answered without one, also when it was told to call"
        raise _failed(state, message, "no_tool_call")
    state.demanded = True
    demand = _DEMAND_NAMED.format(name=state.choice.name) if state.choice.name else _DEMAND
    state.added += [Message(role="assistant", content=generated.text), Message(role="user", content=demand)]


# -- calls -------------------------------------------------------------------------------------------------------------


def _sources(state: Answering) -> Sources:
    return replace(state.sources, said=[*state.sources.said, *state.results])


async def _outcome(state: Answering, call: ToolCall | InvalidCall) -> tuple[ToolCall | InvalidCall, ToolResult | None]:
    """Run a call of one of the proxy's own tools; others have no result here."""
    if isinstance(call, InvalidCall) or call.name not in state.origins:
        return call, None
    if state.calling.router.find(call.name) != state.origins[call.name]:
        return call, ToolResult.error("Not run: the server does not have this tool any more.")
    ended, state.ran = None, True
    async with aclosing(state.calling.run(call, state.catalog, state.attempts, _sources(state))) as events:
        async for event in events:
            ended = outcome(event) or ended
            if isinstance(event, CallFinished):
                state.results.append(result_text(event.result))
    assert ended is not None
    return ended


def _tell(state: Answering, answered: Answered) -> None:
    """Put results and feedback into the conversation."""
    again = {call.id for call, _ in answered if isinstance(call, InvalidCall) and state.attempts.came_before(call)}
    text = results(answered, state.catalog, lang=state.lang, again=again, request=state.request)
    state.added.append(Message(role="user", content=text))


def _part(state: Answering, reason: str, answered: Answered) -> None:
    """Give the caller the last calls as they are: agents check arguments themselves, and tell the model what is wrong.

    Raises:
        ApiError: there is none that the caller could answer.
    """
    calls = [] if state.strict else [as_written(call, state.catalog) for call, _ in answered if isinstance(call, InvalidCall)]
    for call in calls:
        if call is not None and call.name not in state.origins:
            state.parting += state.sender.end(call, is_retry=True)
    if not state.parting:
        raise _failed(state, _why(reason, answered), reason)


def _why(reason: str, answered: Answered) -> str:
    if reason != "invalid_calls":
        return "the model's calls of the proxy's own tools failed one after the other, or were the same again and again"
    issues = [f"{call.name}: {issue.message}" for call, _ in answered if isinstance(call, InvalidCall) for issue in call.issues]
    return f"the model's calls cannot run, however often it was told why: {' '.join(issues)}"


def _failed(state: Answering, message: str, code: str) -> ApiError:
    """Make an error of the model's own failure, of a status that no client repeats: LangChain.js asks 7 times after a 422."""
    if state.strict:
        return ApiError(message, status=502, kind="server_error", code=code)
    return ApiError(message, code=code)


def _remember(state: Answering, answered: Answered) -> None:
    calls = tuple((call, result) for call, result in answered if isinstance(call, ToolCall))
    *before, said = state.added
    remembered = Remembered(
        before=tuple(before), text=said.content, visible=state.visible, calls=calls, results=tuple(state.results)
    )
    if remembered.theirs == tuple(state.sender.sent):  # not so if calls came in several replies: those have no one text
        state.memory.keep(remembered)
