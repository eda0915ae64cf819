"""mcp-use with LangChain: python tests/clients/programs/mcp_use_agent.py http://127.0.0.1:8485/v1"""

import asyncio
import os
import sys
from pathlib import Path

os.environ["MCP_USE_ANONYMIZED_TELEMETRY"] = "false"

from langchain_openai import ChatOpenAI
from mcp_use import MCPAgent, MCPClient
from shared import QUESTION
from shared.product import Product

SERVER = Path(__file__).parents[1] / "multiply_server.py"
SERVERS = {"mcpServers": {"multiply": {"command": sys.executable, "args": [str(SERVER)]}}}


async def said(url, question, **options):
    model = ChatOpenAI(base_url=url, api_key="none", model="local", temperature=0)
    agent = MCPAgent(llm=model, client=MCPClient(SERVERS))
    try:
        return await agent.run(question, **options)
    finally:
        await agent.close()


async def agent(url):
    return await said(url, QUESTION)


async def structured(url):
    return await said(url, f"{QUESTION} Answer as an object.", output_schema=Product)


async def error(url):
    try:
        return await said(url, "This is too long.")
    except Exception as refused:
        return refused


HOWS = {"agent": agent, "structured": structured, "error": error}


async def main():
    for how, ask in HOWS.items():
        print(f"{how}: {await ask(sys.argv[1])}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
