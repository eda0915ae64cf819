"""An MCP server over stdio with the tool `multiply`, without a package: clients bring different versions of the MCP SDK."""

import json
import sys
from collections.abc import Callable
from typing import Any

INTEGERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
SCHEMA = {"type": "object", "properties": INTEGERS, "required": ["a", "b"]}
TOOL = {"name": "multiply", "description": "Multiply two integers.", "inputSchema": SCHEMA}


def initialize(params: dict[str, Any]) -> dict[str, Any]:
    about = {"name": "multiply", "version": "1"}
    return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}


def call(params: dict[str, Any]) -> dict[str, Any]:
    product = params["arguments"]["a"] * params["arguments"]["b"]
    return {"content": [{"type": "text", "text": str(product)}]}


METHODS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "initialize": initialize,
    "ping": lambda _: {},
    "tools/list": lambda _: {"tools": [TOOL]},
    "tools/call": call,
}

if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        method = METHODS.get(request["method"])
        unknown = {"code": -32601, "message": f"no method {request['method']}"}
        outcome = {"result": method(request.get("params") or {})} if method else {"error": unknown}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"]} | outcome), flush=True)
