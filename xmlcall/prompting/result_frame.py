"""The frame in which results come to a model that has its tools in the prompt; it is the same for every wire format.

    <function_results>
    <result name="add">
    3
    </result>
    </function_results>

An error has a second attribute. Text from tools and servers is untrusted: the frame's tags are made inert in it, so that a result
cannot close its own frame, and so are the tags of reasoning and of chat templates, which servers read anywhere in a prompt.
"""

from collections.abc import Iterable
from typing import Final

import regex

from ..dialects import DIALECTS
from ..dialects.inert import inert
from ..dialects.tag_names import tag_names
from ..tools.catalog import Catalog

__all__ = [
    "FRAME_CLOSER",
    "FRAME_OPENER",
    "FRAME_TAGS",
    "RESULT_CLOSER",
    "RESULT_OPENER",
    "inert_frame",
    "inert_text",
    "is_result_message",
    "items_in",
    "named_results",
    "results_told",
]

FRAME_OPENER: Final = "<function_results>"
FRAME_CLOSER: Final = "</function_results>"
RESULT_OPENER: Final = "<result name="
RESULT_CLOSER: Final = "</result>"
FRAME_TAGS: Final = ("function_results", "result")

_INERT = regex.compile(
    rf"<(?=/?(?:{'|'.join(sorted({*FRAME_TAGS, *tag_names(DIALECTS['function_calls'])}))}|think|thinking|reasoning)\b"
    r"|[|\uff5c]|/?s>|(?:start|end)_of_turn>)"
)


def inert_frame(text: str) -> str:
    """Make the tags of our own prompt inert in somebody else's words, and those of chat templates.

    Args:
        text: shown to a model.
    """
    return _INERT.sub("&lt;", text)


def inert_text(text: str, catalog: Catalog) -> str:
    """Make everything inert that could be read as a call, in any wire format, and the tags of `inert_frame`.

    Args:
        text: of a tool, a server or a person.
        catalog: what is offered.
    """
    return inert_frame(inert(text, catalog.names(), lambda name: not len(catalog) or catalog.meant_by(name) is not None))


def is_result_message(text: str) -> bool:
    """Say whether a message of role `user` holds results, and no person's words.

    Args:
        text: of the message.
    """
    return text.startswith(FRAME_OPENER)


def items_in(frame: str) -> list[str]:
    """Return what stands in a frame's results, without those that have another attribute: they are errors.

    Args:
        frame: as a model was given it or wrote it; half a result is an empty text.
    """
    items = []
    for name, text, ended in _parts(frame):
        if not ended or name.count('"') == 2:
            items.append(text.strip() if ended else "")
    return items


def results_told(frame: str) -> list[str]:
    """Return what stands in a frame's results, errors too.

    Args:
        frame: as a model was given it.
    """
    return [text.removeprefix("\n").removesuffix("\n") for _, text, ended in _parts(frame) if ended]


def named_results(frame: str) -> list[tuple[str, str]]:
    """Return the name of each tool in a frame with what it told, errors too.

    Args:
        frame: as a model was given it.
    """
    return [(name.partition('"')[2].partition('"')[0], text) for name, text, ended in _parts(frame) if ended]


def _parts(frame: str) -> Iterable[tuple[str, str, bool]]:
    """Yield the rest of each result's opener, its text, and whether it has its closer."""
    for part in frame.split(RESULT_OPENER)[1:]:
        name, _, rest = part.partition(">")
        text, ended, _ = rest.partition(RESULT_CLOSER)
        yield name, text, bool(ended)
