"""Imports point one way (docs/design.md, section 2), and `import xmlcall` stays cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "xmlcall"

# What each folder may import from the package, lowest layer first. Everything above the line does I/O.
LAYERS: dict[str, set[str]] = {}


def layer(names: str, below: str) -> None:
    for name in names.split():
        LAYERS[name] = set(below.split())


CORE = "errors text_forms types loosejson schema tools dialects binding parsing prompting turn wire"
layer("errors", "")
layer("toml_file", "errors")
layer("private_folders", "")
layer("installed", "")
layer("systems", "")
layer("text_forms", "")
layer("addresses", "text_forms")
layer("types", "errors")
layer("loosejson", "types")
layer("schema", "errors types")
layer("tools", "errors text_forms types loosejson schema")
layer("dialects", "errors toml_file types tools")
layer("binding", "text_forms types loosejson schema tools dialects")
layer("parsing", "errors text_forms types loosejson tools dialects binding")
layer("prompting", "errors types schema tools dialects")
layer("turn", "errors types loosejson schema tools dialects binding parsing prompting")
layer("wire", "errors types")
# -- I/O --
layer("records", "errors private_folders systems types")
layer("models", "errors private_folders")
layer("profiles", "errors toml_file private_folders types prompting turn")
layer("backends", "errors installed types dialects models wire")
layer("hosts", "errors private_folders text_forms addresses types schema")
layer(
    "agent",
    "errors toml_file private_folders text_forms addresses types schema tools dialects binding parsing prompting turn "
    "wire profiles backends hosts",
)
layer(
    "turn_records",
    "errors toml_file types loosejson schema tools dialects binding parsing prompting turn wire backends records agent",
)
layer(
    "bench",
    "errors private_folders systems installed types tools dialects binding parsing prompting turn wire profiles models backends "
    "hosts agent turn_records",
)
layer(
    "proxy",
    "errors toml_file types loosejson schema tools dialects binding parsing prompting turn wire profiles "
    "backends hosts agent turn_records",
)
layer("clients", "errors types turn wire backends proxy")
layer("ui", " ".join(LAYERS))
layer("integrations", " ".join(LAYERS))
layer("cli", " ".join(LAYERS))
layer("__main__", "cli")

HEAVY = ("httpx", "httpx2", "jinja2", "jsonschema", "lxml", "mcp", "ollama", "prompt_toolkit", "pydantic", "rich", "starlette")


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


def test_imports_point_down() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path != PACKAGE / "__init__.py":
            name = path.relative_to(PACKAGE).with_suffix("").parts[0]
            assert name in LAYERS, f"{name} has no layer; give it one in this file and in docs/design.md"
            assert imported(path) - {name} <= LAYERS[name], path


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
            for name in ("asyncio", "httpx", "logging", "os", "random", "secrets", "socket", "time", "uuid"):
                assert f"import {name}\n" not in text, f"{path.name}: {name}"


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
