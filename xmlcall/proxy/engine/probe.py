"""Probe the model server: test whether its function calling works, and count the tokens of prompts.

Function calling is tested, because servers also claim to support it for models whose calls leak as text. llama.cpp does so for
Qwen2.5-Coder-0.5B, and of that model's replies to 80 questions, none came back as a call. The test is one small question with a
tool, and only the correct call counts.
"""

import json
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from ...agent.drive import result_of
from ...backends.retrying import Retrying
from ...errors import BackendError, BackendStatusError
from ...prompting.fit_context import estimate
from ...prompting.tokens import Scale
from ...tools.catalog import Catalog
from ...turn.generate import Binder
from ...turn.machine import Machine
from ...turn.native import generate_native
from ...types.calls import Message, Tool, ToolCall
from ...types.completion import CompletionRequest
from ...wire.openai import count, message_dict, read_json

__all__ = ["calls_natively", "count_tokens", "measured_rate"]

log = logging.getLogger("xmlcall.proxy")

TRIAL_TOKENS: Final = 128
BYTES_A_TOKEN: Final = 4  # of English text, for an estimate
TOKENS_A_MESSAGE: Final = 4

# A mix of the kinds of text in conversations. It must be the same in all replicas, because the cuts of prompts depend on it.
REFERENCE: Final = """\
Please look at the report below, tell me in two or three sentences what has changed since last week, and check whether the
numbers in the table add up. If something is missing, ask the person who wrote it before you go on; nobody wants to guess.

| day | visitors | orders | returned |
|---|---|---|---|
| 2026-03-02 | 1,482 | 97 | 3 |
| 2026-03-03 | 1,519 | 104 | 5 |

{"name": "search_orders", "arguments": {"since": "2026-03-02T00:00:00Z", "limit": 25, "include_returned": false}}
{"orders": [{"id": "A-10482", "total": 149.95, "currency": "EUR"}, {"id": "A-10483", "total": 12.5, "currency": "EUR"}]}

def total(orders: list[dict[str, float]], *, rate: float = 1.0) -> float:
    return round(sum(order["total"] for order in orders if order["total"] > 0) * rate, 2)

<function_results>
<result name="read_file">
/srv/shop/src/views/__init__.py: No such file or directory
</result>
</function_results>

请用两三句话说明与上周相比有什么变化，并检查表中的数字是否正确。如果缺少什么，请先问写报告的人。
Der Bericht enthält die Zahlen der letzten Woche; bitte prüfen Sie, ob die Summe über alle Länder stimmt. Où est le fichier ?
"""

_INTEGER: Final = {"type": "integer"}
_TOOL: Final = Tool(
    name="multiply",
    description="Multiply two integers.",
    input_schema={"type": "object", "properties": {"a": _INTEGER, "b": _INTEGER}, "required": ["a", "b"]},
)
_QUESTION: Final = Message(role="user", content="What is 1234 times 5678? Use the tool.")
_RIGHT: Final = [{"a": 1234, "b": 5678}]


async def calls_natively(backend: Retrying) -> bool:
    """Return whether the server calls a tool correctly for a question that needs one; a server that refuses tools does not."""
    request = CompletionRequest(messages=(_QUESTION,), tools=(_TOOL,), max_tokens=TRIAL_TOKENS, temperature=0.0)
    binder = Binder(catalog=Catalog([_TOOL]))
    machine, works = Machine(generate_native(request, binder, backend.capabilities, read_text=False)), False
    try:
        generated = await result_of(machine, backend)
        works = [call.arguments for call in generated.reply.calls if isinstance(call, ToolCall)] == _RIGHT
    except BackendError as error:
        if not isinstance(error, BackendStatusError) or error.status_code >= 500:
            raise
    outcome = "it works and is used" if works else "it gave no correct call; tools are offered in the prompt"
    log.info("tested the model server's own function calling: %s", outcome)
    return works


async def count_tokens(backend: Retrying, messages: Sequence[Message]) -> int:
    """Count the tokens of a prompt; estimate them if the model server does not count."""
    if counted := await _counted(backend, messages):
        return counted
    return sum(TOKENS_A_MESSAGE + len(message.content.encode("utf-8", "replace")) // BYTES_A_TOKEN for message in messages)


async def _counted(backend: Retrying, messages: Sequence[Message]) -> int | None:
    """Return the server's count of a prompt's tokens; None where it does not count (only llama.cpp is asked)."""
    if backend.capabilities.server != "llama.cpp":
        return None
    body = json.dumps({"messages": [message_dict(message) for message in messages]}).encode()
    async with backend.relay("POST", "/chat/completions/input_tokens", body) as relayed:
        answer = b"".join([chunk async for chunk in relayed.chunks])
    return count(read_json(answer.decode("utf-8", "replace")).get("input_tokens")) if relayed.status == 200 else None


async def measured_rate(backend: Retrying) -> float | None:
    """Measure how many tokens the server counts per estimated token, plus a margin, on a text that never changes.

    A server that cannot count is asked for a reply of one token, and its usage gives the length of the prompt.

    Returns:
        None if the server does not report a count, or reports an impossible one.
    """
    request = CompletionRequest(messages=(Message(role="user", content=REFERENCE),), max_tokens=1, temperature=0.0)
    counted = await _counted(backend, request.messages)
    if not counted:
        async with aclosing(backend.stream(request)) as chunks:
            async for chunk in chunks:
                counted = chunk.usage.prompt_tokens if chunk.usage and chunk.usage.prompt_tokens else counted
    scale = Scale()
    if counted:
        scale.learn(counted, estimate(request.messages))
    return scale.rate
