"""BFCL's tasks of several turns: its own answers are right, with one left out or changed they are not, as BFCL says too."""

import asyncio
import itertools
import json
import random
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profiles import covering, is_deep

from xmlcall.backends.base import Backend
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench import bfcl as statehost
from xmlcall.bench import report, runner
from xmlcall.bench.bfcl import (
    BACKENDS,
    DISPUTED_MULTI_TURN,
    MULTI_TURN_CATEGORIES,
    MultiTurnCase,
    Reference,
    StateHost,
    bfcl_wheel,
    hosts_of,
    read_call,
    read_multi_turn,
    run_case,
)
from xmlcall.bench.funnel import rates
from xmlcall.bench.judge import Call
from xmlcall.bench.store import create_or_resume
from xmlcall.bench.subjects import model_subject, stand_in
from xmlcall.bench.suites import cases_of
from xmlcall.bench.ways import Settings, way_of
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import write
from xmlcall.errors import BackendUnavailable, ContextOverflow, ToolHostProtocolError, UsageError
from xmlcall.prompting.results import result_text
from xmlcall.tools.catalog import Catalog
from xmlcall.types.completion import Chunk, Usage

pytest.importorskip("mpmath", reason="BFCL's MathAPI needs mpmath: pip install 'xmlcall[bench]'")

MORE_TOOLS = "I have updated some more functions you can choose from. What about now?"
OFFICIAL = {
    None: "",
    "multi_turn:empty_turn_model_response": "no_call",
    "multi_turn:instance_state_mismatch": "state",
    "multi_turn:execution_response_mismatch": "response",
}
Turns = list[list[Call]]
Verdict = Callable[[MultiTurnCase, Turns, int], str]


@pytest.fixture(scope="module")
def wheel() -> Path:
    try:
        return bfcl_wheel()
    except BackendUnavailable as error:
        pytest.skip(f"BFCL's data cannot be fetched here: {error}")


@pytest.fixture(scope="module")
def cases(wheel: Path) -> list[MultiTurnCase]:
    return [case for category in MULTI_TURN_CATEGORIES for case in read_multi_turn(wheel, category)]


def sample(cases: Iterable[MultiTurnCase], each: int, seed: int = 20261121) -> list[MultiTurnCase]:
    """Tasks of all categories that can be solved, some of them in as many replies as a turn has calls."""
    randomly = random.Random(seed)
    fit = [case for case in cases if not case.disputed and max(map(len, case.truth)) <= 20]
    return [
        case
        for category in MULTI_TURN_CATEGORIES
        for case in randomly.sample([case for case in fit if case.category == category], each)
    ]


def expected(case: MultiTurnCase) -> Turns:
    reference = Reference(case)
    return [reference.calls(turn) for turn in range(len(case.turns))]


def run_all(hosts: Sequence[StateHost], calls: Iterable[Call]) -> list[str]:
    return [result_text(next(host for host in hosts if name in host).run(name, arguments)) for name, arguments in calls]


def judged(case: MultiTurnCase, turns: Turns) -> str:
    """The first error of a model that makes these calls."""
    hosts, reference = hosts_of(case), Reference(case)
    errors = (reference.judge(turn, hosts, run_all(hosts, calls)) for turn, calls in enumerate(turns))
    return next(filter(None, errors), "")


def blocks(case: MultiTurnCase, turns: Turns, together: bool) -> list[str]:
    """What a model writes: each turn's calls as text, in one reply or in one each, and a plain answer."""
    hosts = hosts_of(case)
    for host in hosts:
        host.release(name for names in case.withheld.values() for name in names)
    catalog = Catalog([tool for host in hosts for tool in asyncio.run(host.tools())])
    replies = []
    for calls in turns:
        groups = [calls] if together and calls else [[call] for call in calls]
        replies += [write(group, catalog, DIALECTS["function_calls"]) for group in groups]
        replies.append("That is done.")
    return replies


def play(case: MultiTurnCase, backend: Backend, **options: Any) -> dict[str, Any]:
    return asyncio.run(run_case(case, backend, **{"tool_tokens": 100_000, **options}))  # tools whole, so that prompts show them


def play_turns(case: MultiTurnCase, turns: Turns, together: bool = False) -> dict[str, Any]:
    return play(case, ScriptedBackend(blocks(case, turns, together)))


def changed(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case list():
            return value[:-1]
    return None


def mutated(turns: Turns, randomly: random.Random) -> Turns:
    """Calls left out, made twice, in another turn or order, or with another argument; now and then none of it."""
    turns = deepcopy(turns)
    for _ in range(randomly.choice([0, 1, 1, 2])):
        calls = randomly.choice(turns)
        if not calls:
            continue
        index = randomly.randrange(len(calls))
        name, arguments = calls[index]
        match randomly.choice(["out", "twice", "argument", "argument", "turn", "order", "all"]):
            case "out":
                del calls[index]
            case "twice":
                calls.insert(randomly.randrange(len(calls) + 1), calls[index])
            case "argument" if arguments:
                key = randomly.choice(list(arguments))
                calls[index] = name, {**arguments, key: changed(arguments[key])}
            case "turn":
                randomly.choice(turns).append(calls.pop(index))
            case "order":
                randomly.shuffle(calls)
            case "all":
                calls.clear()
    return turns


@pytest.fixture
def official(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Verdict]:
    """The verdict of BFCL's own checker; the number keeps its states apart."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path, [name for name in archive.namelist() if name.endswith(".py")])
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

    def verdict(case: MultiTurnCase, turns: Turns, number: int) -> str:
        steps = [[[f"{name}(**{arguments!r})"] for name, arguments in calls] for calls in turns]
        entry = {"id": case.id, "initial_config": case.initial_config, "involved_classes": list(case.classes)}
        truth = [list(calls) for calls in case.truth]
        return OFFICIAL[multi_turn_checker(steps, truth, entry, case.category, f"model{number}").get("error_type")]

    yield verdict
    for name in [name for name in sys.modules if name.startswith("bfcl_eval") and name not in known]:
        del sys.modules[name]


def test_the_data(cases: list[MultiTurnCase]) -> None:
    assert Counter(case.category for case in cases) == dict.fromkeys(MULTI_TURN_CATEGORIES, 200)
    assert len({case.id for case in cases}) == 800
    assert {case.id for case in cases if case.disputed} == DISPUTED_MULTI_TURN
    assert sum(len(case.turns) for case in cases) == 3336
    assert sum(len(calls) for case in cases for calls in case.truth) == 4625
    assert all(case.turns[turn][0]["content"] == MORE_TOOLS for case in cases for turn in case.withheld)
    assert all(bool(case.withheld) == (case.category == "multi_turn_miss_func") for case in cases)


@pytest.mark.sweep
def test_every_ground_truth_is_right(cases: list[MultiTurnCase]) -> None:
    cases = cases if is_deep() else cases[::8]
    began = time.monotonic()
    wrong = {case.id: error for case in cases if (error := judged(case, expected(case)))}
    print(f"{len(cases)} ground truths replayed in {time.monotonic() - began:.1f} s")
    assert wrong == {}


@pytest.mark.sweep
def test_the_judge_agrees_with_the_official_checker(cases: list[MultiTurnCase], official: Verdict) -> None:
    randomly = random.Random(20261121)
    seen: Counter[str] = Counter()
    each = 100 if is_deep() else 25
    for number, case in enumerate(sample(cases, each)):
        turns = mutated(expected(case), randomly)
        seen[error := judged(case, turns)] += 1
        assert error == official(case, turns, number), (case.id, turns)
    assert all(seen[error] > each / 5 for error in OFFICIAL.values())


@pytest.mark.sweep
def test_an_oracle_is_right(cases: list[MultiTurnCase]) -> None:
    for case in sample(cases, 3 if is_deep() else 1):
        turns = expected(case)
        report = play_turns(case, turns)
        assert (report["valid"], report["error"], report["failed_turn"], report["false_calls"]) == (True, "", None, []), case.id
        got = [[(call["name"], call["arguments"]) for call in turn["calls"]] for turn in report["turns"]]
        assert got == turns
        assert [reply for turn in report["turns"] for reply in turn["replies"]] == blocks(case, turns, together=False)
        replies = [[call["reply"] for call in turn["calls"]] for turn in report["turns"]]
        assert replies == [[*range(1, len(calls) + 1)] for calls in turns]
        assert {tool["name"] for tool in report["tools"]} == {name for calls in turns for name, _ in calls}
        assert [turn["said"] for turn in report["turns"]] == [[each["content"] for each in said] for said in case.turns]
        json.dumps(report)


def test_a_block_with_the_calls_of_a_turn_runs_up_to_the_first_that_waits(cases: list[MultiTurnCase]) -> None:
    played = [(expected(case), play_turns(case, expected(case), together=True)) for case in sample(cases, 3)]
    for turns, told in played:
        got = [[(call["name"], call["arguments"]) for call in turn["calls"]] for turn in told["turns"]]
        assert all(calls == wanted[: len(calls)] for calls, wanted in zip(got, turns, strict=False))
        assert {call["reply"] for turn in told["turns"] for call in turn["calls"]} == {1}
        assert told["valid"] == (got == turns)
    whole = sum(told["valid"] for _, told in played)
    assert len(played) / 2 < whole < len(played)


@pytest.mark.sweep
def test_an_oracle_that_leaves_out_a_call_is_wrong(cases: list[MultiTurnCase]) -> None:
    errors: Counter[str] = Counter()
    for case in sample(cases, 3 if is_deep() else 1):
        turns = expected(case)
        at = random.Random(case.id).choice([turn for turn, calls in enumerate(turns) if calls])
        report = play_turns(case, [*turns[:at], turns[at][:-1], *turns[at + 1 :]])
        errors[report["error"]] += 1
        assert not report["valid"], case.id
        assert report["failed_turn"] == at == len(report["turns"]) - 1
    assert errors.keys() <= {"no_call", "state", "response"}


def by_id(cases: list[MultiTurnCase], wanted: str) -> MultiTurnCase:
    return next(case for case in cases if case.id == wanted)


def test_withheld_tools_are_offered_in_their_turn(cases: list[MultiTurnCase]) -> None:
    case = by_id(cases, "multi_turn_miss_func_0")
    assert case.withheld == {3: ("sort",)}
    backend = ScriptedBackend(blocks(case, expected(case), together=True))
    assert play(case, backend)["valid"]
    offered = [
        ("sort the contents" in request.messages[0].content.lower(), len(request.messages)) for request in backend.requests
    ]
    lists = [seen for seen, _ in offered]
    assert lists == sorted(lists)  # not at first, and to the end from then on
    first = lists.index(True)
    said = backend.requests[first].messages[-1].content
    assert said.startswith(MORE_TOOLS)


def test_a_call_where_none_should_be_is_named(cases: list[MultiTurnCase]) -> None:
    case = by_id(cases, "multi_turn_miss_param_0")
    turns = expected(case)
    at = turns.index([])
    turns[at] = [("pwd", {})]
    report = play_turns(case, turns)
    assert (report["valid"], report["false_calls"]) == (True, [at])


def test_too_many_steps(cases: list[MultiTurnCase]) -> None:
    case = by_id(cases, "multi_turn_base_0")
    calls: list[Call] = [("ls", {"a": bool(number % 2)}) for number in range(21)]
    report = play_turns(case, [calls])
    assert (report["error"], report["failed_turn"], len(report["turns"][0]["calls"])) == ("too_many_steps", 0, 21)
    assert play_turns(case, [[*calls[:17], *turn] if number == 0 else turn for number, turn in enumerate(expected(case))])[
        "valid"
    ]


def test_a_prompt_too_long_is_an_error_of_the_task(cases: list[MultiTurnCase]) -> None:
    case = by_id(cases, "multi_turn_base_0")
    first = [*blocks(case, expected(case)[:1], together=True)]
    report = play(case, ScriptedBackend([*first, *[ContextOverflow("too long", status_code=400)] * 4]))
    assert (report["valid"], report["error"], report["failed_turn"]) == (False, "context_overflow", 1)
    with pytest.raises(BackendUnavailable):
        play(case, ScriptedBackend([BackendUnavailable("gone")]))


def test_a_turn_that_ends_in_results_goes_on_in_one_message(cases: list[MultiTurnCase]) -> None:
    case = by_id(cases, "multi_turn_base_0")
    turns = expected(case)
    good = blocks(case, turns[:1], together=True)[:1]
    impossible = '<function_calls>\n<invoke name="nothing">\n</invoke>\n</function_calls>'
    backend = ScriptedBackend([*good, *[impossible] * 4, *blocks(case, turns[1:], together=True)])
    report = play(case, backend)
    assert report["valid"]
    assert report["turns"][0]["stop_reason"] == "invalid_calls"
    assert report["turns"][0]["calls"][-1]["issues"][0]["code"] == "unknown-tool"
    for request in backend.requests:
        roles = [message.role for message in request.messages]
        assert all(one != other for one, other in itertools.pairwise(roles)), roles


def test_usage_is_added_up(cases: list[MultiTurnCase]) -> None:
    case = by_id(cases, "multi_turn_base_3")
    usage = Usage(prompt_tokens=10, completion_tokens=2)
    replies: list[list[str | Chunk | Exception]] = [
        [text, Chunk(finish_reason="stop", usage=usage)] for text in blocks(case, expected(case), together=True)
    ]
    assert play(case, ScriptedBackend(replies))["usage"] == {
        "prompt_tokens": 10 * len(replies),
        "completion_tokens": 2 * len(replies),
        "cached_tokens": None,
        "is_estimated": False,
    }


def test_each_backend_offers_its_tools(wheel: Path) -> None:
    counts = {name: len(asyncio.run(StateHost(name).tools())) for name in BACKENDS}
    assert counts == {
        "GorillaFileSystem": 18,
        "MathAPI": 17,
        "MessageAPI": 10,
        "TicketAPI": 9,
        "TradingBot": 20,
        "TravelAPI": 18,
        "TwitterAPI": 14,
        "VehicleControlAPI": 22,
    }


async def test_a_host(wheel: Path) -> None:
    host = StateHost("MathAPI", withheld=["add", "ls"])
    assert "add" not in {tool.name for tool in await host.tools()}
    with pytest.raises(ToolHostProtocolError):
        await host.call("add", {"a": 1, "b": 2})
    with pytest.raises(ToolHostProtocolError):
        await host.call("__init__", {})
    assert not host.release(["ls"])
    assert not host.changed.is_set()
    assert host.release(["add"])
    assert host.changed.is_set()
    assert "add" in {tool.name for tool in await host.tools()}
    assert not host.changed.is_set()
    assert result_text(await host.call("add", {"a": 1, "b": 2})) == '{"result": 3}'
    assert result_text(await host.call("logarithm", {"value": 100, "base": 10, "precision": 5})) == "{'result': mpf('2.0')}"
    failed = await host.call("add", {"a": 1})
    assert failed.is_error
    assert result_text(failed).startswith("Error during execution: ")


def test_hosts_share_nothing(wheel: Path) -> None:
    one, other = StateHost("TravelAPI", long_context=True), StateHost("TravelAPI", long_context=True)
    assert one.state == other.state
    cards = one.state["credit_card_list"]
    cards[next(iter(cards))]["balance"] = -1
    assert one.state != other.state
    assert other.state == StateHost("TravelAPI", long_context=True).state


def test_a_host_keeps_its_own_copy_of_arguments(wheel: Path) -> None:
    host = StateHost("TwitterAPI", {"username": "ann", "authenticated": True})
    tags = ["#a"]
    host.run("post_tweet", {"content": "hello", "tags": tags})
    before = deepcopy(host.state)
    tags.append("#b")
    assert host.state == before


def test_loading_leaves_no_module_behind(wheel: Path) -> None:
    known = {name: module for name, module in sys.modules.items() if name.startswith("bfcl_eval")}
    statehost._class.__wrapped__("GorillaFileSystem")
    assert {name: module for name, module in sys.modules.items() if name.startswith("bfcl_eval")} == known


def test_what_is_missing_is_said(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="expected one of GorillaFileSystem"):
        StateHost("WebSearchAPI")
    monkeypatch.setitem(sys.modules, "mpmath", None)
    with pytest.raises(UsageError, match=r"needs mpmath: install it with: .*\[bench\]"):
        statehost._class.__wrapped__("MathAPI")


def test_unpacking_is_whole_or_not_at_all(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMLCALL_BENCH", str(tmp_path))
    (tmp_path / wheel.name).write_bytes(wheel.read_bytes())
    target = statehost._unpacked()
    assert statehost._unpacked() == target
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([wheel.name, target.name])
    files = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert all("func_source_code/" in file or "multi_turn_func_doc/" in file for file in files)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("ls()", ("ls", [], {})),
        ("sort('a.txt')", ("sort", ["a.txt"], {})),
        ("mean(numbers=[1, -2.5])", ("mean", [], {"numbers": [1, -2.5]})),
    ],
)
def test_calls_are_read(text: str, call: tuple[str, list[Any], dict[str, Any]]) -> None:
    assert read_call(text) == call


@pytest.mark.parametrize("text", ["", "ls", "ls(", "os.remove('a')", "f(g(1))", "f(**{'a': 1})", "f(x)", "f(__import__('os'))"])
def test_what_is_no_plain_call_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a call"):
        read_call(text)


def test_a_copy_of_a_task_can_be_changed(cases: list[MultiTurnCase]) -> None:
    case = replace(by_id(cases, "multi_turn_base_0"), truth=((), (), (), ()))
    assert play(case, ScriptedBackend(["No."] * 4))["valid"]


@pytest.mark.usefixtures("wheel")
async def test_a_task_is_a_case_of_a_run(tmp_path: Path) -> None:
    """Played by the runner, judged at once, and counted as a task, not as a call."""
    cases = cases_of("bfcl-mt", limit=1)
    about = {"ways": ["xml"], "settings": Settings().to_json(), "model": "m"}
    run = create_or_resume(tmp_path / "run", about, cases)
    subject = model_subject(ScriptedBackend(["I cannot."] * 30))
    assert await runner.execute(run, [way_of("xml")], subject) == 0
    (verdict,) = (await report.judged(run))["xml"]
    assert (verdict.failure, verdict.reached) == ("no_call", frozenset({"completed"}))
    assert rates([verdict])["task_correct"] == (0, 1)
    assert rates([verdict])["call_correct"] == (0, 0)


STAND_INS = [
    ("oracle", "xml", 10),
    ("oracle", "native", 10),
    ("oracle", "native+read", 10),
    ("garbage", "xml", 0),
    ("mutator", "xml", 4),
]


@pytest.mark.sweep
@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize(("stand_in_of", "feedback"), covering(STAND_INS, [0, 1]))
async def test_the_stand_ins_play_tasks(tmp_path: Path, stand_in_of: tuple[str, str, int], feedback: int) -> None:
    """Two of the five mutations are of no harm."""
    name, way, right = stand_in_of
    cases = [case for case in cases_of("bfcl-mt", limit=20) if not case.disputed][:10]
    about = {"ways": [way], "settings": Settings(feedback=feedback).to_json(), "model": name}
    run = create_or_resume(tmp_path / "run", about, cases)
    assert await runner.execute(run, [way_of(way)], stand_in(name, cases)) == 0
    assert rates((await report.judged(run))[way])["task_correct"] == (right, 10)
    for row in run.replies:
        played = [turn for turn in row["outcome"]["turns"] if turn["calls"]]
        assert all(call["name"] in "".join(turn["replies"]) for turn in played for call in turn["calls"]), "raw replies are kept"
