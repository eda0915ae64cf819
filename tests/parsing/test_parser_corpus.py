"""Each case of the corpus, whole and cut in every way."""

from collections.abc import Iterable
from typing import Any

import pytest
from cases import TOOLS, cuts, load
from soup import check_places, check_tiles

from xmlcall import InvalidCall, Markup, Parser, Reply, ToolCall, coalesce, parse
from xmlcall.errors import ISSUES, REPAIRS
from xmlcall.types.events import Event

CASES = [pytest.param(case, id=name) for name, case in load("*/*.toml")]


def events_of(chunks: Iterable[str], case: dict[str, Any]) -> list[Event]:
    parser = Parser(TOOLS.get(case.get("tools", ""), ()), reasoning_open=case.get("reasoning_open", False))
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return coalesce([*events, *parser.close(case.get("finish_reason", "stop"))])


def reply_to(case: dict[str, Any]) -> Reply:
    tools = TOOLS.get(case.get("tools", ""), ())
    return parse(
        case["input"], tools, finish_reason=case.get("finish_reason", "stop"), reasoning_open=case.get("reasoning_open", False)
    )


def written(call: ToolCall | InvalidCall) -> dict[str, Any]:
    if isinstance(call, InvalidCall):
        return {"name": call.name, "issues": [issue.code for issue in call.issues]}
    return {"name": call.name, "arguments": [[argument.name, argument.text] for argument in call.raw.arguments]}


@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any]) -> None:
    reply = reply_to(case)
    assert [written(call) for call in reply.calls] == case.get("calls", [])
    assert reply.text == case["text"]
    assert reply.reasoning == case.get("reasoning", "")
    assert [repair.code for repair in reply.repairs] == case.get("repairs", [])
    assert {call.raw.dialect for call in reply.calls} <= {case.get("dialect", "function_calls")}
    assert {repair.code for repair in reply.repairs} <= REPAIRS.keys()
    assert {issue.code for call in reply.calls if isinstance(call, InvalidCall) for issue in call.issues} <= ISSUES.keys()
    events = events_of([case["input"]], case)
    check_tiles(events, case["input"])
    check_places(reply, case["input"])
    assert all(case["input"][slice(*event.span)] for event in events if isinstance(event, Markup))


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES)
def test_the_cut_does_not_matter(case: dict[str, Any]) -> None:
    whole = events_of([case["input"]], case)
    for chunks in cuts(case["input"]):
        assert events_of(chunks, case) == whole, chunks
