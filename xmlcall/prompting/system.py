"""The prompt that offers tools, the reminder of it, and the short texts that ask for another reply."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import regex

from ..dialects.inert import inert_text
from ..dialects.write import write
from ..tools.catalog import Catalog, Tools
from ..tools.outline import example_arguments, parameters_of, rules_for
from ..types.calls import Tool
from .format import ENGLISH, PromptFormat

__all__ = [
    "Step",
    "after_empty",
    "begin",
    "demand",
    "described",
    "example_call",
    "json_answer",
    "language_of",
    "reminder",
    "system_prompt",
    "tool_prompt",
]

# Begins where a word does, and its first part gives nothing back: the time is linear in the text.
_NAME = regex.compile(r"(?<!\S)[^\s/._\\@:]*+[/._\\@:]\S*[A-Za-z0-9/]")
_CHINESE = regex.compile(r"\p{Han}")
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_LATIN = regex.compile(r"\p{Latin}{2,}")

Step = Literal["", "ask", "look_up"]
"""What comes next where nobody said a value: the question, a tool that can tell it, or what the model thinks fit."""


def system_prompt(
    tools: Tools,
    *,
    dialect: str = "function_calls",
    lang: str = "en",
    parallel: bool = True,
    family: str = "list",
    instructions: Mapping[str, str] | None = None,
) -> str:
    """Render the system prompt that offers tools.

    Args:
        tools: the catalog, in the order to show; it may be empty, and the prompt then says so.
        dialect: the wire format.
        lang: `en` or `zh`.
        parallel: whether one block may hold several calls.
        family: how tools are shown, one of `FAMILIES`.
        instructions: server name -> what that server says about its tools; shown as the server's words.

    Returns:
        The same text for the same arguments, so that a server's prompt cache can hold it.

    Raises:
        UsageError: unknown dialect, language or family.
    """
    format = PromptFormat(dialect=dialect, lang=lang, parallel=parallel, family=family)
    return tool_prompt(tools, format, instructions=instructions)


def tool_prompt(tools: Tools, format: PromptFormat, *, instructions: Mapping[str, str] | None = None) -> str:
    """Render the same for a format.

    Args:
        tools: the catalog, in the order to show; it may be empty, and the prompt then says so.
        instructions: server name -> what that server says about its tools; shown as the server's words.
    """
    catalog = Catalog.of(tools)
    example = example_call(catalog, format)
    shown = {"tools": described(catalog), "catalog": catalog, "instructions": instructions or {}}
    return format.render("system", grade="whole", example=example, **shown)


def described(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return what templates show of tools."""
    return [{"tool": tool, "parameters": parameters_of(tool), "rules": rules_for(tool)} for tool in tools]


def example_call(catalog: Catalog, format: PromptFormat) -> str:
    """Write one call of the first tool: with a second call beside it small models write both, whatever is asked."""
    unsaid = format.shows.unsaid
    calls = [(tool.name, _inert(example_arguments(tool, unsaid=unsaid), catalog)) for tool in list(catalog)[:1]]
    return write(calls, catalog, format.row)


def _inert(value: Any, catalog: Catalog) -> Any:
    """Make the words of a schema inert that stand in an example, of whatever shape."""
    if isinstance(value, str):
        return inert_text(value, catalog)
    if isinstance(value, dict):
        return {_inert(key, catalog): _inert(each, catalog) for key, each in value.items()}
    return [_inert(each, catalog) for each in value] if isinstance(value, list) else value


def language_of(text: str, otherwise: str) -> str:
    """Return the language of what stands behind a person's words: theirs, if prompts are written in it.

    The model answers in the language that it reads last, whatever the person wrote. Names of files and addresses, which are
    Latin in any language, do not count; Japanese, which shares its characters with Chinese, is none of ours.
    """
    words = _NAME.sub(" ", text)
    chinese, latin = len(_CHINESE.findall(words)), len(_LATIN.findall(words))
    if _KANA.search(words) or not chinese + latin:
        return otherwise
    return "zh" if chinese >= latin else "en"


def reminder(
    tools: Tools,
    format: PromptFormat = ENGLISH,
    *,
    needs_tool: bool = True,
    unsaid: Sequence[str] = (),
    step: Step = "",
    has_failed: bool = False,
) -> str:
    """Render the short text that stands last in the prompt, after the person's words; empty without tools.

    Args:
        needs_tool: False where it was decided that the words need no tool: the text then asks for plain words.
        unsaid: parameters of a call that was taken back because nobody said their values: the person may have to be asked.
        has_failed: whether calls could not run, however often the model was told why.
    """
    told = {"needs_tool": needs_tool, "unsaid": unsaid, "step": step, "has_failed": has_failed}
    catalog = Catalog.of(tools)
    return format.render("reminder", tools=list(catalog), catalog=catalog, **told).strip()


def question(format: PromptFormat) -> str:
    """Render how a question for what nobody said begins: left to itself, a small model repeats the request, or answers it."""
    return format.render("question").strip()


def demand(format: PromptFormat, name: str = "") -> str:
    """Render what a model is told that has to call a tool and did not."""
    return format.render("must_call", name=name).strip()


def after_empty(format: PromptFormat = ENGLISH) -> str:
    """Render what a model is told whose reply had neither text nor a call."""
    return format.render("empty").strip()


def json_answer(schema: Mapping[str, Any], format: PromptFormat = ENGLISH) -> str:
    """Render what asks for an answer in JSON, where tools are on offer, too."""
    return format.render("json_answer", schema=json.dumps(schema, ensure_ascii=False)).strip()


def begin(begun: str, format: PromptFormat = ENGLISH) -> str:
    """Render what asks for a reply that begins with words of the caller's."""
    return format.render("prefill", begun=begun).strip()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
