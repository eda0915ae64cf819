"""LangChain with its Ollama client: python tests/clients/programs/langchain_of_ollama.py http://127.0.0.1:8485"""

import functools
import operator
import sys

from langchain_core.tools import tool
from langchain_ollama import ChatOllama

QUESTION = {"role": "user", "content": "What is 1234 times 5678?"}


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


def model_at(url):
    return ChatOllama(base_url=url, model="local", temperature=0).bind_tools([multiply])


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


HOWS = {"whole": whole, "streamed": streamed}

if __name__ == "__main__":
    for how, ask in HOWS.items():
        print(f"{how}: {ask(sys.argv[1])}", flush=True)
