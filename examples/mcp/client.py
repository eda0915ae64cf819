"""The client of the MCP tutorials: start the servers, list their tools, ask the model, run its calls, print the answer.

python examples/mcp/client.py servers.json "What is 17 times 23?" [MODEL]
"""

import asyncio
import sys

import xmlcall


async def main(servers: str, question: str, model: str = "local") -> None:
    hosts = [xmlcall.McpHost(server) for server in xmlcall.load_servers(servers).values()]
    async with xmlcall.ToolLoop(xmlcall.connect(model), hosts, policy=["*"]) as loop:
        print((await loop.ask(question)).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
