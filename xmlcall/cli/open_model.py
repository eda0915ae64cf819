"""The model of a command, once it is open: by which profile it is asked, and what a person should know of it.

Whether a model has a profile is known only once it is open. So a command checks the person's own options first, opens the
model, and then fills in what was not given (`use_profile`).
"""

import argparse
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ..backends.base import Backend
from .exits import complain
from .options import call_threshold_of, dialect_of, family_of
from .plain import visible
from .words import Say

if TYPE_CHECKING:
    from ..profiles.folder import FoundProfile
    from .waiting import OpeningStatus

__all__ = ["connected", "model_notices", "profile_json", "profile_of", "profile_words", "use_profile"]


def connected(name: str, context: int | None, opening: "OpeningStatus") -> Backend:
    """Return the backend of `--model` and `--context`, not yet open; `opening` shows what it does until it is."""
    from ..backends.connect import connect

    backend = connect(name, context_length=context, progress=opening.progress)
    opening.model = backend.model or opening.model
    return backend


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


def model_notices(backend: Backend, mode: str, say: Say) -> Iterator[str]:
    """Yield what is likely to go wrong with a model, and what to do about it."""
    if backend.capabilities.chat_template is False:
        yield say("no_template", model=visible(backend.model))
    if mode == "native" and backend.capabilities.native_tools is False:
        yield say("no_native")
