r"""Judges whether a turn of a conversation is right: the right tool or none, and a true answer.

A turn is stored with everything needed to judge it again: the calls with their results, the answer, and the files that it had to
change. An answer is read without case, without thousands separators and in Unicode's compatibility form, so that `7,006,652` and
`７００６６５２` are the same; patterns are searched with ASCII's word characters, so that `\b6\b` finds the 6 in `第6站台`.

`false_statement` counts the turns that needed a tool, are wrong, and whose answer does not say that something is missing: the
answer states something that no tool returned. The count is generous: it includes true answers that omit what was asked for.
"""

import functools
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...dialects import DIALECTS
from ...dialects.inert import FRAME_TAGS
from ...dialects.write import tag_names
from ..judge import judge_value

CALLED: Final = "called"
"""Why a turn has ended whose call was all that was asked for; no reason of `Answer`."""
# What a person takes as "I do not know", "it did not work" or a question back.
_ADMITS: Final = re.compile(
    r"sorry|apolog|unable|cannot|can't|can not|couldn't|could not|didn't|did not|does not exist|doesn't exist|no such|not "
    r"(?:found|able|available|possible|know|sure|have|exist)|don't (?:know|have)|error|invalid|fail|please (?:provide|specify"
    r"|tell|give|clarify)|which |could you|can you|what (?:would|is the)|let me know|need (?:more|the|to know)|"
    r"抱歉|对不起|不好意思|无法|不能|没有|未能|不知道|不存在|错误|失败|请提供|请问|请告诉|请说明|需要您|需要你|找不到|未找到|不确定|哪",
)
# The beginnings of our instructions to a model, which are no answer for a person.
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
        "" if it is right, else the first that is wrong: `no_call`, `wrong_tool`, `false_call`, `failed_call`, `wrong_value`,
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
    """Judge the last call that ran, if its arguments are specified."""
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
    """Return patterns for what a result says: of the last call whose result says it."""
    results = (call["result"] for call in reversed(calls) if "result" in call and not call["is_error"])
    found = next((match[1] for result in results if (match := re.search(pattern, result, re.DOTALL))), None)
    return [] if found is None else [_either_clock(found)]


# Words for times before noon and for times after it: those after the time, and those in front of it.
_HALVES_OF_DAY: Final = ((r"a\.?m\b", ("上午", "早上", "清晨", "凌晨")), (r"p\.?m\b", ("下午",)))


def _either_clock(text: str) -> str:
    """Return a pattern for a time, on a clock of 24 hours or of 12, also with Chinese words; for another text, as it is."""
    if not (match := _CLOCK.fullmatch(text)):
        return re.escape(_read(text))
    hour, minute = int(match[1]), match[2]
    (behind, _), (wrong_behind, wrong_in_front) = _HALVES_OF_DAY[:: -1 if hour >= 12 else 1]
    hours = "|".join({match[1]: None, str(hour): None, str(hour % 12 or 12): None, f"{hour % 12 or 12:02}": None})
    minutes = [f"[:点时]{minute}", *{"00": (f" ?(?:{behind}|o'clock)", r"点(?![\d半])"), "30": ("点半",)}.get(minute, ())]
    not_in_front = "".join(f"(?<!{word})(?<!{word} )" for word in wrong_in_front)
    return f"{not_in_front}(?<![\\d:点时])(?:{hours})(?:{'|'.join(minutes)})(?! ?{wrong_behind})"


def _read(answer: str) -> str:
    """Return a text as patterns are searched in it; a comma of full width separates numbers and is never part of one."""
    text = unicodedata.normalize("NFKC", answer.replace("，", "， ").replace("’", "'")).casefold()
    return _THOUSANDS.sub(lambda number: number[0].replace(number[1], ""), text)


@functools.cache
def _shown_prompt() -> re.Pattern[str]:
    """Return the pattern of the prompt's markup and instructions, as answers are read."""
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
