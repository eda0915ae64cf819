"""AG2: python tests/clients/programs/ag2_agent.py http://127.0.0.1:8485/v1"""

from ag2 import Agent, tool
from ag2.config import OpenAIConfig
from shared import QUESTION, multiply, print_answers
from shared.product import Product


def agent_at(url, **options):
    model = OpenAIConfig(model="local", base_url=url, api_key="none", temperature=0, **options)
    return Agent("helper", config=model, tools=[tool(multiply)])


async def async_whole(url):
    reply = await agent_at(url).ask(QUESTION)
    return reply.body


async def async_streamed(url):
    reply = await agent_at(url, streaming=True).ask(QUESTION)
    return reply.body


async def structured(url):
    reply = await agent_at(url).ask(f"{QUESTION} Answer as an object.", response_schema=Product)
    return await reply.content()


async def error(url):
    try:
        return await agent_at(url).ask("This is too long.")
    except Exception as refused:
        return refused


if __name__ == "__main__":
    print_answers(async_whole, async_streamed, structured, error)
