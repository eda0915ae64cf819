"""How many frames of ours are on the stack while a piece of text passes the proxy: `python benchmarks/frames.py`

A model in the process says a text; while it gives the second piece, its stack is looked at: each frame whose code is in the
package counts once, and those of async generators are counted beside that. The request goes over HTTP, with a tool on offer.
"""

import inspect
import json
import sys
import traceback
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, ClassVar

import httpx2

import xmlcall
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.proxy import create_app

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
                    for frame, _ in traceback.walk_stack(None)
                    if Path(frame.f_code.co_filename).is_relative_to(PACKAGE)
                ]
            yield xmlcall.Chunk(text=f"word {number} ")
        yield xmlcall.Chunk(finish_reason="stop")


def main() -> None:
    """Ask once, and print the frames."""
    backend = Watched([])
    with run_server(create_app(backend, mode="xml"), lifespan="on") as url:
        httpx2.post(f"{url}/v1/chat/completions", json=BODY).raise_for_status()
    for file, name, is_generator in reversed(backend.frames):
        print(f"{'async generator' if is_generator else '':16} {file}: {name}")
    counted = {"frames": len(backend.frames), "async generators": sum(each[2] for each in backend.frames)}
    print(json.dumps(counted))


if __name__ == "__main__":
    main()
