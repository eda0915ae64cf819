"""What servers may ask for in `run` and `chat`, depending on the options: answers, completions, folders, a reader of their log.

A server may have the person fill in a form, or visit an address (MCP, elicitation). The person sees which server asks, may look
over the answers before they go, and may decline or cancel at every line. An address is shown in full and never opened here: the
person does that. Only a terminal is asked; without one the capability is not declared. As with calls, what was typed before the
question appeared does not answer it.

A server may ask for a completion (MCP, sampling). The person sees and approves the request and the reply. The model is the one
of the run. It is asked without the tools and without the conversation: the server's messages are all that it sees.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from ..agent.sampling import completed
from ..backends.base import Backend
from ..errors import BackendError, UsageError
from ..hosts.mcp.server_requests import (
    ClientFeatures,
    Elicit,
    ElicitAnswer,
    Field,
    FormProblem,
    FormRequest,
    LogMessage,
    Sample,
    SampleReply,
    SampleRequest,
    UrlRequest,
    fields,
    problems,
    read,
    with_defaults,
)
from ..types.calls import MISSING
from .display import Display
from .lines import ATTEMPTS, NO, YES, LineReader, answered, is_interactive, put_typed_aside
from .open_model import asking_of
from .plain import visible
from .servers import ask_to_sign_in

_LOG_WIDTH = 500  # characters of a message
_REFUSED = {  # method -> key of what is said
    "elicitation/create": "no_elicitation",
    "sampling/createMessage": "no_sampling",
    "roots/list": "no_roots",
}
_OPTIONS_SHOWN: Final = 50  # how many options of a field are shown at most
_Leaving = Literal["decline", "cancel"]
_Step = Literal["send", "edit"] | _Leaving
_WORDS: Final[Mapping[_Step, Iterable[str]]] = {
    "send": YES,
    "edit": ("e", "edit", "修改"),
    "decline": NO,
    "cancel": ("c", "cancel", "取消"),
}
_STEPS: Final[Mapping[str, _Step]] = {word: step for step, words in _WORDS.items() for word in words}
_LEAVING: Final[Mapping[str, _Leaving]] = {"/no": "decline", "/cancel": "cancel"}


def features_of(options: argparse.Namespace, display: Display, backend: Callable[[], Backend]) -> ClientFeatures:
    """Return what is declared to servers: nothing that needs a person if no person can be asked."""
    terminal = asyncio.Lock()
    is_asked = is_interactive() and options.sampling == "ask"
    sampling = _Sampling(display, terminal if is_asked else None, backend, asking_of(options).max_tokens)
    return declared(
        options,
        display,
        elicit=_Elicitation(display, terminal) if is_interactive() else None,
        sample=sampling if is_asked or options.sampling == "allow" else None,
        sign_in=partial(_ask_to_sign_in, display, terminal) if is_interactive() else None,
    )


def declared(
    options: argparse.Namespace,
    display: Display,
    *,
    elicit: Elicit | None,
    sample: Sample | None,
    sign_in: Callable[[str, str], Awaitable[bool]] | None,
    notice: Callable[[str], None] = lambda text: None,
) -> ClientFeatures:
    """Return what is declared to servers, whoever asks the user: the terminal or the page."""
    return ClientFeatures(
        elicit=elicit,
        sample=sample,
        roots=tuple(map(_folder, options.root)),
        log=partial(_show_log, display) if options.verbose else None,
        refused=_refusing(display, notice),
        sign_in=sign_in,
    )


def _folder(given: str) -> str:
    path = Path(given).expanduser().absolute()
    if not path.is_dir():
        raise UsageError(f"--root: expected a folder, got {given[:200]!r}")
    return str(path)


async def _ask_to_sign_in(display: Display, terminal: asyncio.Lock, server: str, url: str) -> bool:
    async with terminal:
        display.settle()
        put_typed_aside()
        return await ask_to_sign_in(server, url)


def _show_log(display: Display, message: LogMessage) -> None:
    data = message.data if isinstance(message.data, str) else json.dumps(message.data, ensure_ascii=False)
    part = f" {visible(message.logger)}" if message.logger else ""
    left_out = f" ({display.say('log_left_out', count=message.left_out)})" if message.left_out else ""
    text = visible(data[:_LOG_WIDTH]) + (f"... ({len(data)} characters)" if len(data) > _LOG_WIDTH else "")
    display.settle()
    display.line("log", f"{visible(message.server)}{part}, {message.level}: {text}{left_out}", style="dim")


def _refusing(display: Display, notice: Callable[[str], None]) -> Callable[[str, str], None]:
    """Return a function that reports once what a server has asked for in vain."""

    @cache
    def refused(server: str, method: str) -> None:
        text = display.say(_REFUSED[method], server=server)
        display.notice(text)
        notice(text)

    return refused


class _Left(Exception):
    """The person left a form without sending it."""

    def __init__(self, action: _Leaving) -> None:
        self.action = action


class _Elicitation:
    """Asks the person on the terminal, one question after the other."""

    def __init__(self, display: Display, terminal: asyncio.Lock) -> None:
        self._display, self._say = display, display.say
        self._terminal = terminal

    async def __call__(self, request: FormRequest | UrlRequest) -> ElicitAnswer:
        """Show a request and wait for the answer; the end of input cancels."""
        async with self._terminal:
            self._display.settle()
            put_typed_aside()
            try:
                return await (self._visit(request) if isinstance(request, UrlRequest) else self._fill_in(request))
            except _Left as left:
                return ElicitAnswer(action=left.action)

    async def _visit(self, request: UrlRequest) -> ElicitAnswer:
        self._display.quote(self._say("asks_to_visit", server=visible(request.server)), request.message)
        self._display.line("", f"  {visible(request.url)}")
        host = urlsplit(request.url).hostname or ""
        spelled = request.spelled_host
        if spelled != host or "xn--" in host:
            self._display.notice(self._say("odd_host", host=spelled))
        key = "visit_first" if request.is_awaited else "visit"
        await self._step(self._say(key, host=visible(host)), "send")
        return ElicitAnswer(action="accept")

    async def _fill_in(self, request: FormRequest) -> ElicitAnswer:
        self._display.quote(self._say("asks_to_fill_in", server=visible(request.server)), request.message)
        form = fields(request.schema)
        if form:
            self._display.line("", f"  {self._say('how_to_fill_in')}", style="dim")
        content: dict[str, Any] = {}
        for _ in range(ATTEMPTS):
            lines = LineReader(sys.stdin.fileno())
            for field in form:
                if (value := await self._field(field, lines)) is not MISSING:
                    content[field.name] = value
                else:
                    content.pop(field.name, None)
            content = with_defaults(request.schema, content)
            if wrong := problems(request.schema, content):
                self._display.notice("; ".join(wrong))
                continue
            for name, value in content.items():
                self._display.line("", f"  {visible(name)}: {visible(json.dumps(value, ensure_ascii=False))}")
            if await self._step(self._say("send_form", server=visible(request.server)), "send", "edit") == "send":
                return ElicitAnswer(action="accept", content=content)
        raise _Left("cancel")

    async def _field(self, field: Field, lines: LineReader) -> Any:
        """Ask until there is a value that the field admits; too many wrong ones cancel."""
        title = visible(field.title) + (f" ({self._say('required')})" if field.is_required else "")
        self._display.line("", f"  {title}" + (f": {visible(field.description)}" if field.description else ""))
        for number, (value, name) in enumerate(field.options[:_OPTIONS_SHOWN], 1):
            label = visible(name) if name == value else f"{visible(name)} ({visible(value)})"
            self._display.line("", f"    {number}) {label}")
        hint = "" if field.default is MISSING else f" [{visible(json.dumps(field.default, ensure_ascii=False))}]"
        for _ in range(ATTEMPTS):
            self._display.ask(f"  {visible(field.name)}{hint}: ")
            text = await self._line(lines)
            try:
                return read(field, text)
            except FormProblem as problem:
                self._display.notice(str(problem))
        raise _Left("cancel")

    async def _step(self, question: str, *allowed: _Step) -> _Step:
        """Ask what is to be done; the person may always decline or cancel, and too many wrong answers cancel."""
        words = {word: step for word, step in {**_STEPS, **_LEAVING}.items() if step in (*allowed, "decline", "cancel")}
        step = await answered(partial(self._display.ask, question), words) or "cancel"
        if step == "decline" or step == "cancel":
            raise _Left(step)
        return step

    async def _line(self, lines: LineReader) -> str:
        line = await lines.line()
        if line is None:
            self._display.line("", "")
            raise _Left("cancel")
        if left := _LEAVING.get(line.strip().lower()):
            raise _Left(left)
        return line


class _Sampling:
    def __init__(
        self, display: Display, terminal: asyncio.Lock | None, backend: Callable[[], Backend], max_tokens: int | None
    ) -> None:
        self._display, self._say = display, display.say
        self._terminal, self._backend, self._max_tokens = terminal, backend, max_tokens

    async def __call__(self, request: SampleRequest) -> SampleReply | None:
        """Ask, complete, and ask again; None where the person refuses or the model fails."""
        limit = min(request.max_tokens, self._max_tokens or request.max_tokens)
        shown = "\n".join(f"{message.role}: {message.content}" for message in request.messages)
        server = visible(request.server)
        if not await self._allowed(self._say("asks_to_complete", server=server, count=limit), shown, "complete"):
            return None
        try:
            reply = await completed(self._backend(), request, limit)
        except BackendError as error:
            self._display.notice(self._say("completion_failed", server=server, error=str(error)))
            return None
        is_sent = await self._allowed(self._say("completed", server=server), reply.text, "send_completion")
        return reply if is_sent else None

    async def _allowed(self, title: str, text: str, question: str) -> bool:
        if self._terminal is None:
            return True
        async with self._terminal:
            self._display.settle()
            put_typed_aside()
            self._display.quote(title, text)
            words = {**dict.fromkeys(YES, True), **dict.fromkeys(NO, False)}
            return await answered(partial(self._display.ask, self._say(question)), words) is True
