"""The examples in the help texts are commands that the parsers take."""

import argparse
import io
import re
import shlex
from contextlib import redirect_stdout

import pytest

from xmlcall.cli import COMMANDS, parser_of


def help_text(command: str, *action: str) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed), pytest.raises(SystemExit):
        parser_of(command).parse_args([*action, "--help"])
    return printed.getvalue()


def actions(command: str) -> list[str]:
    choices = [each.choices for each in parser_of(command)._actions if isinstance(each, argparse._SubParsersAction)]
    return [name for names in choices for name in names]


TEXTS = [(command,) for command in COMMANDS] + [("bench", action) for action in actions("bench")]


def commands(text: str) -> list[str]:
    """The commands among the examples, without what the shell does with them and what is said of them."""
    lines = text.partition("examples:")[2].partition("\n\n")[0].splitlines()
    last = [line.rpartition(" | ")[2].strip() for line in lines]
    return [re.split(r" > |  ", line)[0] for line in last if line.startswith("xmlcall ")]


@pytest.mark.parametrize("words", TEXTS, ids=" ".join)
def test_the_examples_can_be_typed(words: tuple[str, ...]) -> None:
    examples = [shlex.split(line) for line in commands(help_text(*words))]
    assert examples
    for _, command, *arguments in examples:
        parser_of(command).parse_args(arguments)
