"""In-process replacements for the clients of model servers: any model gets tool calling, without a server process or a port.

`openai.OpenAI(api_key="-", http_client=xmlcall.clients.httpx2_client("local"))` is OpenAI's own client with a local model, and
`anthropic.Anthropic` takes the same argument. Whatever base URL the client has, only the requests to the model server leave the
process. `xmlcall.clients.ollama` replaces the `ollama` package. All names are loaded on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .transports import AsyncTransport, Transport, async_httpx2_client, async_httpx_client, httpx2_client, httpx_client

__all__ = ["AsyncTransport", "Transport", "async_httpx2_client", "async_httpx_client", "httpx2_client", "httpx_client"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import transports

    return getattr(transports, name)
