"""`xmlcall chat`: a conversation with a model that has tools.

Each turn is a separate task, so that Ctrl-C ends the turn and not the program; what the turn has done until then is kept
(`conversation`). On a terminal, the user edits questions with prompt_toolkit, and a history file keeps them. Otherwise each line
of standard input is a question, and no prompt is shown.
"""

import argparse
import asyncio
import shutil
import signal
import time
from collections.abc import Coroutine, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any

from rich.cells import cell_len, set_cell_size

from ..errors import XmlcallError
from ..hosts.router import HostState
from ..prompting.format import PromptFormat
from ..prompting.results import stopped
from ..systems import on_signals
from ..turn.events import Answer, LoopEvent, ReplyEnded, ReplyStarted
from ..turn_records.keeping import Conversation, checked_text, keep_question
from ..types.calls import Message
from ..types.completion import Usage
from ..types.events import ReasoningDelta, TextDelta, ToolArgumentDelta
from .call_panel import CallLog
from .chat_commands import COMMANDS, HELPING, LEAVING, completions, is_command
from .chat_prompts import PromptValues
from .exits import FAILED, OK, complain, run_async
from .lines import is_interactive, questions
from .open_model import asking_of
from .options import add_model_options
from .plain import visible
from .session import Session, add_record_options, open_session, opening_messages, stop_message, taken_up
from .words import Say

DESCRIPTION = "Talk to a model that has tools. /help lists the commands of a chat."
EPILOG = """examples:
  xmlcall chat
  xmlcall chat --model http://127.0.0.1:8080/v1 --mcp servers.json
  xmlcall chat --mcp my_server.py --mcp 'npx -y @modelcontextprotocol/server-filesystem /tmp'
  xmlcall chat --continue
  printf 'What is 3 times 4?\\nAnd plus 5?\\n' | xmlcall chat

Before a call to a configured server runs, it is shown and you are asked. Tools of the built-in demo server run without asking.
"""

COMMON = "--model --mcp --no-tools --profile --ask --system --yes --allow --continue --resume --verbose"
_LEAST_TOKENS, _LEAST_SECONDS = 5, 0.05  # shorter replies give no meaningful speed


def configure(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser, talks=True)
    add_record_options(parser, resumes=True)


def execute(options: argparse.Namespace) -> int:
    return run_async(_chat(options))


async def _chat(options: argparse.Namespace) -> int:
    start = opening_messages(options)
    calls = CallLog(lang=asking_of(options).lang)
    async with open_session(options, calls=calls if is_interactive() else None) as session:
        chat = Chat(session, start, calls, options.max_turns)
        if is_interactive():
            model, count = visible(session.loop.backend.model), len(await session.loop.catalog())
            session.display.line("", chat.say("greeting", model=model, count=count), style="dim")
        chat.go_on(await taken_up(session, start))
        complete = partial(completions, chat)
        next_line = questions(chat.status_text, complete, chat.values.rest, keeps=not options.no_record)
        while not chat.is_over:
            line = await next_line(chat.take_draft())
            if line is None:
                break
            await chat.take(line.strip())
    return FAILED if chat.failed and not is_interactive() else OK


class Chat:
    def __init__(self, session: Session, start: list[Message], calls: CallLog, max_turns: int) -> None:
        self.session, self.calls = session, calls
        self.say = session.display.say
        self.conversation = Conversation(start, stopped("answer", PromptFormat(lang=session.display.lang)))
        self.status = StatusLine(self.say)
        self.draft, self.draft_replaces = "", False  # for the next input line; whether it replaces the last question
        self.values = PromptValues(session.loop.router)
        self.failed = self.is_over = False
        self._max_turns = max_turns
        self._replaces = False  # whether the current input line replaces the last question

    def go_on(self, messages: list[Message]) -> None:
        """Continue a conversation, or start with these messages."""
        self.conversation.go_on(messages)
        self.calls.go_on(messages)

    def status_text(self) -> str:
        """Return the line below the prompt."""
        loop = self.session.loop
        backend, width = loop.backend, shutil.get_terminal_size().columns
        return self.status.text(
            backend.model, self.session.mode, backend.capabilities.context_length, loop.router.states(), width
        )

    def take_draft(self) -> str:
        draft, self._replaces = self.draft, self.draft_replaces
        self.draft, self.draft_replaces = "", False
        return draft

    async def take(self, line: str) -> None:
        """Act on a line. Show errors, and continue the chat after them."""
        if line.lower() in LEAVING:
            self.is_over = True
            return
        try:
            await self._act(line)
        except XmlcallError as error:
            self.failed = True
            self.session.display.settle()
            complain(str(error))

    async def _act(self, line: str) -> None:
        line = "/help" if line.lower() in HELPING else line
        name, _, argument = line.partition(" ")
        command = COMMANDS.get(name) if is_command(line) else None
        if command and (command.takes or not argument):
            await self._interruptible(command.run(self, argument.strip()))
        elif is_command(line):
            complain(self.say("unknown_command", commands=", ".join(COMMANDS), line=repr(line[:80])))
        elif line:
            if self._replaces:
                self.conversation.take_back()
            await self._interruptible(self.answer(line))

    async def _interruptible(self, work: Coroutine[Any, Any, None]) -> None:
        loop, task, current = asyncio.get_running_loop(), asyncio.create_task(work), asyncio.current_task()
        assert current is not None
        signals = (signal.SIGINT,) if is_interactive() else ()  # a person's Ctrl-C ends the turn, and not the program
        try:
            with on_signals(signals, lambda *_: loop.call_soon_threadsafe(task.cancel)):
                await task
        except asyncio.CancelledError:
            if current.cancelling():  # the program ends, not only the turn
                raise
            self.session.display.notice(self.say("stopped"))

    async def answer(self, question: str) -> None:
        """Ask the model and show its turn. However the turn ends, the conversation can continue."""
        messages = self.conversation.ask(checked_text(question, "a question"))
        display = self.session.display
        self.calls.ask(question)
        display.wait("waiting_servers")
        await self.session.tell_notices()
        await keep_question(self.session.keeper, self.session.loop, messages)
        try:
            answer = await self._answered(messages)
            self.conversation.end(answer.messages)
        finally:
            self.session.keeper.keep(self.conversation.messages)
        await self.session.tell_of_answer(answer)
        if problem := stop_message(answer, self._max_turns, self.say):
            self.failed = True
            complain(problem)

    async def _answered(self, messages: list[Message]) -> Answer:
        answer: Answer | None = None
        async with aclosing(self.session.loop.run(messages, on_stop=self._stop)) as events:
            async for event in events:
                self.session.keeper.note(event)
                self.status.note(event)
                if self.session.display.calls is None:  # in a pipe it shows calls in full, and notes none
                    self.calls.note(event)
                self.session.display.show(event)
                answer = event if isinstance(event, Answer) else answer
        assert answer is not None
        return answer

    def _stop(self, messages: tuple[Message, ...]) -> None:
        self.session.display.stop_call()
        self.conversation.end(messages)


class StatusLine:
    def __init__(self, say: Say) -> None:
        self._say = say
        self.forget()

    def forget(self) -> None:
        self._last: Usage = Usage()  # tokens of the last reply
        self._run: Usage = Usage()  # tokens of all replies to the last question
        self._speed: float | None = None
        self._first: float | None = None

    def note(self, event: LoopEvent) -> None:
        match event:
            case ReplyStarted():
                self._first = None
            case TextDelta() | ReasoningDelta() | ToolArgumentDelta() if self._first is None:
                self._first = time.monotonic()
            case ReplyEnded(usage=usage):
                self._last = usage
                tokens = usage.completion_tokens or 0
                seconds = time.monotonic() - self._first if self._first is not None else 0.0
                if tokens >= _LEAST_TOKENS and seconds >= _LEAST_SECONDS:
                    self._speed = tokens / seconds
            case Answer(usage=usage):
                self._run = usage

    def text(self, model: str, way: str, context: int | None, hosts: Iterable[HostState], width: int) -> str:
        states = [state for state in hosts if state.kind != "off"]
        answering = sum(state.kind == "answers" for state in states)
        parts = [visible(model), way, self._say("status_servers", count=answering, all=len(states)), *self._counts(context)]
        line = ""
        for part in parts:
            longer = f"{line} | {part}" if line else part
            if cell_len(longer) > width - 1:
                break
            line = longer
        return line or set_cell_size(visible(model), max(width - 1, 1))

    def _counts(self, context: int | None) -> Iterable[str]:
        if (prompt := self._last.prompt_tokens) is not None:
            used = f"{'~' if self._last.is_estimated else ''}{prompt + (self._last.completion_tokens or 0):,}"
            yield (
                self._say("status_tokens_of", used=used, all=f"{context:,}") if context else self._say("status_tokens", used=used)
            )
        if self._run.prompt_tokens and self._run.cached_tokens is not None:
            yield self._say("status_cached", share=round(100 * self._run.cached_tokens / self._run.prompt_tokens))
        if self._speed is not None:
            yield self._say("status_speed", speed=f"{self._speed:,.0f}")
