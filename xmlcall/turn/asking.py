"""The settings with which a model is asked: one value, with one default for each field.

Profiles, the command line, configuration files and Python code create it; the loop, the proxy and the harness accept it. How a
person writes each field: `ask_keys`.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal, TypedDict, get_args

from ..errors import UsageError
from ..prompting.format import PromptFormat
from ..types.completion import CompletionRequest

__all__ = ["Asking", "AskingFields", "Mode", "Threshold"]

Threshold = float | Literal["auto"]
Mode = Literal["xml", "native", "native-only", "auto"]
_MODES: Final[tuple[str, ...]] = get_args(Mode)


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
    temperature: float | None
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
        temperature: None leaves it to the server.
        seed: None leaves it to the server.

    Raises:
        UsageError: unknown mode, dialect, language or family; or the threshold is not a finite number.
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
    temperature: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.mode not in _MODES:
            raise UsageError(f"mode must be one of {', '.join(map(repr, _MODES))}, got {self.mode!r}")
        threshold = self.call_threshold
        if threshold not in (None, "auto") and not (isinstance(threshold, (int, float)) and math.isfinite(threshold)):
            raise UsageError(f"expected a finite number or 'auto' as the call threshold, got {threshold!r}")
        _ = self.format

    @property
    def format(self) -> PromptFormat:
        """The format in which prompts are written."""
        return PromptFormat(dialect=self.dialect, lang=self.lang, parallel=self.parallel, family=self.family)

    @property
    def sampling(self) -> CompletionRequest:
        """The sampling options of each request, as a request without messages."""
        return CompletionRequest(
            messages=(), max_tokens=self.max_tokens, temperature=self.temperature, seed=self.seed, progress=True
        )

    @property
    def is_native(self) -> bool:
        """Whether the server's own function calling is used."""
        return self.mode in ("native", "native-only")
