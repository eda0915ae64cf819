"""Which of the tools a message asks for, by number, with "none of these" as 0: a second opinion on whether it needs one.

Behind the tool prompt a small model begins a call for much that sounds like a request: "Translate this", "Write a function".
Asked in one short line for each tool, without schemas and rules, which of them the request is for, it says "none" there. The two
opinions go wrong at different messages, so that their sum tells need from no need better than either (measured:
docs/decisions/tool-need.md). To ask "does it need a tool, yes or no?" does worse, and so does asking about the chosen tool.

The tools stand before the message, so that the server's prompt cache holds them. With one tool there is nothing to number.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ..prompting.format import PromptFormat
from ..tools.catalog import Catalog
from ..types.calls import Message, Tool
from ..types.capabilities import Capabilities
from ..types.completion import CompletionRequest, Usage
from .asked_alone import ask_first_token
from .machine import Script

__all__ = ["ask_number", "number_odds"]

MOST_TOOLS: Final = 64  # in a longer list a small model loses its way, and the list takes a good part of a small context
LONGEST: Final = 100  # characters of what a tool says of itself
SURE: Final = 16.0  # log-odds beyond which what was told makes no difference
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s*")


def ask_number(
    request: CompletionRequest, server: Capabilities, catalog: Catalog, format: PromptFormat, *, keep: bool = False
) -> Script[tuple[float | None, Usage]]:
    """Ask a model for the number of the tool that a message asks for.

    Returns:
        The log-odds of any tool against none, None where the model's first token is no number, the server tells no probabilities
        or there are too many tools, or only one; and what asking cost.
    """
    if not 1 < len(catalog) <= MOST_TOOLS or server.reasoning_open:
        return None, Usage()
    tools = [(tool.name, _in_a_line(tool)) for tool in catalog]
    text = format.render("which", tools=tools, catalog=catalog, request=request.messages[-1].content).strip()
    asked = replace(request, messages=(Message(role="user", content=text),), aside=True)
    told = yield from ask_first_token(asked, server, keep=keep)
    return number_odds(told.candidates), told.usage


def number_odds(candidates: Iterable[tuple[str, float]]) -> float | None:
    """Return the log-odds of a number above 0 against 0.

    Args:
        candidates: for the first token, each with the natural logarithm of its probability.
    """
    none, any_tool, least = 0.0, 0.0, math.exp(-SURE)
    for token, logprob in candidates:
        digits = token.strip().rstrip(".")
        if digits.isascii() and digits.isdigit():
            share = math.exp(min(logprob, 0.0))
            none, any_tool = (none + share, any_tool) if not digits.strip("0") else (none, any_tool + share)
    if none + any_tool < least:
        return None
    return round(math.log(max(any_tool, least) / max(none, least)), 3)


def _in_a_line(tool: Tool) -> str:
    """Return the first sentence of what a tool says of itself, cut at a word."""
    first = _SENTENCE.split(tool.description.strip(), maxsplit=1)[0]
    first = " ".join(first.split())
    return first if len(first) <= LONGEST else first[:LONGEST].rsplit(" ", 1)[0] + " ..."
