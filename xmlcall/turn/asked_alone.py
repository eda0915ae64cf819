"""A person's message without its conversation: what is asked about it, and how the server's prompt cache outlives that.

Whether a message needs a tool is asked of the message behind the tool prompt alone (`tool_need`), and the reply is generated from
the whole conversation. Both begin with the tool prompt, and llama.cpp's server chooses a cache by what two prompts have in
common: the small one takes the place of the conversation, which is then read again from the end of the tool prompt on, at each
question. (Its cache in memory does not help: it is looked into only where less than half of a slot would be kept, or nothing fits
at all. Read in server-context.cpp and server-task.cpp of b11549, and seen with 1 and with 4 slots.)

So once there is much to lose, what is asked alone begins in another way, with one line feed before the tool prompt. Then the two
have nothing in common, and the server keeps both. That costs reading the tool prompt once more; it pays when the conversation
behind the tool prompt is half as long as that, by what it would cost until then. A model in this process needs none of this
(`backends.slots`), nor do servers that keep blocks by their contents (vLLM, SGLang). Those with one place (Ollama) would lose.

What is asked for is one token, greedy and without what a caller wants besides (a stop string, a schema): the model's own opinion.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..types.calls import Message
from ..types.completion import Capabilities, CompletionRequest
from .machine import FirstToken, Score, Script

__all__ = ["alone", "ask_first_token", "in_place_of_last"]

LONGEST: Final = 4000  # characters of a message that are asked about: of a longer one, its beginning and its end
_APART: Final = "\n"  # before the tool prompt
_EXTRA: Final = frozenset({"chat_template_kwargs", "keep_alive", "reasoning_effort", "think"})  # what may shape the first token
_MUCH: Final = 0.5  # of the tool prompt's characters


def alone(server: Capabilities, request: CompletionRequest) -> CompletionRequest:
    """Leave the tool prompt and the last message of a conversation.

    Args:
        request: the conversation, a person's words last; a long message is cut in its middle.
    """
    *before, last = request.messages
    if len(last.content) > LONGEST:
        last = replace(last, content=f"{last.content[: LONGEST // 2]}\n...\n{last.content[-LONGEST // 2 :]}")
    if not before or before[0].role != "system":
        return replace(request, messages=(last,), aside=True)
    system, *said = before
    if server.server == "llama.cpp" and not server.keeps_aside and _is_much(system, said):
        system = replace(system, content=_APART + system.content)
    return replace(request, messages=(system, last), aside=True)


def in_place_of_last(request: CompletionRequest, text: str) -> CompletionRequest:
    """Put other words of a person in the place of the last message."""
    return replace(request, messages=(*request.messages[:-1], Message(role="user", content=text)))


def _is_much(system: Message, said: Sequence[Message]) -> bool:
    return sum(len(message.content) for message in said) > _MUCH * len(system.content)


def ask_first_token(request: CompletionRequest, server: Capabilities, *, keep: bool = False) -> Script[FirstToken]:
    """Ask a model for the first token of its reply, or for the next one of a reply that was begun for it."""
    extra = {name: value for name, value in request.extra.items() if name in _EXTRA}
    asked = replace(request, max_tokens=1, temperature=0.0, stop=(), top_logprobs=server.most_logprobs, extra=extra)
    answers: tuple[FirstToken, ...] = yield Score(requests=(asked,), keep=keep)
    return answers[0]
