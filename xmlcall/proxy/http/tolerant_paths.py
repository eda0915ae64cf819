"""Paths as clients write them: a base URL without `/v1`, with it twice, or with a slash at the end.

Some clients add `/v1` to the base URL that they are given, others do not.
"""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["TolerantPaths", "tidy"]

_VERSION: Final = "/v1"
_PAGES: Final = "/ui/"  # pages for people, whose links have the paths that were meant
_WITHOUT: Final = ("/chat/completions", "/completions", "/embeddings", "/messages", "/models", "/rerank", "/responses")


def tidy(path: str) -> str:
    """Return the path that was meant."""
    path = path.rstrip("/") or "/"
    while path.startswith(f"{_VERSION}{_VERSION}/"):
        path = path.removeprefix(_VERSION)
    is_bare = any(path == each or path.startswith(f"{each}/") for each in _WITHOUT)
    return f"{_VERSION}{path}" if is_bare else path


class TolerantPaths:
    """ASGI middleware that passes requests on under the path that was meant."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and not scope["path"].startswith(_PAGES) and (path := tidy(scope["path"])) != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)
