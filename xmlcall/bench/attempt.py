"""Does a reply mean to call a tool, though no call could be read from it?

Only words are a right answer to a question that needs no tool. A model that writes an unreadable call, or a call of a tool that
it made up, has not refused. So calls are looked for in every form that models are known to write, with looser rules than the
parser's, since nothing runs because of it. By which fragments a format is known follows from its row (`dialects/call_signs.py`).
Thoughts do not count, and neither does a sentence that names a tool.
"""

import re
from collections.abc import Iterable

from ..dialects import DIALECTS, attempts_call

__all__ = ["attempted", "spoken"]

_THOUGHT = re.compile(r"<(think|thinking|reasoning|seed:think)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)
# A list of Python calls with arguments by name, which is how BFCL and Llama 4 ask for calls; nothing beside it.
_PYTHON_CALLS = re.compile(r"\[?\s*[A-Za-z_][\w.]*\(\s*\w+\s*=.*\)\s*\]?", re.DOTALL)

# The name of a tool with arguments behind it, or as the value of a key that names tools.
_NAMED = (
    r"""(?<![\w.])(?:NAMES)(?:\(\s*(?:["'{\[]|-?\d|\w+\s*=)|["'`]?(?:\s*:)?\s*\{)"""
    r"""|"(?:name|tool|tool_name|function)"\s*:\s*"(?:NAMES)\""""
)


def attempted(text: str, names: Iterable[str]) -> bool:
    """Say whether a text without readable calls means to make one."""
    names = tuple(names)
    if attempts_call(text, DIALECTS.values(), names):
        return True
    fenced = _FENCED.fullmatch(text.strip())
    if _PYTHON_CALLS.fullmatch((fenced[1] if fenced else text).strip()):
        return True
    known = "|".join(re.escape(name) for name in names)
    return bool(known and re.search(_NAMED.replace("NAMES", known), text))


def spoken(text: str, *, reasoning_open: bool) -> str:
    """Return a reply without its thoughts."""
    return _THOUGHT.sub("", f"<think>{text}" if reasoning_open else text)
