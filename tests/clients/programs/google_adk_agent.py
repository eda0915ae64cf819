"""Google's ADK with LiteLLM, over Ollama's API where the address has no /v1: python google_adk_agent.py http://127.0.0.1:8485/v1"""

import asyncio
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from shared import QUESTION, multiply
from shared.product import Product


def agent_at(url, **options):
    model = LiteLlm(
        model="openai/local" if url.endswith("/v1") else "ollama_chat/local", api_base=url, api_key="none", temperature=0
    )
    return LlmAgent(name="helper", model=model, tools=[multiply], **options)


async def said(agent, question, mode=StreamingMode.NONE):
    config = RunConfig(streaming_mode=mode)
    async with InMemoryRunner(agent=agent) as runner:
        events = await runner.run_debug(question, run_config=config, quiet=True)
    last = next(event for event in reversed(events) if event.is_final_response())
    return "".join(part.text or "" for part in last.content.parts)


async def async_whole(url):
    return await said(agent_at(url), QUESTION)


async def async_streamed(url):
    return await said(agent_at(url), QUESTION, StreamingMode.SSE)


async def structured(url):
    return Product.model_validate_json(await said(agent_at(url, output_schema=Product), f"{QUESTION} Answer as an object."))


async def error(url):
    try:
        return await said(agent_at(url), "This is too long.")
    except Exception as refused:
        return refused


HOWS = {"async whole": async_whole, "async streamed": async_streamed, "structured": structured, "error": error}


async def main():
    for how, ask in HOWS.items():
        print(f"{how}: {await ask(sys.argv[1])}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
