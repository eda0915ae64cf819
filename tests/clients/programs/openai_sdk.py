"""OpenAI's SDK, chat completions: python tests/clients/programs/openai_sdk.py http://127.0.0.1:8485/v1"""

import asyncio
import json
import sys

import openai
from pydantic import BaseModel

QUESTION = {"role": "user", "content": "What is 1234 times 5678?"}
OBJECT = {"role": "user", "content": "What is 1234 times 5678? Answer as an object."}
TOO_LONG = {"role": "user", "content": "This is too long."}
INTEGERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
PARAMETERS = {"type": "object", "properties": INTEGERS, "required": ["a", "b"], "additionalProperties": False}
FUNCTION = {"name": "multiply", "description": "Multiply two integers.", "parameters": PARAMETERS, "strict": True}
ASKED = {"model": "local", "temperature": 0, "tools": [{"type": "function", "function": FUNCTION}]}


class Product(BaseModel):
    product: int


def result(call):
    arguments = json.loads(call.function.arguments)
    return {"role": "tool", "tool_call_id": call.id, "content": str(arguments["a"] * arguments["b"])}


def whole(url):
    messages = [QUESTION]
    with openai.OpenAI(base_url=url, api_key="none") as client:
        while (message := client.chat.completions.create(messages=messages, **ASKED).choices[0].message).tool_calls:
            messages += [message, *map(result, message.tool_calls)]
    return message.content


def streamed(url):
    messages = [QUESTION]
    with openai.OpenAI(base_url=url, api_key="none") as client:
        while True:
            with client.chat.completions.stream(messages=messages, **ASKED) as stream:
                message = stream.get_final_completion().choices[0].message
            if not message.tool_calls:
                return message.content
            messages += [message, *map(result, message.tool_calls)]


async def async_whole(url):
    messages = [QUESTION]
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        while (message := (await client.chat.completions.create(messages=messages, **ASKED)).choices[0].message).tool_calls:
            messages += [message, *map(result, message.tool_calls)]
    return message.content


async def async_streamed(url):
    messages = [QUESTION]
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        while True:
            async with client.chat.completions.stream(messages=messages, **ASKED) as stream:
                message = (await stream.get_final_completion()).choices[0].message
            if not message.tool_calls:
                return message.content
            messages += [message, *map(result, message.tool_calls)]


def structured(url):
    messages = [OBJECT]
    with openai.OpenAI(base_url=url, api_key="none") as client:
        while True:
            completion = client.chat.completions.parse(messages=messages, response_format=Product, **ASKED)
            message = completion.choices[0].message
            if not message.tool_calls:
                return message.parsed
            messages += [message, *map(result, message.tool_calls)]


def structured_streamed(url):
    messages = [OBJECT]
    with openai.OpenAI(base_url=url, api_key="none") as client:
        while True:
            with client.chat.completions.stream(messages=messages, response_format=Product, **ASKED) as stream:
                message = stream.get_final_completion().choices[0].message
            if not message.tool_calls:
                return message.parsed
            messages += [message, *map(result, message.tool_calls)]


def error(url):
    with openai.OpenAI(base_url=url, api_key="none") as client:
        try:
            return client.chat.completions.create(messages=[TOO_LONG], **ASKED)
        except openai.BadRequestError as refused:
            return refused


HOWS = {
    "whole": whole,
    "streamed": streamed,
    "async whole": async_whole,
    "async streamed": async_streamed,
    "structured": structured,
    "structured streamed": structured_streamed,
    "error": error,
}

if __name__ == "__main__":
    for how, ask in HOWS.items():
        answer = ask(sys.argv[1])
        print(f"{how}: {asyncio.run(answer) if asyncio.iscoroutine(answer) else answer}", flush=True)
