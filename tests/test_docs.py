"""What the documents claim, checked against the code."""

import html
import json
import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from terminal_session import screen
from test_layers import LAYERS, PACKAGE

import xmlcall
from xmlcall.agent import loop
from xmlcall.dialects import DIALECTS
from xmlcall.errors import ISSUES, REPAIRS
from xmlcall.models.known import KNOWN
from xmlcall.private_folders import user_path
from xmlcall.proxy import create_app

ROOT = Path(__file__).parent.parent
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
RESULTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "benchmarks/results").glob("*.md"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    section = read("docs/reference/repairs.md").split(f"## {heading}")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]+?) \|", section, flags=re.MULTILINE))


@pytest.mark.parametrize(("heading", "codes"), [("Repair codes", REPAIRS), ("Issue codes", ISSUES)])
def test_every_code_is_documented(heading: str, codes: dict[str, str]) -> None:
    assert rows(heading) == codes


def cells(page: str, heading: str) -> list[list[str]]:
    """Return the rows of the first table under a heading, each as its cells."""
    section = read(page).split(f"\n{heading}\n")[1].split("\n#")[0]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
    return found[2:]


def test_every_module_is_in_the_design() -> None:
    """In the row of its folder; a row without a folder goes on with the one above. `cli` and `bench` list only some."""
    modules: dict[str, set[str]] = {}
    here = ""
    for folder, names, _ in cells("docs/design.md", "### Modules"):
        here = folder.strip("`/") or here
        modules.setdefault(here, set()).update(names.strip("`").split())
    for folder in modules.keys() - {"bench", "cli"}:
        there = {path.stem for path in (PACKAGE if folder == "root" else PACKAGE / folder).glob("[!_]*.py")}
        missing = {stem for stem in there if not any(fnmatch(stem, name) for name in modules[folder])}
        gone = {name for name in modules[folder] if not any(fnmatch(stem, name) for stem in there)}
        assert (missing, gone) == (set(), set()), f"{folder}: missing in docs/design.md, section 2; named there and gone"
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")} - {"."}
    assert {folder for folder in folders if not folder.startswith("bench/")} == modules.keys() - {"root"}


def test_the_table_of_imports_is_the_one_that_is_tested() -> None:
    table = {name.strip("`"): below for name, below in cells("docs/design.md", "### What may import what")}
    assert table.pop("cli") == "all of these"
    assert LAYERS["cli"] == {*table}
    assert {name: {*below.strip("`").split()} for name, below in table.items()} == {name: LAYERS[name] for name in table}


def test_the_readme_is_short_and_its_commands_are_those_of_ci() -> None:
    readme = read("README.md")
    assert len(readme.splitlines()) <= 140
    targets = re.findall(r"^([a-z-]+):", read("Makefile"), flags=re.MULTILINE)
    named = re.findall(r"[`$] ?make ([a-z-]+)", readme)
    assert {*named} <= {*targets}
    assert {"demo", "chat", "test"} <= {*named}
    assert "make test" in read(".ci/run").splitlines()


def too_long(page: str) -> list[str]:
    """Return the lines of over 100 characters that can be broken: not tables, headings, links and code."""
    prose = re.sub(r"^```.*?^```$", lambda fence: "\n" * fence[0].count("\n"), read(page), flags=re.MULTILINE | re.DOTALL)
    lines = [(number, line) for number, line in enumerate(prose.splitlines(), start=1) if not line.startswith(("|", "#", "<!--"))]
    return [f"{page}:{number}" for number, line in lines if len(line) > 100 and not UNBREAKABLE.fullmatch(line)]


def test_pages_of_users_are_few_and_short() -> None:
    """Details live in docs/reference; docs/README.md leads to every page of both."""
    index = read("docs/README.md")
    pages = [path for path in (ROOT / "docs").glob("*.md") if path.name not in ("README.md", "design.md")]
    assert len(pages) <= 12
    assert [path.name for path in pages if len(path.read_text(encoding="utf-8").splitlines()) >= 200] == []
    pages += (ROOT / "docs/reference").glob("*.md")
    assert [path.name for path in pages if f"]({path.relative_to(ROOT / 'docs').as_posix()})" not in index] == []


# A single link, or code in backticks, that fills its line.
UNBREAKABLE = re.compile(r"\s*(?:- )?(?:\[[^\]]*\]\([^)]*\)|`[^`]*`)[.,;:)]*")


def test_lines_have_at_most_100_characters() -> None:
    assert {page: lines for page in PAGES if (lines := too_long(page))} == {}


def anchors(page: str) -> list[str]:
    """Return the anchors of a page's headings, as Git forges write them."""
    headings = re.findall(r"^#+ (.*)$", read(page), flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-") for heading in headings]


def test_the_index_of_decisions_is_complete() -> None:
    """A line for each decision, in the order of its page; and a part for each page."""
    index = re.findall(r"^- \[(.*)\]\((.*)\)$", read("docs/decisions/README.md"), flags=re.MULTILINE)
    parts = re.findall(r"^## \[.*\]\((.*)\)$", read("docs/decisions/README.md"), flags=re.MULTILINE)
    assert {*parts} == {path.name for path in (ROOT / "docs/decisions").glob("*.md")} - {"README.md"}
    expected = []
    for name in parts:
        page = f"docs/decisions/{name}"
        titles = re.findall(r"^## (.*)$", read(page), flags=re.MULTILINE)
        expected += [(title, f"{name}#{anchor}") for title, anchor in zip(titles, anchors(page)[1:], strict=True)]
    assert index == expected


def test_the_example_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The Python example, with a scripted model in place of the local one."""
    from xmlcall.backends.scripted import ScriptedBackend

    call = '<invoke name="add"><parameter name="a">17</parameter><parameter name="b">25</parameter></invoke>'
    replies = [f"<function_calls>{call}</function_calls>", "17 + 25 is 42."]
    monkeypatch.setattr(loop, "connect", lambda model: ScriptedBackend(replies))
    example, snippet = re.findall(r"```python\n(.*?)```", read("README.md"), flags=re.DOTALL)
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == "17 + 25 is 42.\n"
    names: dict[str, Any] = {"xmlcall": xmlcall}
    exec(compile(snippet, "README.md", "exec"), names)
    assert names["reply"].text == "Hm. "
    assert names["reply"].calls[0].arguments == {"a": "1"}


async def test_the_curl_command_of_the_readme_gets_a_tool_call() -> None:
    import httpx

    from xmlcall.backends.scripted import ScriptedBackend

    [data] = re.findall(r"chat/completions .*? -d '(.*?)'\n", read("README.md"), flags=re.DOTALL)
    call = '<invoke name="weather"><parameter name="city">Rome</parameter></invoke>'
    app = create_app(ScriptedBackend([f"<function_calls>{call}</function_calls>"]), mode="xml")
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            answer = (await client.post("/v1/chat/completions", json=json.loads(data))).json()
    [made] = answer["choices"][0]["message"]["tool_calls"]
    assert (made["function"]["name"], json.loads(made["function"]["arguments"])) == ("weather", {"city": "Rome"})


def test_the_picture_of_the_session_is_that_of_its_recording() -> None:
    drawn = html.unescape(re.sub(r"<[^>]*>|\s", "", read("docs/images/session.svg").partition("</defs>")[2]))
    lines = [re.sub(r"\s", "", line.plain) for line in screen()]
    assert "".join(lines) in drawn.replace("\xa0", "")
    assert sum("convert_time" in line for line in lines) > 1
    assert "@font-face" not in read("docs/images/session.svg"), "a picture fetches nothing"


def test_the_readme_names_each_folder_of_a_person() -> None:
    """`user_path` knows the kinds; where a variable names another place, the person knows it."""
    kinds = {"cache": ".cache", "config": ".config", "data": ".local/share", "state": ".local/state"}
    assert kinds.keys() == {*get_args(get_type_hints(user_path)["kind"])}
    assert [folder for folder in kinds.values() if f"~/{folder}/xmlcall" not in read("README.md")] == []


def test_the_example_of_the_python_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a scripted model in place of the local one, and the demo server under the name of the example."""
    from xmlcall.backends.scripted import ScriptedBackend

    server = {"command": sys.executable, "args": ["-P", "-m", "xmlcall.hosts.demo_server"]}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"time": server}}))
    call = '<invoke name="get_weather"><parameter name="location">Tokyo</parameter></invoke>'
    replies = [f"<function_calls>{call}</function_calls>", '<function_calls><invoke name="x"></invoke></function_calls>', "Done."]
    monkeypatch.setattr(xmlcall, "connect", lambda model: ScriptedBackend(replies))
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"```python\n(.*?)```", read("docs/python.md"), flags=re.DOTALL)
    exec(compile(example, "docs/python.md", "exec"), {"__name__": "page"})
    shown = capsys.readouterr().out
    assert shown.startswith("time.get_weather({'location': 'Tokyo'})\nx [\"There is no tool 'x'.")
    assert shown.endswith("Done.\n(end)\n")


def test_public_names_are_documented() -> None:
    names = ("python", "design", "clients", "models", "reference/bench")
    pages = "".join(read(f"docs/{name}.md") for name in names)
    public = [name for name in xmlcall.__all__ if not name.endswith("Error")]
    assert [name for name in public if not re.search(rf"\b{name}\b", pages)] == []


def test_every_dialect_is_documented() -> None:
    for name, dialect in DIALECTS.items():
        assert f"| `{name}` |" in read("docs/reference/dialects.md"), dialect


def test_files_and_headings_that_are_named_exist() -> None:
    for page, target in ((each, to) for each in (*PAGES, *RESULTS) for to in re.findall(r"\]\(([^)]+)\)", read(each))):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(path.resolve().relative_to(ROOT).as_posix()), f"{page}: {target}"


def test_every_command_is_documented() -> None:
    commands = "run chat tools resources prompts login policy models probe profiles log bench serve"
    for command in commands.split():
        assert f"xmlcall {command}" in read("README.md")


def test_models_of_the_readme_are_known() -> None:
    for name in re.findall(r"--model (qwen[\w.-]+|smollm[\w.-]+)", read("README.md")):
        assert name in KNOWN


def test_nothing_of_a_machine_is_committed() -> None:
    """No absolute paths of a home or work folder in what users read."""
    for name in (*PAGES, *RESULTS, *(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py"))):
        assert not re.search(r"/(?:root|work|home)/\w", read(name)), name


def test_the_duties_of_mcp_clients_name_tests_and_modules_that_exist() -> None:
    page = read("docs/reference/mcp.md")
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*/test_*.py")}
    named = re.findall(r"(test_\w+\.py)::(test_\w+)", page)
    assert len(named) > 40
    assert [f"{file}::{test}" for file, test in named if f"def {test}(" not in texts.get(file, "")] == []
    modules = re.findall(r"`((?:\w+/)+\w+\.py)`", page)
    assert [name for name in modules if not (PACKAGE / name).exists() and not (ROOT / name).exists()] == []
