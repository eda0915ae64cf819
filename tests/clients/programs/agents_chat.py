"""OpenAI's Agents SDK, chat completions: python tests/clients/programs/agents_chat.py http://127.0.0.1:8485/v1"""

import asyncio
import sys

import openai
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from shared import QUESTION, multiply
from shared.product import Product

OBJECT = f"{QUESTION} Answer as an object."

set_tracing_disabled(True)


def agent_at(url, kind, **options):
    model = kind("local", openai.AsyncOpenAI(base_url=url, api_key="none"))
    return Agent(
        "Calculator", tools=[function_tool(multiply)], model=model, model_settings=ModelSettings(temperature=0), **options
    )


async def whole(url, kind):
    return (await Runner.run(agent_at(url, kind), QUESTION)).final_output


async def streamed(url, kind):
    run = Runner.run_streamed(agent_at(url, kind), QUESTION)
    async for _ in run.stream_events():
        pass
    return run.final_output


async def structured(url, kind):
    return (await Runner.run(agent_at(url, kind, output_type=Product), OBJECT)).final_output


async def structured_streamed(url, kind):
    run = Runner.run_streamed(agent_at(url, kind, output_type=Product), OBJECT)
    async for _ in run.stream_events():
        pass
    return run.final_output


async def error(url, kind):
    try:
        return (await Runner.run(agent_at(url, kind), "This is too long.")).final_output
    except openai.BadRequestError as refused:
        return refused


HOWS = {
    "whole": whole,
    "streamed": streamed,
    "structured": structured,
    "structured streamed": structured_streamed,
    "error": error,
}


def main(kind):
    for how, ask in HOWS.items():
        print(f"{how}: {asyncio.run(ask(sys.argv[1], kind))}", flush=True)


if __name__ == "__main__":
    main(OpenAIChatCompletionsModel)
