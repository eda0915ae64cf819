"""`--ask KEY=VALUE`: one table of keys for every command that asks a model; the options it has replaced; two sizes of help."""

import math
import re
from argparse import SUPPRESS
from dataclasses import fields
from typing import Any

import pytest

from xmlcall.cli import COMMANDS, GROUPS, command_of, main, parser_of
from xmlcall.errors import UsageError
from xmlcall.turn.asking import ASK_KEYS, SERVED, Asking, AskingFields, read_ask, read_ask_table
from xmlcall.types.completion import SAMPLED

Capture = pytest.CaptureFixture[str]
QUESTIONS = {"run": ["Hi"]}


def given(command: str, *arguments: str) -> dict[str, Any]:
    """Parse arguments; return what they say of how the model is asked."""
    options = parser_of(command).parse_args([*arguments, *QUESTIONS.get(command, [])])
    return dict(options.ask)


def test_the_table_has_every_field_and_no_other() -> None:
    assert [*ASK_KEYS] == [field.name for field in fields(Asking)] == [*AskingFields.__annotations__]


@pytest.mark.parametrize("key", ASK_KEYS)
def test_each_example_can_be_given(key: str) -> None:
    name, value = read_ask(key.replace("_", "-"), ASK_KEYS[key].example)
    Asking(**{name: value})
    assert name == key
    assert value != getattr(Asking(), key)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("temperature=0", 0.0),
        ("temperature= 0.5 ", 0.5),
        ("seed=-1", -1),
        ("call_threshold=auto", "auto"),
        ("call-threshold=-2.5", -2.5),
        ("call_threshold=off", None),
        ("parallel=Yes", True),
        ("reminder=false", False),
        ("mode=native-only", "native-only"),
    ],
)
def test_values(text: str, value: object) -> None:
    [read] = given("run", "--ask", text).values()
    assert (read, type(read)) == (value, type(value))


WRONG = [
    ("temprature=1", "temprature: unknown key; expected one of temperature, mode, dialect, .*, seed"),
    ("format=x", "format: unknown key; expected one of mode, dialect, .*"),
    ("temperature", "expected KEY=VALUE, one of mode, .*, got 'temperature'"),
    ("temperature=warm", "temperature: expected a number of at least 0, such as temperature=0.5, got 'warm'"),
    ("temperature=nan", "temperature: expected a number of at least 0, .*"),
    ("temperature=-1", "temperature: expected a number of at least 0, .*"),
    ("max_tokens=0", "max_tokens: expected a whole number of at least 1, such as max_tokens=512, got '0'"),
    ("seed=1.5", "seed: expected a whole number, such as seed=7, got '1.5'"),
    ("seed=1" + "0" * 400, "seed: expected a whole number, .*"),
    ("lang=fr", "lang: expected one of en, zh, such as lang=zh, got 'fr'"),
    ("mode=json", "mode: expected one of xml, native, native-only, none, auto, such as mode=native, got 'json'"),
    ("parallel=maybe", "parallel: expected yes or no, such as parallel=no, got 'maybe'"),
    ("call_threshold=inf", "call_threshold: expected a number, auto or off, such as call_threshold=-2.5, got 'inf'"),
    ("dialect=nope", "dialect: unknown dialect 'nope'; known: .*"),
    ("dialect=auto", "dialect: expected one wire format to ask a model for, got 'auto'"),
]


@pytest.mark.parametrize(("text", "told"), WRONG, ids=[text[:20] for text, _ in WRONG])
def test_what_is_wrong_is_told_with_what_was_expected(text: str, told: str, capsys: Capture) -> None:
    assert main(["run", "--ask", text, "Hi"]) == 2
    assert re.fullmatch(rf"xmlcall: argument --ask: {told} \(see `xmlcall run --help`\)\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "--ask", "mode=native", "--ask", "dialect=hermes", "Hi"], "cannot be combined with mode=native"),
        (["serve", "--ask", "mode=native", "--ask", "call_threshold=1"], "cannot be combined with reminder=no or mode=native"),
        (["chat", "--ask", "reminder=no", "--ask", "call_threshold=auto"], "cannot be combined with reminder=no"),
        (["serve", "--ask", "mode=native-only"], "mode must be one of 'auto', 'xml', 'native'"),
        (["serve", "--ask", "temperature=1"], "temperature: has no effect here; expected one of mode, "),
        (["bench", "run", "--out", "x", "--ask", "mode=xml"], "mode: has no effect here; expected one of family, "),
    ],
)
def test_what_does_not_go_together_is_told(arguments: list[str], told: str, capsys: Capture) -> None:
    assert main(arguments) == 2
    assert told in capsys.readouterr().err


def test_the_last_value_counts_and_one_command_leaves_nothing_to_the_next() -> None:
    assert given("run", "--ask", "seed=1", "--ask", "lang=zh", "--ask", "seed=2") == {"seed": 2, "lang": "zh"}
    assert given("run") == {}


OLD = [
    (["--temperature", "0.5"], {"temperature": 0.5}, "--temperature 0.5 is now --ask temperature=0.5"),
    (["--call-threshold=-2.5"], {"call_threshold": -2.5}, "--call-threshold -2.5 is now --ask call_threshold=-2.5"),
    (["--no-reminder"], {"reminder": False}, "--no-reminder is now --ask reminder=no"),
    (["--dialect", "hermes"], {"dialect": "hermes"}, "--dialect hermes is now --ask dialect=hermes"),
]


@pytest.mark.parametrize(("arguments", "fields", "told"), OLD)
@pytest.mark.parametrize("command", ["run", "chat", "ui"])
def test_the_old_options_work_and_name_the_new(
    command: str, arguments: list[str], fields: dict[str, Any], told: str, capsys: Capture
) -> None:
    assert given(command, *arguments) == fields
    assert capsys.readouterr().err == f"xmlcall: {told}\n"


def test_an_old_option_that_is_wrong_is_told_by_its_name(capsys: Capture) -> None:
    assert main(["run", "--temperature", "nan", "Hi"]) == 2
    assert "argument --temperature: temperature: expected a number of at least 0, such as" in capsys.readouterr().err


def test_each_command_takes_the_keys_that_it_uses() -> None:
    def keys(command: str) -> set[str]:
        parser = parser_of(command)
        [ask] = [each for each in parser._actions if each.option_strings == ["--ask"]]
        hidden = [each for each in parser._actions if each.help == SUPPRESS and each.dest == "ask"]
        was_option = [key for key in ask.keys if key not in ("sampling", *SAMPLED[1:])]  # type: ignore[attr-defined]
        assert len(hidden) == len(was_option)
        return {*ask.keys}  # type: ignore[attr-defined]

    assert keys("run") == keys("chat") == keys("ui") == {*ASK_KEYS}
    assert keys("serve") == {*SERVED} == {*ASK_KEYS} - {"parallel", "max_tokens", "seed", *SAMPLED}
    assert keys("prompt") == {"dialect", "family", "lang", "parallel"}
    assert keys("template") == {"dialect", "lang", "parallel"}


# -- in a file ---------------------------------------------------------------------------------------------------------


def test_a_table_of_a_file() -> None:
    table = {"call_threshold": -2.5, "reminder": False, "mode": "xml", "tool-tokens": 200, "temperature": 1}
    expected = {"call_threshold": -2.5, "reminder": False, "mode": "xml", "tool_tokens": 200, "temperature": 1.0}
    assert read_ask_table(table) == expected
    for wrong in ({"lang": 1}, {"tool_tokens": 1.5}, {"mode": ["xml"]}, {"reminder": 0}, {"seed": True}):
        with pytest.raises(UsageError, match=f"{next(iter(wrong))}: expected "):
            read_ask_table(wrong)


# -- help --------------------------------------------------------------------------------------------------------------


def helped(capsys: Capture, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*arguments]) == 0
    return capsys.readouterr().out


def options_in(text: str) -> set[str]:
    return {*re.findall(r"^ +(?:-h, )?(--[a-z-]+)", text, flags=re.MULTILINE)}


@pytest.mark.parametrize("command", ["run", "chat"])
def test_the_help_of_run_fits_two_screens(command: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = helped(capsys, monkeypatch, command, "--help")
    assert sum(max(1, math.ceil(len(line) / 80)) for line in shown.splitlines()) <= {"run": 48, "chat": 52}[command]
    assert {"--model", "--mcp", "--profile", "--ask", "--yes", "--allow"} < options_in(shown)
    assert len(options_in(shown)) <= 13


@pytest.mark.parametrize("command", ["run", "chat", "ui", "serve"])
def test_all_options_are_shown_on_request_but_those_that_were_replaced(
    command: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, whole = (helped(capsys, monkeypatch, command, option) for option in ("--help", "--help-all"))
    parser = parser_of(command)
    every = {each.option_strings[-1] for each in parser._actions if each.option_strings and each.help != SUPPRESS}
    assert options_in(whole) == every
    assert options_in(short) < every
    assert "--temperature" not in whole
    assert all(f"\n  {key} " in whole for key in (SERVED if command == "serve" else ASK_KEYS))
    assert "the keys of --ask" not in short


@pytest.mark.parametrize("command", COMMANDS)
def test_what_the_short_help_shows_is_there(command: str) -> None:
    known = {option for each in parser_of(command)._actions for option in each.option_strings}
    assert {*command_of(command).common.split()} <= known


def test_commands_are_grouped_by_what_people_want(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{title}:\n") for title in GROUPS]
    assert [*GROUPS] == ["Use", "Serve", "Look", "Measure", "Set up"]
    assert places == sorted(places)
