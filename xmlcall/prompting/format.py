"""How a model is spoken to: the wire format of its calls, the language, the family of prompts, one call in a reply or several.

One object goes through loop, proxy and harness, and every text for a model is rendered with it. Templates are shared by all wire
formats: what differs (how a call begins, whether its values are JSON) is a property here and follows from the format's row.

A family says how a system prompt shows tools. Models answer differently to the same tools shown differently, and no family is
best for all of them; `xmlcall probe` finds the one that a model answers best. A family changes only the system prompt and what is
read for "the request says nothing of this".
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

from ..dialects import Body, Dialect, known
from ..dialects.write import example_tag, first_tag
from ..errors import UsageError
from .templates import LANGUAGES, render

__all__ = ["ENGLISH", "FAMILIES", "Family", "PromptFormat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How a system prompt shows tools.

    Args:
        parameters: of a tool: as a `list` in words, or as its JSON `schema`.
        unsaid: the word that stands for an optional parameter of which the request says nothing, so that a call has every
            parameter; "" if such parameters are left out.
    """

    name: str
    about: str
    parameters: str = "list"
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
    """What all texts for one model have in common.

    Raises:
        UsageError: unknown dialect, language or family; or `auto`, which can be read but not written.
    """

    dialect: str = "function_calls"
    lang: str = "en"
    parallel: bool = True
    family: str = "list"

    def __post_init__(self) -> None:
        """Refuse what cannot be rendered."""
        if len(known(self.dialect)) != 1:  # a profile may come from anybody, and must not make us read files
            raise UsageError(f"expected one wire format to ask a model for, got {self.dialect!r}")
        if self.lang not in LANGUAGES:
            raise UsageError(f"unknown language {self.lang!r}; known: {', '.join(LANGUAGES)}")
        if self.family not in FAMILIES:
            raise UsageError(f"unknown family of prompts {self.family!r}; known: {', '.join(FAMILIES)}")

    @property
    def row(self) -> Dialect:
        """The wire format."""
        return known(self.dialect)[0]

    @property
    def shows(self) -> Family:
        """What the system prompt shows of a tool, and in which order."""
        return FAMILIES[self.family]

    @property
    def block(self) -> str:
        """What a call begins with, in words for the model."""
        return first_tag(self.row) or ("JSON" if self.notation == "JSON" else "call")

    @property
    def results(self) -> str:
        """What a message of results begins with."""
        return self.row.results.opener

    @property
    def tag(self) -> str:
        """A tag that a value may hold although it is markup of the format."""
        return example_tag(self.row)

    @property
    def notation(self) -> str:
        """In which notation the arguments of a call are written; "" where each has tags of its own."""
        return "JSON" if self.row.json_body else _NOTATIONS.get(self.row.body, "JSON")

    @property
    def quote(self) -> str:
        """What stands at both ends of a text in Gemma's notation."""
        return self.row.written.get("quote", "")

    @property
    def is_fenced(self) -> bool:
        """Whether a Markdown fence is the wrapper."""
        return bool(self.row.fence)

    @property
    def has_cdata(self) -> bool:
        """Whether values that hold tags stand in a CDATA section."""
        return not (self.notation or self.row.entities)

    def speaking(self, lang: str) -> Self:
        """Return the same in another language."""
        return self if lang == self.lang else replace(self, lang=lang)

    def render(self, name: str, /, **values: Any) -> str:
        """Render a template, which knows this object as `form`."""
        return render(self.lang, name, form=self, **values)


_NOTATIONS: Final = {Body.TAGS: "", Body.PYTHON: "Python", Body.LINES: "Python", Body.GEMMA: "Gemma"}

ENGLISH: Final = PromptFormat()
"""The default: our own wire format, in English."""
