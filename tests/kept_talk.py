"""A program that talks without end, keeps what it says, and is killed: the model, its tools and the ledger of what they did.

The model's words and the times come from a seed. The tool writes down that it began and that it ended; the model writes down
what it was sent. Both do so in files of their own, by one write a line, so that a kill leaves no doubt about what happened.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

from xmlcall import Chunk, CompletionRequest, LocalHost, Message, ToolLoop, render
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.cli.keeping import Keeper
from xmlcall.cli.resuming import recovered
from xmlcall.records.audit import AuditFile
from xmlcall.records.store import Store

__all__ = ["talk"]


def append(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


class _Model(ScriptedBackend):
    """Calls one or two tools, or answers; in pieces, with pauses."""

    def __init__(self, folder: Path, random: Random, start: str) -> None:
        super().__init__([])
        self._folder, self._random, self._start, self._count = folder, random, start, 0

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        sent = [(message.role, message.content) for message in request.messages[1:]]
        append(self._folder / "requests.jsonl", json.dumps(sent))
        calls = self._random.choice([0, 1, 1, 2])
        text = render([self._call() for _ in range(calls)]) if calls else f"Answer {self._token()}."
        for start in range(0, len(text), 40):
            await asyncio.sleep(self._random.uniform(0, 0.002))
            yield Chunk(text=text[start : start + 40])
        yield Chunk(finish_reason="stop")

    def _token(self) -> str:
        self._count += 1
        return f"{self._start}-{self._count}"

    def _call(self) -> dict[str, Any]:
        return {"name": "act", "arguments": {"token": self._token()}}


async def _talk(folder: Path, seed: int, ready: Any, *, only_recovers: bool) -> None:
    random = Random(seed)

    async def act(token: str) -> str:
        """Do something that must not be done twice."""
        append(folder / "ledger", f"began {token}")
        await asyncio.sleep(random.uniform(0, 0.01))
        append(folder / "ledger", f"ended {token}")
        return f"done {token}"

    with Store(folder / "conversations.db") as store:
        keeper = Keeper(store, AuditFile(folder / "audit.jsonl"))
        if found := store.listed(1):
            keeper.resume(found[0].id)
        model = _Model(folder, random, str(seed))
        async with ToolLoop(model, [LocalHost([act])], policy=["*"], reminder=False, audit=keeper.audit) as loop:
            messages = (await recovered(keeper, store, loop))[0] if found else []
            ready.set()
            number = 0
            while not only_recovers:
                number += 1
                messages = await _turn(loop, keeper, [*messages, Message(role="user", content=f"Question {seed}.{number}")])


async def _turn(loop: ToolLoop, keeper: Keeper, messages: list[Message]) -> list[Message]:
    keeper.asked(messages, await loop.catalog(), "scripted", {"mode": "xml", "family": "list", "reasoning_open": False})
    async with aclosing(loop.run(messages)) as events:
        async for event in events:
            keeper.note(event)
            messages = list(getattr(event, "messages", messages)) if type(event).__name__ == "Answer" else messages
    messages = list(await loop.closed(messages))  # an answer may be missing, because the model called too often
    keeper.keep(messages)
    return messages


def talk(folder: Path, seed: int, ready: Any, only_recovers: bool = False) -> None:
    """Talk until killed; with `only_recovers` end as soon as the conversation can go on."""
    asyncio.run(_talk(folder, seed, ready, only_recovers=only_recovers))
