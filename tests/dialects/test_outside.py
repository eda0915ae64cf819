"""Rows of wire formats from files and from installed packages."""

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from xmlcall import ToolCall, UsageError, dialects, parse, render
from xmlcall.dialects import DIALECTS, Dialect, add, result_form_of, select
from xmlcall.dialects.dialect import TypeMark
from xmlcall.dialects.outside import installed_rows, read_row, shadowed

ROOT = Path(__file__).parents[2]
QWEN = DIALECTS["qwen"]  # as a package declares a row
TOOLS = [{"name": "get_weather", "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
PAGE = (ROOT / "docs" / "reference" / "dialects.md").read_text(encoding="utf-8")
[REPLY] = re.findall(r"```text\n(\[call:.*?)\n```", PAGE, flags=re.DOTALL)
[EXAMPLE] = re.findall(r'```toml\n(name = "square".*?)```', PAGE, flags=re.DOTALL)
[RESULTS] = re.findall(r"```toml\n(\[results\]\n.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(autouse=True)
def _only_own_rows() -> Iterator[None]:
    kept = dict(DIALECTS)
    yield
    DIALECTS.clear()
    DIALECTS.update(kept)


def file_of(folder: Path, text: str) -> Path:
    file = folder / "row.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_example_of_the_page_is_read_and_written(tmp_path: Path) -> None:
    file = file_of(tmp_path, EXAMPLE)
    assert not any(isinstance(call, ToolCall) for call in parse(REPLY, TOOLS).calls)
    for dialect in (str(file), "square", "auto"):
        [call] = parse(REPLY, TOOLS, dialect=dialect).calls
        assert isinstance(call, ToolCall)
        assert call.arguments == {"city": "Paris"}
    written = render([{"name": "get_weather", "arguments": {"city": "Paris"}}], TOOLS, dialect="square")
    assert written.replace("\n", "") == REPLY
    assert select(str(file)) == select("square")


def test_results_go_back_as_the_row_says(tmp_path: Path) -> None:
    row = select(str(file_of(tmp_path, f"{EXAMPLE}\n{RESULTS}")))[0]
    assert row.results.write([("get_weather", "dry", False)]).text == "[result:get_weather]dry[/result]"
    assert result_form_of("[result:get_weather]dry[/result]") == row.results


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "x = [", "expected TOML in"),
        ('name = "square"', 'nome = "square"', "got 'nome'; correct its name"),
        ('name = "square"', "name = 1", "expected a text as name, got 1"),
        ('name = "square"', 'name = "square"\nis_exact = "yes"', "expected true or false as is_exact, got 'yes'"),
        ('name = "square"', 'name = "square"\nkeys = ["name"]', "expected two texts as keys"),
        ('name = "square"', 'name = "square"\nbody = "yaml"', "expected tags, json, keyed, .* as body, got 'yaml'"),
        ('name = "square"', 'name = "square"\njson_mark = {written = "x"}', "expected the keys written, attribute and value"),
        ("[written]", "[results]\nopen = 'x'\n\n[written]", "got 'open'; correct its name"),
        ("[written]", "[results]\nresult_open = '[x]'\n\n[written]", "got no result_close; add it"),
        ("[written]", "[results]\nresult_open = 'x'\nresult_close = ']'\n\n[written]", "begin with a mark in brackets"),
        ("[written]", "[writing]", "got 'writing'; correct its name"),
        ("call_close = '\\[/call\\]'", "call_close = '\\[/call\\]*'", "write a bound"),
        ("call_close = '\\[/call\\]'", "call_close = ''", "at least one character"),
        (
            "parameter_open = '\\[arg:[\\w.\\-]{1,128}\\]'",
            "parameter_open = '\\[arg\\]'",
            "got none that does; correct the pattern",
        ),
        ("call_close = '\\[/call\\]'\n", "", "expected call_close in tags"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in EXAMPLE
    file = file_of(tmp_path, EXAMPLE.replace(old, new, 1))
    with pytest.raises(UsageError, match=told) as raised:
        select(str(file))
    assert str(file) in str(raised.value)


def test_every_kind_of_key_is_read(tmp_path: Path) -> None:
    more = 'is_exact = true\nkeys = ["name", "arguments"]\nbody = "tags"\n'
    row = read_row(file_of(tmp_path, EXAMPLE.replace('name = "square"', f'name = "square"\n{more}', 1)))
    assert (row.is_exact, row.keys, row.name) == (True, ("name", "arguments"), "square")
    typed = EXAMPLE.replace(r"{1,128}\]'", """{1,128}(?: type="json")?\\]'""").replace(r"+)\]'", """+)(?: type="json")?\\]'""")
    mark = """json_mark = {written = '[arg:{name} type="json"]', attribute = "type", value = "json"}"""
    marked = read_row(file_of(tmp_path, f"{mark}\n{typed}"))
    assert marked.json_mark == TypeMark(written='[arg:{name} type="json"]', attribute="type", value="json")
    with pytest.raises(UsageError, match="missing: tags, written; add them"):
        read_row(file_of(tmp_path, 'name = "square"'))
    with pytest.raises(UsageError, match="expected a table of texts as tags, got 5"):
        read_row(file_of(tmp_path, 'name = "square"\ntags = 5\nwritten = {}'))


def test_what_is_no_file_of_a_row(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_row(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="65,536 bytes at most"):
        read_row(file_of(tmp_path, EXAMPLE + "#" * 70_000))
    file = tmp_path / "row.toml"
    file.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="utf-8"):
        read_row(file)


def test_a_row_that_shadows_another_is_refused(tmp_path: Path) -> None:
    square = read_row(file_of(tmp_path, EXAMPLE))
    assert shadowed(square, DIALECTS.values()) == ""
    with pytest.raises(UsageError, match="expected a name that no other format has, got 'qwen'"):
        select(str(file_of(tmp_path, EXAMPLE.replace("square", "qwen"))))
    add(square)
    with pytest.raises(UsageError, match=r"a call_open that reads '\[call:read_file\]' of 'square'"):
        select(str(file_of(tmp_path, EXAMPLE.replace("square", "round"))))


def test_rows_of_installed_packages() -> None:
    points = [
        EntryPoint("glm", "xmlcall.dialects:DIALECTS", "xmlcall.dialects"),
        EntryPoint("gone", "no_such_package:ROW", "xmlcall.dialects"),
        EntryPoint("no", "xmlcall.dialects:ROW", "xmlcall.dialects"),
        EntryPoint("row", f"{__name__}:QWEN", "xmlcall.dialects"),
    ]
    rows, problems = installed_rows(points)
    assert [row.name for row in rows] == ["qwen"]
    assert isinstance(rows[0], Dialect)
    assert [problem.partition(" is left out: ")[2][:20] for problem in problems] == [
        "expected a Dialect, ",
        "No module named 'no_",
        "module 'xmlcall.dial",
    ]


def test_the_rows_of_this_installation_are_added_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert installed_rows() == ([], [])


def test_a_row_of_an_installed_package_that_shadows_another_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = replace(DIALECTS["qwen"], name="twin")
    monkeypatch.setattr(dialects, "installed_rows", lambda: ([twin], ["a package is broken"]))
    with pytest.warns(UserWarning, match="broken|not added") as told:
        dialects._add_installed()
    assert [str(each.message).partition(":")[0] for each in told] == ["a package is broken", "the format 'twin' is not added"]
    assert "twin" not in DIALECTS
