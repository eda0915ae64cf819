"""A call that was meant and cannot be read: it is told, so that it is not lost in silence.

Models damage their own formats inside a mark that means a call for certain: `<tool_call>f<arg_key>a</arg_value>`. Where no
reading of that is certain, the text stays text, and a call that cannot run says so: the model writes it again, people see it.

Such a call is the end of a reply's text, outside code, and has three signs:

| sign | why |
|---|---|
| a mark of a format, or a word with which formats name a call (`function=`, `call:`) | prose has none |
| the name of an offered tool shortly after it, in the same sentence | a mark alone may be mentioned |
| nothing but white space after what closes a call: `>`, `]`, `}`, a bracket of `call:f(...)` | an explanation goes on |

Cost: linear in the last characters of the text, and only where they end in a closing sign and hold a tool's name.
"""

from collections.abc import Iterable
from typing import Final

import regex

from ..dialects import Dialect
from ..dialects.call_signs import call_marks
from ..tools.catalog import Catalog
from ..types.calls import Issue, RawCall
from .states import BREAK

__all__ = ["unread_call"]

_BLANK_END: Final = f" \t\r\n{BREAK}"
_NEAR: Final = 120  # characters between a mark and the name
_CLOSERS: Final = (">", "]", "}", ")")
# Words with which calls are named, and what is written between the bars of special tokens, known ones or not.
_NAMED: Final = (
    r"<[\uff5c|\u2016]{1,2}\w{1,32}[\uff5c|\u2016]{1,2} ?(?=\w)|(?<![\w.])(?:function=|functions[._](?=\w)|call:(?=\w))"
    r"|(?m:^)Action:(?=[ \t`\x22*]{0,4}[\w.\-]{1,128}[ \t`\x22*]{0,4}\nAction Input:)"
)
_REACT_END: Final = regex.compile(r"\nAction Input:[^\n]*\Z")  # its input is any text
_INERT: Final = regex.compile(r"&(?:lt|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});")  # a call of somebody else's that is repeated
_SENTENCE: Final = regex.compile(r"[.!?。！？]\s|\n\s*\n")
_MESSAGE: Final = (
    "This is written like a call of {name!r}, in a form that cannot be read with certainty, so nothing ran. Write the call again."
)


def unread_call(text: str, end: int, catalog: Catalog, dialects: Iterable[Dialect], index: int) -> RawCall | None:
    """Return the call that a text ends in and that could not be read.

    Args:
        text: the last of what a reply says outside of code and after its calls.
    """
    body, rows, offered = text.rstrip(_BLANK_END), tuple(dialects), catalog.names()
    if not (body.endswith(_CLOSERS) or _REACT_END.search(body)) or _INERT.search(body):
        return None
    if not any(name in body for name in offered):
        return None
    names = "|".join(map(regex.escape, sorted(offered, key=len, reverse=True)))
    named = regex.compile(rf"(?<!\w)(?:{names})")
    for mark in regex.finditer(f"{call_marks(rows, offered)}|{_NAMED}", body):
        name = named.search(body, mark.start(), min(mark.end() + _NEAR, len(body)))
        if name is None or _SENTENCE.search(body, mark.end(), max(name.start(), mark.end())):
            continue
        if body.endswith(")") and mark[0] != "call:":
            continue
        issue = Issue(code="unread-call", message=_MESSAGE.format(name=name[0]))
        dialect = _dialect_of(body, mark.start(), rows, offered)
        written = body[max(mark.start(), body.rfind(BREAK) + 1) :]
        return RawCall(index=index, name=name[0], dialect=dialect, text=written, span=(end, end), issues=(issue,))
    return None


def _dialect_of(text: str, at: int, rows: Iterable[Dialect], names: Iterable[str]) -> str:
    """Return the first format of which a mark stands at a place."""
    found = (row.name for row in rows if (marks := call_marks([row], names)) and regex.compile(marks).match(text, at))
    return next(found, "function_calls")
