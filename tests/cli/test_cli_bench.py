"""`xmlcall bench` as a person uses it, with stand-ins."""

import argparse
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_harness import model_server, run_cli, run_here

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench import runner
from xmlcall.bench.case import Case
from xmlcall.bench.ways import way_of
from xmlcall.cli import bench as bench_module
from xmlcall.errors import UsageError
from xmlcall.models.known import DEFAULT_MODEL, KNOWN
from xmlcall.types.completion import Capabilities


def bench(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    return run_here("bench", *arguments)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, ways in (("oracle", ("xml", "native")), ("mutator", ("xml",))):
        options = [each for way in ways for each in ("--way", way)]
        done = run_cli("bench", "run", "--model", name, "--suite", "smoke", *options, "--out", str(folder / name), home=folder)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert f"xmlcall bench report {folder / name}" in done.stdout
    return folder


def test_a_report_as_json(runs: Path) -> None:
    done = bench("report", runs / "oracle", "--json", "--fail-under", "task_correct=1")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["metrics"]["task_correct"] == {"count": 50, "total": 50, "low": 0.9287, "high": 1.0}
    assert set(report["ways"]) == {"xml", "native"}
    for key in ("commit", "command", "prompts", "xmlcall", "settings", "cases"):
        assert report["run"][key]


def test_a_report_for_people(runs: Path) -> None:
    table = bench("report", runs / "mutator").stdout
    assert "call_correct" in table
    assert "unknown_tool 8" in table
    assert re.search(r"wrong_tool +│ 8 \(8\)", table)
    markdown = bench("report", runs / "oracle", runs / "mutator", "--markdown").stdout
    assert markdown.count("| right calls (call_correct) |") == 2
    assert markdown.count("| main cause (any) |") == 1  # the oracle's replies are right
    assert "| wrong_tool | 8 (8) |" in markdown
    assert "| right calls (call_correct) | 40 of 40, 100.0 % [91-100] | 40 of 40, 100.0 % [91-100] |" in markdown


def test_gates(runs: Path) -> None:
    done = bench("report", runs / "mutator", "--fail-under", "call_correct=0.9")
    assert done.returncode == 1
    assert "xml: call_correct is 0.400 (16/40), expected at least 0.9" in done.stderr
    assert bench("report", runs / "mutator", "--fail-under", "beauty=1").returncode == 2


def test_a_gate_needs_a_whole_run(runs: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    shutil.copytree(runs / "oracle", part)
    first = (part / "replies.jsonl").read_text().splitlines()[:2]
    (part / "replies.jsonl").write_text("\n".join(first) + "\n")
    assert bench("report", part).returncode == 0
    done = bench("report", part, "--fail-under", "task_correct=1")
    assert done.returncode == 1
    assert "1 of 50 cases were answered; a gate needs all" in done.stderr
    assert bench("compare", f"{runs}/oracle:xml", f"{part}:xml", "--max-drop", "2").returncode == 1
    assert bench("compare", f"{runs}/oracle:xml", f"{part}:xml").returncode == 0


def test_names_of_models_are_only_text(runs: Path, tmp_path: Path) -> None:
    """What a server says of itself stands in every report."""
    shutil.copytree(runs / "oracle", odd := tmp_path / "odd")
    about = json.loads((odd / "run.json").read_text())
    (odd / "run.json").write_text(json.dumps(about | {"model": "odd\x1b]0;OWNED\x07\x1b[2J\ufffe\uffff|x"}))
    for form in ([], ["--markdown"]):
        shown = bench("report", odd, *form).stdout
        assert ("\x1b" in shown, "OWNED" in shown) == (False, True)
    assert bench("report", odd, runs / "mutator", "--html", tmp_path / "page.html").returncode == 0


def test_two_runs_compared(runs: Path) -> None:
    done = bench("compare", f"{runs}/oracle:xml", runs / "mutator", "--json", "--max-drop", "2")
    assert done.returncode == 1
    assert "call_correct fell from 40 to 16 of 40" in done.stderr
    assert json.loads(done.stdout)["metrics"]["call_correct"]["only_first"] == 24
    shown = bench("compare", f"{runs}/oracle:native", runs / "mutator").stdout
    assert "only B is right: none" in shown
    assert re.search(r"call_correct .* -60\.0 \[-\d+\.\d -\d+\.\d\] +│ worse", shown)
    wrong = bench("compare", runs / "oracle", runs / "mutator")
    assert wrong.returncode == 2
    assert "expected RUN:WAY" in wrong.stderr


def test_a_case_is_shown(runs: Path) -> None:
    shown = bench("show", runs / "mutator", "smoke-en-01").stdout
    for part in ("--- system", "--- user", "--- raw reply 1", "Call of `", "--- expected", "verdict:"):
        assert part in shown
    assert bench("show", runs / "mutator", "nothing").returncode == 2
    for verdict in ("verdict: unknown_tool (causes: wrong_tool", "verdict: right\n"):
        assert any(verdict in bench("show", runs / "mutator", f"smoke-en-{number:02}").stdout for number in range(1, 12))


def test_a_run_is_judged_again(runs: Path) -> None:
    assert bench("rescore", runs / "mutator").stdout == "50 replies judged again, 0 changed\n"
    assert bench("rescore", runs / "mutator", "--json").stdout == "[]\n"


def test_a_run_is_not_made_twice(runs: Path) -> None:
    before = (runs / "oracle" / "replies.jsonl").read_bytes()
    done = bench("run", "--model", "oracle", "--suite", "smoke", "--way", "xml", "--way", "native", "--out", runs / "oracle")
    assert done.returncode == 0
    assert (runs / "oracle" / "replies.jsonl").read_bytes() == before
    other = bench("run", "--model", "oracle", "--suite", "smoke", "--out", runs / "oracle")
    assert other.returncode == 2
    assert "another configuration" in other.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ["--way", "telepathy"],
        ["--suite", "nothing"],
        ["--limit", "0"],
        ["--ask", "call_threshold=1"],
        ["--limit", "1", "--half", "report"],
        ["--model", "mutator", "--way", "hermes"],
        ["--model", "local", "--way", "native", "--ask", "call_threshold=1"],
    ],
    ids=" ".join,
)
def test_wrong_options(tmp_path: Path, wrong: list[str]) -> None:
    done = bench("run", "--model", "oracle", "--out", tmp_path / "run", *wrong)
    assert done.returncode == 2
    assert not (tmp_path / "run").exists()


def test_conversations_are_not_played_in_every_way() -> None:
    task = Case(id="a", category="c", messages=(), tools=(), expects="talk")
    with pytest.raises(UsageError, match="not origin"):
        runner.check_ways([task], [way_of("xml"), way_of("origin")])


def test_the_file_of_a_model_is_told_as_far_as_it_is_known() -> None:
    backend = ScriptedBackend([], capabilities=Capabilities(server="llama.cpp", model_file="mine-q4_k_m.gguf"))
    known = KNOWN[DEFAULT_MODEL]
    assert bench_module._file_of("local", backend) == {"file": known.file, "sha256": known.sha256}
    assert bench_module._file_of(f"http://127.0.0.1:1/v1#{DEFAULT_MODEL}", backend) == {"file": "mine-q4_k_m.gguf"}
    assert bench_module._file_of("ollama:x", ScriptedBackend([])) == {}


def test_a_threshold_is_found_for_our_own_format() -> None:
    parser = argparse.ArgumentParser()
    bench_module._declare_run(parser)
    usual, given = (parser.parse_args(["--model", "local", "--out", "x", *more]) for more in ([], ["--ask", "call_threshold=1"]))
    ours, another = ([way_of(name) for name in names] for names in (("xml", "native", "native+read"), ("xml", "hermes")))
    assert bench_module._threshold_of(usual.ask, ours) == "auto"
    assert bench_module._threshold_of(usual.ask, another) is None
    assert bench_module._threshold_of(given.ask, another) == 1


# -- compare-ways ------------------------------------------------------------------------------------------------------


def test_compare_ways_prints_a_table_and_writes_a_file(tmp_path: Path) -> None:
    """A model that always says the same, so that no way is better than another; the second start asks nobody."""
    file = tmp_path / "mine.json"
    with model_server(*["It depends."] * 200) as (url, fake):
        words = ("compare-ways", "--quick", "--model", url, "--out", tmp_path / "out", "--file", file, "--concurrency", "4")
        done = bench(*words)
        asked = len(fake.bodies)
        again = bench(*words, "--json")
    assert (done.returncode, again.returncode) == (0, 0), done.stderr
    assert done.stderr.startswith(f"xmlcall: asks for 70 replies, which are kept in {tmp_path / 'out'}\n")
    assert again.stderr.startswith(f"xmlcall: continuing in {tmp_path / 'out'}: 70 of 70 replies are kept there\n")
    assert "recommended: xml (--ask mode=xml): no other way that was asked has more right" in done.stdout
    assert "ordinary answers kept" in done.stdout
    assert "own format: not asked: the format that the model was trained on is unknown" in done.stderr
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found == json.loads(again.stdout)
    assert [each["replies"] for each in found["ways"] if not each["problem"]] == [10, 20, 20, 20]
    assert asked == len(fake.bodies)
    assert url.split("/")[2] not in file.read_text(encoding="utf-8")


def test_compare_ways_refuses_a_file_without_a_folder(tmp_path: Path) -> None:
    done = bench("compare-ways", "--file", tmp_path / "none" / "mine.json")
    assert done.returncode == 2
    assert "give another with --file" in done.stderr
