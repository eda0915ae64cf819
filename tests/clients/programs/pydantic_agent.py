"""Pydantic AI: python tests/clients/programs/pydantic_agent.py http://127.0.0.1:8485/v1"""

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.output import NativeOutput, PromptedOutput
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from shared import print_answers

QUESTION = "What is 1234 times 5678?"
OBJECT = "What is 1234 times 5678? Answer as an object."


class Product(BaseModel):
    product: int


def multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


def agent_at(url):
    provider = OpenAICompatibleProvider("xmlcall", base_url=url, api_key="none")
    return Agent(OpenAIChatModel("local", provider=provider), tools=[multiply], model_settings={"temperature": 0})


def whole(url):
    return agent_at(url).run_sync(QUESTION).output


async def streamed(url):
    # not run_stream(), which takes what the model says before its call for the answer
    async with agent_at(url).run_stream_events(QUESTION) as events:
        *_, last = [event async for event in events]
    return last.result.output


def structured(url):
    return agent_at(url).run_sync(OBJECT, output_type=Product).output


def structured_native(url):
    return agent_at(url).run_sync(OBJECT, output_type=NativeOutput(Product)).output


def structured_prompted(url):
    return agent_at(url).run_sync(OBJECT, output_type=PromptedOutput(Product)).output


def error(url):
    try:
        return agent_at(url).run_sync("This is too long.").output
    except ModelHTTPError as refused:
        return refused


if __name__ == "__main__":
    print_answers(whole, streamed, structured, structured_native, structured_prompted, error)
