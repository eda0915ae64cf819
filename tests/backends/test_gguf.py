"""The header of a GGUF file, and the context that a local model gets; files are made here, no model is needed."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlcall.backends import gguf
from xmlcall.backends.gguf import available_memory, cache_bytes_a_token, context_for, read_metadata, trained_length

UINT32, STRING, ARRAY, UINT64, FLOAT64, BOOL = 4, 8, 9, 10, 12, 7


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key: str, value: Any) -> bytes:
    """A key with a value: a string, an integer, a truth value, a list of strings or of integers."""
    match value:
        case str():
            return text(key) + struct.pack("<I", STRING) + text(value)
        case bool():
            return text(key) + struct.pack("<IB", BOOL, value)
        case float():
            return text(key) + struct.pack("<Id", FLOAT64, value)
        case int():
            return text(key) + struct.pack("<IQ", UINT64, value)
        case [str(), *_]:
            return text(key) + struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(text, value))
        case _:
            return text(key) + struct.pack("<IIQ", ARRAY, UINT32, len(value)) + struct.pack(f"<{len(value)}I", *value)


def header(fields: Mapping[str, Any], *, count: int | None = None, version: int = 3) -> bytes:
    pairs = [pair(key, value) for key, value in fields.items()]
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(pairs) if count is None else count) + b"".join(pairs)


QWEN: dict[str, Any] = {
    "general.architecture": "qwen2",
    "general.license": "apache-2.0",
    "qwen2.rope.freq_base": 1e6,
    "qwen2.block_count": 24,
    "qwen2.context_length": 32768,
    "qwen2.embedding_length": 896,
    "qwen2.attention.head_count": 14,
    "qwen2.attention.head_count_kv": 2,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.ggml.tokens": ["!", "hello", "世界"] * 100,
    "tokenizer.ggml.token_type": [1] * 5000,
    "tokenizer.ggml.eos_token_id": 7,
}
QWEN_BYTES = 24 * 2 * (64 + 64) * 2


def without(*keys: str, **more: Any) -> dict[str, Any]:
    return {key: value for key, value in QWEN.items() if key.removeprefix("qwen2.") not in keys} | {
        f"qwen2.{key.replace('__', '.')}": value for key, value in more.items()
    }


def test_a_header_is_read_past_what_is_of_no_use() -> None:
    metadata = read_metadata(header(QWEN))
    skipped = {"qwen2.rope.freq_base", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"}
    assert metadata == {key: value for key, value in QWEN.items() if key not in skipped}


@pytest.mark.parametrize(
    ("fields", "cost", "trained"),
    [
        (QWEN, QWEN_BYTES, 32768),
        (without("attention.head_count_kv"), 24 * 14 * 128 * 2, 32768),  # then it is as many as heads
        (without(attention__key_length=128, attention__value_length=32), 24 * 2 * 160 * 2, 32768),
        (without(attention__head_count_kv=[2, 4, 0]), 6 * 128 * 2, 32768),  # a number for each layer
        (without("context_length"), QWEN_BYTES, None),
        (without("block_count"), None, 32768),
        (without("embedding_length"), None, 32768),
        (without("attention.head_count", "attention.head_count_kv"), None, 32768),
        (without(attention__head_count=0), None, 32768),
        (without(attention__head_count_kv="two"), None, 32768),
        (without(context_length="long"), QWEN_BYTES, None),
        ({}, None, None),
    ],
)
def test_what_a_token_costs_and_what_the_model_was_trained_for(
    fields: dict[str, Any], cost: int | None, trained: int | None
) -> None:
    metadata = read_metadata(header(fields))
    assert (cache_bytes_a_token(metadata), trained_length(metadata)) == (cost, trained)


def test_what_stands_before_a_cut_is_read() -> None:
    whole = header(QWEN | {"tokenizer.ggml.tokens": ["!", "世界"], "tokenizer.ggml.token_type": [1] * 9})
    found = [len(read_metadata(whole[:end])) for end in range(len(whole))]
    assert found == sorted(found)
    assert found[-1] < len(read_metadata(whole))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GGU",
        b"PK\x03\x04" + b"\x00" * 100,
        header(QWEN, version=1),
        header(QWEN, version=0x03000000),  # big-endian
        header({}, count=2**64 - 1),
        header({}, count=1) + struct.pack("<Q", 2**64 - 1),
        header({}, count=1) + text("k") + struct.pack("<I", 99),
        header({}, count=1) + text("k") + struct.pack("<IQ", STRING, 2**63),
        header({}, count=1) + text("k") + struct.pack("<IIQ", ARRAY, UINT32, 2**64 - 1),
        header({}, count=1) + text("k") + struct.pack("<IIQ", ARRAY, STRING, 2**64 - 1) + b"\x00" * 80_000,
        header({}, count=1) + text("k") + struct.pack("<IIQ", ARRAY, ARRAY, 2**64 - 1) + b"\x09" * 80_000,
    ],
)
def test_hostile_headers_say_nothing(data: bytes) -> None:
    assert read_metadata(data) == {}


@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    metadata = read_metadata(header(QWEN, count=2**32) + data)
    assert trained_length(metadata) is not None
    read_metadata(b"GGUF\x03\x00\x00\x00" + data)
    read_metadata(data)


# -- the context -------------------------------------------------------------------------------------------------------

GIB = 2**30


@pytest.mark.parametrize(
    ("fields", "memory", "context"),
    [
        (QWEN, 16 * GIB, 32768),
        (without(context_length=131072), 64 * GIB, 32768),
        (without(context_length=2048), 16 * GIB, 2048),
        (without(context_length=16384), 16 * GIB, 16384),
        (QWEN, 4 * 20_000 * QWEN_BYTES, 19968),  # whole multiples of 256
        (QWEN, 100 * 2**20, 8192),
        (QWEN, 0, 8192),
        (QWEN, None, 8192),
        (without("block_count"), 16 * GIB, 8192),
        (without("context_length"), 16 * GIB, 8192),
        ({}, 16 * GIB, 8192),
    ],
)
def test_the_context_is_as_large_as_is_of_use_and_the_memory_bears(
    fields: dict[str, Any], memory: int | None, context: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header(fields))
    size = path.stat().st_size
    monkeypatch.setattr(gguf, "available_memory", lambda: None if memory is None else memory + size)
    assert context_for(path) == context


MEMINFO = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\nHugePages_Total:       0\n"


def machine(folder: Path, files: Mapping[str, str]) -> tuple[Path, Path]:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder / "proc", folder / "cgroup"


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, None),
        ({"proc/meminfo": "MemTotal: many\nMemAvailable: kB"}, None),
        ({"proc/meminfo": MEMINFO}, 8_000_000 * 1024),
        ({"proc/meminfo": MEMINFO, "cgroup/memory.max": "max\n", "cgroup/memory.current": "5\n"}, 8_000_000 * 1024),
        (
            {"proc/meminfo": MEMINFO, "cgroup/memory.max": f"{4 * GIB}\n", "cgroup/memory.current": f"{3 * GIB}\n"}
            | {"cgroup/memory.stat": f"anon 5\ninactive_file {2 * GIB}\n"},
            3 * GIB,
        ),
        (
            {"proc/self/cgroup": "0::/user/app\n", "cgroup/user/memory.max": f"{GIB}", "cgroup/user/memory.current": "0"}
            | {"cgroup/user/app/memory.max": f"{2 * GIB}", "cgroup/user/app/memory.current": "0"},
            GIB,
        ),
        ({"cgroup/memory.max": "5", "cgroup/memory.current": "9"}, 0),
        ({"proc/self/cgroup": "0::/" + "a/" * 5000, "proc/meminfo": MEMINFO}, 8_000_000 * 1024),
    ],
    ids=["not Linux", "nonsense", "a machine", "no limit", "a container", "a limit further out", "over the limit", "a long path"],
)
def test_the_memory_that_may_be_taken(files: dict[str, str], available: int | None, tmp_path: Path) -> None:
    assert available_memory(*machine(tmp_path, files)) == available
