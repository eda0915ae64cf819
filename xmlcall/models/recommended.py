"""The sampling that the makers of a model recommend: temperature and the like, with the page that says so."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LONGEST: Final = 200  # characters of a name; a server chooses it


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """What the makers of a family of models recommend: a row of `recommended.toml`."""

    family: str
    names: str  # a pattern for the beginning of a model's name, in lower case, with `-` for blanks and `_`
    values: Mapping[str, float]  # sampling options by their common names (`types.completion.SAMPLED`)
    source: str  # the page that states them
    read: str  # the date on which it was read
    opens_thought: bool = False  # whether this holds only if the chat template opens a thought


_FILE: Final = Path(__file__).with_name("recommended.toml")
RECOMMENDED: Final = tuple(Recommended(**row) for row in tomllib.loads(_FILE.read_text("utf-8"))["row"])
"""The first row that fits counts."""


def recommended(*names: str, opens_thought: bool = False) -> Recommended | None:
    """Return what the makers of a model recommend; None if that is unknown.

    The names are those of its server and of its file; `opens_thought` says whether its chat template opens a thought.
    """
    called = list(_forms(names))
    rows = (row for row in RECOMMENDED if opens_thought or not row.opens_thought)
    return next((row for row in rows if any(re.match(row.names, name) for name in called)), None)


def recommended_values(*names: str, opens_thought: bool = False) -> dict[str, float]:
    """Return the sampling options that the makers of a model recommend; empty if unknown."""
    row = recommended(*names, opens_thought=opens_thought)
    return dict(row.values) if row else {}


def _forms(names: Iterable[str]) -> Iterator[str]:
    """Yield the names to compare: without folders, and also without a maker in front, as in `maker_Model`."""
    for name in names:
        last = re.split(r"[/\\]", name[-_LONGEST:].strip().lower())[-1]
        for form in (last, last.partition("_")[2]):
            if form:
                yield re.sub(r"[\s_]+", "-", form)


def in_words(values: Mapping[str, float]) -> str:
    """Write sampling options: `temperature 0.7, top_p 0.8`."""
    return ", ".join(f"{name} {value:g}" for name, value in values.items())
