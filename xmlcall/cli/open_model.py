"""The model of a command, once it is open: its profile, and warnings about it.

The profile of a model is known only once the model is open. So a command first checks the user's `--ask`, then opens the model,
and then determines the settings with its profile (`asking_of`).
"""

import argparse
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ..backends.base import Backend
from .exits import complain
from .plain import visible
from .words import Say

if TYPE_CHECKING:
    from ..profiles.profile import FoundProfile
    from ..turn.asking import Asking, ChosenWay
    from .waiting import OpeningStatus


def connected(name: str | None, context: int | None, opening: "OpeningStatus", api_key: str | None = None) -> Backend:
    """Return the backend for `--model` and `--context`, not yet open; `opening` shows progress until it is open."""
    from ..backends.connect import connect

    backend = connect(
        model_to_talk_to() if name is None else name, context_length=context, api_key=api_key, progress=opening.progress
    )
    opening.model = backend.model or opening.model
    return backend


def model_to_talk_to() -> str:
    """Return the default model of `chat` and `ui`: the larger one, if there is memory for it."""
    from ..backends.gguf import available_memory
    from ..models import known as models

    memory = available_memory()
    has_room = memory is None or memory >= models.KNOWN[models.TALKS_BETTER].memory
    return models.TALKS_BETTER if has_room else models.DEFAULT_MODEL


def asking_of(options: argparse.Namespace, found: "FoundProfile | None" = None) -> "Asking":
    """Return how `run`, `chat` and `ui` ask a model: by `--ask`, else its profile, else their defaults."""
    from ..profiles.profile import asking_by
    from ..turn.asking import Asking

    usual = Asking(sampling="greedy", max_tokens=2048)
    return asking_by(usual, options.ask, found.profile if found else None)


def profile_of(options: argparse.Namespace, fingerprints: Collection[str]) -> "FoundProfile | None":
    """Return the profile to use: the one that `--profile` names, or the one of the model."""
    from ..profiles.profile import chosen

    return chosen(options.profile, fingerprints, complain)


def profile_words(asking: "Asking", found: "FoundProfile") -> str:
    """Describe the profile in use and the settings: `NAME (SOURCE): xml, list, threshold auto`."""
    from ..profiles.profile import asking_in_words

    return f"{found.name} ({found.source}): {asking_in_words(asking)}"


def profile_json(asking: "Asking", found: "FoundProfile | None") -> dict[str, str] | None:
    if found is None:
        return None
    return {"name": found.name, "source": found.source, "settings": profile_words(asking, found).partition(": ")[2]}


def way_words(way: "ChosenWay | None") -> str:
    """Describe how `serve` offers tools to a model, and why; None if a check decides that."""
    if way is None:
        return "tools: the first request that has some checks the server's own function calling; where that fails, in the prompt"
    how = {"native": "by the server's own function calling", "none": "not shown to the model"}.get(way.mode, "in the prompt")
    return f"tools: {how} (mode {way.mode}; {way.reason})"


def model_notices(backend: Backend, mode: str, say: Say) -> Iterator[str]:
    """Yield warnings about likely problems with a model, and what to do about them."""
    if backend.capabilities.chat_template is False:
        yield say("no_template", model=visible(backend.model))
    if mode == "native" and backend.capabilities.native_tools is False:
        yield say("no_native")
    if mode == "none":
        yield say("no_tools_shown", model=visible(backend.model))
