"""xmlcall: MCP tools for any local language model, through the prompt.

The names below are the public ones. They load on first use, so that `import xmlcall` stays cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .turn.events import (
        Answer as Answer,
        AskedAgain as AskedAgain,
        CallDenied as CallDenied,
        CallFinished as CallFinished,
        CallHeld as CallHeld,
        CallProgress as CallProgress,
        CallRejected as CallRejected,
        CallStarted as CallStarted,
        LoopEvent as LoopEvent,
        ReplyEnded as ReplyEnded,
        ReplyStarted as ReplyStarted,
        RetryAsked as RetryAsked,
        Shortened as Shortened,
        StepEnded as StepEnded,
    )
    from .turn.asking import Asking as Asking
    from .turn.generate import Continued as Continued
    from .turn.machine import Ask as Ask, Denied as Denied, Done as Done, FirstToken as FirstToken, Run as Run, Score as Score
    from .turn.opening import begin_turn as begin_turn
    from .turn.sync_driver import run_turn as run_turn
    from .turn.turn import Turn as Turn
    from .agent.loop import ToolLoop as ToolLoop
    from .agent.policy import Decision as Decision, Policy as Policy, Proposal as Proposal
    from .agent.rules import allow as allow
    from .turn.attempts import RepairPolicy as RepairPolicy
    from .turn.tool_need import ToolNeed as ToolNeed
    from .backends.base import Backend as Backend
    from .backends.connect import connect as connect
    from .binding.bind import bind as bind
    from .binding.provenance import ValueSource as ValueSource, provenance as provenance
    from .errors import (
        BackendError as BackendError,
        ToolHostError as ToolHostError,
        UsageError as UsageError,
        XmlcallError as XmlcallError,
    )
    from .hosts.config import load_servers as load_servers
    from .hosts.local import LocalHost as LocalHost
    from .hosts.mcp.host import McpHost as McpHost
    from .hosts.mcp.oauth import SignIn as SignIn
    from .hosts.server import HttpServer as HttpServer, OAuth as OAuth, StdioServer as StdioServer
    from .parsing.parser import Parser as Parser, parse as parse, render as render
    from .profiles.profile import Profile as Profile
    from .prompting.system import system_prompt as system_prompt
    from .records.audit import AuditFile as AuditFile
    from .tools.catalog import Catalog as Catalog
    from .types.calls import (
        CallNote as CallNote,
        InvalidCall as InvalidCall,
        Issue as Issue,
        Message as Message,
        RawArgument as RawArgument,
        RawCall as RawCall,
        Repair as Repair,
        Reply as Reply,
        Tool as Tool,
        ToolCall as ToolCall,
        ToolResult as ToolResult,
    )
    from .types.completion import (
        Capabilities as Capabilities,
        Chunk as Chunk,
        CompletionRequest as CompletionRequest,
        Usage as Usage,
    )
    from .types.events import (
        CallInReasoning as CallInReasoning,
        Event as Event,
        Markup as Markup,
        ReasoningDelta as ReasoningDelta,
        Repaired as Repaired,
        TextDelta as TextDelta,
        ToolArgumentDelta as ToolArgumentDelta,
        ToolCallEnd as ToolCallEnd,
        ToolCallStart as ToolCallStart,
        coalesce as coalesce,
    )

_MODULES = {
    ".backends.base": "Backend",
    ".backends.connect": "connect",
    ".binding.bind": "bind",
    ".binding.provenance": "ValueSource provenance",
    ".tools.catalog": "Catalog",
    ".types.completion": "Capabilities Chunk CompletionRequest Usage",
    ".hosts.config": "load_servers",
    ".hosts.server": "HttpServer OAuth StdioServer",
    ".errors": "BackendError ToolHostError UsageError XmlcallError",
    ".types.events": "CallInReasoning Event Markup ReasoningDelta Repaired TextDelta ToolArgumentDelta ToolCallEnd "
    "ToolCallStart coalesce",
    ".hosts.local": "LocalHost",
    ".hosts.mcp.host": "McpHost",
    ".hosts.mcp.oauth": "SignIn",
    ".agent.loop": "ToolLoop",
    ".turn.events": "Answer AskedAgain CallDenied CallFinished CallHeld CallProgress CallRejected CallStarted LoopEvent "
    "ReplyEnded ReplyStarted RetryAsked Shortened StepEnded",
    ".turn.asking": "Asking",
    ".turn.generate": "Continued",
    ".turn.machine": "Ask Denied Done FirstToken Run Score",
    ".turn.opening": "begin_turn",
    ".turn.sync_driver": "run_turn",
    ".turn.turn": "Turn",
    ".parsing.parser": "Parser parse render",
    ".agent.policy": "Decision Policy Proposal",
    ".agent.rules": "allow",
    ".profiles.profile": "Profile",
    ".prompting.system": "system_prompt",
    ".records.audit": "AuditFile",
    ".turn.attempts": "RepairPolicy",
    ".turn.tool_need": "ToolNeed",
    ".types.calls": "CallNote InvalidCall Issue Message RawArgument RawCall Repair Reply Tool ToolCall ToolResult",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

_RENAMED = {"TurnEnded": "ReplyEnded", "TurnStarted": "ReplyStarted"}  # the old names work in one more release

_GONE = {
    "grammar": "the last resort constrains a call by itself, and `CompletionRequest.extra` takes a server's own fields",
    "loosened": "it listed what `xmlcall.grammar` did not enforce; both were removed",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("xmlcall")
    if name in _GONE:
        raise AttributeError(f"xmlcall.{name} was removed: {_GONE[name]}")
    if name in _RENAMED:
        import warnings

        warnings.warn(f"xmlcall.{name} is now xmlcall.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in _HOMES:
        raise AttributeError(f"module 'xmlcall' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
