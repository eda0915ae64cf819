"""Decode untrusted text: HTML entities, Unicode normal forms, and characters that a reader does not see.

Some texts make Python's own functions raise, or run for minutes. Here the cost is linear in the text.

`RANGES` is one table for the terminal, the page, servers' messages and hosts of addresses. Its first ranges are Unicode's
Default_Ignorable_Code_Point (Unicode 16.0, DerivedCoreProperties): soft hyphens, fillers, marks of direction, joiners, variation
selectors, tags. The others have a blank glyph. White space and control characters are not among them.
`ui/static/visible.js` has the same ranges.
"""

import html
import re
import unicodedata
from typing import Final, Literal

import regex

_NUMBER: Final = regex.compile(r"&#0*([0-9]{1,8})[0-9]*")
_MARK: Final = r"[\P{ccc=0}\u0f73\u0f75\u0f81\uff9e\uff9f]"  # a combining mark, or a character that decomposes into such marks
_MARKS: Final = regex.compile(f"({_MARK}{{30}}){_MARK}++")
_SHORT: Final = regex.compile(r"[^\ufdfa\ufdfb]++")

_IGNORABLE: Final = (
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F)),
    *((0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0)),
    *((0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
# Blank letters of Braille, musical notation, Egyptian and Khitan writing; anchors of annotations.
_BLANK: Final = ((0x2800, 0x2800), (0xFFF9, 0xFFFB), (0x13441, 0x13442), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159))

RANGES: Final = (*_IGNORABLE, *_BLANK)
"""First and last code point of each."""

INVISIBLE: Final = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in RANGES) + "]")
"""One invisible character."""


def unescaped(text: str) -> str:
    """Return a text with its HTML entities replaced by the characters that they stand for."""
    # Python cannot read a number of more than 4,300 digits. A number of 8 digits is not a code point, so HTML reads it as U+FFFD.
    return html.unescape(_NUMBER.sub(r"&#\1", text)) if "&" in text else text


def normalized(form: Literal["NFC", "NFKC", "NFKD"], text: str) -> str:
    """Bring a text into a Unicode normal form; of consecutive combining marks, keep the first 30.

    No language puts more of them on a letter (UAX #15, Stream-Safe Text Format), and Python takes time quadratic in their number
    to sort them. The two ligatures that stand for more than 6 characters stay: one of them becomes 18.
    """
    if text.isascii():
        return text
    return _SHORT.sub(lambda found: unicodedata.normalize(form, found[0]), _MARKS.sub(r"\1", text))
