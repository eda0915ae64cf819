"""Characters that a reader does not see: one table for the terminal, the page, words of servers and hosts of addresses.

The first ranges are Unicode's Default_Ignorable_Code_Point (Unicode 16.0, DerivedCoreProperties): soft hyphens, fillers, marks of
direction, joiners, variation selectors, tags. The others have a glyph that is blank. White space is not among them, nor are
control characters. `ui/static/visible.js` has the same ranges.
"""

import re
from typing import Final

__all__ = ["INVISIBLE", "RANGES"]

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
