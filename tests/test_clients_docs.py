"""The snippets of docs/clients.md are the programs that `make clients` runs, and what run.py makes of an answer."""

import json
import re
from pathlib import Path

import pytest
from clients import run
from clients.scripted import ANSWER, MultiplyingModel
from servers.run_server import run_server

from xmlcall.proxy import create_app

CLIENTS = Path(__file__).parent / "clients"
ADDRESS = "http://127.0.0.1:8485"
PAGE = (Path(__file__).parents[1] / "docs" / "clients.md").read_text(encoding="utf-8")
SNIPPETS = [code for _, code in re.findall(r"^```(python|js)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)]
LAST_LINE = re.compile(r'(?:print|console\.log)\((?:await )?whole\("http://127\.0\.0\.1:8485(/v1)?"\)\);?')

# in the order of the page
PROGRAMS = [client.program for client in run.CLIENTS]


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def test_every_client_has_a_snippet() -> None:
    assert len(SNIPPETS) == len(run.CLIENTS)


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=PROGRAMS)
def test_a_snippet_is_the_program(number: int) -> None:
    """Each line stands in the program, in that order; the last line gives the address that run.py gives."""
    client = run.CLIENTS[number]
    *core, last = lines(SNIPPETS[number])
    program = iter(lines((CLIENTS / client.program).read_text(encoding="utf-8")))
    assert [line for line in core if line not in program] == []
    asks = LAST_LINE.fullmatch(last)
    assert asks is not None
    assert (asks[1] or "") == client.path


@pytest.mark.parametrize("number", range(4), ids=PROGRAMS[:4])
def test_a_snippet_runs(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    with run_server(create_app(MultiplyingModel(), mode="xml"), lifespan="on") as url:
        exec(compile(SNIPPETS[number].replace(ADDRESS, url), "clients.md", "exec"), {})
    assert capsys.readouterr().out == f"{ANSWER}\n"


def test_versions_and_programs_are_those_that_are_run() -> None:
    pinned = dict(re.findall(r"^([\w.-]+)(?:\[\w+\])?==(\S+)$", (CLIENTS / "requirements.txt").read_text(), flags=re.MULTILINE))
    pinned |= json.loads((CLIENTS / "package.json").read_text())["dependencies"]
    for client in run.CLIENTS:
        assert f"| {client.package} {pinned[client.package]}" in PAGE
        assert f"(../tests/clients/{client.program})" in PAGE


# -- run.py ------------------------------------------------------------------------------------------------------------

ANSWERS = {
    "7006652": True,
    "It is 7,006,652.": True,
    "7 006 652": True,
    "7\u202f006\u202f652": True,
    "7.006.652": True,
    "17006652": False,
    "70066520": False,
    "682112000": False,
    "": False,
}


@pytest.mark.parametrize(("answer", "right"), ANSWERS.items())
def test_answers(answer: str, right: bool) -> None:
    assert (run.judgement(answer) == "ok") is right


OUTPUTS: list[tuple[str, list[str]]] = [
    ("whole: 7006652\nstreamed: It is\n\n7,006,652\n", ["ok", "ok"]),
    ("whole: 7006652\n", ["ok", "Error: no"]),
    ("whole: 12\nstreamed: 7006652\n", ["wrong: 12", "ok"]),
    ("", ["Error: no", "not run"]),
    ("7006652\n", ["Error: no", "not run"]),
    ("streamed: 7006652\n", ["Error: no", "ok"]),
]


@pytest.mark.parametrize(("output", "expected"), OUTPUTS)
def test_what_a_program_says(output: str, expected: list[str]) -> None:
    found = run.judged(run.TWO, output, "Error: no")
    assert [found[way] for way in run.TWO] == expected


def program(folder: Path, code: str) -> run.Client:
    (folder / "some.py").write_text(code)
    return run.Client(program="some.py", package="openai", ways=run.TWO)


CODES: dict[str, list[str]] = {
    "import sys; print('whole: 7006652', 'streamed: ' + sys.argv[1].replace('9', '7006652'), sep='\\n')": ["ok", "ok"],
    "print('whole: 7006652', flush=True); {}['x']": ["ok", "KeyError: 'x'"],
    "print('whole: 7006652')": ["ok", "it ended early"],
}


@pytest.mark.parametrize(("code", "expected"), CODES.items())
def test_programs(code: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "BUILD", tmp_path)
    found = run.outcomes(program(tmp_path, code), "9")
    assert [found[way] for way in run.TWO] == expected


def test_a_program_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "CLIENT_SECONDS", 0.2)
    found = run.outcomes(program(tmp_path, "import time; time.sleep(60)"), "9")
    assert set(found.values()) == {"not done after 0.2 s"}


def test_a_real_server_is_started_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "BUILD", tmp_path)
    with run_server(create_app(MultiplyingModel(), mode="xml"), lifespan="on") as upstream:
        with run.served(f"{upstream}/v1") as url:
            found = run.outcomes(run.CLIENTS[0], url)
    assert set(found.values()) == {"ok"}
    assert "serving scripted" in (tmp_path / "serve.log").read_text()


def test_a_server_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "BUILD", tmp_path)
    with pytest.raises(SystemExit, match="did not start"), run.served("no-such-model"):
        pytest.fail("it was started")
