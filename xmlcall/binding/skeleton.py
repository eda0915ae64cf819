"""What is left of a text where the ways to write it do not count: two texts that a reader takes for the same have one skeleton.

Who repeats a text may undo entities and the escapes of JSON, fold white space, join lines or the strings of a list, leave out
what nobody sees, and write characters of full width narrow. Both texts are stripped of all that, and of quotation marks.

Cost: linear in the text.
"""

from typing import Final

import regex

from ..text_forms import normalized, unescaped

__all__ = ["skeleton", "skeletons", "unquoted"]

_ROUNDS: Final = 4  # JSON in JSON in an attribute; one pass undoes any number of backslashes, and of `&amp;`
_AMPERSANDS: Final = regex.compile(r"&(?:amp;|#0{0,8}38;|#[xX]0{0,8}26;)+")
_ESCAPE: Final = regex.compile(r"\\++(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|[nrtbf])?")
_PAIRS: Final = regex.compile(r"[\p{Cs}\U00010000-\U0010ffff]++")  # JSON may write one such character as two halves
_DROPPED: Final = regex.compile(r"[\s\p{C}\"'`\u201c\u201d\u2018\u2019]++")  # what nobody sees, and quotation marks
_QUOTED: Final = regex.compile(r"(?m)^[ \t]{0,8}>(?:[ \t]?>)*+")  # lines of a quotation in Markdown
_BETWEEN: Final = regex.compile(
    r'(?<!\\)\\*+"\s*+,\s*+(?:\\*+"[^"\\\n]{0,200}\\*+"\s*+:\s*+)?\\*+"'
)  # from a string in JSON to the next


def skeleton(text: str) -> str:
    """Strip a text of the ways in which it is written.

    Args:
        text: of a call, or of what somebody said.
    """
    for _ in range(_ROUNDS):
        before = text
        if not text.isascii():
            text = normalized("NFKC", _PAIRS.sub("", text))
        if "\\" in text:
            text = _ESCAPE.sub(_unescaped, text)
        if "&" in text:
            text = unescaped(_AMPERSANDS.sub("&", text))
        if text == before:
            break
    return _DROPPED.sub("", text)


def skeletons(text: str) -> tuple[str, ...]:
    """Return the skeletons of a text, of its strings in JSON, put together, and of what it quotes.

    Args:
        text: that somebody said.
    """
    return tuple(map(skeleton, dict.fromkeys((text, _BETWEEN.sub("", text), unquoted(text)))))


def unquoted(text: str) -> str:
    """Return a text without the marks of quoted lines, which stand before a server's instructions.

    Args:
        text: of a call, or of what somebody said.
    """
    return _QUOTED.sub("", text)


def _unescaped(found: "regex.Match[str]") -> str:
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else ""
