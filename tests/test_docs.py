"""What the documents claim, checked against the code."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import xmlcall
from xmlcall.dialects import DIALECTS
from xmlcall.errors import ISSUES, REPAIRS
from xmlcall.models.known import KNOWN

ROOT = Path(__file__).parent.parent


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    section = read("docs/repairs.md").split(f"## {heading}")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]+?) \|", section, flags=re.MULTILINE))


@pytest.mark.parametrize(("heading", "codes"), [("Repair codes", REPAIRS), ("Issue codes", ISSUES)])
def test_every_code_is_documented(heading: str, codes: dict[str, str]) -> None:
    assert rows(heading) == codes


def test_every_module_is_in_the_design() -> None:
    layout = read("docs/design.md").split("## 3.")[0]
    rooms = (
        "",
        "types",
        "loosejson",
        "schema",
        "tools",
        "dialects",
        "binding",
        "parsing",
        "prompting",
        "models",
        "backends",
        "hosts",
    )
    for room in (*rooms, "hosts/mcp", "agent", "proxy", "proxy/http", "proxy/formats", "proxy/engine"):
        for path in (ROOT / "xmlcall" / room).glob("*.py"):
            known = path.stem in layout or any(f"{path.stem[:length]}*" in layout for length in range(1, len(path.stem)))
            assert known or path.stem.startswith("__"), path.relative_to(ROOT)


def test_the_example_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The Python example, with a scripted model in place of the local one."""
    from xmlcall.backends.scripted import ScriptedBackend

    call = '<invoke name="add"><parameter name="a">17</parameter><parameter name="b">25</parameter></invoke>'
    replies = [f"<function_calls>{call}</function_calls>", "17 + 25 is 42."]
    monkeypatch.setattr(xmlcall, "connect", lambda model: ScriptedBackend(replies))
    example, snippet = re.findall(r"```python\n(.*?)```", read("README.md"), flags=re.DOTALL)
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == "17 + 25 is 42.\n"
    names: dict[str, Any] = {"xmlcall": xmlcall}
    exec(compile(snippet, "README.md", "exec"), names)
    assert names["reply"].text == "Hm. "
    assert names["reply"].calls[0].arguments == {"a": "1"}


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
    pages = "".join(read(f"docs/{name}.md") for name in ("python", "design", "clients", "bench"))
    names = [name for name in xmlcall.__all__ if not name.endswith("Error")]
    assert [name for name in names if not re.search(rf"\b{name}\b", pages)] == []


def test_every_dialect_is_documented() -> None:
    for name, dialect in DIALECTS.items():
        assert f"| `{name}` |" in read("docs/dialects.md"), dialect


def test_files_that_are_named_exist() -> None:
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        for target in re.findall(r"\]\(([^)#:]+)\)", read(name)):
            assert (ROOT / Path(name).parent / target).exists(), f"{name}: {target}"


def test_every_command_is_documented() -> None:
    for command in ("run", "chat", "tools", "prompt", "parse", "models", "bench", "serve"):
        assert f"xmlcall {command}" in read("README.md")


def test_models_of_the_readme_are_known() -> None:
    for name in re.findall(r"--model (qwen[\w.-]+|smollm[\w.-]+)", read("README.md")):
        assert name in KNOWN


def test_nothing_of_a_machine_is_committed() -> None:
    """No absolute paths of a home or work folder in what users read."""
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "xmlcall").rglob("*.py")):
        assert not re.search(r"/(?:root|work|home)/\w", path.read_text(encoding="utf-8")), path
