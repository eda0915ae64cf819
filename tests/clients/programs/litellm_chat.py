"""LiteLLM, chat completions: python tests/clients/programs/litellm_chat.py http://127.0.0.1:8485/v1"""

import asyncio
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks for a list of prices

import litellm
from shared.messages import OBJECT, QUESTION, TOO_LONG
from shared.product import Product

INTEGERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
PARAMETERS = {"type": "object", "properties": INTEGERS, "required": ["a", "b"]}
FUNCTION = {"name": "multiply", "description": "Multiply two integers.", "parameters": PARAMETERS}
ASKED = {"api_key": "none", "temperature": 0, "tools": [{"type": "function", "function": FUNCTION}]}


def result(call):
    arguments = json.loads(call.function.arguments)
    return {"role": "tool", "tool_call_id": call.id, "content": str(arguments["a"] * arguments["b"])}


def message_of(reply):
    return reply.choices[0].message


def whole(**asked):
    messages = [QUESTION]
    while (message := message_of(litellm.completion(messages=messages, **asked))).tool_calls:
        messages += [message, *map(result, message.tool_calls)]
    return message.content


def streamed(**asked):
    messages = [QUESTION]
    while True:
        pieces = [*litellm.completion(messages=messages, stream=True, **asked)]
        message = message_of(litellm.stream_chunk_builder(pieces, messages=messages))
        if not message.tool_calls:
            return message.content
        messages += [message, *map(result, message.tool_calls)]


async def async_whole(**asked):
    messages = [QUESTION]
    while (message := message_of(await litellm.acompletion(messages=messages, **asked))).tool_calls:
        messages += [message, *map(result, message.tool_calls)]
    return message.content


async def async_streamed(**asked):
    messages = [QUESTION]
    while True:
        pieces = [piece async for piece in await litellm.acompletion(messages=messages, stream=True, **asked)]
        message = message_of(litellm.stream_chunk_builder(pieces, messages=messages))
        if not message.tool_calls:
            return message.content
        messages += [message, *map(result, message.tool_calls)]


def structured(**asked):
    messages = [OBJECT]
    while (message := message_of(litellm.completion(messages=messages, response_format=Product, **asked))).tool_calls:
        messages += [message, *map(result, message.tool_calls)]
    return Product.model_validate_json(message.content)


def error(**asked):
    try:
        return litellm.completion(messages=[TOO_LONG], **asked)
    except litellm.BadRequestError as refused:
        return refused


HOWS = {
    "whole": whole,
    "streamed": streamed,
    "async whole": async_whole,
    "async streamed": async_streamed,
    "structured": structured,
    "error": error,
}


def main(model):
    for how, ask in HOWS.items():
        answer = ask(model=model, api_base=sys.argv[1], **ASKED)
        print(f"{how}: {asyncio.run(answer) if asyncio.iscoroutine(answer) else answer}", flush=True)


if __name__ == "__main__":
    main("openai/local")
