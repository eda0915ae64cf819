"""Imports point one way (docs/design.md, section 2), and `import xmlcall` stays cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "xmlcall"

# What each module or folder may import from the package, lowest layer first. Everything above the line does I/O.
LAYERS: dict[str, set[str]] = {}


def layer(names: str, below: str) -> None:
    for name in names.split():
        LAYERS[name] = set(below.split())


CORE = """
errors tool types references events catalog schema dialects scanner states value calldraft valuereader callreader fork opening
prose parser schemacost jsonstring jsonmachine jsonish jsonextent jsoncall jsonbody barejson openings xmlvalue schemapattern
names parameters conversion binding reply runaway repeated schemaplaces schemawords schemamend
"""
layer("errors", "")
layer("tool", "errors")
layer("types", "tool")
layer("events", "types")
layer("references", "types")
layer("names", "")
layer("schemapattern", "")
layer("schemaplaces", "types references")
layer("schemawords", "types schemapattern")
layer("schemamend", "types references schemaplaces schemawords")
layer("completion", "types")
layer("dialects", "errors")
layer("scanner", "dialects")
layer("states", "")
layer("value", "types events dialects scanner")
layer("calldraft", "types events dialects scanner value jsonish jsoncall")
layer("fork", "scanner")
layer("valuereader", "names events dialects scanner states value calldraft fork")
layer("callreader", "events scanner states valuereader")
layer("opening", "scanner")
layer("jsonextent", "")
layer("jsoncall", "types events dialects jsonish")
layer("jsonbody", "types dialects scanner jsonextent jsoncall")
layer("barejson", "types dialects scanner jsonextent jsoncall")
layer("prose", "events scanner states")
layer("openings", "catalog dialects scanner states jsoncall opening prose")
layer("parser", "errors events catalog dialects scanner states callreader jsonbody barejson jsoncall openings")
layer("jsonstring", "")
layer("jsonmachine", "types jsonstring")
layer("jsonish", "types jsonmachine jsonstring")
layer("schemacost", "references")
layer("schema", "errors tool types references schemapattern schemaplaces schemacost")
layer("catalog", "errors tool types references names schema schemamend")
layer("parameters", "types references catalog")
layer("xmlvalue", "references")
layer("conversion", "references schema jsonish xmlvalue")
layer("binding", "types references catalog schema names parameters jsonish conversion")
layer("reply", "errors types events catalog dialects parser parameters binding")
layer("content", "types")
layer("signature", "types references schema")
layer("prompt", "errors types names catalog dialects content reply signature")
layer("feedback", "types names catalog dialects content reply signature prompt")
layer("offering", "types")
layer("echo", "types catalog references signature")
layer("runaway", "")
layer("repeated", "types")
layer("leaks", "types events prompt")
layer("wire", "errors types completion catalog")
layer("fitting", "types")
# -- I/O --
layer("download", "errors")
layer("sources", "errors download")
layer("models", "errors download sources")
layer("config", "errors")
layer("policy", "types")
layer("backends", "errors types completion fitting wire models download")
layer("hosts", "errors types schema schemamend wire config")
layer("demo", "")
layer("ending", "events leaks")
layer("generation", "errors types events completion catalog parser reply runaway leaks ending backends")
layer("native", "types events completion catalog parser reply leaks ending backends generation")
layer("constrained", "errors types events completion tool catalog reply backends generation")
layer("firsttoken", "completion backends")
layer("toolchoice", "errors types completion catalog dialects reply backends firsttoken generation")
layer("toolneed", "errors types completion catalog dialects prompt reply backends firsttoken toolchoice")
layer("loop_events", "types events completion fitting leaks generation toolneed")
layer("repair", "errors types policy")
layer("calling", "errors types catalog echo policy repair hosts loop_events")
layer(
    "loop",
    """errors types tool completion catalog content dialects reply prompt feedback offering fitting echo leaks repeated policy
    repair backends hosts generation native constrained toolneed calling loop_events""",
)
layer(
    "bench",
    """errors types tool events completion catalog names content dialects signature prompt feedback offering wire parser reply
    backends hosts config generation native toolneed loop loop_events policy repair models download sources""",
)
layer(
    "proxy",
    """errors types references tool completion events catalog schema content dialects prompt feedback offering fitting echo leaks
    repeated wire binding reply policy repair backends hosts generation native constrained toolneed loop_events calling""",
)
layer("clients", "errors types backends proxy")
layer("cli", " ".join(LAYERS))
layer("__main__", "cli")

HEAVY = ("httpx", "httpx2", "jinja2", "jsonschema", "lxml", "mcp", "ollama", "prompt_toolkit", "pydantic", "rich", "starlette")


def owner(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imported(path: Path) -> set[str]:
    """Return the modules and folders of the package that a file imports, at any depth of it."""
    here = path.relative_to(PACKAGE).with_suffix("").parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level] + tuple((node.module or "").split(".") if node.module else ())
            found |= {base[0]} if base else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("xmlcall."):
            found.add((node.module or "").split(".")[1])
    return found


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    name = owner(path)
    assert name in LAYERS, f"{name} has no layer; give it one in this file and in docs/design.md"
    assert imported(path) - {name} <= LAYERS[name]


def test_layers_have_no_circle() -> None:
    done: set[str] = set()
    while rest := LAYERS.keys() - done:
        ready = {name for name in rest if LAYERS[name] <= done}
        assert ready, f"a circle among {sorted(rest)}"
        done |= ready


def test_the_core_does_no_io() -> None:
    for name in CORE.split():
        files = [PACKAGE / f"{name}.py"] if (PACKAGE / f"{name}.py").exists() else sorted((PACKAGE / name).rglob("*.py"))
        for path in files:
            text = path.read_text(encoding="utf-8")
            for word in ("import asyncio", "import httpx", "import logging", "import os", "import socket", "import time"):
                assert word not in text, f"{path.name}: {word}"


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import xmlcall", set()),
        ("import xmlcall; xmlcall.Parser; xmlcall.parse('hello')", set()),
        ("import xmlcall; xmlcall.connect; xmlcall.ToolLoop", set()),
        ("import xmlcall; xmlcall.system_prompt([])", {"jinja2"}),
    ],
)
def test_what_an_import_loads(statement: str, allowed: set[str]) -> None:
    assert loaded_by(statement) & set(HEAVY) <= allowed
