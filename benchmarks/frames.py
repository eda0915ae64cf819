"""How many frames of ours are on the stack while a piece of text passes the proxy: `python benchmarks/frames.py`

A model in the process says a text; while it gives the second piece, its stack is looked at: each frame whose code is in the
package counts once, and those of async generators are counted beside that. The request goes over HTTP, with a tool on offer.
Then the engine answers without HTTP, in pieces of a word, and the processor time for each is told.
"""

import asyncio
import inspect
import json
import sys
import time
import traceback
from collections.abc import AsyncGenerator
from pathlib import Path
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


if __name__ == "__main__":
    main()
