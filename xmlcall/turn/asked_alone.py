"""Asks the model about the user's last message alone, without losing the server's prompt cache for the conversation.

Both prompts begin with the tool prompt, and llama.cpp's server picks a cache slot by the prefix that two prompts share. So the
short prompt would evict the conversation, which each question then reads again from the end of the tool prompt. Once there is
much to lose, the short prompt therefore begins with a line feed: the two prompts share no prefix, and the server keeps both. This
costs reading the tool prompt once more. A model in this process needs none of this (`backends.embedded`), nor do servers that
cache blocks by content (vLLM, SGLang); a server with a single slot (Ollama) would lose by it. Read in b11549 of llama.cpp, and
measured (docs/decisions/tool-need.md).

Each request asks for one token, greedily, and drops the caller's other options (a stop string, a schema), because the model's own
opinion is wanted.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..types.calls import Message
from ..types.completion import Capabilities, CompletionRequest
from .machine import FirstToken, Score, Script

__all__ = ["alone", "ask_first_token", "in_place_of_last"]

LONGEST: Final = 4000  # characters; a longer message is cut to its beginning and its end
_CACHE_SEPARATOR: Final = "\n"  # before the tool prompt
_EXTRA: Final = frozenset({"chat_template_kwargs", "keep_alive", "reasoning_effort", "think"})  # may affect the first token
_LONG: Final = 0.5  # of the tool prompt's characters


def alone(server: Capabilities, request: CompletionRequest) -> CompletionRequest:
    """Return the request with only the tool prompt and the last message; a long message is cut in the middle."""
    *before, last = request.messages
    if len(last.content) > LONGEST:
        last = replace(last, content=f"{last.content[: LONGEST // 2]}\n...\n{last.content[-LONGEST // 2 :]}")
    if not before or before[0].role != "system":
        return replace(request, messages=(last,), aside=True)
    system, *said = before
    if server.server == "llama.cpp" and not server.keeps_aside and _is_long_history(system, said):
        system = replace(system, content=_CACHE_SEPARATOR + system.content)
    return replace(request, messages=(system, last), aside=True)


def in_place_of_last(request: CompletionRequest, text: str) -> CompletionRequest:
    """Replace the last message by another user message."""
    return replace(request, messages=(*request.messages[:-1], Message(role="user", content=text)))


def _is_long_history(system: Message, said: Sequence[Message]) -> bool:
    return sum(len(message.content) for message in said) > _LONG * len(system.content)


def ask_first_token(request: CompletionRequest, server: Capabilities, *, keep: bool = False) -> Script[FirstToken]:
    """Ask a model for the first token of its reply, or for the next token if the reply's beginning is given."""
    extra = {name: value for name, value in request.extra.items() if name in _EXTRA}
    asked = replace(request, max_tokens=1, temperature=0.0, stop=(), top_logprobs=server.most_logprobs, extra=extra)
    answers: tuple[FirstToken, ...] = yield Score(requests=(asked,), keep=keep)
    return answers[0]
