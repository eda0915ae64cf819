"""The small paths of Ollama's API: which models there are, what they can do, which version this is, and what is refused.

The proxy serves one model. A request to fetch it succeeds at once, since it is there. Requests to make, copy, delete or publish
models are refused, also in front of an Ollama: a caller may talk to the model, and not change the server's models.

Source: Ollama, docs/api.md; api/types.go for the fields.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from .ollama import now

__all__ = ["PULLED", "REFUSED", "is_named", "running", "show", "tags", "version", "with_tools"]

VERSION: Final = "0.32.15"
"""The Ollama whose API this is; clients ask for a least version."""

PULLED: Final = tuple(
    {"status": words} for words in ("pulling manifest", "verifying sha256 digest", "writing manifest", "success")
)
"""What `POST /api/pull` says of a model that is there already, a line each; not streamed it is the last alone."""

REFUSED: Final = (("POST", "/api/create"), ("POST", "/api/copy"), ("POST", "/api/push"), ("DELETE", "/api/delete"))
"""Paths that would change the model server's models."""

_DETAILS: Final = {"format": "gguf", "family": "xmlcall", "families": ["xmlcall"], "parameter_size": "", "quantization_level": ""}


def _listed(model: str) -> dict[str, Any]:
    digest = hashlib.sha256(model.encode("utf-8", "replace")).hexdigest()  # `ollama list` shows 12 digits of it and needs them
    return {"name": model, "model": model, "size": 0, "digest": digest, "details": dict(_DETAILS)}


def is_named(model: str, name: str) -> bool:
    """Say whether a name means a model; without a tag it means `latest`."""
    tagged = [each if ":" in each.rpartition("/")[2] else f"{each}:latest" for each in (model, name)]
    return tagged[0] == tagged[1]


def tags(models: Iterable[str]) -> dict[str, Any]:
    """Write the answer of `GET /api/tags`: the models that there are."""
    return {"models": [_listed(model) | {"modified_at": now()} for model in models]}


def running(models: Mapping[str, int | None]) -> dict[str, Any]:
    """Write the answer of `GET /api/ps`: the models that are loaded.

    Args:
        models: by name, how many tokens their contexts hold; None if that is not known.
    """
    loaded_now = {"expires_at": now(timedelta(days=1)), "size_vram": 0}
    return {"models": [_listed(model) | loaded_now | {"context_length": length or 0} for model, length in models.items()]}


def show(model: str, context_length: int | None) -> dict[str, Any]:
    """Write the answer of `POST /api/show`: what a model is."""
    information: dict[str, Any] = {"general.architecture": "xmlcall", "general.basename": model}
    if context_length is not None:
        information["xmlcall.context_length"] = context_length
    return {
        "capabilities": ["completion", "tools"],
        "details": dict(_DETAILS),
        "model_info": information,
        "template": "",
        "parameters": "",
        "license": "",
        "modified_at": now(),
    }


def version() -> dict[str, Any]:
    """Write the answer of `GET /api/version`."""
    return {"version": VERSION}


def with_tools(show_body: Mapping[str, Any]) -> dict[str, Any]:
    """Add `tools` to the capabilities that a real Ollama's `/api/show` tells of a model.

    Args:
        show_body: its answer; a model that completes nothing, such as one for embeddings, stays as it is.
    """
    told = show_body.get("capabilities")
    abilities = told if isinstance(told, list) else ["completion"]  # before 0.6.4 it told none
    added = ["tools"] if "completion" in abilities and "tools" not in abilities else []
    return dict(show_body) | {"capabilities": [*abilities, *added]}
