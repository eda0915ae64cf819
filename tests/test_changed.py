"""Which tests `make quick` runs for which change."""

import pytest
from changed import ROOT, relevant_to


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("tests/agent/test_loop.py", ["tests/agent/test_loop.py"]),
        ("tests/proxy/conftest.py", ["tests/proxy"]),
        ("tests/corpus/json/cases.toml", []),
        ("tests/soup.py", []),
        ("prompts/en/reminder.j2", ["tests/prompting"]),
        ("xmlcall/parsing/parser.py", ["tests/parsing", "tests/binding"]),
        ("xmlcall/agent/turn.py", ["tests/agent"]),
        ("xmlcall/agent/tool_choice.py", ["tests/agent/test_tool_choice.py"]),
        ("xmlcall/bench/store.py", ["tests/bench/test_bench_store.py"]),
        ("docs/design.md", []),
        ("xmlcall/errors.py", []),
    ],
)
def test_relevant_to_a_file(file: str, expected: list[str]) -> None:
    assert relevant_to(file) == expected
    assert all((ROOT / test).exists() for test in expected)
