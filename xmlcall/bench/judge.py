"""Judges whether BFCL accepts a call, by the rules of its AST check; and whether a turn of a conversation is right.

Verdicts and error types match the official checker (`bfcl-eval` 2026.3.23, `ast_checker`, language Python), including its
peculiarities, because published numbers depend on them: 5.0 is not an integer; a nested type is checked one level deep; an
expected value of another type than the parameter's is treated as a variable and compared unchanged; an empty list matches `""`,
the mark for an optional value. If several calls are expected, they may come in any order; each answer takes the first call that
fits.

The judge works on the MCP tools of a case, whose schemas name BFCL's types in JSON Schema's words (see `bfcl.schema_of`).
"""

import functools
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..dialects import DIALECTS
from ..dialects.call_signs import FRAME_TAGS
from ..dialects.write import tag_names
from ..types.calls import Tool

Call = tuple[str, Mapping[str, Any]]  # a tool's name and its arguments

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
    """Return a string without the characters that BFCL ignores; anything else unchanged."""
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

# -- a turn of a conversation: the right tool or none, and a true answer -----------------------------------------------
# A turn is stored with everything needed to judge it again: the calls with their results, the answer, and the files that it
# had to change. An answer is compared ignoring case and thousands separators, in Unicode's compatibility form, so that
# `7,006,652` and `７００６６５２` are the same; patterns are searched with ASCII's word characters, so that `\b6\b` finds the 6
# in `第6站台`.
#
# `false_statement` counts the turns that needed a tool, are wrong, and whose answer does not say that something is missing:
# the answer states something that no tool returned. The count is generous: it includes true answers that omit what was asked
# for.


CALLED: Final = "called"  # why a turn ended if only its call was asked for; not a stop reason of `Answer`
# What a person reads as "I do not know", "it did not work" or a question back.
_ADMITS: Final = re.compile(
    r"sorry|apolog|unable|cannot|can't|can not|couldn't|could not|didn't|did not|does not exist|doesn't exist|no such|not "
    r"(?:found|able|available|possible|know|sure|have|exist)|don't (?:know|have)|error|invalid|fail|please (?:provide|specify"
    r"|tell|give|clarify)|which |could you|can you|what (?:would|is the)|let me know|need (?:more|the|to know)|"
    r"抱歉|对不起|不好意思|无法|不能|没有|未能|不知道|不存在|错误|失败|请提供|请问|请告诉|请说明|需要您|需要你|找不到|未找到|不确定|哪"
)
# The beginnings of our instructions to a model, which are not an answer to a person.
_INSTRUCTIONS: Final = (
    *("(If one of the tools", "(Answer in plain words", "(Now answer the request"),
    *("（如果有适合这个请求的工具", "（现在请根据这些结果", "（请直接用文字回答", "（请直接用中文回答"),
)
_THOUSANDS: Final = re.compile(r"(?<![\d.])\d{1,3}([, ])\d{3}(?:\1\d{3})*(?!\d)")
_CLOCK: Final = re.compile(r"(\d\d):(\d\d)")
_CHINESE: Final = re.compile(r"[\u4e00-\u9fff]")
_LATIN_WORD: Final = re.compile(r"[a-z]{2,}")


def judge_turn(expected: Mapping[str, Any], played: Mapping[str, Any], folder: str) -> str:
    """Judge a turn.

    Returns:
        "" if it is right, else the first mistake: `no_call`, `wrong_tool`, `false_call`, `failed_call`, `wrong_value`,
        `state`, `cut`, `no_answer`, `prompt_shown` or `wrong_answer`.
    """
    if error := _judge_calls(expected, played) or _judge_arguments(expected, played) or _judge_state(expected, played):
        return error
    return "" if played["stop_reason"] == CALLED else _judge_answer(expected, played, folder)


def _judge_calls(expected: Mapping[str, Any], played: Mapping[str, Any]) -> str:
    wanted = [set(entry.split("|")) for entry in expected.get("tools", ())]
    allowed = set().union(*wanted, expected.get("may", ()))
    called = [call for call in played["calls"] if "result" in call]  # rejected and denied calls never ran
    if not allowed and called:
        return "false_call"
    if any(call["name"] not in allowed for call in called):
        return "wrong_tool"
    if expected.get("fails"):
        return "" if called else "no_call"
    if wanted and not played["calls"]:
        return "no_call"
    ran = [call["name"] for call in called if not call["is_error"]]
    if not all(any(name in names for name in ran) for names in wanted) or len(ran) < expected.get("calls", 0):
        return "failed_call"
    return ""


def _judge_arguments(expected: Mapping[str, Any], played: Mapping[str, Any]) -> str:
    arguments: Mapping[str, Any] = next((call.get("arguments", {}) for call in reversed(played["calls"]) if "result" in call), {})
    for name, wanted in expected.get("arguments", {}).items():
        accepted = wanted["accepted"]
        if "" not in accepted if name not in arguments else judge_value(arguments[name], accepted, wanted["schema"]):
            return "wrong_value"
    text = json.dumps(arguments, ensure_ascii=False)
    return "" if all(re.search(pattern, text, re.ASCII | re.IGNORECASE) for pattern in expected.get("has", ())) else "wrong_value"


def _judge_state(expected: Mapping[str, Any], played: Mapping[str, Any]) -> str:
    if not (state := expected.get("state")):
        return ""
    content = played["files"].get(state["path"])
    return "" if content is not None and re.search(state["has"], content) else "state"


def _judge_answer(expected: Mapping[str, Any], played: Mapping[str, Any], folder: str) -> str:
    answer = _read(played["answer"])
    if played["stop_reason"] != "end":
        return "cut"
    if not answer.strip():
        return "no_answer"
    if _shown_prompt().search(answer):
        return "prompt_shown"
    patterns = [pattern.replace("{folder}", re.escape(folder.casefold())) for pattern in expected.get("answer", ())]
    if "told" in expected:
        patterns += _held_values(expected["told"], played["calls"]) or [r"\Zno result contains it"]
    if not all(re.search(pattern, answer, re.ASCII) for pattern in patterns):
        return "wrong_answer"
    return "wrong_answer" if any(re.search(pattern, answer, re.ASCII) for pattern in expected.get("not", ())) else ""


def _held_values(pattern: str, calls: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return patterns for what a result states, from the last call whose result states it."""
    results = (call["result"] for call in reversed(calls) if "result" in call and not call["is_error"])
    found = next((match[1] for result in results if (match := re.search(pattern, result, re.DOTALL))), None)
    return [] if found is None else [_either_clock(found)]


# Words for the half of the day, before and after noon: a pattern for what follows the time, and words that precede it.
_HALVES_OF_DAY: Final = ((r"a\.?m\b", ("上午", "早上", "清晨", "凌晨")), (r"p\.?m\b", ("下午",)))


def _either_clock(text: str) -> str:
    """Return a pattern for a time, on a clock of 24 or 12 hours, also with Chinese words; other texts match as written."""
    if not (match := _CLOCK.fullmatch(text)):
        return re.escape(_read(text))
    hour, minute = int(match[1]), match[2]
    (after, _), (wrong_after, wrong_before) = _HALVES_OF_DAY[:: -1 if hour >= 12 else 1]
    hours = "|".join({match[1]: None, str(hour): None, str(hour % 12 or 12): None, f"{hour % 12 or 12:02}": None})
    minutes = [f"[:点时]{minute}", *{"00": (f" ?(?:{after}|o'clock)", r"点(?![\d半])"), "30": ("点半",)}.get(minute, ())]
    not_before = "".join(f"(?<!{word})(?<!{word} )" for word in wrong_before)
    return f"{not_before}(?<![\\d:点时])(?:{hours})(?:{'|'.join(minutes)})(?! ?{wrong_after})"


def _read(answer: str) -> str:
    """Normalize a text for the search of patterns; a full-width comma separates numbers and is never part of one."""
    text = unicodedata.normalize("NFKC", answer.replace("，", "， ").replace("’", "'")).casefold()
    return _THOUSANDS.sub(lambda number: number[0].replace(number[1], ""), text)


@functools.cache
def _shown_prompt() -> re.Pattern[str]:
    """Return the pattern of the prompt's markup and instructions, normalized like answers."""
    tags = "|".join(sorted({*FRAME_TAGS, *tag_names(DIALECTS["function_calls"])}))
    words = "|".join(re.escape(_read(words)) for words in _INSTRUCTIONS)
    return re.compile(rf"</?(?:{tags})\b|{words}|\"arguments\"\s*:")


def is_admitted(answer: str) -> bool:
    """Say whether an answer reports that something is missing, or asks back."""
    return not answer.strip() or bool(_ADMITS.search(_read(answer)))


def speaks(answer: str, language: str) -> bool:
    """Say whether an answer is in the person's language; one without words, such as a number, is in any."""
    chinese, words = len(_CHINESE.findall(answer)), len(_LATIN_WORD.findall(answer.lower()))
    return chinese >= words if language == "chinese" else chinese <= words
