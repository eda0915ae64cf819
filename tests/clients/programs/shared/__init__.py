"""What the programs share: each way of a client is a function that takes the proxy's address and returns the answer."""

import asyncio
import sys

QUESTION = "What is 1234 times 5678?"


def multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


def print_answers(*ways):
    for ask in ways:
        answer = ask(sys.argv[1])
        print(f"{ask.__name__.replace('_', ' ')}: {asyncio.run(answer) if asyncio.iscoroutine(answer) else answer}", flush=True)
