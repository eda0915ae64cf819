"""Connects `ClientFeatures` to the callbacks of the SDK: limits a server's requests, converts and answers them.

Forms, addresses and completions are requested on behalf of a call. So they are answered only while a call runs, in limited
number, and they end with it: the user is never left with a question from a call that was stopped.

The time limit of a call restarts with each progress report, and is paused while the user or a model is asked. A server that
reports progress forever is limited, too: in total a call may take `MOST` times its limit (MCP 2025-11-25, lifecycle: clients
SHOULD enforce a maximum timeout, regardless of progress).
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

import anyio
from mcp import MCPError
from mcp import types as mcp
from mcp.client.session import ClientRequestContext
from pydantic import ValidationError

from ...errors import XmlcallError
from ...schema.mending import mended
from ...types.calls import Message
from .server_requests import (
    ClientFeatures,
    Elicit,
    FormRequest,
    LogMessage,
    SampleReply,
    SampleRequest,
    UrlRequest,
    problems,
    unusable,
    with_defaults,
)

MOST: Final = 10.0  # how many times its limit a call may take in total
MAX_ASKED: Final = {"elicit": 20, "sample": 10}  # how often a server may ask during one call
MAX_SAMPLE_TOKENS: Final = 4096  # the most tokens of one completion, whatever a server asks for
MAX_LOGGED: Final = 20  # log messages of one server in a second; more are counted and left out
_MAX_SAMPLE_CHARACTERS = 50_000  # a person has to read them
_MAX_MESSAGE = 10_000
_MAX_URL = 8000
_REFUSED = -1  # the code of MCP's example for a person who refuses a completion
_STOP_REASONS = {"stop": "endTurn", "length": "maxTokens"}

T = TypeVar("T")


class CallPatience:
    """Limits one call; `async with` raises TimeoutError past the limit, and may be entered again for another try."""

    def __init__(self, limit: float, *, may_ask: bool = True) -> None:
        self.limit, self.may_ask = limit, may_ask
        self._left = limit * MOST  # what was left of the total at `_since`
        self._since = 0.0
        self._resting = 0
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        self._since = _now()
        self._reset()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self._spend()
        await self._timeout.__aexit__(*raised)

    def renew(self) -> None:
        """Restart the limit, because the server has reported progress."""
        self._spend()
        if not self._resting:
            self._reset()

    @property
    def seconds(self) -> float:
        """The limit that has run out, for a message: the total, or the one between two reports."""
        return self.limit * MOST if self._left <= 0 else self.limit

    @property
    def is_over(self) -> bool:
        return self._timeout.expired()

    @contextlib.contextmanager
    def rest(self) -> Iterator[None]:
        """Pause the limit while the user or a model is asked; pauses may overlap."""
        self._spend()
        self._resting += 1
        self._timeout_at(None)
        try:
            yield
        finally:
            self._since = _now()
            self._resting -= 1
            if not self._resting:
                self._reset()

    def _spend(self) -> None:
        now = _now()
        if not self._resting:
            self._left -= now - self._since
        self._since = now

    def _reset(self) -> None:
        self._timeout_at(_now() + min(self.limit, max(self._left, 0.0)))

    def _timeout_at(self, when: float | None) -> None:
        with contextlib.suppress(RuntimeError):  # it has run out already, or the call has just ended
            self._timeout.reschedule(when)


def _now() -> float:
    return asyncio.get_running_loop().time()


class Calls:
    """The calls of a connection that are waiting for their results."""

    def __init__(self) -> None:
        self._running: list[CallPatience] = []
        self._asking: set[anyio.CancelScope] = set()
        self._asked: Counter[str] = Counter()

    @contextlib.contextmanager
    def running(self, patience: CallPatience) -> Iterator[None]:
        """Let the server ask while a call runs; its questions end with the last call."""
        if not patience.may_ask:
            yield
            return
        if not self._running:
            self._asked.clear()
        self._running.append(patience)
        try:
            yield
        finally:
            self._running.remove(patience)
            if not self._running:
                for scope in self._asking:
                    scope.cancel()

    @property
    def may_ask(self) -> bool:
        """Whether a call is running on whose behalf the user may be asked."""
        return bool(self._running)

    def refusal(self, kind: Literal["elicit", "sample"]) -> str:
        """Count a request; return why it is refused, "" if it is not."""
        if not self._running:
            return "a server may ask only while a call runs"
        self._asked[kind] += 1
        if self._asked[kind] > MAX_ASKED[kind]:
            return f"a server may ask {MAX_ASKED[kind]} times during a call, not more"
        return ""

    async def during(self, question: Awaitable[T]) -> T | None:
        """Wait for an answer while the time limits of all calls are paused; None if the calls end first."""
        with contextlib.ExitStack() as stack:
            for patience in self._running:
                stack.enter_context(patience.rest())
            with anyio.CancelScope() as scope:
                self._asking.add(scope)
                try:
                    return await question
                finally:
                    self._asking.discard(scope)
        return None


class Callbacks:
    def __init__(self, server: str, features: ClientFeatures, calls: Calls) -> None:
        self._server, self._features, self._calls = server, features, calls
        self._given = {
            "elicitation/create": features.elicit is not None,
            "sampling/createMessage": features.sample is not None,
            "roots/list": bool(features.roots),
        }
        self._second = 0
        self._logged = self._left_out = 0

    def for_client(self) -> dict[str, Any]:
        """Return the arguments of the SDK's Client; each callback that is not None declares a capability."""
        features = self._features
        return {
            "elicitation_callback": features.elicit and self._elicit,
            "sampling_callback": features.sample and self._sample,
            "list_roots_callback": self._roots if features.roots else None,
            "logging_callback": features.log and self._log,
            "log_level": features.log_level if features.log else None,
        }

    def asked(self, method: str) -> None:
        """Note a request by the server; report one that is not supported, because the SDK refuses it silently."""
        if not self._given.get(method, True) and self._features.refused is not None:
            self._features.refused(self._server, method)

    async def _asked(
        self, kind: Literal["elicit", "sample"], ask: Callable[[], Awaitable[T]], failed: str
    ) -> T | mcp.ErrorData | None:
        """Ask the user or the model; None if the calls end first."""
        if refusal := self._calls.refusal(kind):
            return _error(mcp.INVALID_REQUEST, refusal)
        try:
            return await self._calls.during(ask())
        except XmlcallError:  # the server does not need the details
            return _error(mcp.INTERNAL_ERROR, failed)

    async def _elicit(self, context: ClientRequestContext, params: mcp.ElicitRequestParams) -> mcp.ElicitResult | mcp.ErrorData:
        elicit, request = self._features.elicit, elicitation_of(self._server, params)
        if isinstance(request, str):
            return _error(mcp.INVALID_PARAMS, request)
        assert elicit is not None
        answer = await self._asked("elicit", lambda: elicit(request), "the question could not be asked")
        if isinstance(answer, mcp.ErrorData):
            return answer
        if answer is None:
            return mcp.ElicitResult(action="cancel")
        if answer.action != "accept" or isinstance(request, UrlRequest):
            return mcp.ElicitResult(action=answer.action)
        content = with_defaults(request.schema, answer.content)
        if wrong := problems(request.schema, content):
            return _error(mcp.INTERNAL_ERROR, f"the answer does not fit the requested schema: {'; '.join(wrong)[:500]}")
        return mcp.ElicitResult(action="accept", content=content)

    async def _sample(
        self, context: ClientRequestContext, params: mcp.CreateMessageRequestParams
    ) -> mcp.CreateMessageResult | mcp.ErrorData:
        sample, request = self._features.sample, _completion(self._server, params)
        if isinstance(request, str):
            return _error(mcp.INVALID_PARAMS, request)
        assert sample is not None
        reply = await self._asked("sample", lambda: sample(request), "the completion failed")
        if not isinstance(reply, SampleReply):
            return reply or _error(_REFUSED, "User rejected sampling request")
        return mcp.CreateMessageResult(
            role="assistant",
            content=mcp.TextContent(type="text", text=reply.text),
            model=reply.model,
            stop_reason=_STOP_REASONS.get(reply.finish_reason),
        )

    async def _roots(self, context: ClientRequestContext) -> mcp.ListRootsResult:
        roots = [PurePath(root) for root in self._features.roots]
        return mcp.ListRootsResult(roots=[mcp.Root(uri=root.as_uri(), name=root.name) for root in roots])  # type: ignore[arg-type]

    async def _log(self, params: mcp.LoggingMessageNotificationParams) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._logged = second, 0
        self._logged += 1
        if self._logged > MAX_LOGGED:
            self._left_out += 1
            return
        assert self._features.log is not None
        left_out, self._left_out = self._left_out, 0
        logger = params.logger or ""
        self._features.log(
            LogMessage(server=self._server, level=params.level, logger=logger, data=params.data, left_out=left_out)
        )


def _error(code: int, message: str) -> mcp.ErrorData:
    return mcp.ErrorData(code=code, message=message)


def elicitation_of(server: str, params: mcp.ElicitRequestParams) -> FormRequest | UrlRequest | str:
    """Read a question to the user; return a sentence if it cannot be asked."""
    if len(params.message) > _MAX_MESSAGE:
        return f"expected a message of at most {_MAX_MESSAGE} characters"
    if isinstance(params, mcp.ElicitRequestFormParams):
        schema, _ = mended(params.requested_schema)
        return unusable(schema) or FormRequest(server=server, message=params.message, schema=schema)
    try:
        parts = urlsplit(params.url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and len(params.url) <= _MAX_URL
    except ValueError:
        usable = False
    if not usable:
        return f"expected a URL of at most {_MAX_URL} characters that starts with http:// or https:// and names a host"
    return UrlRequest(server=server, message=params.message, url=params.url)


def _completion(server: str, params: mcp.CreateMessageRequestParams) -> SampleRequest | str:
    """Read a question to the model, or return why it cannot be asked; context of servers (`includeContext`) is never added."""
    if params.tools or params.tool_choice:
        return "tools in a completion are not supported: the capability was not declared"
    messages = [Message(role="system", content=params.system_prompt)] if params.system_prompt else []
    for message in params.messages:
        blocks = message.content_as_list
        texts = [block.text for block in blocks if isinstance(block, mcp.TextContent)]
        if len(texts) < len(blocks):
            return "expected messages of text only"
        messages.append(Message(role=message.role, content="\n".join(texts)))
    if sum(len(message.content) for message in messages) > _MAX_SAMPLE_CHARACTERS:
        return f"expected at most {_MAX_SAMPLE_CHARACTERS} characters of messages"
    if not messages or messages[-1].role != "user":
        return "expected messages whose last one has the role user"
    return SampleRequest(
        server=server,
        messages=tuple(messages),
        max_tokens=max(1, min(params.max_tokens, MAX_SAMPLE_TOKENS)),
        temperature=params.temperature,
        stop=tuple(params.stop_sequences or ()),
    )


# -- addresses that a person has to visit before a call: the error -32042 (MCP 2025-11-25) -----------------------------
# With this error, a server reports that it has not run the request. Each address is shown to the user as in an elicitation. Once
# the user has agreed to all of them and is done there, the call is repeated. A second such error is the answer.

_MOST: Final = 5  # addresses for one call


async def visited(server: str, error: MCPError, calls: Calls, elicit: Elicit | None) -> bool:
    """Ask the user to visit the addresses; return whether the call may be repeated."""
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
    """Yield the requests in an error; anything else, or an address that must not be visited, is not a `UrlRequest`."""
    data = error.data if error.code == mcp.URL_ELICITATION_REQUIRED and isinstance(error.data, dict) else {}
    wanted = data.get("elicitations")
    for each in wanted if isinstance(wanted, list) else ():
        try:
            yield elicitation_of(server, mcp.ElicitRequestURLParams.model_validate(each))
        except ValidationError:
            yield None
