"""The calls that a perfect model would write: one accepted value a parameter, taken from a case's answers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from jsonschema import Draft202012Validator

from ..dialects import DIALECTS
from ..dialects.write import write
from ..tools.catalog import Catalog
from ..tools.outline import example_arguments
from ..types.completion import Chunk
from ..types.tool import Tool
from ..wire.openai import json_text, native_call
from .case import Case
from .judge import Call
from .ways import Way

__all__ = ["calling", "concrete", "oracle_calls"]

_LEFT_OUT: Final = object()


def oracle_calls(case: Case) -> list[Call]:
    """Return calls that answer a case; of the accepted values, those that their schema admits, where there are such."""
    if case.exact:
        return list(case.exact)
    if case.expects == "any_call":
        return [(case.tools[0].name, example_arguments(case.tools[0]))]
    tools = {tool.name: tool for tool in reversed(case.tools)}
    return [(name, _chosen(values, tools[name])) for answer in case.answers for name, values in answer.items()]


def calling(calls: Sequence[Call], catalog: Catalog, way: Way) -> list[Chunk]:
    """Return a reply that makes calls."""
    if way.is_native:
        return [
            Chunk(tool_calls=tuple(native_call(index, name, json_text(dict(each))) for index, (name, each) in enumerate(calls)))
        ]
    return [Chunk(text=write(calls, catalog, DIALECTS[way.dialect]))]


def _chosen(values: Mapping[str, Sequence[Any]], tool: Tool) -> dict[str, Any]:
    chosen = {name: _choice(name, alternatives, tool.input_schema) for name, alternatives in values.items()}
    return {name: value for name, value in chosen.items() if value is not _LEFT_OUT}


def _choice(name: str, alternatives: Sequence[Any], schema: Mapping[str, Any]) -> Any:
    """Choose a value; `""` means that the parameter may be left out, or, if it is required, that it is empty."""
    required = name in schema.get("required", ())
    candidates = [_LEFT_OUT if each == "" and not required else concrete(each) for each in alternatives]
    declared = schema.get("properties", {}).get(name)
    fitting = (each for each in candidates if each is _LEFT_OUT or _is_valid(each, declared))
    return next(fitting, candidates[0] if candidates else _LEFT_OUT)


def _is_valid(value: Any, schema: Any) -> bool:
    return schema is not None and Draft202012Validator(schema).is_valid(value)


def concrete(value: Any) -> Any:
    """Choose the first value for each key of an object, whose answer holds a list of them, and of the objects in a list."""
    if isinstance(value, Mapping):
        return {key: each[0] for key, each in value.items() if each[0] != ""}
    return [concrete(item) if isinstance(item, Mapping) else item for item in value] if isinstance(value, list) else value
