"""The settings with which a model is asked: one value, with one default for each field.

Profiles, the command line, configuration files and Python code create it; the loop, the proxy and the harness accept it. How a
person writes each field: `ask_keys`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypedDict, get_args

from ..errors import UsageError
from ..prompting.format import PromptFormat
from ..types.completion import SAMPLED, Capabilities, CompletionRequest

Threshold = float | Literal["auto"]
Mode = Literal["xml", "native", "native-only", "auto"]
Sampling = Literal["server", "greedy", "recommended"]
_MODES: Final[tuple[str, ...]] = get_args(Mode)
_SAMPLINGS: Final[tuple[str, ...]] = get_args(Sampling)
_GREEDY: Final[Mapping[str, float]] = {"temperature": 0.0}


class AskingFields(TypedDict, total=False):
    """The fields of `Asking` as keywords."""

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
            neither. `auto` is `native` if a check before first use shows that it works (`way`), else `xml`.
        dialect: name of the format in which the model is asked to write calls (docs/reference/dialects.md); all formats are read.
        family: how the system prompt shows tools (see `prompting.format`).
        lang: language of the prompts, `en` or `zh`.
        parallel: whether a reply may contain several calls.
        reminder: whether a reminder of the tools is appended to the user's message.
        call_threshold: log-odds of a call: above it, the user's message is answered with a call, below it in plain words (see
            `tool_need`). `auto` determines the model's own threshold; None lets the model decide. Only in mode `xml`, with
            servers that report token probabilities.
        tool_tokens: how many tokens of the prompt, by our estimate, the tool descriptions may take; if they need more, some tools
            are shown in part (see `grades`). None derives the limit from the model's context.
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
        """The format in which prompts are written."""
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
