"""A program that talks without end, keeps what it says, and is killed: the model, its tools and the ledger of what they did.

The model's words and the times come from a seed. The tool writes down that it began and that it ended; the model writes down
what it was sent. Both do so in files of their own, a line of JSON each, so that a line that a kill has cut is known as such.

As a program it reads lines (seed, turns, folder) and forks a process for each, so that what is killed need not be loaded first.
It tells the process's id, "ready" once the conversation is taken up, and with what the process ended.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

from xmlcall import Answer, Chunk, CompletionRequest, LocalHost, Message, ToolLoop, render
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.records.audit import AuditFile
from xmlcall.records.folder import append_line
from xmlcall.records.store import Store
from xmlcall.turn_records.keeping import Keeper, recovered


def append(path: Path, line: object) -> None:
    """Append a line of JSON: a kill may cut a write where it crosses a page of the file, and then the line is no JSON."""
    append_line(path, json.dumps(line))


class _Model(ScriptedBackend):
    """Calls one or two tools, or answers; in pieces, with pauses."""

    def __init__(self, folder: Path, random: Random, start: str) -> None:
        super().__init__([])
        self._folder, self._random, self._start, self._count = folder, random, start, 0

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        sent = [(message.role, message.content) for message in request.messages[1:]]
        append(self._folder / "requests.jsonl", sent)
        calls = self._random.choice([0, 1, 1, 2])
        text = render([self._call() for _ in range(calls)]) if calls else f"Answer {self._step()}."
        for start in range(0, len(text), 40):
            await asyncio.sleep(self._random.uniform(0, 0.002))
            yield Chunk(text=text[start : start + 40])
        yield Chunk(finish_reason="stop")

    def _step(self) -> str:
        self._count += 1
        return f"{self._start}-{self._count}"

    def _call(self) -> dict[str, Any]:
        return {"name": "act", "arguments": {"step": self._step()}}


async def _talk(folder: Path, seed: int, turns: int) -> None:
    random = Random(seed)

    async def act(step: str) -> str:
        """Do something that must not be done twice."""
        append(folder / "ledger", f"began {step}")
        await asyncio.sleep(random.uniform(0, 0.02))
        append(folder / "ledger", f"ended {step}")
        return f"done {step}"

    with Store(folder / "conversations.db") as store:
        keeper = Keeper(store, AuditFile(folder / "audit.jsonl"))
        if found := store.listed(1):
            keeper.resume(found[0].id)
        model = _Model(folder, random, str(seed))
        async with ToolLoop(model, [LocalHost([act])], policy=["*"], reminder=False, audit=keeper.audit) as loop:
            messages = (await recovered(keeper, store, loop, lambda *_: None))[0] if found else []
            _tell("ready")
            for number in range(turns):
                messages = await _turn(loop, keeper, [*messages, Message(role="user", content=f"Question {seed}.{number}")])


async def _turn(loop: ToolLoop, keeper: Keeper, messages: list[Message]) -> list[Message]:
    keeper.asked(messages, await loop.catalog(), "scripted", {"mode": "xml", "family": "list", "reasoning_open": False})
    async with aclosing(loop.run(messages)) as events:
        async for event in events:
            keeper.note(event)
            messages = list(event.messages) if isinstance(event, Answer) else messages
    messages = list(await loop.closed(messages))  # an answer may be missing, because the model called too often
    keeper.keep(messages)
    return messages


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")  # at once: two processes share the pipe, and `print` may write a line's end by itself
    sys.stdout.flush()


def _serve() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_talk(Path(folder), 0, 2))  # loads what is loaded on first use
    for line in sys.stdin:
        seed, turns, folder = line.rstrip("\n").split(" ", 2)
        if not (process := os.fork()):
            asyncio.run(_talk(Path(folder), int(seed), int(turns)))
            os._exit(0)
        _tell(f"process {process}")
        _tell(f"ended {os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}")


if __name__ == "__main__":
    _serve()
