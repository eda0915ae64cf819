"""`--profile`, `xmlcall profiles` and `xmlcall probe` as a person uses them."""

import json
import shlex
import signal
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from cli_harness import HOSTILE, Terminal, call, model_server, run_cli, run_here
from servers.fake_openai import Step, reply

from xmlcall.backends.server_facts import of_name
from xmlcall.cli import main
from xmlcall.cli.open_model import asking_of, profile_json, profile_of, profile_words
from xmlcall.errors import UsageError
from xmlcall.profiles.profile import Profile, file_of, write_profile
from xmlcall.turn.asking import Asking

MINE = of_name("tiny")  # what the fake server's model is known by


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XMLCALL_PROFILES", str(tmp_path / "profiles"))
    return tmp_path / "profiles"


def written(**settings: Any) -> None:
    write_profile(Profile(model="tiny", fingerprints=(MINE,), **settings), file_of("tiny"))


def options(profile: str = "auto", **given: Any) -> Namespace:
    return Namespace(profile=profile, ask=given)


HERMES: dict[str, Any] = {"dialect": "hermes", "call_threshold": -1.5}


@pytest.mark.parametrize(
    ("profile", "given", "words"),
    [
        (HERMES, {}, "hermes, list, threshold -1.5"),
        (HERMES, {"call_threshold": 2.0}, "hermes, list, threshold 2"),
        (HERMES, {"call_threshold": None}, "hermes, list, threshold off"),
        (HERMES, {"family": "every"}, "hermes, every, threshold auto"),  # a threshold is one of a prompt
        (HERMES, {"dialect": "qwen"}, "qwen, list, threshold auto"),
        (HERMES, {"reminder": False}, "hermes, list, threshold off"),
        (HERMES, {"mode": "xml"}, "hermes, list, threshold -1.5"),
        (HERMES, {"mode": "native"}, "native"),
        ({"way": "native"}, {}, "native"),
        ({"way": "native"}, {"mode": "xml"}, "xml, list, threshold auto"),
        ({"way": "none"}, {}, "none"),
        ({"way": "none"}, {"mode": "xml"}, "xml, list, threshold auto"),
        ({"way": "native"}, {"dialect": "qwen"}, "qwen, list, threshold auto"),
        ({"way": "native"}, {"call_threshold": None}, "xml, list, threshold off"),
        ({"way": "native"}, {"call_threshold": 0.0}, "xml, list, threshold 0"),
        ({"call_threshold": "off"}, {}, "xml, list, threshold off"),
    ],
)
def test_what_is_given_goes_before_the_profile(profile: dict[str, Any], given: dict[str, Any], words: str) -> None:
    written(**profile)
    asked = options(**given)
    found = profile_of(asked, (MINE,))
    assert found is not None
    asking = asking_of(asked, found)
    assert profile_words(asking, found) == f"tiny (yours): {words}"
    assert profile_json(asking, found) == {"name": "tiny", "source": "yours", "settings": words}


def test_without_a_profile_nothing_changes() -> None:
    assert profile_of(options(), (MINE,)) is None
    assert asking_of(options()) == Asking(sampling="greedy", max_tokens=2048, call_threshold="auto")
    assert profile_json(asking_of(options()), None) is None
    written(**HERMES)
    assert profile_of(options(profile="off"), (MINE,)) is None
    assert profile_of(options(), ("model:other",)) is None


def test_a_profile_of_another_model_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    written(**HERMES)
    assert profile_of(options(profile="tiny"), ("model:other",)) is not None
    assert "the profile tiny was measured with another model" in capsys.readouterr().err
    with pytest.raises(UsageError, match="expected the name of a profile"):
        profile_of(options(profile="nobody"), (MINE,))


@pytest.mark.parametrize(
    ("model", "settings", "applies", "makers"),
    [
        ("tiny", {}, "temperature 0, in Python where ", "no recommendation known"),
        ("gpt-oss:20b", {}, "temperature 0, in Python where ", "recommend temperature 1, top_p 1 for gpt-oss (https://"),
        ("gpt-oss:20b", {"sampling": "recommended"}, "temperature 1, top_p 1 (this profile)", "; in use"),
        ("gpt-oss:20b", {"sampling": "recommended", "top_k": 9}, "temperature 1, top_p 1, top_k 9 (this profile)", "; in use"),
        ("tiny", {"sampling": "recommended"}, "the server's own (this profile)", "no recommendation known"),
        ("tiny", {"sampling": "greedy"}, "temperature 0 (this profile)", "no recommendation known"),
    ],
)
def test_a_profile_says_what_of_sampling_applies_and_why(
    model: str, settings: dict[str, Any], applies: str, makers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_profile(Profile(model=model, **settings), file_of("mine"))
    assert main(["profiles", "show", "mine"]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["sampling"].startswith(applies)
    assert makers in shown["makers"]
    assert main(["profiles", "show", "mine", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["recommended"] is None) == (model == "tiny")
    assert {name: told["profile"][name] for name in settings} == settings


def profiled(home: Path, folder: Path, *arguments: str, **settings: Any) -> Any:
    """Run a command with a server of a tool, which starts sooner than the demo server."""
    written(**settings)
    server = f"{shlex.quote(sys.executable)} {shlex.quote(HOSTILE)} good"
    return run_cli(arguments[0], "--mcp", server, *arguments[1:], home=home, env={"XMLCALL_PROFILES": str(folder)})


def test_run_says_which_profile_it_uses(tmp_path: Path, folder: Path) -> None:
    with model_server("Hello.") as (url, fake):
        done = profiled(tmp_path, folder, "run", "--json", "--ask", "call_threshold=off", "--model", url, "Hi", dialect="hermes")
    assert json.loads(done.stdout)["profile"] == {"name": "tiny", "source": "yours", "settings": "hermes, list, threshold off"}
    assert done.stderr == "profile: tiny (yours): hermes, list, threshold off\n"
    assert "<tool_call>" in fake.bodies[0]["messages"][0]["content"]


def test_a_native_profile(tmp_path: Path, folder: Path) -> None:
    with model_server("Hello.") as (url, fake):
        done = profiled(tmp_path, folder, "run", "--model", url, "Hi", way="native")
    assert (done.returncode, done.stdout) == (0, "Hello.\n")
    assert fake.bodies[0]["tools"]


def test_profile_off(tmp_path: Path, folder: Path) -> None:
    with model_server("Hello.") as (url, fake):
        done = profiled(tmp_path, folder, "run", "--json", "--profile", "off", "--model", url, "Hi", way="native")
    assert (json.loads(done.stdout)["profile"], done.stderr) == (None, "")
    assert "tools" not in fake.bodies[0]


def test_a_broken_profile_is_told_of_and_passed_over(tmp_path: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "broken.toml").write_text('model = "m"\nwya = "xml"\n')
    with model_server("Hello.", "Hello.") as (url, _):
        done = profiled(tmp_path, folder, "run", "--model", url, "Hi", call_threshold="off")
        assert (done.returncode, done.stdout) == (0, "Hello.\n")
        assert "broken.toml: wya: unknown key" in done.stderr
        done = profiled(tmp_path, folder, "run", "--profile", "broken", "--model", url, "Hi")
    assert done.returncode == 2
    assert "broken.toml: wya: unknown key" in done.stderr


def test_bench_run_uses_the_profile(tmp_path: Path, folder: Path) -> None:
    written(way="xml", dialect="hermes", call_threshold="off")
    with model_server(*["Hello."] * 3) as (url, fake):
        command = ["bench", "run", "--model", url, "--limit", "1", "--suite", "smoke", "--out"]
        done = run_here(*command, tmp_path / "one")
        assert "profile: tiny (yours): hermes, list, threshold off" in done.stderr
        assert run_here(*command, tmp_path / "two", "--way", "native").stderr == ""
        assert run_here(*command, tmp_path / "three", "--profile", "off", "--ask", "call_threshold=off").stderr == ""
    about = [json.loads((tmp_path / name / "run.json").read_text()) for name in ("one", "two", "three")]
    assert [each["ways"] for each in about] == [["hermes"], ["native"], ["xml"]]
    assert [each.get("profile") for each in about] == ["tiny (yours)", "", ""]
    assert "<tool_call>" in fake.bodies[0]["messages"][0]["content"]


# -- xmlcall profiles --------------------------------------------------------------------------------------------------


def test_list_show_path_and_rm(folder: Path) -> None:
    written(**HERMES)
    lines = run_here("profiles", "list").stdout.splitlines()
    assert lines[0].split() == ["tiny", "yours", "hermes,", "list,", "threshold", "-1.5"]
    assert len(lines) == 4
    assert run_here("profiles").stdout.splitlines() == lines
    listed = json.loads(run_here("profiles", "list", "--json").stdout)
    assert listed["folder"] == str(folder)
    assert listed["profiles"][0]["profile"]["dialect"] == "hermes"
    shown = run_here("profiles", "show", "tiny").stdout
    assert "asked by  hermes, list, threshold -1.5" in shown
    assert "not yet: these are defaults" in shown
    assert run_here("profiles", "path").stdout.strip() == str(folder)
    assert run_here("profiles", "path", "tiny").stdout.strip() == str(folder / "tiny.toml")
    assert run_here("profiles", "rm", "tiny").stdout == f"removed tiny from {folder}\n"
    assert run_here("profiles", "rm", "tiny").returncode == 2
    done = run_here("profiles", "rm", "smollm2-135m")
    assert (done.returncode, done.stdout) == (2, "")
    assert "ships with xmlcall and cannot be removed" in done.stderr


def test_what_cannot_be_read_is_listed(folder: Path) -> None:
    folder.mkdir()
    (folder / "bad\x1b[31m.toml").write_text("model = 1\n")
    done = run_here("profiles", "list")
    assert "cannot be read" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "model: 1 is not of type 'string'" in done.stderr


# -- xmlcall probe -----------------------------------------------------------------------------------------------------


def test_a_probe_that_is_stopped_says_how_to_go_on(tmp_path: Path) -> None:
    slow: list[Step] = [0.2, *reply("Hello.")]
    out = tmp_path / "out"
    with model_server(*[slow] * 500) as (url, fake):
        with Terminal("probe", url, "--out", str(out), home=tmp_path) as terminal:
            terminal.expect("replies at most")
            while len(fake.bodies) < 3:
                assert terminal.process.poll() is None
            terminal.signal(signal.SIGINT)
            assert terminal.end() == 130
        assert "interrupted; the measurements so far are kept: run the same command again to continue" in terminal.rest()
    kept = [line for file in out.glob("*/replies.jsonl") for line in file.read_text().splitlines()]
    assert len(kept) >= 2


@pytest.mark.full  # it asks hundreds of questions
def test_a_probe_without_a_right_call_keeps_no_profile(tmp_path: Path, folder: Path) -> None:
    with model_server(*["I cannot call tools."] * 900) as (url, _):
        done = run_here("probe", url, "--out", tmp_path / "out", "--concurrency", "4")
    assert (done.returncode, file_of("tiny").exists()) == (1, False)
    assert "chosen: none, since no way gave a right call" in done.stdout
    assert "no profile is written; `xmlcall doctor` tests what the server does with tools" in done.stderr


@pytest.mark.full  # it asks hundreds of questions
def test_a_probe_to_its_end(tmp_path: Path, folder: Path) -> None:
    """A model that always says the same, which is right once, so that no way is better than another."""
    same = call("freeze_card", last_digits="7120")
    with model_server(*[same] * 900) as (url, _):
        done = run_here("probe", url, "--out", tmp_path / "out", "--json", "--concurrency", "4")
        found = json.loads(done.stdout)
        assert (found["won"], found["chosen"]) == (False, "xml, list, threshold auto")
        assert found["profile"]["fingerprints"] == [MINE]
        assert file_of("tiny").exists()
        assert "the profile is in" in done.stderr
        again = run_here("probe", url, "--out", tmp_path / "out")
    assert "chosen: the default, since no other way is better by more than chance" in again.stdout
    assert "the default (chosen)" in again.stdout
    shown = run_here("profiles", "show", "tiny").stdout
    assert "questions of xmlcall probe" in shown
    assert "right calls" in shown
