"""Runs on disk that two processes start, that broke off while they were made, and that were damaged; kept repairs by model."""

import gzip
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import filelock
import pytest
from pack_runs import pack
from profiles import is_deep

from xmlcall import Tool, ToolCall, UsageError, parse
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench import store
from xmlcall.bench.case import Case
from xmlcall.bench.report import changed_scores, judged, keep_scores, scores_of
from xmlcall.bench.store import RecordedRun, RunError, create_or_resume, read_run
from xmlcall.bench.suites import fingerprint
from xmlcall.bench.ways import Settings

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = Tool(name="add_one", description="Add one.", input_schema=SCHEMA)
CASES = [
    Case(
        id=f"case-{number}",
        category="simple",
        messages=({"role": "user", "content": f"What is {number} + 1? 谢谢"},),
        tools=(TOOL,),
        exact=(("add_one", {"a": number}),),
    )
    for number in range(5)
]
TASK = Case(id="task", category="multi_turn_base", messages=CASES[0].messages, tools=(), expects="task")


def start(folder: Path, cases: list[Case] = CASES, **about: Any) -> RecordedRun:
    told = {"ways": ["xml"], "settings": Settings().to_json(), "model": "m", "cases": fingerprint(cases)}
    return create_or_resume(folder, {**told, **about}, cases)


def row(case: str = "case-0", **more: Any) -> dict[str, Any]:
    return {"key": case, "case": case, "way": "xml", "rounds": [{"text": "Paris.", "finish_reason": "stop"}], **more}


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# -- two starts, and one that broke off --------------------------------------------------------------------------------


def test_a_start_that_is_refused_writes_nothing(tmp_path: Path) -> None:
    with filelock.FileLock(tmp_path / "lock"), pytest.raises(RunError, match="another process"):
        start(tmp_path)
    assert names(tmp_path) == ["lock"]


def test_of_two_starts_the_first_keeps_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has seen a new folder, and comes to write when the first one is done."""
    locked = store._locked

    def late(folder: Path) -> AbstractContextManager[None]:
        monkeypatch.undo()
        start(folder, CASES[:2])
        return locked(folder)

    monkeypatch.setattr(store, "_locked", late)
    with pytest.raises(UsageError, match="another configuration"):
        start(tmp_path, CASES)
    assert read_run(tmp_path).cases == CASES[:2]


@pytest.mark.parametrize("left", [[], ["cases.jsonl.part"], ["cases.jsonl"], ["cases.jsonl", "run.json.part"]])
def test_a_start_that_broke_off_is_begun_again(tmp_path: Path, left: list[str]) -> None:
    for name in ("lock", *left):
        (tmp_path / name).write_text("half a li")
    start(tmp_path)
    assert read_run(tmp_path).cases == CASES
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("name", ["replies.jsonl", "cases.jsonl", "thesis.txt", "thesis.part"])
def test_files_of_others_are_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match=f"other files in it .{name}.: give another folder"):
        start(tmp_path)
    assert names(tmp_path) == [name]


# -- packed ------------------------------------------------------------------------------------------------------------


def test_packed_runs_read_as_before_and_share_their_cases(tmp_path: Path) -> None:
    for name in ("a", "b"):
        start(tmp_path / "runs" / name).add(row())
        pack(tmp_path / "runs" / name)
        assert names(tmp_path / "runs" / name) == ["replies.jsonl.gz", "run.json"]
    assert names(tmp_path / "cases") == [f"{fingerprint(CASES)}.jsonl.gz"]
    run = read_run(tmp_path / "runs" / "b")
    assert (run.cases, run.replies) == (CASES, [row()])


def test_a_packed_run_is_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    start(folder).add(row())
    pack(folder)
    run = start(folder)
    with run.locked():
        run.add(row("case-1"))
    assert names(folder) == ["lock", "replies.jsonl", "run.json"]
    assert read_run(folder).replies == [row(), row("case-1")]


@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(b"x" * 999, mtime=0)[:-9]], ids=["empty", "text", "cut"])
def test_a_damaged_packed_file_is_told(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "runs" / "a"
    start(folder).add(row())
    pack(folder)
    (folder / "replies.jsonl.gz").write_bytes(content)
    (tmp_path / "cases" / f"{fingerprint(CASES)}.jsonl.gz").write_bytes(content)
    with pytest.raises(RunError, match=r"cases that are not those|cases\.jsonl is damaged: .*bring the file back"):
        read_run(folder)


# -- damage ------------------------------------------------------------------------------------------------------------

OUTCOME = {"valid": True, "error": "", "failed_turn": None, "turns": [{"replies": ["Done."], "calls": [], "stop_reason": "end"}]}
WHOLE = [
    row(),
    row(rounds=[{"finish_reason": "tool_calls", "calls": [["add_one", '{"a": 0}']], "log_odds": 1.5, "usage": None}]),
    row(rounds=[{"text": "", "finish_reason": "context_overflow"}]),
    row(rounds=[{"text": "x", "seconds": 1, "usage": {"prompt_tokens": 5, "cached_tokens": None}, "of_a_later_version": []}]),
    row("task", rounds=[{"usage": {"prompt_tokens": None}, "seconds": 2.5}], outcome=OUTCOME),
]


async def test_whole_replies_are_read_as_they_are(tmp_path: Path) -> None:
    cases = [*CASES, TASK]
    run = start(tmp_path, cases)
    for each in WHOLE:
        run.add(each)
    assert read_run(tmp_path).replies == WHOLE
    right = {verdict.case.id for verdict in (await judged(read_run(tmp_path)))["xml"] if verdict.is_right}
    assert right == {"task"}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{}", "'key' is a required property"),
        ("[]", r"\[\] is not of type 'object'"),
        ("null", "None is not of type 'object'"),
        ("{]", "Expecting property name"),
        ("[" * 100_000, "recursion"),
        ({"key": "k", "case": "case-1", "way": "xml"}, "'rounds' is a required property"),
        (row(rounds=[]), r"\[\] should be non-empty, at \$\.rounds"),
        (row(rounds={}), r"\{\} is not of type 'array', at \$\.rounds"),
        (row(rounds=[None]), r"None is not of type 'object', at \$\.rounds\[0\]"),
        (row(rounds=[{"text": 5}]), r"5 is not of type 'string', at \$\.rounds\[0\]\.text"),
        (row(rounds=[{"calls": [["add_one"]]}]), r"\['add_one'\] is too short"),
        (row(rounds=[{"usage": {"prompt_tokens": "5"}}]), "'5' is not of type 'number', 'null'"),
        (row(outcome={}), "'(valid|error|turns)' is a required property"),
        (row(outcome=OUTCOME | {"tools": [{"name": "f"}]}), "'description' is a required property, at .*tools"),
        (row(key=["x" * 9999]), r"\['x+ \.\.\. x+'\] is not of type 'string'"),
    ],
)
def test_a_line_that_is_no_reply_is_told(tmp_path: Path, line: Any, told: str) -> None:
    run = start(tmp_path)
    run.add(row())
    text = line if isinstance(line, str) else json.dumps(line)
    with open(tmp_path / "replies.jsonl", "a") as file:
        file.write(f"{text}\n{json.dumps(row('case-2'))}\n")
    with pytest.raises(RunError, match=rf"replies\.jsonl, line 2 is damaged: .*{told}.*take the line out") as refused:
        read_run(tmp_path)
    assert len(str(refused.value)) < 600
    with pytest.raises(RunError, match="line 2"):
        start(tmp_path)


def test_a_last_line_that_was_cut_is_no_damage(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.add(row())
    with open(tmp_path / "replies.jsonl", "a") as file:
        file.write('{"key": "case-1", "case": "cas')
    with read_run(tmp_path).locked():
        assert read_run(tmp_path).replies == [row()]
    assert (tmp_path / "replies.jsonl").read_bytes().endswith(b"}\n")


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ("[]", r"\[\] is not of type 'object'"),
        ('{"format": 1}', "'(ways|settings)' is a required property"),
        ('{"format": 1, "ways": [], "settings": {}}', r"at \$\.ways"),
        ('{"format": 1, "ways": ["xml"], "settings": {"politeness": 1}}', r"'politeness' was unexpected\), at \$\.settings"),
        ('{"format": 1, "ways": ["xml"], "settings": {"call_threshold": "1"}}', r"at \$\.settings\.call_threshold"),
        ('{"format": 1, "ways": ["xml"]', "delimiter"),
        (b"\xff", "can't decode"),
    ],
)
def test_an_about_that_is_none_is_told(tmp_path: Path, about: str | bytes, told: str) -> None:
    start(tmp_path)
    (tmp_path / "run.json").write_bytes(about if isinstance(about, bytes) else about.encode())
    with pytest.raises(RunError, match=rf"run\.json is damaged: .*{told}.*begin a new run"):
        read_run(tmp_path)


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Also a whole number for a fraction, and fewer than there are now, as in a run of an earlier version."""
    settings = {"lang": "zh", "temperature": 1, "call_threshold": -1.5}
    assert start(tmp_path, settings=settings).settings == Settings(lang="zh", temperature=1, call_threshold=-1.5)


def test_a_recorded_run_with_a_setting_that_is_gone_is_read() -> None:
    run = read_run(BENCHMARKS / "results" / "runs" / "tuning-constrained-0.5b")
    assert run.about["settings"]["constrain"]
    assert (run.settings.call_threshold, len(run.replies)) == (-50.0, 24)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: lines[:3], "3 cases that are not those of run.json"),
        (lambda lines: [], "0 cases that are not those of run.json"),
        (lambda lines: [line.replace("2 + 1", "2 + 2") for line in lines], "5 cases that are not those of run.json"),
        (lambda lines: [lines[0], lines[1][:40]], "line 2 is damaged: "),
        (lambda lines: [lines[0], "[]"], r"line 2 is damaged: expected a case, got \[\] .TypeError"),
        (lambda lines: [lines[0], '{"id": 5}'], "line 2 is damaged: expected a case, got .*KeyError: 'messages'"),
        (None, "missing"),
    ],
)
def test_other_cases_than_were_asked_are_told(tmp_path: Path, change: Callable[[list[str]], list[str]] | None, told: str) -> None:
    start(tmp_path)
    file = tmp_path / "cases.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    file.unlink()
    if change:
        file.write_text("".join(f"{line}\n" for line in change(lines)), encoding="utf-8")
    with pytest.raises(RunError, match=rf"cases\.jsonl.*{told}.*begin a new run"):
        read_run(tmp_path)
    with pytest.raises(RunError, match=rf"cases\.jsonl.*{told}"):
        start(tmp_path)


def test_cases_without_a_field_of_later_are_those_that_were_asked(tmp_path: Path) -> None:
    """What is compared is the file, so that a field which is new does not make the runs before it unreadable."""
    rows = [{name: value for name, value in asdict(case).items() if name != "disputed"} for case in CASES]
    start(tmp_path, cases=[])
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    about = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(about | {"cases": store._fingerprint(rows)}))
    assert read_run(tmp_path).cases == CASES


KEPT = sorted(file.parent for file in (BENCHMARKS / "results" / "runs").glob("*/run.json"))


def test_the_kept_runs_are_packed() -> None:
    """By `python benchmarks/pack_runs.py`."""
    assert [folder.name for folder in KEPT if names(folder) != ["replies.jsonl.gz", "run.json"]] == []


@pytest.mark.sweep
@pytest.mark.parametrize("folder", KEPT if is_deep() else KEPT[::4], ids=lambda folder: folder.name)
def test_the_kept_runs_are_whole(folder: Path) -> None:
    run = read_run(folder)
    assert run.about["cases"] == fingerprint(run.cases)
    assert {reply["case"] for reply in run.replies} <= run.by_id.keys()


# -- scores ------------------------------------------------------------------------------------------------------------


async def test_scores_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(tmp_path)
    run.add(row())
    verdicts = await judged(run)
    keep_scores(run.folder, scores_of(verdicts))
    before = (tmp_path / "scores.json").read_text()

    def full(path: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        keep_scores(run.folder, scores_of({}))
    assert (tmp_path / "scores.json").read_text() == before
    assert changed_scores(run.folder, scores_of(verdicts)) == []


@pytest.mark.parametrize("text", ["", "\udcff", '{"xml": {"case-0"', "[]", '{"xml": []}', '{"xml": {"case-0": {}}}'])
async def test_damaged_scores_are_told(tmp_path: Path, text: str) -> None:
    run = start(tmp_path)
    run.add(row())
    (tmp_path / "scores.json").write_text(text, errors="surrogateescape")
    with pytest.raises(RunError, match=r"scores\.json is damaged: .*remove it"):
        changed_scores(run.folder, scores_of(await judged(run)))
    assert (tmp_path / "scores.json").read_text(errors="surrogateescape") == text


# -- repairs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with one question and its results in a folder of the test."""
    spec = importlib.util.spec_from_file_location("repair_script", BENCHMARKS / "repair.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    damaged = module.Damaged(case=CASES[0], damage="twice", text='<invoke name="add_one"></invoke>')
    monkeypatch.setattr(module, "damaged_cases", lambda count, seed: [damaged])
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "version", lambda package: "1.0")  # llama.cpp need not be installed
    monkeypatch.setattr(sys, "argv", ["repair.py"])
    return module


class Named(ScriptedBackend):
    """A model with a name, which writes the right call at once."""

    def __init__(self, name: str) -> None:
        text = '<function_calls>\n<invoke name="add_one">\n<parameter name="a">0</parameter>\n</invoke>\n</function_calls>'
        assert isinstance(parse(text, [TOOL]).calls[0], ToolCall)
        super().__init__([text] * 2)
        self.model = name


async def test_repairs_of_another_model_are_not_its_own(
    tmp_path: Path, repair: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [
        {
            "model": "old",
            "id": "case-0",
            "damage": "twice",
            "way": way,
            "replies": [],
            "forced": False,
            "rounds": None,
            "call": [],
        }
        | {"error": "no call"}
        for way in repair.WAYS
    ]
    (tmp_path / "repair.jsonl").write_text("".join(json.dumps(each) + "\n" for each in kept))
    for name, asked, right in (("new", 1, "1/1 (100 %)"), ("old", 0, "0/1 (0 %)"), ("new", 0, "1/1 (100 %)")):
        backend = Named(name)
        monkeypatch.setattr(repair, "connect", lambda model, backend=backend: backend)
        await repair.main()
        report = (tmp_path / "repair.md").read_text()
        assert len(backend.requests) == asked
        assert f"{name}, Q4" in report
        assert f"| feedback | {right} |" in report
    rows = [json.loads(line) for line in (tmp_path / "repair.jsonl").read_text().splitlines()]
    assert [(each["model"], each["way"]) for each in rows] == [(name, way) for name in ("old", "new") for way in repair.WAYS]


def test_the_kept_repairs_are_of_the_model_in_their_report() -> None:
    rows = [json.loads(line) for line in (BENCHMARKS / "results" / "repair.jsonl").read_text(encoding="utf-8").splitlines()]
    report = (BENCHMARKS / "results" / "repair.md").read_text(encoding="utf-8")
    named = re.search(r"\(see there\): (\S+), .*\| feedback \| \d+/(\d+) ", report, re.DOTALL)
    assert named
    assert sum((row["model"], row["way"]) == (named[1], "feedback") for row in rows) == int(named[2])
