"""What `xmlcall doctor` has found: plain values, and what follows from them. No I/O.

A server that drops `tools` answers 200 as if nothing were wrong. It is recognised by the length of the prompt, which is then the
same with tools and without; where the server counts no tokens, by its chat template.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..backends.server_facts import ServerFacts
from ..errors import BackendProtocolError
from ..types.calls import InvalidCall, ToolCall
from ..types.completion import Capabilities, Chunk, Usage

LEAST_TOOL_TOKENS: Final = 15  # the shortest description of the tool of the trial has about 40
KEPT: Final = 1000  # characters of a reply that does not end in time
LONGEST: Final = 50_000  # characters of a reply; at most 1024 tokens are asked for
LEAST_WRITTEN: Final = 8  # tokens of a reply below which its speed and its stream say nothing
BURST: Final = 0.05  # the share of a slow reply's time in which all of it arrives if something buffers it
SLOW_REPLY: Final = 1.0  # seconds
_ABOUT_TOOLS: Final = re.compile(r"\btools?\b|tool_|\bjinja\b|\bfunctions?\b", re.IGNORECASE)
_NOT_ABOUT_TOOLS: Final = frozenset({401, 403, 404, 408, 413, 429})

Outcome = Literal[
    "works", "leaks", "wrong", "invalid", "drops", "ignores", "thinking", "empty", "refuses", "fails", "silent", "untested"
]
"""The outcome of a question with a tool.

| outcome | what happened |
|---|---|
| works | the right call |
| leaks | the server left a call in the text, where clients do not see it |
| wrong, invalid | a call with other values; one that does not fit the tool |
| drops | the server never showed the tool to the model |
| ignores | the model saw the tool and answered in words |
| thinking, empty | the reply ended inside its reasoning; it had no text |
| refuses | the server refuses requests with tools |
| fails, silent | another error; no answer in time |
| untested | there was no time left for it |
"""

Works = Literal["native", "prompt", "no"]
Streaming = Literal["yes", "at once", "no", "unknown"]
Barrier = Literal["", "no connection", "no answer", "key", "loading", "no model", "other"]
"""Why a server could not be tested at all; "" if it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCall:
    name: str
    arguments: Mapping[str, Any] | None  # None if the call does not fit its tool
    issues: tuple[str, ...] = ()  # why it does not fit
    by: Literal["server", "xmlcall"] = "xmlcall"  # who read it: the server, or xmlcall in the text of the reply
    repairs: tuple[str, ...] = ()  # codes of what had to be repaired
    is_right: bool = False


def read_call(call: ToolCall | InvalidCall, right: Mapping[str, Any]) -> CheckedCall:
    """Describe a call of a reply; `right` are the arguments that the question asks for."""
    by: Literal["server", "xmlcall"] = "server" if call.raw.dialect == "native" else "xmlcall"
    if isinstance(call, InvalidCall):
        return CheckedCall(name=call.name, arguments=None, issues=tuple(issue.why for issue in call.issues), by=by)
    codes = dict.fromkeys(repair.code for repair in (*call.raw.repairs, *call.repairs) if repair.code != "leaked-call")
    is_right = call.arguments == right
    return CheckedCall(name=call.name, arguments=call.arguments, by=by, repairs=tuple(codes), is_right=is_right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    streaming: Streaming = "unknown"  # "at once" if a reply of some length arrived in one burst at its end
    logprobs: bool | None = None  # whether the server reports probabilities of tokens; None if unknown
    prompt_tokens: int | None = None
    error: str = ""
    is_late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    text: str = ""  # what the model wrote
    reasoning: str = ""
    calls: tuple[CheckedCall, ...] = ()
    is_cut: bool = False  # whether the reply ended at its limit of tokens
    error: str = ""  # why there is no reply
    status: int | None = None  # HTTP status of the refusal; None for another error
    is_late: bool = False  # whether the reply did not end in time
    prompt_tokens: int | None = None  # the length of the prompt; None if the server reports none

    @property
    def outcome(self) -> Outcome:
        """What happened, apart from whether the model saw the tool, which only a comparison shows."""
        if self.is_late:
            return "silent"
        if self.error:
            return "refuses" if self._is_refusal else "fails"
        if self.calls and self.calls[0].arguments is None:
            return "invalid"
        if self.calls:
            return "works" if self.calls[0].is_right and len(self.calls) == 1 else "wrong"
        if self.is_cut and self.reasoning:
            return "thinking"
        return "ignores" if self.text.strip() else "empty"

    @property
    def _is_refusal(self) -> bool:
        """llama.cpp refuses tools with status 500, too, if it renders no templates."""
        if self.status is None or self.status in _NOT_ABOUT_TOOLS or self.status < 400:
            return False
        return self.status < 500 or _ABOUT_TOOLS.search(self.error) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    named: str  # the model as a command of ours takes it, without secrets
    address: str = ""
    is_local: bool = False  # whether the model runs inside this process
    is_first_model: bool = False  # whether the model was not named, so that the first one is tested that the server lists
    key_variable: str = ""  # the environment variable that holds the server's key; "" for none
    context_option: int | None = None
    model: str = ""
    known: Capabilities = field(default_factory=lambda: Capabilities(server=""))
    facts: ServerFacts = field(default_factory=ServerFacts)
    profile: str = ""
    plain: Plain = field(default_factory=Plain)
    native: Trial | None = None
    prompt: Trial | None = None
    prompt_speed: float | None = None  # tokens a second that the server reads; None if too few were read to know
    reply_speed: float | None = None  # tokens a second that it writes
    barrier: Barrier = ""  # why the server could not be tested at all; `problem` says it in a sentence
    problem: str = ""
    # Addresses of this machine that may be meant, because something listens there, each with the usual product.
    listening: tuple[tuple[str, str], ...] = ()

    @property
    def context_length(self) -> int | None:
        return self.facts.context_length or self.known.context_length

    @property
    def template_has_tools(self) -> bool | None:
        """Whether the chat template can show tools; None if unknown."""
        answers = (self.facts.template_has_tools, self.known.native_tools, self._shows_tools)
        return next((answer for answer in answers if answer is not None), None)

    @property
    def native_outcome(self) -> Outcome:
        if self.native is None:
            return "untested"
        if self.native.calls and all(call.by == "xmlcall" for call in self.native.calls):
            return "leaks"
        outcome = self.native.outcome
        return "drops" if outcome in ("ignores", "empty", "thinking") and self._drops_tools else outcome

    @property
    def prompt_outcome(self) -> Outcome:
        return "untested" if self.prompt is None else self.prompt.outcome

    @property
    def works(self) -> Works:
        if self.native_outcome == "works":
            return "native"
        return "prompt" if self.prompt_outcome == "works" else "no"

    @property
    def _shows_tools(self) -> bool | None:
        """Whether the prompt is longer with a tool than without; None if the server does not count, or omits cached tokens."""
        before, after = self.plain.prompt_tokens, self.native.prompt_tokens if self.native else None
        if not before or not after or after < before:
            return None
        return after - before >= LEAST_TOOL_TOKENS

    @property
    def _drops_tools(self) -> bool:
        shows = self._shows_tools
        return (self.template_has_tools if shows is None else shows) is False


def spoken_of(trial: Trial | None, *words: str) -> bool:
    return trial is not None and any(word in trial.error.lower() for word in words)


# -- how fast ----------------------------------------------------------------------------------------------------------


class Pace:
    """When the pieces of a reply arrived, by a clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.usage = Usage()
        self.text = ""  # the beginning of the reply
        self._clock = clock
        self._begun = clock()
        self._first = self._last = 0.0
        self._pieces = self._characters = 0
        self._has_logprobs = False

    def hear(self, chunk: Chunk) -> None:
        self.usage = chunk.usage or self.usage
        self._has_logprobs = self._has_logprobs or bool(chunk.top_logprobs)
        self.text = (self.text + chunk.text)[:KEPT]
        self._characters += len(chunk.text) + len(chunk.reasoning)
        if self._characters > LONGEST:
            raise BackendProtocolError(f"expected a short reply (`max_tokens`), got one of more than {LONGEST} characters")
        if chunk.text or chunk.reasoning:
            self._last = self._clock()
            self._first = self._first or self._last
            self._pieces += 1

    @property
    def read(self) -> tuple[int, float]:
        """How many tokens of the prompt the server had to read, and the seconds until the first piece of the reply."""
        tokens = (self.usage.prompt_tokens or 0) - (self.usage.cached_tokens or 0)
        return tokens, self._first - self._begun

    @property
    def written(self) -> tuple[int, float]:
        """The tokens of the reply after the first piece, and their seconds."""
        return (self.usage.completion_tokens or self._pieces) - 1, self._last - self._first

    def plain(self) -> Plain:
        return Plain(
            streaming="unknown" if not self._pieces else "at once" if self._is_burst else "yes",
            logprobs=self._has_logprobs if self._pieces else None,
            prompt_tokens=self.usage.prompt_tokens,
        )

    @property
    def _is_burst(self) -> bool:
        whole = self._last - self._begun
        is_long = (self.usage.completion_tokens or self._pieces) >= LEAST_WRITTEN
        return is_long and (self._pieces == 1 or (whole > SLOW_REPLY and self._last - self._first < BURST * whole))


def speed(measured: tuple[int, float], least: int) -> float | None:
    """Return tokens a second; None for too few tokens."""
    tokens, seconds = measured
    return tokens / seconds if tokens >= least and seconds > 0 else None
