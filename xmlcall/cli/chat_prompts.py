"""`/prompt` of a chat: a text that a server has ready becomes the person's question, after they have seen it.

The text is a server's. On a terminal it stands in the line that is edited next, and the person sends it, or not; only then does
it count as their words. Without a terminal the person has named it on a line of their own, and it is sent at once. What could
open a call in it, or pass for a result, is inert, as in all that a server says.
"""

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ..dialects.inert import inert_text
from ..errors import UsageError
from ..types.served import PromptText
from .exits import complain
from .lines import is_interactive
from .pager import page
from .prompts import arguments_of, prompt_line, prompt_server, prompt_words

if TYPE_CHECKING:
    from .chat import Chat

__all__ = ["prompt_command", "prompt_completions"]

_LABELS: Final = {"user": "User:", "assistant": "Assistant:"}


async def prompt_command(chat: "Chat", line: str) -> None:
    """List the prompts, or make one the next question.

    Args:
        line: the name of a prompt and its `ARGUMENT=VALUE`s, quoted as in a shell; "" lists them.
    """
    router = chat.session.loop.router
    listing = await router.prompts()
    chat.values.listed = list(listing.items)
    for notice in listing.notices:
        complain(notice)
    if not line:
        told = [prompt_line(server, prompt) for server, prompt in listing.items]
        await page("\n".join(told) or chat.say("no_prompts"))
        return
    name, *given = _split(line)
    served = await prompt_server(router, name)
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
    """Return what may stand behind `/prompt`, of the prompts that were listed last: a name, and what has to be given."""
    for _, prompt in chat.values.listed:
        yield " ".join([prompt.name, *(f"{each.name}=" for each in prompt.arguments if each.required)])


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"/prompt: {error}") from error


def _question(text: PromptText) -> str:
    """Write the messages of a prompt as one: who speaks is said where it is not the person alone."""
    if all(message.role == "user" for message in text.messages):
        return "\n\n".join(map(prompt_words, text.messages))
    return "\n\n".join(f"{_LABELS[message.role]} {prompt_words(message)}" for message in text.messages)
