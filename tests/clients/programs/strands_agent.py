"""Strands Agents: python tests/clients/programs/strands_agent.py http://127.0.0.1:8485/v1"""

from shared import QUESTION, print_answers
from shared.product import Product
from strands import Agent, tool
from strands.models.openai import OpenAIModel


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two integers.

    Args:
        a: One of them.
        b: The other.
    """
    return a * b


def agent_at(url, **options):
    address = {"base_url": url, "api_key": "none"}
    model = OpenAIModel(client_args=address, model_id="local", params={"temperature": 0}, **options)
    return Agent(model=model, tools=[multiply], callback_handler=None)


def whole(url):
    return agent_at(url, stream=False)(QUESTION)


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
    print_answers(whole, streamed, async_streamed, structured, error)
