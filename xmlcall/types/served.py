"""What a server offers besides tools: resources, URI templates, and prompts (MCP 2025-11-25 and 2026-07-28)."""

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from .calls import Content

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something that a server can be asked to read."""

    uri: str  # its address, of any scheme
    name: str = ""  # for programs; often for people, too
    title: str = ""  # a name for people
    description: str = ""  # for the model; untrusted, as are all of these
    mime_type: str = ""  # "" if the server does not say
    size: int | None = None  # bytes; None if the server does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTemplate:
    """A family of resources: its address has places to fill in, as in `file:///{path}` (RFC 6570)."""

    uri_template: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """A value that a prompt takes, always a string."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prepared text that a server offers for a person to send."""

    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMessage:
    role: Literal["user", "assistant"]
    content: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """A prompt with its arguments filled in."""

    description: str = ""
    messages: tuple[PromptMessage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Suggestions for an argument that a person has begun to type."""

    values: tuple[str, ...] = ()  # the best first, 100 at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """The listed items, and one sentence for each thing left out that a person should know about."""

    items: tuple[T, ...] = ()
    notices: tuple[str, ...] = ()
