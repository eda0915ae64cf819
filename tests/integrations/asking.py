"""Questions to a gateway by OpenAI's SDK, and what comes back, in a form that can be compared."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import openai
from proxy_harness import ADD, ECHO, add, block

__all__ = ["FORTY_TWO", "REPLIES", "WAYS", "Answer", "Call", "body", "sdk", "streamed", "whole"]

TOOLS = [ADD, ECHO]
Asked = Mapping[str, Any]
Call = tuple[str, dict[str, Any]]


def sdk(url: str) -> openai.AsyncOpenAI:
    """Make a client of a gateway."""
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def body(word: str, *before: Mapping[str, Any], model: str = "tiny", **more: Any) -> dict[str, Any]:
    """Write a request; the word says which reply the model server gives."""
    messages = [*before, {"role": "user", "content": f"{word}: what is 17 + 25?"}]
    return {"model": model, "messages": messages, "tools": TOOLS} | more


@dataclass(frozen=True)
class Answer:
    """What a caller was given."""

    text: str
    calls: tuple[Call, ...]
    finish_reason: str


def _answer(text: str | None, calls: Sequence[Any], reason: str | None) -> Answer:
    read = tuple((call.function.name, json.loads(call.function.arguments)) for call in calls)
    assert len({call.id for call in calls if call.id}) == len(read)
    return Answer(text or "", read, reason or "")


async def whole(client: openai.AsyncOpenAI, asked: Asked) -> Answer:
    """Ask for an answer in one piece."""
    choice = (await client.chat.completions.create(**asked)).choices[0]
    return _answer(choice.message.content, choice.message.tool_calls or [], choice.finish_reason)


async def streamed(client: openai.AsyncOpenAI, asked: Asked) -> Answer:
    """Ask by the SDK's own reader of streams, which puts the deltas of a call together."""
    async with client.chat.completions.stream(**asked) as stream:
        choice = (await stream.get_final_completion()).choices[0]
    return _answer(choice.message.content, choice.message.tool_calls or [], choice.finish_reason)


WAYS = {"whole": whole, "streamed": streamed}

FORTY_TWO: Call = ("add", {"a": 17, "b": 25})

REPLIES: dict[str, tuple[str, Answer]] = {
    "text": ("It is 42.", Answer("It is 42.", (), "stop")),
    "a call": (add(17, 25), Answer("", (FORTY_TWO,), "tool_calls")),
    "text and a call": (f"I add. {add(17, 25)}", Answer("I add. ", (FORTY_TWO,), "tool_calls")),
    "two calls": (
        block(("add", {"a": 17, "b": 25}), ("echo", {"text": "two words"})),
        Answer("", (FORTY_TWO, ("echo", {"text": "two words"})), "tool_calls"),
    ),
    "a call in Chinese text": (f"我来算一下。{add(17, 25)}", Answer("我来算一下。", (FORTY_TWO,), "tool_calls")),
    "Chinese values": (block(("echo", {"text": "苏黎世"})), Answer("", (("echo", {"text": "苏黎世"}),), "tool_calls")),
    "one call twice": (block(*[FORTY_TWO] * 2), Answer("", (FORTY_TWO,), "tool_calls")),
    "results that are invented": (
        f"{add(17, 25)}\n<function_results>42</function_results> 42!",
        Answer("", (FORTY_TWO,), "tool_calls"),
    ),
}
"""Case -> what the model says, and what a caller gets of it, by whatever way of ours."""
