"""What the tests would notice: small faults are put into the code one at a time, and a test has to fail.

    make mutants                                  300 faults in parsing, binding and the turn, drawn with a seed
    make mutants REVISION=v1                      the same faults, held against the tests of another revision
    make mutants ARGS="--only FILE --deep"        those of FILE that survived, held against the sweeps of `make test-full`, too

The faults are Cosmic Ray's operators: another comparison, a condition negated, a number one off, `and` for `or`, a loop that
never runs. Of the places in functions so many are drawn, and for each place one fault. A fault is killed when a test fails or
does not end.

A plain run of the tests for each fault would take hours, nearly all of it in starting and in tests that never come to the
place. So one process collects the tests, runs each once to see which lines it comes to (coverage.py's contexts), and forks for
each fault. The child gives the function its changed code, runs the tests that come to the line, those with the fewest lines
first, and tells the first that fails. Processes that a test starts have no fault: what such tests protect counts as unprotected.

Results are lines of JSON (`--out`); a run that was stopped goes on there. Needs coverage.py, pytest and, in `--packages`,
cosmic-ray; see the Makefile.
"""

import argparse
import ast
import contextlib
import io
import itertools
import json
import os
import random
import selectors
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import types
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).parents[1]
FAULT_SECONDS = 600  # for all tests of a fault
TEST_SECONDS = 30  # for one test: a fault may make a loop endless
CHOSEN = ["-m", "not live and not full"]
DEEP = ["--hypothesis-profile=deep", "-m", "not live and (not full or sweep)"]
AROUND_BINDING = [
    f"tests/{name}.py" for name in ("agent/test_dependent_calls", "agent/test_unsaid_values", "proxy/test_proxy_answers")
]
# name -> the modules, and the folders and files of the tests that are there for them
GROUPS: dict[str, tuple[list[str], list[str]]] = {
    "parsing": (["xmlcall/parsing/*.py"], ["tests/parsing", "tests/binding", "tests/dialects", "tests/turn_records"]),
    "binding": (["xmlcall/binding/*.py"], ["tests/binding", "tests/parsing", "tests/schema", *AROUND_BINDING]),
    "turn": (
        ["xmlcall/turn/*.py", "xmlcall/agent/drive.py", "xmlcall/agent/run_call.py"],
        ["tests/turn", "tests/agent", "tests/proxy", "tests/parsing/test_leaked_calls.py"],
    ),
}


@dataclass(frozen=True)
class Fault:
    """A change of one place.

    Args:
        group: of `GROUPS`.
        file: from the root of the project.
        line: of the place.
        operator: Cosmic Ray's name of the change.
        occurrence: which place of the file it is, for the operator.
    """

    group: str
    file: str
    line: int
    operator: str
    occurrence: int


# -- drawing -----------------------------------------------------------------------------------------------------------


def places_of(group: str, file: Path) -> dict[tuple[Any, Any], list[Fault]]:
    """Return what can be changed in the functions of a file, by place."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    source = file.read_text(encoding="utf-8")
    nodes, found, bodies = list(ast_nodes(get_ast(source))), dict[tuple[Any, Any], list[Fault]](), list(_bodies(source))
    for name in sorted(plugins.operator_names()):
        operator = plugins.get_operator(name)
        if operator.arguments():
            continue
        places = (place for node in nodes for place in operator().mutation_positions(node))
        for occurrence, (start, end) in enumerate(places):
            if any(first <= start <= last for first, last in bodies):
                fault = Fault(group, str(file.relative_to(ROOT)), start[0], name, occurrence)
                found.setdefault((start, end), []).append(fault)
    return found


def _bodies(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield where the statements of functions stand, without annotations of variables."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.body:
                if not isinstance(each, ast.AnnAssign):
                    yield (each.lineno, each.col_offset), (each.end_lineno or 0, each.end_col_offset or 0)


def drawn(count: int, seed: int) -> list[Fault]:
    """Draw places of all groups, and a fault for each."""
    rng = random.Random(seed)
    places = [
        faults
        for group, (patterns, _) in GROUPS.items()
        for file in sorted(file for pattern in patterns for file in ROOT.glob(pattern))
        for _, faults in sorted(places_of(group, file).items())
    ]
    found = (_first_valid(rng.sample(faults, len(faults))) for faults in rng.sample(places, len(places)))
    return list(itertools.islice(filter(None, found), count))


def _first_valid(faults: Sequence[Fault]) -> Fault | None:
    """Return the first fault that leaves a program, None if there is none."""
    return next((fault for fault in faults if _leaves_a_program(fault)), None)


def _leaves_a_program(fault: Fault) -> bool:
    try:
        compile(_changed((ROOT / fault.file).read_text(encoding="utf-8"), fault), "fault", "exec")
    except (SyntaxError, AttributeError):  # `:=` for `=`; Cosmic Ray replaces exceptions by name, and `errors.Name` is none
        return False
    return True


def _changed(source: str, fault: Fault) -> str:
    from cosmic_ray import plugins
    from cosmic_ray.mutating import mutate_code

    changed: str | None = mutate_code(source, plugins.get_operator(fault.operator)(), fault.occurrence)
    if changed is None:
        raise ValueError(f"{fault} has no place in this revision: its code is another")
    return changed


# -- putting in --------------------------------------------------------------------------------------------------------


def put_in(fault: Fault) -> tuple[str, str]:
    """Change a function of a module that is loaded; return the line before and after."""
    module = sys.modules[fault.file.removesuffix(".py").replace("/", ".")]
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    changed = _changed(source, fault)
    fresh = types.ModuleType(module.__name__)
    fresh.__dict__.update({name: getattr(module, name) for name in ("__file__", "__package__", "__spec__", "__loader__")})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `is` with a literal is a fault like any other
        exec(compile(changed, str(module.__file__), "exec"), fresh.__dict__)
    _swap(vars(module), vars(fresh), module.__name__)
    lines = zip(source.splitlines(), changed.splitlines(), strict=False)
    return next(((old.strip(), new.strip()) for old, new in lines if old != new), ("", ""))


def _swap(old: Any, new: Any, module: str) -> None:
    """Give functions the code of others of the same names: whoever holds them has the change."""
    for name, value in dict(old).items():
        other = new.get(name)
        if isinstance(value, type) and value.__module__ == module and isinstance(other, type):
            _swap(vars(value), vars(other), module)
            continue
        for function, changed in zip(_functions(value), _functions(other), strict=False):
            if function.__module__ == module:
                function.__code__, function.__defaults__ = changed.__code__, changed.__defaults__


def _functions(value: Any) -> Iterator[types.FunctionType]:
    """Yield the functions behind a name: it may be decorated, a property or a method of a class."""
    for name in ("fget", "fset", "func", "__func__", "__wrapped__"):
        if (inner := getattr(value, name, None)) is not None and not isinstance(value, type):
            yield from _functions(inner)
    if isinstance(value, types.FunctionType):
        yield value
    elif hasattr(value, "cache_clear"):
        value.cache_clear()


# -- running -----------------------------------------------------------------------------------------------------------


class Trial:
    """A pytest plugin that tries faults in place of running the tests."""

    def __init__(self, faults: Sequence[Fault], out: Path, workers: int) -> None:
        self._faults, self._out, self._workers = faults, out, workers
        self._failed: dict[str, None] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        """Know the marks of `CHOSEN`: an earlier revision may not."""
        config.addinivalue_line("markers", "full: of `make test-full`")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what fails, in a child."""
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Look which lines each test comes to, and try each fault."""
        lines, failing = _in_child(lambda: self._lines_of(session.items))
        by_name = {item.nodeid: item for item in session.items}
        print(f"{len(session.items)} tests, {len(self._faults)} faults", flush=True)
        for name in failing:
            print(f"left out, it fails without a fault: {name}", flush=True)
        under_way: dict[int, tuple[Fault, float, int]] = {}
        selector, left, number = selectors.DefaultSelector(), list(reversed(self._faults)), 0
        while left or under_way:
            while left and len(under_way) < self._workers:
                fault = left.pop()
                names = sorted(lines[fault.file].get(str(fault.line), {}).items(), key=lambda pair: pair[1])
                reader, pid = _forked(lambda fault=fault, names=names: self._tried(fault, [by_name[name] for name, _ in names]))
                under_way[reader] = (fault, time.monotonic() + FAULT_SECONDS, pid)
                selector.register(reader, selectors.EVENT_READ)
            for key, _ in selector.select(timeout=1.0):
                selector.unregister(key.fd)
                fault, _, pid = under_way.pop(key.fd)
                number += 1
                self._note(fault, _result(key.fd, pid), number)
            for _, until, pid in under_way.values():
                if time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)  # its end of the pipe closes, which is told as a test that does not end
        return True

    def _lines_of(self, items: Sequence[pytest.Item]) -> tuple[dict[str, dict[str, dict[str, int]]], list[str]]:
        """Run each test; return file -> line -> the tests that come there, each with how many lines, and those that fail."""
        files = sorted({fault.file for fault in self._faults})
        measured = coverage.Coverage(data_file=None, include=files, config_file=False)
        measured.start()
        for item, following in itertools.zip_longest(items, items[1:]):
            measured.switch_context(item.nodeid)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        measured.stop()
        data, found = measured.get_data(), dict[str, dict[int, list[str]]]()
        for file in files:
            found[file] = data.contexts_by_lineno(str(Path(file).resolve()))
        sizes = Counter(name for lines in found.values() for names in lines.values() for name in names)
        usable = {item.nodeid for item in items} - self._failed.keys()
        return {
            file: {str(line): {name: sizes[name] for name in names if name in usable} for line, names in lines.items()}
            for file, lines in found.items()
        }, list(self._failed)

    def _tried(self, fault: Fault, items: Sequence[pytest.Item]) -> dict[str, Any]:
        """Put a fault in and run tests until one fails."""
        before, after = put_in(fault)
        for item, following in itertools.zip_longest(items, items[1:]):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                break
        return {"killed_by": next(iter(self._failed), ""), "tests": len(items), "before": before, "after": after}

    def _note(self, fault: Fault, found: dict[str, Any], number: int) -> None:
        with open(self._out, "a", encoding="utf-8") as file:
            file.write(json.dumps({**asdict(fault), **found}, ensure_ascii=False) + "\n")
        said = found["killed_by"] or f"SURVIVED {found['tests']} tests"
        print(f"{number}/{len(self._faults)} {fault.file}:{fault.line} {said}", flush=True)


def _forked(work: Any) -> tuple[int, int]:
    """Run a function in a child; return where its result can be read, and the child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return reader, pid
    os.close(reader)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        said = json.dumps(work())
    except BaseException as error:
        said = json.dumps({"error": f"{type(error).__name__}: {error}"})
    with open(writer, "w", encoding="utf-8") as file:
        file.write(said)
    os._exit(0)  # without pytest's own end, which is the parent's


def _result(reader: int, pid: int) -> Any:
    with open(reader, encoding="utf-8") as file:
        said = file.read()
    os.waitpid(pid, 0)
    if not said:
        return {"killed_by": "a test that does not end", "tests": 0, "before": "", "after": ""}
    found = json.loads(said)
    if "error" in found:
        raise RuntimeError(found["error"])
    return found


def _in_child(work: Any) -> Any:
    return _result(*_forked(work))


# -- telling -----------------------------------------------------------------------------------------------------------


def fault_of(row: dict[str, Any]) -> Fault:
    """Read a fault of a line of results."""
    return Fault(**{name: row[name] for name in Fault.__dataclass_fields__})


def read_rows(out: Path) -> list[dict[str, Any]]:
    """Read results."""
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


def tell(rows: list[dict[str, Any]]) -> None:
    """Print each fault that survived, and a table of the groups."""
    for row in rows:
        if not row["killed_by"]:
            print(f"\n{row['file']}:{row['line']} {row['operator']}\n  - {row['before']}\n  + {row['after']}")
    total = Counter(row["group"] for row in rows)
    killed = Counter(row["group"] for row in rows if row["killed_by"])
    print("\n| code | faults | killed | |\n|---|---|---|---|")
    for name in [*GROUPS, "all"]:
        count, gone = (total.total(), killed.total()) if name == "all" else (total[name], killed[name])
        print(f"| {name} | {count} | {gone} | {100 * gone / max(count, 1):.1f} % |")


def options_of() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Put small faults into the code; a test has to fail.")
    parser.add_argument("--count", type=int, default=300, help="how many places (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    parser.add_argument("--revision", help="whose code and tests are run (default: those of this checkout)")
    parser.add_argument("--deep", action="store_true", help="run the sweeps as `make test-full` does")
    parser.add_argument("--only", type=Path, metavar="FILE", help="the faults that survived in this file of results")
    parser.add_argument("--packages", type=Path, default=ROOT / "build" / "mutants" / "packages", help="where cosmic-ray is")
    parser.add_argument("--workers", type=int, default=2, help="how many at once (default 2)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants" / "results.jsonl", help="results")
    return parser.parse_args()


@contextlib.contextmanager
def checked_out(revision: str | None, folder: Path) -> Iterator[Path]:
    """Give a folder with a revision."""
    if revision is None:
        yield ROOT
        return
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Draw, try, tell."""
    options = options_of()
    sys.path.append(str(options.packages))  # after our own packages, whose versions count
    out = options.out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = read_rows(options.only) if options.only else []
    chosen = [fault_of(row) for row in rows if not row["killed_by"]] if options.only else drawn(options.count, options.seed)
    done = {fault_of(row) for row in read_rows(out)}
    by_group = defaultdict[str, list[Fault]](list)
    for fault in chosen:
        if fault not in done:
            by_group[fault.group].append(fault)
    with checked_out(options.revision, out.parent / "revision") as tree:
        for group, faults in by_group.items():
            held = [fault for fault in faults if (tree / fault.file).exists()]
            gone = f", without {len(faults) - len(held)} of modules that this revision has not" if held != faults else ""
            print(f"-- {group}{gone}", flush=True)
            if held:
                _forked_group(tree, group, Trial(held, out, options.workers), options.deep)
    tell([row for row in read_rows(out) if fault_of(row) in set(chosen)])


def _forked_group(tree: Path, group: str, trial: Trial, deep: bool) -> None:
    """Try the faults of a group in a process of its own: each has other tests."""
    pid = os.fork()
    if not pid:
        os.chdir(tree)
        argv = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", f"--timeout={TEST_SECONDS}", "--durations=0"]
        tests = [name for name in GROUPS[group][1] if (tree / name).exists()]  # an earlier revision may not have them all
        code = pytest.main([*argv, *(DEEP if deep else CHOSEN), *tests], plugins=[trial])
        os._exit(int(code))
    if os.waitpid(pid, 0)[1]:
        raise SystemExit(f"the tests of {group} could not be run: see above")


if __name__ == "__main__":
    main()
