"""What checks of model servers found, in a file: bounded, for a month, and never an error."""

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from xmlcall.profiles.profile import DAYS, MOST, checks_file, remember, remembered
from xmlcall.types.completion import Capabilities

TODAY = date(2026, 11, 27)


def server(number: int = 0, build: str = "b1") -> Capabilities:
    return Capabilities(server="llama.cpp", fingerprints=("model:a", f"llama.cpp:{number:016x}"), build=build)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMLCALL_PROFILES", str(tmp_path / "profiles"))


def test_a_finding_holds_for_a_month() -> None:
    remember(server(), "called", TODAY)
    assert remembered(server(), TODAY + timedelta(days=DAYS)) == "called"
    assert remembered(server(), TODAY + timedelta(days=DAYS + 1)) is None
    remember(server(), "leaked", TODAY)
    assert remembered(server(), TODAY) == "leaked"


@pytest.mark.parametrize("finding", ["slow", "no_tools"])
def test_what_may_change_soon_is_not_kept(finding: str) -> None:
    remember(server(), finding, TODAY)  # type: ignore[arg-type]
    assert not checks_file().exists()


def test_the_oldest_findings_make_room() -> None:
    for number in range(MOST + 2):
        remember(server(number), "called", TODAY + timedelta(days=number // 50))
    kept = json.loads(checks_file().read_text())["checks"]
    assert len(kept) == MOST
    assert remembered(server(MOST + 1), TODAY) == "called"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"version": 2, "checks": {}}',
        '{"version": 1, "checks": []}',
        '{"version": 1, "checks": {"llama.cpp:0000000000000000 b1": {"on": "2026-11-27", "found": "x"}}}',
        '{"version": 1, "checks": {"llama.cpp:0000000000000000 b1": {"on": 5, "found": "called"}}}',
        '{"version": 1, "checks": {"llama.cpp:0000000000000000 b1": 5}}',
    ],
)
def test_a_file_that_cannot_be_read_is_written_anew(text: str) -> None:
    checks_file().parent.mkdir()
    checks_file().write_text(text)
    assert remembered(server(), TODAY) is None
    remember(server(), "called", TODAY)
    assert remembered(server(), TODAY) == "called"


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XMLCALL_PROFILES", str(tmp_path / "file" / "profiles"))
    remember(server(), "called", TODAY)
    assert remembered(server(), TODAY) is None
