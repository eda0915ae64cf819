"""AutoGen: python tests/clients/programs/autogen_agent.py http://127.0.0.1:8485/v1"""

import asyncio
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from shared import QUESTION
from shared.product import Product

ABILITIES = {"vision": False, "function_calling": True, "json_output": True, "structured_output": True, "family": "unknown"}


def multiply(a: int, b: int) -> int:
    return a * b


def agent_at(url, **options):
    model = OpenAIChatCompletionClient(model="local", base_url=url, api_key="none", temperature=0, model_info=ABILITIES)
    tool = FunctionTool(multiply, description="Multiply two integers.", strict=True)  # a form of the output demands strict tools
    return AssistantAgent("helper", model, tools=[tool], reflect_on_tool_use=True, **options)


async def async_whole(url):
    result = await agent_at(url).run(task=QUESTION)
    return result.messages[-1].content


async def async_streamed(url):
    *_, result = [event async for event in agent_at(url, model_client_stream=True).run_stream(task=QUESTION)]
    return result.messages[-1].content


async def structured(url):
    result = await agent_at(url, output_content_type=Product).run(task=f"{QUESTION} Answer as an object.")
    return result.messages[-1].content


async def error(url):
    try:
        return await agent_at(url).run(task="This is too long.")
    except Exception as refused:
        return refused


HOWS = {"async whole": async_whole, "async streamed": async_streamed, "structured": structured, "error": error}


async def main():
    for how, ask in HOWS.items():
        print(f"{how}: {await ask(sys.argv[1])}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
