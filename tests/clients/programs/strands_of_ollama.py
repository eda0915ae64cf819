"""Strands Agents with Ollama: python tests/clients/programs/strands_of_ollama.py http://127.0.0.1:8485"""

from shared import QUESTION, print_answers
from shared.product import Product
from strands import Agent, tool
from strands.models.ollama import OllamaModel


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two integers.

    Args:
        a: One of them.
        b: The other.
    """
    return a * b


def agent_at(url):
    return Agent(model=OllamaModel(url, model_id="local", temperature=0), tools=[multiply], callback_handler=None)


def streamed(url):
    return agent_at(url)(QUESTION)


async def async_streamed(url):
    *_, last = [event async for event in agent_at(url).stream_async(QUESTION)]
    return last["result"]


def structured(url):
    return agent_at(url)(f"{QUESTION} Answer as an object.", structured_output_model=Product).structured_output


def error(url):
    try:
        return agent_at(url)("This is too long.")
    except Exception as refused:
        return refused


if __name__ == "__main__":
    print_answers(streamed, async_streamed, structured, error)
