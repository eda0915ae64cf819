"""A server asks the person for something (MCP 2025-11-25 and 2026-07-28, elicitation): a form to fill in, or an address to visit.

The person sees which server asks, may look over the answers before they go, and may decline or cancel at every line. An address
is shown in full and never opened here: the person does that. Only a terminal is asked; without one the capability is not
declared. As with calls, what was typed before the question appeared does not answer it.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from ..hosts.mcp.form import Field, FormProblem, fields, problems, read, with_defaults
from ..hosts.mcp.requests import ElicitAnswer, FormRequest, UrlRequest
from ..types.calls import MISSING
from .display import Display
from .lines import LineReader, forget_typed
from .plain import visible

__all__ = ["Elicitation"]

_ATTEMPTS: Final = 5
_OPTIONS_SHOWN: Final = 50

_Step = Literal["send", "edit", "decline", "cancel"]
_STEPS: Final[Mapping[str, _Step]] = {
    "y": "send",
    "yes": "send",
    "是": "send",
    "e": "edit",
    "edit": "edit",
    "修改": "edit",
    "n": "decline",
    "no": "decline",
    "否": "decline",
    "c": "cancel",
    "cancel": "cancel",
    "取消": "cancel",
}
_LEAVING: Final[Mapping[str, _Step]] = {"/no": "decline", "/cancel": "cancel"}


class _Left(Exception):
    """The person left a form without sending it."""

    def __init__(self, action: Literal["decline", "cancel"]) -> None:
        self.action = action


class Elicitation:
    """Asks the person on the terminal, one question after the other."""

    def __init__(self, display: Display, terminal: asyncio.Lock) -> None:
        self._display, self._say = display, display.say
        self._terminal = terminal

    async def __call__(self, request: FormRequest | UrlRequest) -> ElicitAnswer:
        """Show a request and wait for the answer; the end of input cancels."""
        async with self._terminal:
            self._display.settle()
            forget_typed()
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
        await self._step(self._say(key, host=visible(host)), ("send", "decline", "cancel"))
        return ElicitAnswer(action="accept")

    async def _fill_in(self, request: FormRequest) -> ElicitAnswer:
        self._display.quote(self._say("asks_to_fill_in", server=visible(request.server)), request.message)
        form = fields(request.schema)
        if form:
            self._display.line("", f"  {self._say('how_to_fill_in')}", style="dim")
        content: dict[str, Any] = {}
        for _ in range(_ATTEMPTS):
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
            allowed: tuple[_Step, ...] = ("send", "edit", "decline", "cancel")
            if await self._step(self._say("send_form", server=visible(request.server)), allowed) == "send":
                return ElicitAnswer(action="accept", content=content)
        raise _Left("cancel")

    async def _field(self, field: Field, lines: LineReader) -> Any:
        """Ask until there is a value that the field admits; too many wrong ones cancel."""
        title = visible(field.title) + (f" ({self._say('required')})" if field.is_required else "")
        self._display.line("", f"  {title}" + (f": {visible(field.description)}" if field.description else ""))
        for number, (value, name) in enumerate(field.options[:_OPTIONS_SHOWN], 1):
            told = visible(name) if name == value else f"{visible(name)} ({visible(value)})"
            self._display.line("", f"    {number}) {told}")
        hint = "" if field.default is MISSING else f" [{visible(json.dumps(field.default, ensure_ascii=False))}]"
        for _ in range(_ATTEMPTS):
            self._display.ask(f"  {visible(field.name)}{hint}: ")
            text = await self._line(lines)
            try:
                return read(field, text)
            except FormProblem as problem:
                self._display.notice(str(problem))
        raise _Left("cancel")

    async def _step(self, question: str, allowed: tuple[_Step, ...]) -> _Step:
        """Ask what is to be done; `decline` and `cancel` leave, and so do too many wrong answers."""
        lines = LineReader(sys.stdin.fileno())
        for _ in range(_ATTEMPTS):
            self._display.ask(question)
            step = _STEPS.get((await self._line(lines)).strip().lower())
            if step == "decline" or step == "cancel":
                raise _Left(step)
            if step in allowed:
                return step
        raise _Left("cancel")

    async def _line(self, lines: LineReader) -> str:
        line = await lines.line()
        if line is None:
            self._display.line("", "")
            raise _Left("cancel")
        left = _LEAVING.get(line.strip().lower())
        if left == "decline" or left == "cancel":
            raise _Left(left)
        return line
