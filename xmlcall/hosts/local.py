"""Offers Python functions of this process as tools.

    async with LocalHost([add, search]) as host: ...

A synchronous function runs in a thread, so that it does not block the event loop. A thread cannot be stopped: a function that
exceeds its time limit continues in the background, and its result is dropped.
"""

import asyncio
import contextlib
import contextvars
import inspect
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from ..errors import ToolHostProtocolError, ToolHostUnavailable, UsageError
from ..types.calls import TextContent, Tool, ToolResult, items_of
from .base import OnProgress
from .server import DEFAULT_TIMEOUT


class LocalHost:
    """Python functions as a `Host`.

    Args:
        functions: each becomes a tool by `Tool.from_function`. Arguments are converted according to the type hints. The return
            value becomes the result: a string as text, a `ToolResult` unchanged, anything else as JSON. An exception becomes an
            error result with its text, which the model reads.
        name: shown to the user, and used in `server__tool` names.

    Raises:
        UsageError: a function cannot be described, or two have the same name.
    """

    instructions = ""  # functions describe themselves
    notices: tuple[str, ...] = ()  # a function that cannot be a tool is refused at once

    def __init__(self, functions: Iterable[Callable[..., Any]], *, name: str = "local") -> None:
        self.name = name
        self.changed = asyncio.Event()  # never set
        self._functions: dict[str, Callable[..., Any]] = {}
        self._tools: list[Tool] = []
        for function in items_of(functions, "functions"):
            tool = Tool.from_function(function)
            if tool.name in self._functions:
                raise UsageError(f"two functions are named {tool.name!r}; names must be unique")
            self._functions[tool.name] = _checked(function)
            self._tools.append(tool)

    async def __aenter__(self) -> Self:
        self.changed = asyncio.Event()  # an event serves one event loop, a host may be opened in several
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def tools(self) -> tuple[Tool, ...]:
        """List the functions."""
        return tuple(self._tools)

    async def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> ToolResult:
        """Run one function.

        Args:
            name: the function's.
            arguments: by parameter name.
            timeout: seconds, 60 if None.
            progress: never called.

        Raises:
            ToolHostUnavailable: it did not return in time.
            ToolHostProtocolError: there is no such function.
        """
        function = self._functions.get(name)
        if function is None:
            raise ToolHostProtocolError(f"{self.name}: no function is named {name!r}", host=self.name, reason="not_run")
        limit = DEFAULT_TIMEOUT if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                return await _run(function, dict(arguments))
        except TimeoutError as error:
            what = f"{self.name}: {name!r} did not return within {limit:g} s"
            raise ToolHostUnavailable(what, host=self.name, reason="timeout") from error


def _checked(function: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    """Return a callable that validates a dict of arguments against the type hints and calls the function with them."""
    from pydantic import TypeAdapter  # only here: importing xmlcall stays cheap

    adapter: TypeAdapter[Any] = TypeAdapter(function)  # type: ignore[arg-type]  # a function is a type to pydantic
    return adapter.validate_python


async def _run(function: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> ToolResult:
    outcome = await _in_thread(function, arguments)
    if not inspect.isawaitable(outcome):
        return _result(outcome)
    try:
        return _result(await outcome)
    except Exception as error:  # the function's own: the model is to read it
        return _failed(error)


async def _in_thread(function: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> Any:
    """Call in a daemon thread; the threads of asyncio would keep the program from ending while one of them hangs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def work() -> None:
        try:
            outcome = function(arguments)
        except BaseException as error:  # the function's own, SystemExit included, or pydantic's about the arguments
            outcome = _failed(error)
        with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile, so nothing waits
            loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(outcome))

    threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True).start()
    return await done


def _failed(error: BaseException) -> ToolResult:
    return ToolResult.error(str(error) or type(error).__name__)


def _result(value: Any) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(content=(TextContent(text=value),))
    from pydantic_core import to_jsonable_python

    try:
        structured = to_jsonable_python(value, by_alias=True)
    except ValueError as error:
        return ToolResult.error(f"the tool returned something that JSON cannot hold: {error}")
    return ToolResult(content=(TextContent(text=json.dumps(structured, ensure_ascii=False)),), structured_content=structured)
