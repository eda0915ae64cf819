"""How far a sweep goes: a part of it in `make test`, all of it in `make test-full`, whose Hypothesis profile is `deep`.

A sweep is a test that tries many of a kind: examples of a property, cuts of a text, a product of parameters. Each tries every
dialect, template and case in both profiles; what grows is how many of their combinations it tries.
"""

import itertools
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import settings

__all__ = ["covering", "examples", "is_deep", "scaled"]

_USUAL = 100  # examples of Hypothesis's own profile
_LEAST = 3  # examples of a property in `make test`
MOST = int(os.environ.get("XMLCALL_COMBINATIONS", "250"))  # of parameters; `make fuzz` takes all
# `make test` tries the same examples at each run, so that it fails only for what was changed. The deep profile tries new ones.
settings.register_profile("quick", max_examples=_USUAL // 10, derandomize=True, deadline=None)  # a busy machine is no fault
settings.register_profile("deep", max_examples=_USUAL, deadline=None)
settings.load_profile("quick")  # `--hypothesis-profile` comes later


def is_deep() -> bool:
    """Tell whether sweeps go all the way."""
    return settings().max_examples >= _USUAL


def scaled(usual: int) -> int:
    """Scale a size to the profile: a tenth in `make test`."""
    return usual * settings().max_examples // _USUAL


def examples(usual: int) -> int:
    """Scale a number of examples to the profile."""
    return max(_LEAST, scaled(usual))


def covering(*factors: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Combine parameters: in the deep profile all with all, of many an even share; else each value of each factor at least once.

    The values of shorter factors are taken in turn, one further at each round, so that a value meets another one each time.
    """
    values: list[Sequence[Any]] = [list(factor) for factor in factors]
    if is_deep():
        step = -(-math.prod(map(len, values)) // MOST)
        places = itertools.product(*(range(len(each)) for each in values))
        return [tuple(each[at] for each, at in zip(values, row, strict=True)) for row in places if sum(row) % step == 0]
    longest = max(map(len, values))
    return [tuple(each[(at + at // len(each)) % len(each)] for each in values) for at in range(longest)]
