"""A text in which nothing opens a call, in any wire format: what may open one follows from the rows.

Text from tools and servers is untrusted. The marks of results are made inert in it, too, so that a result cannot close its own
frame, and so are our own tags, and those of reasoning and of chat templates, which servers read anywhere in a prompt.

Strategy: only the first character of what may be markup of a call is written as an entity: `<` as `&lt;`, the `&` of a tag that
is written with entities itself as `&amp;`, and the bracket of what may be a call without any mark as `&#123;` or `&#91;`.
All else stays as it is, so that a model can read the text and quote from it.

The order counts, because an entity can complete a tag of the format that is written with entities: `<invoke name="f"&gt;` is one
once its `<` was replaced. So these tags are looked for again, then JSON.

Cost: linear. Each place where markup can begin is looked at a few times, and every pattern of a row has a greatest length.
"""

import functools
from collections.abc import Callable
from typing import Final

import regex

from ..tools.catalog import Catalog
from . import DIALECTS, NAMES, opening_pattern
from .result_form import OWN_RESULTS, ResultForm
from .tag_names import tag_names

__all__ = ["FRAME_TAGS", "INERT_WORDS", "inert_frame", "inert_text"]

FRAME_TAGS: Final = OWN_RESULTS.tag_words()

INERT_WORDS: Final = frozenset({*FRAME_TAGS, *tag_names(DIALECTS["function_calls"]), "think", "thinking", "reasoning"})
"""Names of the tags that are made inert in somebody else's words; those of chat templates are, too."""

_INERT = regex.compile(
    rf"<(?=/?(?:{'|'.join(sorted(INERT_WORDS))})\b"
    r"|[|\uff5c]|/?s>|(?:start|end)_of_turn>)"
)

_ENTITIES: Final = {"<": "&lt;", "&": "&amp;"}
_BRACKETS: Final = regex.compile(r"[{\[]")
_NAME_AT_END: Final = regex.compile(rf"(?:[\"'](?:{'|'.join(NAMES)})[\"']\s*:\s*(?:\"([^\"]*)\"|'([^']*)')|\[\s*([\w.\-]+)\()\Z")


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
    text = _completed().sub("&amp;lt;", _openers(tuple(catalog.names())).sub(_entity, text))
    text = inert_frame(_without_bare_calls(text, lambda name: not len(catalog) or catalog.meant_by(name) is not None))
    return _marks(form).sub(_entity, text) if form is not OWN_RESULTS else text


@functools.cache
def _marks(form: ResultForm) -> "regex.Pattern[str]":
    words = "|".join(sorted(map(regex.escape, form.tag_words())))
    return regex.compile(rf"[<\[](?=[/|\uff5c]*+(?:{words})\b)", regex.IGNORECASE)


@functools.lru_cache(maxsize=64)
def _openers(names: tuple[str, ...]) -> "regex.Pattern[str]":
    return opening_pattern(DIALECTS.values(), names)


def _entity(found: "regex.Match[str]") -> str:
    return _ENTITIES.get(found[0], f"&#{ord(found[0])};")


@functools.cache
def _completed() -> "regex.Pattern[str]":
    """Return the pattern of the entity in which a whole tag begins, of the formats that are written with entities."""
    tags = [tag for row in DIALECTS.values() if row.entities for tag in row.tags.values()]
    return regex.compile(rf"(?=(?:{'|'.join(tags)}))&lt;")


def _without_bare_calls(text: str, declared: Callable[[str], bool]) -> str:
    """Write the bracket of what may be a call as an entity; where arguments come first, its name is not known yet."""
    parts, done = [], 0
    for bracket in _BRACKETS.finditer(text):
        at = bracket.start()
        if (opener := _bare_openers().match(text, at)) and _may_be_call(opener[0], declared):
            parts += [text[done:at], f"&#{ord(bracket[0])};"]
            done = at + 1
    return "".join([*parts, text[done:]])


def _may_be_call(opener: str, declared: Callable[[str], bool]) -> bool:
    name = _NAME_AT_END.search(opener)
    return name is None or declared(name[1] or name[2] or name[3])


@functools.cache
def _bare_openers() -> "regex.Pattern[str]":
    return regex.compile("|".join(row.tags["json_open"] for row in DIALECTS.values() if "json_open" in row.tags))
