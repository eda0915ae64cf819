"""A conversation of eight turns through the proxy, each request to any of several replicas; and what its prompts cost."""

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from proxy_harness import ADD, ECHO, block, body

from xmlcall.proxy.formats.contract import WholeResponse
from xmlcall.types.completion import CompletionRequest

__all__ = ["TALK", "Replica", "Turn", "not_cached", "own_talk", "play", "prompts_of", "talk_of"]

Replica = Callable[[dict[str, Any]], Any]
"""Answers a chat completion body; gives a coroutine of a `WholeResponse`."""

Turn = tuple[str, tuple[str, ...]]
"""The person's words, and what the model says until its answer, rounds of the proxy's own tools and failed calls included."""

ONE, TWO = ("add", {"a": 1, "b": 2}), ("echo", {"text": "Grüße <b>\n\n5 < 6"})
FENCED = f"```xml\n{block(('add', {'a': 3, 'b': 4}))}\n```"
SPACED = block(ONE).replace("\n<parameter", "\n    <parameter")
WRONG, RIGHT = block(("add", {"a": "one", "b": 2})), block(ONE)
LONG_WORDS = "I look at the numbers first, and add them then, since a sum is easy to get wrong. " * 6

# Words before a call with a blank line, a line's end and neither; a call in a fence, with other white space, put right, and two.
TALK: tuple[Turn, ...] = (
    ("What is 1 and 2?", (f"I add them.\n\n{block(ONE)}", "It is 3.")),
    ("Thanks!", ("You are welcome.",)),
    ("And 3 and 4?", (FENCED, "It is 7.")),
    ("Say it.", (f"So:\n{block(TWO)}", "Said.")),
    ("Add one and 2.", (WRONG, RIGHT, "It is 3.")),
    ("Both, please.", (block(ONE, TWO), "Done.")),
    ("Once more.", (SPACED, "It is 3 again.")),
    ("Explain, then add.", (f"{LONG_WORDS}\n\n{block(ONE)}", "It is 3, as I said.")),
)


def own_talk(own: tuple[str, dict[str, Any]]) -> tuple[Turn, ...]:
    """Make a conversation in which the model also makes a call of a tool of the proxy's own."""
    return (
        ("Double 4, then add.", (f"I double it.\n\n{block(own)}", f"Now the sum.\n\n{block(ONE)}", "It is 8 and 3.")),
        *TALK[1:4],
        ("Both at once.", (block(own, ONE), "It is 8 and 3 again.")),
        *TALK[5:7],
        ("Only double.", (block(own), "It is 8.")),
    )


def talk_of(turns: int) -> tuple[Turn, ...]:
    """Make a conversation of many turns, with words that are in no other."""
    words = [" ".join(f"word{number}x{place}" for place in range(60)) for number in range(turns)]
    return tuple((f"Say {each}", (f"I say it.\n\n{block(('echo', {'text': each}))}", f"Said {each}.")) for each in words)


async def play(replicas: Sequence[Replica], talk: Sequence[Turn], choose: Callable[[int], int]) -> None:
    """Hold a conversation as a client does; each request goes to the replica that `choose` names for its number."""
    said: list[dict[str, Any]] = []
    asked = 0
    for words, _ in talk:
        said.append({"role": "user", "content": words})
        while True:
            turn: WholeResponse = await replicas[choose(asked) % len(replicas)](body(*said, tools=(ADD, ECHO)))
            asked += 1
            said.append(_as_message(turn))
            if not turn.calls:
                break
            said += [{"role": "tool", "tool_call_id": call.id, "content": f"result of {call.name}"} for call in turn.calls]


def _as_message(turn: WholeResponse) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for call in turn.calls
        ]
    return message


def prompts_of(requests: Sequence[CompletionRequest]) -> list[list[tuple[str, str]]]:
    """Give role and content of all that a model server was sent."""
    return [[(message.role, message.content) for message in request.messages] for request in requests]


def not_cached(prompts: Sequence[Sequence[tuple[str, str]]], replies: Sequence[str]) -> list[int]:
    """Count the characters of each prompt that stand in no earlier prompt with its reply, from the beginning on."""
    cached: list[str] = []
    counts = []
    for prompt, reply in zip(prompts, replies, strict=True):
        text = "".join(f"<{role}>{content}<end>" for role, content in prompt)
        counts.append(len(text) - max((_shared(text, each) for each in cached), default=0))
        cached.append(f"{text}<assistant>{reply}<end>")
    return counts


def _shared(one: str, other: str) -> int:
    """Return how many characters are the same from the beginning on."""
    return bisect_left(range(min(len(one), len(other))), True, key=lambda place: one[: place + 1] != other[: place + 1])
