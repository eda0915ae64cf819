"""Which model a command takes where none is given."""

import pytest

from xmlcall.backends import gguf
from xmlcall.cli import parser_of
from xmlcall.cli.open_model import connected
from xmlcall.cli.waiting import OpeningStatus, error_console
from xmlcall.cli.words import speaker

SMALL, LARGER = "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"


@pytest.mark.parametrize(
    ("command", "gigabytes", "model"),
    [
        (["run", "Hi"], 16, SMALL),
        (["serve"], 16, SMALL),
        (["chat"], 16, LARGER),
        (["ui"], 16, LARGER),
        (["chat"], None, LARGER),
        (["chat"], 2, SMALL),
        (["chat", "--model", "local"], 16, SMALL),
        (["ui", "--model", "smollm2-135m"], 2, "smollm2-135m"),
    ],
)
def test_conversations_get_the_larger_model_where_there_is_memory(
    command: list[str], gigabytes: int | None, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "available_memory", lambda: None if gigabytes is None else gigabytes * 10**9)
    options = parser_of(command[0]).parse_args(command[1:])
    opening = OpeningStatus(error_console(), speaker("en"))
    assert connected(options.model, options.context, opening).model == model == opening.model
