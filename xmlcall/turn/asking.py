"""The settings with which a model is asked: one value, with one default for each field.

Profiles, the command line, configuration files and Python code create it; the loop, the proxy and the harness accept it. How a
person writes each field is at the end.
"""

import difflib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, cast, get_args

from ..dialects import select
from ..errors import UsageError
from ..prompting.format import FAMILIES, LANGUAGES, PromptFormat
from ..types.calls import Message, Tool
from ..types.completion import SAMPLED, Capabilities, CompletionRequest

Threshold = float | Literal["auto"]
Mode = Literal["xml", "native", "native-only", "none", "auto"]
Sampling = Literal["server", "greedy", "recommended"]
_MODES: Final = get_args(Mode)
_SAMPLINGS: Final = get_args(Sampling)
_GREEDY: Final[Mapping[str, float]] = {"temperature": 0.0}


class AskingFields(TypedDict, total=False):
    mode: Mode
    dialect: str
    family: str
    lang: str
    parallel: bool
    reminder: bool
    call_threshold: Threshold | None
    tool_tokens: int | None
    reasoned_calls: bool
    max_tokens: int | None
    sampling: Sampling
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    repeat_penalty: float | None
    seed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The settings with which a model is asked.

    Args:
        mode: `xml` offers tools in the prompt and reads calls from the text. `native` uses the server's own function calling; it
            also reads calls that the server left in the text, and asks in text where a reply comes to nothing; `native-only` does
            neither. `none` shows no tools. `auto` is `native` if a check before first use shows that it works, else `xml`.
        dialect: name of the format in which the model is asked to write calls (docs/reference/dialects.md); all formats are read.
        family: how the system prompt shows tools (see `prompting.format`).
        lang: language of the prompts, `en` or `zh`.
        parallel: whether a reply may contain several calls.
        reminder: whether a reminder of the tools is appended to the user's message.
        call_threshold: log-odds of a call: above it, the user's message is answered with a call, below it in plain words (see
            `tool_need`). `auto` determines the model's own threshold; None lets the model decide. Only in mode `xml`, with
            servers that report token probabilities.
        tool_tokens: how many tokens of the prompt, by our estimate, the tool descriptions may take; if they need more, some tools
            are shown in part (see `prompting.system`). None derives the limit from the model's context.
        reasoned_calls: in mode `native`, whether calls that end the model's reasoning run, if the reply has neither text nor
            calls. Otherwise they are only reported (`CallInReasoning`), because a model also reasons about calls that it does not
            want to make.
        max_tokens: limit for each reply; None leaves it to the server.
        sampling: what holds for each of the following options that is None. `server` leaves it to the server; `greedy` sends
            temperature 0; `recommended` sends what the model's makers recommend (`models.recommended`), as far as that is known.
        temperature: randomness.
        top_p: share of the probability that the tokens to choose from must have together.
        top_k: how many of the likeliest tokens to choose from.
        min_p: least probability of a token, as a share of the likeliest one's.
        presence_penalty: makes tokens that have occurred less likely; 0 for no change.
        repeat_penalty: the same, as a factor; 1 for no change. vLLM and others call it `repetition_penalty`.
        seed: None leaves it to the server.

    Raises:
        UsageError: unknown mode, dialect, language, family or sampling; or the threshold is not a finite number.
    """

    mode: Mode = "xml"
    dialect: str = "function_calls"
    family: str = "list"
    lang: str = "en"
    parallel: bool = True
    reminder: bool = True
    call_threshold: Threshold | None = None
    tool_tokens: int | None = None
    reasoned_calls: bool = False
    max_tokens: int | None = None
    sampling: Sampling = "server"
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    repeat_penalty: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.mode not in _MODES:
            raise UsageError(f"mode must be one of {', '.join(map(repr, _MODES))}, got {self.mode!r}")
        if self.sampling not in _SAMPLINGS:
            raise UsageError(f"sampling must be one of {', '.join(map(repr, _SAMPLINGS))}, got {self.sampling!r:.80}")
        threshold = self.call_threshold
        if threshold not in (None, "auto") and not (isinstance(threshold, (int, float)) and math.isfinite(threshold)):
            raise UsageError(f"expected a finite number or 'auto' as the call threshold, got {threshold!r}")
        _ = self.format

    @property
    def format(self) -> PromptFormat:
        return PromptFormat(dialect=self.dialect, lang=self.lang, parallel=self.parallel, family=self.family)

    def sampled(self, server: Capabilities) -> dict[str, float]:
        """Return the sampling options to send, by their common names: what is set, else as `sampling` says.

        Args:
            server: the capabilities of the model server, with what the model's makers recommend.
        """
        usual = {"server": {}, "greedy": _GREEDY, "recommended": server.recommended}[self.sampling]
        set_here = {name: value for name in SAMPLED if (value := getattr(self, name)) is not None}
        return {**usual, **set_here}

    def request(self, server: Capabilities) -> CompletionRequest:
        """Return a request without messages: with the sampling options of each request.

        Args:
            server: the capabilities of the model server, as for `sampled`.
        """
        options = self.sampled(server)
        temperature = options.pop("temperature", None)
        return CompletionRequest(
            messages=(), max_tokens=self.max_tokens, temperature=temperature, options=options, seed=self.seed, progress=True
        )

    @property
    def is_native(self) -> bool:
        """Whether the server's own function calling is used."""
        return self.mode in ("native", "native-only")


# -- what mode `auto` becomes, and the question that a server is tested with -------------------------------------------


_INTEGER: Final = {"type": "integer"}
TRIAL_TOOL: Final = Tool(
    name="multiply",
    description="Multiply two integers.",
    input_schema={"type": "object", "properties": {"a": _INTEGER, "b": _INTEGER}, "required": ["a", "b"]},
)
TRIAL_QUESTION: Final = Message(role="user", content="What is 1234 times 5678? Use the tool.")
TRIAL_ARGUMENTS: Final = {"a": 1234, "b": 5678}
TRIAL_TOKENS: Final = 128

Finding = Literal["called", "leaked", "wrong", "no_call", "unread", "refused", "slow", "no_tools"]
"""The answer to one small question with one tool.

The right call; the right call, but in the text; another call; none; a reply that the server could not read; a refusal; nothing in
time. Or the question was not put, because the server says that the model's template has no tools.
"""

REASONS: Final[dict[Finding, str]] = {
    "called": "the server's own function calling gave the right call",
    "leaked": "the server left the call in the text",
    "wrong": "the server's own function calling gave a wrong call",
    "no_call": "the server's own function calling gave no call",
    "unread": "the server could not read the call that its model wrote",
    "refused": "the server takes no tools for this model",
    "slow": "the server did not answer the check in time",
    "no_tools": "the model's template has no tools",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenWay:
    """How tools are offered, and the finding that decided it; None if it was set."""

    mode: Literal["xml", "native", "native-only", "none"]
    finding: Finding | None = None

    @property
    def reason(self) -> str:
        """Why, in a clause."""
        return REASONS[self.finding] if self.finding else "as set"


def choose_way(finding: Finding) -> ChosenWay:
    """Choose the server's own function calling only where it gave the right call: the prompt works with any server."""
    return ChosenWay(mode="native" if finding == "called" else "xml", finding=finding)


# -- how a person writes it --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskKey:
    about: str  # the line of help
    expected: str  # what a value may be, in words
    example: str
    # Turns text into a value; raises ValueError, KeyError or OverflowError for any other text, or UsageError with the reason.
    read: Callable[[str], Any]


def _choice(values: Collection[str], example: str, about: str) -> AskKey:
    return AskKey(about, f"one of {', '.join(values)}", example, {value: value for value in values}.__getitem__)


def _switch(about: str, example: str = "no") -> AskKey:
    words = {"yes": True, "no": False, "true": True, "false": False}
    return AskKey(about, "yes or no", example, lambda text: words[text.lower()])


def _number(kind: type[int] | type[float], least: float, example: str, about: str) -> AskKey:
    words = "a whole number" if kind is int else "a number"
    limit = f" of at least {least:g}" if math.isfinite(least) else ""
    return AskKey(about, f"{words}{limit}", example, lambda text: _finite(kind(text), least))


def _finite(value: float, least: float = -math.inf) -> float:
    if not (math.isfinite(value) and value >= least):
        raise ValueError(value)
    return value


def _dialect(text: str) -> str:
    """Return the name of a wire format; the row of a file becomes one of the formats that are read."""
    rows = select(text)
    if len(rows) != 1:
        raise UsageError(f"expected one wire format to ask a model for, got {text!r:.80}")
    return rows[0].name


def _threshold(text: str) -> Threshold | None:
    return None if text == "off" else "auto" if text == "auto" else _finite(float(text))


ASK_KEYS: Final[Mapping[str, AskKey]] = {
    "mode": _choice(
        _MODES,
        "native",
        "xml: tools in the prompt, calls read from the text; native: the server's own function calling, and the text where that "
        "loses a call; native-only: without that; none: the model is shown no tools; auto: native if a check at first use shows "
        "that it works, else xml",
    ),
    "dialect": AskKey(
        "the format to ask for calls in, such as one that the model was trained on (docs/reference/dialects.md), or "
        "FILE.toml with a row; calls in any format are read",
        "the name of a wire format",
        "hermes",
        _dialect,
    ),
    "family": _choice(
        FAMILIES, "schema", f"how the prompt shows tools: {'; '.join(f'{each.name}: {each.about}' for each in FAMILIES.values())}"
    ),
    "lang": _choice(LANGUAGES, "zh", "language of the tool prompt and of messages"),
    "parallel": _switch("whether a reply may contain several calls"),
    "reminder": _switch("whether a reminder of the tools follows the question"),
    "call_threshold": AskKey(
        "answer with a call if the log-odds that the model begins one are above this, else in plain words; auto: the model's "
        "own threshold; off: the model decides",
        "a number, auto or off",
        "-2.5",
        _threshold,
    ),
    "tool_tokens": _number(
        int, 1, "2000", "most tokens for the description of the tools; if it is longer, only tools that fit are described in full"
    ),
    "reasoned_calls": _switch("mode native: whether calls that end the reasoning run, if the reply has nothing else", "yes"),
    "max_tokens": _number(int, 1, "512", "most tokens of one reply"),
    "sampling": _choice(
        _SAMPLINGS,
        "recommended",
        "greedy: temperature 0; recommended: what the model's makers recommend, where that is known (`xmlcall profiles show`); "
        "server: the server's own defaults; the keys below take priority",
    ),
    "temperature": _number(float, 0, "0.5", "randomness; 0 suits tool calls of small models best"),
    "top_p": _number(float, 0, "0.9", "the likeliest tokens with this share of the probability"),
    "top_k": _number(int, 0, "20", "so many of the likeliest tokens"),
    "min_p": _number(float, 0, "0.05", "least probability of a token, as a share of the likeliest one's"),
    "presence_penalty": _number(float, -2, "1.5", "makes tokens that have occurred less likely"),
    "repeat_penalty": _number(float, 0, "1.05", "the same, as a factor"),
    "seed": _number(int, -math.inf, "7", "makes random replies repeatable, as far as the server supports it"),
}
"""How a person writes each field of `Asking`."""

SERVED: Final = tuple(name for name in ASK_KEYS if name not in ("parallel", "max_tokens", "seed", *SAMPLED))
"""The fields that a proxy sets; each request brings the others."""


def read_ask(key: str, text: str, keys: Collection[str] = tuple(ASK_KEYS)) -> tuple[str, Any]:
    """Return the name of one of these fields and its value, as a person wrote them; `-` in a key is read as `_`."""
    name = key.strip().replace("-", "_")
    if name not in keys:
        why = "has no effect here" if name in ASK_KEYS else "unknown key"
        near = difflib.get_close_matches(name, keys, n=1)
        raise UsageError(f"{key[:80]}: {why}; expected one of {', '.join(dict.fromkeys([*near, *keys]))}")
    row = ASK_KEYS[name]
    try:
        return name, row.read(text.strip())
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    except (ValueError, KeyError, OverflowError):
        raise UsageError(f"{name}: expected {row.expected}, such as {name}={row.example}, got {text[:40]!r}") from None


def read_ask_table(table: Mapping[str, Any], keys: Collection[str] = tuple(ASK_KEYS)) -> AskingFields:
    """Return the fields that a table of a file sets; errors are those of `read_ask`."""
    words = {True: "yes", False: "no"}
    read = [read_ask(key, words[value] if isinstance(value, bool) else str(value), keys) for key, value in table.items()]
    return cast(AskingFields, dict(read))
