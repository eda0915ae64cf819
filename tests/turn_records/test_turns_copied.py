"""A reply copied as a corpus case, a request and a case of the harness: each is read by what it is for."""

import json
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cases import TOOLS, load
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from turn_harness import add, block, call, turn

from xmlcall import Catalog, Tool, parse
from xmlcall.bench.case import judge_case
from xmlcall.bench.store import _case_from_json
from xmlcall.errors import UsageError
from xmlcall.records.store import tool_to_json
from xmlcall.turn_records.reading import as_bench_case, as_corpus_case, as_curl, read_reply
from xmlcall.turn_records.record import TurnRecord

CASES = [pytest.param(case, id=name) for name, case in load("*/*.toml", quick=4)]
HOSTILE = '\'; rm -rf / #\nJSON\n""" ]] \x1b[31m \u202e $(id) `id` \\'


def turn_of(text: str, catalog: Any = (), **options: Any) -> TurnRecord:
    tools = tuple(tool_to_json(tool) for tool in Catalog.of(catalog))
    return TurnRecord(id="turn-1", source="file", tools=tools, replies=(read_reply(text, catalog, **options),))


def case_of(written: str) -> tuple[dict[str, Any], Any]:
    """Return a case, and its tools from the comment before it."""
    [case] = tomllib.loads(written)["case"]
    comment = [line.removeprefix("# ") for line in written.split("\n") if line.startswith("# ")][1:]
    sets = tomllib.loads("\n".join(comment))
    return case, Catalog(sets[case["tools"]]) if "tools" in case else Catalog(())


def holds(case: dict[str, Any], catalog: Any) -> None:
    """Check a case as the test of the corpus does."""
    finish = case.get("finish_reason", "stop")
    reply = parse(case["input"], catalog, finish_reason=finish, reasoning_open=case.get("reasoning_open", False))
    assert reply.text == case["text"]
    assert reply.reasoning == case.get("reasoning", "")
    assert [call.name for call in reply.calls] == [call["name"] for call in case.get("calls", [])]
    assert [repair.code for repair in reply.repairs] == case.get("repairs", [])


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES)
def test_a_case_of_the_corpus_is_copied_as_itself(case: dict[str, Any]) -> None:
    catalog = TOOLS.get(case.get("tools", ""), Catalog(()))
    options = {name: case[name] for name in ("finish_reason", "reasoning_open") if name in case}
    copied, tools = case_of(as_corpus_case(turn_of(case["input"], catalog, **options), 1))
    assert copied["input"] == case["input"]
    assert tools.names() == catalog.names()
    if copied.get("reasoning_open", False) == case.get("reasoning_open", False):
        for name in ("calls", "text", "repairs"):
            assert copied.get(name, []) == case.get(name, [])
    holds(copied, tools)


@given(st.text(max_size=40), st.text(alphabet=st.characters(codec=None, exclude_categories=[]), max_size=40))
@settings(max_examples=examples(100), deadline=None)
def test_whatever_it_says_a_case_is_toml_and_a_request_is_json(description: str, text: str) -> None:
    schema = {"type": "object", "properties": {description: {"type": "string", "default": None, "enum": [text, None, 1.5]}}}
    catalog = Catalog([Tool(name="a b", description=description, input_schema=schema)])
    record = TurnRecord(id=text, source="file", question=description, model=text, replies=turn_of(text, catalog).replies)
    record = TurnRecord(**{name: getattr(record, name) for name in record.__slots__} | {"tools": turn_of("", catalog).tools})
    holds(*case_of(as_corpus_case(record, 1)))
    head, body, end, rest = as_curl(record, 1, "http://127.0.0.1:1").split("\n")
    assert json.loads(body)["model"] == text
    assert (end, rest) == ("JSON", "")
    assert head.endswith("<<'JSON'")
    json.loads(as_bench_case(record, 1))


async def test_a_request_is_that_of_the_client() -> None:
    record = await turn([block(call("add", a=1, b=2)), "It is 3."], question="What is 1 + 2?")
    first = json.loads(as_curl(record, 1, "http://127.0.0.1:8485/").split("\n")[1])
    assert first["messages"] == [{"role": "user", "content": "What is 1 + 2?"}]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["add"]
    second = json.loads(as_curl(record, 2, "http://127.0.0.1:8485").split("\n")[1])
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
    assert second["messages"][0]["content"] == "What is 1 + 2?"


def test_a_shell_runs_nothing_of_it(tmp_path: Path) -> None:
    record = TurnRecord(id="t", source="file", question=HOSTILE, model=HOSTILE, replies=turn_of(HOSTILE).replies)
    told = as_curl(record, 1, f"http://x/{HOSTILE}")
    script = f"curl() {{ printf '%s\\n' \"$@\" > args; cat > body; }}\n{told}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["args", "body"]
    assert json.loads((tmp_path / "body").read_text())["messages"][0]["content"] == HOSTILE
    assert shlex.split(told.split("<<")[0])[2].endswith("/v1/chat/completions")


async def test_a_case_of_the_harness_is_right_by_itself() -> None:
    record = await turn([block(call("add", a=1, b=2)), "It is 3."])
    case = _case_from_json(json.loads(as_bench_case(record, 1)), "here")
    assert judge_case(case, [("add", {"a": 1, "b": 2})]) == ""
    assert judge_case(case, [("add", {"a": 1, "b": 3})]) == "wrong_value"
    assert case.messages == ({"role": "user", "content": "What is 1 + 2?"},)
    plain = _case_from_json(json.loads(as_bench_case(record, 2)), "here")
    assert plain.expects == "no_call"
    assert case.tools[0].input_schema == Tool.from_function(add).input_schema


@pytest.mark.parametrize("copied", [as_corpus_case, as_bench_case, lambda turn, number: as_curl(turn, number, "http://x")])
def test_a_reply_that_is_not_there(copied: Any) -> None:
    with pytest.raises(UsageError, match="1 replies, got 2"):
        copied(turn_of("Hi."), 2)


def test_tools_that_are_none_are_left_out() -> None:
    record = TurnRecord(id="t", source="file", tools=({"name": 3}, {"nothing": 1}), replies=turn_of("Hi.").replies)
    assert "tools" not in json.loads(as_curl(record, 1, "http://x").split("\n")[1])
