"""Ollama's SDK: python tests/clients/programs/ollama_sdk.py http://127.0.0.1:8485"""

import ollama
from pydantic import BaseModel
from shared import print_answers

QUESTION = {"role": "user", "content": "What is 1234 times 5678?"}
OBJECT = {"role": "user", "content": "What is 1234 times 5678? Answer as an object."}
TOO_LONG = {"role": "user", "content": "This is too long."}


class Product(BaseModel):
    product: int


def multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


ASKED = {"model": "local", "tools": [multiply], "options": {"temperature": 0}}


def result(call):
    function = call.function
    return {"role": "tool", "tool_name": function.name, "content": str(multiply(**function.arguments))}


def joined(parts):
    """Make one message of a streamed one."""
    text = "".join(part.message.content or "" for part in parts)
    calls = [call for part in parts for call in part.message.tool_calls or ()]
    return ollama.Message(role="assistant", content=text, tool_calls=calls)


def whole(url):
    messages = [QUESTION]
    client = ollama.Client(host=url)
    while (message := client.chat(messages=messages, **ASKED).message).tool_calls:
        messages += [message, *map(result, message.tool_calls)]
    client.close()
    return message.content


def streamed(url):
    messages = [QUESTION]
    client = ollama.Client(host=url)
    while (message := joined([*client.chat(messages=messages, stream=True, **ASKED)])).tool_calls:
        messages += [message, *map(result, message.tool_calls)]
    client.close()
    return message.content


async def async_whole(url):
    messages = [QUESTION]
    client = ollama.AsyncClient(host=url)
    while (message := (await client.chat(messages=messages, **ASKED)).message).tool_calls:
        messages += [message, *map(result, message.tool_calls)]
    await client.close()
    return message.content


async def async_streamed(url):
    messages = [QUESTION]
    client = ollama.AsyncClient(host=url)
    while (message := joined([part async for part in await client.chat(messages=messages, stream=True, **ASKED)])).tool_calls:
        messages += [message, *map(result, message.tool_calls)]
    await client.close()
    return message.content


def structured(url):
    messages, schema = [OBJECT], Product.model_json_schema()
    client = ollama.Client(host=url)
    while (message := client.chat(messages=messages, format=schema, **ASKED).message).tool_calls:
        messages += [message, *map(result, message.tool_calls)]
    client.close()
    return Product.model_validate_json(message.content)


def error(url):
    client = ollama.Client(host=url)
    try:
        return client.chat(messages=[TOO_LONG], **ASKED)
    except ollama.ResponseError as refused:
        return refused
    finally:
        client.close()


if __name__ == "__main__":
    print_answers(whole, streamed, async_whole, async_streamed, structured, error)
