"""LangChain with its OpenAI client: python tests/clients/programs/langchain_chat.py http://127.0.0.1:8485/v1"""

import functools
import operator

import openai
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from shared import print_answers

QUESTION = {"role": "user", "content": "What is 1234 times 5678?"}
OBJECT = {"role": "user", "content": "What is 1234 times 5678? Answer as an object."}
TOO_LONG = {"role": "user", "content": "This is too long."}


class Product(BaseModel):
    product: int


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


def model_at(url):
    return ChatOpenAI(base_url=url, api_key="none", model="local", temperature=0).bind_tools([multiply])


def whole(url):
    messages, model = [QUESTION], model_at(url)
    while (message := model.invoke(messages)).tool_calls:
        messages += [message, *map(multiply.invoke, message.tool_calls)]
    return message.text


def streamed(url):
    messages, model = [QUESTION], model_at(url)
    while (message := functools.reduce(operator.add, model.stream(messages))).tool_calls:
        messages += [message, *map(multiply.invoke, message.tool_calls)]
    return message.text


def structured(url):
    model = ChatOpenAI(base_url=url, api_key="none", model="local", temperature=0).with_structured_output(Product)
    return model.invoke([OBJECT])


def structured_tools(url):
    model = ChatOpenAI(base_url=url, api_key="none", model="local", temperature=0).with_structured_output(
        Product, method="function_calling"
    )
    return model.invoke([OBJECT])


def structured_json(url):
    model = ChatOpenAI(base_url=url, api_key="none", model="local", temperature=0).with_structured_output(
        Product, method="json_mode"
    )
    return model.invoke([OBJECT])


def error(url):
    try:
        return model_at(url).invoke([TOO_LONG])
    except openai.BadRequestError as refused:
        return refused


if __name__ == "__main__":
    print_answers(whole, streamed, structured, structured_tools, structured_json, error)
