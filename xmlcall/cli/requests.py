"""What servers may ask for in `run` and `chat`, as the options say: answers, completions, folders, an ear for their log."""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from ..backends.base import Backend
from ..errors import UsageError
from ..hosts.mcp.requests import ClientFeatures, Elicit, LogMessage, Sample
from .display import Display
from .elicitation import Elicitation
from .lines import forget_typed, is_interactive
from .plain import visible
from .sampling import SamplingRequests
from .sign_in import ask_to_sign_in

__all__ = ["features_of", "page_features"]

_LOG_WIDTH = 500  # characters of a message
_REFUSED = {  # method -> key of what is said
    "elicitation/create": "no_elicitation",
    "sampling/createMessage": "no_sampling",
    "roots/list": "no_roots",
}


def features_of(options: argparse.Namespace, display: Display, backend: Callable[[], Backend]) -> ClientFeatures:
    """Return what is declared to servers: nothing that needs a person where there is none."""
    terminal = asyncio.Lock()
    is_asked = is_interactive() and options.sampling == "ask"
    sampling = SamplingRequests(display, terminal if is_asked else None, backend, options.max_tokens)
    return ClientFeatures(
        elicit=Elicitation(display, terminal) if is_interactive() else None,
        sample=sampling if is_asked or options.sampling == "allow" else None,
        roots=tuple(map(_folder, options.root)),
        log=_Log(display) if options.verbose else None,
        refused=_Refused(display),
        sign_in=_SigningIn(display, terminal) if is_interactive() else None,
    )


def page_features(
    options: argparse.Namespace,
    display: Display,
    *,
    elicit: Elicit,
    sample: Sample | None,
    sign_in: Callable[[str, str], Awaitable[bool]],
    notice: Callable[[str], None],
) -> ClientFeatures:
    """Return what is declared to servers where a page is asked, and not the terminal.

    Args:
        sign_in: asks the person to sign in while a call waits for that.
    """
    return ClientFeatures(
        elicit=elicit,
        sample=sample,
        roots=tuple(map(_folder, options.root)),
        log=_Log(display) if options.verbose else None,
        refused=_Refused(display, notice),
        sign_in=sign_in,
    )


def _folder(given: str) -> str:
    path = Path(given).expanduser().absolute()
    if not path.is_dir():
        raise UsageError(f"--root: expected a folder, got {given[:200]!r}")
    return str(path)


class _SigningIn:
    """Asks the person to sign in while a call waits for that."""

    def __init__(self, display: Display, terminal: asyncio.Lock) -> None:
        self._display, self._terminal = display, terminal

    async def __call__(self, server: str, url: str) -> bool:
        async with self._terminal:
            self._display.settle()
            forget_typed()
            return await ask_to_sign_in(server, url)


class _Log:
    """Shows log messages of servers."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def __call__(self, message: LogMessage) -> None:
        data = message.data if isinstance(message.data, str) else json.dumps(message.data, ensure_ascii=False)
        part = f" {visible(message.logger)}" if message.logger else ""
        left_out = f" ({self._display.say('log_left_out', count=message.left_out)})" if message.left_out else ""
        text = visible(data[:_LOG_WIDTH]) + (f"... ({len(data)} characters)" if len(data) > _LOG_WIDTH else "")
        self._display.settle()
        self._display.line("log", f"{visible(message.server)}{part}, {message.level}: {text}{left_out}", style="dim")


class _Refused:
    """Says once what a server has asked for in vain."""

    def __init__(self, display: Display, more: Callable[[str], None] | None = None) -> None:
        self._display, self._told = display, set[tuple[str, str]]()
        self._more = more

    def __call__(self, server: str, method: str) -> None:
        if (server, method) not in self._told:
            self._told.add((server, method))
            told = self._display.say(_REFUSED[method], server=server)
            self._display.notice(told)
            if self._more is not None:
                self._more(told)
