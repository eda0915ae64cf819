"""What of sampling is sent: what is set, else what the profile says, else what the setting `sampling` says."""

from typing import Any

import pytest
from proxy_harness import ask, body

from xmlcall import Asking, LocalHost, Message, Profile, ToolLoop, UsageError
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench.case import Case
from xmlcall.bench.ways import AskedCase, Settings, way_of
from xmlcall.profiles.profile import asking_by
from xmlcall.turn.machine import Ask
from xmlcall.types.completion import Capabilities

ROW = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repeat_penalty": 1.05}
KNOWN = Capabilities(server="scripted", recommended=ROW)
UNKNOWN = Capabilities(server="scripted")

SENT: list[tuple[Capabilities, dict[str, Any], dict[str, float]]] = [
    (KNOWN, {}, {}),
    (KNOWN, {"sampling": "server"}, {}),
    (KNOWN, {"sampling": "greedy"}, {"temperature": 0.0}),
    (KNOWN, {"sampling": "recommended"}, ROW),
    (UNKNOWN, {"sampling": "recommended"}, {}),
    (KNOWN, {"temperature": 0.5}, {"temperature": 0.5}),
    (KNOWN, {"sampling": "greedy", "temperature": 0.5}, {"temperature": 0.5}),
    (KNOWN, {"sampling": "recommended", "temperature": 0.0, "min_p": 0.1}, {**ROW, "temperature": 0.0, "min_p": 0.1}),
]


async def in_loop(capabilities: Capabilities, mode: Any, **asked: Any) -> dict[str, float]:
    """Return what a loop sends with each reply."""
    backend = ScriptedBackend(["Hello."], capabilities=capabilities)
    async with ToolLoop(backend, [LocalHost([])], mode=mode, **asked) as loop:
        await loop.ask("Hi")
    request = backend.requests[0]
    return {**({} if request.temperature is None else {"temperature": request.temperature}), **request.options}


@pytest.mark.parametrize("mode", ["xml", "native"])
@pytest.mark.parametrize(("capabilities", "asked", "sent"), SENT)
async def test_a_loop_sends(capabilities: Capabilities, mode: str, asked: dict[str, Any], sent: dict[str, float]) -> None:
    assert await in_loop(capabilities, mode, **asked) == sent


@pytest.mark.parametrize(
    ("asked", "fields", "sent"),
    [
        ({}, {}, {}),
        ({}, {"temperature": 0.5, "top_k": 5}, {"temperature": 0.5, "top_k": 5}),
        ({"sampling": "greedy"}, {}, {"temperature": 0.0}),
        ({"sampling": "greedy"}, {"temperature": 0.5}, {"temperature": 0.5}),
        ({"sampling": "recommended"}, {}, ROW),
        ({"sampling": "recommended"}, {"temperature": 0, "top_k": 5}, {**ROW, "temperature": 0.0, "top_k": 5}),
    ],
)
@pytest.mark.parametrize("mode", ["xml", "native"])
@pytest.mark.parametrize("tools", [True, False])
async def test_the_proxy_sends(mode: str, tools: bool, asked: Any, fields: Any, sent: Any) -> None:
    backend = ScriptedBackend(["Hello."], capabilities=KNOWN)
    await ask(backend, body(**fields, **({} if tools else {"tools": ()})), mode=mode, **asked)
    request = backend.requests[0]
    found = {**request.options, **({} if request.temperature is None else {"temperature": request.temperature})}
    assert {**found, **{name: request.extra[name] for name in fields if name in request.extra}} == sent


@pytest.mark.parametrize("options", ["x", 1, {"num_ctx": 5}])
async def test_a_field_that_another_wire_format_has_is_sent_on(options: Any) -> None:
    backend = ScriptedBackend(["Hello."], capabilities=KNOWN)
    await ask(backend, body(options=options))
    assert backend.requests[0].extra["options"] == options


def test_a_setting_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="sampling must be one of 'server', 'greedy', 'recommended', got 'wild'"):
        Asking(sampling="wild")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("profile", "given", "sent"),
    [
        ({}, {}, {"temperature": 0.0}),
        ({"sampling": "recommended"}, {}, ROW),
        ({"temperature": 0.3}, {}, {"temperature": 0.3}),
        ({"sampling": "recommended", "top_k": 5}, {}, {**ROW, "top_k": 5}),
        ({"sampling": "recommended"}, {"temperature": 0.1}, {**ROW, "temperature": 0.1}),
        ({"sampling": "recommended", "top_k": 5}, {"sampling": "greedy"}, {"temperature": 0.0}),
        ({"temperature": 0.3}, {"sampling": "server"}, {}),
    ],
)
def test_a_profile_goes_between_what_is_given_and_what_is_usual(profile: Any, given: Any, sent: dict[str, float]) -> None:
    asking = asking_by(Asking(sampling="greedy"), given, Profile(model="m", **profile))
    assert asking.sampled(KNOWN) == sent


@pytest.mark.parametrize(
    ("given", "kept", "sent"),
    [
        ({}, {"temperature": 0.0}, {"temperature": 0.0}),
        ({"temperature": 0.5}, {"temperature": 0.5}, {"temperature": 0.5}),
        ({"sampling": "recommended"}, {"sampling": "recommended"}, ROW),
        ({"sampling": "server"}, {"sampling": "server"}, {}),
    ],
)
def test_the_harness_stays_at_temperature_0_and_records_what_else_was_asked_for(given: Any, kept: Any, sent: Any) -> None:
    settings = Settings(**given)
    recorded = settings.to_json()
    assert {name: value for name, value in recorded.items() if name in ("sampling", "temperature")} == kept
    assert Settings(**recorded) == settings
    case = Case(id="a", category="", messages=({"role": "user", "content": "Hi"},), tools=())
    machine = AskedCase(way_of("xml"), case, settings).generation((Message(role="user", content="Hi"),), KNOWN)
    action = machine.action
    assert isinstance(action, Ask)
    request = action.request
    assert {**request.options, **({"temperature": request.temperature} if request.temperature is not None else {})} == sent
    assert (request.seed, request.max_tokens, request.progress) == (1, 512, False)
