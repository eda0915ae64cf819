"""What a file of rules does to `run`, and what `xmlcall policy` tells of it."""

from pathlib import Path

import pytest
from cli_harness import Terminal, call, configured, model_server, run_cli
from servers.started import ProcessFiles

QUESTION = "[s]top: "

REPAIRED = call("echo", text="hi").replace('name="text"', 'name="Text"')


def run(tmp_path: Path, rules: str, *options: str, reply: str = "", here: bool = False) -> tuple[int, str, bool]:
    """Return the exit code, what was told, and whether the tool ran."""
    file = tmp_path / "xmlcall.toml" if here else tmp_path / "rules.toml"
    file.write_text(rules)
    named = [] if here else ["--policy", str(file)]
    with model_server(reply or call("echo", text="hi"), "Done.") as (url, _):
        done = run_cli("run", "--mcp", configured(tmp_path), "--model", url, *named, *options, "Go.", home=tmp_path)
    return done.returncode, done.stderr, "tools/call" in ProcessFiles(tmp_path).received()


@pytest.mark.parametrize(
    ("rules", "options", "ran", "told"),
    [
        ('allow = "files.*"', (), True, ""),
        ('[[rule]]\nallow = "files.*"\nwhere.text.like = "h*"', (), True, ""),
        ('[[rule]]\nallow = "files.*"\nwhere.text.like = "x*"', (), False, '[[rule]]\n  allow = "files.echo"\n'),
        ('deny = "files.*"', ("--allow", "*"), False, "a rule denies it: deny files.* (rules.toml)"),
        ('deny = "files.*"', ("--yes",), False, "a rule denies it: deny files.* (rules.toml)"),
        ('ask = "files.*"', ("--allow", "*"), False, "the rule ask files.* (rules.toml) asks"),
        ('ask = "files.*"', ("--yes",), True, ""),
    ],
)
def test_rules_decide(rules: str, options: tuple[str, ...], ran: bool, told: str, tmp_path: Path) -> None:
    code, errors, found = run(tmp_path, rules, *options)
    assert (code, found) == (0 if ran else 1, ran)
    assert told in errors


@pytest.mark.parametrize(
    ("rules", "options", "ran"),
    [
        ("", ("--allow", "*"), False),
        ("", ("--allow", "*", "--repaired", "allow"), True),
        ('allow = "*"\nrepaired = true', (), True),
        ("", ("--yes",), True),
    ],
)
def test_a_call_that_was_made_out_asks(rules: str, options: tuple[str, ...], ran: bool, tmp_path: Path) -> None:
    _, errors, found = run(tmp_path, rules, *options, reply=REPAIRED)
    assert found is ran
    assert ("(parameter-name), and there is no terminal to ask on" in errors) is not ran
    assert ('  allow = "files.echo"\n  repaired = true\n' in errors) is not ran


def test_a_file_of_the_working_directory_does_not_allow(tmp_path: Path) -> None:
    _, errors, ran = run(tmp_path, 'allow = "*"', here=True)
    assert not ran
    assert "only its rules that ask or deny apply. If you trust the file, pass --policy xmlcall.toml" in errors
    assert run(tmp_path, 'allow = "*"', "--policy", "xmlcall.toml", here=True)[2]


def test_a_broken_file_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text("alow = 1")
    done = run_cli("run", "--policy", str(tmp_path / "rules.toml"), "Hi", home=tmp_path)
    assert done.returncode == 2
    assert "rules.toml: alow: expected one of the keys allow, ask, deny" in done.stderr


def test_the_person_is_told_of_repairs(tmp_path: Path) -> None:
    with model_server(REPAIRED, REPAIRED, "Done.") as (url, _):
        with Terminal("run", "--mcp", configured(tmp_path), "--model", url, "Go.", home=tmp_path) as terminal:
            assert "the model did not write it quite as shown; repaired: parameter-name" in terminal.expect(QUESTION)
            terminal.send("a\n")
            terminal.expect(QUESTION)  # "always" is not for calls that were made out
            terminal.send("n\n")
            assert terminal.end() == 0


def policy(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    done = run_cli("policy", *arguments, home=tmp_path)
    return done.returncode, done.stdout or done.stderr


def test_the_rules_are_shown_and_explained(tmp_path: Path) -> None:
    assert "no such file: xmlcall asks about every call" in policy(tmp_path)[1]
    (tmp_path / "r.toml").write_text('allow = "web.*"\n[[rule]]\nallow = "files.*"\nrepaired = true\nwhere.path.below = "/notes"')
    assert policy(tmp_path, "--policy", "r.toml") == (
        0,
        "r.toml\n  allow web.* (r.toml)\n  allow files.* (r.toml, rule 1) where path repaired\n",
    )
    assert policy(tmp_path, "--policy", "r.toml", "files.write", '{"path": "/notes/../x"}') == (
        0,
        "ask: no rule matches\n  allow files.* (r.toml, rule 1): does not match: where path\n",
    )
    assert policy(tmp_path, "--policy", "r.toml", "web.get")[1].startswith("allow: allow web.* (r.toml)\n")


@pytest.mark.parametrize(("arguments", "told"), [(["x"], "SERVER.TOOL"), (["a.b", "["], "JSON"), (["a.b", "[]"], "got '[]'")])
def test_what_cannot_be_explained(arguments: list[str], told: str, tmp_path: Path) -> None:
    code, said = policy(tmp_path, *arguments)
    assert code == 2
    assert told in said
