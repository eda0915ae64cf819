"""Let a local model call a Python function: python examples/loop_with_function.py [MODEL]

MODEL is what `xmlcall run --model` takes, such as `ollama:gemma3:4b` or a server's URL; `local` unless it is named.
"""

import asyncio
import sys

import xmlcall


def days_between(first: str, last: str) -> int:
    """Count the days from one date to another.

    Args:
        first: such as 2026-03-01.
        last: such as 2026-03-31.
    """
    from datetime import date

    return (date.fromisoformat(last) - date.fromisoformat(first)).days


async def main(model: str) -> None:
    async with xmlcall.ToolLoop(xmlcall.connect(model), [xmlcall.LocalHost([days_between])], policy=["*"]) as loop:
        answer = await loop.ask("How many days are there from 2026-11-22 to 2026-12-24?")
    print(answer.text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "local"))
