"""What is asked again, how often, and after which pauses."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.fake_openai import FakeOpenAI
from servers.run_server import run_server

from xmlcall.backends import retrying
from xmlcall.backends.base import Relayed
from xmlcall.backends.http import retry_after
from xmlcall.backends.openai import OpenAIBackend
from xmlcall.backends.retrying import Patience, Retrying
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench import runner
from xmlcall.errors import BackendError, BackendProtocolError, BackendStatusError, BackendUnavailable, ContextOverflow
from xmlcall.types.calls import Message
from xmlcall.types.completion import Chunk, CompletionRequest, PromptProgress

REQUEST = CompletionRequest(messages=(Message(role="user", content="Hi"),))
CALLERS = {"proxy": Patience(), "bench": runner.PATIENCE, "once": Patience(pauses=())}


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; nobody waits for them."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(retrying, "sleep", sleep)
    return pauses


def refused(status_code: int, retry_after: float | None = None) -> BackendStatusError:
    return BackendStatusError("no", backend="b", status_code=status_code, retry_after=retry_after)


def gone() -> BackendUnavailable:
    return BackendUnavailable("gone", backend="b")


def silent() -> BackendUnavailable:
    error = BackendUnavailable("silent for 600 s", backend="b")
    error.__cause__ = httpx2.ReadTimeout("no bytes")
    return error


NONSENSE = BackendProtocolError("what?", backend="b")
OVERFLOW = ContextOverflow("too long", backend="b", status_code=503)
READING = Chunk(progress=PromptProgress(read=1, total=2))

# What is asked again whatever comes, and what never is.
PASSING = [gone(), NONSENSE, *map(refused, (408, 429, 502, 503))]
LASTING = [silent(), OVERFLOW, *map(refused, (200, 400, 401, 403, 404, 413, 422, 500, 501, 504))]


async def played(script: list[Any], patience: Patience) -> tuple[str | None, int]:
    """Return the text of a reply, None for a failure, and how often it was asked for."""
    backend = ScriptedBackend(script)
    try:
        text = "".join([chunk.text async for chunk in Retrying(backend, patience).stream(REQUEST)])
    except BackendError:
        return None, len(backend.requests)
    return text, len(backend.requests)


@pytest.mark.parametrize("patience", CALLERS.values(), ids=CALLERS)
@pytest.mark.parametrize("error", PASSING, ids=repr)
async def test_what_may_pass_is_asked_again(error: BackendError, patience: Patience, slept: list[float]) -> None:
    tries = len(patience.pauses) + 1
    assert await played([error] * (tries - 1) + ["Paris."], patience) == ("Paris.", tries)
    assert await played([error] * tries + ["Paris."], patience) == (None, tries)
    assert slept == [*patience.pauses, *patience.pauses]


@pytest.mark.parametrize("error", LASTING, ids=repr)
async def test_what_would_fail_in_the_same_way_is_not_asked_again(error: BackendError, slept: list[float]) -> None:
    for patience in CALLERS.values():
        assert await played([error, "Paris."], patience) == (None, 1)
    assert slept == []


SCRIPTS: list[tuple[list[Any], str | None, int]] = [
    (["Paris."], "Paris.", 1),
    ([refused(503), gone(), NONSENSE, "Paris."], "Paris.", 4),
    ([gone(), refused(400), "Paris."], None, 2),
    ([["Par", gone()], "Paris."], None, 1),
    ([gone(), ["Par", gone()], "Paris."], None, 2),
    ([[Chunk(reasoning="Hm."), gone()], "Paris."], None, 1),
    ([[READING, gone()], "Paris."], "Paris.", 2),
]


@pytest.mark.parametrize(("script", "text", "asked"), SCRIPTS)
@pytest.mark.parametrize("caller", ["proxy", "bench"])
async def test_a_request_is_tried_again_until_its_reply_begins(
    script: list[Any], text: str | None, asked: int, caller: str
) -> None:
    assert await played(script, CALLERS[caller]) == (text, asked)


# What the server asks for, who waits, and the pause; None for a caller that does not wait so long.
PAUSES: list[tuple[float | None, str, float | None]] = [
    (None, "proxy", 0.1),
    (0.0, "proxy", 0.1),
    (0.05, "proxy", 0.1),
    (7.5, "proxy", 7.5),
    (10.0, "proxy", 10.0),
    (11.0, "proxy", None),
    (11.0, "bench", 11.0),
    (61.0, "bench", None),
    (1e9, "bench", None),
    (None, "once", None),
]


@pytest.mark.parametrize(("named", "caller", "pause"), PAUSES)
async def test_the_server_may_name_the_pause(named: float | None, caller: str, pause: float | None, slept: list[float]) -> None:
    text, asked = await played([refused(429, named), "Paris."], CALLERS[caller])
    assert (text, asked) == (("Paris.", 2) if pause is not None else (None, 1))
    assert slept == ([pause] if pause is not None else [])


NOW = datetime.now(UTC)
HEADERS: list[tuple[str, tuple[float, float] | None]] = [
    ("", None),
    ("5", (5, 5)),
    (" 1.5 ", (1.5, 1.5)),
    ("0", (0, 0)),
    ("-1", None),
    ("1e3", None),
    ("٣", None),
    ("9" * 1000, None),
    ("soon", None),
    (format_datetime(NOW + timedelta(hours=1), usegmt=True), (1800, 3600)),
    ("Sun, 06 Nov 1994 08:49:37 GMT", (0, 0)),
    ("Sun, 06 Nov 1994 08:49:37 -0000", (0, 0)),
    ("Sun, 99 Nov 1994 08:49:37 GMT", None),
]


@pytest.mark.parametrize(("value", "between"), HEADERS, ids=range(len(HEADERS)))  # one value is of the moment
def test_the_header_is_read(value: str, between: tuple[float, float] | None) -> None:
    seconds = retry_after(value)
    assert (seconds is None) == (between is None)
    assert seconds is None or (between is not None and between[0] <= seconds <= between[1])


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, [0-9]{1,4} [A-Z][a-z]{2} [0-9]{1,6} [0-9:]{1,9} [-+]?[A-Z0-9]{0,9}"))
def test_no_header_fails(value: str) -> None:
    seconds = retry_after(value)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(("header", "pause"), [("3", 3.0), (None, None)])
async def test_a_refusal_carries_what_the_server_asked_for(header: str | None, pause: float | None) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/models":
            return httpx2.Response(200, json={"data": [{"id": "m"}]})
        return httpx2.Response(429, json={"error": "slower"}, headers={"retry-after": header} if header else {})

    async with OpenAIBackend("http://b", transport=httpx2.MockTransport(answer)) as backend:
        with pytest.raises(BackendStatusError, match="slower") as raised:
            _ = [chunk async for chunk in backend.stream(REQUEST)]
    assert raised.value.retry_after == pause


async def test_what_failed_tries_took_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 10.0, 17.0, 20.0])
    monkeypatch.setattr(retrying, "monotonic", lambda: next(clock))
    told: list[float] = []
    backend = Retrying(ScriptedBackend([gone(), gone(), "Paris."]), on_retry=told.append)
    assert [chunk.text async for chunk in backend.stream(REQUEST)] == ["Paris.", ""]
    assert told == [5.0, 7.0]


class Relay(ScriptedBackend):
    """Relays after some failures."""

    def __init__(self, *failures: BackendError) -> None:
        super().__init__([])
        self.failures, self.asked = list(failures), 0

    def relay(self, method: str, path: str, content: bytes = b"") -> AbstractAsyncContextManager[Relayed]:
        return self._relayed()

    @asynccontextmanager
    async def _relayed(self) -> AsyncIterator[Relayed]:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)

        async def chunks() -> AsyncIterator[bytes]:
            yield b"Hello"

        yield Relayed(status=200, media_type="text/plain", chunks=chunks())


async def relayed(backend: Retrying) -> bytes:
    async with backend.relay("POST", "/x") as answer:
        return b"".join([chunk async for chunk in answer.chunks])


async def test_what_is_relayed_is_tried_by_the_same_rules(slept: list[float]) -> None:
    assert await relayed(Retrying(Relay(gone(), gone()))) == b"Hello"
    assert slept == [0.1, 0.5]
    for failures, asked in (([gone()] * 5, 4), ([silent()], 1)):
        relay = Relay(*failures)
        with pytest.raises(BackendUnavailable):
            await relayed(Retrying(relay))
        assert relay.asked == asked
    with pytest.raises(TypeError, match="ScriptedBackend relays nothing"):
        await relayed(Retrying(ScriptedBackend([])))


async def test_a_server_that_was_loading_its_model() -> None:
    fake = FakeOpenAI(refusal=(503, {"error": "loading"}))
    with run_server(fake.app) as url:
        async with Retrying(OpenAIBackend(f"{url}/v1")) as backend:
            with pytest.raises(BackendStatusError, match="loading"):
                _ = [chunk async for chunk in backend.stream(REQUEST)]
            assert len(fake.bodies) == 4
            fake.refusal = None
            assert "".join([chunk.text async for chunk in backend.stream(REQUEST)]) == "Hello world"
