"""xmlcall: MCP tools for any local language model, through the prompt.

The names below are the public ones. They load on first use, so that `import xmlcall` stays cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent.events import (
        Answer,
        AskedAgain,
        CallDenied,
        CallFinished,
        CallProgress,
        CallRejected,
        CallStarted,
        LoopEvent,
        RetryAsked,
        Shortened,
        TurnEnded,
        TurnStarted,
    )
    from .agent.generate import Continued
    from .agent.loop import ToolLoop
    from .agent.policy import Decision, Policy, Proposal, allow
    from .agent.retries import RepairPolicy
    from .agent.tool_need import ToolNeed
    from .backends.base import Backend, Capabilities
    from .backends.connect import connect
    from .binding.bind import bind
    from .errors import BackendError, ToolHostError, UsageError, XmlcallError
    from .hosts.config import HttpServer, StdioServer, load_servers
    from .hosts.local import LocalHost
    from .hosts.mcp.host import McpHost
    from .parsing.parser import Parser
    from .parsing.reply import parse, render
    from .prompting.system import system_prompt
    from .tools.catalog import Catalog
    from .types.calls import InvalidCall, Issue, Message, RawArgument, RawCall, Repair, Reply, Tool, ToolCall, ToolResult
    from .types.completion import Chunk, CompletionRequest, Usage
    from .types.events import (
        Event,
        Markup,
        ReasoningDelta,
        Repaired,
        TextDelta,
        ToolArgumentDelta,
        ToolCallEnd,
        ToolCallStart,
        coalesce,
    )

_MODULES = {
    ".backends.base": "Backend Capabilities",
    ".backends.connect": "connect",
    ".binding.bind": "bind",
    ".tools.catalog": "Catalog",
    ".types.completion": "Chunk CompletionRequest Usage",
    ".hosts.config": "HttpServer StdioServer load_servers",
    ".errors": "BackendError ToolHostError UsageError XmlcallError",
    ".types.events": "Event Markup ReasoningDelta Repaired TextDelta ToolArgumentDelta ToolCallEnd ToolCallStart coalesce",
    ".hosts.local": "LocalHost",
    ".hosts.mcp.host": "McpHost",
    ".agent.loop": "ToolLoop",
    ".agent.events": "Answer AskedAgain CallDenied CallFinished CallProgress CallRejected CallStarted LoopEvent RetryAsked "
    "Shortened TurnEnded TurnStarted",
    ".agent.generate": "Continued",
    ".parsing.parser": "Parser",
    ".agent.policy": "Decision Policy Proposal allow",
    ".prompting.system": "system_prompt",
    ".agent.retries": "RepairPolicy",
    ".parsing.reply": "parse render",
    ".agent.tool_need": "ToolNeed",
    ".types.calls": "InvalidCall Issue Message RawArgument RawCall Repair Reply Tool ToolCall ToolResult",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("xmlcall")
    if name not in _HOMES:
        raise AttributeError(f"module 'xmlcall' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
