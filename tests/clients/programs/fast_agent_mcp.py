"""fast-agent with a server of MCP: python tests/clients/programs/fast_agent_mcp.py http://127.0.0.1:8485/v1"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from fast_agent import FastAgent
from shared import QUESTION
from shared.product import Product

SERVER = Path(__file__).parents[1] / "multiply_server.py"


def asking(url, folder):
    """Write a configuration, where JSON is YAML as well, and return what asks an agent that has it."""
    servers = {"sums": {"command": sys.executable, "args": [str(SERVER)]}}
    path = Path(folder, "fast-agent.yaml")
    path.write_text(json.dumps({"generic": {"base_url": url, "api_key": "none"}, "mcp": {"servers": servers}}))
    agents = FastAgent("sums", config_path=str(path), parse_cli_args=False, quiet=True, isolated=True)

    @agents.agent(name="helper", model="generic.local", servers=["sums"])
    async def asked(ask):
        async with agents.run() as running:
            return await ask(running.helper)

    return asked


async def agent(helper):
    return await helper.send(QUESTION)


async def structured(helper):
    found, _ = await helper.structured(f"{QUESTION} Answer as an object.", Product)
    return found


async def error(helper):
    try:
        return await helper.send("This is too long.")
    except Exception as refused:
        return refused


HOWS = {"agent": agent, "structured": structured, "error": error}


async def main():
    for how, ask in HOWS.items():
        with tempfile.TemporaryDirectory() as folder:
            print(f"{how}: {await asking(sys.argv[1], folder)(ask)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
