"""A tool as MCP describes it, read from MCP's form, from OpenAI's, or from a Python function."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast

from ..errors import UsageError

__all__ = ["Tool"]


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
