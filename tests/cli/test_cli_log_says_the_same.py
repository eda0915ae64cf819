"""A conversation as Markdown, as JSON and as the records of its turns under way: names, arguments, outcomes, repairs, sources."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_harness import run_here
from turn_harness import turn_from_json

from xmlcall import LocalHost, Message, ToolLoop
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.cli.log import _source
from xmlcall.records.folder import store_path
from xmlcall.records.store import Store
from xmlcall.turn_records.builder import TurnBuilder
from xmlcall.turn_records.keeping import Keeper
from xmlcall.turn_records.record import CallRecord, SourceRecord, TurnRecord

HOSTILE = "\x1b[31m<script>alert(1)</script> ``` \u202e"


def look(city: str, days: int = 1) -> str:
    """Look up the weather."""
    return f"Sunny in {city} for {days} days. {HOSTILE}"


def fail() -> str:
    """Always fail."""
    raise ValueError("no luck")


def call(name: str, **arguments: Any) -> str:
    parameters = "".join(f'<parameter name="{key}">{value}</parameter>' for key, value in arguments.items())
    return f'<function_calls><invoke name="{name}">{parameters}</invoke></function_calls>'


REPLIES = [
    call("look", city="Oslo", days="+3"),
    call("Look", city=f"Rome {HOSTILE}"),
    call("look", town="Rome"),
    call("fail"),
    f"It is sunny. {HOSTILE}",
]


@pytest.fixture
async def had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TurnRecord:
    monkeypatch.setenv("XMLCALL_RECORDS", str(tmp_path / "records"))
    said = [Message(role="user", content=f"Weather in Oslo for 3 days? {HOSTILE}")]
    builder = TurnBuilder(id="t", source="chat", question=said[0].content, conversation=said)
    with Store(store_path()) as store:
        keeper = Keeper(store, None)
        loop = ToolLoop(ScriptedBackend(REPLIES, chunk_size=7), [LocalHost([look, fail])], policy=["*"])
        async with loop:
            catalog = await loop.catalog()
            builder.know(tools=catalog)
            keeper.asked(said, catalog, "scripted", {"mode": "xml", "family": "list", "reasoning_open": False})
            async for event in loop.run(said):
                builder.note(event)
                keeper.note(event)
    return builder.record()


def calls(turn: TurnRecord) -> list[CallRecord]:
    return [each for reply in turn.replies for each in reply.calls]


def facts(each: CallRecord) -> Any:
    sources = [(value.path, value.source.kind) for value in each.values if value.source and value.source.kind != "trivial"]
    return each.name, each.arguments, each.outcome, [mark.code for mark in each.repairs], sources


async def test_terminal_json_and_record_say_the_same(had: TurnRecord) -> None:
    id = json.loads(run_here("log", "list", "--json").stdout)[0]["id"]
    for action in ("show", "export"):
        [told] = json.loads(run_here("log", action, id, "--json").stdout)["turns"]
        kept = turn_from_json(told)
        assert list(map(facts, calls(kept))) == list(map(facts, calls(had)))
        assert [reply.raw for reply in kept.replies] == [reply.raw for reply in had.replies]
        assert (kept.outcome, kept.answer, kept.question) == (had.outcome, had.answer, had.question)
    assert [each.outcome for each in calls(had)] == ["ok", "ok", "rejected", "error"]
    shown = run_here("log", "export", id).stdout
    assert "\x1b" not in shown
    parts = re.split(r"\n(?=Call of `)", shown)[1:]
    assert len(parts) == len(calls(had))
    for each, part in zip(calls(had), parts, strict=True):
        name = f"{each.server}.{each.tool}" if each.server else each.name
        assert part.startswith(f"Call of `{name}`: {each.outcome}")
        for mark in (*each.repairs, *each.issues):
            assert f"`{mark.code}`" in part
        words = {"person": "said by the person", "invented": "nowhere in the conversation", "result": "from the result"}
        for value in each.values:
            if value.source and value.source.kind in words:
                assert f"- `{value.path}`: {words[value.source.kind]}" in part
        if each.arguments:
            fence = re.search(r"(`{3,})json\n(.*?)\n\1", part, re.DOTALL)
            assert fence is not None
            assert json.loads(fence[2]) == each.arguments


def test_what_may_be_a_translation_is_told_with_what_else_it_may_be() -> None:
    source = SourceRecord(kind="schema", may_be_translation=True)
    assert _source(source) == "may be a translation of what the person wrote; if not: in the tool's own description"
