"""`--profile`: the settings of a model's profile, where the person has not asked for others.

Whether a model has a profile is known only once it is open. So a command checks the person's own options first, opens the
model, and then fills in what was not given (`use_profile`).
"""

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING

from .exits import complain
from .options import call_threshold_of, dialect_of, family_of

if TYPE_CHECKING:
    from ..profiles.folder import FoundProfile

__all__ = ["profile_json", "profile_of", "profile_words", "use_profile"]


def profile_of(options: argparse.Namespace, fingerprints: Collection[str]) -> "FoundProfile | None":
    """Return the profile that is to be used.

    Raises:
        UsageError: one was asked for that there is not, or that cannot be read.
    """
    from ..profiles.folder import chosen

    return chosen(options.profile, fingerprints, complain)


def use_profile(options: argparse.Namespace, fingerprints: Collection[str]) -> "FoundProfile | None":
    """Fill in the settings that were not given, from the profile of the model.

    Args:
        options: of the command; `mode`, `dialect`, `family` and `call_threshold` are None where they were not given.
    """
    found = profile_of(options, fingerprints)
    if found is None or found.profile is None:
        return None
    profile = found.profile
    if not any((options.mode, options.dialect, options.family, options.call_threshold)):
        options.mode = profile.way
    if options.mode != "native":
        options.family = options.family or profile.family
        options.dialect = options.dialect or profile.dialect
        # A number is that of a prompt.
        holds = profile.call_threshold == "off" or (options.dialect, options.family) == (profile.dialect, profile.family)
        if options.call_threshold is None and options.reminder and holds:
            options.call_threshold = profile.call_threshold
    return found


def profile_words(options: argparse.Namespace, found: "FoundProfile") -> str:
    """Say which profile is used, and how the model is asked with it: `NAME (SOURCE): xml, list, threshold auto`."""
    from ..profiles.profile import way_in_words

    threshold = call_threshold_of(options)
    words = way_in_words(
        options.mode or "xml", dialect_of(options), family_of(options), "off" if threshold is None else threshold
    )
    return f"{found.name} ({found.source}): {words}"


def profile_json(options: argparse.Namespace, found: "FoundProfile | None") -> dict[str, str] | None:
    """Return which profile is used, for `--json`."""
    if found is None:
        return None
    return {"name": found.name, "source": found.source, "settings": profile_words(options, found).partition(": ")[2]}
