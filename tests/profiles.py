"""How many examples a property is tried with: as many as its test says, a tenth of them with `--hypothesis-profile=quick`."""

from hypothesis import settings

__all__ = ["examples"]

_USUAL = 100  # examples of Hypothesis's own profile
settings.register_profile("quick", max_examples=_USUAL // 10)


def examples(usual: int) -> int:
    """Scale a number of examples to the profile."""
    return max(1, usual * settings().max_examples // _USUAL)
