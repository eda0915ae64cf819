"""The probe: what it chooses of planted models, what it keeps, and its questions."""

import asyncio
import functools
import hashlib
import math
import re
import tempfile
import tomllib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from profiles import is_deep

from xmlcall import Reply, UsageError, bind, render
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.bench import own_suites
from xmlcall.bench.case import Case, judge_case, messages_of
from xmlcall.bench.funnel import Verdict
from xmlcall.bench.own_suites import WITHOUT_CALL, probe_cases
from xmlcall.bench.probe import (
    CLEAR,
    RUNG,
    Finding,
    Native,
    Pairs,
    Probe,
    candidates,
    found_json,
    in_lanes,
    in_words,
    incumbent,
    kept,
    looks,
    most_replies,
    native_words,
    pairs,
    sentences,
    settled,
    table_of_probe,
)
from xmlcall.bench.store import RunError, read_run
from xmlcall.bench.subjects import calling, oracle_calls
from xmlcall.bench.ways import AskedCase, Settings, Way, asked_by, asking_of, catalog_of, way_of
from xmlcall.errors import BackendStatusError, BackendUnavailable
from xmlcall.parsing.parser import parse
from xmlcall.profiles.profile import Profile, named, shipped
from xmlcall.prompting.writer import in_text
from xmlcall.turn.tool_need import NEEDS_NONE
from xmlcall.types.calls import Tool, ToolCall
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest

CASES = probe_cases()
WORDS = Chunk(text="In plain words: it depends.")
SHIPPED = incumbent(Profile(model="m", fingerprints=("model:1",), family="every"))


def question_of(case: Case) -> str:
    """Return what was asked last, which no other case asks."""
    return str([message["content"] for message in case.messages if message["role"] == "user"][-1])


BY_QUESTION = sorted(((question_of(case), case) for case in CASES), key=lambda each: -len(each[0]))


def asked_for(request: CompletionRequest) -> tuple[Case, Way]:
    """Return what a conversation of a probe asks."""
    text = "\n".join(message.content for message in request.messages if message.role == "user")
    case = next(case for question, case in BY_QUESTION if question in text)
    if request.tools:
        return case, way_of("native+read")
    return case, way_of("hermes" if "<tool_call>" in request.messages[0].content else "xml")


NEEDS_NO_TOOL = {*NEEDS_NONE, *(case.messages[-1]["content"] for case in CASES if case.expects == "no_call")}


class Planted(ScriptedBackend):
    """A model that answers a share of the cases rightly, which depends on the way it is asked in.

    Args:
        rates: way -> of 100 cases, how many.
        leaks: whether calls of its own function calling are left in the text.
        fails: told of each request; may raise.
        tells: whether the server tells the probabilities of tokens, which are the right ones.
    """

    def __init__(
        self,
        rates: dict[str, int],
        *,
        capabilities: Capabilities | None = None,
        leaks: bool = False,
        fails: Callable[[CompletionRequest], None] = lambda request: None,
        tells: bool = False,
    ) -> None:
        super().__init__([], capabilities=capabilities or Capabilities(server="scripted", fingerprints=("model:1",)))
        self._rates, self._leaks, self._fails, self._tells = rates, leaks, fails, tells
        self.asked: list[str] = []

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        await asyncio.sleep(0)
        if request.top_logprobs:
            share = 0.02 if request.messages[-1].content in NEEDS_NO_TOOL else 0.9
            told = (("<", math.log(share)), ("I", math.log(1 - share))) if self._tells else ()
            yield Chunk(text="I", finish_reason="length", top_logprobs=told)
            return
        self._fails(request)
        case, way = asked_for(request)
        self.asked.append(f"{case.id} {way.name}")
        for chunk in self._reply(case, way):
            yield chunk
        yield Chunk(finish_reason="stop")

    def _reply(self, case: Case, way: Way) -> list[Chunk]:
        place = int(hashlib.sha256(case.id.encode()).hexdigest(), 16) % 100
        is_right = place < self._rates.get(way.name, self._rates[""])
        if (case.expects == "no_call") is is_right:
            return [WORDS]
        calls = oracle_calls(case) or [(case.tools[0].name, {})]
        if way.is_native and not self._leaks:
            return calling(calls, catalog_of(case), way)
        return calling(calls, catalog_of(case), way_of("hermes") if way.is_native else way)


async def found(backend: Planted, folder: Path, cases: Sequence[Case] = CASES, **options: Any) -> Finding:
    async with backend:
        return await Probe(backend, cases, folder, **options).run()


@functools.cache
def played(*rates: tuple[str, int]) -> tuple[Finding, Sequence[str]]:
    """Play a probe to its end, which several tests look at: what was found, and what was asked."""
    backend = Planted(dict(rates))
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(found(backend, Path(folder), PLAYED)), backend.asked


PLAYED = CASES if is_deep() else CASES[: 6 * RUNG]
BETTER = (("", 40), ("hermes", 80))
AS_GOOD = (("", 60), ("hermes", 63))


@pytest.mark.parametrize("profile", candidates(None), ids=lambda profile: profile.words)
def test_a_planted_model_knows_what_it_is_asked(profile: Profile) -> None:
    """It is asked as the way and its settings say."""
    way, settings = asked_by(profile, Settings())
    for case in CASES[:RUNG]:
        tools = tuple(case.tools) if way.is_native else ()
        for needs_tool in (True, False):
            messages = AskedCase(way, case, settings).conversation(needs_tool=needs_tool)
            assert asked_for(CompletionRequest(messages=messages, tools=tools)) == (case, way)


# -- what is chosen ----------------------------------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        (BETTER, "hermes, list, threshold auto"),
        pytest.param((("", 30), ("native+read", 90)), "native", marks=pytest.mark.full),
        (AS_GOOD, "xml, list, threshold auto"),
        pytest.param((("", 60),), "xml, list, threshold auto", marks=pytest.mark.full),
        pytest.param((("", 20), ("xml", 70)), "xml, list, threshold auto", marks=pytest.mark.full),
        pytest.param((("", 0),), "xml, list, threshold auto", marks=pytest.mark.full),
    ],
)
def test_the_best_is_chosen_if_it_is_better_by_more_than_chance(rates: tuple[tuple[str, int], ...], chosen: str) -> None:
    finding, _ = played(*rates)
    assert finding.chosen.profile.words == chosen
    assert finding.won == (chosen != "xml, list, threshold auto")
    assert all(len(each.verdicts) >= RUNG for each in finding.outcomes)
    assert len(finding.outcomes[0].verdicts) >= max(len(each.verdicts) for each in finding.outcomes)
    text = sentences(finding)[0]
    assert ("no other way is better" in text) == (not finding.won and finding.calls_rightly)
    assert ("no way gave a right call" in text) == (not finding.calls_rightly)
    header, rows = table_of_probe(finding)
    assert "(chosen)" in rows[0][0]
    assert all(re.fullmatch(r"(\d+ of \d+ right|-)", cell) for row in rows for cell in row[1:3])
    assert all(re.fullmatch(r"(\+\d+, -\d+ of \d+|-|)", cell) for row in rows for cell in row[3:])
    assert all(len(row) == len(header) for row in rows)
    told = found_json(finding, finding.profile("m", ["model:1"], CASES))
    assert told["chosen"] == chosen
    assert told["profile"]["measured"]["figures"][0]["way"] == chosen


async def test_what_ships_for_a_model_is_what_others_have_to_beat(tmp_path: Path) -> None:
    finding = await found(Planted({"": 60}), tmp_path, CASES[:4], default=SHIPPED)
    assert finding.chosen.profile.words == "xml, every, threshold auto"
    others = {each.profile.words for each in finding.outcomes[1:]}
    assert {"xml, list, threshold auto", "hermes, every, threshold auto", "xml, every, threshold off", "native"} <= others


def test_the_settings_of_a_model_without_a_profile_are_those_of_the_package() -> None:
    default = candidates(None)[0]
    assert incumbent(None) == incumbent(Profile(model="m", way="native")) == default
    assert shipped(("model:1",)) is None
    assert shipped(("gguf:e5ae5e24d06e6bda",)) == named("qwen2.5-coder-0.5b").profile


def test_ways_are_named_by_what_they_change() -> None:
    default, *others = candidates(None)
    words = {in_words(each, default) for each in others} | {in_words(replace(default, call_threshold=-2.5), default)}
    assert in_words(default, default) == "the default"
    assert words == {
        "asking for all parameters",
        "parameters as JSON Schema",
        "calls in the format hermes",
        "no threshold",
        "a threshold of -2.5",
        "the server's own function calling, calls in its text read",
    }
    assert in_words(default, SHIPPED) == "parameters in words"


@pytest.mark.sweep
@pytest.mark.parametrize("rates", [BETTER, AS_GOOD])
def test_no_case_of_the_test_had_a_part_in_the_choice(rates: tuple[tuple[str, int], ...]) -> None:
    finding, _ = played(*rates)
    dropped = [each for each in finding.outcomes if each not in (finding.best, finding.outcomes[0])]
    judged = {case for each in dropped for case in each.verdicts}
    asked_both = finding.best.verdicts.keys() & finding.outcomes[0].verdicts.keys()
    assert finding.test.total == len(asked_both - judged)


@pytest.mark.sweep
@pytest.mark.parametrize("rates", [BETTER, AS_GOOD])
def test_it_never_asks_more_than_it_says(rates: tuple[tuple[str, int], ...]) -> None:
    finding, asked = played(*rates)
    assert len(asked) == finding.replies <= most_replies(len(candidates(None)), len(PLAYED))


@pytest.mark.sweep
def test_nothing_joins_where_nothing_was_found() -> None:
    """A server that tells no probabilities has no threshold to calibrate, and one setting that gains is there already."""
    finding, _ = played(*BETTER)
    assert {each.profile.words for each in finding.outcomes} == {each.words for each in candidates(None)}


async def test_a_threshold_in_numbers_joins_where_probabilities_are_told(tmp_path: Path) -> None:
    """It lies between the log-odds of the two kinds of questions, and answers only cases that it was not made of."""
    finding = await found(Planted({"": 50}, tells=True), tmp_path, CASES[: 2 * RUNG])
    new = [each for each in finding.outcomes if isinstance(each.profile.call_threshold, float)]
    assert len(new) == 1
    assert math.log(0.02 / 0.98) < float(new[0].profile.call_threshold) < math.log(0.9 / 0.1)
    assert not {*new[0].verdicts} & {case.id for case in CASES[:RUNG]}
    assert len(new[0].verdicts) >= RUNG
    assert finding.chosen is finding.outcomes[0]


async def test_settings_that_each_gained_are_put_together(tmp_path: Path) -> None:
    """The model is right in one format, and more often without a threshold."""
    probe = Probe(Planted({"": 0}), CASES, tmp_path)
    rights = {"xml, list, threshold auto": 3, "hermes, list, threshold auto": 6, "xml, list, threshold off": 5}
    for outcome in probe._outcomes:
        right = rights.get(outcome.profile.words, 1)
        outcome.verdicts = {case.id: verdict(case, is_right=place < right) for place, case in enumerate(CASES[:9])}
    assert [each.words for each in probe._together()] == ["hermes, list, threshold off"]


def verdict(case: Case, *, is_right: bool) -> Verdict:
    reached = frozenset({"task_correct"} if is_right else ())
    return Verdict(case=case, reached=reached, counted=reached, failure="", repairs=(), reply=Reply(), row={"rounds": [{}]})


# -- the server's own function calling ---------------------------------------------------------------------------------


async def test_calls_that_leak_as_text_are_told_of(tmp_path: Path) -> None:
    finding = await found(Planted({"": 50}, leaks=True), tmp_path, CASES[:8])
    assert finding.native.told == 0
    assert finding.native.leaked > 0
    assert "does not write calls as its template says" in native_words(finding.native)
    assert finding.yardstick is not None
    assert finding.yardstick.figure().calls.right == 0


async def test_a_template_without_tools_is_not_asked(tmp_path: Path) -> None:
    backend = Planted({"": 50}, capabilities=Capabilities(server="llama.cpp", native_tools=False))
    finding = await found(backend, tmp_path, CASES[:4])
    assert finding.yardstick is None
    assert "chat template has no tools" in sentences(finding)[1]
    assert not any("native" in asked for asked in backend.asked)


async def test_a_server_that_refuses_tools_is_asked_once(tmp_path: Path) -> None:
    refused: list[CompletionRequest] = []

    def refuse(request: CompletionRequest) -> None:
        if request.tools:
            refused.append(request)
            raise BackendStatusError("tools need --jinja", backend="m", status_code=400)

    finding = await found(Planted({"": 50}, fails=refuse), tmp_path, CASES[:4])
    assert len(refused) == 1
    assert native_words(finding.native) == "the server refuses tools: tools need --jinja"
    assert "calls in its text read: left out, " in sentences(finding)[-1]
    assert all(each.verdicts for each in finding.outcomes if each.profile.way == "xml")


def test_calling_again_after_a_result_is_told_of() -> None:
    native = Native(offered=True, calls=10, told=10, results=5, again=4)
    assert "in 4 of 5 cases" in native_words(native)
    assert "text" not in native_words(native)


# -- stopped, and gone on with ------------------------------------------------------------------------------------------


class Stopped(Exception):
    """As if the process had been killed."""


def stopping_after(replies: int) -> Callable[[CompletionRequest], None]:
    left = iter(range(replies))

    def stop(request: CompletionRequest) -> None:
        if next(left, None) is None:
            raise Stopped

    return stop


async def test_what_is_measured_is_taken_up(tmp_path: Path) -> None:
    cases = CASES[:RUNG]
    rates, without_native = {"": 50, "hermes": 70}, Capabilities(server="scripted", native_tools=False)
    whole = Planted(rates, capabilities=without_native)
    expected = await found(whole, tmp_path / "whole", cases)
    first = Planted(rates, capabilities=without_native, fails=stopping_after(57))
    with pytest.raises(Stopped):
        await found(first, tmp_path / "part", cases)
    assert len(first.asked) == 57
    second = Planted(rates, capabilities=without_native)
    finding = await found(second, tmp_path / "part", cases)
    assert sorted(first.asked + second.asked) == sorted(whole.asked)
    assert (finding.chosen.profile, finding.test, finding.replies) == (expected.chosen.profile, expected.test, expected.replies)


def list_of(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def test_other_cases_begin_another_folder_and_runs_can_be_read(tmp_path: Path) -> None:
    await found(Planted({"": 50}), tmp_path, CASES[:2])
    folders = list_of(tmp_path)
    assert {read_run(folder).about["suite"] for folder in folders} == {"probe"}
    await found(Planted({"": 50}), tmp_path, CASES[:1])
    assert len(list_of(tmp_path)) == 2 * len(folders)


async def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        await found(Planted({"": 50}, fails=stopping_after(1)), tmp_path)
    for folder in list_of(tmp_path):
        (folder / "cases.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match="is damaged"):
        await found(Planted({"": 50}), tmp_path)


async def test_a_server_that_is_gone_ends_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xmlcall.backends.retrying import Patience
    from xmlcall.bench import runner

    monkeypatch.setattr(runner, "PATIENCE", Patience(pauses=(0.0,), longest=0.0))

    def gone(request: CompletionRequest) -> None:
        raise BackendUnavailable("cannot connect")

    with pytest.raises(BackendUnavailable, match="cannot connect"):
        await found(Planted({"": 50}, fails=gone), tmp_path)


# -- the arithmetic ----------------------------------------------------------------------------------------------------


def answers(text: str) -> dict[str, bool]:
    return {str(place): sign == "+" for place, sign in enumerate(text) if sign != " "}


def test_pairs_are_of_cases_that_both_answered() -> None:
    found = pairs(answers("++-- "), answers("+-+-+"))
    assert found == Pairs(total=4, only_first=1, only_second=1)
    assert (found.gain, found.p) == (0.0, 1.0)
    assert pairs({}, answers("+")).gain == 0.0


@pytest.mark.parametrize(
    ("challengers", "left"),
    [
        ({"a": "+---", "b": "++--", "c": "++++", "d": "----"}, ["c", "b"]),
        ({"a": "+---"}, ["a"]),
        ({"a": "+---", "b": "-+--", "c": "--+-"}, ["a"]),  # of equal ones the first
        ({}, []),
    ],
)
def test_the_worse_half_is_dropped(challengers: dict[str, str], left: list[str]) -> None:
    assert kept(answers("+---"), {name: answers(text) for name, text in challengers.items()}) == left


@pytest.mark.parametrize(
    ("only_first", "only_second", "is_last", "won"),
    [
        (0, 12, False, True),
        (12, 0, False, False),
        (3, 3, False, False),
        (2, 7, False, None),
        (2, 7, True, False),
        (0, 8, True, True),
    ],
)
def test_a_test_ends_when_it_is_clear(only_first: int, only_second: int, is_last: bool, won: bool | None) -> None:
    assert settled(Pairs(total=40, only_first=only_first, only_second=only_second), is_last=is_last) is won


def test_the_chance_of_a_false_winner() -> None:
    """Two equal ways, three looks: at most one test in twenty is won (Monte Carlo with a fixed seed)."""
    import random

    dice, wins, tests = random.Random(7), 0, 2000
    for _ in range(tests):
        pair, begun = [0, 0], 0
        for look in looks(90):
            for _ in range(begun, look):
                first, second = dice.random() < 0.6, dice.random() < 0.6
                pair[0] += first and not second
                pair[1] += second and not first
            begun = look
            won = settled(Pairs(total=look, only_first=pair[0], only_second=pair[1]), is_last=look == 90)
            if won is not None:
                wins += won
                break
    assert wins / tests < 0.05
    assert CLEAR < 0.05


# -- the order of the questions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lanes", "order"), [(1, "a1 a2 b1 b2 c1 c2"), (2, "a1 b1 a2 b2 c1 c2"), (9, "a1 b1 c1 a2 b2 c2")])
def test_what_is_asked_at_the_same_time_has_different_tools(lanes: int, order: str) -> None:
    mixed = ["a1", "b1", "c1", "a2", "b2", "c2"]
    cases = [Case(id=name, category="", messages=(), tools=(Tool(name=name[0], input_schema={}),)) for name in mixed]
    assert [case.id for case in in_lanes(cases, lanes)] == order.split()


def test_the_order_has_every_question() -> None:
    file = tomllib.loads(Path(own_suites.__file__).with_name("probe.toml").read_text(encoding="utf-8"))
    assert len(CASES) == sum(len(group["cases"]) for group in file["group"])


def test_questions_come_in_blocks_with_the_same_tools() -> None:
    changes = sum(before.tools != after.tools for before, after in pairwise(CASES))
    assert changes < len(CASES) / 3


# -- the questions -----------------------------------------------------------------------------------------------------


def test_there_are_enough_questions_of_each_kind() -> None:
    assert len(CASES) >= 150
    assert len({case.id for case in CASES}) == len(CASES)
    assert len({str(case.messages) for case in CASES}) == len(CASES)
    for category in ("single", "several", "parallel", "follow_up", *WITHOUT_CALL):
        of_kind = [case for case in CASES if case.category == category]
        assert len(of_kind) >= 14
        assert any(case.id.startswith("zh-") for case in of_kind)
        assert any(case.category == category for case in CASES[:RUNG])
    assert len([case for case in CASES if case.id.startswith("zh-")]) >= 25


def test_every_right_answer_binds_and_is_judged_right() -> None:
    for case in CASES:
        calls = oracle_calls(case) if case.expects == "calls" else []
        assert bool(calls) == (case.category not in WITHOUT_CALL), case.id
        assert len(calls) > 1 if case.category == "parallel" else len(calls) <= 1, case.id
        catalog = catalog_of(case)
        if calls:
            reply = parse(render([{"name": name, "arguments": arguments} for name, arguments in calls], catalog), catalog)
            bound = [bind(call.raw, catalog) for call in reply.calls]
            assert [(call.name, call.arguments) for call in bound if isinstance(call, ToolCall)] == calls, case.id
            assert not reply.repairs, case.id
        assert judge_case(case, calls) == "", case.id


def test_a_right_value_was_said() -> None:
    """What nobody said could only be guessed. Numbers, which may stand in words, enumerations and codes of currencies aside."""
    for case in CASES:
        words = " ".join(str(message) for message in case.messages).lower()
        for answer in case.answers:
            ((tool, values),) = answer.items()
            declared = next(each for each in case.tools if each.name == tool).input_schema["properties"]
            for name, accepted in values.items():
                texts = [value.lower() for value in accepted if isinstance(value, str)]
                if texts and "" not in texts and "enum" not in declared[name] and not name.endswith("currency"):
                    assert any(text in words for text in texts) or name in ("check_in", "date", "month", "time"), (case.id, name)


async def test_what_was_said_before_is_written_in_the_form_of_the_way() -> None:
    case = next(case for case in CASES if case.category == "answered")
    catalog = catalog_of(case)
    native = messages_of(case.messages)
    text = in_text(native, catalog, asking_of(way_of("hermes"), Settings()).format)
    assert [message.role for message in text] == ["user", "assistant", "user"]
    assert "<tool_call>" in text[1].content
    assert text[2].content.startswith("<tool_response>")
    assert [message.role for message in native][:3] == ["user", "assistant", "tool"]
    assert native[1].tool_calls[0].id == native[2].tool_call_id
    reminded, decided = (AskedCase(way_of("xml"), case, Settings(call_threshold=each)).messages for each in (None, "auto"))
    assert len(reminded[1].content) > len(decided[1].content)
    assert reminded[-1] == decided[-1]


def test_a_profile_is_asked_by_its_settings() -> None:
    way, settings = asked_by(Profile(model="m", dialect="qwen", call_threshold=1.5), Settings(max_tokens=9))
    assert (way.name, settings.call_threshold, settings.max_tokens, settings.family) == ("qwen", 1.5, 9, "list")
    assert "family" not in settings.to_json()
    way, settings = asked_by(Profile(model="m", call_threshold="off"), Settings())
    assert (way.name, settings.call_threshold) == ("xml", None)
    assert asked_by(Profile(model="m", way="native"), Settings())[0].name == "native+read"
    with pytest.raises(UsageError):
        replace(Profile(model="m"), dialect="auto")
