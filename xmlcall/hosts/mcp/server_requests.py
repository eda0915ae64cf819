"""What an MCP server may request from its client, in our own types: user input, a completion, folders, logging.

    features = ClientFeatures(elicit=ask_the_person, roots=("/srv/project",))
    async with McpHost(server, features=features) as host: ...

Passing a callback declares the capability to the server (MCP 2025-11-25, lifecycle); without one nothing is declared, and a
request by the server is refused. A form or a completion can only be asked for while a call of ours runs. The callbacks are the
same for all revisions: servers before 2026-07-28 send requests, later ones answer that input is required.

Everything in a request is the server's text, and thus untrusted input.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from ...addresses import host_readings
from ...types.calls import Message
from ...types.completion import FinishReason

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""The level of a log message (RFC 5424, as in MCP)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormRequest:
    """A server asks the user to fill in a form (MCP elicitation, form mode)."""

    server: str
    message: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlRequest:
    """A server asks the user to visit an address, for data that must not pass through the client (MCP elicitation, URL mode)."""

    server: str
    message: str
    url: str  # it MUST NOT be opened or fetched before the user has seen all of it and agreed
    is_awaited: bool = False  # whether the call is repeated once the user is done there, which `accept` means

    @property
    def spelled_host(self) -> str:
        """The host as the network reads it, which reveals letters of other scripts and odd numbers (MCP: warn of look-alikes)."""
        spelled = host_readings(urlsplit(self.url).hostname or "")[-1]
        return spelled.encode("ascii", "backslashreplace").decode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitAnswer:
    """The user's answer: `decline` means that the user said no, `cancel` that there was no answer."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict)  # of a form; missing fields get the defaults of the schema


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """A server asks for a completion (MCP sampling)."""

    server: str
    messages: tuple[Message, ...]  # the server's system prompt first if there is one; text only
    max_tokens: int
    temperature: float | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleReply:
    """A completion."""

    text: str
    model: str
    finish_reason: FinishReason = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMessage:
    """A line of a server's log (MCP logging)."""

    server: str
    level: LogLevel
    logger: str
    data: Any
    left_out: int = 0  # messages before this one that exceeded the limit per second


Elicit = Callable[[FormRequest | UrlRequest], Awaitable[ElicitAnswer]]
"""Asks the user. It is cancelled when the call ends, or the server withdraws its question."""

Sample = Callable[[SampleRequest], Awaitable[SampleReply | None]]
"""Asks the model; None if the user refuses. It is cancelled when the call ends."""

OnLog = Callable[[LogMessage], None]  # receives a log message


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFeatures:
    """What servers may request. Only what is given is declared."""

    elicit: Elicit | None = None
    sample: Sample | None = None
    roots: tuple[str, ...] = ()  # absolute paths of the folders to report to servers that ask where they may work
    log: OnLog | None = None  # a server may send a limited number of messages each second
    log_level: LogLevel = "info"  # the least severe that servers are asked to send
    refused: Callable[[str, str], None] | None = None  # receives a server and the method of a request that is not supported
    # Asks the user to sign in if a server requires it while a call runs; gets its name and the address, which MUST be shown in
    # full, and returns whether the user agreed.
    sign_in: Callable[[str, str], Awaitable[bool]] | None = None


NO_FEATURES: Final = ClientFeatures()  # nothing is declared or answered
