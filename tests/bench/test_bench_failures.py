"""Why a reply is not right: each cause by a reply of its own, and that causes and the judge never disagree."""

import asyncio
import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bfcl_mutations import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples, is_deep

from xmlcall import ToolCall
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench import runner
from xmlcall.bench.bfcl import bfcl_wheel
from xmlcall.bench.case import Case, judge_case
from xmlcall.bench.failures import CAUSES, causes_of, counted, unsaid
from xmlcall.bench.funnel import Verdict
from xmlcall.bench.report import causes_table_of, judged, reported
from xmlcall.bench.store import create_or_resume
from xmlcall.bench.subjects import model_subject
from xmlcall.bench.ways import Settings, way_of
from xmlcall.errors import BackendUnavailable
from xmlcall.types.calls import RawCall, Reply, Tool

FLIGHT = Tool(
    name="book_flight",
    description="Book a flight.",
    input_schema={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "people": {"type": "integer"},
            "seat": {"type": "string", "enum": ["window", "aisle"]},
            "meal": {"type": "string"},
            "currency": {"type": "string", "default": "EUR"},
        },
        "required": ["city", "people"],
    },
)
HOTEL = Tool(name="book_hotel", input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
QUESTION = "Book a flight to Oslo for two people, at a window. And one to Rome for 3."
OSLO = {"book_flight": {"city": ["Oslo"], "people": [2], "seat": ["window"], "currency": ["", "EUR"]}}
ROME = {"book_flight": {"city": ["Rome", "Roma"], "people": [3], "seat": ["", "aisle"]}}
RIGHT = '<invoke name="book_flight"><parameter name="city">Oslo</parameter><parameter name="people">2</parameter>{}</invoke>'
WINDOW = '<parameter name="seat">window</parameter>'
TO_ROME = RIGHT.format("").replace("Oslo", "Roma").replace(">2<", ">3<")


def case(*answers: Any, **more: Any) -> Case:
    category = "parallel" if len(answers) > 1 else "simple"
    message = {"role": "user", "content": QUESTION}
    return Case(id="c", category=category, messages=(message,), tools=(FLIGHT, HOTEL), answers=answers, **more)


def flight(more: str = WINDOW) -> str:
    return RIGHT.format(more)


def verdict_on(folder: Path, asked: Case, text: str) -> Verdict:
    options = {"settings": Settings().to_json()}
    run = create_or_resume(folder / "run", {"ways": ["xml"], **options, "model": "m", "suite": "s"}, [asked])
    backend = ScriptedBackend([f"<function_calls>{text}</function_calls>" if text.startswith("<invoke") else text])
    assert asyncio.run(runner.execute(run, [way_of("xml")], model_subject(backend))) == 0
    return asyncio.run(judged(run))["xml"][0]


ONE, BOTH, NONE = case(OSLO), case(OSLO, ROME), case(expects="no_call")
ANY = case(expects="any_call")

# The case, the reply, its causes with the main one first.
REPLIES = [
    (ONE, flight(), ""),
    (ONE, flight(""), "omitted_optional"),
    (ONE, flight(WINDOW.replace("window", "aisle")), "wrong_value"),
    (ONE, flight().replace("Oslo", "Bergen"), "invented_value wrong_value"),
    (ONE, flight("").replace("Oslo", "Bergen"), "invented_value wrong_value omitted_optional"),
    (ONE, flight("").replace("Oslo", "Rome"), "wrong_value omitted_optional"),
    (ONE, flight(f'{WINDOW}<parameter name="meal">two</parameter>'), "extra_param"),
    (ONE, flight(f'{WINDOW}<parameter name="meal">fish</parameter>'), "extra_param invented_value"),
    (ONE, flight(f'{WINDOW}<parameter name="currency">EUR</parameter>'), ""),
    (ONE, '<invoke name="book_hotel"><parameter name="city">Oslo</parameter></invoke>', "wrong_tool"),
    (ONE, '<invoke name="book_train"><parameter name="city">Oslo</parameter></invoke>', "wrong_tool"),
    (ONE, flight().replace('<parameter name="people">2</parameter>', ""), "omitted_required"),
    (ONE, flight().replace(">2<", ">many<"), "invalid"),
    (ONE, flight(f'{WINDOW}<parameter name="colour">red</parameter>'), "extra_param"),
    (ONE, flight() * 2, "too_many"),
    (ONE, flight() + TO_ROME, "too_many invented_value"),  # Roma
    (ONE, TO_ROME + flight(), "too_many invented_value"),  # whichever comes first
    (BOTH, TO_ROME + flight(), ""),
    (BOTH, flight(), "too_few"),
    (BOTH, TO_ROME + flight(""), "omitted_optional"),
    (BOTH, TO_ROME.replace(">3<", ">9<") + flight(""), "invented_value wrong_value omitted_optional"),
    (BOTH, flight(WINDOW) * 2, "wrong_value"),
    (BOTH, flight() + '<invoke name="book_hotel"><parameter name="city">Rome</parameter></invoke>', "wrong_tool"),
    (BOTH, flight() + TO_ROME + flight(""), "too_many"),
    (ONE, "Which seat would you like?", "none"),
    (ONE, "", "none"),
    (ONE, 'book_flight(city="Oslo", people=2)', "unreadable"),
    (ONE, '<invoke name="book_flight"><parameter name="city">Os', "unreadable"),
    (NONE, "Hello.", ""),
    (NONE, flight(), "false_call"),
    (NONE, flight().replace("Oslo", "Bergen"), "false_call invented_value"),
    (NONE, 'book_flight(city="Oslo")', "unreadable"),
    (NONE, "", "wrong_outcome"),
    (ANY, flight(), ""),
    (ANY, flight().replace(">2<", ">many<"), "invalid"),
    (ANY, "Hello.", "none"),
]


@pytest.mark.parametrize(("asked", "text", "causes"), REPLIES)
def test_causes_of_replies(tmp_path: Path, asked: Case, text: str, causes: str) -> None:
    assert causes_of(verdict_on(tmp_path, asked, text)) == tuple(causes.split())


EXACT = replace(ONE, answers=(), exact=(("book_hotel", {"city": "Oslo"}), ("book_hotel", {"city": "Rome"})))
HOTELS = [f'<invoke name="book_hotel"><parameter name="city">{city}</parameter></invoke>' for city in ("Oslo", "Rome")]


@pytest.mark.parametrize(
    ("text", "causes"),
    [
        ("".join(HOTELS), ""),
        ("".join(reversed(HOTELS)), "wrong_value"),  # where values are exact, so is their order
        (HOTELS[1], "too_few"),
        ("".join(HOTELS).replace("Rome", "rome."), "wrong_value"),
    ],
)
def test_causes_where_values_are_exact(tmp_path: Path, text: str, causes: str) -> None:
    assert causes_of(verdict_on(tmp_path, EXACT, text)) == tuple(causes.split())


def test_a_cut_reply_is_cut_whatever_it_holds(tmp_path: Path) -> None:
    found = verdict_on(tmp_path, ONE, flight(""))
    assert causes_of(replace(found, failure="truncated")) == ("cut", "omitted_optional")
    assert causes_of(replace(found, failure="truncated", reply=Reply())) == ("cut",)


def test_thousands_of_calls_are_too_many_and_cost_little(tmp_path: Path) -> None:
    found = verdict_on(tmp_path, ONE, flight())
    many = tuple(replace(call, id=f"call_{number}") for number in range(5000) for call in found.reply.calls)
    assert causes_of(replace(found, failure="wrong_count", reply=Reply(calls=many))) == ("too_many",)


# -- beside the judge --------------------------------------------------------------------------------------------------


def judged_calls(asked: Case, calls: Any) -> Verdict:
    """The verdict on calls that fit their schemas, or at least are taken as if."""
    made = tuple(
        ToolCall(id=f"call_{number}", name=name, arguments=dict(arguments), raw=RawCall(index=number, name=name))
        for number, (name, arguments) in enumerate(calls)
    )
    failure = judge_case(asked, calls)
    return Verdict(
        case=asked,
        reached=frozenset(),
        counted=frozenset(),
        failure=failure if made or not failure else "prose_only",
        repairs=(),
        reply=Reply(calls=made),
        row={"rounds": [{}]},
    )


@pytest.mark.sweep
def test_every_wrong_call_has_a_cause_and_the_pairs_agree_with_the_judge() -> None:
    """BFCL's right calls and mutations of them. What the judge takes for right has no mistake in any pair."""
    try:
        wheel = bfcl_wheel()
    except BackendUnavailable as error:
        pytest.skip(f"BFCL's data cannot be fetched here: {error}")
    seen: set[str] = set()
    for calls, asked, _ in itertools.islice(drawn(wheel, each=1), 0, None, 1 if is_deep() else 13):
        found = judged_calls(asked, calls)
        causes = causes_of(found)
        assert bool(causes) == bool(found.failure), (asked.id, calls)
        seen.update(causes)
        as_if_wrong = causes_of(replace(found, failure="unknown"))
        assert as_if_wrong == (causes or ("wrong_value",)), (asked.id, calls)
    assert seen >= {"too_many", "too_few", "wrong_tool", "omitted_required", "extra_param", "wrong_value", "omitted_optional"}


CITY, PEOPLE, SEAT = st.sampled_from(["Oslo", "Rome", "Lima"]), st.integers(0, 4), st.sampled_from(["window", "aisle"])
ARGUMENTS = st.fixed_dictionaries({"city": CITY, "people": PEOPLE}, optional={"seat": SEAT, "meal": CITY})
CALLS = st.lists(
    st.tuples(st.just("book_flight"), ARGUMENTS) | st.tuples(st.just("book_hotel"), st.fixed_dictionaries({"city": CITY}))
)


@settings(deadline=None, max_examples=examples(200))
@given(CALLS, st.randoms(use_true_random=False))
def test_the_order_of_parallel_calls_changes_no_cause(calls: list[Any], randomly: random.Random) -> None:
    found = causes_of(judged_calls(BOTH, calls))
    assert bool(found) == bool(judge_case(BOTH, calls))
    assert list(found) == sorted(found, key=list(CAUSES).index)
    assert ("too_many" in found, "too_few" in found) == (len(calls) > 2, 0 < len(calls) < 2)
    shuffled = [*calls]
    randomly.shuffle(shuffled)
    if not {"wrong_value", "wrong_tool"} & {*found}:  # pairs that cost the same may be one or the other
        assert causes_of(judged_calls(BOTH, shuffled)) == found


# -- several turns -----------------------------------------------------------------------------------------------------


def turn(*calls: dict[str, Any], replies: tuple[str, ...] = ("...",), **more: Any) -> dict[str, Any]:
    return {"replies": list(replies), "calls": list(calls), "answer": "", "stop_reason": "end", **more}


def ran(city: str, *, reply: int | None = 1, result: str = "done", is_error: bool = False) -> dict[str, Any]:
    told = {"name": "book_hotel", "arguments": {"city": city}, "result": result, "is_error": is_error}
    return told if reply is None else {**told, "reply": reply}


REJECTED = {"name": "book_hotel", "issues": [{"code": "missing-argument", "path": "$", "message": "..."}]}
LEAKED = '{"name": "book_hotel", "arguments": {"city": "Oslo"}}'
TURNS = [
    ("", turn(ran("Oslo")), ""),
    ("wrong_answer", turn(ran("Oslo")), "wrong_outcome"),
    ("no_call", turn(), "none"),
    ("no_call", turn(replies=(LEAKED,)), "unreadable"),
    ("false_call", turn(ran("Oslo")), "false_call"),
    ("wrong_tool", turn(ran("Oslo", is_error=True)), "wrong_tool"),
    ("wrong_tool", turn(ran("Bergen", is_error=True)), "wrong_tool invented_value"),
    ("failed_call", turn(ran("Oslo", is_error=True)), "wrong_value"),
    ("failed_call", turn(REJECTED), "omitted_required"),
    ("failed_call", turn(), "too_few"),
    ("cut", turn(), "cut"),
    ("too_many_steps", turn(ran("Oslo")), "too_many"),
    ("state", turn(ran("Oslo"), ran("Bergen")), "dependent_batched wrong_outcome"),
    ("state", turn(ran("Oslo"), ran("Rome")), "wrong_outcome"),
    ("state", turn(ran("Oslo", result="then Bergen"), ran("Bergen", reply=2)), "wrong_outcome"),
    ("state", turn(ran("Oslo", result="then Bergen"), ran("Bergen")), "dependent_batched wrong_outcome"),
    ("state", turn(ran("Oslo", reply=None), ran("Bergen", reply=None)), "wrong_outcome"),  # an older run does not tell
    ("state", turn(ran("Oslo"), ran("Kyoto")), "wrong_outcome"),  # said in the turn before
]


@pytest.mark.parametrize(("failure", "played", "causes"), TURNS)
def test_causes_of_turns(failure: str, played: dict[str, Any], causes: str) -> None:
    before = turn(ran("Rome", result="Kyoto is full"))
    asked = replace(ONE, expects="talk", turns=({"say": QUESTION, "tools": ["book_hotel|book_flight"]},))
    tools = [{"name": "book_hotel", "description": "", "input_schema": HOTEL.input_schema}]
    row = {"rounds": [{}], "outcome": {"turns": [played], "before": [before], "tools": tools}}
    found = Verdict(case=asked, reached=frozenset(), counted=frozenset(), failure=failure, repairs=(), reply=Reply(), row=row)
    assert causes_of(found) == tuple(causes.split())


# -- what was said -----------------------------------------------------------------------------------------------------


def test_what_nobody_said_is_found_by_provenance() -> None:
    assert unsaid({"a": ["Oslo", {"b": 2}], "c": "Bergen", "d": True}, None, ["to OSLO", "two of them"]) == {"c"}
    assert unsaid({"seat": "aisle", "currency": "EUR"}, FLIGHT, []) == frozenset()
    assert unsaid({"meal": "aisle"}, FLIGHT, []) == {"meal"}


# -- counts ------------------------------------------------------------------------------------------------------------


def test_counts_and_their_table(tmp_path: Path) -> None:
    texts = [flight(), flight(""), flight("").replace("Oslo", "Rome"), "No."]
    verdicts = [verdict_on(tmp_path / str(number), ONE, text) for number, text in enumerate(texts)]
    counts = {"none": {"main": 1, "any": 1}, "wrong_value": {"main": 1, "any": 1}, "omitted_optional": {"main": 1, "any": 2}}
    assert counted(verdicts) == counts
    assert list(counted(verdicts)) == [cause for cause in CAUSES if cause in counts]
    header, rows = causes_table_of({"ways": {"xml": {"causes": counts}, "native": {"causes": {}}}})
    assert header == ["main cause (any)", "xml", "native"]
    assert rows == [["none", "1 (1)", "-"], ["wrong_value", "1 (1)", "-"], ["omitted_optional", "1 (2)", "-"]]


@pytest.mark.sweep
def test_main_causes_are_as_many_as_wrong_replies() -> None:
    """Of a recorded run, with all that models do."""
    from xmlcall.bench.store import read_run

    run = read_run(Path(__file__).parents[2] / "benchmarks" / "results" / "runs" / "bfcl-core-1.5b")
    run.replies = run.replies if is_deep() else run.replies[::7]
    verdicts = asyncio.run(judged(run))
    for way, told in reported(run, verdicts)["ways"].items():
        wrong = sum(not verdict.is_right for verdict in verdicts[way])
        assert sum(counts["main"] for counts in told["causes"].values()) == wrong
        assert all(counts["main"] <= counts["any"] for counts in told["causes"].values())
