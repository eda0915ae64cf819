"""Guess whether a tool changes something: whether it writes, sends, buys or deletes.

A server may state it (MCP 2025-11-25, ToolAnnotations). Most do not, so the tool's name decides, by its first verb: `get_order`
reads, `order_pizza` does not. A server can lie, so this alone never permits a call.
"""

from typing import Final

from ..types.calls import Tool
from .names import words_of_name

_WRITES: Final = frozenset(
    [
        *("accept", "add", "append", "apply", "approve", "assign", "book", "buy", "cancel", "charge", "clear", "close", "commit"),
        *("copy", "create", "delete", "deploy", "disable", "drop", "edit", "enable", "execute", "forward", "insert", "install"),
        *("invite", "kill", "lock", "mail", "make", "merge", "modify", "move", "notify", "order", "overwrite", "page"),
        *("patch", "pay", "payment", "post", "publish", "purchase", "push", "put", "refund", "register", "remove", "rename"),
        *("reply", "request", "reserve", "reset", "restart", "revoke", "run", "save", "schedule", "sell", "send", "set", "share"),
        *("sign", "start", "stop", "submit", "subscribe", "terminate", "trade", "transfer", "turn", "unlock", "update"),
        *("upload", "withdraw", "write"),
    ]
)
READING_VERBS: Final = frozenset(
    [
        *("analyze", "analyse", "calculate", "check", "compare", "compute", "convert", "count", "describe", "diff", "download"),
        *("estimate", "explain", "fetch", "find", "get", "inspect", "list", "locate", "log", "look", "lookup", "open", "parse"),
        *("preview", "query", "read", "retrieve", "search", "show", "status", "summarize", "tail", "translate", "validate"),
        "view",
    ]
)


def may_write(tool: Tool) -> bool:
    """Say whether a tool changes something, by its server's hints or else by its name."""
    hints = tool.annotations or {}
    if isinstance(reads := hints.get("readOnlyHint"), bool):
        return not reads
    if isinstance(destroys := hints.get("destructiveHint"), bool) and destroys:
        return True
    return bool(writing_verb(tool))


def only_reads(tool: Tool) -> bool:
    """Say whether a tool changes nothing, by its server's hints or else by its name; False if the name has no known verb."""
    if isinstance(reads := (tool.annotations or {}).get("readOnlyHint"), bool):
        return reads
    return next((word in READING_VERBS for word in words_of_name(tool.name) if word in READING_VERBS or word in _WRITES), False)


def writing_verb(tool: Tool) -> str:
    """Return the verb in a tool's name that changes something; "" if there is none or a reading verb comes first."""
    verb = next((word for word in words_of_name(tool.name) if word in READING_VERBS or word in _WRITES), "")
    return verb if verb in _WRITES else ""
