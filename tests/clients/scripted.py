"""A model that needs no model: it asks for `multiply` and answers with what it was told. For tests of real clients."""

from collections.abc import AsyncGenerator

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.completion import Chunk, CompletionRequest, Usage
from xmlcall.types import Message

__all__ = ["ANSWER", "CALL", "MultiplyingModel"]

PRODUCT = "7006652"
ANSWER = f"1234 times 5678 is {PRODUCT}."
CALL = """I multiply them.
<function_calls>
<invoke name="multiply">
<parameter name="a">1234</parameter>
<parameter name="b">5678</parameter>
</invoke>
</function_calls>"""
CHUNK_CHARACTERS = 7


class MultiplyingModel(ScriptedBackend):
    """Calls `multiply`, whatever it is asked, and answers once a result has come."""

    def __init__(self) -> None:
        super().__init__([])

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        """Say what fits the conversation."""
        self.requests.append(request)
        text = reply_to(request.messages[-1])
        for start in range(0, len(text), CHUNK_CHARACTERS):
            yield Chunk(text=text[start : start + CHUNK_CHARACTERS])
        yield Chunk(finish_reason="stop", usage=Usage(prompt_tokens=100, completion_tokens=10))


def reply_to(last: Message) -> str:
    """Answer only from the result itself: that shows that it came."""
    if "<function_results>" not in last.content:
        return CALL
    return ANSWER if PRODUCT in last.content else "The result is missing."
