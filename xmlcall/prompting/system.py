"""Renders the prompt that offers tools, its reminder, and the short texts that request another reply."""

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

# Begins where a word does, and its first part does not backtrack, so the time is linear in the text.
_NAME = regex.compile(r"(?<!\S)[^\s/._\\@:]*+[/._\\@:]\S*[A-Za-z0-9/]")
_CHINESE = regex.compile(r"\p{Han}")
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_LATIN = regex.compile(r"\p{Latin}{2,}")

Step = Literal["", "ask", "look_up"]
"""The next step if a value is missing: `ask` the person, `look_up` with a tool, or "" to let the model choose."""


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
        tools: the catalog, in display order; if it is empty, the prompt says so.
        dialect: the wire format.
        lang: `en` or `zh`.
        parallel: whether one block may contain several calls.
        family: how tools are shown, one of `FAMILIES`.
        instructions: server name -> that server's instructions for its tools, shown as the server's words.

    Returns:
        The same text for the same arguments, so that a server's prompt cache can hold it.

    Raises:
        UsageError: unknown dialect, language or family.
    """
    format = PromptFormat(dialect=dialect, lang=lang, parallel=parallel, family=family)
    return tool_prompt(tools, format, instructions=instructions)


def tool_prompt(tools: Tools, format: PromptFormat, *, instructions: Mapping[str, str] | None = None) -> str:
    catalog = Catalog.of(tools)
    example = example_call(catalog, format)
    shown = {"tools": described(catalog), "catalog": catalog, "instructions": instructions or {}}
    return format.render("system", grade="whole", example=example, **shown)


def described(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return the data that templates show for tools."""
    return [{"tool": tool, "parameters": parameters_of(tool), "rules": rules_for(tool)} for tool in tools]


def example_call(catalog: Catalog, format: PromptFormat) -> str:
    """Write one call of the first tool; with a second call in the example, small models write both, whatever is asked."""
    unsaid = format.shows.unsaid
    calls = [(tool.name, _inert(example_arguments(tool, unsaid=unsaid), catalog)) for tool in list(catalog)[:1]]
    return write(calls, catalog, format.row)


def _inert(value: Any, catalog: Catalog) -> Any:
    """Make a schema's words inert in an example value of any shape."""
    if isinstance(value, str):
        return inert_text(value, catalog)
    if isinstance(value, dict):
        return {_inert(key, catalog): _inert(each, catalog) for key, each in value.items()}
    return [_inert(each, catalog) for each in value] if isinstance(value, list) else value


def language_of(text: str, otherwise: str) -> str:
    """Return the language for text after a person's words: the person's, if there are prompts in it, else `otherwise`.

    The model answers in the language that it reads last, whatever the person wrote. File names and addresses do not count,
    because they are Latin in any language. Japanese shares characters with Chinese, but has no prompts.
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
    """Render the short text that ends the prompt, after the person's words; empty without tools.

    If the request was found to need no tool, the text asks for plain words. `unsaid` are parameters of a call that was withdrawn
    because their values appear nowhere in the conversation; `has_failed` says that there was no valid call after all retries.
    """
    values = {"needs_tool": needs_tool, "unsaid": unsaid, "step": step, "has_failed": has_failed}
    catalog = Catalog.of(tools)
    return format.render("reminder", tools=list(catalog), catalog=catalog, **values).strip()


def question(format: PromptFormat) -> str:
    """Render the beginning of a question for missing values; without it, a small model repeats the request or answers it."""
    return format.render("question").strip()


def demand(format: PromptFormat, name: str = "") -> str:
    """Render the message to a model that had to call a tool and did not."""
    return format.render("must_call", name=name).strip()


def after_empty(format: PromptFormat = ENGLISH) -> str:
    """Render the message to a model whose reply had neither text nor a call."""
    return format.render("empty").strip()


def json_answer(schema: Mapping[str, Any], format: PromptFormat = ENGLISH) -> str:
    """Render the request for an answer in JSON, used when tools are offered, too."""
    return format.render("json_answer", schema=json.dumps(schema, ensure_ascii=False)).strip()


def begin(begun: str, format: PromptFormat = ENGLISH) -> str:
    """Render the request for a reply that begins with the caller's words."""
    return format.render("prefill", begun=begun).strip()
