"""How a run looks: the answer on standard output, everything else on standard error.

Whether a text is the answer or only comes before a call is known when its reply has ended. On a terminal both land on one screen,
so text is written as it comes. Elsewhere (`xmlcall run ... > answer.txt`) it waits for the end of its reply: then the answer goes
to standard output, and text before a call to standard error, dimmed.

Everything shown passes `plain` or `visible`, and reaches rich as `Text`, whose content it does not interpret.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from rich.text import Text

from ..completion import Usage
from ..content import result_text
from ..events import Markup, ReasoningDelta, Repaired, TextDelta, ToolArgumentDelta, ToolCallEnd, ToolCallStart
from ..generation import Continued
from ..loop_events import (
    Answer,
    CallDenied,
    CallFinished,
    CallRejected,
    CallStarted,
    LoopEvent,
    RetryAsked,
    Shortened,
    TurnEnded,
    TurnStarted,
)
from ..policy import Proposal
from ..toolneed import ToolNeed
from ..types import InvalidCall, Reply, ToolCall
from .jsonform import json_text
from .plain import PlainStream, plain, shortened, visible
from .waiting import SlowStatus, error_console

__all__ = ["Display"]

_RESULT_LINES, _RESULT_WIDTH = 6, 300
_LABEL_WIDTH = len("rejected ")
_VALUE_WIDTH = 200  # characters of one argument, where nobody has to judge it

_REFUSALS: Mapping[str, str] = {
    "invented_results": "the model wrote results that no tool gave; it is told, and asked again",
    "own_words": "the model only repeated its instructions; it is told, and asked again",
}

_UNSEEN = Markup | Repaired | ToolCallStart | ToolArgumentDelta | ToolCallEnd


class Display:
    """Shows the events of a run as they happen; from the thread of a running event loop.

    Args:
        live: write text to standard output as it comes.
        answers: write the answer to standard output; False where something else is printed there.
        verbose: show repairs and tokens.
    """

    def __init__(self, *, live: bool, answers: bool = True, verbose: bool = False) -> None:
        self.console = error_console()
        self.verbose = verbose
        self._live, self._answers = live and answers, answers
        self._text = _Stream(_to_stdout)
        self._reasoning = _Stream(lambda text: self._print(text, "dim", end=""))
        self._status = SlowStatus(self.console)
        self._judged: ToolCall | None = None  # the call that was shown last, before it was decided about

    def show(self, event: LoopEvent) -> None:
        """Show one event, if there is anything to see."""
        if isinstance(event, _UNSEEN) or (isinstance(event, TextDelta) and not self._live):
            return
        self._status.stop()
        if isinstance(event, TextDelta | ReasoningDelta):
            self._stream(event)
            return
        self.settle()
        match event:
            case ToolNeed():
                self._tell_need(event)
            case TurnStarted():
                self._status.start("Waiting for the model ...")
            case Continued():
                self.line("cut", "the reply was cut off inside a call; the model goes on with it", style="dim")
                self._status.start("Waiting for the model ...")
            case Shortened():
                self._tell_shortened(event)
            case RetryAsked() if event.constrained:
                self.line("retry", f"the next reply is constrained to a call of {visible(event.constrained)}", style="dim")
            case RetryAsked() if event.refusal:
                self.line("retry", _REFUSALS[event.refusal], style="dim")
            case TurnEnded():
                self._end_turn(event.reply)
            case CallStarted():
                self._start_call(event)
            case CallFinished():
                self._finish_call(event)
            case CallRejected():
                self._reject_call(event.call)
            case CallDenied() if event.call is not self._judged:
                self.line("denied", f"{visible(event.call.name)}: {visible(event.reason)}", style="yellow")
            case Answer():
                self._end_run(event)

    def settle(self) -> None:
        """End what is on its way, so that something else can be shown or asked."""
        self._status.stop()
        self._reasoning.end()
        self._text.end()

    def notice(self, text: str) -> None:
        """Show a remark of our own."""
        self.settle()
        self._print(f"xmlcall: {visible(text)}", "yellow")

    def line(self, label: str, text: str, *, style: str = "", label_style: str | None = None) -> None:
        """Show a labelled text that is safe already; further lines are indented under the first."""
        sys.stdout.flush()
        label = label and f"{label:<{_LABEL_WIDTH}}"
        indented = text.replace("\n", "\n" + " " * len(label))
        self.console.print(Text.assemble((label, style if label_style is None else label_style), (indented, style)))

    def proposal(self, proposal: Proposal) -> None:
        """Show a call for a person to judge: the server, the tool and the whole arguments."""
        self.settle()
        self._judged = proposal.call
        self.console.print(
            Text.assemble("The model wants to run ", (visible(proposal.target), "bold"), f" (server {visible(proposal.host)}):")
        )
        if proposal.times_in_a_row > 1:
            self._print(f"  the same call with the same arguments, now {proposal.times_in_a_row} times in a row", "yellow")
        for row in json_text(proposal.call.arguments).split("\n"):
            self._print(f"  {visible(row)}")

    def refused(self, proposal: Proposal, why: str) -> None:
        """Show a call that does not run, and what to do about it."""
        self.settle()
        self._judged = proposal.call
        self.line("denied", f"{visible(proposal.target)}({_arguments(proposal.call.arguments)})", label_style="yellow")
        self.notice(why)

    def ask(self, question: str) -> None:
        """Show a question and leave the cursor behind it."""
        self._print(question, "bold", end="")
        self.console.file.flush()

    def _tell_need(self, need: ToolNeed) -> None:
        if self.verbose or not need.needs_tool:
            what = "needs a tool" if need.needs_tool else "needs no tool"
            odds = f"log-odds of a call {need.log_odds:g}, threshold {need.threshold:g}"
            self.line("decided", f"the question {what} ({odds})", style="dim")
        self._status.start("Waiting for the model ...")

    def _tell_shortened(self, event: Shortened) -> None:
        """Say what the model is not sent; of several results all that is missing together."""
        missing = sum(cut.left_out for cut in event.results)
        whole = sum(cut.characters for cut in event.results)
        names = ", ".join(dict.fromkeys(visible(cut.name) for cut in event.results))
        rows = [f"{missing:,} of {whole:,} characters of results of {names}"] if event.results else []
        rows += [f"{event.messages:,} of the oldest messages"] if event.messages else []
        self.line("left out", f"{' and '.join(rows)}: they do not fit into the model's context (see --context)", style="dim")

    def _stream(self, event: TextDelta | ReasoningDelta) -> None:
        to, other = (self._text, self._reasoning) if isinstance(event, TextDelta) else (self._reasoning, self._text)
        other.end()
        to.feed(event.text)

    def _end_turn(self, reply: Reply) -> None:
        text = plain(reply.text).strip()
        if reply.calls and text and not self._live:
            self._print(text, "dim")
        if self.verbose and reply.repairs:
            self.line("repaired", ", ".join(repair.code for repair in reply.repairs), style="dim")

    def _start_call(self, event: CallStarted) -> None:
        target = f"{visible(event.host)}.{visible(event.host_tool)}"
        if event.call is not self._judged:
            self.line("call", f"{target}({_arguments(event.call.arguments)})", label_style="cyan")
        self._status.start(f"Running {target} ...")

    def _finish_call(self, event: CallFinished) -> None:
        if event.failure:
            self.line("failed", visible(event.failure), style="red")
            return
        text = shortened(result_text(event.result), lines=_RESULT_LINES, width=_RESULT_WIDTH)
        label, style = ("error", "yellow") if event.result.is_error else ("result", "green")
        self.line(label, text, label_style=style)

    def _reject_call(self, call: InvalidCall) -> None:
        reasons = [f"{issue.path}: {issue.message}" if issue.path != "$" else issue.message for issue in call.issues]
        self.line("rejected", "\n".join(visible(reason) for reason in [call.name, *reasons]), style="yellow")

    def _end_run(self, answer: Answer) -> None:
        text = plain(answer.text).strip()
        if self._answers and not self._live and text and answer.messages[-1].role == "assistant":
            print(text, flush=True)
        if self.verbose:
            self.line("tokens", f"{_tokens(answer.usage)}; replies: {answer.turns}", style="dim")

    def _print(self, text: str, style: str = "", *, end: str = "\n") -> None:
        sys.stdout.flush()
        self.console.print(Text(text, style=style), end=end)


class _Stream:
    """Text in pieces, without escapes, and without white space at its edges.

    Args:
        write: where to.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._plain = PlainStream()
        self._started = False
        self._space = ""  # it is written once something follows

    def feed(self, text: str) -> None:
        self._show(self._plain.feed(text))

    def end(self) -> None:
        """End the line, if one was begun."""
        self._show(self._plain.close())
        if self._started:
            self._write("\n")
        self._started, self._space = False, ""

    def _show(self, text: str) -> None:
        text = self._space + text if self._started else text.lstrip()
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            self._started = True
            self._write(shown)


def _to_stdout(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _arguments(arguments: Mapping[str, Any]) -> str:
    """Write arguments as in a call, each shortened."""
    return ", ".join(f"{visible(name)}={_value(value)}" for name, value in arguments.items())


def _value(value: Any) -> str:
    text = visible(json_text(value, indent=None))
    return text if len(text) <= _VALUE_WIDTH else f"{text[:_VALUE_WIDTH]}... ({len(text)} characters)"


def _tokens(usage: Usage) -> str:
    counts = {"in": usage.prompt_tokens, "from the cache": usage.cached_tokens, "out": usage.completion_tokens}
    return ", ".join(f"{count} {words}" for words, count in counts.items() if count is not None) or "not told by the server"
