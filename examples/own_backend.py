"""Put a model behind xmlcall that it does not know: python examples/own_backend.py

A backend has a name, says what its server can do, and streams text. This one is no model: it writes what it was told to. In its
place stands your own client of a server, or a model inside your program.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Self

import xmlcall


class Parrot:
    """A model that calls `shout` with the person's words, and then repeats what came of it."""

    model = "parrot"
    capabilities = xmlcall.Capabilities(server="parrot")

    async def __aenter__(self) -> Self:
        return self  # connect here, and raise BackendUnavailable if nobody answers

    async def __aexit__(self, *_: Any) -> None:
        pass  # nothing was opened

    async def stream(self, request: xmlcall.CompletionRequest) -> AsyncGenerator[xmlcall.Chunk]:
        last = request.messages[-1].content
        if "<function_results>" in last:
            text = f"It says {last.split('>')[2].split('<')[0].strip()}"
        else:
            said = last.split("\n")[0]
            text = f'<function_calls><invoke name="shout"><parameter name="text">{said}</parameter></invoke></function_calls>'
        for word in text.split(" "):
            yield xmlcall.Chunk(text=f"{word} ")
        yield xmlcall.Chunk(finish_reason="stop", usage=xmlcall.Usage(completion_tokens=len(text.split())))


def shout(text: str) -> str:
    """Write a text in capitals."""
    return text.upper()


async def main() -> None:
    async with xmlcall.ToolLoop(Parrot(), [xmlcall.LocalHost([shout])], policy=["*"]) as loop:
        print((await loop.ask("good morning")).text)


if __name__ == "__main__":
    asyncio.run(main())
