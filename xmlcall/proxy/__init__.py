"""A server that gives tool calling to any model: the wire formats of OpenAI, Anthropic and Ollama, on top of one engine."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import create_app
    from .configured import configured_app
    from .http.access import Guard, key_of

__all__ = ["Guard", "configured_app", "create_app", "key_of"]


def __getattr__(name: str) -> Any:  # on first use, so that the pure modules of this package load without a web framework
    if name == "create_app":
        from .app import create_app

        return create_app
    if name == "configured_app":
        from .configured import configured_app

        return configured_app
    if name in ("Guard", "key_of"):
        from .http import access

        return getattr(access, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
