"""Everything that is said to the model, rendered from the templates in `prompts/`.

One environment, strict about undefined names. Templates lay out and word; what they show (parameter trees, example calls, result
texts) is prepared here. Text from tools and servers is untrusted: structural tags in it are made inert, so that a result which
holds a call never reads as one, and a result cannot close its own frame.
"""

import functools
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import regex

from .catalog import Catalog, Tools
from .content import result_text
from .dialects import select
from .errors import UsageError
from .names import match_name
from .reply import write
from .signature import example_arguments, example_values, parameters_of
from .types import MISSING, InvalidCall, Tool, ToolCall, ToolResult

if TYPE_CHECKING:
    from jinja2 import Environment, Template

__all__ = ["LANGUAGES", "feedback", "reminder", "results", "system_prompt"]

LANGUAGES = ("en", "zh")

# The tags of the wire format, of the frame around results and of reasoning.
_TAGS = regex.compile(r"<(?=/?(?:function_calls|function_results|result|invoke|parameter|think|thinking|reasoning)\b)")


def system_prompt(
    tools: Tools,
    *,
    dialect: str = "function_calls",
    lang: str = "en",
    parallel: bool = True,
    instructions: Mapping[str, str] | None = None,
) -> str:
    """Render the system prompt that offers tools.

    Args:
        tools: the catalog, in the order to show; it may be empty, and the prompt then says so.
        dialect: the wire format.
        lang: `en` or `zh`.
        parallel: whether one block may hold several calls.
        instructions: server name -> what that server says about its tools; shown as the server's words.

    Returns:
        The same text for the same arguments, so that a server's prompt cache can hold it.

    Raises:
        UsageError: unknown dialect or language.
    """
    catalog = Catalog.of(tools)
    offered = [{"tool": tool, "parameters": parameters_of(tool)} for tool in catalog]
    return _template(dialect, lang, "system").render(
        tools=offered, examples=_examples(catalog, dialect), parallel=parallel, instructions=instructions or {}
    )


def _examples(catalog: Catalog, dialect: str) -> list[str]:
    """Write one call of the first tool and, if there are two tools, both in one block."""
    calls = [(tool.name, example_arguments(tool)) for tool in list(catalog)[:2]]
    return [write(calls[:count], catalog, select(dialect)[0]) for count in range(1, len(calls) + 1)]


def results(
    answered: Iterable[tuple[ToolCall | InvalidCall, ToolResult | None]],
    tools: Tools = (),
    *,
    dialect: str = "function_calls",
    lang: str = "en",
    again: Collection[str] = (),
) -> str:
    """Render what came of a reply's calls, for a message of role `user`.

    Args:
        answered: each call with its result, in call order; an InvalidCall has none and gets feedback instead.
        tools: the catalog, for feedback.
        dialect: the wire format.
        lang: `en` or `zh`.
        again: ids of calls that the model had written before, although it was told what is wrong with them.
    """
    catalog = Catalog.of(tools)
    items = [
        _told_wrong(call, feedback(call, catalog, dialect=dialect, lang=lang, again=call.id in again))
        if isinstance(call, InvalidCall)
        else _told(call, result)
        for call, result in answered
    ]
    return _template(dialect, lang, "results").render(items=items)


def _told_wrong(call: InvalidCall, text: str) -> dict[str, Any]:
    return {"name": call.name, "error": True, "invalid": True, "text": text}


def _told(call: ToolCall, result: ToolResult | None) -> dict[str, Any]:
    assert result is not None
    return {"name": call.name, "error": result.is_error, "invalid": False, "text": result_text(result)}


def feedback(
    call: InvalidCall, tools: Tools = (), *, dialect: str = "function_calls", lang: str = "en", again: bool = False
) -> str:
    """Render what is wrong with a call, and how it should be written.

    Args:
        call: the call that did not run.
        tools: the catalog; the tool's parameters are shown again.
        dialect: the wire format.
        lang: `en` or `zh`.
        again: whether the model wrote the same call before; then the tool's description is shown, too.
    """
    catalog = Catalog.of(tools)
    tool = catalog.get(catalog.meant_by(call.name) or "")
    parameters = parameters_of(tool) if tool else ()
    example = _corrected(call, tool, dialect) if tool else ""
    return (
        _template(dialect, lang, "feedback")
        .render(call=call, tool=tool, parameters=parameters, example=example, again=again)
        .strip()
    )


# Issues that say nothing about single values, so that there is no better call to show.
_WHOLE = frozenset({"echo", "unknown-tool"})


_MEMBER = regex.compile(r"\$(?:\.([^.\[]+)|\['([^']*)'\])")


def _corrected(call: InvalidCall, tool: Tool, dialect: str) -> str:
    """Write the call as it should look: values without an issue as they were, examples for the others and for what is missing."""
    if any(issue.code in _WHOLE or issue.path == "$" for issue in call.issues):
        return ""
    found = (_MEMBER.match(issue.path) for issue in call.issues)
    wrong = {match[1] or match[2] for match in found if match}
    declared = [part.name for part in parameters_of(tool)]
    kept: dict[str, Any] = {}
    for each in call.raw.arguments:
        name = each.name if each.name in declared else match_name(each.name, declared)
        if name and not {name, each.name} & wrong:
            kept.setdefault(name, each.text if each.value is MISSING else each.value)
    needed = [part.name for part in parameters_of(tool) if part.name in wrong or (part.required and part.name not in kept)]
    values = {**kept, **example_values(tool, needed)}
    ordered = {name: values[name] for name in declared if name in values}
    return write([(tool.name, ordered)], Catalog([tool]), select(dialect)[0])


def reminder(tools: Tools, *, dialect: str = "function_calls", lang: str = "en") -> str:
    """Render the short text that stands last in the prompt, after the person's words; empty without tools.

    Args:
        tools: the catalog.
        dialect: the wire format.
        lang: `en` or `zh`.
    """
    return _template(dialect, lang, "reminder").render(tools=list(Catalog.of(tools))).strip()


def _template(dialect: str, lang: str, name: str) -> "Template":
    from jinja2 import TemplateNotFound

    if lang not in LANGUAGES:
        raise UsageError(f"unknown language {lang!r}; known: {', '.join(LANGUAGES)}")
    folder = dialect if lang == "en" else f"{dialect}/{lang}"
    try:
        return _environment().get_template(f"{folder}/{name}.j2")
    except TemplateNotFound as error:
        raise UsageError(f"no prompt for dialect {dialect!r} in language {lang!r}: {error.name} is missing") from error


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_prompts()), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.filters.update(inert=_inert, json=_json, quote=_quote)
    environment.tests["missing"] = lambda value: value is MISSING
    return environment


def _prompts() -> Path:
    """Find the templates: inside the package when installed from a wheel, beside it in a checkout."""
    inside = Path(__file__).parent / "prompts"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "prompts"


def _inert(text: str) -> str:
    return _TAGS.sub("&lt;", text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _quote(text: str) -> str:
    """Mark each line as somebody else's words."""
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())
