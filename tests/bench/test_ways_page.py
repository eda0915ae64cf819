"""The page of engines, models and ways says what the recorded runs say."""

import re

import pytest
from ways import RESULTS, cells, chosen, key_of, rows_of

PAGE = RESULTS / "ways.md"

KEYS = [
    (("smoke", None, "xml", "smoke-1"), ("smoke", "xml")),
    (("ordinary", "report", "none", "ordinary-1"), ("ordinary, half report", "none")),
    (("talk", "all", "native", "talk-native-1"), ("talk", "native+read")),
    (("talk", "all", "native", "talk-proxy-1"), ("talk", "native, which the proxy turns into xml")),
    (("probe", None, "xml", "probe-1-xml-list-threshold-off"), ("probe", "xml, list, threshold off")),
    (("probe", None, "hermes", "probe-1-hermes-list-threshold-off"), ("probe", "hermes")),
]


@pytest.mark.parametrize(("given", "key"), KEYS)
def test_what_a_run_is_listed_under(given: tuple[str, str | None, str, str], key: tuple[str, str]) -> None:
    suite, half, way, run = given
    about = {"suite": suite, "half": half, "server": "llama.cpp", "model": "m"}
    assert key_of(about, way, run)[2:] == key


def test_the_page_has_the_latest_run_of_each_and_no_other() -> None:
    found, tried = chosen(RESULTS / "runs")
    lines = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    shown = {(cells[0].removeprefix("| "), cells[-1].removesuffix(" |")) for cells in lines if cells[0] not in ("| way", "| ---")}
    read = {("native+read", run) for way, run in shown if way == "native"}
    assert shown - read == {(way, run.name) for (*_, way), run in found.items()} - read
    assert f"; {tried} more" in PAGE.read_text(encoding="utf-8").replace("\n", " ")
    assert re.search(r"(?m)^## llama\.cpp, Qwen2\.5-Coder-0\.5B, smoke$", PAGE.read_text(encoding="utf-8"))


async def test_rows_are_what_the_runs_say() -> None:
    found = {key: run for key, run in chosen(RESULTS / "runs")[0].items() if run.name == "smoke-0.5b"}
    rows = await rows_of(found)
    assert [row.way for row in rows] == ["xml", "native", "native+read", "origin"]
    for row in rows:
        assert f"| {' | '.join(cells(row, rows))} |\n" in PAGE.read_text(encoding="utf-8")
