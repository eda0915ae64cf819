"""The tools of a request in OpenAI's responses: functions, functions in a namespace, and custom tools, which take a text.

A model is offered functions. A namespace is a list of them; where two have one name, both are offered under `namespace.name`. A
custom tool is a function with one text, `input`. In calls, each gets back the form in which it was offered. Tools that run on
OpenAI's own servers (`web_search`, `code_interpreter`) cannot be called here.

Source: openai-python 3.54, `responses` (`NamespaceTool`, `CustomTool`, `ResponseFunctionToolCall`,
`ResponseCustomToolCall`, `AdditionalTools`); Codex 0.169 sends `namespace` and `web_search` in every request, and puts
all tools into an item `additional_tools` if it knows the name of the model.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...errors import UsageError
from ...types.calls import Tool
from .bodies import tools_of

__all__ = ["CUSTOM_INPUT", "Offered", "called_as", "offered", "offered_name"]

CUSTOM_INPUT: Final = "input"
"""The one parameter of the function that stands for a custom tool."""

_CUSTOM_SCHEMA: Final = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string", "description": "The whole input, as text."}},
    "required": [CUSTOM_INPUT],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A tool as the caller knows it."""

    name: str
    namespace: str = ""
    is_custom: bool = False


def offered(listed: Iterable[Any]) -> tuple[tuple[Tool, ...], dict[str, Offered]]:
    """Read the tools of a request.

    Returns:
        The tools as functions, and for each name under which a tool is offered how the caller knows it.

    Raises:
        ApiError: one is no tool, or of a kind that nobody here can run.
    """
    flat = [pair for item in listed for pair in _flattened(item)]
    counted = Counter(str(item.get("name")) for item, _ in flat if isinstance(item, dict))
    known: dict[str, Offered] = {}

    def read(pair: tuple[Any, str]) -> Tool:
        item, namespace = pair
        tool = _tool(item)
        told = Offered(name=tool.name, namespace=namespace, is_custom=_kind(item) == "custom")
        name = f"{namespace}.{tool.name}" if namespace and counted[tool.name] > 1 else tool.name
        known.setdefault(name, told)
        return Tool(name=name, description=tool.description, input_schema=tool.input_schema)

    return tools_of(flat, read), known


def offered_name(known: Mapping[str, Offered], name: str, namespace: str) -> str:
    """Return the name under which a tool is offered."""
    return next((each for each, told in known.items() if (told.name, told.namespace) == (name, namespace)), name)


def called_as(known: Mapping[str, Offered], name: str) -> tuple[str, dict[str, str]]:
    """Return the type of a call's item and what names its tool."""
    told = known.get(name, Offered(name=name))
    kind = "custom_tool_call" if told.is_custom else "function_call"
    return kind, {"name": told.name, **({"namespace": told.namespace} if told.namespace else {})}


def _kind(item: Any) -> Any:
    return item.get("type", "function") if isinstance(item, dict) else None


def _flattened(item: Any) -> list[tuple[Any, str]]:
    """Return a tool, or those of a namespace, each with the namespace's name."""
    inner = item.get("tools") if isinstance(item, dict) and _kind(item) == "namespace" else None
    if not isinstance(inner, list):
        return [(item, "")]
    return [(each, str(item.get("name", ""))) for each in inner]


def _tool(item: Any) -> Tool:
    kind = _kind(item)
    if kind == "custom":
        described = f"{item.get('description') or ''}{_grammar(item.get('format'))}"
        return Tool.from_openai({"name": item.get("name"), "description": described, "parameters": _CUSTOM_SCHEMA})
    if kind != "function":
        raise UsageError(
            f'expected a tool of type "function", "custom" or "namespace", got {kind!r:.80}: this server has none of its own'
        )
    return Tool.from_openai(item)


def _grammar(form: Any) -> str:
    """Tell the model the grammar of a custom tool's input, which nothing here enforces."""
    definition = form.get("definition") if isinstance(form, dict) else None
    return f"\nThe input follows this grammar:\n{definition}" if isinstance(definition, str) else ""
