"""A server that gives tool calling to any model: the wire formats of OpenAI, Anthropic and Ollama, on top of one engine."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import create_app
    from .configured import configured_app
    from .http.access import Guard, key_of

__all__ = ["Guard", "configured_app", "create_app", "key_of"]

_HOMES = {"create_app": ".app", "configured_app": ".configured", "Guard": ".http.access", "key_of": ".http.access"}


def __getattr__(name: str) -> Any:  # on first use, so that the pure modules of this package load without a web framework
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)
