"""`/prompt` of a chat: a server's prepared text becomes the person's question, after they have seen it.

The text comes from a server. On a terminal it becomes the draft of the next line; it counts as the person's words only once they
send it. Without a terminal it is sent at once, because the person named it on a line of their own. Markup in it that could open a
call or look like a result is made inert, as in all text by servers.

While a person types, the server is asked for values of an argument (MCP completion): once the typing pauses, and only for the
value at the end of the line. It has little time: late answers are not shown, and a server that failed or was slow is not asked
for a while. No message reports this, because a person who types should not be interrupted. Values are text by a server: those
that a terminal would obey, or that are too long for a line, are left out.
"""

import asyncio
import re
import shlex
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..dialects.call_signs import inert_text
from ..errors import UsageError, XmlcallError
from ..hosts.router import Router
from ..types.served import Prompt, PromptText
from .exits import complain
from .lines import is_interactive
from .offered import arguments_of, prompt_line, prompt_server, prompt_words

if TYPE_CHECKING:
    from .chat import Chat

_LABELS: Final = {"user": "User:", "assistant": "Assistant:"}
SECONDS: Final = 2.0  # that a server may take
REST: Final = 10.0  # seconds for which no server is asked after one failed
_COMMAND: Final = "/prompt "
_LONGEST: Final = 200  # characters of a value
_UNSAFE: Final = re.compile(r"[^\w@%+=:,./-]")


async def prompt_command(chat: "Chat", line: str) -> None:
    """Make a prompt the next question: its name and `ARGUMENT=VALUE`s, quoted as in a shell; list the prompts for ""."""
    router = chat.session.loop.router
    listing = await router.prompts()
    chat.values.listed = list(listing.items)
    for notice in listing.notices:
        complain(notice)
    if not line:
        lines = [prompt_line(server, prompt) for server, prompt in listing.items]
        print("\n".join(lines) or chat.say("no_prompts"), flush=True)
        return
    name, *given = _split(line)
    served = await prompt_server(router, name, lists="/prompt")
    arguments = arguments_of(given)
    prompt = next(each for _, each in listing.items if each.name == name)
    if missing := [each.name for each in prompt.arguments if each.required and each.name not in arguments]:
        raise UsageError(f"/prompt {name}: expected {', '.join(f'{each}=VALUE' for each in missing)}")
    offered = await chat.session.loop.tool_prompt()
    text = inert_text(_question(await served.get_prompt(name, arguments)), offered.catalog)
    if is_interactive():
        chat.draft = text
    else:
        await chat.answer(text)


def prompt_completions(chat: "Chat") -> Iterable[str]:
    """Return what may follow `/prompt`: names of the prompts listed last, each with its required arguments."""
    for _, prompt in chat.values.listed:
        yield " ".join([prompt.name, *(f"{each.name}=" for each in prompt.arguments if each.required)])


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"/prompt: {error}") from error


def _question(text: PromptText) -> str:
    """Join the messages of a prompt into one text; speakers are named unless only the person speaks."""
    if all(message.role == "user" for message in text.messages):
        return "\n\n".join(map(prompt_words, text.messages))
    return "\n\n".join(f"{_LABELS[message.role]} {prompt_words(message)}" for message in text.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Typed:
    """The word that a line ends in, `ARGUMENT=VALUE`, and the text before it."""

    before: str
    prompt: str
    given: dict[str, str]
    argument: str
    value: str
    quote: str  # the quotation mark that is open at the end of the line


class PromptValues:
    def __init__(self, router: Router) -> None:
        self._router = router
        self.listed: list[tuple[str, Prompt]] = []  # the prompts listed last, each with its server's name
        self._line, self._lines = "", list[str]()
        self._rests_until = 0.0

    def known(self, line: str) -> list[str]:
        """Return how a line may continue, as whole lines, by the server's last answer."""
        return [each for each in self._lines if line == self._line or each.startswith(line)]

    async def rest(self, line: str) -> str:
        """Ask the server; return what could follow a line, "" for nothing."""
        typed = _typed(line)
        if typed is None or time.monotonic() < self._rests_until:
            return ""
        try:
            async with asyncio.timeout(SECONDS):
                values = await self._values(typed)
        except (TimeoutError, XmlcallError):
            self._rests_until = time.monotonic() + REST
            return ""
        self._line, self._lines = line, [_with_value(line, typed, value) for value in values]
        return next((each.removeprefix(line) for each in self._lines if each.startswith(line) and each != line), "")

    async def _values(self, typed: _Typed) -> list[str]:
        if not self.listed:
            self.listed = list((await self._router.prompts()).items)
        of = [(server, prompt) for server, prompt in self.listed if prompt.name == typed.prompt]
        servers = self._router.having("prompts")
        if len(of) != 1 or of[0][0] not in servers:
            return []
        server, prompt = of[0]
        if typed.argument not in [each.name for each in prompt.arguments]:
            return []
        found = await servers[server].complete(prompt, typed.argument, typed.value, typed.given)
        return [value for value in found.values if value.isprintable() and 0 < len(value) <= _LONGEST]


def _typed(line: str) -> _Typed | None:
    """Read a line as a shell would; None if it does not end in a value."""
    if not line.startswith(_COMMAND) or "\n" in line:
        return None
    start, quote = _last_word(line)
    try:
        name, *given = shlex.split(line[len(_COMMAND) : start])
        (word,) = shlex.split(line[start:] + quote)
    except ValueError:  # the line is still incomplete
        return None
    argument, sign, value = word.partition("=")
    if not sign:
        return None
    pairs = dict(each.split("=", 1) for each in given if "=" in each)
    return _Typed(before=line[:start], prompt=name, given=pairs, argument=argument, value=value, quote=quote)


def _last_word(line: str) -> tuple[int, str]:
    """Return where the last word begins, and the quotation mark that is open at its end."""
    start, quote, is_escaped = 0, "", False
    for place, char in enumerate(line):
        if is_escaped:
            is_escaped = False
        elif char == "\\" and quote != "'":
            is_escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char.isspace():
            start = place + 1
    return start, quote


def _with_value(line: str, typed: _Typed, value: str) -> str:
    """Write the line with a value; where it begins as typed, the line is only extended."""
    if not value.startswith(typed.value):
        return typed.before + shlex.quote(f"{typed.argument}={value}")
    more = value.removeprefix(typed.value)
    match typed.quote:
        case "'":
            return line + more.replace("'", r"'\''") + "'"
        case '"':
            return line + re.sub(r'([\\"])', r"\\\1", more) + '"'
    return line + _UNSAFE.sub(r"\\\g<0>", more)
