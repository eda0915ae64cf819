"""How a person writes the fields of `Asking`: `--ask KEY=VALUE` on the command line, and `[ask]` in a file."""

import difflib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast, get_args

from ..dialects import select
from ..errors import UsageError
from ..prompting.format import FAMILIES, LANGUAGES
from ..types.completion import SAMPLED
from .asking import AskingFields, Mode, Sampling, Threshold


@dataclass(frozen=True, slots=True)
class AskKey:
    """A field of `Asking`.

    Args:
        about: the line of help.
        expected: what a value may be, in words.
        read: turns text into a value; raises ValueError, KeyError or OverflowError for any other text, or UsageError with the
            reason.
    """

    about: str
    expected: str
    example: str
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
        get_args(Mode),
        "native",
        "xml: tools in the prompt, calls read from the text; native: the server's own function calling, and the text where that "
        "loses a call; native-only: without that; auto: native if a check at first use shows that it works, else xml",
    ),
    "dialect": AskKey(
        "the format to ask for calls in, such as one that the model was trained on (docs/dialects.md), or FILE.toml with a row; "
        "calls in any format are read",
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
        "answer with a call if the log-odds that the model begins one are above this, else in plain words: a number from "
        "`xmlcall bench calibrate`; auto: the model's own; off: the model decides",
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
        get_args(Sampling),
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
    """Return the name of a field and its value, as a person wrote them; `-` in a key is read as `_`.

    Args:
        keys: the fields that can be set here.

    Raises:
        UsageError: unknown key or wrong value; the message says what was expected.
    """
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
    """Return the fields that a table of a file sets.

    Raises:
        UsageError: as for `read_ask`.
    """
    words = {True: "yes", False: "no"}
    read = [read_ask(key, words[value] if isinstance(value, bool) else str(value), keys) for key, value in table.items()]
    return cast(AskingFields, dict(read))
