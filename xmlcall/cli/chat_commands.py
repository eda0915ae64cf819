"""What can be typed into a chat besides questions: a table of commands, and what each of them does.

A new command is a row here, a text `help_NAME` in each language (`words_LANG.toml`), and a function.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.cells import set_cell_size

from ..agent.asking_person import AskingPerson
from ..dialects.write import replies_of
from ..errors import UsageError
from ..models.known import KNOWN
from ..turn_records.keeping import Conversation
from ..types.calls import Message
from .call_panel import call_lines
from .chat_prompts import prompt_command, prompt_completions
from .exits import complain
from .lines import YES, edited, is_interactive
from .offered import found, parameter_lines, tool_lines
from .plain import fenced, json_text, plain, shortened, visible
from .wrapping import wrapped

if TYPE_CHECKING:
    from .chat import Chat

HELPING: Final = frozenset({"help", "?", "帮助"})
LEAVING: Final = frozenset({"/quit", "/exit", "exit", "quit", ":q", "退出"})
_LABEL_WIDTH: Final = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCommand:
    name: str
    run: Callable[["Chat", str], Coroutine[Any, Any, None]]
    takes: str = ""  # its argument as the help shows it
    words: Callable[["Chat"], Iterable[str]] = lambda chat: ()


async def _help(chat: "Chat", _: str) -> None:
    head = {name: f"{name} {command.takes}".rstrip() for name, command in COMMANDS.items()}
    width = max(map(len, head.values())) + 2
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    rows = [f"{shown:{width}}{wrapped(chat.say(f'help_{name[1:]}'), columns, width)}" for name, shown in head.items()]
    print("\n".join([*rows, wrapped(chat.say("help_keys"), columns)]), flush=True)


async def _tools(chat: "Chat", name: str) -> None:
    loop = chat.session.loop
    catalog = await loop.catalog()
    if not name:
        print("\n".join(tool_lines(catalog, loop.router)), flush=True)
    elif tool := found(name, catalog, loop.router):
        print("\n".join(parameter_lines(tool, loop.router, chat.say)), flush=True)
    else:
        complain(chat.say("unknown_tool", name=repr(name[:80])))


async def _servers(chat: "Chat", argument: str) -> None:
    loop = chat.session.loop
    if argument:
        word, _, name = argument.partition(" ")
        if word not in ("on", "off"):
            raise UsageError(chat.say("servers_usage"))
        for each in [name.strip()] if name.strip() else [host.name for host in loop.router.hosts]:
            loop.router.switch(each, on=word == "on")
        await loop.catalog()
    for state in loop.router.states():
        problem = f": {shortened(visible(state.problem), lines=1, width=200)}" if state.kind == "failed" else ""
        print(f"{visible(state.name)}: {chat.say(f'server_{state.kind}', count=state.tools)}{problem}", flush=True)


async def _allowed(chat: "Chat", argument: str) -> None:
    word, _, name = argument.partition(" ")
    always = _always_allowed(chat)
    if word not in ("", "off") or (name and name not in always):
        raise UsageError(chat.say("allowed_usage"))
    for each in ([name] if name else [*always]) if word else []:
        always.pop(each)()
    print("\n".join(map(visible, always)) or chat.say("allowed_none"), flush=True)


def _always_allowed(chat: "Chat") -> dict[str, Callable[[], None]]:
    """Map each tool that the user always allows, as server.tool, to what takes that back."""
    policy = chat.session.loop.policy
    if not isinstance(policy, AskingPerson):
        return {}
    return {f"{server}.{tool}": partial(policy.take_back, server, tool) for server, tool in sorted(policy.always_allowed())}


async def _model(chat: "Chat", name: str) -> None:
    if name:
        await chat.session.change_model(name)
        chat.status.forget()
    context = chat.session.loop.backend.capabilities.context_length
    words = f", {chat.say('context', count=f'{context:,}')}" if context else ""
    print(f"{visible(chat.session.loop.backend.model)}{words}", flush=True)


async def _open(chat: "Chat", number: str) -> None:
    calls = chat.calls.calls
    if not calls:
        raise UsageError(chat.say("no_calls"))
    first, last = calls[0].number, calls[-1].number
    if number and not (number.isascii() and number.isdigit() and first <= int(number[:9]) <= last):
        raise UsageError(chat.say("unknown_call", first=first, last=last, got=repr(number[:80])))
    entry = calls[int(number) - first] if number else calls[-1]
    for label, text in call_lines(entry, chat.say, await chat.session.loop.catalog()):
        print(set_cell_size(label, _LABEL_WIDTH) + text.replace("\n", "\n" + " " * _LABEL_WIDTH), flush=True)


async def _retry(chat: "Chat", _: str) -> None:
    if not (question := chat.conversation.take_back()):
        raise UsageError(chat.say("no_question"))
    await chat.answer(question)


async def _undo(chat: "Chat", _: str) -> None:
    if not (question := chat.conversation.drop_last()):
        raise UsageError(chat.say("no_question"))
    chat.session.keeper.keep(chat.conversation.messages)
    chat.session.display.notice(chat.say("undone", question=shortened(" ".join(question.split()), lines=1, width=60)))


async def _edit(chat: "Chat", text: str) -> None:
    if not chat.conversation.question:
        raise UsageError(chat.say("no_question"))
    if text:
        chat.conversation.take_back()
        await chat.answer(text)
    elif is_interactive():
        chat.draft, chat.draft_replaces = chat.conversation.question, True
    else:
        raise UsageError(chat.say("edit_usage"))


async def _save(chat: "Chat", name: str) -> None:
    if not name:
        raise UsageError(chat.say("save_usage"))
    path = _path_of(name)
    text = _written(chat.conversation, chat.session.loop.backend.model, path.suffix.lower())
    if not _write_whole(path, text, replace=False):
        question = chat.say("overwrite", name=visible(name))
        answer = await edited(f"{question} ", "") if is_interactive() else ""
        if answer.strip().lower() not in YES:
            raise UsageError(chat.say("not_saved", name=repr(name[:200])))
        _write_whole(path, text, replace=True)
    chat.session.display.notice(chat.say("saved", count=len(chat.conversation.messages), name=name))


async def _clear(chat: "Chat", _: str) -> None:
    chat.conversation.clear()
    chat.calls.clear()
    chat.status.forget()
    chat.session.keeper.new()
    chat.session.display.notice(chat.say("new_conversation"))


async def _quit(chat: "Chat", _: str) -> None:
    chat.is_over = True


def _tool_names(chat: "Chat") -> Iterable[str]:
    return [f"{host.name}.{name}" for host, name in chat.session.loop.router.listed()]


def _switches(chat: "Chat") -> Iterable[str]:
    states = chat.session.loop.router.states()
    return [f"{'on' if state.kind == 'off' else 'off'} {state.name}" for state in states]


def _call_numbers(chat: "Chat") -> Iterable[str]:
    return [str(call.number) for call in chat.calls.calls]


_ROWS: Final = (
    ChatCommand(name="/help", run=_help),
    ChatCommand(name="/tools", run=_tools, takes="[NAME]", words=_tool_names),
    ChatCommand(name="/servers", run=_servers, takes="[on|off [NAME]]", words=_switches),
    ChatCommand(
        name="/allowed", run=_allowed, takes="[off [NAME]]", words=lambda chat: [f"off {name}" for name in _always_allowed(chat)]
    ),
    ChatCommand(name="/model", run=_model, takes="[NAME]", words=lambda chat: ["local", *KNOWN]),
    ChatCommand(name="/open", run=_open, takes="[N]", words=_call_numbers),
    ChatCommand(name="/prompt", run=prompt_command, takes="[NAME ...]", words=prompt_completions),
    ChatCommand(name="/retry", run=_retry),
    ChatCommand(name="/edit", run=_edit, takes="[TEXT]"),
    ChatCommand(name="/undo", run=_undo),
    ChatCommand(name="/save", run=_save, takes="FILE"),
    ChatCommand(name="/clear", run=_clear),
    ChatCommand(name="/quit", run=_quit),
)

COMMANDS: Final = {command.name: command for command in _ROWS}  # in the order of the help


def is_command(line: str) -> bool:
    """Say whether a line is a command or a mistaken one; a text of several lines is a question."""
    return line.startswith("/") and "\n" not in line


def completions(chat: "Chat", line: str) -> list[str]:
    """Return how a line that begins a command may continue: whole lines."""
    if not is_command(line):
        return []
    name, space, rest = line.partition(" ")
    if not space:
        return [each for each in COMMANDS if each.startswith(name)]
    words = COMMANDS[name].words(chat) if name in COMMANDS else ()
    known = chat.values.known(line) if name == "/prompt" else []
    return [*(f"{name} {word}" for word in words if word.startswith(rest) and word.isprintable()), *known]


def _written(conversation: Conversation, model: str, suffix: str) -> str:
    """Write a conversation as `.md`, in the user's own words, or as `.json`, with the messages that the model is sent."""
    if suffix == ".json":
        return json_text({"model": model, "messages": [_object(message) for message in conversation.messages]}) + "\n"
    if suffix == ".md":
        return "\n\n".join([f"# {plain(model)}", *(_section(message) for message in conversation.as_said())]) + "\n"
    raise UsageError(f"expected a file NAME.md or NAME.json, got the suffix {suffix!r}")


def _path_of(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError as error:  # `~nobody`
        raise UsageError(f"expected a file NAME.md or NAME.json, got {name[:200]!r}: {error}") from error


def _write_whole(path: Path, text: str, *, replace: bool) -> bool:
    """Write a file whole or not at all; return False if it is there already and is not to be replaced."""
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            part = Path(file.name)
            try:
                file.write(text)
                file.flush()
                if replace:
                    part.replace(path)
                else:
                    os.link(part, path)
            finally:
                part.unlink(missing_ok=True)
    except FileExistsError:
        return False
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write {str(path)!r}: {reason}") from error
    return True


def _object(message: Message) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    more = {"tool_calls": calls, "tool_call_id": message.tool_call_id, "name": message.name}
    return {"role": message.role, "content": message.content, **{key: value for key, value in more.items() if value}}


def _section(message: Message) -> str:
    title = "result" if replies_of(message) else message.role
    calls = [f"{call.name} {json_text(call.arguments, indent=None)}" for call in message.tool_calls]
    text = "\n".join(filter(None, [message.content, *calls]))
    return f"## {title}\n\n{fenced(plain(text))}"
