"""Figures of the structure of the code: `python benchmarks/structure.py --against REV`.

    python benchmarks/structure.py                          the figures of this checkout
    python benchmarks/structure.py --json                   ... for programs
    python benchmarks/structure.py --against 1b34787        before (a git revision, unpacked in a temporary folder) and after
    python benchmarks/structure.py --against 1b34787 --write    ... into benchmarks/results/structure.md

How each is counted, all over the Python files of `xmlcall/`:

- modules in the root: files directly in `xmlcall/`, `__init__.py` and `__main__.py` included; folders are not counted.
- rooms: folders directly in `xmlcall/`, and modules in the root but those two. Who reads the code has to know them.
- arrows: pairs of rooms of which one imports the other, at any place of a file.
- floors: rooms in the longest chain of imports.
- lines: all lines, and lines of code: without blank lines, comments and docstrings.
- changes of module, Python calls: for one call with two parameters, in the format that is taught, fed to the parser in chunks of
  4 characters and bound. Calls are `call` events of `sys.setprofile` in functions of the package, generators included; a
  change of module is one whose next caller of the package is in another module. All was imported and run once before.
- lines of the turn: of the modules that generate replies, run calls and go on, for the loop and for the proxy (`TURN`).
- functions: `def`s, nested ones too, from `def` to the last line.
- comments: the share of lines that have a comment; docstrings: the lines of strings that stand alone.
- fragments: modules of fewer than 60 lines; modules that only one other module imports from.
- worst words: "behind", "nobody" and "told", in any place of the package.
- tests, pages: lines of Python files in `tests/`; Markdown files directly in `docs/`, and the lines of the longest of them.
- parameters, fields: `self` and `cls` are not counted; fields are annotated names of a class that is decorated with `dataclass`.
"""

import argparse
import ast
import functools
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
PAGE = HERE / "benchmarks" / "results" / "structure.md"
LONG = 60  # lines of a function
FRAGMENT = 60  # lines of a module
WORST = re.compile(r"\b(?:behind|nobody|told)\b", re.IGNORECASE)

# What drives a turn, before and since it was written once; those that exist count.
TURN = (
    *("loop.py", "proxy/engine.py", "proxy/rounds.py", "proxy/passing.py"),
    *("turn/turn.py", "turn/turn_setup.py", "turn/opening.py", "agent/drive.py"),
    *("agent/turn.py", "agent/loop.py", "proxy/engine/engine.py", "proxy/engine/prompted.py", "proxy/engine/native.py"),
    "proxy/engine/answers.py",
)

CHUNK = 4
REPLY = """I look it up.
<function_calls>
<invoke name="get_weather">
<parameter name="city">Zürich</parameter>
<parameter name="days">3</parameter>
</invoke>
</function_calls>"""

PROBE = """
import json, sys
import xmlcall

text, size = json.load(sys.stdin)
properties = {"city": {"type": "string"}, "days": {"type": "integer"}}
catalog = xmlcall.Catalog([{"name": "get_weather", "inputSchema": {"type": "object", "properties": properties}}])

def run():
    parser = xmlcall.Parser(catalog)
    events = [event for start in range(0, len(text), size) for event in parser.feed(text[start:start + size])]
    ends = [event for event in events + parser.close() if isinstance(event, xmlcall.ToolCallEnd)]
    return [xmlcall.bind(event.raw, catalog) for event in ends]

calls = changes = 0

def count(frame, kind, argument):
    global calls, changes
    module = frame.f_globals.get("__name__", "")
    if kind == "call" and module.startswith("xmlcall."):
        calls += 1
        caller = frame.f_back
        while caller and not caller.f_globals.get("__name__", "").startswith("xmlcall."):
            caller = caller.f_back
        changes += caller is not None and caller.f_globals["__name__"] != module

[call] = run()
assert call.arguments == {"city": "Zürich", "days": 3}, call
sys.setprofile(count)
run()
sys.setprofile(None)
print(json.dumps([changes, calls]))
"""

Figures = Mapping[str, int | str]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def figures(tree: Path) -> Figures:
    """Count everything in a checkout.

    Args:
        tree: a folder with `xmlcall/`.
    """
    package = tree / "xmlcall"
    files = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    parsed = {path: ast.parse(text) for path, text in files.items()}
    arrows = {(room_of(path, package), room) for path, module in parsed.items() for room in imported(path, module, package)}
    arrows = {(above, below) for above, below in arrows if above and below and above != below}
    rooms = {room for path in files if (room := room_of(path, package))}
    functions = list(named(parsed, package, (ast.FunctionDef, ast.AsyncFunctionDef)))
    classes = list(named(parsed, package, (ast.ClassDef,)))
    lengths = [(length(node), name) for name, node in functions if isinstance(node, Function)]
    parameters = [(count_parameters(node), name) for name, node in functions if isinstance(node, Function)]
    fields = [(count_fields(node), name) for name, node in classes if isinstance(node, ast.ClassDef)]
    changes, calls = traced(tree)
    return {
        "modules in the root": sum(path.parent == package for path in files),
        "rooms": len(rooms),
        "arrows between rooms": len(arrows),
        "floors of imports": floors(arrows),
        "modules": len(files),
        "lines": sum(len(text.splitlines()) for text in files.values()),
        "lines of code": sum(code_lines(files[path], parsed[path]) for path in files),
        "changes of module for a call": changes,
        "Python calls for a call": calls,
        "lines of the turn": sum(len(files[package / name].splitlines()) for name in TURN if package / name in files),
        "median lines of a function": statistics.median_low(found for found, _ in lengths),
        f"functions over {LONG} lines": sum(found > LONG for found, _ in lengths),
        "longest function": told(lengths),
        "most parameters": told(parameters),
        "most fields": told(fields),
        **reading(tree, files, parsed),
    }


def reading(tree: Path, files: Mapping[Path, str], parsed: Mapping[Path, ast.Module]) -> Figures:
    """Count what a reader has before them: words beside the code, fragments, tests and pages."""
    package, text = tree / "xmlcall", "\n".join(files.values())
    importers = Counter(name for path, module in parsed.items() for name in imported_modules(path, module, package))
    pages = [path.read_text(encoding="utf-8").count("\n") for path in (tree / "docs").glob("*.md")]
    tests = (path.read_text(encoding="utf-8").count("\n") for path in (tree / "tests").rglob("*.py"))
    return {
        "lines of docstrings": sum(len(docstring_lines(module)) for module in parsed.values()),
        "lines with a comment, %": round(100 * sum(map(comment_lines, files.values())) / text.count("\n")),
        "modules of fewer than 60 lines": sum(0 < each.count("\n") < FRAGMENT for each in files.values()),
        "modules with one importer": sum(count == 1 for count in importers.values()),
        "worst words": len(WORST.findall(text)),
        "lines of tests": sum(tests),
        "pages of docs": len(pages),
        "lines of the longest page": max(pages, default=0),
    }


def told(found: Iterable[tuple[int, str]]) -> str:
    """Name the largest."""
    count, name = max(found)
    return f"{count} ({name})"


# -- imports -----------------------------------------------------------------------------------------------------------


def room_of(path: Path, package: Path) -> str:
    """Return the room that a file is in; "" for the package itself."""
    first = path.relative_to(package).with_suffix("").parts[0]
    return "" if first in ("__init__", "__main__") else first


def imported(path: Path, module: ast.Module, package: Path) -> Iterator[str]:
    """Yield the rooms that a file imports from."""
    here = path.relative_to(package).with_suffix("").parts
    for node in ast.walk(module):
        if not isinstance(node, ast.ImportFrom):
            continue
        words = tuple((node.module or "").split(".")) if node.module else ()
        if node.level:
            base = here[: len(here) - node.level] + words
            yield from base[:1] or [alias.name for alias in node.names]
        elif words[:1] == ("xmlcall",):
            yield from words[1:2] or [alias.name for alias in node.names]


def imported_modules(path: Path, module: ast.Module, package: Path) -> set[str]:
    """Return the modules of the package that a file imports from, by their dotted names."""
    here, found = path.relative_to(package).with_suffix("").parts, set()
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "xmlcall"):
            words = tuple((node.module or "").split(".")) if node.module else ()
            base = here[: len(here) - node.level] + words if node.level else words[1:]
            found |= {".".join(base), *(".".join([*base, alias.name]) for alias in node.names)}
    known = {".".join(each.relative_to(package).with_suffix("").parts) for each in package.rglob("*.py")}
    return found & known


def floors(arrows: Iterable[tuple[str, str]]) -> int:
    """Return how many rooms the longest chain of imports has; where rooms import each other, a chain ends."""
    below: dict[str, set[str]] = {}
    for above, room in arrows:
        below.setdefault(above, set()).add(room)
    open_rooms: set[str] = set()

    @functools.cache
    def height(room: str) -> int:
        open_rooms.add(room)
        found = 1 + max((height(each) for each in sorted(below.get(room, ())) if each not in open_rooms), default=0)
        open_rooms.remove(room)
        return found

    return max(map(height, sorted(below)), default=1)


# -- lines, functions, classes -----------------------------------------------------------------------------------------


def code_lines(text: str, module: ast.Module) -> int:
    """Count the lines that hold code."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(module))


def comment_lines(text: str) -> int:
    """Count the lines that have a comment."""
    return sum(token.type == tokenize.COMMENT for token in tokenize.generate_tokens(io.StringIO(text).readline))


def docstring_lines(module: ast.Module) -> set[int]:
    """Return the lines of strings that stand alone: docstrings of modules, classes, functions and names."""
    alone = [node for node in ast.walk(module) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    strings = [node for node in alone if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]
    return {line for node in strings for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def named(parsed: Mapping[Path, ast.Module], package: Path, kinds: tuple[type[ast.AST], ...]) -> Iterator[tuple[str, ast.AST]]:
    """Yield all definitions of some kinds with `module.name`."""
    for path, module in parsed.items():
        home = ".".join(path.relative_to(package).with_suffix("").parts)
        for node in ast.walk(module):
            if isinstance(node, kinds):
                yield f"{home}.{getattr(node, 'name', '')}", node


def length(node: Function) -> int:
    """Count the lines of a function, from `def` on."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def count_parameters(node: Function) -> int:
    """Count the parameters of a function."""
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    return sum(each is not None and each.arg not in ("self", "cls") for each in given)


def count_fields(node: ast.ClassDef) -> int:
    """Count the fields of a dataclass; 0 for another class."""
    if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        return 0
    return sum(isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each.annotation) for each in node.body)


# -- running, and other revisions --------------------------------------------------------------------------------------


def traced(tree: Path) -> tuple[int, int]:
    """Return changes of module and Python calls for one call."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        input=json.dumps([REPLY, CHUNK]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    changes, calls = json.loads(done.stdout)
    return changes, calls


@contextmanager
def unpacked(revision: str) -> Iterator[Path]:
    """Give a temporary folder with the package of a revision."""
    packed = subprocess.run(
        ["git", "archive", revision, "xmlcall", "prompts", "tests", "docs"], cwd=HERE, stdout=subprocess.PIPE, check=True
    )
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
        yield Path(folder)


def table(found: Mapping[str, Figures]) -> str:
    """Write figures as a table in Markdown, a column a state."""
    rows = [["", *found], ["---"] * (1 + len(found))]
    for name in next(iter(found.values())):
        values = [each[name] for each in found.values()]
        rows.append([name, *(value if isinstance(value, str) else f"{value:,}" for value in values)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def page(found: Mapping[str, Figures], revision: str) -> str:
    """Write the page of benchmarks/results."""
    command = f"`python benchmarks/structure.py --against {revision} --write`"
    return (
        f"# Structure of the code\n\n{command}, {date.today()}.\nThe program says how each figure is counted.\n\n{table(found)}"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Figures of the structure of the code.")
    parser.add_argument("--against", metavar="REV", help="a git revision to compare with")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(HERE)}; needs --against")
    options = parser.parse_args()
    if options.write and not options.against:
        parser.error("expected --against REV beside --write: the page compares two states")
    found = {"now": figures(HERE)}
    if options.against:
        with unpacked(options.against) as tree:
            found = {f"before ({options.against})": figures(tree), **found}
    print(json.dumps(found, indent=1) if options.json else table(found), end="")
    if options.write:
        PAGE.write_text(page(found, options.against), encoding="utf-8")


if __name__ == "__main__":
    main()
