"""Messages in which results come to a model that has its tools in the prompt: what must not be in them.

How they are written is `ResultForm`. Text from tools and servers is untrusted: the marks of the form are made inert in it, so
that a result cannot close its own frame, and so are our own tags, and those of reasoning and of chat templates, which servers
read anywhere in a prompt.
"""

import functools
from typing import Final

import regex

from ..dialects import DIALECTS
from ..dialects.inert import inert
from ..dialects.result_form import OWN_RESULTS, ResultForm
from ..dialects.tag_names import tag_names
from ..tools.catalog import Catalog

__all__ = ["FRAME_TAGS", "INERT_WORDS", "inert_frame", "inert_text"]

FRAME_TAGS: Final = OWN_RESULTS.tag_words()

INERT_WORDS: Final = frozenset({*FRAME_TAGS, *tag_names(DIALECTS["function_calls"]), "think", "thinking", "reasoning"})
"""Names of the tags that are made inert in somebody else's words; those of chat templates are, too."""

_INERT = regex.compile(
    rf"<(?=/?(?:{'|'.join(sorted(INERT_WORDS))})\b"
    r"|[|\uff5c]|/?s>|(?:start|end)_of_turn>)"
)
_BRACKETS: Final = {"<": "&lt;", "[": "&#91;"}


def inert_frame(text: str) -> str:
    """Make the tags of our own prompt inert in somebody else's words, and those of chat templates.

    Args:
        text: shown to a model.
    """
    return _INERT.sub("&lt;", text)


def inert_text(text: str, catalog: Catalog, form: ResultForm = OWN_RESULTS) -> str:
    """Make everything inert that could be read as a call, in any wire format, the tags of `inert_frame`, and those of a form.

    Args:
        text: of a tool, a server or a person.
        catalog: what is offered.
        form: in which results go back.
    """
    text = inert_frame(inert(text, catalog.names(), lambda name: not len(catalog) or catalog.meant_by(name) is not None))
    return _marks(form).sub(lambda found: _BRACKETS[found[0]], text) if form is not OWN_RESULTS else text


@functools.cache
def _marks(form: ResultForm) -> "regex.Pattern[str]":
    words = "|".join(sorted(map(regex.escape, form.tag_words())))
    return regex.compile(rf"[<\[](?=[/|\uff5c]*+(?:{words})\b)", regex.IGNORECASE)
