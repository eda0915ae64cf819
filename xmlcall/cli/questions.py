"""Where the questions of a chat come from: a terminal with line editing and history, or the lines of standard input."""

import os
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from .exits import complain
from .lines import LineReader, is_interactive

if TYPE_CHECKING:
    from prompt_toolkit.history import History

__all__ = ["edited", "questions"]


def questions() -> AsyncGenerator[str]:
    """Give what the person types, line by line, until they leave."""
    return _edited() if is_interactive() else _piped()


async def _piped() -> AsyncGenerator[str]:
    lines = LineReader()
    while (line := await lines.line()) is not None:
        yield line


async def _edited() -> AsyncGenerator[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    # The prompt goes to whichever of standard output and standard error is the terminal.
    session: PromptSession[str] = PromptSession("> ", history=_history(), output=create_output(always_prefer_tty=True))
    while True:  # until the person leaves
        try:
            line = await session.prompt_async()
        except KeyboardInterrupt:  # Ctrl-C clears the line
            continue
        except EOFError:
            return
        yield line


async def edited(prompt: str, text: str) -> str:
    """Let the person change a line on the terminal.

    Args:
        prompt: what stands before it.
        text: the line.

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
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError as error:
        complain(f"questions are not kept for the next time: {path}: {error.strerror}")
        return InMemoryHistory()
    return FileHistory(path)
