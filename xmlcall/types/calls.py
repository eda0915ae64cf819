"""The values that all other packages exchange: tools, calls, results, messages, replies.

All are frozen, slotted and keyword-only. Names follow MCP (Tool, CallToolResult, content blocks) and OpenAI (tool_calls,
finish_reason) in snake_case; only `xmlcall.wire` and `Tool.from_*` know the wire spellings.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, TypeVar, cast

from ..errors import FOR_THE_MODEL, ISSUES, UsageError

T = TypeVar("T")

Span = tuple[int, int]
"""Start and end offset in characters of the reply, end exclusive."""

Role = Literal["system", "user", "assistant", "tool"]

Audience = tuple[Literal["user", "assistant"], ...]
"""Who a piece of content is for: the person (`user`) or the model (`assistant`); empty for both (MCP 2025-11-25, annotations)."""

Moment = Literal["starts", "ended", "interrupted", "denied", "rejected"]
"""`starts` comes before the call runs, `ended` or `interrupted` after it; `denied` or `rejected` is the only note of a call."""


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
        if not callable(function) or not hasattr(function, "__name__"):
            raise UsageError(f"expected a Python function with a name, got {function!r:.80}")
        from pydantic import PydanticUserError, TypeAdapter  # only here: importing xmlcall stays cheap
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, function))  # a function is not a type, but pydantic accepts it
            schema = adapter.json_schema()
        except (PydanticUserError, PydanticInvalidForJsonSchema, NameError) as error:
            raise UsageError(f"{function.__name__}: its parameters have no JSON Schema: {error}") from error
        if schema.get("type") != "object":
            raise UsageError(f"{function.__name__}: every parameter must be usable by keyword")
        return cls(name=function.__name__, description=(function.__doc__ or "").strip(), input_schema=schema)


def items_of(given: Iterable[T], what: str) -> Iterable[T]:
    """Return what was given if it is a list; one thing in its place is the caller's mistake."""
    if isinstance(given, str | Mapping | Tool) or not isinstance(given, Iterable):
        raise UsageError(f"expected a list of {what}, got {given!r:.80}: put it in brackets, [...]")
    return given


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

JSON_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: value.is_integer() if isinstance(value, float) else JSON_TYPES["number"](value),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
}
"""The types of JSON Schema by name."""


def is_of_type(value: Any, kinds: Iterable[str]) -> bool:
    """Say whether a JSON value is of one of these types; 3.0 is an integer, too."""
    return any(kind in JSON_TYPES and JSON_TYPES[kind](value) for kind in kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A tolerance that was needed to read a reply: a code of `errors.REPAIRS`, its place, and the JSON path of a value."""

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
        message: one sentence for the model; `why` is for a person.
        readings: the possible readings of an ambiguous call.
    """

    code: str
    path: str = "$"
    expected: str = ""
    got: str = ""
    message: str = ""
    readings: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """Describe the mistake to a person."""
        return ISSUES[self.code] if self.code in FOR_THE_MODEL else self.message or ISSUES.get(self.code, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawArgument:
    """One parameter as the model wrote it, and its place; `value` is set in JSON dialects, whose text has types already."""

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
        span: where that text is in the reply.
        complete: whether its end was read; an incomplete call never runs.
        issues: why the call must not run, as far as the parser knows, for example `ambiguous` or `truncated-call`.
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
    """A call that satisfies its tool's schema.

    Args:
        id: under which its result is reported.
        name: the tool's name in the catalog.
        arguments: the values by parameter, of the schema's types.
        repairs: tolerances that were needed to read it.
        raw: the call as the model wrote it.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    repairs: tuple[Repair, ...] = ()
    raw: RawCall


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidCall:
    """A call that must not run: `issues` are all reasons, `raw` is what the model wrote. It has no `arguments`."""

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
    """An image block: base64 data; `path` is the file that the data was written to, "" if none."""

    data: str
    mime_type: str
    path: str = ""
    audience: Audience = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioContent:
    """An audio block: base64 data; `path` is the file that the data was written to, "" if none."""

    data: str
    mime_type: str
    path: str = ""
    audience: Audience = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLink:
    """A link to a resource that a client can request from the server."""

    uri: str
    name: str = ""
    description: str = ""
    mime_type: str = ""
    audience: Audience = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedResource:
    """A resource given in full: `text`, or `blob` in base64; `path` is the file that the blob was written to, "" if none."""

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


Speaker = Literal["tool", "person", "program"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool answered (MCP CallToolResult).

    Args:
        content: the blocks.
        structured_content: the JSON value, `MISSING` if none.
        is_error: whether the tool itself reports that it failed.
        call_id: id of the call that this result answers.
        by: who wrote it; `person` or `program` if the call did not run, and this is the reason.
    """

    content: tuple[Content, ...] = ()
    structured_content: Any = MISSING
    is_error: bool = False
    call_id: str = ""
    by: Speaker = "tool"

    @classmethod
    def error(cls, text: str, *, by: Speaker = "tool") -> Self:
        """Make an error result of one text."""
        return cls(content=(TextContent(text=text),), is_error=True, by=by)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReply:
    """The place of a call's result in a message's text."""

    name: str  # the tool's name; "" if unknown
    start: int  # offset at which the result's text begins
    end: int  # offset after it
    is_error: bool = False  # whether the call failed or could not run
    is_ended: bool = True  # whether the text has its closing mark; only text that another program wrote may lack it
    is_named: bool = True  # whether the message states the name
    by: Speaker = "tool"  # who wrote the text, as in `ToolResult`

    def text_in(self, content: str) -> str:
        """Return the result's text, given the message's text."""
        return content[self.start : self.end]

    def moved(self, by: int) -> "ToolReply":
        """Return the same place after this many characters were inserted before it."""
        return replace(self, start=self.start + by, end=self.end + by)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A call in a message's text; `arguments` is None if it cannot run."""

    name: str
    arguments: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one text was written from: calls, results of calls, or a person's words, which end at `said_to` if ours follow them.

    It does not describe any other text.
    """

    text: str
    replies: tuple[ToolReply, ...] = ()
    calls: tuple[WrittenCall, ...] = ()
    said_to: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation.

    Args:
        role: as in OpenAI's chat format.
        content: its text; an assistant's is kept exactly as written, so that the server's prompt cache stays valid.
        tool_calls: calls made through the server's own function calling (mode "native").
        tool_call_id: the call that a `tool` message answers.
        name: the tool that a `tool` message comes from.
        images: URLs of pictures, including `data:` ones, for models that can see.
        written: what its text was written from; None if xmlcall did not write it.
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
    """A parsed reply of a model.

    Args:
        text: what the person sees.
        reasoning: the model's reasoning, from `<think>` or from the server's own field.
        calls: valid and invalid ones, in order.
        repairs: every tolerance used.
        finish_reason: the server's; any other than `stop` and `tool_calls` means that the reply was cut.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall | InvalidCall, ...] = ()
    repairs: tuple[Repair, ...] = ()
    finish_reason: str = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNote:
    """A record of a call at one moment, before or after it runs; audits are made of these.

    Args:
        moment: the moment of the record.
        call: as bound, or as a person changed it; `call.raw` is what the model wrote.
        host: name of the server; "" if no server has the tool.
        host_tool: the tool's own name on that server.
        by: who or what decided, as in `Decision.by`.
        reason: why the decision was made, or why the call was denied.
        sources: JSON path of a value of the call -> where the value came from, as the fields of a `ValueSource`.
        result: the result, once there is one.
        failure: what happened, if the server failed rather than the tool.
        seconds: how long the call took.
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
