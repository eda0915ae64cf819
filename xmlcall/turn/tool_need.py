"""Whether a message needs a tool: the model's own probability of a call, held against a threshold.

Small models tell messages that need a tool from those that need none quite well, and then act wrongly: by nature some call a tool
whatever is said, others hardly ever, and the words of a prompt move all their replies at once (measured:
docs/decisions/tool-need.md). The first token of a reply decides between a call and plain words. So one token is asked for; its
probabilities say how much the model is for a call, as log-odds; and a threshold makes a decision of that. If it is a call, the
block is begun for the model, where the server goes on from there; if not, plain words are asked for.

**The message is asked about alone**, behind the tool prompt and without what was said before. Behind a conversation the first
token tells how the conversation has gone so far: after one plain answer the model goes on in plain words, after a call it calls
again. Alone, the same model at the same turns tells need from no need with an area under the ROC curve of 0.97 and 0.99 instead
of 0.68 and 0.61 (benchmarks/results/need.md). What refers to something earlier ("and in Oslo?", "yes, do that") sounds like a
request also by itself, if less: right after a turn that used a tool the threshold is lower. The arguments come from the whole
conversation, which the reply is generated from.

**A second opinion counts as much.** Between "Translate this" and "Do I need an umbrella in London?" the first token errs. There
the model is asked for the number of the tool that the message asks for, or 0 for none, and these log-odds are added; where they
could not change the decision, it is not asked. Behind the tool prompt a small model begins a call for much that sounds like a
request: "Translate this", "Write a function". Asked in one short line for each tool, without schemas and rules, which of them the
request is for, it says "none" there. The two opinions go wrong at different messages, so that their sum tells need from no need
better than either. To ask "does it need a tool, yes or no?" does worse, and so does asking about the chosen tool. The tools stand
before the message, so that the server's prompt cache holds them. With one tool there is nothing to number.

**The tail counts.** In plain talk the opening of a call is not among the 20 likeliest tokens, and how unlikely it is tells
"thanks" from "is it sunny in Cairo?". llama.cpp tells as many as are wanted.

**Thresholds.** A model's threshold is one number for all tools. Between "Translate this" and "Is it raining in Rome?" the same
number decides rightly with the tools of an office, of a calendar and of a memory on offer; what can be measured with the tools at
hand is noise beside that. Profiles have it for the models that were measured. `auto` finds it for others, once for each way of
asking: with tools and requests of ours (`anchors`), of which the answer is known. These are ordinary requests, and not greetings:
between those and a request for a tool there is much room, and "Translate this" lies in it.

Costs one token, or two, and reading the message as often (and the tool prompt and the list of the tools, once: `asked_alone`);
`auto` the anchors, once; and the choice of a tool a few. Only for a person's words: what follows a result was not measured. A
reply that begins with thinking, or with half a character, decides nothing by its first token and counts as a call, so that the
usual reminder stands.
"""

import functools
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

from ..binding.grounds import only_asks_to_find
from ..dialects.replies import replies_of
from ..dialects.write import beginning
from ..errors import BackendProtocolError, BackendStatusError, ContextOverflow, UsageError
from ..prompting.format import PromptFormat
from ..prompting.system import tool_prompt
from ..tools.catalog import Catalog
from ..types.calls import Message, Tool
from ..types.completion import Capabilities, CompletionRequest, Usage
from .asked_alone import alone, ask_first_token
from .machine import Script
from .tool_choice import choose_tool

__all__ = [
    "NEEDS_NONE",
    "NEEDS_TOOL",
    "TOOLS",
    "Threshold",
    "ToolNeed",
    "ask_need",
    "ask_tool_need",
    "checked_threshold",
    "decides",
    "number_odds",
]

Threshold = float | Literal["auto"]

CALL_BEGINS: Final = ("<", "{", "[")  # wire formats; a fence is no sign of one, since code stands in fences, too
LEAST_NUMBER: Final = -1.0  # log-odds of the second opinion; what lies beyond makes no difference
MOST_NUMBER: Final = 6.0
USUAL_NUMBER: Final = 3.0  # where it is not known
HALF: Final = -2.0  # of a first token that is half a character: llama.cpp tells nothing of it, but no call begins so
AFTER_TOOL: Final = 0.4  # by which the threshold is lower right after a turn that used a tool
DOUBT: Final = 2.4  # above the threshold, within which nearly all of the ordinary requests that are above it lie
BELOW_SPLIT: Final = 1.8  # of `auto`: in conversations the best split loses half of the calls
SHORT_AFTER_TOOL: Final = 0.8  # the same for a few words, "and in Oslo?", which say little by themselves
FEW_WORDS: Final = 25  # characters; one of a script without spaces counts as two
LEAST_SPREAD: Final = 2.0  # log-odds between messages that need a tool and those that need none, or `auto` decides nothing

MOST_NUMBERED: Final = 64  # in a longer list a small model loses its way, and the list takes a good part of a small context
LONGEST_LINE: Final = 100  # characters of what a tool says of itself
SURE_NUMBER: Final = 16.0  # log-odds beyond which what was told makes no difference
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNeed:
    """Whether a message needs a tool.

    Args:
        log_odds: natural logarithm of the odds that the model begins its reply with a call.
        threshold: above it the reply is to be a call.
        number: the log-odds that the message asks for one of the tools, when they are numbered; None if that was not asked for.
        usage: what asking cost.
        is_sure: False where the model's first token decides nothing, and the usual reminder is to stand.
        fits: False where the person asks to find something out, and every tool on offer changes something.
        tool: the tool that is to be called; "" if that is left to the model.
        begun: how the reply is to begin, written for the model; "" if it begins by itself.
    """

    log_odds: float
    threshold: float
    usage: Usage
    is_sure: bool = True
    fits: bool = True
    number: float | None = None
    tool: str = ""
    begun: str = ""

    @property
    def needs_tool(self) -> bool:
        """Whether the message needs a tool."""
        return self.fits and self.score > self.threshold

    @property
    def is_doubtful(self) -> bool:
        """Whether it needs one by so little that the call itself has to show it: its values stand in the person's words."""
        return self.needs_tool and self.score <= self.threshold + DOUBT

    @property
    def score(self) -> float:
        """What is held against the threshold."""
        return self.log_odds + (USUAL_NUMBER if self.number is None else min(max(self.number, LEAST_NUMBER), MOST_NUMBER))


def ask_tool_need(
    threshold: Threshold,
    server: Capabilities,
    request: CompletionRequest,
    catalog: Catalog,
    format: PromptFormat,
    *,
    shown: CompletionRequest | None = None,
) -> Script[ToolNeed | None]:
    """Ask a model whether a person's last words need a tool, and if they do, which.

    Args:
        request: the conversation behind the tool prompt, the person's words last, without a reminder.
        format: how the model is spoken to; a call is begun in its wire format, where the server goes on from there.
        shown: the conversation from which the reply is generated, if tools are described behind the words: a tool is chosen by
            that, but not whether any is needed, since talk would have no such descriptions.

    Returns:
        None where `auto` cannot tell: the server tells no probabilities, or the model's say nothing.

    Raises:
        BackendError: from the stream; `BackendProtocolError` if a threshold was given and the server tells no probabilities.
    """
    least, spent = (threshold, Usage()) if threshold != "auto" else (yield from _auto(server, request, format))
    if least is None:
        return None
    need = yield from ask_need(request, server, round(least - leniency(request.messages), 3), catalog, format)
    need, words = replace(need, usage=spent + need.usage), request.messages[-1].content
    if not (need.is_sure and need.needs_tool):
        return need
    fitting = Catalog([tool for tool in catalog if not only_asks_to_find(words, tool)])
    if not (len(fitting) and server.continues):
        return replace(need, fits=bool(len(fitting)))
    tool, choosing = yield from choose_tool(shown or request, server, fitting, format.row)
    return replace(need, usage=need.usage + choosing, tool=tool, begun=beginning(format.row, tool))


def decides(threshold: Threshold, server: Capabilities, request: CompletionRequest, format: PromptFormat) -> Script[bool]:
    """Say whether a threshold decides for a model that is asked in a way: then no message of a history has a reminder."""
    if server.reasoning_open:
        return False
    return threshold != "auto" or (yield from _auto(server, request, format))[0] is not None


def _auto(server: Capabilities, request: CompletionRequest, format: PromptFormat) -> Script[tuple[float | None, Usage]]:
    """Return the threshold of a way of asking, and what it cost to find it; None where the server tells no probabilities."""
    try:
        return (yield from _between(server, request, format))
    except (BackendProtocolError, BackendStatusError) as error:
        if isinstance(error, ContextOverflow):
            raise
        return None, Usage()  # it may pass, and the reply itself tells if not


def _between(server: Capabilities, request: CompletionRequest, format: PromptFormat) -> Script[tuple[float | None, Usage]]:
    """Find what parts requests that need no tool from those that need one; None where a model does not tell them apart."""
    system, usage = Message(role="system", content=_anchors_prompt(format)), Usage()
    sides: list[list[float]] = []
    for words in (NEEDS_NONE, NEEDS_TOOL):
        sides.append([])
        for text in words:
            asked = replace(request, messages=(system, Message(role="user", content=text)))
            need = yield from ask_need(asked, server, None, TOOLS, format)
            usage = usage + need.usage
            if not need.is_sure:
                return None, usage
            sides[-1].append(need.score)
    none, one = ((math.fsum(side) / len(side)) for side in sides)
    if one - none < LEAST_SPREAD:
        return None, usage
    return round(best_split(*sides) - BELOW_SPLIT, 2), usage


@functools.lru_cache(maxsize=16)
def _anchors_prompt(format: PromptFormat) -> str:
    return tool_prompt(TOOLS, format)


def leniency(messages: Sequence[Message]) -> float:
    """Return by how much the threshold is lower for a person's last words."""
    if not _follows_tool(messages):
        return 0.0
    words = messages[-1].content.strip()
    width = sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in words[: FEW_WORDS + 1])
    return SHORT_AFTER_TOOL if width <= FEW_WORDS else AFTER_TOOL


def _follows_tool(messages: Sequence[Message]) -> bool:
    """Say whether the last message stands right after a turn in which a tool was called."""
    for message in reversed(messages[:-1]):
        if replies_of(message):
            return True
        if message.role == "user":
            break
    return False


def best_split(none: Sequence[float], one: Sequence[float]) -> float:
    """Return the number that parts two groups with the fewest mistakes; the middle of all that do it as well."""
    values = sorted({*none, *one})
    places = [values[0] - 1.0, *((low + high) / 2 for low, high in pairwise(values)), values[-1] + 1.0]

    def mistakes(place: float) -> int:
        return sum(value > place for value in none) + sum(value <= place for value in one)

    least = min(map(mistakes, places))
    best = [place for place in places if mistakes(place) == least]
    return round((best[0] + best[-1]) / 2, 2)


def ask_need(
    request: CompletionRequest, server: Capabilities, threshold: float | None, catalog: Catalog, format: PromptFormat
) -> Script[ToolNeed]:
    """Ask a model whether the last message, alone, needs a tool.

    Args:
        threshold: to be held against the score. With None the threshold is 0, the second opinion is asked for in any case, and
            the answers are kept: the words are ours.
    """
    undecided = ToolNeed(log_odds=SURE_NUMBER, threshold=threshold or 0.0, usage=Usage(), is_sure=False)
    if server.reasoning_open:
        return undecided
    by_itself, keep = alone(server, request), threshold is None
    told = yield from ask_first_token(by_itself, server, keep=keep)
    if told.reasoning:
        return replace(undecided, usage=told.usage)
    if told.text and not told.candidates:
        raise BackendProtocolError(
            "a call threshold needs a server that tells the probabilities of tokens (llama.cpp, vLLM, Ollama from 0.12.11 on); "
            "this one tells none: leave the threshold out"
        )
    need = replace(undecided, log_odds=log_odds(told.candidates) if told.candidates else HALF, usage=told.usage, is_sure=True)
    if threshold is not None and not LEAST_NUMBER < threshold - need.log_odds <= MOST_NUMBER:
        return need
    number, usage = yield from _ask_number(by_itself, server, catalog, format, keep=keep)
    return replace(need, number=number, usage=need.usage + usage)


def checked_threshold(threshold: Threshold) -> Threshold:
    """Return a threshold that can be compared."""
    if threshold != "auto" and not (isinstance(threshold, (int, float)) and math.isfinite(threshold)):
        raise UsageError(f"expected a finite number or 'auto' as the call threshold, got {threshold!r}")
    return threshold


def log_odds(candidates: Iterable[tuple[str, float]]) -> float:
    """Return the log-odds that a reply begins with a call."""
    share = math.fsum(math.exp(min(logprob, 0.0)) for token, logprob in candidates if token.lstrip().startswith(CALL_BEGINS))
    least = 1 / (1 + math.exp(SURE_NUMBER))
    share = min(max(share, least), 1 - least)
    return round(math.log(share / (1 - share)), 3)


def _ask_number(
    request: CompletionRequest, server: Capabilities, catalog: Catalog, format: PromptFormat, *, keep: bool = False
) -> Script[tuple[float | None, Usage]]:
    """Ask a model for the number of the tool that a message asks for.

    Returns:
        The log-odds of any tool against none, None where the model's first token is no number, the server tells no probabilities
        or there are too many tools, or only one; and what asking cost.
    """
    if not 1 < len(catalog) <= MOST_NUMBERED or server.reasoning_open:
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
    none, any_tool, least = 0.0, 0.0, math.exp(-SURE_NUMBER)
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
    return first if len(first) <= LONGEST_LINE else first[:LONGEST_LINE].rsplit(" ", 1)[0] + " ..."


def _tool(name: str, description: str, **parameters: str) -> Tool:
    properties = {each: {"type": "string", "description": words} for each, words in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(name=name, description=description, input_schema=schema)


TOOLS: Final = Catalog(
    [
        _tool("weather_now", "Get the weather of a city.", city="The name of the city"),
        _tool("send_message", "Send a message to a person.", to="The name of the person", text="What it says"),
        _tool("search_files", "Search the files of the user.", words="What to look for"),
    ]
)
NEEDS_NONE: Final = (
    "Write a short poem about the sea.",
    "Translate 'thank you very much' into Spanish.",
    "Explain in one sentence what a prime number is.",
    "Who painted the Mona Lisa?",
    "Correct this sentence: She don't like apples.",
    "Give me three ideas for a birthday present.",
    "把“我喜欢读书”翻译成英文。",
    "用一句话解释什么是光合作用。",
    "写一个 Python 函数，返回列表中最大的数。",
    "《红楼梦》的作者是谁？",
)
NEEDS_TOOL: Final = (
    "What is the weather in Madrid right now?",
    "Send Laura a message: I will be ten minutes late.",
    "Which of my files mention the budget?",
    "Tell Tom that the meeting is at four.",
    "北京现在天气怎么样？",
    "给小王发消息：会议改到三点。",
    "在我的文件里找一下租房合同。",
)
