"""An MCP server over stdio that runs its one tool as a task: `python tasking.py MODE`, with the folder of tests on the path.

RECORD is as in `hostile.py`.
"""

import itertools
import json
import sys
from typing import Any

from servers.hostile import CURRENT, ECHO, METHODS, Handler, answer, fail, initialize, listing, note, send, serve, text, tool

TASKS: dict[str, Any] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
TIMES = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": 60000, "pollInterval": 1}
FORM = {"type": "object", "properties": {"city": {"type": "string"}}}
NAMES = {"message": "Which city?", "requestedSchema": FORM}
QUESTION = {"id": "question", "method": "elicitation/create", "params": NAMES}
COUNT = itertools.count(1)


def welcome(params: dict[str, Any]) -> dict[str, Any]:
    return initialize(params) | {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "tasks": TASKS}}


def task(status: str, message: str = "") -> dict[str, Any]:
    return {"taskId": "t1", "status": status, "statusMessage": message} | TIMES


def started(params: dict[str, Any]) -> dict[str, Any]:
    assert params["task"]["ttl"] > 0
    return {"task": task("working")}


def two_steps(params: dict[str, Any]) -> dict[str, Any]:
    number = next(COUNT)
    return task("working" if number < 4 else "completed", f"step {number // 2}")


def ask_then_answer(params: dict[str, Any]) -> dict[str, Any]:
    send(QUESTION)
    reply = json.loads(sys.stdin.readline())
    return {"content": text(json.dumps(reply["result"]))}


def ask_later(params: dict[str, Any]) -> None:
    """List the tools, and ask once no request is open any more."""
    send({"id": CURRENT["id"], "result": {"tools": [tool("slow")]}})
    send(QUESTION)


DEFAULT: dict[str, Handler] = {
    "initialize": welcome,
    "tools/list": listing(tool("slow", execution={"taskSupport": "required"})),
    "tools/call": started,
    "tasks/get": lambda params: task("working", "on it"),
    "tasks/result": answer(content=text("the result")),
    "tasks/cancel": lambda params: task("cancelled"),
}
MODES: dict[str, dict[str, Handler]] = {
    "steps": {"tasks/get": two_steps},
    "asks": {"tasks/get": lambda params: task("input_required"), "tasks/result": ask_then_answer},
    "endless": {},
    "at_once": {"tools/call": answer(content=text("at once"))},
    "fails": {"tasks/get": lambda params: task("failed"), "tasks/result": fail(-32603, "the oven is cold")},
    "cancelled": {"tasks/get": lambda params: task("cancelled")},
    "forgetful": {"tasks/get": fail(-32602, "Task not found")},
    "no_tasks": {"initialize": initialize, "tools/list": listing(tool("slow"))},
    "odd_state": {"tasks/get": answer(status="sleeping")},
    "nosy": {"tools/list": ask_later},
}

if __name__ == "__main__":
    note("RECORD", "started")
    METHODS.update(ECHO | DEFAULT | MODES[sys.argv[1]])
    serve()
