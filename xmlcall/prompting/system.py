"""The prompt that offers tools, and the environment of all templates in `prompts/`.

One environment, strict about undefined names. Templates lay out and word; what they show (parameter trees, example calls,
result texts) is prepared here and in `feedback`. Text from tools and servers is untrusted: structural tags in it are made
inert, so that a result which holds a call never reads as one, and a result cannot close its own frame.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import regex

from ..dialects import select
from ..dialects.write import write
from ..errors import UsageError
from ..tools.catalog import Catalog, Tools
from ..tools.outline import example_arguments, parameters_of
from ..types.calls import MISSING, Tool
from .format import PromptFormat

if TYPE_CHECKING:
    from jinja2 import Environment, Template

__all__ = [
    "LANGUAGES",
    "after_empty",
    "begin",
    "demand",
    "form",
    "json_answer",
    "language_of",
    "plain_request",
    "reminder",
    "source",
    "system_prompt",
    "template",
]

LANGUAGES = ("en", "zh")

# Begins where a word does, and its first part gives nothing back: the time is linear in the text.
_NAME = regex.compile(r"(?<!\S)[^\s/._\\@:]*+[/._\\@:]\S*[A-Za-z0-9/]")
_CHINESE = regex.compile(r"\p{Han}")
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_LATIN = regex.compile(r"\p{Latin}{2,}")

_TAG_NAME = regex.compile(r"<[^\s=>{]+")
# The tags of the wire format, of the frame around results and of reasoning.
# And of chat templates: servers read those anywhere in a prompt.
_TAGS = regex.compile(
    r"<(?=/?(?:function_calls|function_results|result|invoke|parameter|think|thinking|reasoning)\b"
    r"|[|\uff5c]|/?s>|(?:start|end)_of_turn>)"
)


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
    return template(lang, "system").render(
        tools=offered,
        example=_example(catalog, dialect),
        form=form(dialect),
        parallel=parallel,
        instructions=instructions or {},
    )


def _example(catalog: Catalog, dialect: str) -> str:
    """Write one call of the first tool: with a second call beside it small models write both, whatever is asked."""
    calls = [(tool.name, example_arguments(tool)) for tool in list(catalog)[:1]]
    return write(calls, catalog, select(dialect)[0])


def plain_request(tool: Tool) -> str:
    """Write a message in which a person spells out a call of a tool: no model doubts what is wanted.

    Args:
        tool: as offered.
    """
    arguments = example_arguments(tool)
    values = ", ".join(f"{name} = {value if isinstance(value, str) else _json(value)}" for name, value in arguments.items())
    return f"Please call {tool.name} with {values}" if values else f"Please call {tool.name}"


def language_of(text: str, otherwise: str) -> str:
    """Return the language of what stands behind a person's words: theirs, if prompts are written in it.

    The model answers in the language that it reads last, whatever the person wrote. Names of files and addresses, which are
    Latin in any language, do not count; Japanese, which shares its characters with Chinese, is none of ours.

    Args:
        text: the person's words.
        otherwise: where these do not tell.
    """
    words = _NAME.sub(" ", text)
    chinese, latin = len(_CHINESE.findall(words)), len(_LATIN.findall(words))
    if _KANA.search(words) or not chinese + latin:
        return otherwise
    return "zh" if chinese >= latin else "en"


def reminder(tools: Tools, *, dialect: str = "function_calls", lang: str = "en", needs_tool: bool = True) -> str:
    """Render the short text that stands last in the prompt, after the person's words; empty without tools.

    Args:
        tools: the catalog.
        dialect: the wire format.
        lang: `en` or `zh`.
        needs_tool: False where it was decided that the words need no tool: the text then asks for plain words.
    """
    return template(lang, "reminder").render(tools=list(Catalog.of(tools)), form=form(dialect), needs_tool=needs_tool).strip()


def demand(format: PromptFormat, name: str = "") -> str:
    """Render what a model is told that answered without a call although one was demanded.

    Args:
        format: of the prompt.
        name: of the tool that has to be called; "" for any.
    """
    return template(format.lang, "demand").render(name=name, form=form(format.dialect)).strip()


def after_empty(*, lang: str = "en") -> str:
    """Render what a model is told whose reply had neither text nor a call.

    Args:
        lang: `en` or `zh`.
    """
    return template(lang, "empty").render().strip()


def json_answer(schema: Mapping[str, Any], *, lang: str = "en") -> str:
    """Render what asks for an answer in JSON, where tools are on offer, too.

    Args:
        schema: that the answer has to fit.
        lang: `en` or `zh`.
    """
    return template(lang, "json_answer").render(schema=json.dumps(schema, ensure_ascii=False)).strip()


def begin(begun: str, *, lang: str = "en") -> str:
    """Render what asks for a reply that begins with words of the caller's.

    Args:
        begun: how it begins.
        lang: `en` or `zh`.
    """
    return template(lang, "begin").render(begun=begun).strip()


def form(dialect: str) -> dict[str, Any]:
    """Return what templates say about a wire format.

    Args:
        dialect: its name.

    Returns:
        `block`, what a call begins with; `tag`, one that values may hold; `is_json` and `cdata`, how arguments are written.

    Raises:
        UsageError: unknown dialect.
    """
    row = select(dialect)[0]
    first = next(iter(row.written.values()), "").partition("{name}")[0].partition("\n")[0]
    tag = _TAG_NAME.match(row.written.get("parameter_open", ""))
    is_json = row.is_json or row.json_body
    return {
        "block": first if first.endswith((">", ";")) else "JSON" if row.is_json else "call",
        "tag": f"{tag[0]}>" if tag else "<b>",
        "is_json": is_json,
        "cdata": not (is_json or row.entities),
    }


def template(lang: str, name: str) -> "Template":
    """Return a template; all wire formats share them.

    Args:
        lang: `en` or `zh`.
        name: `system`, `reminder`, `results`, `feedback`, `retry`, `refused`, `repeated`, `empty`, `json_answer`, `begin`
            or `demand`.

    Raises:
        UsageError: unknown language.
    """
    if lang not in LANGUAGES:
        raise UsageError(f"unknown language {lang!r}; known: {', '.join(LANGUAGES)}")
    return _environment().get_template(f"{lang}/{name}.j2")


def source(lang: str, name: str) -> str:
    """Return the text of a template as it is written.

    Args:
        lang: `en` or `zh`.
        name: as for `template`.
    """
    return (_prompts() / lang / f"{name}.j2").read_text(encoding="utf-8")


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
    package = Path(__file__).parents[1]
    inside = package / "prompts"
    return inside if inside.is_dir() else package.parent / "prompts"


def _inert(text: str) -> str:
    return _TAGS.sub("&lt;", text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _quote(text: str) -> str:
    """Mark each line as somebody else's words."""
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())
