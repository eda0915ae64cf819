"""docs/reference/clients.md: its snippets and table are what `make clients` ran and found; and what run.py makes of an answer."""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from clients import environments, run, table
from clients.scripted import ANSWER, MultiplyingModel
from clients.table import CLIENTS, Client
from servers.run_server import run_server

from xmlcall.proxy import create_app

ADDRESS = "http://127.0.0.1:8485"
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "clients.md").read_text(encoding="utf-8")
SNIPPETS = [code for _, code in re.findall(r"^```(python|js)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)]
LAST_LINE = re.compile(r'(?:print|console\.log)\((?:await )?whole\("http://127\.0\.0\.1:8485(/v1)?"\)\);?')

SHOWN = [client for client in CLIENTS if client.snippet]  # in the order of the page
PROGRAMS = [client.program for client in SHOWN]


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def test_every_snippet_is_of_a_client() -> None:
    assert len(SNIPPETS) == len(SHOWN)


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=PROGRAMS)
def test_a_snippet_is_the_program(number: int) -> None:
    """Each line stands in the program, in that order; the last line gives the address that run.py gives."""
    client = SHOWN[number]
    *core, last = lines(SNIPPETS[number])
    program = iter(lines((table.PROGRAMS / client.program).read_text(encoding="utf-8")))
    assert [line for line in core if line not in program] == []
    asks = LAST_LINE.fullmatch(last)
    assert asks is not None
    assert (asks[1] or "") == client.path


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with run_server(create_app(MultiplyingModel(), mode="xml"), lifespan="on") as url:
        yield url


@pytest.mark.parametrize("number", range(4), ids=PROGRAMS[:4])
def test_a_snippet_runs(number: int, upstream: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(SNIPPETS[number].replace(ADDRESS, upstream), "clients.md", "exec"), {})
    assert capsys.readouterr().out == f"{ANSWER}\n"


def test_the_table_is_what_was_kept() -> None:
    assert table.page_with_table(PAGE) == PAGE


def test_what_was_kept_is_of_the_versions_of_the_table() -> None:
    versions = {client.name: client.version for client in CLIENTS}
    ways = {client.name: list(client.ways) for client in CLIENTS}
    for name, result in table.kept().items():
        assert (result.version, list(result.ways)) == (versions[name], ways[name])


def test_each_client_has_its_own_name_and_program() -> None:
    names = [client.name for client in CLIENTS]
    assert len({*names}) == len(names)
    assert {client.program for client in CLIENTS} == {path.name for path in table.PROGRAMS.iterdir() if path.is_file()}


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
    assert (run.judgement("whole", answer) == "ok") is right


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
    found = run.judged(TWO, output, "Error: no")
    assert [found[way] for way in TWO] == expected


TWO = ("whole", "streamed")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Client]:
    """Give a client whose program is some code, run with this Python."""
    monkeypatch.setattr(run, "BUILD", tmp_path)
    monkeypatch.setattr(run, "command", lambda client: [sys.executable, str(tmp_path / client.program)])
    (tmp_path / "some" / "home").mkdir(parents=True)

    def client_of(code: str) -> Client:
        (tmp_path / "some.py").write_text(code)
        return Client(name="some", program="some.py", package="openai", wire="openai", ways=TWO, requires=["openai==1"])

    return client_of


CODES: dict[str, list[str]] = {
    "import sys; print('whole: 7006652', 'streamed: ' + sys.argv[1].replace('9', '7006652'), sep='\\n')": ["ok", "ok"],
    "print('whole: 7006652', flush=True); {}['x']": ["ok", "KeyError: 'x'"],
    "print('whole: 7006652')": ["ok", "it ended early"],
}


@pytest.mark.parametrize(("code", "expected"), CODES.items())
def test_programs(code: str, expected: list[str], made: Callable[[str], Client]) -> None:
    found = run.outcomes(made(code), "9")
    assert [found[way] for way in TWO] == expected


def test_a_program_that_hangs(made: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CLIENT_SECONDS", 0.2)
    found = run.outcomes(made("import time; time.sleep(60)"), "9")
    assert set(found.values()) == {"not done after 0.2 s"}


@pytest.mark.full
def test_a_real_server_is_started_and_stopped(made: Callable[[str], Client], upstream: str, tmp_path: Path) -> None:
    asking = made((table.PROGRAMS / "openai_sdk.py").read_text())
    with run.served(f"{upstream}/v1") as url:
        found = run.outcomes(replace(asking, path="/v1"), url)
    assert set(found.values()) == {"ok"}
    assert "serving scripted" in (tmp_path / "serve.log").read_text()


def test_variables_are_ours_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    found = environments.variables(CLIENTS[0])
    assert "OPENAI_API_KEY" not in found
    assert Path(found["HOME"]).is_relative_to(environments.BUILD)


def test_a_server_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "BUILD", tmp_path)
    with pytest.raises(SystemExit, match="did not start"), run.served("no-such-model"):
        pytest.fail("it was started")
