"""How prompts are written for a model: the wire format of calls, the language, the prompt family, one or several calls a reply.

Loop, proxy and harness pass one object along, and every text for a model is rendered with it. All wire formats share the same
templates: everything that differs (how a call begins, whether its values are JSON) is a property here and follows from the
format's row.

A family defines how a system prompt shows tools. Models answer differently to the same tools shown differently, and no family is
best for all models; `xmlcall probe` finds the best one for a model. A family changes only the system prompt and the word that
means "the request does not mention this".

The templates are in `prompts/`, which has every sentence that a model reads, in each language. There is one environment, and it
is strict about undefined names. Templates have only layout and wording; the functions that render them prepare the data
(parameter trees, example calls, result texts).
"""

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ..dialects import Body, Dialect, known
from ..dialects.call_signs import inert_frame, inert_text
from ..dialects.write import example_tag, first_tag
from ..errors import UsageError
from ..types.calls import MISSING

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.runtime import Context

LANGUAGES = ("en", "zh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How a system prompt shows tools."""

    name: str
    about: str
    parameters: str = "list"  # how a tool's parameters are shown: as a `list` in words, or as its JSON `schema`
    # The value of an optional parameter that the request does not mention, so that a call has every parameter; "" if such
    # parameters are omitted.
    unsaid: str = ""


FAMILIES: Final = {
    family.name: family
    for family in (
        Family(name="list", about="parameters in words, one a line"),
        Family(name="every", about="the same; a call has every parameter, `none` where nothing is said", unsaid="none"),
        Family(name="schema", about="parameters as JSON Schema", parameters="schema"),
    )
}
"""The families, by name; the first is the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFormat:
    """The settings that all texts for one model share."""

    dialect: str = "function_calls"
    lang: str = "en"
    parallel: bool = True
    family: str = "list"

    def __post_init__(self) -> None:
        """Refuse settings that cannot be rendered."""
        if len(known(self.dialect)) != 1:  # a profile is untrusted, and must not make us read files
            raise UsageError(f"expected one wire format to ask a model for, got {self.dialect!r}")
        if self.lang not in LANGUAGES:
            raise UsageError(f"unknown language {self.lang!r}; known: {', '.join(LANGUAGES)}")
        if self.family not in FAMILIES:
            raise UsageError(f"unknown family of prompts {self.family!r}; known: {', '.join(FAMILIES)}")

    @property
    def row(self) -> Dialect:
        return known(self.dialect)[0]

    @property
    def shows(self) -> Family:
        return FAMILIES[self.family]

    @property
    def block(self) -> str:
        """The beginning of a call, in words for the model."""
        return first_tag(self.row) or ("JSON" if self.notation == "JSON" else "call")

    @property
    def results(self) -> str:
        """The text that begins a message of results."""
        return self.row.results.opener

    @property
    def tag(self) -> str:
        """A tag that is markup of the format, as an example of what a value may contain."""
        return example_tag(self.row)

    @property
    def notation(self) -> str:
        """The notation of a call's arguments; "" if each has tags of its own."""
        return "JSON" if self.row.json_body else _NOTATIONS.get(self.row.body, "JSON")

    @property
    def quote(self) -> str:
        """The mark at both ends of a string in Gemma's notation; "" in others."""
        return self.row.written.get("quote", "")

    @property
    def is_fenced(self) -> bool:
        """Whether a Markdown fence is the wrapper."""
        return bool(self.row.fence)

    @property
    def has_cdata(self) -> bool:
        """Whether values that contain tags are written in a CDATA section."""
        return not (self.notation or self.row.entities)

    def speaking(self, lang: str) -> Self:
        """Return the same settings with another language."""
        return self if lang == self.lang else replace(self, lang=lang)

    def render(self, name: str, /, **values: Any) -> str:
        """Render a template; it can use this object as `form`."""
        return render(self.lang, name, form=self, **values)


_NOTATIONS: Final = {Body.TAGS: "", Body.PYTHON: "Python", Body.LINES: "Python", Body.GEMMA: "Gemma"}

ENGLISH: Final = PromptFormat()
"""The default: our own wire format, in English."""


def render(lang: str, name: str, /, **values: Any) -> str:
    return _environment().get_template(f"{lang}/{name}.j2").render(values)


def source(lang: str, name: str) -> str:
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
