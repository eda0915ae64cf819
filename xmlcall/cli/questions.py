"""Where the questions of a chat come from: a terminal with line editing and history, or the lines of standard input.

On a terminal Enter sends, unless a backslash stands before it; Alt-Enter begins a new line. A text that is pasted is taken whole,
with its lines, where the terminal marks pastes (bracketed paste). Ctrl-R searches the questions of earlier chats. What could
follow a line is looked for only once the typing pauses.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from ..private_folders import make_private
from .exits import complain
from .lines import LineReader, is_interactive
from .prompt_values import PAUSE

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggest
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

__all__ = ["Questions", "edited", "questions"]


class Questions(Protocol):
    """Gives what a person types."""

    async def next(self, draft: str = "") -> str | None:
        """Wait for the next question or command; None when the person leaves."""


Suggest = Callable[[str], Awaitable[str]]
"""Finds what could follow a line; "" for nothing."""


def questions(status: Callable[[], str], complete: Callable[[str], Iterable[str]], suggest: Suggest) -> Questions:
    """Return what gives questions, line by line, until the person leaves.

    Args:
        complete: gives the ways in which a line may go on, as whole lines.
        suggest: is asked when the typing pauses; what it finds stands behind the line, and the right arrow takes it.
    """
    return _Edited(status, complete, suggest) if is_interactive() else _Piped()


class _Piped:
    def __init__(self) -> None:
        self._lines = LineReader()

    async def next(self, draft: str = "") -> str | None:
        return await self._lines.line()


class _Edited:
    def __init__(self, status: Callable[[], str], complete: Callable[[str], Iterable[str]], suggest: Suggest) -> None:
        self._session = _session(status, complete, suggest)

    async def next(self, draft: str = "") -> str | None:
        while True:  # until there is a line
            try:
                return await self._session.prompt_async(default=draft)
            except KeyboardInterrupt:  # Ctrl-C clears the line
                draft = ""
            except EOFError:
                return None


def _session(status: Callable[[], str], complete: Callable[[str], Iterable[str]], suggest: Suggest) -> "PromptSession[str]":
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.output import create_output
    from prompt_toolkit.shortcuts import CompleteStyle

    class Commands(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterable[Completion]:
            line = document.text_before_cursor
            return [Completion(each, start_position=-len(line)) for each in complete(line)]

    return PromptSession(
        "> ",
        history=_history(),
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
            await asyncio.sleep(PAUSE)
            if buffer.document != document or not document.is_cursor_at_the_end:
                return None
            found = await suggest(document.text)
            return Suggestion(found) if found and not _is_plain() else None

    return Paused()


def _is_plain() -> bool:
    """Say whether what is only suggested would look like what was typed; Tab has it there, too."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "dumb") in ("dumb", "")


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
    """Let the person change a line on the terminal.

    Returns:
        The line as they leave it; "" where they leave with Ctrl-C or Ctrl-D.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    session: PromptSession[str] = PromptSession(prompt, output=create_output(always_prefer_tty=True))
    try:
        return await session.prompt_async(default=text)
    except (KeyboardInterrupt, EOFError):
        return ""


def _history() -> "History":
    """Open the file of earlier questions, which only its owner may read; without it the chat works all the same."""
    import platformdirs
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = platformdirs.user_state_path("xmlcall") / "chat_history"
    try:
        make_private(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError as error:
        complain(f"questions are not kept for the next time: {path}: {error.strerror}")
        return InMemoryHistory()
    return FileHistory(path)
