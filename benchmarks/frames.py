"""How many frames of ours are on the stack while a piece of text passes the proxy: `python benchmarks/frames.py`

A model in the process says a text; while it gives the second piece, its stack is looked at: each frame whose code is in the
package counts once, and those of async generators are counted beside that. The request goes over HTTP, with a tool on offer.
Then the engine answers without HTTP, in pieces of a word, and the processor time for each is told. Last, a loop and an engine are
asked a second time a question with one call, and the files of ours are counted of which a function is called.
"""

import asyncio
import inspect
import json
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import httpx2

import xmlcall
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy import create_app
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.formats.openai_chat import CHAT

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from servers.run_server import run_server

PACKAGE = Path(xmlcall.__file__).parent
TOOL = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}
BODY = {"model": "any", "stream": True, "tools": [TOOL], "messages": [{"role": "user", "content": "Hi"}]}


class Watched(ScriptedBackend):
    """A model that looks at its stack."""

    frames: ClassVar[list[tuple[str, str, bool]]] = []

    async def stream(self, request: Any) -> AsyncGenerator[Any]:
        for number in range(3):
            if number == 1:
                self.frames[:] = [
                    (
                        str(Path(frame.f_code.co_filename).relative_to(PACKAGE)),
                        frame.f_code.co_qualname,
                        bool(frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR),
                    )
                    for frame, _ in traceback.walk_stack(sys._getframe())
                    if Path(frame.f_code.co_filename).is_relative_to(PACKAGE)
                ]
            yield xmlcall.Chunk(text=f"word {number} ")
        yield xmlcall.Chunk(finish_reason="stop")


PIECES, ROUNDS = 20_000, 5


async def seconds_for_each_piece() -> float:
    """Return the least processor time of a few rounds."""
    taken = []
    for _ in range(ROUNDS):
        said = [f"word {number} " for number in range(PIECES)]
        async with Engine(ScriptedBackend([said]), mode="xml") as engine:
            started = time.process_time()
            async for _event in engine.respond(CHAT.read(BODY).request):
                pass
            taken.append(time.process_time() - started)
    return min(taken) / PIECES


CALL = '<function_calls>\n<invoke name="add">\n<parameter name="a">1</parameter>\n</invoke>\n</function_calls>'


def add(a: int) -> int:
    """Add one."""
    return a + 1


async def files_of_a_question(ask: Callable[[], Awaitable[object]]) -> list[str]:
    """Return the files that the second of two equal questions enters."""
    entered = set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>" and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
            entered.add(str(Path(frame.f_code.co_filename).relative_to(PACKAGE)))

    await ask()
    sys.setprofile(note)
    try:
        await ask()
    finally:
        sys.setprofile(None)
    return sorted(entered)


async def files_entered() -> dict[str, list[str]]:
    """Return the files that a question enters in the loop and in the proxy's engine."""
    async with xmlcall.ToolLoop(ScriptedBackend([CALL, "2", CALL, "2"]), [add]) as loop:
        in_loop = await files_of_a_question(lambda: loop.ask("What is 1 plus 1?"))
    async with Engine(ScriptedBackend([CALL, CALL]), mode="xml") as engine:

        async def answer() -> None:
            async for _event in engine.respond(CHAT.read(BODY).request):
                pass

        in_engine = await files_of_a_question(answer)
    return {"loop": in_loop, "proxy": in_engine}


def main() -> None:
    """Ask once, and print the frames."""
    backend = Watched([])
    with run_server(create_app(backend, mode="xml"), lifespan="on") as url:
        httpx2.post(f"{url}/v1/chat/completions", json=BODY).raise_for_status()
    for file, name, is_generator in reversed(backend.frames):
        print(f"{'async generator' if is_generator else '':16} {file}: {name}")
    counted = {"frames": len(backend.frames), "async generators": sum(each[2] for each in backend.frames)}
    print(json.dumps(counted))
    print(f"processor time for each piece: {asyncio.run(seconds_for_each_piece()) * 1e6:.1f} us")
    for what, files in asyncio.run(files_entered()).items():
        print(f"files entered by a question with one call, {what}: {len(files)}: {', '.join(files)}")


if __name__ == "__main__":
    main()
