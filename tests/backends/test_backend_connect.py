"""From a model's name to its backend."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from xmlcall.backends.connect import connect
from xmlcall.backends.embedded import EmbeddedBackend
from xmlcall.backends.ollama import OllamaBackend
from xmlcall.backends.openai import OpenAIBackend
from xmlcall.errors import UsageError
from xmlcall.models import known as models
from xmlcall.models.sources import Progress, ProgressCallback


@pytest.mark.parametrize(
    ("model", "kind", "name"),
    [
        ("local", EmbeddedBackend, models.DEFAULT_MODEL),
        ("smollm2-135m", EmbeddedBackend, "smollm2-135m"),
        (" some/where/tiny.Q4.GGUF ", EmbeddedBackend, "tiny.Q4"),
        ("ollama:gemma3:4b", OllamaBackend, "gemma3:4b"),
        ("ollama:hf.co/x/y:Q4", OllamaBackend, "hf.co/x/y:Q4"),
        ("http://host:8080/v1", OpenAIBackend, ""),
        ("HTTPS://host#org/model:free", OpenAIBackend, "org/model:free"),
    ],
)
def test_forms(model: str, kind: type, name: str) -> None:
    backend = connect(model)
    assert (type(backend), backend.model) == (kind, name)


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("", "smollm2-135m, got ''.$"),
        ("locl", "Did you mean local"),
        ("Qwen2.5-coder-1.5", r"Did you mean qwen2\.5-coder-1\.5b or"),
        ("ollma:gemma3", "Did you mean ollama:gemma3"),
        ("ollama", "Name one of its models .*, as in ollama:gemma3:4b; only `xmlcall serve` takes them all"),
        ("gemma3:4b", "Did you mean ollama:gemma3:4b"),
        ("localhost:8080/v1", "Did you mean http://localhost:8080/v1"),
        ("ftp://me:secret@host/x", r"got 'host/x'\.$"),
        ("./folder", r"got './folder'\.$"),
    ],
)
def test_what_is_no_model(model: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint) as caught:
        connect(model)
    assert 'expected a model as "http://host:8080/v1" or' in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        ("http://host", {"context_length": 4096}, "llama-server -c"),
        ("local", {"context_length": 0}, "at least 1 token, got 0"),
        ("local", {"api_key": "x"}, "an API key is only for a server"),
        ("x.gguf", {"api_key": "x"}, "an API key is only for a server"),
        ("ollama:x", {"api_key": "x"}, "an API key is only for a server"),
    ],
)
def test_arguments_that_do_not_go_with_the_model(model: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        connect(model, **arguments)


def test_importing_it_is_cheap() -> None:
    heavy = {"httpx", "ollama", "xllamacpp", "pydantic", "mcp"}
    code = f"import sys, xmlcall.backends.connect; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


async def test_a_known_model_is_fetched_when_it_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps: list[Progress] = []

    def pull(name: str, *, progress: ProgressCallback) -> Path:
        assert threading.current_thread() is not threading.main_thread()
        progress(Progress(done=1, total=2, note=name))
        return tmp_path / "missing.gguf"

    monkeypatch.setitem(sys.modules, "xllamacpp", ModuleType("xllamacpp"))
    monkeypatch.setattr(models, "pull", pull)
    backend = connect("smollm2-135m", progress=steps.append)
    with pytest.raises(UsageError, match=r"expected a GGUF file at .*missing\.gguf, got: No such file"):
        await backend.__aenter__()
    assert steps == [Progress(done=1, total=2, note="smollm2-135m")]


async def test_a_cancelled_opening_ends_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended = threading.Event(), threading.Event()

    def pull(name: str, *, progress: ProgressCallback) -> Path:
        started.set()
        try:
            for _ in range(1000):
                progress(Progress(done=0, total=1))
                time.sleep(0.005)
        finally:
            ended.set()
        raise AssertionError("the download went on")

    monkeypatch.setitem(sys.modules, "xllamacpp", ModuleType("xllamacpp"))
    monkeypatch.setattr(models, "pull", pull)
    task = asyncio.create_task(connect("local").__aenter__())
    await asyncio.to_thread(started.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 2)
