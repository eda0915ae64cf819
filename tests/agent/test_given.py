"""What `ToolLoop`, `LocalHost`, `Parser` and `Catalog` take, and what they say of anything else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from turn_harness import add

from xmlcall import (
    Asking,
    Catalog,
    LocalHost,
    Message,
    Parser,
    RepairPolicy,
    Tool,
    ToolCall,
    ToolLoop,
    UsageError,
    bind,
    parse,
    system_prompt,
)
from xmlcall.agent import loop as loop_module
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.profiles.profile import Profile, write_profile
from xmlcall.types.completion import Capabilities

CALL = '<invoke name="add"><parameter name="a">1</parameter><parameter name="b">2</parameter></invoke>'


def double(a: int) -> int:
    """Double a number."""
    return 2 * a


class Host(LocalHost):
    """A host that is none of `LocalHost`'s name."""

    def __init__(self) -> None:
        super().__init__([double], name="other")


def test_a_function_is_taken_wherever_a_tool_is() -> None:
    (tool,) = Catalog([add])
    assert tool == Tool.from_function(add)
    assert "Add two numbers." in system_prompt([add])
    (call,) = parse(CALL, [add]).calls
    assert isinstance(call, ToolCall)
    assert call.arguments == {"a": 1, "b": 2}
    assert bind(call.raw, [add, double]) == call
    parser = Parser([add])
    assert [*parser.feed(CALL), *parser.close()]


async def test_a_loop_takes_functions_and_hosts() -> None:
    backend = ScriptedBackend([CALL, "It is 3."])
    async with ToolLoop(backend, [Host(), add], policy=["*"]) as loop:
        assert (await loop.catalog()).names() == ("double", "add")
        assert [host.name for host in loop.router.hosts] == ["other", "local"]
        assert (await loop.ask("1 + 2?")).text == "It is 3."


MISUSE: dict[str, tuple[Callable[[], Any], str]] = {
    "a function as a host's list": (lambda: LocalHost(add), r"expected a list of functions, got <function add .*: put it in br"),  # type: ignore[arg-type]
    "a number as a function": (lambda: LocalHost([5]), "expected a Python function with a name, got 5"),  # type: ignore[list-item]
    "a function as tools": (lambda: Catalog(add), r"expected a list of tools, got <function add"),  # type: ignore[arg-type]
    "a dict as tools": (lambda: Parser({"name": "add"}), r"expected a list of tools, got \{'name': 'add'\}"),  # type: ignore[dict-item]
    "a number as a tool": (lambda: Catalog([5]), "expected a Tool, an MCP or OpenAI tool dict, or a Python function, got 5"),  # type: ignore[list-item]
    "a function as hosts": (lambda: ToolLoop("local", add), "expected a list of hosts and functions, got <function add"),  # type: ignore[arg-type]
    "a tool as a host": (lambda: ToolLoop("local", [Tool(name="t")]), r"expected a host, such as McpHost\(\.\.\.\), or a Python"),  # type: ignore[list-item]
    "a number as a model": (lambda: ToolLoop(5, []), 'expected a backend or a model\'s name, such as "local", got 5'),  # type: ignore[arg-type]
    "a wrong name of a model": (lambda: ToolLoop("lokal", []), "Did you mean local?"),
}


@pytest.mark.parametrize("case", MISUSE)
def test_what_was_expected_is_told(case: str) -> None:
    wrong, words = MISUSE[case]
    with pytest.raises(UsageError, match=words):
        wrong()


# -- the conversation --------------------------------------------------------------------------------------------------


async def test_a_question_continues_the_conversation() -> None:
    backend = ScriptedBackend(["Hello Ann.", "You are Ann.", "I do not know."])
    async with ToolLoop(backend) as loop:
        assert list(loop.conversation) == []
        await loop.ask("I am Ann.")
        answer = await loop.ask("Who am I?")
        assert [message.content for message in loop.conversation] == ["I am Ann.", "Hello Ann.", "Who am I?", "You are Ann."]
        assert loop.conversation == answer.messages
        await loop.ask("Who am I?", conversation=[])
        assert [message.content for message in loop.conversation] == ["Who am I?", "I do not know."]
    assert len(backend.requests[1].messages) == len(backend.requests[0].messages) + 2
    assert len(backend.requests[2].messages) == len(backend.requests[0].messages)


async def test_a_question_may_continue_another_conversation() -> None:
    async with ToolLoop(ScriptedBackend(["Hello.", "Bob."])) as loop:
        await loop.ask("Hi.")
        earlier = [Message(role="user", content="I am Bob."), Message(role="assistant", content="Hello Bob.")]
        await loop.ask("Who am I?", conversation=earlier)
        assert [message.content for message in loop.conversation[:2]] == ["I am Bob.", "Hello Bob."]


# -- a model's name ----------------------------------------------------------------------------------------------------

PROFILE = Profile(model="tiny", fingerprints=("gguf:0123",), dialect="hermes", call_threshold=1.5)


@pytest.fixture
def loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ToolLoop]:
    """Make loops over the model `tiny`, which has a profile."""
    monkeypatch.setenv("XMLCALL_PROFILES", str(tmp_path))
    write_profile(PROFILE, tmp_path / "tiny.toml")
    backend = ScriptedBackend([], capabilities=Capabilities(server="scripted", fingerprints=PROFILE.fingerprints))
    monkeypatch.setattr(loop_module, "connect", lambda name: backend)
    return lambda model="tiny", **asked: ToolLoop(backend if model == "backend" else model, **asked)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, ("xml", "hermes", 1.5)),
        ({"call_threshold": None}, ("xml", "hermes", None)),
        ({"dialect": "qwen"}, ("xml", "qwen", "auto")),  # the profile's threshold was measured with another format
        ({"mode": "native"}, ("native", "function_calls", None)),
        ({"asking": Asking()}, ("xml", "function_calls", None)),
        ({"model": "backend"}, ("xml", "function_calls", None)),
    ],
)
async def test_a_models_name_takes_its_profile_along(
    loops: Callable[..., ToolLoop], how: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    async with loops(**how) as loop:
        assert (loop.asking.mode, loop.asking.dialect, loop.asking.call_threshold) == expected


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, 0.0),
        ({"temperature": 0.8}, 0.8),
        ({"sampling": "server"}, None),
        ({"asking": Asking()}, None),
        ({"model": "backend"}, None),
    ],
)
async def test_a_models_name_is_asked_at_temperature_0(
    loops: Callable[..., ToolLoop], how: dict[str, Any], expected: float | None
) -> None:
    async with loops(**how) as loop:
        assert loop.asking.request(Capabilities(server="scripted")).temperature == expected


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("repair", [None, RepairPolicy()])
async def test_for_a_models_name_values_that_nobody_said_are_asked_back(
    monkeypatch: pytest.MonkeyPatch, *, is_named: bool, repair: RepairPolicy | None
) -> None:
    sent = list[str]()

    def send_report(to: str) -> None:
        """Send the report."""
        sent.append(to)

    call = '<function_calls><invoke name="send_report"><parameter name="to">ann@x.org</parameter></invoke></function_calls>'
    backend = ScriptedBackend([call, "To whom?"])
    monkeypatch.setattr(loop_module, "connect", lambda name: backend)
    async with ToolLoop("tiny" if is_named else backend, [send_report], policy=["*"], repair=repair) as loop:
        assert (await loop.ask("Send the report.")).text == "To whom?"
    assert sent == ([] if is_named and repair is None else ["ann@x.org"])


@pytest.mark.parametrize(("how", "is_told"), [({}, True), ({"mode": "xml"}, False)])
async def test_a_program_is_told_that_a_profile_shows_the_model_no_tools(
    loops: Callable[..., ToolLoop], tmp_path: Path, caplog: pytest.LogCaptureFixture, how: dict[str, Any], is_told: bool
) -> None:
    write_profile(Profile(model="tiny", fingerprints=PROFILE.fingerprints, way="none"), tmp_path / "tiny.toml")
    async with loops(**how) as loop:
        assert (loop.mode == "none") == is_told
    assert [record.levelname for record in caplog.records if 'mode="xml"' in record.getMessage()] == ["WARNING"] * is_told


async def test_what_is_set_before_a_model_is_open_stays(loops: Callable[..., ToolLoop]) -> None:
    loop = loops()
    loop.ask_by(temperature=0.5, lang="zh")
    async with loop:
        assert (loop.asking.temperature, loop.asking.lang, loop.asking.call_threshold) == (0.5, "zh", 1.5)
