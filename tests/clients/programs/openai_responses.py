"""OpenAI's SDK, responses: python tests/clients/programs/openai_responses.py http://127.0.0.1:8485/v1"""

import json

import openai
from pydantic import BaseModel
from shared import print_answers

QUESTION = {"role": "user", "content": "What is 1234 times 5678?"}
OBJECT = {"role": "user", "content": "What is 1234 times 5678? Answer as an object."}
TOO_LONG = {"role": "user", "content": "This is too long."}
INTEGERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
PARAMETERS = {"type": "object", "properties": INTEGERS, "required": ["a", "b"], "additionalProperties": False}
TOOL = {"type": "function", "name": "multiply", "description": "Multiply two integers.", "parameters": PARAMETERS, "strict": True}
ASKED = {"model": "local", "temperature": 0, "tools": [TOOL], "store": False}


class Product(BaseModel):
    product: int


def results(reply):
    for item in reply.output:
        if item.type == "function_call":
            arguments = json.loads(item.arguments)
            product = str(arguments["a"] * arguments["b"])
            yield {"type": "function_call_output", "call_id": item.call_id, "output": product}


def whole(url):
    items = [QUESTION]
    with openai.OpenAI(base_url=url, api_key="none") as client:
        while outputs := [*results(reply := client.responses.create(input=items, **ASKED))]:
            items += [*reply.output, *outputs]
    return reply.output_text


def streamed(url):
    items = [QUESTION]
    with openai.OpenAI(base_url=url, api_key="none") as client:
        while True:
            with client.responses.stream(input=items, **ASKED) as stream:
                reply = stream.get_final_response()
            if not (outputs := [*results(reply)]):
                return reply.output_text
            items += [*reply.output, *outputs]


async def async_whole(url):
    items = [QUESTION]
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        while outputs := [*results(reply := await client.responses.create(input=items, **ASKED))]:
            items += [*reply.output, *outputs]
    return reply.output_text


async def async_streamed(url):
    items = [QUESTION]
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        while True:
            async with client.responses.stream(input=items, **ASKED) as stream:
                reply = await stream.get_final_response()
            if not (outputs := [*results(reply)]):
                return reply.output_text
            items += [*reply.output, *outputs]


def structured(url):
    items = [OBJECT]
    with openai.OpenAI(base_url=url, api_key="none") as client:
        while outputs := [*results(reply := client.responses.parse(input=items, text_format=Product, **ASKED))]:
            items += [*reply.output, *outputs]
    return reply.output_parsed


def structured_streamed(url):
    items = [OBJECT]
    with openai.OpenAI(base_url=url, api_key="none") as client:
        while True:
            with client.responses.stream(input=items, text_format=Product, **ASKED) as stream:
                reply = stream.get_final_response()
            if not (outputs := [*results(reply)]):
                return reply.output_parsed
            items += [*reply.output, *outputs]


def error(url):
    with openai.OpenAI(base_url=url, api_key="none") as client:
        try:
            return client.responses.create(input=[TOO_LONG], **ASKED)
        except openai.BadRequestError as refused:
            return refused


if __name__ == "__main__":
    print_answers(whole, streamed, async_whole, async_streamed, structured, structured_streamed, error)
