"""What an installation brings: the core alone needs little, the default install has a bounded number of packages."""

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from fresh_installs import PYTHON, WAYS
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parent.parent
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

NEEDED: Final = ("regex", "lxml", "jinja2", "jsonschema", "referencing")
"""What the core imports, each where it is needed."""

THEIR_NEEDS: Final = ("attrs", "rpds-py", "jsonschema-specifications", "markupsafe", "typing_extensions")

MODULES: Final = {*NEEDED, "attr", "attrs", "rpds", "jsonschema_specifications", "markupsafe", "typing_extensions"}

MOST_PACKAGES: Final = 45
"""Beside xmlcall itself; docs/decisions/dependencies.md says what each is for."""

PROGRAM: Final = '''
import xmlcall
from xmlcall import Ask, Asking, Capabilities, Catalog, Chunk, Done, Parser, Run, Turn

SCHEMA = {
    "type": "object",
    "properties": {"day": {"type": "string", "format": "date"}, "count": {"type": "integer"}, "place": {"type": "object"}},
    "required": ["day", "count"],
}
CALL = """<function_calls>
<invoke name="book">
<parameter name="day">2026-12-24</parameter>
<parameter name="count">3</parameter>
<parameter name="place"><city>Graz</city></parameter>
</invoke>
</function_calls>"""
TOOLS = Catalog([{"name": "book", "description": "Book seats.", "inputSchema": SCHEMA}])

assert "Book seats." in xmlcall.system_prompt(TOOLS)
(call,) = xmlcall.parse(CALL, TOOLS).calls
assert call.arguments == {"day": "2026-12-24", "count": 3, "place": {"city": "Graz"}}, call
assert xmlcall.bind(call.raw, TOOLS) == call
assert xmlcall.parse(xmlcall.render([call], TOOLS), TOOLS).calls[0].arguments == call.arguments
parser = Parser(TOOLS)
assert [event for piece in (CALL[:60], CALL[60:]) for event in parser.feed(piece)] + parser.close()

asked = [{"role": "user", "content": "Book 3 seats in Graz for 2026-12-24."}]
turn = xmlcall.begin_turn(asked, TOOLS, asking=Asking(), server=Capabilities(server="mine"))
assert isinstance(turn, Turn)
replies, ran = [CALL, "They are booked."], []
while not isinstance(action := turn.next(), Done):
    if isinstance(action, Ask):
        turn.receive(Chunk(text=replies.pop(0)))
        turn.end()
    elif isinstance(action, Run):
        turn.start(action.call.id)
        ran.append(action.call.arguments)
        turn.give(action.call.id, "ok")
assert (action.reason, action.text, ran) == ("end", "They are booked.", [call.arguments]), action
'''

# Refuses every other package, as if it were not installed.
HOOK: Final = f"""
import importlib.abc, sys

class Refusing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {sorted(MODULES | {"xmlcall"})} and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"{{name}} is refused", name=name)

sys.meta_path.insert(0, Refusing())
"""

# Lists the packages of site-packages that were imported.
TELL: Final = """
import sys
files = {name.partition(".")[0]: getattr(each, "__file__", "") or "" for name, each in sys.modules.items()}
print(*sorted(name for name, file in files.items() if "site-packages" in file))
"""


def run(*command: str, seconds: float = 100, **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return str(done.stdout)


@pytest.mark.timeout(120)
def test_the_core_imports_only_what_it_needs(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run(sys.executable, "-c", HOOK + PROGRAM, cwd=tmp_path, env=environment)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_core_works_with_five_packages_alone(tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"), seconds=200)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    run(*install, *NEEDED, *THEIR_NEEDS, str(ROOT), seconds=600)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    at_start, imported = (
        {*run(python, "-P", "-c", code, cwd=tmp_path, env=environment).split()} for code in (TELL, PROGRAM + TELL)
    )
    assert imported - at_start - MODULES == {"xmlcall"}
    assert {*NEEDED} <= imported


def test_the_default_install_has_few_packages() -> None:
    """Follow what each installed package says that it needs, from what `pyproject.toml` says now."""
    wanted = [(Requirement(each), frozenset[str]()) for each in PROJECT["dependencies"]]
    found: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        needed, extras = wanted.pop()
        if needed.marker is not None and not any(needed.marker.evaluate({"extra": extra}) for extra in extras or {""}):
            continue
        key = (canonicalize_name(needed.name), frozenset(needed.extras))
        if key not in found:
            found.add(key)
            wanted += [(Requirement(each), key[1]) for each in metadata.requires(needed.name) or ()]
    names = {name for name, _ in found}
    assert 20 < len(names) <= MOST_PACKAGES, sorted(names)


def test_tests_have_what_the_extras_bring() -> None:
    extras = PROJECT["optional-dependencies"]
    assert f"xmlcall[{','.join(sorted(extras.keys() - {'dev', 'fuzz', 'local'}))}]" in extras["dev"]


def test_the_ways_to_install_are_those_of_the_readme() -> None:
    """Each is tried from the wheel and from a checkout by `make installs`, which the release runs before it publishes."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for way in WAYS.values():
        shown = [*way.install, way.use] if way.use != "xmlcall" else way.install
        commands = [
            each.replace(f"{PYTHON} ", "python3 ").replace("{home}/venv", ".venv").replace(" --quiet", "") for each in shown
        ]
        assert [each for each in commands if each.format(it=".") not in readme] == []


def test_a_release_is_checked_before_it_is_published() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert "make installs" in [step.get("run") for step in build["steps"]]
    assert (publish["needs"], publish["if"], publish["permissions"]) == (
        "build",
        "github.ref_type == 'tag'",
        {"id-token": "write"},
    )
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "twine check --strict dist/*" in makefile.partition("\ndist:")[2].partition("\n\n")[0]
    assert "\ninstalls: dist " in makefile
