"""Decides whether a message needs a tool: compares the model's own probability of a call with a threshold.

Small models recognize which messages need a tool, but act wrongly: some call a tool whatever the message, others hardly ever do.
The first token of a reply decides between a call and plain words, so the model is asked for one token, whose probabilities give
the log-odds of a call. For a call, we begin the block, if the server can continue it; otherwise the model is asked
for plain words.

**The model sees the message alone**, after the tool prompt, because after a conversation the first token reflects how that has
gone so far. A message that refers to something earlier ("and in Oslo?") sounds like a request also by itself, but less so;
therefore the threshold is lower right after a turn that used a tool, or that asked the user for a value of a call. The arguments
still come from the whole conversation, because the reply is generated from it.

**A second opinion has the same weight.** If the first token leaves a doubt, the model is asked for the number of the tool that
the message asks for, or 0 for none, from a list with one short line per tool, and these log-odds are added. The two opinions fail
on different messages. The list precedes the message, so that the server's prompt cache holds it.

**The tail matters**: how unlikely a call is separates "thanks" from "is it sunny in Cairo?". llama.cpp reports as many tokens as
requested.

**A model has one threshold for all tools.** Profiles contain it for the models that were measured. For others `auto` determines
it, once for each way of asking, with tools and ordinary requests of our own whose answer is known.

Only user messages are checked, because what follows a result was not measured. If a reply begins with reasoning, its first token
decides nothing, and the usual reminder is used. The measurements are in docs/decisions/tool-need.md.
"""

import functools
import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Final

from ..binding.grounds import only_asks_to_find
from ..dialects import Dialect
from ..dialects.write import beginning, replies_of
from ..errors import BackendProtocolError, BackendStatusError, ContextOverflow
from ..prompting.format import PromptFormat
from ..prompting.system import tool_prompt
from ..tools.catalog import Catalog
from ..types.calls import Message, Tool
from ..types.completion import Capabilities, CompletionRequest, Usage
from .asking import Threshold
from .generate import is_refused_beginning
from .machine import FirstToken, Score, Script

# -- which tool --------------------------------------------------------------------------------------------------------
# A small model has favourites. It calls the tool whose name it has seen most: `read_file` also for a folder, `calculator` for
# an umbrella. This habit can be measured: begin a call for the same model after a message that needs no tool ("Thanks!"), and
# see which name it continues with. A part of the habit's log-probability is then subtracted, and the tool with the highest
# remainder is called. This is contextual calibration (Zhao et al., 2021, arXiv:2102.09690) by half: with full calibration,
# tools win merely because they are unusual, and a larger model, which chooses well by itself, gets worse. If a model is sure of
# a name, its habit is not measured: that needs a prompt of its own, and changes no such choice.
#
# **A message alone** is asked about without losing the server's prompt cache for the conversation: llama.cpp's server picks a
# cache slot by the prefix that two prompts share, so a short prompt evicts the conversation. Once there is much to lose, it
# therefore begins with a line feed: the server keeps both, and reads the tool prompt once more. A model in this process
# needs none of this (`backends.embedded`), nor do servers that cache blocks by content (vLLM, SGLang); a server with a single
# slot (Ollama) would lose by it (docs/decisions/tool-need.md).
#
# Each request asks for one token, greedily, without the caller's options (a stop string, a schema): the model's opinion counts.


IDLE: Final = "Thanks!"
PART: Final = 0.5  # share of a habit's log-probability that is subtracted
MOST_STEPS: Final = 50  # tokens in a name, at most
PLAIN: Final = 0.8  # probability of a name from which habits no longer matter
LONGEST: Final = 4000  # characters; a longer message is cut to its beginning and its end
_CACHE_SEPARATOR: Final = "\n"  # before the tool prompt
_EXTRA: Final = frozenset({"chat_template_kwargs", "keep_alive", "reasoning_effort", "think"})  # may affect the first token
_LONG: Final = 0.5  # as a share of the tool prompt's characters

Candidates = tuple[tuple[str, float], ...]
Names = Mapping[str, str]
"""Maps each tool that may still be meant to the rest of its name, including the text that ends the name."""
Shares = Mapping[str, float]
"""Maps each token that continues one of these names to its probability; the probabilities add up to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """How a model continues from a position in the beginning of a call."""

    here: Shares  # after the user's message; empty if the server refuses the beginning, or reports none of the names
    habit: Shares  # after a message that needs no tool; empty in the same cases, and if `here` is clear enough
    usage: Usage


def choose_tool(
    request: CompletionRequest, server: Capabilities, catalog: Catalog, dialect: Dialect
) -> Script[tuple[str, Usage]]:
    """Choose the tool to call for the user's last message, with a server that continues a last message of role `assistant`.

    The name is "" if the server refuses the beginning or reports no probabilities.
    """
    written, left, usage = beginning(dialect), _names(catalog, dialect), Usage()
    for _ in range(MOST_STEPS):
        if len(left) == 1:
            return next(iter(left)), usage
        left, written = _past_shared(left, written)
        place = yield from _place(request, server, written, left)
        usage = usage + place.usage
        if not (token := best_token(left, place.here, place.habit)):
            break
        left, written = _after(left, token), written + token
    return "", usage


def _place(request: CompletionRequest, server: Capabilities, written: str, left: Names) -> Script[_Place]:
    """Ask how the model continues with the remaining names."""
    token = yield from _continued(request, written, server)
    here = _shares(left, token.candidates)
    if not here or _is_plain(left, here):
        return _Place(here=here, habit={}, usage=token.usage)
    idle = replace(request, messages=(*request.messages[:-1], Message(role="user", content=IDLE)))
    habit = yield from _continued(alone(server, idle), written, server, keep=True)
    return _Place(here=here, habit=_shares(left, habit.candidates), usage=habit.usage + token.usage)


def best_token(left: Names, here: Shares, habit: Shares) -> str:
    """Return the next token of the name of the tool to call."""
    if not here or not (habit or _is_plain(left, here)):
        return ""
    unheard = min(habit.values(), default=1.0)

    def gain(rest: str) -> float:
        return math.log(_share(rest, here)) - PART * math.log(_share(rest, habit) or unheard)

    best = max((rest for rest in left.values() if _share(rest, here)), key=gain)
    return max((token for token in here if _continues(best, token)), key=here.__getitem__)


def _is_plain(left: Names, here: Shares) -> bool:
    return max((_share(rest, here) for rest in left.values()), default=0.0) >= PLAIN


def _shares(left: Names, candidates: Candidates) -> dict[str, float]:
    goes_on = _continues_any(left.values())
    fitting = {token: math.exp(max(min(logprob, 0.0), -700.0)) for token, logprob in candidates if goes_on(token)}
    whole = math.fsum(fitting.values())
    return {token: share / whole for token, share in fitting.items() if share / whole > 0}


def _share(rest: str, shares: Shares) -> float:
    return math.fsum(share for token, share in shares.items() if _continues(rest, token))


def _names(catalog: Catalog, dialect: Dialect) -> dict[str, str]:
    begun = beginning(dialect)
    return {tool.name: beginning(dialect, tool.name).removeprefix(begun) for tool in catalog}


def _past_shared(left: Names, written: str) -> tuple[dict[str, str], str]:
    """Write the prefix that all remaining names share, up to its last separator, because a token ends before a separator."""
    first, last = min(left.values(), default=""), max(left.values(), default="")  # these two have the shortest common prefix
    shared = takewhile(lambda place: first[place] == last[place], range(min(len(first), len(last))))
    end = max((place for place in shared if not first[place].isalnum()), default=0)
    return {name: rest[end:] for name, rest in left.items()}, written + first[:end]


def _after(left: Names, token: str) -> dict[str, str]:
    """Return the tools that may still be meant after one more token."""
    return {name: rest[len(token) :] for name, rest in left.items() if _continues(rest, token)}


def _continues(rest: str, token: str) -> bool:
    """Say whether a token is a prefix of the rest of a name, or contains all of it."""
    return bool(token) and (rest.startswith(token) or token.startswith(rest.rstrip("\n")))


def _continues_any(rests: Iterable[str]) -> Callable[[str], bool]:
    """Return `_continues` for any of many names; it searches a sorted list instead of checking each name."""
    ordered = sorted(rests)
    whole = {rest.rstrip("\n") for rest in ordered}
    lengths = {len(rest) for rest in whole}

    def goes_on(token: str) -> bool:
        at = bisect_left(ordered, token)
        begins_one = at < len(ordered) and ordered[at].startswith(token)
        return bool(token) and (begins_one or any(token[:length] in whole for length in lengths))

    return goes_on


def _continued(request: CompletionRequest, written: str, server: Capabilities, *, keep: bool = False) -> Script[FirstToken]:
    """Ask how the model continues a reply that begins as written; return an empty answer if the server refuses the beginning."""
    begun = replace(request, messages=(*request.messages, Message(role="assistant", content=written)))
    try:
        return (yield from ask_first_token(begun, server, keep=keep))
    except BackendStatusError as error:
        if not is_refused_beginning(error):
            raise
        return FirstToken()


def alone(server: Capabilities, request: CompletionRequest) -> CompletionRequest:
    """Return the request with only the tool prompt and the last message; a long message is cut in the middle."""
    *before, last = request.messages
    if len(last.content) > LONGEST:
        last = replace(last, content=f"{last.content[: LONGEST // 2]}\n...\n{last.content[-LONGEST // 2 :]}")
    if not before or before[0].role != "system":
        return replace(request, messages=(last,), aside=True)
    system, *said = before
    is_long = sum(len(message.content) for message in said) > _LONG * len(system.content)
    if server.server == "llama.cpp" and not server.keeps_aside and is_long:
        system = replace(system, content=_CACHE_SEPARATOR + system.content)
    return replace(request, messages=(system, last), aside=True)


def ask_first_token(request: CompletionRequest, server: Capabilities, *, keep: bool = False) -> Script[FirstToken]:
    """Ask a model for the first token of its reply, or for the next token if the reply's beginning is given."""
    extra = {name: value for name, value in request.extra.items() if name in _EXTRA}
    asked = replace(request, max_tokens=1, temperature=0.0, options={}, stop=(), top_logprobs=server.most_logprobs, extra=extra)
    token: FirstToken = yield Score(request=asked, keep=keep)
    return token


# -- whether one is needed ---------------------------------------------------------------------------------------------


CALL_BEGINS: Final = ("<", "{", "[")  # wire formats; a fence does not indicate a call, because code is fenced, too
LEAST_NUMBER: Final = -1.0  # the log-odds of the second opinion are clipped to these limits
MOST_NUMBER: Final = 6.0
USUAL_NUMBER: Final = 3.0  # if the second opinion is missing
HALF: Final = -2.0  # if the first token is half a character: llama.cpp reports nothing about it, but no call begins so
AFTER_TOOL: Final = 0.4  # how much lower the threshold is right after a turn that used a tool
DOUBT: Final = 2.4  # range above the threshold that contains nearly all ordinary requests whose score exceeds it
BELOW_SPLIT: Final = 1.8  # subtracted in `auto`: in conversations the best split itself loses half of the calls
SHORT_AFTER_TOOL: Final = 0.8  # the same for a few words ("and in Oslo?"), which say little by themselves
_ASKS_FOR_VALUE: Final = re.compile(r"\s*(?:please tell me (?:the|which|what|where|who)\b|请告诉我)", re.IGNORECASE)
FEW_WORDS: Final = 25  # characters; a wide (East Asian) character counts as two
LEAST_SPREAD: Final = 2.0  # least distance of the two groups' mean log-odds; below it `auto` decides nothing

MOST_NUMBERED: Final = 64  # a longer list confuses a small model, and takes much of a small context
LONGEST_LINE: Final = 100  # characters of a tool's description
SURE_NUMBER: Final = 16.0  # log-odds are clipped to this
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNeed:
    """Whether a message needs a tool.

    Args:
        log_odds: natural logarithm of the odds that the model begins its reply with a call.
        threshold: above it, the reply should be a call.
        number: the log-odds, from the numbered list, that the message asks for one of the tools; None if the model was not asked.
        usage: the tokens used.
        is_sure: False if the model's first token decides nothing, so that the usual reminder is used.
        fits: False if the user asks to find something out, but every offered tool changes something.
        tool: the tool to call; "" if the model chooses.
        begun: the beginning of the reply, written for the model; "" if the model begins it.
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
        """Whether the model's odds are above the threshold."""
        return self.fits and self.score > self.threshold

    @property
    def is_doubtful(self) -> bool:
        """Whether values from the message have to confirm the call: its score is near the threshold, or no more than even."""
        return self.needs_tool and self.score <= max(self.threshold + DOUBT, 0.0)

    @property
    def score(self) -> float:
        """The sum of both opinions, which is compared with the threshold."""
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
    """Ask a model whether the user's last message needs a tool, and if so, which one; the request has no reminder.

    Return None if `auto` cannot decide: the server reports no probabilities, or the model's do not separate the anchors. With a
    given threshold, a server without probabilities is an error.

    If tools are described after the message, `shown` is the conversation with them. It is used to choose a tool, but not to
    decide whether one is needed, because small talk would have no such descriptions.
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
        return replace(need, fits=len(fitting) > 0)
    tool, choosing = yield from choose_tool(shown or request, server, fitting, format.row)
    return replace(need, usage=need.usage + choosing, tool=tool, begun=beginning(format.row, tool))


def settled(threshold: Threshold, server: Capabilities, request: CompletionRequest, format: PromptFormat) -> Script[float | None]:
    """Return the number that a threshold stands for; None if `auto` cannot decide for this model and way of asking."""
    return threshold if threshold != "auto" else (yield from _auto(server, request, format))[0]


def _auto(server: Capabilities, request: CompletionRequest, format: PromptFormat) -> Script[tuple[float | None, Usage]]:
    """Return the threshold for this way of asking (None if the server reports no probabilities), and the tokens used."""
    try:
        return (yield from _between(server, request, format))
    except (BackendProtocolError, BackendStatusError) as error:
        if isinstance(error, ContextOverflow):
            raise
        return None, Usage()  # perhaps temporary; if not, the request for the reply fails too


def _between(server: Capabilities, request: CompletionRequest, format: PromptFormat) -> Script[tuple[float | None, Usage]]:
    """Find the threshold between requests that need no tool and those that need one; None if the model cannot separate them."""
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
    """Return how much lower the threshold is for the user's last message."""
    if not _follows_tool(messages):
        return 0.0
    words = messages[-1].content.strip()
    width = sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in words[: FEW_WORDS + 1])
    return SHORT_AFTER_TOOL if width <= FEW_WORDS else AFTER_TOOL


def _follows_tool(messages: Sequence[Message]) -> bool:
    """Say whether the last message follows a turn in which a tool was called, or a value for a call was asked for."""
    for message in reversed(messages[:-1]):
        if replies_of(message) or (message.role == "assistant" and _ASKS_FOR_VALUE.match(message.content)):
            return True
        if message.role == "user":
            break
    return False


def best_split(none: Sequence[float], one: Sequence[float]) -> float:
    """Return the number that separates two groups with the fewest mistakes; of equally good ones, the middle."""
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

    Without a threshold it is 0, the second opinion is always asked for, and the answers are cached: these are our own anchors.
    """
    undecided = ToolNeed(log_odds=SURE_NUMBER, threshold=threshold or 0.0, usage=Usage(), is_sure=False)
    if server.reasoning_open:
        return undecided
    by_itself, keep = alone(server, request), threshold is None
    token = yield from ask_first_token(by_itself, server, keep=keep)
    if token.reasoning:
        return replace(undecided, usage=token.usage)
    if token.lacks_candidates:
        raise BackendProtocolError(
            "a call threshold needs a server that reports the probabilities of tokens (llama.cpp, vLLM, Ollama from 0.12.11 on); "
            "this one reports none: leave the threshold out"
        )
    need = replace(undecided, log_odds=log_odds(token.candidates) if token.candidates else HALF, usage=token.usage, is_sure=True)
    if threshold is not None and not LEAST_NUMBER < threshold - need.log_odds <= MOST_NUMBER:
        return need
    number, usage = yield from _ask_number(by_itself, server, catalog, format, keep=keep)
    return replace(need, number=number, usage=need.usage + usage)


def log_odds(candidates: Iterable[tuple[str, float]]) -> float:
    """Return the log-odds that a reply begins with a call."""
    share = math.fsum(math.exp(min(logprob, 0.0)) for token, logprob in candidates if token.lstrip().startswith(CALL_BEGINS))
    least = 1 / (1 + math.exp(SURE_NUMBER))
    share = min(max(share, least), 1 - least)
    return round(math.log(share / (1 - share)), 3)


def _ask_number(
    request: CompletionRequest, server: Capabilities, catalog: Catalog, format: PromptFormat, *, keep: bool
) -> Script[tuple[float | None, Usage]]:
    """Ask a model for the number of the tool that the message asks for; return the log-odds of any tool against none.

    They are None if the first token is not a number, the server reports no probabilities, or there is only one tool, or too many.
    """
    if not 1 < len(catalog) <= MOST_NUMBERED:
        return None, Usage()
    tools = [(tool.name, _in_a_line(tool)) for tool in catalog]
    text = format.render("which", tools=tools, catalog=catalog, request=request.messages[-1].content).strip()
    asked = replace(request, messages=(Message(role="user", content=text),), aside=True)
    token = yield from ask_first_token(asked, server, keep=keep)
    return number_odds(token.candidates), token.usage


def number_odds(candidates: Iterable[tuple[str, float]]) -> float | None:
    """Return the log-odds of a number above 0 against 0, from the likeliest first tokens; None if they are not numbers."""
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
    """Return the first sentence of a tool's description, cut at a word if it is long."""
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
