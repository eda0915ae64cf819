"""What the tests would notice: small faults are put into the code one at a time, and the tests have to fail.

    make mutants                                  300 faults in parsing, binding and the turn, drawn with a seed
    make mutants REVISION=v1                      the same faults, against the tests of another revision
    make mutants ARGS="--only FILE --deep"        those that survived in FILE, against the sweeps of `make test-full`, too

The faults are Cosmic Ray's operators: another comparison, a condition negated, a number one off, `and` for `or`, a loop that
never runs. One is drawn for each of the places drawn; annotations are left out. A fault is killed when a test fails or hangs.
The tests are those of the folders in `GROUPS`, as `make test` runs them: the folder of the code first, then those that use it
most; a fault that survives has passed all of them. Results are lines of JSON (`--out`), and a run that was stopped goes on there.

Needs `cosmic-ray` beside the package's own environment, which `--python` names; see the Makefile.
"""

import argparse
import ast
import concurrent.futures
import io
import json
import queue
import random
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).parents[1]
TEST_SECONDS = 30  # for one test: a fault may make a loop endless
STAGE_SECONDS = 900
CHOSEN = "not live and not full"
DEEP = ["--hypothesis-profile=deep", "-m", "not live"]
TURN = ("turn", "turn_setup", "attempts", "generate", "reply_end", "run_call", "forced_call", "native")
# name -> the modules, and the tests in the order in which they are tried
GROUPS: dict[str, tuple[list[str], list[str]]] = {
    "parsing": (
        ["xmlcall/parsing/*.py"],
        ["tests/parsing/test_parser_corpus.py", "tests/parsing", "tests/binding", "tests/dialects", "tests/turns"],
    ),
    "binding": (
        ["xmlcall/binding/*.py"],
        ["tests/binding", "tests/parsing", "tests/agent/test_dependent_calls.py", "tests/schema", "tests/dialects"],
    ),
    "turn": ([f"xmlcall/agent/{name}.py" for name in TURN], ["tests/agent", "tests/proxy"]),
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
    """Return what can be changed in a file, by place."""
    source = file.read_text(encoding="utf-8")
    nodes, found = list(ast_nodes(get_ast(source))), dict[tuple[Any, Any], list[Fault]]()
    annotated = _annotations(source)
    for name in sorted(cosmic_ray.plugins.operator_names()):
        operator = cosmic_ray.plugins.get_operator(name)
        if operator.arguments():
            continue
        places = (place for node in nodes for place in operator().mutation_positions(node))
        for occurrence, (start, end) in enumerate(places):
            if not any(first <= start <= last for first, last in annotated):
                fault = Fault(group, str(file.relative_to(ROOT)), start[0], name, occurrence)
                found.setdefault((start, end), []).append(fault)
    return found


def _annotations(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return where annotations stand: nothing looks at them when a program runs."""
    found = []
    for node in ast.walk(ast.parse(source)):
        for name in ("annotation", "returns"):
            if (each := getattr(node, name, None)) is not None:
                found.append(((each.lineno, each.col_offset), (each.end_lineno, each.end_col_offset)))
    return found


def drawn(count: int, seed: int) -> list[Fault]:
    """Draw places of all groups, and a fault for each."""
    rng = random.Random(seed)
    places = [
        faults
        for group, (patterns, _) in GROUPS.items()
        for file in sorted(file for pattern in patterns for file in ROOT.glob(pattern))
        for _, faults in sorted(places_of(group, file).items())
    ]
    return [rng.choice(faults) for faults in rng.sample(places, min(count, len(places)))]


# -- trying ------------------------------------------------------------------------------------------------------------


def copies(folder: Path, count: int, revision: str) -> Iterator[Path]:
    """Make copies of a revision, in which files may be changed."""
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    for number in range(count):
        copy = folder / f"copy-{number}"
        shutil.rmtree(copy, ignore_errors=True)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(copy, filter="data")
        yield copy


def killer(copy: Path, python: str, group: str, deep: bool) -> str:
    """Run the tests of a group until one fails; return its name, or nothing."""
    options = DEEP if deep else ["-m", CHOSEN]
    for tests in GROUPS[group][1]:
        argv = [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--durations=0", f"--timeout={TEST_SECONDS}"]
        try:
            done = subprocess.run(
                [*argv, *options, tests], cwd=copy, capture_output=True, text=True, timeout=STAGE_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{tests}: no end in {STAGE_SECONDS} s"
        if done.returncode:
            failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return failed[0].split(" - ")[0] if failed else f"{tests}: exit code {done.returncode}"
    return ""


def tried(fault: Fault, copy: Path, python: str, deep: bool) -> dict[str, Any]:
    """Put a fault into a copy, run the tests, and take it out again."""
    file = copy / fault.file
    source = file.read_text(encoding="utf-8")
    changed = mutate_code(source, cosmic_ray.plugins.get_operator(fault.operator)(), fault.occurrence)
    if changed is None:
        raise ValueError(f"{fault} has no place in this revision: its code is another")
    try:
        file.write_text(changed, encoding="utf-8")
        by = killer(copy, python, fault.group, deep)
    finally:
        file.write_text(source, encoding="utf-8")
    lines = zip(source.splitlines(), changed.splitlines(), strict=False)
    before, after = next(((old.strip(), new.strip()) for old, new in lines if old != new), ("", ""))
    return {**asdict(fault), "killed_by": by, "before": before, "after": after}


def try_all(faults: list[Fault], out: Path, options: argparse.Namespace) -> None:
    """Try faults side by side, and write a line for each."""
    free: queue.Queue[Path] = queue.Queue()
    for copy in copies(out.parent, options.workers, options.revision):
        free.put(copy)

    def on_a_copy(fault: Fault) -> dict[str, Any]:
        copy = free.get()
        try:
            return tried(fault, copy, options.python, options.deep)
        finally:
            free.put(copy)

    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool, open(out, "a", encoding="utf-8") as file:
        for number, found in enumerate(concurrent.futures.as_completed([pool.submit(on_a_copy, each) for each in faults]), 1):
            row = found.result()
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            said = row["killed_by"] or "SURVIVED"
            print(f"{number}/{len(faults)} {row['file']}:{row['line']} {said}", flush=True)


# -- telling -----------------------------------------------------------------------------------------------------------


def fault_of(row: dict[str, Any]) -> Fault:
    """Read a fault of a line of results."""
    return Fault(**{name: row[name] for name in Fault.__dataclass_fields__})


def read_rows(out: Path) -> list[dict[str, Any]]:
    """Read results."""
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


def tell(rows: list[dict[str, Any]]) -> None:
    """Print a table of the groups, and each fault that survived."""
    total = Counter(row["group"] for row in rows)
    killed = Counter(row["group"] for row in rows if row["killed_by"])
    print("\n| code | faults | killed | |\n|---|---|---|---|")
    for name in [*GROUPS, "all"]:
        count, gone = (total.total(), killed.total()) if name == "all" else (total[name], killed[name])
        print(f"| {name} | {count} | {gone} | {100 * gone / max(count, 1):.1f} % |")
    for row in rows:
        if not row["killed_by"]:
            print(f"\n{row['file']}:{row['line']} {row['operator']}\n  - {row['before']}\n  + {row['after']}")


def main() -> None:
    """Draw, try, tell."""
    parser = argparse.ArgumentParser(description="Put small faults into the code; the tests have to fail.")
    parser.add_argument("--count", type=int, default=300, help="how many places (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    parser.add_argument("--revision", default="HEAD", help="whose code and tests are run (default HEAD)")
    parser.add_argument("--deep", action="store_true", help="run the tests as `make test-full` does, too")
    parser.add_argument("--only", type=Path, metavar="FILE", help="the faults that survived in this file of results")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has the package's test dependencies")
    parser.add_argument("--workers", type=int, default=2, help="how many at once (default 2)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants" / "results.jsonl", help="results")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if options.only:
        faults = [fault_of(row) for row in read_rows(options.only) if not row["killed_by"]]
    else:
        faults = drawn(options.count, options.seed)
    done = {fault_of(row) for row in read_rows(options.out)}
    try_all([fault for fault in faults if fault not in done], options.out, options)
    tell(read_rows(options.out))


if __name__ == "__main__":
    main()
