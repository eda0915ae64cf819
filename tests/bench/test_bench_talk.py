"""The conversations: the oracle is right in them with real servers, verdicts are as in talk_verdicts.toml, runs can be read."""

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_harness import run_here
from hypothesis import given, settings
from hypothesis import strategies as st
from servers.node import HERE

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench import play
from xmlcall.bench.case import Case
from xmlcall.bench.funnel import Verdict, rates
from xmlcall.bench.judge import is_admitted, judge_turn, speaks
from xmlcall.bench.page import page
from xmlcall.bench.play import NPM_PACKAGES, converse, folder_of, lay_out, occupied, server_of
from xmlcall.bench.report import judged, reported
from xmlcall.bench.runner import execute
from xmlcall.bench.store import RecordedRun, RunError, create_or_resume, read_run
from xmlcall.bench.subjects import stand_in
from xmlcall.bench.suites import cases_of
from xmlcall.bench.ways import Settings, way_of
from xmlcall.errors import BackendUnavailable, ContextOverflow, UsageError

SERVERS = {"demo", "time", "files", "git", "memory"}

KEYS = (Path(play.__file__).parent / "talk" / "english.toml").read_text(encoding="utf-8").split("[[conversation]]")[0]
CONVERSATIONS = {case.id: case for case in cases_of("talk")}
SAMPLE = ("en-demo-03", "zh-time-02", "zh-mixed-04", "en-git-03", "zh-memory-02")  # all servers, and every kind of expectation
FOLDER = "/tmp/talk-X.1"
RECORDED = Path(__file__).with_name("talk_run.jsonl")


def of(*names: str) -> list[Case]:
    return [CONVERSATIONS[name] for name in names]


def begun(folder: Path, subject: str, names: Sequence[str], *ways: str) -> RecordedRun:
    about = {"ways": list(ways), "settings": Settings().to_json(), "model": subject, "suite": "talk", "started": "2026-11-22"}
    return create_or_resume(folder, about, of(*names))


def played(folder: Path, subject: str, names: Sequence[str], *ways: str) -> RecordedRun:
    """Play conversations with a stand-in."""
    run = begun(folder, subject, names, *ways)
    assert asyncio.run(execute(run, [way_of(way) for way in ways], stand_in(subject, run.cases), concurrency=3)) == 0
    return run


def verdicts_of(run: RecordedRun) -> dict[str, list[Verdict]]:
    return asyncio.run(judged(run))


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep conversations apart from those of other processes, and take the servers that the tests have from npm."""
    with pytest.MonkeyPatch.context() as patch:
        bench = tmp_path_factory.mktemp("bench")
        (bench / "node").mkdir()
        for package in NPM_PACKAGES.values():
            (bench / "node" / package.rpartition("/")[2].replace("@", "-")).symlink_to(HERE)
        patch.setenv("XMLCALL_BENCH", str(bench))
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("folders")))
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """The run of the oracle with real servers, as it was once recorded."""
    run = begun(tmp_path_factory.mktemp("runs") / "oracle", "oracle", SAMPLE, "xml", "native")
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        run.add(json.loads(line))
    return run


# -- stand-ins ---------------------------------------------------------------------------------------------------------


def is_right(run: RecordedRun) -> None:
    for of_way in verdicts_of(run).values():
        assert [(verdict.case.id, verdict.failure) for verdict in of_way if verdict.failure] == []
        assert len(of_way) == sum(len(case.turns) for case in run.cases)


@pytest.mark.full
def test_the_oracle_is_right_with_real_servers(run: RecordedRun, tmp_path: Path) -> None:
    found = played(tmp_path / "run", "oracle", SAMPLE, "xml", "native")
    assert {server for case in found.cases for server in case.servers} == SERVERS
    is_right(found)
    assert shapes(found) == shapes(run), "the recorded run is no longer as it would be now"


def shapes(run: RecordedRun) -> dict[tuple[str, str], Any]:
    """What each conversation of a run keeps, and which tools were called in it."""
    return {
        (row["case"], row["way"]): [(sorted(turn), [call["name"] for call in turn["calls"]]) for turn in row["outcome"]["turns"]]
        for row in run.replies
    }


def test_the_oracle_is_right(run: RecordedRun) -> None:
    is_right(run)


@pytest.mark.parametrize("way", ["xml", pytest.param("native", marks=pytest.mark.full)])
def test_garbage_is_never_right(tmp_path: Path, way: str) -> None:
    """The three sorts of it: a tool that nobody has, an opener without an end, and nothing."""
    found = rates(verdicts_of(played(tmp_path / "run", "garbage", ("en-demo-01", "zh-demo-02", "en-demo-03"), way))[way])
    assert (found["with_tool"], found["task_correct"]) == ((0, 5), (0, 12))


def test_the_mutator_does_not_talk(tmp_path: Path) -> None:
    done = bench("run", "--model", "mutator", "--suite", "talk", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "use oracle or garbage" in done.stderr


# -- the data ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CONVERSATIONS.values(), ids=list(CONVERSATIONS))
def test_a_conversation_can_be_judged_and_answered(case: Case) -> None:
    documented = set(re.findall(r"^#     (\w+)  +", KEYS, re.MULTILINE))
    assert set(case.servers) <= SERVERS
    for turn in case.turns:
        assert turn.keys() <= documented
        assert ("right" in turn) == ("tools" in turn)
        called = {name for call in turn.get("right", ()) for name in call}
        assert all(called & set(entry.split("|")) for entry in turn.get("tools", ()))
        assert "tools" in turn or "answer" not in turn or turn["reply"]
        for pattern in (*turn.get("answer", ()), *turn.get("not", ())):
            re.compile(pattern)
            assert pattern == pattern.casefold(), "answers are read without case"
        for pattern in (turn.get("told", "()"), turn.get("state", {}).get("has", "()")):
            re.compile(pattern)


def test_half_of_the_conversations_are_for_tuning() -> None:
    for language in ("english", "chinese"):
        halves = [case.half for case in CONVERSATIONS.values() if case.category == language]
        assert (halves.count("tuning"), halves.count("report"), len(halves)) == (16, 16, 32)


# -- the judge ---------------------------------------------------------------------------------------------------------

with Path(__file__).with_name("talk_verdicts.toml").open("rb") as file:
    VERDICTS = tomllib.load(file)["verdict"]


def turn_of(answer: str, *calls: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    kept = [{"is_error": False, **call} if "result" in call else call for call in calls]
    return {"calls": kept, "answer": answer, "stop_reason": "end", "files": {}, **more}


@pytest.mark.parametrize("row", VERDICTS, ids=[row["name"] for row in VERDICTS])
def test_verdicts(row: Mapping[str, Any]) -> None:
    told = dict(row["played"])
    assert judge_turn(row["expected"], turn_of(told.pop("answer"), *told.pop("calls", ()), **told), FOLDER) == row["verdict"]


def test_every_verdict_is_tested() -> None:
    documented = set(re.findall(r"`(\w+)`", (judge_turn.__doc__ or "").partition("Returns:")[2]))
    assert {row["verdict"] for row in VERDICTS} - {""} == documented


@settings(deadline=None)
@given(hour=st.integers(0, 23), minute=st.integers(0, 59), data=st.data())
def test_a_time_is_read_on_every_clock(hour: int, minute: int, data: st.DataObject) -> None:
    english, chinese, of_twelve = *(("pm", "下午") if hour >= 12 else ("am", "上午")), hour % 12 or 12
    forms = [
        f"{hour:02}:{minute:02}",
        f"{hour}:{minute:02}",
        f"{of_twelve}:{minute:02} {english}",
        f"{of_twelve:02}:{minute:02} {english.upper()}",
        f"{chinese}{of_twelve}点{minute:02}分",
        f"{hour}时{minute:02}",
    ]
    told = {"name": "now", "result": f"2026-11-22T{hour:02}:{minute:02}:00+01:00"}
    expected = {"tools": ["now"], "told": r"T(\d\d:\d\d)"}
    answer = data.draw(st.sampled_from(forms))
    assert judge_turn(expected, turn_of(f"It is {answer}.", told), FOLDER) == ""
    other = data.draw(st.integers(0, 59).filter(lambda each: each != minute))
    later = {"name": "now", "result": f"2026-11-22T{hour:02}:{other:02}:00+01:00"}
    assert judge_turn(expected, turn_of(f"It is {answer}.", later), FOLDER) == "wrong_answer"


@settings(deadline=None)
@given(number=st.integers(0, 10**12), fraction=st.sampled_from(["", ".5"]))
def test_a_number_is_read_in_every_form(number: int, fraction: str) -> None:
    expected = {"answer": [rf"(?<!\d){number}{re.escape(fraction)}(?!\d)"]}
    full_width = str(number).translate({ord(digit): ord("\N{FULLWIDTH DIGIT ZERO}") + int(digit) for digit in "0123456789"})
    for form in (f"{number:,}", f"{number}", f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}"), full_width):
        assert judge_turn(expected, turn_of(f"结果是{form}{fraction}。"), FOLDER) == ""


@pytest.mark.parametrize(
    ("answer", "language", "right"),
    [
        ("Hello there!", "english", True),
        ("Hello there!", "chinese", False),
        ("你好！", "chinese", True),
        ("你好！", "english", False),
        ("7,006,652", "english", True),
        ("7,006,652", "chinese", True),
        ("Paris现在13.5度", "chinese", True),
        ("The character 水 means water.", "english", True),
        ("", "chinese", True),
    ],
)
def test_the_language_of_an_answer(answer: str, language: str, right: bool) -> None:
    assert speaks(answer, language) is right


@pytest.mark.parametrize(
    ("answer", "admitted"),
    [
        ("I'm sorry, the file does not exist.", True),
        ("I don’t know.", True),
        ("Which city do you mean?", True),
        ("抱歉，我没有找到。", True),
        ("请问您在哪个城市？", True),
        (" ", True),
        ("It is 15:00.", False),
        ("现在是15点。", False),
    ],
)
def test_what_is_missing_is_admitted(answer: str, admitted: bool) -> None:
    assert is_admitted(answer) is admitted


# -- playing -----------------------------------------------------------------------------------------------------------


def test_a_turn_without_an_answer_is_forgotten() -> None:
    """It is kept as it was, and the next turn is asked as if it had not been."""
    overflow = ContextOverflow("too long", backend="b", status_code=400)
    backend = ScriptedBackend(["Hello.", overflow, overflow, "Twelve.", "Bye."])  # it is tried once more, in fewer words
    outcome = asyncio.run(converse(CONVERSATIONS["en-demo-01"], backend, reminder=False))
    assert [turn["stop_reason"] for turn in outcome["turns"]] == ["end", "context_overflow", "end", "end"]
    assert (outcome["error"], outcome["failed_turn"], outcome["valid"]) == ("no_call", 1, False)
    told = [message.content for message in backend.requests[-2].messages if message.role != "system"]
    assert told[-1].endswith("And plus 100?")
    assert "1234" not in str(told)


def test_a_folder_belongs_to_one_conversation_at_a_time() -> None:
    steps: list[str] = []

    async def one(name: str) -> None:
        async with occupied("en-demo-01"):
            steps.append(name)
            await asyncio.sleep(0.05)
            steps.append(name)

    async def both() -> None:
        await asyncio.gather(one("a"), one("b"))

    asyncio.run(both())
    assert steps in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


# -- folders and servers -----------------------------------------------------------------------------------------------


def content(place: Path) -> dict[str, str]:
    """All files of a folder; of a repository its work tree, its state and the hash of its history."""
    files = {str(file.relative_to(place)): file for file in sorted(place.rglob("*")) if file.is_file()}
    found = {name: file.read_text() for name, file in files.items() if not name.startswith(".git/")}
    if (place / ".git").exists():
        for command in ("status --short --branch", "log --all --format=%H%d", "branch"):
            git = ["git", "-C", str(place), *command.split()]
            found[command] = subprocess.run(git, capture_output=True, text=True, check=True, timeout=30).stdout
    return found


@pytest.mark.parametrize("language", ["english", "chinese"])
@pytest.mark.parametrize("server", sorted(SERVERS))
def test_a_folder_is_the_same_each_time(server: str, language: str) -> None:
    place = lay_out("same", (server,), language)
    first = content(place)
    (place / "left.txt").write_text("of the conversation before")
    assert content(lay_out("same", (server,), language)) == first
    assert bool(first) == (server in ("files", "git", "memory"))
    assert place.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (target := tmp_path / "target").mkdir()
    (target / "kept.txt").write_text("kept")
    folder_of("linked").symlink_to(target)
    folder_of("dangling").symlink_to(tmp_path / "nothing")
    folder_of("file").write_text("kept")
    folder_of("foreign").mkdir()
    for name in ("linked", "dangling", "file", "foreign"):
        if name == "foreign":
            monkeypatch.setattr(os, "geteuid", lambda: -1)
        with pytest.raises(UsageError, match="not ours: remove it"):
            lay_out(name, ("files",), "english")
    assert sorted(file.name for file in tmp_path.rglob("*.txt")) == ["kept.txt"]
    assert folder_of("file").read_text() == "kept"


def test_the_tests_have_the_servers_of_the_suite() -> None:
    wanted = json.loads((HERE / "package.json").read_text())["dependencies"]
    assert all(wanted[package.rpartition("@")[0]] == package.rpartition("@")[2] for package in NPM_PACKAGES.values())


@pytest.mark.parametrize(("fails", "left"), [(True, 0), (False, 1)])
def test_servers_are_fetched_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool, left: int) -> None:
    """With an npm that installs a file and notes that it was started, or breaks off after the file."""
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    end = "echo broken >&2; exit 1" if fails else "exit 0"
    npm.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/started\nmkdir -p "$3/node_modules"\n{end}\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(npm.parent), prepend=os.pathsep)
    monkeypatch.setenv("XMLCALL_BENCH", str(tmp_path / "data"))
    for _ in range(2):
        refused = pytest.raises(BackendUnavailable, match=r"cannot install .*server-memory.* with npm: broken")
        with refused if fails else contextlib.nullcontext():
            script = server_of("memory", tmp_path).args[0]
            assert script.endswith("/node_modules/@modelcontextprotocol/server-memory/dist/index.js")
    started = (tmp_path / "started").read_text().splitlines()
    assert len(started) == (2 if fails else 1)
    assert "--ignore-scripts" in started[0]
    assert len(list((tmp_path / "data" / "node").iterdir())) == left


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"expected Node\.js on the PATH"):
        server_of("files", tmp_path)
    with pytest.raises(UsageError, match=r"install it with: .*\[bench\]"):
        server_of("time", tmp_path)
    with pytest.raises(UsageError, match="need git"):
        lay_out("no-git", ("git",), "english")


def test_waiting_for_a_folder_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def twice() -> None:
        async with occupied("en-demo-02"):
            monkeypatch.setattr(play, "_WAIT_SECONDS", 0)
            async with occupied("en-demo-02"):
                raise AssertionError("two have the folder")

    with pytest.raises(UsageError, match="another run has been playing the conversation en-demo-02"):
        asyncio.run(twice())


# -- kept runs ---------------------------------------------------------------------------------------------------------


def bench(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return run_here("bench", *arguments)


@pytest.fixture(scope="module")
def wrong(run: RecordedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run with a conversation whose second turn is wrong, and whose last was cut."""
    folder = tmp_path_factory.mktemp("runs") / "wrong"
    shutil.copytree(run.folder, folder)
    rows = [json.loads(line) for line in (folder / "replies.jsonl").read_text().splitlines()]
    for row in rows:
        if (row["case"], row["way"]) == ("zh-mixed-04", "xml"):
            poem = "文件里写着一首诗\x1b[2J。"
            row["outcome"]["turns"][1] |= {"answer": poem, "replies": [*row["outcome"]["turns"][1]["replies"][:1], poem]}
            row["outcome"]["turns"][3] |= {"answer": "", "stop_reason": "length"}
    (folder / "replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_kept_run_is_read_and_reported(wrong: Path) -> None:
    run = read_run(wrong)
    verdicts = verdicts_of(run)
    report = reported(run, verdicts)
    assert {verdict.case.id: verdict.failure for verdict in verdicts["xml"] if verdict.failure} == {
        "zh-mixed-04#2": "wrong_answer",
        "zh-mixed-04#4": "cut",
    }
    metrics = {name: (rate["count"], rate["total"]) for name, rate in report["metrics"].items()}
    assert (metrics["task_correct"], metrics["false_statement"]) == ((18, 20), (1, 10))
    assert (metrics["with_tool"], metrics["without_tool"]) == ((8, 10), (10, 10))
    assert report["ways"]["xml"]["answered"] == report["cases"] == 5
    text = page([(run, verdicts, report)])
    for words in (
        "zh-mixed-04#2",
        "文件里写着一首诗",
        "Raw reply 1",
        "missing.txt",
        "An answer in words.",
        "false statement",
    ):
        assert words in text


def test_a_run_is_judged_again(wrong: Path, tmp_path: Path) -> None:
    shutil.copytree(wrong, folder := tmp_path / "run")
    assert bench("rescore", folder).stdout == "40 replies judged again, 0 changed\n"
    rows = (folder / "replies.jsonl").read_text()
    (folder / "replies.jsonl").write_text(rows.replace('"stop_reason": "length"', '"stop_reason": "end"'))
    assert bench("rescore", folder).stdout == "xml zh-mixed-04#4: cut -> no_answer\n40 replies judged again, 1 changed\n"


def test_runs_are_reported_and_compared(run: RecordedRun, wrong: Path, tmp_path: Path) -> None:
    done = bench("report", wrong, "--json", "--fail-under", "task_correct=0.9")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["metrics"]["task_correct"]["count"] == 18
    assert bench("report", wrong, "--html", tmp_path / "page.html", "--fail-under", "with_tool=0.9").returncode == 1
    assert "zh-mixed-04#2" in (tmp_path / "page.html").read_text()
    compared = bench("compare", f"{run.folder}:xml", f"{wrong}:xml", "--max-drop", "5")
    assert compared.returncode == 1
    assert "only A is right: zh-mixed-04#2, zh-mixed-04#4" in compared.stdout
    assert "task_correct fell from 20 to 18 of 20" in compared.stderr


def test_a_conversation_is_shown(wrong: Path) -> None:
    done = bench("show", wrong, "zh-mixed-04", "--way", "xml")
    assert (done.returncode, done.stderr) == (0, "")
    first, second, _, last = done.stdout.split("=====")[1:]
    for words in (
        "zh-mixed-04#1, xml",
        "读取文件 ",
        '<invoke name="read_text_file">',
        "ENOENT",
        "verdict: right",
    ):
        assert words in first
    for words in (
        "--- user\n哦，那读",
        "--- raw reply 2\n",
        "--- answer (end)\n文件里写着一首诗。",
        "verdict: wrong_answer",
    ):
        assert words in second
    assert "--- answer (length)" in last
    assert 'answer: ["\\\\b714\\\\b"]' in last


def test_a_turn_is_shown(wrong: Path) -> None:
    done = bench("show", wrong, "zh-mixed-04#2")
    assert done.stdout.count("=====") == 2
    assert "zh-mixed-04#2, native" in done.stdout
    for unknown in ("zh-mixed-04#5", "zh-mixed-05", "zh-mixed-04#"):
        refused = bench("show", wrong, unknown)
        assert refused.returncode == 2
        assert unknown in refused.stderr


@pytest.mark.parametrize("key", ["answer", "calls", "files", "usage", "seconds", ""])
def test_a_conversation_that_lacks_something_is_told(wrong: Path, tmp_path: Path, key: str) -> None:
    """A field of a turn, or a whole turn."""
    shutil.copytree(wrong, folder := tmp_path / "run")
    row = json.loads((folder / "replies.jsonl").read_text().splitlines()[0])
    turns = row["outcome"]["turns"]
    turns[1].pop(key) if key else turns.pop()
    (folder / "replies.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(RunError, match=f"'{key}' is a required property" if key else f"conversation {row['case']} is damaged"):
        read_run(folder)
