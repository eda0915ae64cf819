"""A call that its server ran as a task when the page's program was killed: what becomes of it stands in the next turn."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chat_stage import Stage, call, staged

from xmlcall import LocalHost
from xmlcall.agent.rules import Rule, Rules
from xmlcall.hosts.base import OnProgress, OnTask, TaskResult
from xmlcall.types.calls import TextContent, ToolResult

FREE = Rules(rules=(Rule(effect="allow", tools=("*",), repaired=True, may_flow=True),))


def bake() -> str:
    """Bake."""
    return ""


class Oven(LocalHost):
    """A server that makes a task of a call, and does not end by itself."""

    def __init__(self) -> None:
        super().__init__([bake], name="oven")
        self.is_done = asyncio.Event()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float | None = None,
        *,
        progress: OnProgress | None = None,
        on_task: OnTask | None = None,
    ) -> ToolResult:
        assert on_task is not None
        on_task("t1")
        await asyncio.sleep(60)
        raise AssertionError("it is stopped before")

    async def task_result(
        self, name: str, task: str, timeout: float | None = None, *, progress: OnProgress | None = None
    ) -> TaskResult:
        assert (name, task) == ("bake", "t1")
        await self.is_done.wait()
        return ToolResult(content=(TextContent(text="bread"),))


async def killed(tmp_path: Path) -> tuple[Path, str]:
    """Give the store as a program leaves it that is killed while the task runs."""
    path, left = tmp_path / "conversations.db", tmp_path / "left.db"
    async with staged([call("bake")], hosts=[Oven()], rules=FREE, path=path) as stage:
        conversation, _ = await stage.ask("Bake")
        kinds = [""]
        while kinds[-1] != "task":
            await asyncio.sleep(0.01)
            kinds = [event.kind for event in stage.room.store.events(conversation)] or [""]
        with contextlib.closing(sqlite3.connect(path)) as one, contextlib.closing(sqlite3.connect(left)) as other:
            one.backup(other)
    return left, conversation


async def taken_up(stage: Stage, conversation: str) -> str:
    conversation, turn = await stage.ask("And?", conversation)
    await stage.until(lambda: any("is waited for: oven.bake" in str(told) for told in stage.told))
    assert (await stage.get(f"chat/{conversation}"))["conversation"]["turn"] == turn
    return turn


async def test_the_turn_waits_for_the_task_and_not_the_page(tmp_path: Path) -> None:
    left, conversation = await killed(tmp_path)
    oven = Oven()
    async with staged(["Good."], hosts=[oven], path=left) as stage:
        turn = await taken_up(stage, conversation)
        oven.is_done.set()
        assert (await stage.over(turn))["answer"] == "Good."
        assert [role for role, _ in stage.sent()] == ["user", "assistant", "user", "assistant", "user"]
        assert "bread" in stage.sent()[2][1]
        await stage.until(lambda: any("has ended: oven.bake: bread" in str(told) for told in stage.told))


async def test_stopping_while_a_task_is_waited_for_loses_nothing(tmp_path: Path) -> None:
    left, conversation = await killed(tmp_path)
    oven = Oven()
    async with staged(["Good."], hosts=[oven], path=left) as stage:
        turn = await taken_up(stage, conversation)
        await stage.post(f"chat/{conversation}/stop")
        await stage.until(lambda: conversation not in stage.room._turns)
        assert [found.question for found in stage.room.turns_of(conversation)] == ["Bake"]
        oven.is_done.set()
        _, turn = await stage.ask("And?", conversation)
        assert (await stage.over(turn))["answer"] == "Good."
        assert "bread" in stage.sent()[2][1]
