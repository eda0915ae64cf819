"""The tools of a request in OpenAI's Responses API: functions, functions in a namespace, and custom tools, which take a text.

The model is offered functions only. A namespace is a list of functions; if two share a name, both are offered as
`namespace.name`. A custom tool is offered as a function with one text parameter, `input`. Calls go back to the caller in the form
in which it sent the tool. Tools that run on OpenAI's own servers (`web_search`, `code_interpreter`) cannot be called here.

Source: openai-python 3.54, `responses` (`NamespaceTool`, `CustomTool`, `ResponseFunctionToolCall`,
`ResponseCustomToolCall`, `AdditionalTools`). Codex 0.169 sends `namespace` and `web_search` in every request, and puts
all tools into an `additional_tools` item if it knows the model's name.
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
"""The only parameter of the function that represents a custom tool."""

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
    """Read the tools of a request as functions, and the caller's view of each by the name under which it is offered."""
    flat = [pair for item in listed for pair in _flattened(item)]
    counted = Counter(str(item.get("name")) for item, _ in flat if isinstance(item, dict))
    known: dict[str, Offered] = {}

    def read(pair: tuple[Any, str]) -> Tool:
        item, namespace = pair
        tool = _tool(item)
        original = Offered(name=tool.name, namespace=namespace, is_custom=_kind(item) == "custom")
        name = f"{namespace}.{tool.name}" if namespace and counted[tool.name] > 1 else tool.name
        known.setdefault(name, original)
        return Tool(name=name, description=tool.description, input_schema=tool.input_schema)

    return tools_of(flat, read), known


def offered_name(known: Mapping[str, Offered], name: str, namespace: str) -> str:
    """Return the name under which a tool is offered."""
    return next((each for each, tool in known.items() if (tool.name, tool.namespace) == (name, namespace)), name)


def called_as(known: Mapping[str, Offered], name: str) -> tuple[str, dict[str, str]]:
    """Return the type of a call's item and the fields that name its tool."""
    tool = known.get(name, Offered(name=name))
    kind = "custom_tool_call" if tool.is_custom else "function_call"
    return kind, {"name": tool.name, **({"namespace": tool.namespace} if tool.namespace else {})}


def _kind(item: Any) -> Any:
    return item.get("type", "function") if isinstance(item, dict) else None


def _flattened(item: Any) -> list[tuple[Any, str]]:
    """Return a tool, or the tools of a namespace, each paired with the namespace's name."""
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
    """Describe the grammar of a custom tool's input to the model; the proxy does not enforce it."""
    definition = form.get("definition") if isinstance(form, dict) else None
    return f"\nThe input follows this grammar:\n{definition}" if isinstance(definition, str) else ""
