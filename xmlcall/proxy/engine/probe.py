"""What the model server is asked besides answers: whether its function calling works, and how many tokens a prompt has.

Whether function calling works is asked, not believed: servers say that they can for models whose calls leak as text. llama.cpp
does for Qwen2.5-Coder-0.5B, of whose replies to 80 questions none came back as a call. One small question with a tool; only a
right call counts.
"""

import json
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from ...agent.generate import Binder, Generated
from ...agent.native import generate_native
from ...backends.openai_wire import count, message_dict, read_json
from ...backends.retrying import Retrying
from ...errors import BackendError, BackendStatusError
from ...tools.catalog import Catalog
from ...types.calls import Message, Tool, ToolCall
from ...types.completion import CompletionRequest

__all__ = ["calls_natively", "count_tokens"]

log = logging.getLogger("xmlcall.proxy")

TRIAL_TOKENS: Final = 128
BYTES_A_TOKEN: Final = 4  # of English text, for an estimate
TOKENS_A_MESSAGE: Final = 4

_INTEGER: Final = {"type": "integer"}
_TOOL: Final = Tool(
    name="multiply",
    description="Multiply two integers.",
    input_schema={"type": "object", "properties": {"a": _INTEGER, "b": _INTEGER}, "required": ["a", "b"]},
)
_QUESTION: Final = Message(role="user", content="What is 1234 times 5678? Use the tool.")
_RIGHT: Final = [{"a": 1234, "b": 5678}]


async def calls_natively(backend: Retrying) -> bool:
    """Ask a question that needs a tool; a server that refuses tools says no that way.

    Args:
        backend: open.

    Raises:
        BackendError: the model server failed.
    """
    request = CompletionRequest(messages=(_QUESTION,), tools=(_TOOL,), max_tokens=TRIAL_TOKENS, temperature=0.0)
    works = False
    try:
        async with aclosing(generate_native(backend, request, Binder(catalog=Catalog([_TOOL])), read_text=False)) as events:
            async for event in events:
                if isinstance(event, Generated):
                    works = [call.arguments for call in event.reply.calls if isinstance(call, ToolCall)] == _RIGHT
    except BackendError as error:
        if not isinstance(error, BackendStatusError) or error.status_code >= 500:
            raise
    outcome = "it works and is used" if works else "no right call came; tools are offered in the prompt"
    log.info("a trial of the model server's own function calling: %s", outcome)
    return works


async def count_tokens(backend: Retrying, messages: Sequence[Message]) -> int:
    """Count the tokens of a prompt; estimated where the model server does not count (only llama.cpp is asked).

    Args:
        backend: open.
        messages: of the prompt.

    Raises:
        BackendError: the model server failed.
    """
    if backend.capabilities.server == "llama.cpp":
        body = json.dumps({"messages": [message_dict(message) for message in messages]}).encode()
        async with backend.relay("POST", "/chat/completions/input_tokens", body) as relayed:
            answer = b"".join([chunk async for chunk in relayed.chunks])
        if relayed.status == 200 and (counted := count(read_json(answer.decode("utf-8", "replace")).get("input_tokens"))):
            return counted
    return sum(TOKENS_A_MESSAGE + len(message.content.encode("utf-8", "replace")) // BYTES_A_TOKEN for message in messages)
