"""The environment of all templates in `prompts/`, which has every sentence that a model reads, in each language.

There is one environment, and it is strict about undefined names. Templates have only layout and wording; the functions that
render them prepare the data (parameter trees, example calls, result texts).
"""

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dialects.inert import inert_frame, inert_text
from ..types.calls import MISSING

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.runtime import Context

LANGUAGES = ("en", "zh")


def render(lang: str, name: str, /, **values: Any) -> str:
    """Render a template."""
    return _environment().get_template(f"{lang}/{name}.j2").render(values)


def source(lang: str, name: str) -> str:
    """Return the source of a template."""
    return (_prompts() / lang / f"{name}.j2").read_text(encoding="utf-8")


def words_of(lang: str) -> dict[str, Any]:
    """Return the words between and around alternatives of parameters."""
    words = vars(_environment().get_template(f"{lang}/words.j2").module)["words"]
    return {"or": words["or"], "rules": words["rules"]}


def plain_source(name: str) -> str:
    """Return the source of a file in `prompts/` that all languages share."""
    return (_prompts() / name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context

    environment = Environment(
        loader=FileSystemLoader(_prompts()), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.filters.update(
        inert=pass_context(_inert),
        json=lambda value: json.dumps(value, ensure_ascii=False, default=str),
        quote=lambda text: "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines()),
    )
    environment.tests["missing"] = lambda value: value is MISSING
    return environment


def _prompts() -> Path:
    """Find the templates: inside the package when installed from a wheel, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "prompts"
    return inside if inside.is_dir() else package.parent / "prompts"


def _inert(context: "Context", text: str) -> str:
    """Make untrusted words inert; if the template has the catalog, also everything that opens a call."""
    catalog = context.get("catalog")
    return inert_frame(text) if catalog is None else inert_text(text, catalog, is_whole=True)
