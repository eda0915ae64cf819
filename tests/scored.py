"""What scripts come to with a backend: a reply, whether a tool is needed, and which."""

from collections.abc import AsyncGenerator
from typing import Any

from xmlcall.agent.drive import drive, result_of
from xmlcall.agent.scores import Scores
from xmlcall.backends.base import Backend
from xmlcall.dialects import Dialect
from xmlcall.prompting.format import PromptFormat
from xmlcall.tools.catalog import Catalog
from xmlcall.turn.asking import Threshold
from xmlcall.turn.generate import Binder, Generated, ReplyOptions, generate
from xmlcall.turn.machine import Machine, Script
from xmlcall.turn.tool_need import ToolNeed, ask_need, ask_tool_need, choose_tool
from xmlcall.types.completion import CompletionRequest, Usage

__all__ = ["asked_need", "choose", "generated", "need_for", "replied"]


async def asked_need(backend: Backend, request: CompletionRequest, threshold: float | None, *how: Any) -> ToolNeed:
    """Ask whether the last message needs a tool."""
    return await result_of(Machine(ask_need(request, backend.capabilities, threshold, *how)), backend)


async def need_for(
    threshold: Threshold,
    backend: Backend,
    request: CompletionRequest,
    catalog: Catalog,
    format: PromptFormat,
    scores: Scores | None = None,
) -> ToolNeed | None:
    """Ask whether the last message needs a tool, and which."""
    return await result_of(Machine(ask_tool_need(threshold, backend.capabilities, request, catalog, format)), backend, scores)


async def choose(
    backend: Backend, request: CompletionRequest, catalog: Catalog, dialect: Dialect, scores: Scores | None = None
) -> tuple[str, Usage]:
    """Choose the tool for the last message."""
    return await result_of(Machine(choose_tool(request, backend.capabilities, catalog, dialect)), backend, scores)


async def replied(script: Script[Generated], backend: Backend) -> AsyncGenerator[Any]:
    """Generate a reply: its events, and what came of it last."""
    machine = Machine(script)
    async for event in drive(machine, backend):
        yield event
    yield machine.result


def generated(backend: Backend, request: CompletionRequest, binder: Binder, *, prefix: str = "") -> AsyncGenerator[Any]:
    """The same for a reply in which calls are text."""
    return replied(generate(request, binder, ReplyOptions(server=backend.capabilities), prefix=prefix), backend)
