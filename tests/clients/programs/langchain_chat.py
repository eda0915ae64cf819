"""LangChain with its OpenAI client: python tests/clients/programs/langchain_chat.py http://127.0.0.1:8485/v1"""

import functools
import operator

import openai
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from shared import multiply, print_answers
from shared.messages import OBJECT, QUESTION, TOO_LONG
from shared.product import Product

MULTIPLY = tool(multiply)


def model_at(url):
    return ChatOpenAI(base_url=url, api_key="none", model="local", temperature=0).bind_tools([MULTIPLY])


def whole(url):
    messages, model = [QUESTION], model_at(url)
    while (message := model.invoke(messages)).tool_calls:
        messages += [message, *map(MULTIPLY.invoke, message.tool_calls)]
    return message.text


def streamed(url):
    messages, model = [QUESTION], model_at(url)
    while (message := functools.reduce(operator.add, model.stream(messages))).tool_calls:
        messages += [message, *map(MULTIPLY.invoke, message.tool_calls)]
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
