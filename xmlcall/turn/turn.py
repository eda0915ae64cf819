"""Runs one turn: from the user's message to an answer, reply by reply.

A reply is generated, and its calls are parsed and bound as they arrive. The content of the reply decides how the turn continues:

| the reply | what follows |
|---|---|
| is no answer (`leaks`) | it is discarded; the model gets the reason, and writes another |
| is a call begun for the model, with values from our example or made up | it is discarded; the model is asked for plain words |
| states what no result says, after every call failed; claims a deed, or repeats an answer (`turn_setup`) | the same, once |
| is empty | the model is asked once more; neither the reply nor the question stays in the conversation |
| is native and came to nothing (`native`) | the same, with the tools in the prompt for the rest of the turn |
| has no call, although one is required | the model is instructed to call a tool, once |
| has no call | the turn ends |
| has calls that cannot run | the model gets the issues of each; correct calls of the same reply run |
| has such calls when no retry is left | the model is asked for plain words, once, unless the caller checks the calls |
| has calls of the caller's own tools, and all calls are correct | the turn ends; the caller runs them |
| repeats a call too often in a row, with the same result | the call does not run; the model is asked for plain words, once |
| has other calls | they run one after the other, and the next reply follows from their results |
| was ended by a call that needs these results (`waiting`) | the model has to write that call again; once for each tool |

`ToolLoop` and the proxy drive turns; neither makes decisions itself. A turn reports everything that happens as events. Each call
is bound once, when it ends, and its `ToolCallEnd` carries the bound call.

The beginning of the conversation never changes: each request extends the one before, so that the server's prompt cache stays
valid. Feedback that concerns only one reply (a refusal) is in the next request and in no later one.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from ..binding.bind import as_written
from ..binding.echo import Sources
from ..binding.grounds import asks_for_change, names_somebody, speaks_of, tools_that_may_tell
from ..binding.waiting import waiting_values
from ..dialects.write import beginning, told_together
from ..errors import UsageError
from ..parsing.repetition import once
from ..prompting import system as prompt
from ..prompting.fit_context import fit
from ..prompting.format import PromptFormat
from ..prompting.leaks import Refusal, refusal
from ..prompting.results import Answered, denial, native_results, pictures, result_text, results
from ..prompting.writer import in_text, with_note, with_reminder, without_calls
from ..tools.catalog import may_write
from ..tools.outline import is_required
from ..types.calls import InvalidCall, Message, TextContent, Tool, ToolCall, ToolResult
from ..types.completion import UNCUT, CompletionRequest, Usage
from ..types.events import TextDelta
from .attempts import (
    Attempts,
    RepairPolicy,
    as_separate_call,
    has_issue,
    is_echo,
    not_offered,
    outcome,
    when_stopped,
    written_calls,
)
from .events import (
    AskedAgain,
    CallDenied,
    CallFinished,
    CallHeld,
    CallProgress,
    CallRejected,
    CallStarted,
    CallTask,
    LoopEvent,
    ReplyEnded,
    ReplyStarted,
    RetryAsked,
    StepEnded,
)
from .generate import REPETITION, Binder, Generated, ReplyOptions, generate, generate_begun
from .machine import Action, Denied, Done, Machine, OfferedAnew, Run, Script
from .native import NativeOptions, generate_call, generate_native
from .turn_setup import OURS, FirstRequest, Generation, History, InText, Offer, SaidSoFar, says_no_access

_REPEATED: Final = "repeated too often"  # who or what denied the call, for the record
_USUAL_CONTEXT: Final = 8000  # tokens that a context of unknown length is taken to have
_OF_CALLS: Final = (CallDenied, CallFinished, CallProgress, CallStarted, CallTask)

Decide = Callable[[], Script[FirstRequest]]
"""Decides how the first reply is requested; called once, when the turn starts."""


class Turn(Machine[None]):
    """A turn in progress: its `action` is what the driver has to do next.

    Args:
        generation: how replies are generated.
        offer: the tools.
        limits: when the turn ends at the latest.
        history: the conversation before the turn.
        decide: decides how the first reply is requested.

    Attributes:
        stop_reason: why the turn has ended, as in `Answer.stop_reason`; or `tool_calls` if the caller has to run calls; or
            `no_tool_call` if the model did not make a required call; "" while the turn is in progress.
        count: number of replies so far.
        first: the first request in its current form; all requests extend it.
        added: the messages that the turn has added after it.
        generated: the last reply.
        answered: the calls of the last reply, with their outcomes.
        usage: the tokens of all requests.
        has_run: whether a tool has started to run, so that the turn must not be retried.
        has_called: whether a call was to be run, even if it was denied.
        is_in_text: whether a native reply came to nothing, so that the tools are now offered in the prompt.
    """

    def __init__(self, generation: Generation, offer: Offer, limits: RepairPolicy, history: History, decide: Decide) -> None:
        self.offer = offer
        self.stop_reason = ""
        self.count = 0
        self.first = FirstRequest(request=CompletionRequest(messages=()))
        self.added: list[Message] = []
        self.generated: Generated | None = None
        self.answered: Answered = []
        self.usage = Usage()
        self.has_run = self.has_called = False
        self.is_in_text = False
        self._generation = generation
        self._limits = limits
        self._history = history
        self._decide = decide
        self._attempts = Attempts(limits)
        for call, result in history.made:
            self._attempts.count(call)
            self._attempts.note_result(call, result)
        self._feedback = ""  # for the model, about its last reply; only in the next request
        self._repeated: frozenset[str] = frozenset()  # calls that the last reply contained more than once
        self._kept_reply: Message | None = None  # the last reply as the conversation keeps it
        self._has_handed_over = False
        self._is_demanded = False  # whether the model was instructed to call a tool
        self._has_asked_plainly = False  # whether the model was asked for plain words because calls led nowhere
        self._unoffered: CompletionRequest | None = None  # to answer from results alone; a small model repeats what it sees
        self._empty_at: int | None = None  # index of an empty reply in `added`, while the model is asked for another
        self._has_been_empty = False
        self._said = SaidSoFar(history, asks=limits.asks_for_unsaid)
        self._looked_up_tool = ""  # tool of a discarded call, while another tool looks up its missing values
        self._last_binder = Binder(catalog=offer.catalog)  # binds the calls of the last reply
        self._waited: set[str] = set()  # tools whose calls had to wait already; each waits once
        self._open_calls: Sequence[ToolCall | InvalidCall] = ()  # calls of the last reply that still lack results
        self._started_id = ""  # id of the last call that started
        self._partial: list[str] = []  # visible text of the current reply, in pieces
        self._found: list[str] = []  # tools that the model asked for, to be sent with the next requests
        super().__init__(self._run(), self._hear)
        self.is_demanding = offer.catalog.is_demanding

    def _hear(self, event: Any) -> None:
        if isinstance(event, TextDelta):
            self._partial.append(event.text)

    @property
    def is_retry(self) -> bool:
        """Whether the next reply answers our feedback, and not the user."""
        return self._attempts.retries > 0 or self._is_demanded

    def may_be_refused(self, text: str) -> bool:
        """Say whether the current reply, judged by its beginning, may turn out to be no answer, so that it is asked for again.

        Args:
            text: its beginning.
        """
        may_lack = self.first.called is not None and not self.added and says_no_access(text, partial=True)
        return (may_lack or self._said.may_be_refused(text, self.offer)) and not self._is_last

    def is_repeated(self, call: ToolCall | InvalidCall) -> bool:
        """Say whether the caller made this call too often in a row, with the same result, so that it is not asked to again.

        Args:
            call: a call of the last reply.
        """
        return isinstance(call, ToolCall) and call.name in self.offer.of_caller and self._attempts.is_repeated(call)

    def may_take_back(self, call: ToolCall | InvalidCall) -> bool:
        """Say whether a call that we began has no basis: if all calls of its reply have none, they are dropped at its end.

        Args:
            call: a call of the current reply.
        """
        return self.first.bare is not None and not self.added and not self._is_last and self._is_baseless(call)

    @property
    def results(self) -> list[str]:
        """The texts that tools returned."""
        return self._said.results

    def so_far(self) -> list[Message]:
        """Return the messages to add if the turn is stopped from outside now; every call in them has a result."""
        added = self.added[: self._empty_at]
        if self._open_calls:
            open_calls = self._open_calls[len(self.answered) :]
            stopped = when_stopped(open_calls, {self._started_id: None}, self._generation.format)
            added += self._result_messages([*self.answered, *stopped])
        elif text := "".join(self._partial).strip():
            added.append(Message(role="assistant", content=text))
        return added

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The conversation to continue with: without the tool prompt, and without notes for one reply only."""
        return (*self.kept_before(), *self.added)

    @property
    def before_calls(self) -> tuple[Message, ...]:
        """The messages before the calls of the last reply."""
        return (*self._history.conversation, *self.added[:-1])

    def kept_before(self) -> Sequence[Message]:
        """Return the messages before the turn, in the form in which the conversation continues."""
        return self._history.kept(self.first) if self._history.kept else self._history.conversation

    def next(self) -> Action | Done:
        """Return the next action; the same one until it is done."""
        if (action := self.action) is not None:
            return action
        text = self.generated.reply.text if self.generated else ""
        reason = "failed" if self.error else self.stop_reason or "stopped"
        conversation = (*self.kept_before(), *self.so_far()) if self.error else self.conversation
        return Done(reason=reason, text=text, conversation=conversation, usage=self.usage, error=self.error)

    def start(self, call_id: str, *, host: str = "", by: str = "", reason: str = "") -> Iterator[Any]:
        """Note that a call starts: if the turn ends now, the model learns that the call may or may not have run.

        Args:
            call_id: id of the call to run, the next action.
            host: the server that has the tool.
            by: who or what allowed the call.
            reason: why it was allowed.

        Raises:
            UsageError: another call, or none, is to be run.
        """
        call = self._to_run(call_id)
        return self.note(CallStarted(call=call, host=host, host_tool=call.name, by=by, reason=reason))

    def give(self, call_id: str, outcome: ToolResult | str | Denied) -> Iterator[Any]:
        """Receive the outcome of a call.

        Args:
            call_id: id of the call to run.
            outcome: its result, or `Denied` if it was not allowed.

        Raises:
            UsageError: another call, or none, is to be run, or the outcome has the wrong type.
        """
        call = self._to_run(call_id)
        if isinstance(outcome, Denied):
            return self.note(CallDenied(call=call, reason=outcome.reason, by=outcome.by))
        result = ToolResult(content=(TextContent(text=outcome),)) if isinstance(outcome, str) else outcome
        if not isinstance(result, ToolResult):
            raise UsageError(f"expected a result, a text or Denied as the outcome of a call, got {outcome!r:.80}")
        return self.note(CallFinished(call=call, result=replace(result, call_id=call.id)))

    def note(self, happened: Any) -> Iterator[Any]:
        """Receive an event of the call to run; its end comes last.

        Args:
            happened: an event of that call.

        Raises:
            UsageError: no call was to be run, or this is not an event of that call.
        """
        due = self._expect(Run).call.id
        if not isinstance(happened, _OF_CALLS) or happened.call.id != due:
            raise UsageError(f"expected an event of the call {due!r}, got {happened!r:.120}")
        return super().note(happened)

    def why_not(self, action: Run) -> str:
        """Say why a call must not run if no user can be asked: it writes values that appear nowhere in the conversation.

        Args:
            action: the call to run.

        Returns:
            The reason, in words for the model; "" if the call may run.
        """
        if not action.unsaid or not may_write(action.tool):
            return ""
        return denial("unsaid", self._generation.format, why=", ".join(action.unsaid))

    def _to_run(self, call_id: str) -> ToolCall:
        action = self.action
        if not isinstance(action, Run) or action.call.id != call_id:
            due = repr(action.call.id) if isinstance(action, Run) else "none"
            raise UsageError(f"expected the id of the call to run, {due}, got {call_id!r}")
        return action.call

    def stop(self) -> None:
        """End the turn now: the text so far is kept, and every call gets an outcome."""
        if self.action is not None:
            self.added, self.stop_reason = self.so_far(), "stopped"
            self.close()

    def renew(self, offer: Offer, change: Callable[[CompletionRequest], CompletionRequest]) -> None:
        """Offer other tools from the next reply on.

        Args:
            offer: the tools.
            change: changes a request of the turn so that it offers these tools.
        """
        self.offer, self.first = offer, self.first.changed(change)
        self.is_demanding = offer.catalog.is_demanding
        self.ask_anew()

    def _run(self) -> Script[None]:
        while not self.stop_reason:
            yield from self._step()
            yield StepEnded(number=self.count, messages=tuple(self.added))

    def _step(self) -> Script[None]:
        self.count += 1
        self.answered = []
        yield ReplyStarted(number=self.count)
        if self.count == 1:
            self.first = yield from self._decide()
            if need := self.first.need:
                self.usage = self.usage + need.usage
                yield need
        generated = yield from self._reply()
        self._partial.clear()
        again = self._keep_or_ask_again(generated)
        self._open_calls = self._calls_of(generated) if again is None else ()
        reply, usage = generated.reply, generated.usage
        yield ReplyEnded(number=self.count, reply=reply, usage=usage, raw=generated.raw, message=self._kept_reply)
        if again is not None:
            yield from again
            return
        yield from self._call(self._open_calls)
        if not self.stop_reason and self._is_last:
            self.stop_reason = "max_turns"

    @property
    def _is_last(self) -> bool:
        return self.count >= self._limits.max_replies

    # -- a reply -------------------------------------------------------------------------------------------------------------

    def _reply(self) -> Script[Generated]:
        """Generate a reply; a call that it contains twice counts once."""
        generated = None
        while generated is None:
            with contextlib.suppress(OfferedAnew):
                generated = yield from self._generate()
        reply, self._repeated = once(generated.reply, self._history.request)
        self.generated = generated = replace(generated, reply=reply)
        self.usage = self.usage + generated.usage
        if generated.fell_back and self.first.otherwise:
            self.first = FirstRequest(request=self.first.otherwise, unoffered=self.first.unoffered)
        return generated

    def _generate(self) -> Script[Generated]:
        generation, request, binder = self._generation, self._with_added(self.first.request), self._binder()
        if generation.is_native:
            request = replace(request, tools=self.offer.sent(self._found))
            return generate_native(request, binder, self._native_options())
        if forced := self._forced():
            how = ReplyOptions(server=generation.server, parallel=False)
            return generate_call(request, binder, forced, how, generation.format.dialect)
        continued = 0 if generation.is_for_caller and request.max_tokens else self._limits.max_format_retries
        how = ReplyOptions(server=generation.server, parallel=generation.format.parallel, continuations=continued)
        if self.added and (wanted := self._looked_up_for()):
            return generate_begun(request, beginning(generation.format.row, wanted), request, binder, how)
        if self.added or self.first.otherwise is None:
            return generate(request, binder, how)
        otherwise = self._with_added(self.first.otherwise)
        return generate_begun(request, self.first.begun, otherwise, binder, replace(how, one_tool=self.first.one_tool))

    def _native_options(self) -> NativeOptions:
        generation = self._generation
        return NativeOptions(
            server=generation.server,
            reads_text=generation.reads_text,
            reads_reasoning=generation.reads_reasoning,
            is_for_caller=generation.is_for_caller,
            is_asked_again=self.offer.in_text is not None and not self._is_last,
        )

    def _binder(self) -> Binder:
        """Return the binder for the next reply, given everything said so far."""
        self._said.begin_reply([each.content for each in self.first.request.messages if each.role == "assistant"])
        generation = self._generation
        self._last_binder = Binder(
            catalog=self.offer.catalog,
            sources=self._sources(),
            unsaid="" if generation.is_native else generation.format.shows.unsaid,
            waits=self._waits,
            unspoken=lambda call: self._said.held_back_for(call, self.offer, is_last=self._is_last),
            new_id=generation.new_id,
        )
        return self._last_binder

    def _sources(self) -> Sources:
        sources = self._history.sources
        return replace(sources, said=[*sources.said, *self.results], shown=[*sources.shown, *told_together(self.added)])

    def _looked_up_for(self) -> str:
        """Return the tool of the call that was discarded for a look-up, if that found one thing; a small model stops there."""
        wanted, self._looked_up_tool = self._looked_up_tool, ""
        return wanted if self._said.found_one_thing else ""

    def _with_added(self, request: CompletionRequest) -> CompletionRequest:
        added: Sequence[Message] = self.added
        if not self._generation.is_native and any(message.role == "tool" or message.tool_calls for message in added):
            added = in_text(added, self.offer.catalog, self._generation.format)  # written before the tools were in the prompt
        messages = (*request.messages, *added)
        if self._unoffered is not None:
            # Results that have become a part of the person's words are not cut later; the other half is for the reply.
            room = (self._generation.server.context_length or _USUAL_CONTEXT) / 2
            messages = without_calls(fit((*self._unoffered.messages, *added), room, lang=self._generation.format.lang).messages)
        return replace(request, messages=with_note(self._feedback, messages))

    def _forced(self) -> Tool | None:
        """Return the tool that the server has to force, if any: the model is stuck, or was instructed to call and did not."""
        if self._generation.is_native or not self._generation.server.constrains:
            return None
        tools, stuck = tuple(self.offer.catalog), self._attempts.stuck
        if stuck is not None and not is_echo(stuck):
            return self._tool_of(stuck)
        return tools[0] if self._is_demanded and not self._attempts.retries and len(tools) == 1 else None

    def _waits(self, call: ToolCall, earlier: Sequence[ToolCall]) -> tuple[str, ...]:
        """Return the paths of the values for which a call has to wait; none if no reply can follow the results."""
        tool = self.offer.catalog.get(call.name)
        if tool is None or self._is_last or call.name in self._waited or call.name in self.offer.own:
            return ()
        return waiting_values(call, tool, earlier, self._said.index, lambda: self._said.heard.text)

    # -- another reply in its place --------------------------------------------------------------------------------------------

    def _keep_or_ask_again(self, generated: Generated) -> list[LoopEvent] | None:
        """Keep a reply, or ask for another in its place; return the events to emit if the model is asked again, else None."""
        self._feedback, self._kept_reply = "", None
        if self._is_last:
            self._keep(generated)
            return None
        if generated.lost and self.offer.in_text:
            self._offer_in_text(self.offer.in_text())
            return [AskedAgain(why=generated.lost, in_text=True)]
        if self._take_back(generated):
            return []
        if self._refuse_answer(generated):
            limit = self._limits.max_format_retries
            return [RetryAsked(retry=min(self._attempts.retries, limit), limit=limit, refusal=generated.refusal)]
        if doubt := self._doubt_answer(generated):
            return [RetryAsked(retry=1, limit=1, refusal=doubt)]
        self._keep(generated)
        if self._demand_call(generated):
            return []
        return [AskedAgain()] if self._ask_after_empty(generated) else None

    def _offer_in_text(self, form: InText) -> None:
        self.is_in_text = True
        self._generation = replace(self._generation, is_native=False)
        self.offer, self.first = form.offer, FirstRequest(request=form.request)
        sources = self._history.sources
        self._history = replace(self._history, sources=replace(sources, shown=[*sources.shown, form.listed]))

    def _take_back(self, generated: Generated) -> bool:
        """Discard a call that we began for the model if its values are made up or from our example; ask for plain words instead.

        A model that has no other values for the call shows that no tool is needed, whatever its first token suggested, or that
        the user has to be asked. A call that was cut off after such calls is ignored.
        """
        calls = [call for call in generated.reply.calls if not has_issue(call, "truncated-call")]
        bare = self.first.bare
        if bare is None or not calls or not all(map(self.may_take_back, calls)):
            return False
        unsaid = dict.fromkeys(name for call in calls if isinstance(call, InvalidCall) for name in self._unsaid_of(call))
        alone = self.first.unoffered
        lookups = self._lookup_tools(calls, unsaid)
        is_meant = any(map(self._is_meant, calls))
        if alone is not None and not lookups and not (unsaid and (is_meant or asks_for_change(self._history.request))):
            self.first = FirstRequest(request=alone)
            return True
        step: prompt.Step = "look_up" if lookups else "ask" if unsaid and is_meant else ""
        form = bare if alone is None or lookups else alone
        reminded = replace(form, messages=with_reminder(self._aside(list(unsaid), step), form.messages))
        self.first = FirstRequest(request=reminded, unoffered=alone)
        if len(lookups) == 1:
            called = {self.offer.catalog.meant_by(call.name) or "" for call in calls}
            self._looked_up_tool = called.pop() if len(called) == 1 else ""
            begun = beginning(self._generation.format.row, lookups[0])
            self.first = replace(self.first, request=bare, begun=begun, otherwise=reminded)
        elif step == "ask":
            self.first = replace(self.first, begun=prompt.question(self._spoken(), next(iter(unsaid))), otherwise=reminded)
        return True

    def _unsaid_of(self, call: InvalidCall) -> list[str]:
        """Return the parameters of a call whose values appear nowhere in the conversation."""
        reported = [issue.path.removeprefix("$.") for issue in call.issues if issue.code == "not-said"]
        if reported or not is_echo(call):
            return reported or self._said.stand_ins(call, self.offer)
        tool = self._tool_of(call)
        if tool is None or not speaks_of(self._history.request, tool):
            return []
        return [each.name for each in call.raw.arguments if is_required(each.name, tool)]

    def _tool_of(self, call: ToolCall | InvalidCall) -> Tool | None:
        return self.offer.catalog.get(self.offer.catalog.meant_by(call.name) or "")

    def _is_meant(self, call: ToolCall | InvalidCall) -> bool:
        """Say whether the request asks for this tool, whatever the values of the call."""
        tool = self._tool_of(call)
        return tool is not None and (not self._is_in_doubt or speaks_of(self._history.request, tool))

    def _lookup_tools(self, calls: Sequence[ToolCall | InvalidCall], unsaid: Collection[str]) -> tuple[str, ...]:
        """Return the tools that may look up the missing values; in doubt, only if the request names somebody to look up."""
        values = [each.text for call in calls for each in call.raw.arguments if each.name in unsaid]
        if self._is_in_doubt and not names_somebody(self._history.request, values):
            return ()
        called = [tool for call in calls if (tool := self.offer.catalog.get(call.name))]
        return tools_that_may_tell(unsaid, called, self.offer.catalog)

    def _is_baseless(self, call: ToolCall | InvalidCall) -> bool:
        if isinstance(call, InvalidCall) and (is_echo(call) or self._unsaid_of(call)):
            return True
        if not self._is_in_doubt:
            return False
        written = as_written(call, self.offer.catalog) if isinstance(call, InvalidCall) else call
        if written is None:
            return True
        tool = self.offer.catalog.get(written.name)
        return tool is not None and not self._said.is_ground_for(written, tool)

    @property
    def _is_in_doubt(self) -> bool:
        return self.first.need is not None and self.first.need.is_doubtful

    def _aside(self, unsaid: Sequence[str] = (), step: prompt.Step = "", *, has_failed: bool = False) -> str:
        """Return a reminder that asks for plain words, in the user's language."""
        spoken = self._spoken()
        return prompt.reminder(self.offer.catalog, spoken, needs_tool=False, unsaid=unsaid, step=step, has_failed=has_failed)

    def _spoken(self) -> PromptFormat:
        """Return the prompt format in the user's language."""
        format = self._generation.format
        return format.speaking(prompt.language_of(self._history.request, format.lang))

    def _refuse_answer(self, generated: Generated) -> bool:
        """Ask for another reply if this one is no answer and the model may try again."""
        if not generated.refusal:
            return False
        if self._attempts.refuse():
            self._feedback = refusal(generated.refusal, self._generation.format)
            return True
        return self._limits.max_format_retries > 0 and self._give_up_tools()

    def _give_up_tools(self) -> bool:
        """Ask for plain words, once in a turn, if no reply was an answer; without the tool prompt if no tool ran."""
        if self._has_asked_plainly or self.offer.is_required:
            return False
        self._has_asked_plainly = True
        if self.first.unoffered is None or self.has_called or self._has_handed_over:
            self._feedback = self._aside()
            return True
        self.first, self._empty_at = FirstRequest(request=self.first.unoffered), None
        self.added.clear()
        self._attempts.begin_again()
        return True

    def _doubt_answer(self, generated: Generated) -> Refusal:
        """Ask for another answer, once, if this one has no basis in the turn's results, or misses a tool; return why."""
        text = generated.reply.text
        if generated.reply.calls or not text.strip():
            return ""
        if self.first.called is not None and not self.added and says_no_access(text):
            self.first = self.first.called
            return "no_access"
        why, values = self._said.doubts(text, self.offer)
        if why:
            self._feedback = refusal(why, self._spoken(), values)
        if why and self.first.offered is not None:
            self.first = FirstRequest(request=self.first.offered, unoffered=self.first.unoffered)
        return why

    def _demand_call(self, generated: Generated) -> bool:
        """Instruct the model, once, to call a tool."""
        if self._is_demanded or not self._lacks_call(generated):
            return False
        self._is_demanded = True
        self.added.append(Message(role="user", content=prompt.demand(self._generation.format, self.offer.required_name)))
        return True

    def _lacks_call(self, generated: Generated) -> bool:
        is_whole = generated.reply.finish_reason in UNCUT
        has_called = self._has_handed_over or self.has_called or self._calls_of(generated)
        return self.offer.is_required and is_whole and not has_called

    def _ask_after_empty(self, generated: Generated) -> bool:
        """Ask for another reply, once in a turn, if this one is complete but empty; a refused reply has had its retries."""
        reply = generated.reply
        if generated.refusal or reply.calls or reply.text.strip() or reply.finish_reason not in UNCUT or self._has_been_empty:
            return False
        self._has_been_empty, self._empty_at = True, len(self.added) - 1
        self.added.append(Message(role="user", content=prompt.after_empty(self._generation.format)))
        return True

    def _keep(self, generated: Generated) -> None:
        """Add a reply to the conversation; remove an empty reply and failed attempts, which it replaces."""
        if self._empty_at is not None:  # our message about it follows it
            del self.added[self._empty_at : self._empty_at + 2]
            self._empty_at = None
        calls = self._calls_of(generated)
        self._kept_reply = Message(
            role="assistant",
            content=generated.text,
            tool_calls=self._separate_calls(generated),
            written=written_calls(generated, calls),
        )
        self.added.append(self._kept_reply)
        self._attempts.forget(self.added, calls)

    def _separate_calls(self, generated: Generated) -> tuple[ToolCall, ...]:
        """Return the calls in a separate field of the reply; a server requires a result for each.

        So if a call cannot run and the model is asked again, calls for the caller to run are left out: they have no result yet.
        """
        calls = () if generated.calls_in_text else generated.reply.calls
        withheld = self.offer.of_caller if any(isinstance(call, InvalidCall) for call in calls) else ()
        kept = (call for call in calls if isinstance(call, InvalidCall) or call.name not in withheld)
        return tuple(as_separate_call(call, self.offer.catalog) for call in kept)

    # -- calls -----------------------------------------------------------------------------------------------------------------

    def _call(self, calls: Sequence[ToolCall | InvalidCall]) -> Script[None]:
        """Have a reply's calls run, and give the model their results; end the turn if there are none."""
        assert self.generated is not None
        repeated = [self.is_repeated(call) for call in calls]  # as they were streamed: each call that runs changes the answer
        for call, is_repeated in zip(calls, repeated, strict=True):
            if isinstance(call, ToolCall) and call.name in self.offer.of_caller and not is_repeated:
                self._has_handed_over = True
                self.answered.append((call, None))
            else:
                yield from self._one_call(call)
        if held := self.generated.held:
            self._waited.add(held.call.name)
            yield CallHeld(call=held.call, paths=held.paths)
        if not calls:
            self.stop_reason = self._reason_without_call(self.generated)
        elif self._has_handed_over and not any(isinstance(call, InvalidCall) for call in calls):
            reason = self.generated.reply.finish_reason
            self.stop_reason = "tool_calls" if reason in UNCUT else reason
        elif retry := self._report_results():
            yield retry

    def _calls_of(self, generated: Generated) -> Sequence[ToolCall | InvalidCall]:
        """Return the calls that count; if a cut ends the turn, the model gets no feedback on the call that was cut."""
        reply = generated.reply
        if not self._generation.is_for_caller or reply.finish_reason in UNCUT or reply.finish_reason == REPETITION:
            return reply.calls
        return [call for call in reply.calls if not has_issue(call, "truncated-call")]

    def _one_call(self, call: ToolCall | InvalidCall) -> Script[None]:
        """Have one call run, unless it is invalid or was repeated too often."""
        is_run = isinstance(call, ToolCall) and call.name not in self.offer.own and call.name not in self.offer.of_caller
        self.has_called = self.has_called or is_run
        happened: CallFinished | CallDenied | CallRejected | CallStarted
        tool, call = self.offer.catalog.get(call.name), self._rebound(call)
        if isinstance(call, InvalidCall) or tool is None:
            happened = CallRejected(call=not_offered(call) if isinstance(call, ToolCall) else call)
        elif (times := self._attempts.count(call)) > self._limits.max_repeats and not (is_run and self._limits.on_repeat):
            self._attempts.stop_reason = "repeated_call"
            reason = denial("repeated", self._generation.format, count=times)
            happened = CallDenied(call=call, reason=reason, by=_REPEATED)
        elif answer := self.offer.own.get(call.name):
            yield CallStarted(call=call, host=OURS, host_tool=call.name, by="it only tells what is known")
            result = answer(call.arguments, self.before_calls)
            self._found += self.offer.found(call)
            happened = CallFinished(call=call, result=replace(result, call_id=call.id))
        else:
            run = Run(
                call=call, tool=tool, times=times, unsaid=self._said.groundless(call, self.offer), conversation=self.before_calls
            )
            while not isinstance(happened := (yield run), CallFinished | CallDenied):
                if isinstance(happened, CallStarted):
                    self._started_id, self.has_run = call.id, True
                yield happened
            self.has_run = self.has_run or isinstance(happened, CallFinished)
        self._note(happened)
        yield happened

    def _rebound(self, call: ToolCall | InvalidCall) -> ToolCall | InvalidCall:
        """Bind a call to the current version of its tool, because a server may have changed the tool since the reply was read."""
        before, now = (catalog.get(call.name) for catalog in (self._last_binder.catalog, self.offer.catalog))
        if isinstance(call, InvalidCall) or not (before and now) or before.input_schema == now.input_schema:
            return call
        return replace(self._last_binder, catalog=self.offer.catalog).anew(call)

    def _note(self, happened: CallFinished | CallDenied | CallRejected) -> None:
        if isinstance(happened, CallFinished):
            text = result_text(happened.result, self._generation.format)
            self._said.note_call(happened.call, text, self.offer.catalog.get(happened.call.name))
            self._attempts.note_result(happened.call, text)
        self.answered.append(outcome(happened, self._generation.format))

    def _reason_without_call(self, generated: Generated) -> str:
        if self._lacks_call(generated):
            return "no_tool_call"
        if generated.refusal or generated.reply.finish_reason not in UNCUT:
            return generated.refusal or generated.reply.finish_reason
        return "tool_calls" if self._has_handed_over else "end"

    def _report_results(self) -> RetryAsked | None:
        """Add the calls' results to the conversation; end the turn if necessary; return an event if the model has to retry."""
        answered = [(call, result) for call, result in self.answered if isinstance(call, InvalidCall) or result is not None]
        self.added += self._result_messages(answered)
        ran = (result for call, result in answered if result is not None and call.name not in self.offer.own)
        self._said.note_outcomes([None if each.is_error else result_text(each, self._generation.format) for each in ran])
        self._open_calls = ()
        reason, retry = self._attempts.after(answered), self._attempts.retries
        if reason:
            self.stop_reason = "" if self._ask_for_plain_words(reason) else reason
        if reason or not retry:
            return None
        forced = self._forced()
        return RetryAsked(retry=retry, limit=self._limits.max_format_retries, constrained=forced.name if forced else "")

    def _ask_for_plain_words(self, reason: str) -> bool:
        """Ask for plain words, once in a turn, if calls lead nowhere: they cannot run, or the model already has their result."""
        is_lost = reason == "invalid_calls" and self._limits.max_format_retries > 0 and not self._goes_to_caller()
        if self._has_asked_plainly or self._is_last or not (is_lost or reason == "repeated_call"):
            return False
        self._has_asked_plainly = True
        self._attempts.stop_reason = ""
        self._unoffered = self._without_tools() if self.has_run and not is_lost else None
        self._feedback = "" if self._unoffered else self._aside(has_failed=is_lost)
        return True

    def _without_tools(self) -> CompletionRequest | None:
        """Return the conversation before the turn without the tool prompt; however long it is, the alternative is no answer."""
        if self.first.unoffered is not None or self._generation.is_native:
            return self.first.unoffered
        before = in_text(self._history.conversation, self.offer.catalog, self._generation.format)
        return replace(self.first.request, messages=tuple(before))

    def _goes_to_caller(self) -> bool:
        """Say whether invalid calls still go to the caller: a call is required, or one can be handed over as written."""
        if self.offer.is_required and not self.has_called:
            return True
        written = (as_written(call, self.offer.catalog) for call, _ in self.answered if isinstance(call, InvalidCall))
        return any(call.name in self.offer.of_caller for call in written if call is not None)

    def _result_messages(self, answered: Answered) -> list[Message]:
        """Turn results into `tool` messages, or one `user` message if the calls are text or the template drops role `tool`."""
        assert self.generated is not None
        catalog, format, request = self.offer.catalog, self._generation.format, self._history.request
        again = {call.id for call, _ in answered if isinstance(call, InvalidCall) and self._attempts.came_before(call)}
        if not self.generated.calls_in_text and self._generation.server.tool_role is not False:
            return native_results(answered, catalog, format, again=again, request=request)
        held = self.generated.held
        waiting = (held.call, held.paths) if held else None
        said = results(answered, catalog, format, again=again, repeated=self._repeated, request=request, waiting=waiting)
        sees = self._generation.server.sees
        return [replace(said, images=pictures(result for _, result in answered if result is not None) if sees else ())]
