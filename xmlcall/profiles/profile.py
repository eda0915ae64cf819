"""A profile: the settings with which a model is asked for calls, and the measurements behind them. Plain data.

The language of the prompt is not part of a profile, because it is the user's choice. Missing settings have the current defaults,
so a profile can be as short as the name of a model and one setting.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..errors import UsageError
from ..prompting.format import ENGLISH, PromptFormat

__all__ = ["WAYS", "CallThreshold", "Figure", "Measurement", "Profile", "ProfileWay", "Rate", "way_in_words"]

ProfileWay = Literal["xml", "native"]
WAYS: Final[tuple[ProfileWay, ...]] = ("xml", "native")

CallThreshold = float | Literal["auto", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many of some questions were answered correctly.

    Args:
        low: lower end of the 95 % interval, a share from 0 to 1.
    """

    right: int
    total: int
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The results of one way of asking.

    Args:
        calls: for questions that need a call, those answered with exactly the right calls.
    """

    way: str
    calls: Rate
    none: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The measurement behind a profile."""

    on: str
    version: str
    cases: str
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How a model is asked for calls.

    Args:
        model: its name, for people.
        fingerprints: identifiers of the model (`Capabilities.fingerprints`); one match is enough.
        way: `xml` offers tools in the prompt; `native` uses the server's own function calling, and also reads calls in the text.
        dialect: the wire format of calls that the prompt asks for, with `xml`.
        family: the family of the prompt, with `xml`.
        call_threshold: log-odds of a call above which a message is answered with one (see `tool_need`); `auto`, or `off`.
        measured: the measurement behind these settings; None if they are defaults that were not measured.

    Raises:
        UsageError: unknown setting.
    """

    model: str
    fingerprints: tuple[str, ...] = ()
    way: ProfileWay = "xml"
    dialect: str = ENGLISH.dialect
    family: str = ENGLISH.family
    call_threshold: CallThreshold = "auto"
    measured: Measurement | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.way not in WAYS:
            raise UsageError(f"way: expected one of {', '.join(WAYS)}, got {self.way!r:.80}")
        PromptFormat(dialect=self.dialect, family=self.family)
        if not _is_threshold(self.call_threshold):
            raise UsageError(f"call_threshold: expected a finite number, 'auto' or 'off', got {self.call_threshold!r:.80}")

    @property
    def words(self) -> str:
        """The settings in a few words."""
        return way_in_words(self.way, self.dialect, self.family, self.call_threshold)


def way_in_words(way: str, dialect: str, family: str, call_threshold: CallThreshold) -> str:
    """Describe how a model is asked: `xml, list, threshold auto`; our own wire format is not named."""
    if way == "native":
        return "native"
    threshold = call_threshold if isinstance(call_threshold, str) else f"{call_threshold:g}"
    return ", ".join(["xml" if dialect == ENGLISH.dialect else dialect, family, f"threshold {threshold}"])


def _is_threshold(value: Any) -> bool:
    if isinstance(value, str):
        return value in ("auto", "off")
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
