"""Chooses the tool that a message asks for: compares the model's probabilities of the tools' names with its habits.

A small model has favourites. It calls the tool whose name it has seen most: `read_file` also for a folder, `calculator` for an
umbrella. This habit can be measured: begin a call for the same model after a message that needs no tool ("Thanks!"), and see
which name it continues with. A part of the habit's log-probability is then subtracted, and the tool with the highest remainder is
called. This is contextual calibration (Zhao et al., 2021, arXiv:2102.09690) by half: with full calibration, tools win merely
because they are unusual, and a larger model, which chooses well by itself, gets worse.

If a model is sure of a name, its habit is not measured. Of 116 turns of two models, 72 have a name with a probability of at least
0.8, and the habit would have changed none of these choices (benchmarks/results/tools.jsonl). The question after the user's
message is itself the beginning of the reply, so the server has read it already when the reply is generated; the habit needs
another prompt, and so costs reading that prompt.

**A message alone** is asked about without losing the server's prompt cache for the conversation. Both prompts begin with the tool
prompt, and llama.cpp's server picks a cache slot by the prefix that two prompts share. So the short prompt would evict the
conversation, which each question then reads again from the end of the tool prompt. Once there is much to lose, the short prompt
therefore begins with a line feed: the two prompts share no prefix, and the server keeps both. This costs reading the tool prompt
once more. A model in this process needs none of this (`backends.embedded`), nor do servers that cache blocks by content (vLLM,
SGLang); a server with a single slot (Ollama) would lose by it. Read in b11549 of llama.cpp, and measured
(docs/decisions/tool-need.md).

Each request asks for one token, greedily, and drops the caller's other options (a stop string, a schema), because the model's own
opinion is wanted.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from ..dialects import Dialect
from ..dialects.write import beginning
from ..errors import BackendStatusError
from ..tools.catalog import Catalog
from ..types.calls import Message
from ..types.completion import Capabilities, CompletionRequest, Usage
from .generate import is_refused_beginning
from .machine import FirstToken, Score, Script

NEEDS_NONE: Final = "Thanks!"
PART: Final = 0.5  # share of a habit's log-probability that is subtracted
MOST_STEPS: Final = 50  # tokens in a name, at most
PLAIN: Final = 0.8  # probability of a name from which habits no longer matter
LONGEST: Final = 4000  # characters; a longer message is cut to its beginning and its end
_CACHE_SEPARATOR: Final = "\n"  # before the tool prompt
_EXTRA: Final = frozenset({"chat_template_kwargs", "keep_alive", "reasoning_effort", "think"})  # may affect the first token
_LONG: Final = 0.5  # of the tool prompt's characters

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
    """Choose the tool to call for the user's last message.

    Args:
        server: a server that continues a last message of role `assistant`.

    Returns:
        The tool's name ("" if the server refuses the beginning or reports no probabilities), and the tokens used.
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
    token = yield from _first_token(_begun(request, written), server)
    here = _shares(left, token.candidates)
    if not here or _is_plain(left, here):
        return _Place(here=here, habit={}, usage=token.usage)
    idle = alone(server, _in_place_of_last(request, NEEDS_NONE))
    habit = yield from _first_token(_begun(idle, written), server, keep=True)
    return _Place(here=here, habit=_shares(left, habit.candidates), usage=habit.usage + token.usage)


def best_token(left: Names, here: Shares, habit: Shares) -> str:
    """Return the next token of the name of the tool to call."""
    if not here or not (habit or _is_plain(left, here)):
        return ""
    unheard = min(habit.values(), default=1.0)

    def gain(rest: str) -> float:
        return math.log(_share(rest, here)) - PART * math.log(_share(rest, habit) or unheard)

    best = max((rest for rest in left.values() if _share(rest, here)), key=gain)
    return max((token for token in here if _goes_on_with(best, token)), key=here.__getitem__)


def _is_plain(left: Names, here: Shares) -> bool:
    return max((_share(rest, here) for rest in left.values()), default=0.0) >= PLAIN


def _shares(left: Names, candidates: Candidates) -> dict[str, float]:
    goes_on = _with_any(left.values())
    fitting = {token: math.exp(max(min(logprob, 0.0), -700.0)) for token, logprob in candidates if goes_on(token)}
    whole = math.fsum(fitting.values())
    return {token: share / whole for token, share in fitting.items() if share / whole > 0}


def _share(rest: str, shares: Shares) -> float:
    """Return the probability of the tokens that continue a name."""
    return math.fsum(share for token, share in shares.items() if _goes_on_with(rest, token))


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
    return {name: rest[len(token) :] for name, rest in left.items() if _goes_on_with(rest, token)}


def _goes_on_with(rest: str, token: str) -> bool:
    """Say whether a token is a prefix of the rest of a name, or contains all of it."""
    return bool(token) and (rest.startswith(token) or token.startswith(rest.rstrip("\n")))


def _with_any(rests: Iterable[str]) -> Callable[[str], bool]:
    """Return `_goes_on_with` for any of many names; it searches a sorted list instead of checking each name."""
    ordered = sorted(rests)
    whole = {rest.rstrip("\n") for rest in ordered}
    lengths = {len(rest) for rest in whole}

    def goes_on(token: str) -> bool:
        at = bisect_left(ordered, token)
        begins_one = at < len(ordered) and ordered[at].startswith(token)
        return bool(token) and (begins_one or any(token[:length] in whole for length in lengths))

    return goes_on


def _begun(request: CompletionRequest, written: str) -> CompletionRequest:
    return replace(request, messages=(*request.messages, Message(role="assistant", content=written)))


def _first_token(request: CompletionRequest, server: Capabilities, *, keep: bool = False) -> Script[FirstToken]:
    """Ask how the model continues; return an empty answer if the server refuses the beginning."""
    try:
        return (yield from ask_first_token(request, server, keep=keep))
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
    if server.server == "llama.cpp" and not server.keeps_aside and _is_long_history(system, said):
        system = replace(system, content=_CACHE_SEPARATOR + system.content)
    return replace(request, messages=(system, last), aside=True)


def _in_place_of_last(request: CompletionRequest, text: str) -> CompletionRequest:
    """Replace the last message by another user message."""
    return replace(request, messages=(*request.messages[:-1], Message(role="user", content=text)))


def _is_long_history(system: Message, said: Sequence[Message]) -> bool:
    return sum(len(message.content) for message in said) > _LONG * len(system.content)


def ask_first_token(request: CompletionRequest, server: Capabilities, *, keep: bool = False) -> Script[FirstToken]:
    """Ask a model for the first token of its reply, or for the next token if the reply's beginning is given."""
    extra = {name: value for name, value in request.extra.items() if name in _EXTRA}
    plain = replace(request, max_tokens=1, temperature=0.0, options={}, stop=())
    asked = replace(plain, top_logprobs=server.most_logprobs, extra=extra)
    answers: tuple[FirstToken, ...] = yield Score(requests=(asked,), keep=keep)
    return answers[0]
