"""A model that needs no model: it calls the tool that it was told to, and answers with the product once a result has it.

What a client asks for decides what the model says:

| the question holds | the model |
|---|---|
| `as an object` | answers `{"product": 7006652}`, by a tool that has a parameter `product` if one is offered |
| `too long` | refuses the prompt, as llama.cpp refuses one that is longer than its context |
| neither | calls its tool; answers in words once the product has come, by a tool `final_answer` if one is offered |

The same three hold for requests without tools, where there is nothing to call.
A reply that is constrained to a schema is the object.
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.errors import ContextOverflow
from xmlcall.types.calls import Message
from xmlcall.types.completion import Chunk, CompletionRequest, Usage

__all__ = ["ANSWER", "CALL", "PRODUCT", "MultiplyingModel", "call_of"]

PRODUCT = "7006652"
ANSWER = f"1234 times 5678 is {PRODUCT}."
OBJECT = f'{{"product": {PRODUCT}}}'
CHUNK_CHARACTERS = 7
REFUSAL = "the prompt has 20000 tokens and the context of the model holds 8192: shorten it"


def call_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Write a call as a model should."""
    written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    parameters = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in written.items())
    return f'<function_calls>\n<invoke name="{name}">\n{parameters}</invoke>\n</function_calls>'


CALL = "I multiply them.\n" + call_of("multiply", {"a": 1234, "b": 5678})


class MultiplyingModel(ScriptedBackend):
    """Play the part that the module tells of.

    Args:
        call: the model's reply that calls its tool.
    """

    def __init__(self, call: str = CALL) -> None:
        super().__init__([])
        self._call = call

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Say what fits the conversation."""
        self.requests.append(request)
        if _question_holds(request.messages, "too long"):
            raise ContextOverflow(REFUSAL, backend="scripted", status_code=400, prompt_tokens=20000, context_length=8192)
        text = OBJECT if request.json_schema else self._reply_to(request.messages)
        for start in range(0, len(text), CHUNK_CHARACTERS):
            yield Chunk(text=text[start : start + CHUNK_CHARACTERS])
        yield Chunk(finish_reason="stop", usage=Usage(prompt_tokens=100, completion_tokens=10))

    def _reply_to(self, messages: tuple[Message, ...]) -> str:
        """Answer only from the result itself: that shows that it came."""
        said = [message.content for message in messages[1:]]
        results = [text for text in said if "<function_results>" in text or PRODUCT in text]  # some clients give it as text
        is_known = any(PRODUCT in result for result in results)
        name = re.search(r'<invoke name="([^"]*)', self._call)
        has_tool = name is not None and f"### {name[1]}\n" in messages[0].content
        if has_tool and not results:
            return self._call
        if _question_holds(messages, "as an object"):
            return _as_object(messages[0].content)
        if is_known and "\n### final_answer\n" in messages[0].content:
            return call_of("final_answer", {"answer": ANSWER})
        return ANSWER if is_known or not has_tool else "The result is missing."


def _question_holds(messages: tuple[Message, ...], words: str) -> bool:
    return any(words in message.content for message in messages if message.role == "user")


def _as_object(system: str) -> str:
    taking = [section.partition("\n")[0] for section in system.split("\n### ")[1:] if "\n- product:" in section]
    return call_of(taking[0], {"product": PRODUCT}) if taking else OBJECT
