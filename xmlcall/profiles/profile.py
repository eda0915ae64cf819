"""A profile: the settings with which a model is asked for calls, and the measurements behind them. Plain data.

The language of the prompt is not part of a profile, because it is the user's choice. Missing settings have the current defaults,
so a profile can be as short as the name of a model and one setting.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

from ..errors import UsageError
from ..prompting.format import ENGLISH
from ..turn.asking import Asking, AskingFields

__all__ = [
    "PROFILED",
    "WAYS",
    "CallThreshold",
    "Figure",
    "Measurement",
    "Profile",
    "ProfileWay",
    "Rate",
    "asking_by",
    "asking_in_words",
    "way_in_words",
]

PROFILED: Final = ("mode", "dialect", "family", "call_threshold")
"""The fields of `Asking` that a profile sets."""

ProfileWay = Literal["xml", "native"]
WAYS: Final[tuple[ProfileWay, ...]] = ("xml", "native")

CallThreshold = float | Literal["auto", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many of some questions were answered correctly."""

    right: int
    total: int
    low: float  # ends of the 95 % interval, shares from 0 to 1
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The results of one way of asking."""

    way: str
    calls: Rate  # of questions that need a call: answered with exactly the right calls
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
        number = isinstance(self.call_threshold, (int, float)) and math.isfinite(self.call_threshold)
        if not number and self.call_threshold not in ("auto", "off"):
            raise UsageError(f"call_threshold: expected a finite number, 'auto' or 'off', got {self.call_threshold!r:.80}")
        _ = self.asking

    @property
    def asking(self) -> Asking:
        """The settings as the loop, the proxy and the harness take them."""
        threshold = None if self.way == "native" or self.call_threshold == "off" else self.call_threshold
        return Asking(mode=self.way, dialect=self.dialect, family=self.family, call_threshold=threshold)

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


def asking_in_words(asking: Asking) -> str:
    """Describe how a model is asked (see `way_in_words`)."""
    threshold = "off" if asking.call_threshold is None else asking.call_threshold
    return way_in_words("native" if asking.mode.startswith("native") else "xml", asking.dialect, asking.family, threshold)


def asking_by(usual: Asking, given: AskingFields, profile: Profile | None = None) -> Asking:
    """Return how to ask a model: as given, else as its profile says, else as usual.

    Raises:
        UsageError: what was given cannot be combined.
    """
    asking = replace(usual, **given)
    if profile is not None and not any(name in given for name in PROFILED):
        asking = replace(asking, mode=profile.way)
    is_native = asking.mode in ("native", "native-only")
    _check(given, usual, is_native=is_native)
    if profile is not None and not is_native:
        asking = replace(asking, dialect=given.get("dialect", profile.dialect), family=given.get("family", profile.family))
    if "call_threshold" in given:
        return asking
    return replace(asking, call_threshold=_threshold(asking, profile, is_native=is_native))


def _threshold(asking: Asking, profile: Profile | None, *, is_native: bool) -> float | Literal["auto"] | None:
    """Return the threshold of a profile, else `auto`; none where no reminder depends on it."""
    if is_native or not asking.reminder or (profile and profile.call_threshold == "off"):
        return None
    # It was measured with one prompt, so it holds for that dialect and family only.
    holds = profile and (asking.dialect, asking.family) == (profile.dialect, profile.family)
    return profile.call_threshold if profile and holds and profile.call_threshold != "off" else "auto"


def _check(given: AskingFields, usual: Asking, *, is_native: bool) -> None:
    if given.get("mode") == "auto" and usual.mode != "auto":
        raise UsageError("mode=auto is for the proxy (`xmlcall serve`); expected xml, native or native-only")
    if is_native and "dialect" in given:
        raise UsageError("dialect is the format of calls in the text, so it cannot be combined with mode=native")
    if given.get("call_threshold") is not None and (is_native or not given.get("reminder", True)):
        raise UsageError("call_threshold needs the reminder, so it cannot be combined with reminder=no or mode=native")
