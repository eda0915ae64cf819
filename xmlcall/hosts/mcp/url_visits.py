"""Addresses that a person has to visit before a call can be done: the error -32042 (MCP 2025-11-25, URL elicitation required).

The server says by this error that it has not done the request, and why. Each address is shown to the person as in an elicitation;
if they agree to all of them and are done there, the call is made once more. A second such error is the answer.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mcp import MCPError
from mcp import types as mcp
from pydantic import ValidationError

from .callbacks import Calls, elicitation_of
from .requests import Elicit, UrlRequest

__all__ = ["visited"]

_MOST: Final = 5  # addresses for one call


async def visited(server: str, error: MCPError, calls: Calls, elicit: Elicit | None) -> bool:
    """Ask the person to visit what a server wants visited; say whether the call may be made again."""
    requests = list(_requests(server, error))
    if elicit is None or not 0 < len(requests) <= _MOST or not all(isinstance(each, UrlRequest) for each in requests):
        return False
    for request in requests:
        assert isinstance(request, UrlRequest)
        if calls.refusal("elicit"):
            return False
        answer = await calls.during(elicit(replace(request, is_awaited=True)))
        if answer is None or answer.action != "accept":
            return False
    return True


def _requests(server: str, error: MCPError) -> Iterator[object]:
    """Yield the requests of an error; what is none, or has an address that must not be visited, is something else."""
    data = error.data if error.code == mcp.URL_ELICITATION_REQUIRED and isinstance(error.data, dict) else {}
    wanted = data.get("elicitations")
    for each in wanted if isinstance(wanted, list) else ():
        try:
            yield elicitation_of(server, mcp.ElicitRequestURLParams.model_validate(each))
        except ValidationError:
            yield None
