"""xmlcall: MCP tools for any local language model, through the prompt.

The names below are the public ones. They load on first use, so that `import xmlcall` stays cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backends.base import Backend, Capabilities
    from .backends.connect import connect
    from .binding import bind
    from .catalog import Catalog
    from .completion import Chunk, CompletionRequest, Usage
    from .config import HttpServer, StdioServer, load_servers
    from .errors import BackendError, ToolHostError, UsageError, XmlcallError
    from .events import (
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
    from .generation import Continued
    from .hosts.local import LocalHost
    from .hosts.mcp import McpHost
    from .loop import ToolLoop
    from .loop_events import (
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
    from .parser import Parser
    from .policy import Decision, Policy, Proposal, allow
    from .prompt import system_prompt
    from .repair import RepairPolicy
    from .reply import parse, render
    from .toolneed import ToolNeed
    from .types import (
        InvalidCall,
        Issue,
        Message,
        RawArgument,
        RawCall,
        Repair,
        Reply,
        Tool,
        ToolCall,
        ToolResult,
    )

_MODULES = {
    ".backends.base": "Backend Capabilities",
    ".backends.connect": "connect",
    ".binding": "bind",
    ".catalog": "Catalog",
    ".completion": "Chunk CompletionRequest Usage",
    ".config": "HttpServer StdioServer load_servers",
    ".errors": "BackendError ToolHostError UsageError XmlcallError",
    ".events": "Event Markup ReasoningDelta Repaired TextDelta ToolArgumentDelta ToolCallEnd ToolCallStart coalesce",
    ".hosts.local": "LocalHost",
    ".hosts.mcp": "McpHost",
    ".loop": "ToolLoop",
    ".loop_events": "Answer AskedAgain CallDenied CallFinished CallProgress CallRejected CallStarted LoopEvent RetryAsked "
    "Shortened TurnEnded TurnStarted",
    ".generation": "Continued",
    ".parser": "Parser",
    ".policy": "Decision Policy Proposal allow",
    ".prompt": "system_prompt",
    ".repair": "RepairPolicy",
    ".reply": "parse render",
    ".toolneed": "ToolNeed",
    ".types": "InvalidCall Issue Message RawArgument RawCall Repair Reply Tool ToolCall ToolResult",
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
