"""How a run looks: the answer on standard output, everything else on standard error.

Whether a text is the answer or only precedes a call is known only when its reply has ended. On a terminal both land on one
screen, so text is written as it comes. Elsewhere (`xmlcall run ... > answer.txt`) it waits for the end of its reply: then the
answer goes to standard output, and text before a call to standard error, dimmed.

Everything shown passes `plain` or `visible`, and reaches rich as `Text`, whose content it does not interpret.
"""

import sys
from collections.abc import Callable
from functools import partial

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ..agent.policy import Proposal
from ..prompting.results import result_text
from ..turn.events import (
    Answer,
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
    Shortened,
)
from ..turn.generate import Continued
from ..turn.tool_need import ToolNeed
from ..types.calls import Reply, ToolCall
from ..types.completion import PromptProgress
from ..types.events import (
    CallInReasoning,
    Markup,
    ReasoningDelta,
    Repaired,
    TextDelta,
    ToolArgumentDelta,
    ToolCallEnd,
    ToolCallStart,
)
from .call_panel import CallLog, LoggedCall, call_line, origins, target_of
from .markdown import MarkdownStream, answer_console, shows_markdown
from .plain import PlainStream, arguments_text, json_text, plain, shortened, title_of, visible
from .waiting import SlowStatus, error_console
from .words import LABELS, Say, issue_line, speaker
from .wrapping import Wrapping, wrapped

_RESULT_LINES, _RESULT_WIDTH = 6, 300
_VALUE_WIDTH = 200  # characters of one argument, unless the user has to judge it
_ISSUES = 6
_SOON = 0.5  # seconds after which a line says that the program waits for the model
_TOLD_WIDTH = 100  # characters of what a tool says while it runs

_UNSEEN = Markup | Repaired | ToolCallEnd | CallTask
_PASSING = PromptProgress | ToolCallStart | ToolArgumentDelta | CallProgress  # events that only change the waiting line


class Display:
    """Shows the events of a run as they happen; from the thread of a running event loop."""

    def __init__(
        self, *, live: bool, answers: bool = True, verbose: bool = False, lang: str = "en", calls: CallLog | None = None
    ) -> None:
        """Make a display; `answers` go to standard output, and with `calls` each call is one line that can be opened later."""
        self.console = error_console()
        self.verbose = verbose
        self.lang = lang
        self.calls = calls
        self.say: Say = speaker(lang)
        self._label_width = 1 + max(cell_len(self.say(label)) for label in LABELS)
        self._live, self._answers = live and answers, answers
        answers_to = answer_console()
        write = partial(print, end="", flush=True)
        self._text: MarkdownStream | _ShownStream = _ShownStream(write, lambda: Wrapping(self.console.width))
        if self._live and shows_markdown(answers_to) and self.console.is_terminal:
            self._text = MarkdownStream(answers_to, lambda quiet: self.say("elapsed", text=self.say("writing"), seconds=quiet))
        self._reasoning = _ShownStream(
            lambda text: self._print(text, "dim", end=""),
            lambda: Wrapping(self.console.width) if self.console.is_terminal else None,
        )
        self._status = SlowStatus(self.console, self.say)
        self._judged: ToolCall | None = None  # the last shown call, until it is decided about
        self._call_length = 0  # characters of values in the call that the model is writing

    def show(self, event: LoopEvent) -> None:
        entry = self.calls.note(event) if self.calls else None
        if isinstance(event, _UNSEEN) or (isinstance(event, TextDelta) and not self._live):
            return
        if isinstance(event, _PASSING):
            self._pass(event)
            return
        self._status.stop()
        if isinstance(event, TextDelta | ReasoningDelta):
            self._stream(event)
            return
        self.settle()
        if entry is not None:
            self._show_call(entry)
            return
        match event:
            case ToolNeed():
                self._tell_need(event)
            case ReplyStarted():
                self._wait_for_model("waiting" if event.number == 1 else "waiting_results")
            case Continued():
                self.line("cut", self.say("cut_call"), style="dim")
                self._wait_for_model("writing")
            case Shortened():
                self._tell_shortened(event)
            case RetryAsked() if event.constrained:
                self.line("retry", self.say("constrained", name=visible(event.constrained)), style="dim")
            case RetryAsked() if event.refusal:
                self.line("retry", self.say(f"refused_{event.refusal}"), style="dim")
            case AskedAgain(why=why, in_text=in_text):
                self.line("retry", self.say(f"native_{why}" if in_text else "asked_again"), style="dim")
            case ReplyEnded():
                self._end_turn(event.reply)
            case CallStarted():
                self._start_call(event)
            case CallFinished():
                self._finish_call(event)
            case CallRejected():
                self._reject_call(event)
            case CallDenied() if event.call is not self._judged:
                self.line("denied", f"{target_of(event)}: {visible(event.reason)}", style="yellow")
            case CallHeld(paths=paths):
                values = ", ".join(visible(path.removeprefix("$.")) for path in paths[:_ISSUES])
                self.line("waits", self.say("held", name=target_of(event), values=values), style="dim")
            case CallInReasoning(name=name):
                self.notice(self.say("lost_call", name=visible(name)))
            case Answer():
                self._end_run(event)

    def stop_call(self) -> None:
        if self.calls and (entry := self.calls.stop()):
            self.settle()
            self._show_call(entry)

    def wait(self, key: str) -> None:
        """Begin to wait for something, which is shown if it takes long."""
        self._status.start(self.say(key))

    def settle(self) -> None:
        """End the current output, so that something else can be shown or asked."""
        self._status.stop()
        self._reasoning.end()
        self._text.end()

    def notice(self, text: str) -> None:
        self.settle()
        self._print(self._broken(f"xmlcall: {visible(text)}"), "yellow")

    def line(self, label: str, text: str, *, style: str = "", label_style: str | None = None) -> None:
        """Show a text that is safe already, under a label of `words.LABELS` or none; further lines are indented."""
        sys.stdout.flush()
        head = label and set_cell_size(self.say(label), self._label_width)
        width = cell_len(head)
        shown = self._broken(text, width) if self.console.is_terminal else text.replace("\n", "\n" + " " * width)
        self.console.print(Text.assemble((head, style if label_style is None else label_style), (shown, style)))

    def proposal(self, proposal: Proposal) -> None:
        """Show a call for a person to judge: the server, the tool and the whole arguments."""
        self.settle()
        self._judged = proposal.call
        title = title_of(proposal.tool)
        target = visible(proposal.target) + (f" ({title})" if title and title != proposal.host_tool else "")
        before, _, after = self.say("proposal", target="\0", host=visible(proposal.host)).partition("\0")
        self.console.print(Text.assemble(before, (target, "bold"), after))
        if (proposal.tool.annotations or {}).get("destructiveHint") is True:
            self.remark(self.say("destructive"), "yellow")
        if proposal.times_in_a_row > 1:
            self.remark(self.say("again", times=proposal.times_in_a_row), "yellow")
        for row in json_text(proposal.call.arguments).split("\n"):
            self.remark(visible(row))
        for kind, words in origins(proposal.call, proposal.conversation, self.say, [proposal.tool]):
            if kind != "person":
                self.remark(words, "yellow" if kind == "invented" else "dim")

    def remark(self, text: str, style: str = "") -> None:
        """Show a line about the call that was shown last; the text is safe already."""
        self._print(self._broken(f"  {text}") if style else f"  {text}", style)

    def refused(self, proposal: Proposal, why: str) -> None:
        """Show a call that does not run, and what to do about it."""
        self.settle()
        self._judged = proposal.call
        arguments = arguments_text(proposal.call, width=_VALUE_WIDTH)
        self.line("denied", f"{visible(proposal.target)}({arguments})", label_style="yellow")
        self.notice(why)

    def quote(self, title: str, text: str) -> None:
        """Show what a server says in full, its lines indented, under a title of our own; nothing in it is hidden."""
        self.settle()
        self._print(title, "bold")
        for row in text.split("\n"):
            self._print(f"  {visible(row)}")

    def ask(self, question: str) -> None:
        self._print(question, "bold", end="")
        self.console.file.flush()

    def _wait_for_model(self, key: str) -> None:
        self._call_length = 0
        self._status.start(self.say(key), after=_SOON)

    def _pass(self, event: _PASSING) -> None:
        match event:
            case PromptProgress(read=read, total=total):
                self._status.update(self.say("reading", read=f"{read:,}", total=f"{total:,}"))
            case ToolCallStart():
                self.settle()
                self._status.start(self.say("writing_call", count=self._call_length))
            case ToolArgumentDelta(text=text):
                self._call_length += len(text)  # tokens that arrive together are one event
                self._status.update(self.say("writing_call", count=self._call_length))
            case CallProgress(done=done, total=total, message=message):
                key = "progress" if total is None else "progress_of"
                amount = self.say(key, done=f"{done:g}", total=f"{total or 0:g}")
                self._status.update(f"{self._status.begun} {amount} {visible(message)[:_TOLD_WIDTH]}".rstrip())

    def _tell_need(self, need: ToolNeed) -> None:
        if self.verbose:
            if need.needs_tool:
                key = "needs_this_tool" if need.tool else "needs_tool"
            else:
                key = "needs_no_tool" if need.score <= need.threshold else "no_tool_fits"
            words = self.say(key, odds=f"{need.log_odds:.3g}", threshold=f"{need.threshold:g}", tool=visible(need.tool))
            self.line("decided", words, style="dim")
        self._wait_for_model("waiting")

    def _tell_shortened(self, event: Shortened) -> None:
        """Say what the model is not sent; the missing characters of several results are added up."""
        missing = sum(cut.left_out for cut in event.results)
        whole = sum(cut.characters for cut in event.results)
        names = ", ".join(dict.fromkeys(visible(cut.name) for cut in event.results))
        parts = [self.say("cut_results", missing=f"{missing:,}", whole=f"{whole:,}", names=names)] if event.results else []
        parts += [self.say("cut_messages", count=f"{event.messages:,}")] if event.messages else []
        self.line("left out", self.say("does_not_fit", parts=self.say("and").join(parts)), style="dim")

    def _stream(self, event: TextDelta | ReasoningDelta) -> None:
        to, other = (self._text, self._reasoning) if isinstance(event, TextDelta) else (self._reasoning, self._text)
        other.end()
        to.feed(event.text)

    def _end_turn(self, reply: Reply) -> None:
        text = plain(reply.text).strip()
        if reply.calls and text and not self._live:
            self._print(self._broken(text), "dim")
        if self.verbose and reply.repairs:
            self.line("repaired", ", ".join(repair.code for repair in reply.repairs), style="dim")

    def _start_call(self, event: CallStarted) -> None:
        target = f"{visible(event.host)}.{visible(event.host_tool)}"
        if event.call is not self._judged:
            self.line("call", f"{target}({arguments_text(event.call, width=_VALUE_WIDTH)})", label_style="cyan")
        self._status.start(self.say("running", target=target))

    def _show_call(self, entry: LoggedCall) -> None:
        if entry.outcome == "running":
            self._status.start(self.say("running", target=entry.target))
        else:
            self.console.print(call_line(entry, self.say, self.console.width, self._label_width))

    def _finish_call(self, event: CallFinished) -> None:
        if event.failure:
            self.line("failed", visible(event.failure), style="red")
            return
        text = shortened(result_text(event.result, reader="user"), lines=_RESULT_LINES, width=_RESULT_WIDTH)
        label, style = ("error", "yellow") if event.result.is_error else ("result", "green")
        self.line(label, text, label_style=style)

    def _reject_call(self, event: CallRejected) -> None:
        issues = event.call.issues
        rows = [target_of(event), *(issue_line(issue, self.lang) for issue in issues[:_ISSUES])]
        if (more := len(issues) - _ISSUES) > 0:
            rows.append(self.say("more_issues", count=more))
        self.line("rejected", "\n".join(rows), style="yellow")

    def _end_run(self, answer: Answer) -> None:
        text = plain(answer.text).strip()
        if self._answers and not self._live and text and answer.messages[-1].role == "assistant":
            print(text, flush=True)
        if self.verbose:
            usage = answer.usage
            counts = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
            keys = ("tokens_in", "tokens_cached", "tokens_out")
            parts = [self.say(key, count=count) for key, count in zip(keys, counts, strict=True) if count is not None]
            words = self.say("comma").join(parts) or self.say("tokens_unknown")
            self.line("tokens", self.say("usage", counts=words, replies=answer.replies), style="dim")

    def _broken(self, text: str, indent: int = 0) -> str:
        return wrapped(text, self.console.width, indent) if self.console.is_terminal else text

    def _print(self, text: str, style: str = "", *, end: str = "\n") -> None:
        sys.stdout.flush()
        self.console.print(Text(text, style=style), end=end)


class _ShownStream:
    """Text in pieces, without escapes, and without white space at its edges; its lines are broken where it is wrapped."""

    def __init__(self, write: Callable[[str], None], wrapping: Callable[[], Wrapping | None]) -> None:
        self._write, self._new_wrapping = write, wrapping
        self._plain = PlainStream()
        self._wrapping: Wrapping | None = None
        self._started = False
        self._space = ""  # it is written once something follows

    def feed(self, text: str) -> None:
        self._show(self._plain.feed(text))

    def end(self) -> None:
        """End the line, if there is an open one."""
        self._show(self._plain.close())
        if self._started:
            self._write((self._wrapping.close() if self._wrapping else "") + "\n")
        self._started, self._space = False, ""

    def _show(self, text: str) -> None:
        text = self._space + text if self._started else text.lstrip()
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if not shown:
            return
        if not self._started:
            self._started, self._wrapping = True, self._new_wrapping()
        if self._wrapping:
            shown = self._wrapping.feed(shown) + (self._wrapping.end_word() if self._space else "")
        self._write(shown)
