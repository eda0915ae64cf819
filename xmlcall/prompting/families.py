"""The families of prompts: how a system prompt shows tools, as rows.

Models answer differently to the same tools shown differently, and no family is best for all of them; `xmlcall probe` finds the
one that a model answers best. A family changes only the system prompt and what is read for "the request says nothing of this".
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["FAMILIES", "Family"]


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
