"""The values that everything else passes around: tools, calls, results, messages, replies.

All are frozen, slotted and keyword-only. Names follow MCP (Tool, CallToolResult, content blocks) and OpenAI (tool_calls,
finish_reason) in snake_case; the wire spellings live in `xmlcall.wire` and in `Tool.from_*`.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, cast

from ..errors import UsageError

__all__ = [
    "MISSING",
    "Audience",
    "AudioContent",
    "CallNote",
    "Content",
    "EmbeddedResource",
    "ImageContent",
    "InvalidCall",
    "Issue",
    "Message",
    "OtherContent",
    "RawArgument",
    "RawCall",
    "Repair",
    "Reply",
    "ResourceLink",
    "Role",
    "Span",
    "TextContent",
    "Tool",
    "ToolCall",
    "ToolReply",
    "ToolResult",
    "Written",
    "WrittenCall",
]

Span = tuple[int, int]
"""Start and end offset in characters of the reply, end exclusive."""

Role = Literal["system", "user", "assistant", "tool"]

Audience = tuple[Literal["user", "assistant"], ...]
"""For whom a piece of content is: the person (`user`), the model (`assistant`); empty for both (MCP 2025-11-25, annotations)."""

Moment = Literal["starts", "ended", "interrupted", "denied", "rejected"]
"""`starts` comes before the call runs, and `ended` or `interrupted` behind it; `denied` and `rejected` stand alone."""


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Tool:
    """A tool that a model may call, as MCP describes it.

    Args:
        name: unique in a catalog.
        description: for the model.
        input_schema: JSON Schema of the arguments, an object schema.
        title: a name for people.
        output_schema: JSON Schema of the structured result.
        annotations: MCP's hints (readOnlyHint ...), untrusted.
    """

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    title: str | None = None
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] | None = None

    @classmethod
    def from_mcp(cls, tool: Mapping[str, Any]) -> Self:
        """Read a tool of MCP's `list`.

        Args:
            tool: `{"name", "description"?, "inputSchema", ...}` (MCP 2025-11-25, Tool).

        Raises:
            UsageError: no name, or the schema is not an object.
        """
        return cls(
            name=_named(tool, "MCP"),
            description=_description(tool),
            input_schema=_object_schema(tool.get("inputSchema"), tool["name"]),
            title=tool.get("title"),
            output_schema=tool.get("outputSchema"),
            annotations=tool.get("annotations"),
        )

    @classmethod
    def from_openai(cls, tool: Mapping[str, Any]) -> Self:
        """Read a function tool of OpenAI's chat completions.

        Args:
            tool: `{"type": "function", "function": {"name", "description"?, "parameters"?}}`, or the inner object alone.

        Raises:
            UsageError: no name, or the schema is not an object.
        """
        function = tool.get("function", tool)
        if not isinstance(function, Mapping):
            raise UsageError(f'expected "function" to be a JSON object, got {function!r:.80}')
        return cls(
            name=_named(function, "OpenAI"),
            description=_description(function),
            input_schema=_object_schema(function.get("parameters"), function["name"]),
        )

    @classmethod
    def from_function(cls, function: Callable[..., Any]) -> Self:
        """Describe a Python function as a tool: its name, docstring and type hints.

        Args:
            function: every parameter can be passed by keyword; `Annotated[T, pydantic.Field(description=...)]` describes one.

        Raises:
            UsageError: a parameter cannot be passed by keyword or its type has no JSON Schema.
        """
        from pydantic import PydanticUserError, TypeAdapter  # only here: importing xmlcall stays cheap
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, function))  # a function is no type, but pydantic takes it
            schema = adapter.json_schema()
        except (PydanticUserError, PydanticInvalidForJsonSchema, NameError) as error:
            raise UsageError(f"{function.__name__}: its parameters have no JSON Schema: {error}") from error
        if schema.get("type") != "object":
            raise UsageError(f"{function.__name__}: every parameter must be usable by keyword")
        return cls(name=function.__name__, description=(function.__doc__ or "").strip(), input_schema=schema)


def _named(tool: Mapping[str, Any], form: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise UsageError(f'expected an {form} tool with a "name", got {dict(tool)!r:.120}')
    return name


def _description(tool: Mapping[str, Any]) -> str:
    description = tool.get("description") or ""
    if not isinstance(description, str):
        raise UsageError(f"tool {tool['name']!r}: expected its description to be a string, got {description!r:.80}")
    return description


def _object_schema(schema: Any, name: str) -> Mapping[str, Any]:
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, Mapping):
        raise UsageError(f"tool {name!r}: expected its input schema to be a JSON object, got {schema!r:.80}")
    return schema


class Missing(enum.Enum):
    """The mark for "no value", where None would be a JSON null."""

    MISSING = "MISSING"


MISSING: Final = Missing.MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A tolerance that was needed to read a reply (a code of `errors.REPAIRS`), and where."""

    code: str
    span: Span
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One mistake in a call (a code of `errors.ISSUES`).

    Args:
        code: the kind.
        path: JSON path of the value, `$` for the call itself.
        expected: what the schema asks for, in words.
        got: what the model wrote, shortened.
        message: one sentence for the model.
        readings: the rival readings of an ambiguous call.
    """

    code: str
    path: str = "$"
    expected: str = ""
    got: str = ""
    message: str = ""
    readings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RawArgument:
    """One parameter as the model wrote it; `value` is set in JSON dialects, where the text is typed already."""

    name: str
    text: str
    value: Any = MISSING
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCall:
    """A call as the model wrote it, not yet checked.

    Args:
        index: its number in the reply, from 0.
        name: the tool's name as written.
        arguments: in the order written, duplicates included.
        dialect: the wire format it was written in.
        text: its source text.
        span: where that stands in the reply.
        complete: whether its end was read; what is not complete never runs.
        issues: what the parser could not decide (`ambiguous`) or saw cut off (`truncated-call`).
        repairs: tolerances that were needed.
    """

    index: int
    name: str
    arguments: tuple[RawArgument, ...] = ()
    dialect: str = "function_calls"
    text: str = ""
    span: Span = (0, 0)
    complete: bool = True
    issues: tuple[Issue, ...] = ()
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that satisfies its tool's schema."""

    id: str
    name: str
    arguments: dict[str, Any]
    repairs: tuple[Repair, ...] = ()
    raw: RawCall


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidCall:
    """A call that must not run, with every reason. It has no `arguments`."""

    id: str
    name: str
    issues: tuple[Issue, ...]
    raw: RawCall


@dataclass(frozen=True, slots=True, kw_only=True)
class TextContent:
    """A text block of a result."""

    text: str
    audience: Audience = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageContent:
    """An image block: base64 data; `path`: the file that it was written to, if it was."""

    data: str
    mime_type: str
    path: str = ""
    audience: Audience = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioContent:
    """An audio block: base64 data; `path`: the file that it was written to, if it was."""

    data: str
    mime_type: str
    path: str = ""
    audience: Audience = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLink:
    """A link to a resource that the server could be asked for."""

    uri: str
    name: str = ""
    description: str = ""
    mime_type: str = ""
    audience: Audience = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedResource:
    """A resource given in full: `text`, or `blob` in base64; `path`: the file that this was written to, if it was."""

    uri: str
    mime_type: str = ""
    text: str | None = None
    blob: str | None = None
    path: str = ""
    audience: Audience = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherContent:
    """A block of a kind that this version does not know."""

    raw: Mapping[str, Any]
    audience: Audience = ()


Content = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | OtherContent


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool answered (MCP CallToolResult).

    Args:
        content: the blocks.
        structured_content: the JSON value, `MISSING` if none.
        is_error: the tool itself says that it failed.
        call_id: the call that it answers.
    """

    content: tuple[Content, ...] = ()
    structured_content: Any = MISSING
    is_error: bool = False
    call_id: str = ""

    @classmethod
    def error(cls, text: str) -> Self:
        """Make an error result of one text."""
        return cls(content=(TextContent(text=text),), is_error=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReply:
    """Where a message says what came of a call.

    Args:
        name: of the tool; "" where that is not known.
        start: offset at which the text begins.
        end: offset after it.
        is_error: the call failed, or could not run.
        is_ended: the text has its closing mark; only what somebody else wrote may lack it.
        is_named: the message says the name.
    """

    name: str
    start: int
    end: int
    is_error: bool = False
    is_ended: bool = True
    is_named: bool = True

    def text_in(self, content: str) -> str:
        """Return the text, out of that of the message."""
        return content[self.start : self.end]

    def moved(self, by: int) -> "ToolReply":
        """Return it for a message with so many more characters before it."""
        return replace(self, start=self.start + by, end=self.end + by)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A call that stands in a message's text; one that cannot run has no arguments."""

    name: str
    arguments: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The calls in a text, or what came of calls, in order; of another text it says nothing."""

    text: str
    replies: tuple[ToolReply, ...] = ()
    calls: tuple[WrittenCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation.

    Args:
        role: as in OpenAI's chat format.
        content: its text; an assistant's is kept as written, so that the server's prompt cache still fits.
        tool_calls: calls made through the server's own function calling (mode "native").
        tool_call_id: the call that a `tool` message answers.
        name: the tool that a `tool` message comes from.
        images: URLs of pictures, `data:` ones included, for models that see.
        written: what its text was written from; None where that was not written here.
    """

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    images: tuple[str, ...] = ()
    written: Written | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's reply, read.

    Args:
        text: what the person sees.
        reasoning: what the model thought in `<think>` or in the server's own field.
        calls: valid and invalid ones, in order.
        repairs: every tolerance used.
        finish_reason: the server's; other than `stop` and `tool_calls` counts as cut.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall | InvalidCall, ...] = ()
    repairs: tuple[Repair, ...] = ()
    finish_reason: str = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNote:
    """What is noted of a call at one moment, before it runs or after: the material of an audit.

    Args:
        moment: which.
        call: as bound, or as a person changed it; `call.raw` is what the model wrote.
        host: name of the server; "" where no server has the tool.
        host_tool: the tool's own name there.
        by: who or what decided, as in `Decision.by`.
        reason: of the decision, or why the call was denied.
        sources: JSON path of a value of the call -> where it came from, as the fields of a `ValueSource`.
        result: once there is one.
        failure: what happened, if the server failed and not the tool.
        seconds: that the call took.
    """

    moment: Moment
    call: ToolCall | InvalidCall
    host: str = ""
    host_tool: str = ""
    by: str = ""
    reason: str = ""
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    result: ToolResult | None = None
    failure: str = ""
    seconds: float | None = None
