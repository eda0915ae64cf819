"""What a model server is sent and what a caller is told, in every test of two revisions: a change of the inside changes neither.

    make contracts REVISION=main          the tests of the loop and the proxy at that revision, held against this checkout's
    make contracts ARGS="--show 20"       with more of the differences

The tests' scripted models are the seam below: each request with all that is not at its default, and whether the stream was left
before its end. `ToolLoop.run` and `Engine.respond` are the seam above: each event. Both are written down for each test, as a
plugin of pytest (`-p contracts`, with `XMLCALL_CONTRACTS` for where), and compared by the test's name. Ids are told by their
order; times are left out. Properties are not compared, since their examples are drawn.
"""

import argparse
import dataclasses
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SUITES = ["tests/agent", "tests/proxy", "tests/integrations", "tests/hosts"]
_ID = re.compile(r"call_[0-9a-f]{24}|resp_[0-9a-f]{8,}|0x[0-9a-f]{6,}|/tmp/[\w./-]+|127\.0\.0\.1:\d+")
_RENAMED = {"TurnStarted": "ReplyStarted", "TurnEnded": "ReplyEnded", "turn": "number"}  # since 0.2.0: no difference
_noted: list[str] = []


def shape(value: Any) -> Any:
    """Return what counts of a value: of a dataclass its class and what is not at its default, without times."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: each for each in dataclasses.fields(value) if "seconds" not in each.name and each.repr}
        told = {name: getattr(value, name, None) for name in fields}
        return {
            "": type(value).__name__,
            **{name: shape(each) for name, each in told.items() if not _is_default(fields[name], each)},
        }
    if isinstance(value, Mapping):
        return {str(key): shape(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [shape(each) for each in value]
    if isinstance(value, Set):
        return sorted(map(str, value))
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def _is_default(field: "dataclasses.Field[Any]", value: Any) -> bool:
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    return type(value) is type(default) and bool(value == default)


def _note(seam: str, value: Any) -> None:
    _noted.append(json.dumps([seam, shape(value)], ensure_ascii=False, sort_keys=True))


def _heard(original: Callable[..., AsyncGenerator[Any]], asked: str, told: str) -> Callable[..., AsyncGenerator[Any]]:
    """Return a method that writes down its first argument, if `asked`, what it yields, if `told`, and whether it was left."""

    async def heard(self: Any, first: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        if asked:
            _note(asked, first)
        is_left = True
        try:
            async with aclosing(original(self, first, *args, **kwargs)) as stream:
                async for event in stream:
                    if told:
                        _note(told, event)
                    yield event
            is_left = False
        except Exception as error:
            is_left = False
            _note("raises", f"{type(error).__name__}: {error}")
            raise
        finally:
            if is_left:
                _note("left", asked or told)

    return heard


def pytest_configure() -> None:
    """Put ears on both seams, if it is wanted."""
    if "XMLCALL_CONTRACTS" not in os.environ:
        return
    from xmlcall import ToolLoop
    from xmlcall.backends.scripted import ScriptedBackend
    from xmlcall.proxy.engine.engine import Engine

    ScriptedBackend.stream = _heard(ScriptedBackend.stream, "asks", "")  # type: ignore[method-assign]
    ToolLoop.run = _heard(ToolLoop.run, "", "event")  # type: ignore[method-assign]
    Engine.respond = _heard(Engine.respond, "", "event")  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Write down what one test heard."""
    _noted.clear()
    try:
        return (yield)
    finally:
        is_drawn = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if "XMLCALL_CONTRACTS" in os.environ and _noted and not is_drawn:
            file = Path(os.environ["XMLCALL_CONTRACTS"]) / f"{hashlib.sha256(item.nodeid.encode()).hexdigest()[:24]}.txt"
            file.write_text("\n".join([item.nodeid, *_by_order(_noted)]), encoding="utf-8", errors="backslashreplace")


def _by_order(lines: Sequence[str]) -> list[str]:
    numbers: dict[str, str] = {}
    return [_ID.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), line) for line in lines]


def record(tree: Path, out: Path) -> None:
    """Run the tests of a checkout, and write down what they hear."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    plugin = f"{ROOT / 'tests'}{os.pathsep}{tree}"  # this file, also for a checkout that has none
    environment = {**os.environ, "XMLCALL_CONTRACTS": str(out), "PYTHONPATH": plugin}
    suites = [suite for suite in SUITES if (tree / suite).exists()]
    chosen = ["-n", "auto", "--dist", "worksteal", "-q", "-m", "not live and not full", "--no-header", "--tb=line"]
    subprocess.run([sys.executable, "-m", "pytest", "-p", "contracts", *chosen, *suites], cwd=tree, env=environment, check=False)


def checkout(revision: str, tree: Path) -> None:
    """Unpack a revision of this repository."""
    shutil.rmtree(tree, ignore_errors=True)
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(tree, filter="data")


def _with_new_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            _RENAMED.get(key, key): _RENAMED.get(each, each) if key == "" else _with_new_names(each)
            for key, each in value.items()
        }
    return [_with_new_names(each) for each in value] if isinstance(value, list) else value


def _read(file: Path) -> tuple[str, list[str]]:
    name, *lines = file.read_text("utf-8").split("\n")
    return name, [json.dumps(_with_new_names(json.loads(line)), sort_keys=True, ensure_ascii=False) for line in lines if line]


def differences(before: Path, after: Path, show: int) -> int:
    """Print the tests in which something else was sent or told, with the first lines that differ; return how many there are."""
    old, new = (dict(map(_read, folder.iterdir())) for folder in (before, after))
    if not old.keys() & new.keys():
        raise SystemExit("nothing was compared: see above why the tests of one of the revisions did not run")
    both = sorted(old.keys() & new.keys())
    changed = [name for name in both if old[name] != new[name]]
    for name in changed[:show]:
        print(f"\n{name}")
        lines = [
            line for line in difflib.unified_diff(old[name], new[name], lineterm="", n=0) if line[:2] not in ("--", "++", "@@")
        ]
        print("\n".join(f"  {line[:1200]}" for line in lines[:6]))
    print(f"\n{len(both)} tests in both, {len(changed)} of them differ; {len(old.keys() ^ new.keys())} in one revision only")
    print(f"{sum(map(len, old.values()))} requests and events before, {sum(map(len, new.values()))} after")
    return len(changed)


def main() -> int:
    """Compare two revisions; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--revision", default="HEAD", help="what this checkout is held against")
    parser.add_argument("--show", type=int, default=10, help="differences to print")
    options = parser.parse_args()
    build = ROOT / "build" / "contracts"
    checkout(options.revision, build / "tree")
    record(build / "tree", build / "before")
    record(ROOT, build / "after")
    return int(bool(differences(build / "before", build / "after", options.show)))


if __name__ == "__main__":
    sys.exit(main())
