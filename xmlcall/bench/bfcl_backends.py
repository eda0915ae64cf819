"""BFCL's stateful backends as hosts in this process: a file system, a trading desk, a car and five more.

Their code is run, so it comes from nowhere but the wheel whose hash `bfcl_wheel` checks. Only the backends and the documents of
their methods are unpacked: importing the package that they belong to would pull in the clients of every vendor.
"""

import ast
import asyncio
import contextlib
import functools
import importlib.util
import inspect
import json
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final, Self

from ..errors import ToolHostProtocolError, UsageError
from ..hosts.base import OnProgress
from ..models.download import sha256_of
from ..models.sources import scratch_folder
from ..types.calls import TextContent, ToolResult
from ..types.tool import Tool
from .bfcl import schema_of
from .data import bfcl_wheel, folder
from .judge import Call

__all__ = ["BACKENDS", "StateHost", "read_call"]

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
_SHARED = "long_context"  # the one source that others import, by its name in the package


class StateHost:
    """One backend as a `Host`: its methods are tools, and what they change is there to be compared.

    Args:
        config: the state to begin with; what it does not say has the backend's own default.
        long_context: whether the state is filled up with much that is beside the point.

    Raises:
        UsageError: there is no such backend, or a package that it needs is not installed.
    """

    def __init__(
        self, backend: str, config: Mapping[str, Any] | None = None, *, long_context: bool = False, withheld: Iterable[str] = ()
    ) -> None:
        self._name = backend
        self._changed = asyncio.Event()
        self._tools = {tool.name: tool for tool in _tools(backend)}
        self._withheld = set(withheld) & self._tools.keys()
        self._instance = _instance(backend, config or {}, long_context)

    @property
    def name(self) -> str:
        """The class."""
        return self._name

    @property
    def instructions(self) -> str:
        """Empty: each document describes its backend."""
        return ""

    @property
    def notices(self) -> tuple[str, ...]:
        """Empty."""
        return ()

    @property
    def changed(self) -> asyncio.Event:
        """Set when withheld tools are released; `tools()` clears it."""
        return self._changed

    @property
    def state(self) -> dict[str, Any]:
        """The public attributes of the instance, as they are, not copied."""
        return {name: value for name, value in vars(self._instance).items() if not name.startswith("_")}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass

    def __contains__(self, name: object) -> bool:
        """Say whether the backend has a tool, withheld or not."""
        return name in self._tools

    @property
    def all_tools(self) -> tuple[Tool, ...]:
        """The tools, withheld or not."""
        return tuple(self._tools.values())

    async def tools(self) -> tuple[Tool, ...]:
        """List the tools that are not withheld."""
        self._changed.clear()
        return tuple(tool for name, tool in self._tools.items() if name not in self._withheld)

    def release(self, names: Iterable[str]) -> bool:
        """Offer withheld tools from now on."""
        released = self._withheld & set(names)
        self._withheld -= released
        if released:
            self._changed.set()
        return bool(released)

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        """Run a tool that is offered."""
        if name not in self._tools or name in self._withheld:
            raise ToolHostProtocolError(f"{self._name}: no tool is named {name!r}", host=self._name)
        return self.run(name, arguments)

    def run(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool, withheld or not, at once.

        Args:
            arguments: by parameter name; the backend may keep them, so they are copied.
        """
        try:
            value = self._method(name)(**deepcopy(dict(arguments)))
        except Exception as error:  # the backend's own: the model is to read it
            return ToolResult.error(f"Error during execution: {error}")
        return ToolResult(content=(TextContent(text=_text(value)),))

    def named(self, name: str, positional: Iterable[Any], by_name: Mapping[str, Any]) -> Call:
        """Return a call with all its arguments by name."""
        bound = inspect.signature(self._method(name)).bind(*positional, **by_name)
        return name, dict(bound.arguments)

    def _method(self, name: str) -> Any:
        return getattr(self._instance, self._tools[name].name)


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
        raise UsageError(f"BFCL's {backend} needs {error.name}: pip install 'xmlcall[bench]'") from error
    return getattr(module, backend)


@functools.cache
def _tools(backend: str) -> tuple[Tool, ...]:
    lines = (_unpacked() / _DOCUMENTS / f"{_file(backend)}.json").read_text(encoding="utf-8").splitlines()
    return tuple(_tool(json.loads(line)) for line in lines if line.strip())


def _tool(document: Mapping[str, Any]) -> Tool:
    schema = {**schema_of(document["parameters"]), "type": "object"}
    return Tool(name=document["name"], description=document["description"], input_schema=schema)


def _file(backend: str) -> str:
    if backend not in BACKENDS:
        raise UsageError(f"expected one of {', '.join(BACKENDS)}, got {backend!r}")
    return BACKENDS[backend]


def _loaded(file: Path) -> ModuleType:
    """Run a file as a module that nobody else can import: an installed `bfcl_eval` is neither used nor hidden."""
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
    """Return the folder with the backends; it appears whole or not at all."""
    wheel = bfcl_wheel()
    target = folder() / f"{wheel.stem}-{sha256_of(wheel)[:16]}"
    if target.is_dir():
        return target
    with scratch_folder(target.with_name(f"unpack-{os.getpid()}")) as scratch:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.startswith((_SOURCES, _DOCUMENTS))]
            archive.extractall(scratch / "whole", members)
        try:
            (scratch / "whole").rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster
                raise
    return target
