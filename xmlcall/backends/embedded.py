"""Runs llama.cpp inside this process: a GGUF file becomes a backend, without a server to start.

xllamacpp provides llama.cpp's HTTP server as a library. It listens on a free port of 127.0.0.1, protected by a random key because
other users of the machine could reach it. `OpenAIBackend` talks to it as to any llama.cpp server, so there is one client with one
behaviour. Loading and stopping block, so they run in threads. At verbosity 0 llama.cpp prints nothing, not even errors (measured,
b11549).
"""

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from ..errors import BackendUnavailable, UsageError
from ..installed import missing_extra
from ..types.completion import Capabilities, Chunk, CompletionRequest
from .base import Relayed
from .gguf import context_for, free_threads
from .openai import OpenAIBackend
from .server_facts import Answered, of_file

LARGER_CONTEXT: Final = "give the model a larger context with --context N (in Python `context_length`)"

CACHE_MEGABYTES: Final = 1024
"""RAM for the states of earlier prompts. llama.cpp's own 8192 is for servers; here it would grow inside the user's program."""


class EmbeddedBackend:
    """A GGUF model in this process.

    Args:
        path: the GGUF file, or a coroutine function that finds it, called on opening.
        context_length: tokens that prompt and reply share; llama.cpp lowers it to the model's trained length. None takes 8192 to
            32768, limited by the trained length and by free memory, because the cache is allocated at once.
        threads: threads for the computation; None takes one for each core that is free when the model is opened.

    Attributes:
        capabilities: what llama.cpp reported about itself and the model when it was opened.
    """

    def __init__(
        self,
        path: str | Path | Callable[[], Awaitable[Path]],
        *,
        context_length: int | None = None,
        threads: int | None = None,
        name: str | None = None,
    ) -> None:
        self._path = path
        self._context_length = context_length
        self._threads = threads
        self.model = name or ("" if callable(path) else Path(path).stem)
        self._client: OpenAIBackend | None = None
        self.capabilities = Capabilities(server="llama.cpp")
        self._stack = AsyncExitStack()
        self._slots: Slots | None = None  # None where this llama.cpp cannot copy from one to another
        self._folder = ""

    async def __aenter__(self) -> Self:
        if callable(self._path):
            await asyncio.to_thread(_library)  # before a download
        path = _checked(await self._path() if callable(self._path) else Path(self._path))
        self.model = self.model or path.stem
        key = secrets.token_urlsafe(24)
        async with AsyncExitStack() as stack:
            self._folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="xmlcall-slots-"))
            server = await asyncio.to_thread(self._load, path, key)
            # The list holds the last reference to the server, which stops without it; that waits for the server's own threads.
            stack.push_async_callback(asyncio.to_thread, [server].clear)
            address = server.listening_address
            del server
            self._client = await stack.enter_async_context(OpenAIBackend(address, api_key=key, larger_context=LARGER_CONTEXT))
            capabilities = self._client.capabilities
            self._slots = Slots() if await self._copy(0, 1) else None
            self.capabilities = replace(
                capabilities, fingerprints=(of_file(path), *capabilities.fingerprints), keeps_aside=self._slots is not None
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client = None
        await self._stack.aclose()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        async with aclosing(self._opened().stream(await self._placed(request))) as chunks:
            async for chunk in chunks:
                yield chunk

    @asynccontextmanager
    async def relay(self, method: str, path: str, content: bytes = b"") -> AsyncIterator[Relayed]:
        """Forward a request unchanged (see `Relaying`)."""
        async with self._opened().relay(method, path, content) as relayed:
            yield relayed

    async def look(self, path: str, body: Mapping[str, Any] | None = None) -> Answered:
        """Request a JSON object from a path beside the API (see `Looking`)."""
        return await self._opened().look(path, body)

    async def _placed(self, request: CompletionRequest) -> CompletionRequest:
        """Assign a request to a slot of its kind, after copying the part of its prompt that another slot has read."""
        if self._slots is None:
            return request
        slot, source = self._slots.place(request)
        if source is not None:
            await self._copy(source, slot)
        return replace(request, extra={**request.extra, "id_slot": slot})

    async def _copy(self, source: int, target: int) -> bool:
        """Copy what a slot has read to another; say whether this model supports that (with pictures it does not)."""
        name = secrets.token_hex(8)
        copied = await self._opened().copy_slot(source, target, name)
        await asyncio.to_thread(Path(self._folder, name).unlink, missing_ok=True)
        return copied

    def _load(self, path: Path, key: str) -> Any:
        """Load the model and start the server; blocks for seconds."""
        xllamacpp = _library()
        context_length = self._context_length or context_for(path)
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx = context_length
        parameters.n_parallel = SLOTS
        parameters.api_keys = [key]
        if threads := self._threads or free_threads():
            parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
        # These are optional, because xllamacpp renames parameters between releases.
        # Without an alias, answers that are passed on would show clients the path of the file.
        wanted = {"verbosity": 0, "warmup": False, "ui": False, "cache_ram_mib": CACHE_MEGABYTES, "model_alias": {self.model}}
        # Slots share one context, keep what they hold, and are copied through a folder.
        wanted |= {"kv_unified": True, "cache_idle_slots": False, "slot_save_path": f"{self._folder}{os.sep}"}
        for field, value in wanted.items():
            if hasattr(parameters, field):
                setattr(parameters, field, value)
        try:
            return xllamacpp.Server(parameters)
        except (RuntimeError, ValueError, MemoryError) as error:
            message = (
                f"llama.cpp cannot load {path} with a context of {context_length} tokens ({error}): "
                "the file may be damaged or too new, or the context too large for the memory"
            )
            raise BackendUnavailable(message, backend="embedded") from error

    def _opened(self) -> OpenAIBackend:
        if self._client is None:
            raise UsageError("the embedded backend is not open: use it inside `async with`")
        return self._client


def _checked(path: Path) -> Path:
    """Check the file first, because llama.cpp reports only that loading failed."""
    try:
        with path.expanduser().open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise UsageError(f"expected a GGUF file at {path}, got: {error.strerror or error}") from error
    if magic != b"GGUF":  # ggml, docs/gguf.md
        raise UsageError(f"expected a GGUF file at {path}, got one that begins with {magic!r}")
    return path.expanduser()


def _library() -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        advice = missing_extra(f"a local model needs xllamacpp ({error})", "local")
        if "libgomp" in str(error):  # missing in slim container images
            advice = f"xllamacpp needs the system library libgomp ({error}): install it, on Debian with: apt-get install libgomp1"
        raise BackendUnavailable(advice, backend="embedded") from error
    return xllamacpp


# -- the slot of a request ---------------------------------------------------------------------------------------------
# A slot keeps the prompt that it read last. Whether a message needs a tool is asked after the tool prompt alone. In the slot
# of the conversation, which begins with the same tool prompt, that would cut the conversation off, and the reply would read all
# of it again: 1.5 to 7 s at each of the first messages, measured with eight tools and 1.5 billion parameters on two cores
# (`benchmarks/decision_time.py`). So each has a slot of its own. What both begin with is read once, and copied to the other
# slot (30 ms for a thousand tokens). Slots share the memory of one context, and llama.cpp clears idle ones where that is full.


SLOTS: Final = 4
"""A conversation with the tool prompt and one without, what is asked beside each."""
_Use = tuple[str, bool]  # the system message, and whether it is asked aside


class Slots:
    """Records the last use of each slot; for a new use, the least recently used slot is taken."""

    def __init__(self) -> None:
        self._used: dict[_Use, int] = {}  # the latest last
        self._free = list(range(SLOTS))

    def place(self, request: CompletionRequest) -> tuple[int, int | None]:
        """Return a request's slot, and another one to copy to it first because its prompt begins alike; None for no other."""
        first = request.messages[0]
        system = first.content if first.role == "system" else ""
        use = (system, request.aside)
        source = self._used.get((system, not request.aside)) if system and use not in self._used else None
        slot = self._used.pop(use, None)
        if slot is None:
            slot = self._free.pop(0) if self._free else self._used.pop(self._oldest(but=source))
        self._used[use] = slot
        return slot, source

    def _oldest(self, *, but: int | None) -> _Use:
        return next(use for use, slot in self._used.items() if slot != but)
