"""What a person types: lines of standard input, and on a terminal a line with editing and history.

Lines of standard input are awaited without a thread where the event loop can watch the descriptor: it is read when it has
something. Regular files cannot be watched and never block. On Windows nothing can be watched. There a thread reads, which does
not keep the program from ending; a read whose wait was cancelled serves the next wait.

In a chat on a terminal Enter sends, unless a backslash precedes it; Alt-Enter begins a new line. A text that is pasted is
taken whole, with its lines, where the terminal marks pastes (bracketed paste). Ctrl-R searches the questions of earlier chats.
Suggestions for the rest of a line are looked up only once the typing pauses.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..errors import UsageError
from ..private_folders import make_private, user_path
from ..systems import typed_so_far
from .exits import complain
from .plain import plain

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggest
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

YES: Final = frozenset({"y", "yes", "是"})  # answers of the user, whatever the language
NO: Final = frozenset({"n", "no", "否"})
ATTEMPTS: Final = 5  # at giving one of the expected answers
T = TypeVar("T")
_MAX_LINE: Final = 1 << 20
_PIECE: Final = 1 << 16
_PAUSE: Final = 0.25  # seconds without a key before a server is asked (MCP 2025-11-25, completion: clients SHOULD wait)
Suggest = Callable[[str], Awaitable[str]]  # returns how a line could continue; "" if that is unknown


class LineReader:
    """Reads lines from a descriptor; nothing else may read from it meanwhile."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._reading: asyncio.Future[bytes] | None = None  # a read by a thread
        self._read = b""
        self._ended = False

    async def line(self) -> str | None:
        """Wait for the next line, and return it without its end; None at the end of input."""
        while b"\n" not in self._read and not self._ended:
            if len(self._read) > _MAX_LINE:
                raise UsageError(f"expected lines of at most {_MAX_LINE} bytes on standard input, got a longer one")
            data = await self._next()
            self._ended = not data
            self._read += data
        if not self._read:
            return None
        line, _, self._read = self._read.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r")

    async def _next(self) -> bytes:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except PermissionError:  # epoll's word for a regular file
            return os.read(self._descriptor, _PIECE)
        except NotImplementedError:  # on Windows
            return await self._read_by_thread()
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, _PIECE)

    async def _read_by_thread(self) -> bytes:
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_future()
            threading.Thread(target=_read, args=(self._descriptor, self._reading), daemon=True).start()
        data = await asyncio.shield(self._reading)
        self._reading = None
        return data


def _read(descriptor: int, read: asyncio.Future[bytes]) -> None:
    with open(descriptor, "rb", buffering=0, closefd=False) as file:  # from a console, Python reads UTF-8
        data = file.read(_PIECE)
    with contextlib.suppress(RuntimeError):  # the loop has ended
        read.get_loop().call_soon_threadsafe(read.set_result, data)


async def answered(ask: Callable[[], object], answers: Mapping[str, T]) -> T | None:
    """Ask until the answer is an expected one, in any case; None at the end of input, or after too many others."""
    lines = LineReader(sys.stdin.fileno())
    for _ in range(ATTEMPTS):
        ask()
        line = await lines.line()
        if line is None:
            print(file=sys.stderr)
            return None
        if (word := line.strip().lower()) in answers:
            return answers[word]
    return None


_typed_ahead: list[str] = []


def put_typed_aside() -> None:
    """Keep what was typed so far for the next input line, so that it does not answer a question that the user had not seen."""
    _typed_ahead.append(plain(typed_so_far()))


def is_interactive() -> bool:
    """Return whether there is a user to ask: standard input and standard error are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


Questions = Callable[[str], Awaitable[str | None]]
"""Waits for the next question or command, which begins with a draft on a terminal; None when the user leaves."""


def questions(status: Callable[[], str], complete: Callable[[str], Iterable[str]], suggest: Suggest, *, keeps: bool) -> Questions:
    """Return a reader of questions, which are kept for the next time if `keeps`.

    `complete` gives whole lines that one may become; `suggest` is asked when typing pauses.
    """
    if not is_interactive():
        lines = LineReader()
        return lambda draft: lines.line()
    session = _session(status, complete, suggest, keeps)

    async def next_line(draft: str) -> str | None:
        draft = "".join(_typed_ahead).rstrip("\n") + draft
        _typed_ahead.clear()
        while True:  # until there is a line
            try:
                return await session.prompt_async(default=draft)
            except KeyboardInterrupt:  # Ctrl-C clears the line
                draft = ""
            except EOFError:
                return None

    return next_line


def _session(
    status: Callable[[], str], complete: Callable[[str], Iterable[str]], suggest: Suggest, keeps: bool
) -> "PromptSession[str]":
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.history import InMemoryHistory
    from prompt_toolkit.output import create_output
    from prompt_toolkit.shortcuts import CompleteStyle

    class Commands(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterable[Completion]:
            line = document.text_before_cursor
            return [Completion(each, start_position=-len(line)) for each in complete(line)]

    return PromptSession(
        "> ",
        history=_history() if keeps else InMemoryHistory(),
        output=create_output(always_prefer_tty=True),  # whichever of standard output and standard error is the terminal
        multiline=True,
        prompt_continuation="  ",
        key_bindings=_keys(),
        bottom_toolbar=lambda: [("", status())],
        completer=Commands(),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,  # no room for a menu is kept below the prompt
        enable_open_in_editor=False,
        auto_suggest=_when_typing_pauses(suggest),
    )


def _when_typing_pauses(suggest: Suggest) -> "AutoSuggest":
    from prompt_toolkit.auto_suggest import AutoSuggest, Suggestion

    class Paused(AutoSuggest):
        def get_suggestion(self, buffer: Any, document: Any) -> None:
            return None

        async def get_suggestion_async(self, buffer: Any, document: Any) -> Suggestion | None:
            await asyncio.sleep(_PAUSE)
            if buffer.document != document or not document.is_cursor_at_the_end:
                return None
            found = await suggest(document.text)
            # Without colours a suggestion would look like typed text; Tab still offers it there.
            is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "dumb") in ("dumb", "")
            return Suggestion(found) if found and not is_plain else None

    return Paused()


def _keys() -> "KeyBindings":
    from prompt_toolkit.enums import DEFAULT_BUFFER
    from prompt_toolkit.filters import has_focus
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def send(event: "KeyPressEvent") -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor(1)
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=has_focus(DEFAULT_BUFFER))
    def begin_line(event: "KeyPressEvent") -> None:
        event.current_buffer.insert_text("\n")

    return keys


async def edited(prompt: str, text: str) -> str:
    """Let the user edit a line on the terminal; "" after Ctrl-C or Ctrl-D."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    session: PromptSession[str] = PromptSession(prompt, output=create_output(always_prefer_tty=True))
    try:
        return await session.prompt_async(default=text)
    except (KeyboardInterrupt, EOFError):
        return ""


def _history() -> "History":
    """Open the file of earlier questions, which only its owner may read; without it the chat still works."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = user_path("state", "chat_history")
    try:
        make_private(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError as error:
        complain(f"questions are not kept for the next time: {path}: {error.strerror}")
        return InMemoryHistory()
    return FileHistory(path)
