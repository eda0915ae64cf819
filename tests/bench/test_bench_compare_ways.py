"""The comparison of ways: planted models, what the server cannot do, and a file that says nothing of a person."""

import asyncio
import getpass
import hashlib
import json
import platform
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.backends.server_facts import ServerFacts
from xmlcall.bench.case import Case
from xmlcall.bench.compare_ways import (
    FULL,
    HEADER,
    OWN,
    QUICK,
    cells_of,
    compared_cases,
    found_json,
    measure,
    needs_tool,
    public_name,
    quantisation,
    recommended,
)
from xmlcall.bench.subjects import calling
from xmlcall.bench.ways import way_of
from xmlcall.errors import BackendStatusError, BackendUnavailable
from xmlcall.tools.catalog import Catalog
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest

WORDS = Chunk(text="In plain words: it depends.")
ALL = compared_cases(quick=False)
NEEDED = [case for case in ALL if needs_tool(case) and not case.turns[0]["has"]][:6]
CASES = [*NEEDED, *[case for case in ALL if not needs_tool(case)][:6]]
PATH = "/home/alice/models/Tiny-Q4_K_M.gguf"
SECRETS = ("alice", "box.local", "hunter2", "sk-key")


def test_there_are_as_many_cases_that_need_a_tool_as_others() -> None:
    for quick, count in ((True, QUICK), (False, FULL)):
        cases = compared_cases(quick=quick)
        assert [sum(map(needs_tool, cases)), len(cases)] == [count, 2 * count]
    assert {case.id for case in compared_cases(quick=True)} <= {case.id for case in ALL}


class Planted(ScriptedBackend):
    """A model that is right in a share of the cases (of 100), which depends on the way it is asked in.

    Args:
        leaks: whether calls of its own function calling are left in the text.
        fails: told of each request; may raise.
    """

    def __init__(
        self,
        rates: dict[str, int],
        *,
        leaks: bool = False,
        fails: Callable[[CompletionRequest], None] = lambda request: None,
        **capabilities: Any,
    ) -> None:
        given = {"server": "scripted", "family": "hermes", "model_file": Path(PATH).name, "fingerprints": ("model:1",)}
        super().__init__([], capabilities=Capabilities(**{**given, **capabilities}))
        self.model = PATH
        self._rates, self._leaks, self._fails = rates, leaks, fails
        self.asked: list[str] = []

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        await asyncio.sleep(0)
        if request.top_logprobs:
            yield Chunk(text="I", finish_reason="length")
            return
        self._fails(request)
        said = "\n".join(message.content for message in request.messages)
        case = max((case for case in CASES if case.turns[0]["say"] in said), key=lambda case: said.rfind(case.turns[0]["say"]))
        way = self._way(request)
        self.asked.append(f"{case.id} {way}")
        for chunk in self._reply(case, way):
            yield chunk
        yield Chunk(finish_reason="stop")

    @staticmethod
    def _way(request: CompletionRequest) -> str:
        if request.tools:
            return "native"
        system = request.messages[0].content if request.messages[0].role == "system" else ""
        return "hermes" if "<tool_call>" in system else "xml" if "<function_calls>" in system else "none"

    def _reply(self, case: Case, way: str) -> list[Chunk]:
        place = int(hashlib.sha256(case.id.partition("@")[0].encode()).hexdigest(), 16) % 100
        is_right, turn = place < self._rates.get(way, self._rates[""]), case.turns[0]
        if not needs_tool(case) and (is_right or way == "none"):
            return [Chunk(text=turn["reply"])]
        if needs_tool(case) is not is_right:
            return [WORDS]
        name = turn.get("tools", [""])[0].split("|")[0]
        arguments = {key: each["accepted"][0] for key, each in turn.get("arguments", {}).items()}
        written = way_of("hermes" if way == "native" and self._leaks else way)
        return calling([(name, arguments)], Catalog(()), written)


async def found(backend: Planted, folder: Path, **options: Any) -> dict[str, Any]:
    async with backend:
        ways = await measure(backend, CASES, folder, **options)
        return found_json(ways, CASES, backend, ServerFacts(kind="llama.cpp", version="b1"))


def row(result: dict[str, Any], way: str) -> dict[str, Any]:
    return next(each for each in result["ways"] if each["way"] == way)


async def test_a_way_that_is_better_by_more_than_chance_is_recommended(tmp_path: Path) -> None:
    notes: list[str] = []
    done: list[tuple[int, bool]] = []
    result = await found(Planted({"": 20, "hermes": 101}), tmp_path, note=notes.append, progress=lambda *step: done.append(step))
    assert [each["way"] for each in result["ways"]] == ["none", "xml", "native", "native+read", "hermes"]
    assert (result["recommended"]["way"], result["recommended"]["ask"]) == ("hermes", "dialect=hermes")
    hermes, xml = row(result, "hermes"), row(result, "xml")
    assert {*hermes["outcomes"].values()} == {"right"}
    assert [hermes[name]["count"] for name in ("right_calls", "kept", "needless_calls")] == [6, 6, 0]
    assert hermes["over_xml"]["only_first"] == 0
    assert hermes["over_xml"]["second"] == 12
    assert xml["right_calls"]["count"] < 6
    assert xml["kept"]["total"] == row(result, "none")["right_answers"]["count"] == 6
    assert (sum(answered for answered, _ in done), notes) == (6 + 4 * 12, [f"asks for 54 replies, which are kept in {tmp_path}"])
    cells = list(map(cells_of, result["ways"]))
    assert [len(each) for each in cells] == [len(HEADER)] * 5
    assert cells[-1][1].startswith("6/6 [")


async def test_what_may_be_chance_leaves_the_default(tmp_path: Path) -> None:
    result = await found(Planted({"": 60, "hermes": 75}), tmp_path)
    assert result["recommended"]["way"] == "xml"
    assert row(result, "hermes")["over_xml"]["second"] >= row(result, "hermes")["over_xml"]["first"]


async def test_calls_in_the_text_count_for_native_read_only(tmp_path: Path) -> None:
    result = await found(Planted({"": 101}, leaks=True), tmp_path)
    assert row(result, "native")["right_calls"]["count"] == 0
    assert row(result, "native+read")["right_calls"]["count"] == 6


def refuse(request: CompletionRequest) -> None:
    if request.tools:
        raise BackendStatusError("http://alice:hunter2@box.local says: tools need --jinja", status_code=400)


WITHOUT: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"native_tools": False}, {"native": "says that this model has no", "native+read": "says that this model has no"}),
    ({"native_tools": False, "server": "llama.cpp"}, {"native": "template has no tools"}),
    ({"family": ""}, {OWN: "is unknown"}),
    ({"family": "function_calls"}, {OWN: "the format of xml"}),
    ({"fails": refuse}, {"native": "refuses requests with tools (HTTP 400)"}),
]


@pytest.mark.parametrize(("given", "problems"), WITHOUT)
async def test_what_a_server_cannot_do_is_reported(tmp_path: Path, given: dict[str, Any], problems: dict[str, str]) -> None:
    notes: list[str] = []
    result = await found(Planted({"": 101}, **given), tmp_path, note=notes.append)
    for name, problem in problems.items():
        assert problem in row(result, name)["problem"]
        assert "outcomes" not in row(result, name)
        assert any(problem in note for note in notes)
        assert any(problem in cells[1] for cells in map(cells_of, result["ways"]))
    assert row(result, "xml")["right_calls"]["count"] == 6


async def test_another_start_goes_on(tmp_path: Path) -> None:
    left = [15]

    def fail(request: CompletionRequest) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise BackendStatusError("no", status_code=401)

    first, second = Planted({"": 101}, fails=fail), Planted({"": 101})
    with pytest.raises(BackendUnavailable, match="run the same command again"):
        await found(first, tmp_path)
    notes: list[str] = []
    done: list[tuple[int, bool]] = []
    result = await found(second, tmp_path, note=notes.append, progress=lambda *step: done.append(step))
    assert notes == [f"continuing in {tmp_path}: 15 of 54 replies are kept there"]
    assert [sum(answered for answered, is_new in done if is_new is kind) for kind in (False, True)] == [15, 39]
    assert len(first.asked) == 15
    assert not {*first.asked} & {*second.asked}
    assert [len(each["outcomes"]) for each in result["ways"]] == [6, 12, 12, 12, 12]


async def test_a_request_without_answer_is_left_out_of_the_pairs(tmp_path: Path) -> None:
    notes: list[str] = []
    question = CASES[3].turns[0]["say"]

    def fail(request: CompletionRequest) -> None:
        if question in request.messages[-1].content and Planted._way(request) == "hermes":
            raise BackendStatusError("no", status_code=400)

    result = await found(Planted({"": 101}, fails=fail), tmp_path, note=notes.append)
    assert notes[1:] == ["hermes: 1 requests got no answer; the same command asks them again"]
    assert row(result, "hermes")["over_xml"]["total"] == 11


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from (key, *strings(each))
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


PLAIN = re.compile(r"[\w .,:;+@()/=%<>\[\]'-]*")


@pytest.mark.parametrize("given", [{}, {"fails": refuse}, {"native_tools": False}], ids=["all", "refused", "no tools"])
async def test_the_file_says_nothing_of_a_person(tmp_path: Path, given: dict[str, Any]) -> None:
    result = await found(Planted({"": 50}, **given), tmp_path)
    text = json.dumps(result, ensure_ascii=False)
    for each in (*SECRETS, str(tmp_path), str(Path.home()), platform.node() or "box.local", getpass.getuser() + "@"):
        assert each not in text
    for case in CASES:
        said = [*(message["content"] for message in case.messages), case.turns[0].get("reply", "")]
        assert not any(each and json.dumps(each, ensure_ascii=False)[1:-1] in text for each in said)
    assert not [each for each in strings(result) if len(each) > 160 or not PLAIN.fullmatch(each)]
    assert (result["schema"], result["version"]) == ("xmlcall.compare-ways", 1)
    assert result["engine"] == {"name": "llama.cpp", "version": "b1"}
    model = {"name": "Tiny-Q4_K_M.gguf", "fingerprint": "model:1", "quantisation": "Q4_K_M", "context": None}
    assert result["model"] == model


NAMES = [
    ("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b", ""),
    ("Qwen/Qwen3-4B-AWQ", "Qwen/Qwen3-4B-AWQ", "AWQ"),
    ("gemma3:4b-it-q4_K_M", "gemma3:4b-it-q4_K_M", "Q4_K_M"),
    (PATH, "Tiny-Q4_K_M.gguf", "Q4_K_M"),
    ("models/alice/x-IQ4_XS.gguf", "x-IQ4_XS.gguf", "IQ4_XS"),
    ("alice/x.gguf", "x.gguf", ""),
    ("./alice/model", "model", ""),
    ("../alice", "alice", ""),
    (r"C:\Users\alice\m-bf16", "m-bf16", "BF16"),
    ("alice/secret/m-4bit", "m-4bit", "4BIT"),
    ("http://alice:hunter2@box.local/v1", "", ""),
    ("alice@box", "", ""),
    ("a model of mine", "", ""),
    ("Q8", "Q8", "Q8"),
    ("", "", ""),
]


@pytest.mark.parametrize(("model", "name", "kind"), NAMES)
def test_a_models_name_without_its_folders(model: str, name: str, kind: str) -> None:
    assert (public_name(model), quantisation(model)) == (name, kind)


def pair(first: int, second: int, p: float) -> dict[str, Any]:
    return {"over_xml": {"first": first, "second": second, "total": 100, "p": p}}


RECOMMENDED: list[tuple[list[dict[str, Any]], str]] = [
    ([], "xml"),
    ([{"way": "native", **pair(60, 50, 0.001)}], "xml"),
    ([{"way": "native", **pair(60, 60, 1.0)}], "xml"),
    ([{"way": "native", **pair(50, 70, 0.04)}], "native"),
    ([{"way": "native", **pair(50, 70, 0.04)}, {"way": "hermes", **pair(50, 60, 0.2)}], "xml"),
    ([{"way": "native", **pair(50, 70, 0.001)}, {"way": "hermes", **pair(50, 80, 0.001)}], "hermes"),
]


@pytest.mark.parametrize(("others", "way"), RECOMMENDED)
def test_what_is_recommended(others: list[dict[str, Any]], way: str) -> None:
    assert recommended([{"way": "none"}, {"way": "xml", "over_xml": None}, *others])["way"] == way
