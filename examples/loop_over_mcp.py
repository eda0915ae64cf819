"""Let a local model call an MCP server, and ask before each call: python examples/loop_over_mcp.py [MODEL]

The server is the demo server of xmlcall; `xmlcall.load_servers("servers.json")` reads the file of other MCP clients.
"""

import asyncio
import sys

import xmlcall
from xmlcall.types.calls import TextContent

SERVER = xmlcall.StdioServer(name="demo", command=sys.executable, args=("-m", "xmlcall.hosts.demo_server"))


async def ask(proposal: xmlcall.Proposal) -> xmlcall.Decision:
    """Let a person decide about a call; without a person at the keyboard nothing runs."""
    if not sys.stdin.isatty():
        return xmlcall.Decision(allowed=proposal.target == "demo.calculator", reason="Only the calculator may run.")
    said = await asyncio.to_thread(input, f"{proposal.target}({proposal.call.arguments})? [y/n] ")
    return xmlcall.Decision(allowed=said == "y", reason="The person said no.")


async def main(model: str) -> None:
    question = xmlcall.Message(role="user", content="What is 1234 times 5678?")
    async with xmlcall.ToolLoop(xmlcall.connect(model), [xmlcall.McpHost(SERVER)], policy=ask) as loop:
        async for event in loop.run([question]):
            match event:
                case xmlcall.CallFinished(call=call, result=xmlcall.ToolResult(content=(TextContent(text=text), *_))):
                    print(f"{call.name}({call.arguments}) -> {text}")
                case xmlcall.Answer(text=text):
                    print(text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "local"))
