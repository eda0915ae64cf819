"""In-process drop-ins for the clients of model servers: any model gets tool calling, with no server process and no port.

`openai.OpenAI(api_key="-", http_client=xmlcall.clients.httpx2_client("local"))` is OpenAI's own client on a local model, and
`anthropic.Anthropic` takes the same argument. Whatever address the client has, nothing leaves the process but what the model
server is asked. `xmlcall.clients.ollama` stands in for the `ollama` package. The names load on first use.
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
