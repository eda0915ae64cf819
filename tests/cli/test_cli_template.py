"""`xmlcall template` writes a chat template."""

from pathlib import Path

import pytest

from xmlcall.cli import main
from xmlcall.prompting.chat_template import CHATML, chat_template
from xmlcall.prompting.format import PromptFormat

Capture = pytest.CaptureFixture[str]
OWN = "{% for message in messages %}{{ message.content }}{% endfor %}"

OPTIONS = {
    "": chat_template(PromptFormat()),
    "--ask lang=zh --ask dialect=hermes": chat_template(PromptFormat(lang="zh", dialect="hermes")),
    "--ask parallel=no --reminder": chat_template(PromptFormat(parallel=False), with_reminder=True),
    "--base own.jinja": chat_template(PromptFormat(), OWN),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.jinja").write_text(OWN)
    Path("broken.jinja").write_text("{% for %}")
    Path("bytes.jinja").write_bytes(b"\xff")


@pytest.mark.parametrize("options", OPTIONS)
def test_what_is_written(options: str, capsys: Capture) -> None:
    assert main(["template", *options.split()]) == 0
    assert capsys.readouterr().out == OPTIONS[options]


def test_chatml_is_the_usual_base(capsys: Capture) -> None:
    main(["template"])
    assert capsys.readouterr().out.endswith(CHATML)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--ask dialect=pythonic", "expected a format that a template can write"),
        ("--base none.jinja", "expected a chat template in 'none.jinja'"),
        ("--base broken.jinja", "'broken.jinja': line 1"),
        ("--base bytes.jinja", "expected a chat template in 'bytes.jinja'"),
        ("--ask lang=fr", "expected one of en, zh"),
    ],
)
def test_what_is_refused(options: str, problem: str, capsys: Capture) -> None:
    assert main(["template", *options.split()]) == 2
    assert problem in capsys.readouterr().err
