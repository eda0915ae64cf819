"""`xmlcall chat`: a conversation with a model that has tools.

A turn is a task of its own, so that Ctrl-C can end it and leave the conversation as it was before the question. On a terminal
questions are edited with prompt_toolkit and kept in a history file; otherwise each line of standard input is one, without a
prompt.
"""

import argparse
import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from ..agent.events import Answer
from ..errors import XmlcallError
from ..types.calls import Message
from .exits import FAILED, OK, complain, run_async
from .inputs import checked_text
from .keeping import add_record_options
from .lines import is_interactive
from .options import add_model_options
from .pager import page
from .plain import visible
from .questions import questions
from .resuming import taken_up
from .session import Session, open_session, opening_messages, stop_message
from .tools import found, parameter_lines, tool_lines

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

DESCRIPTION = "Talk to a model that has tools. /help tells what can be typed besides questions."
EPILOG = """examples:
  xmlcall chat
  xmlcall chat --model http://127.0.0.1:8080/v1 --mcp servers.json
  xmlcall chat --mcp my_server.py --mcp 'npx -y @modelcontextprotocol/server-filesystem /tmp'
  xmlcall chat --continue
  printf 'What is 3 times 4?\\nAnd plus 5?\\n' | xmlcall chat

A call of a configured server is shown and asked about before it runs. Tools of the built-in demo server run without asking.
"""

_COMMANDS = ("/help", "/tools", "/clear", "/quit")
_LEAVING = frozenset({"/quit", "/exit", "exit", "quit", ":q", "退出"})


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_model_options(parser)
    add_record_options(parser, resumes=True)


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_chat(options))


async def _chat(options: argparse.Namespace) -> int:
    start = opening_messages(options)
    async with open_session(options) as session:
        if is_interactive():
            session.display.line("", await _greeting(session), style="dim")
        chat = _Chat(session, start, options.max_turns, await taken_up(session, start))
        async with aclosing(questions()) as lines:
            async for line in lines:
                if not await chat.take(line.strip()):
                    break
    return FAILED if chat.failed and not is_interactive() else OK


async def _greeting(session: Session) -> str:
    count = len(await session.loop.catalog())
    return session.display.say("greeting", model=visible(session.loop.backend.model), count=count)


class _Chat:
    """The conversation.

    Args:
        session: open.
        start: the messages that every conversation begins with.
        max_turns: replies to one question.
        messages: of the conversation that is gone on with; those at the start if it is a new one.
    """

    def __init__(self, session: Session, start: list[Message], max_turns: int, messages: list[Message]) -> None:
        self.failed = False
        self._session, self._start, self._max_turns = session, start, max_turns
        self._messages = messages
        self._say = session.display.say
        self._commands = {"/help": self._help, "/tools": self._tools, "/clear": self._clear}

    async def take(self, line: str) -> bool:
        """Act on a line; False if it was the last one. What goes wrong is shown, and the chat goes on."""
        if line.lower() in _LEAVING:
            return False
        try:
            await self._act(line)
        except XmlcallError as error:
            self.failed = True
            self._session.display.settle()
            complain(str(error))
        return True

    async def _act(self, line: str) -> None:
        command, _, argument = line.partition(" ")
        if command in self._commands and (not argument or command == "/tools"):
            await self._interruptible(self._commands[command](argument.strip()))
        elif line.startswith("/"):
            complain(self._say("unknown_command", commands=", ".join(_COMMANDS), line=repr(line[:80])))
        elif line:
            await self._interruptible(self._answer(line))

    async def _interruptible(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that Ctrl-C may end; a turn that fails or is interrupted leaves the conversation as it was."""
        task = asyncio.create_task(work)
        current = asyncio.current_task()
        assert current is not None
        try:
            with _interrupt_ends(task):
                await task
        except asyncio.CancelledError:
            if current.cancelling():  # not the turn but the program is to end
                raise
            self._session.display.notice(self._say("stopped"))

    async def _answer(self, question: str) -> None:
        messages = [*self._messages, Message(role="user", content=checked_text(question, "a question"))]
        await self._session.tell_notices()
        await self._session.asked(messages)
        try:
            answer = await self._answered(messages)
            if answer.messages[-1].role == "assistant":  # no results last: two messages of the person cannot follow each other
                self._messages = list(answer.messages)
        finally:
            self._session.keeper.keep(self._messages)
        if problem := stop_message(answer, self._max_turns, self._say):
            self.failed = True
            complain(problem)

    async def _answered(self, messages: list[Message]) -> Answer:
        answer: Answer | None = None
        async with aclosing(self._session.loop.run(messages)) as events:
            async for event in events:
                self._session.keeper.note(event)
                self._session.display.show(event)
                answer = event if isinstance(event, Answer) else answer
        assert answer is not None
        return answer

    async def _help(self, _: str) -> None:
        for command in _COMMANDS:
            print(f"{command:8} {self._say(f'help_{command[1:]}')}", flush=True)

    async def _tools(self, name: str) -> None:
        loop = self._session.loop
        catalog = await loop.catalog()
        if not name:
            await page("\n".join(tool_lines(catalog, loop.router)))
        elif tool := found(name, catalog, loop.router):
            await page("\n".join(parameter_lines(tool, loop.router, self._say)))
        else:
            complain(self._say("unknown_tool", name=repr(name[:80])))

    async def _clear(self, _: str) -> None:
        self._messages = list(self._start)
        self._session.keeper.new()
        self._session.display.notice(self._say("new_conversation"))


@contextmanager
def _interrupt_ends(task: asyncio.Task[None]) -> Iterator[None]:
    """Let Ctrl-C cancel a task, and not the program, where a person sits at the terminal."""
    if not is_interactive():
        yield
        return
    loop = asyncio.get_running_loop()
    before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(task.cancel))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
