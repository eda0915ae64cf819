"""Anthropic's SDK: python tests/clients/programs/anthropic_sdk.py http://127.0.0.1:8485"""

import anthropic
from pydantic import BaseModel
from shared import print_answers

QUESTION = {"role": "user", "content": "What is 1234 times 5678?"}
OBJECT = {"role": "user", "content": "What is 1234 times 5678? Answer as an object."}
TOO_LONG = {"role": "user", "content": "This is too long."}
INTEGERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
SCHEMA = {"type": "object", "properties": INTEGERS, "required": ["a", "b"]}
TOOL = {"name": "multiply", "description": "Multiply two integers.", "input_schema": SCHEMA}
ASKED = {"model": "local", "max_tokens": 1000, "tools": [TOOL], "extra_body": {"temperature": 0}}


class Product(BaseModel):
    product: int


def exchange(reply):
    """Write the model's message and, as the person's, the results of its calls."""
    calls = [block for block in reply.content if block.type == "tool_use"]
    results = [(call.id, str(call.input["a"] * call.input["b"])) for call in calls]
    blocks = [{"type": "tool_result", "tool_use_id": identity, "content": product} for identity, product in results]
    return [{"role": "assistant", "content": reply.content}, {"role": "user", "content": blocks}]


def text_of(reply):
    return "".join(block.text for block in reply.content if block.type == "text")


def whole(url):
    messages = [QUESTION]
    with anthropic.Anthropic(base_url=url, api_key="none") as client:
        while (reply := client.messages.create(messages=messages, **ASKED)).stop_reason == "tool_use":
            messages += exchange(reply)
    return text_of(reply)


def streamed(url):
    messages = [QUESTION]
    with anthropic.Anthropic(base_url=url, api_key="none") as client:
        while True:
            with client.messages.stream(messages=messages, **ASKED) as stream:
                reply = stream.get_final_message()
            if reply.stop_reason != "tool_use":
                return text_of(reply)
            messages += exchange(reply)


async def async_whole(url):
    messages = [QUESTION]
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none") as client:
        while (reply := await client.messages.create(messages=messages, **ASKED)).stop_reason == "tool_use":
            messages += exchange(reply)
    return text_of(reply)


async def async_streamed(url):
    messages = [QUESTION]
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none") as client:
        while True:
            async with client.messages.stream(messages=messages, **ASKED) as stream:
                reply = await stream.get_final_message()
            if reply.stop_reason != "tool_use":
                return text_of(reply)
            messages += exchange(reply)


def structured(url):
    messages = [OBJECT]
    with anthropic.Anthropic(base_url=url, api_key="none") as client:
        while (reply := client.messages.parse(messages=messages, output_format=Product, **ASKED)).stop_reason == "tool_use":
            messages += exchange(reply)
    return reply.parsed_output


def error(url):
    with anthropic.Anthropic(base_url=url, api_key="none") as client:
        try:
            return client.messages.create(messages=[TOO_LONG], **ASKED)
        except anthropic.BadRequestError as refused:
            return refused


if __name__ == "__main__":
    print_answers(whole, streamed, async_whole, async_streamed, structured, error)
