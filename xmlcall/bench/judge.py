"""Judges whether BFCL accepts a call, by the rules of its AST check over calls with JSON arguments.

Verdicts and error types match the official checker (`bfcl-eval` 2026.3.23, `ast_checker`, language Python), including its
peculiarities, because published numbers depend on them: 5.0 is not an integer; a nested type is checked one level deep; an
expected value of another type than the parameter's is treated as a variable and compared unchanged; an empty list matches `""`,
the mark for an optional value. If several calls are expected, they may come in any order; each answer takes the first call that
fits.

The judge works on the MCP tools of a case, whose schemas name BFCL's types in JSON Schema's words (see `bfcl.schema_of`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..types.calls import Tool

Call = tuple[str, Mapping[str, Any]]
"""A tool's name and its arguments."""

# A parameter without a type is BFCL's `any`, which its checker takes for a string.
_TYPES: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
_IGNORED = re.compile(r"[ ,./\-_*^]")


def judge(calls: Sequence[Call], tools: Sequence[Tool], answers: Sequence[Mapping[str, Any]], category: str) -> str:
    """Return "" if the calls of a reply are right, else BFCL's error type, such as `wrong_count` or `value_error:string`."""
    if len(calls) != len(answers):
        return "wrong_count"
    if "parallel" not in category:
        return _judge_call(calls[0], tools, answers[0])
    left = list(calls)
    for answer in answers:
        right = next((index for index, call in enumerate(left) if not _judge_call(call, tools, answer)), None)
        if right is None:
            return "cannot_find_match"
        del left[right]
    return ""


def _judge_call(call: Call, tools: Sequence[Tool], answer: Mapping[str, Any]) -> str:
    (wanted, accepted), (name, arguments) = next(iter(answer.items())), call
    if name != wanted:
        return "wrong_func_name"
    schema = next(tool.input_schema for tool in tools if tool.name == wanted)
    if any(required not in arguments for required in schema.get("required", ())):
        return "missing_required"
    declared = schema.get("properties", {})
    for parameter, value in arguments.items():
        if parameter not in declared or parameter not in accepted:
            return "unexpected_param"
        if error := judge_value(value, accepted[parameter], declared[parameter]):
            return error
    left_out = (values for parameter, values in accepted.items() if parameter not in arguments)
    return "" if all("" in values for values in left_out) else "missing_optional"


def judge_value(value: Any, accepted: Sequence[Any], schema: Mapping[str, Any]) -> str:
    expected = _type_of(schema)
    item_type = _type_of(schema.get("items", {})) if expected is list else None
    if expected is float and type(value) is int:
        value = float(value)
    error, is_variable = _judge_type(value, accepted, expected, item_type)
    if error:
        return error
    if is_variable or (compare := _COMPARISONS.get((expected, item_type is dict))) is None:
        return "" if value in accepted else "value_error:others"
    return compare(value, accepted)


def _type_of(schema: Mapping[str, Any]) -> type:
    return _TYPES.get(schema.get("type", ""), str)


def _judge_type(value: Any, accepted: Sequence[Any], expected: type, item_type: type | None) -> tuple[str, bool]:
    """Check a value's type; return the error, and whether the value is compared as a variable."""
    answer_type = next((type(answer) for answer in accepted if answer != ""), None)
    is_variable = answer_type not in (None, expected)
    if type(value) is expected:
        if item_type is None or any(_items_fit(value, answer, item_type) for answer in accepted):
            return "", is_variable
        return ("type_error:nested" if answer_type is expected else "type_error:simple"), False
    return ("", True) if type(value) is answer_type else ("type_error:simple", False)


def _items_fit(value: Any, answer: Any, item_type: type) -> bool:
    return not isinstance(answer, list) or all(not _judge_type(item, answer, item_type, None)[0] for item in value)


def _plain(value: Any) -> Any:
    """Return a string without what BFCL ignores in it; anything else as it is."""
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def _judge_string(value: str, accepted: Sequence[Any]) -> str:
    plain = [_plain(answer) for answer in accepted if isinstance(answer, str)]
    return "" if _plain(value) in plain else "value_error:string"


def _judge_list(value: list[Any], accepted: Sequence[Any]) -> str:
    plain = [[_plain(item) for item in answer] for answer in accepted]
    return "" if [_plain(item) for item in value] in plain else "value_error:list/tuple"


def _judge_dict(value: Mapping[str, Any], accepted: Sequence[Any]) -> str:
    error = "dict_checker:unclear"
    for answer in accepted:
        if answer != "" and not (error := _judge_members(value, answer)):
            return ""
    return error


def _judge_members(value: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    for key, member in value.items():
        if key not in answer:
            return "value_error:dict_key"
        if _plain(member) not in [_plain(each) for each in answer[key]]:
            return "value_error:dict_value"
    return "" if all(key in value or "" in each for key, each in answer.items()) else "value_error:dict_key"


def _judge_list_of_dicts(value: list[Any], accepted: Sequence[Any]) -> str:
    error = "list_dict_checker:unclear"
    for answer in accepted:
        if len(value) != len(answer):
            error = "value_error:list_dict_count"
            continue
        errors = (_judge_dict(item, [each]) for item, each in zip(value, answer, strict=True))
        error = next((each for each in errors if each), "")
        if not error:
            return ""
    return error


# The type of a value, and whether it is a list of objects; whatever is not here has to be among the accepted values.
_COMPARISONS: dict[tuple[type, bool], Callable[[Any, Sequence[Any]], str]] = {
    (str, False): _judge_string,
    (list, False): _judge_list,
    (list, True): _judge_list_of_dicts,
    (dict, False): _judge_dict,
}
