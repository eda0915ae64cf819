"""LangChain's create_agent: python tests/clients/programs/langchain_agent.py http://127.0.0.1:8485/v1"""

import asyncio
import sys

import openai
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_openai import ChatOpenAI
from shared import messages, multiply
from shared.product import Product

QUESTION, OBJECT, TOO_LONG = ({"messages": [each]} for each in (messages.QUESTION, messages.OBJECT, messages.TOO_LONG))


def agent_at(url, **options):
    model = ChatOpenAI(base_url=url, api_key="none", model="local", temperature=0)
    return create_agent(model, [multiply], **options)


def whole(url):
    return agent_at(url).invoke(QUESTION)["messages"][-1].text


def streamed(url):
    pieces = agent_at(url).stream(QUESTION, stream_mode="messages")
    return "".join(piece.text for piece, _ in pieces if piece.type == "AIMessageChunk")


async def async_whole(url):
    return (await agent_at(url).ainvoke(QUESTION))["messages"][-1].text


async def async_streamed(url):
    pieces = agent_at(url).astream(QUESTION, stream_mode="messages")
    return "".join([piece.text async for piece, _ in pieces if piece.type == "AIMessageChunk"])


def structured(url):
    return agent_at(url, response_format=ProviderStrategy(Product)).invoke(OBJECT)["structured_response"]


def structured_tools(url):
    return agent_at(url, response_format=ToolStrategy(Product)).invoke(OBJECT)["structured_response"]


def structured_streamed(url):
    *_, last = agent_at(url, response_format=ProviderStrategy(Product)).stream(OBJECT, stream_mode=["messages", "values"])
    return last[1]["structured_response"]


def error(url):
    try:
        return agent_at(url).invoke(TOO_LONG)
    except openai.BadRequestError as refused:
        return refused


HOWS = {
    "whole": whole,
    "streamed": streamed,
    "async whole": async_whole,
    "async streamed": async_streamed,
    "structured": structured,
    "structured tools": structured_tools,
    "structured streamed": structured_streamed,
    "error": error,
}

if __name__ == "__main__":
    with asyncio.Runner() as runner:  # one loop for all, since langchain-openai keeps its connections
        for how, ask in HOWS.items():
            answer = ask(sys.argv[1])
            print(f"{how}: {runner.run(answer) if asyncio.iscoroutine(answer) else answer}", flush=True)
