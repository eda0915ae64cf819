"""The model of a command, once it is open: its profile, and warnings about it.

The profile of a model is known only once the model is open. So a command first checks the user's own options, then opens the
model, and then fills in the options that were not given (`use_profile`).
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
    """Return the backend for `--model` and `--context`, not yet open; `opening` shows progress until it is open."""
    from ..backends.connect import connect

    backend = connect(name, context_length=context, progress=opening.progress)
    opening.model = backend.model or opening.model
    return backend


def profile_of(options: argparse.Namespace, fingerprints: Collection[str]) -> "FoundProfile | None":
    """Return the profile to use.

    Raises:
        UsageError: the profile that was named does not exist or cannot be read.
    """
    from ..profiles.folder import chosen

    return chosen(options.profile, fingerprints, complain)


def use_profile(options: argparse.Namespace, fingerprints: Collection[str]) -> "FoundProfile | None":
    """Fill in `mode`, `dialect`, `family` and `call_threshold` from the profile of the model where they were not given (None)."""
    found = profile_of(options, fingerprints)
    if found is None or found.profile is None:
        return None
    from ..profiles.profile import filled_in

    given = {name: getattr(options, name) for name in ("mode", "dialect", "family", "call_threshold", "reminder")}
    for name, value in filled_in(found.profile, {name: value for name, value in given.items() if value is not None}).items():
        setattr(options, name, value)
    return found


def profile_words(options: argparse.Namespace, found: "FoundProfile") -> str:
    """Describe the profile in use and its settings: `NAME (SOURCE): xml, list, threshold auto`."""
    from ..profiles.profile import way_in_words

    threshold = call_threshold_of(options)
    words = way_in_words(
        options.mode or "xml", dialect_of(options), family_of(options), "off" if threshold is None else threshold
    )
    return f"{found.name} ({found.source}): {words}"


def profile_json(options: argparse.Namespace, found: "FoundProfile | None") -> dict[str, str] | None:
    """Return the profile in use, for `--json`."""
    if found is None:
        return None
    return {"name": found.name, "source": found.source, "settings": profile_words(options, found).partition(": ")[2]}


def model_notices(backend: Backend, mode: str, say: Say) -> Iterator[str]:
    """Yield warnings about likely problems with a model, and what to do about them."""
    if backend.capabilities.chat_template is False:
        yield say("no_template", model=visible(backend.model))
    if mode == "native" and backend.capabilities.native_tools is False:
        yield say("no_native")
