"""vLLM's and SGLang's own code drives the parser, in their newest three releases.

The files of the engines come from `python tests/engines/fetch.py`; what is stood in for says `tests/engines/stand_ins.py`. No
model runs. Each release is a process of its own (`tests/engines/play.py`).
"""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines.fetch import RELEASES, folder_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from integrations.test_reading import CATALOG, REPLIES, WEATHER, block, call, dialect_soup, soup
from profiles import examples

from xmlcall.integrations.reading import read_whole

pytestmark = pytest.mark.full

ENGINES = Path(__file__).parents[1] / "engines"


class Release:
    """A release of an engine, in a process that reads replies."""

    def __init__(self, engine: str, version: str) -> None:
        command = [sys.executable, str(ENGINES / "play.py"), engine, version]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.engine, self.loaded = engine, self._answer()["loaded"]

    def play(self, text: str, cuts: list[int], tools: list[dict[str, Any]], choice: Any = None) -> Any:
        assert self._process.stdin is not None
        line = json.dumps({"text": text, "cuts": cuts, "tools": tools, "choice": choice})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
        assert self._process.returncode == 0


@pytest.fixture(scope="module", params=RELEASES, ids=" ".join)
def release(request: pytest.FixtureRequest) -> Iterator[Release]:
    engine, version = request.param
    if not folder_of(engine, version).exists():
        pytest.skip(f"no files of {engine} {version}: python tests/engines/fetch.py {engine}=={version}")
    running = Release(engine, version)
    yield running
    running.close()


# The engine's own modules between a request and its answer, which must be real.
REAL = {
    "vllm": "vllm.parser.abstract_parser vllm.tool_parsers.abstract_tool_parser vllm.entrypoints.openai.chat_completion.protocol",
    "sglang": "sglang.srt.function_call.function_call_parser sglang.srt.entrypoints.openai.protocol",
}


def test_the_interface_is_the_engine_s_own(release: Release) -> None:
    assert set(REAL[release.engine].split()) <= set(release.loaded)


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply(release: Release, name: str) -> None:
    written = REPLIES[name][0]
    said, calls = read_whole(written, CATALOG)
    answer = release.play(written, list(range(len(written))), [WEATHER])
    expected = [[each.name, each.arguments] for each in calls]
    assert answer["whole"] == {"text": said, "calls": expected}
    assert answer["streamed"] == {"text": said, "calls": expected, "faults": []}


@pytest.mark.timeout(300)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.one_of(soup, dialect_soup, st.sampled_from([each[0] for each in REPLIES.values()])),
    places=st.lists(st.integers(0, 400), max_size=30),
)
def test_any_reply_cut_anywhere(release: Release, text: str, places: list[int]) -> None:
    text = text.encode("utf-8", "replace").decode()
    answer = release.play(text, places, [WEATHER])
    said, calls = read_whole(text, CATALOG)
    assert answer["streamed"] == {"text": said, "calls": [[each.name, each.arguments] for each in calls], "faults": []}
    assert answer["whole"]["calls"] == answer["streamed"]["calls"]


def test_tool_choices(release: Release) -> None:
    written = block(call())
    named = {"type": "function", "function": {"name": "get_weather"}}
    if release.engine == "sglang":
        assert release.play(written, [], [WEATHER])["required"] == "json_schema"  # SGLang's own reader takes those
        return
    assert release.play(written, [], [WEATHER])["special"] is False
    nothing = {"text": written, "calls": []}
    none = release.play(written, [7], [WEATHER], "none")
    assert (none["whole"], none["streamed"]) == (nothing, {**nothing, "faults": []})
    assert none["special"] is not False
    forced = release.play('{"city": "Oslo"}', [], [WEATHER], named)  # vLLM asks the model for JSON, and reads that itself
    assert forced["whole"]["calls"] == [["get_weather", '{"city": "Oslo"}']]


def test_the_responses_api_of_vllm(release: Release) -> None:
    if release.engine == "sglang":
        pytest.skip("SGLang's parser gets the tools of chat completions there, too")
    answer = release.play(f"Hm. {block(call())}", [9, 60], [WEATHER], "responses")
    expected = {"text": "Hm.", "calls": [["get_weather", '{"city": "Oslo", "days": 3}']]}
    assert (answer["whole"], answer["streamed"]) == (expected, {**expected, "faults": []})
    assert answer["special"] is False


def test_without_tools(release: Release) -> None:
    answer = release.play(block(call()), [3], [])
    assert answer["whole"] == {"text": block(call()), "calls": []}
    assert answer["streamed"]["text"] == block(call())


# The ways to make the parser known -> what is run for them, after the engine is prepared. It prints what is registered.
WAYS = {
    "vllm: a module": """
        from vllm.tool_parsers import ToolParserManager
        ToolParserManager.import_tool_parser("xmlcall.integrations.vllm_parser")
        print(ToolParserManager.get_tool_parser("xmlcall").__module__)""",
    "vllm: a file": """
        from vllm.tool_parsers import ToolParserManager
        import importlib.util
        ToolParserManager.import_tool_parser(importlib.util.find_spec("xmlcall.integrations.vllm_parser").origin)
        print(ToolParserManager.get_tool_parser("xmlcall").__module__)""",
    "vllm: an entry point": """
        from vllm.plugins import load_general_plugins
        from vllm.tool_parsers import ToolParserManager
        load_general_plugins()
        print("xmlcall.integrations.vllm_parser" in sys.modules, ToolParserManager.get_tool_parser("xmlcall").__module__)""",
    "vllm: the wrong file": """
        from vllm.tool_parsers import ToolParserManager
        import importlib.util
        ToolParserManager.import_tool_parser(importlib.util.find_spec("xmlcall.integrations.vllm").origin)
        print(ToolParserManager.list_registered().count("xmlcall"), sys.modules.get("vllm"))""",
    "sglang: an entry point": """
        from sglang.srt.plugins import load_plugins
        load_plugins()
        from sglang.srt.function_call.function_call_parser import FunctionCallParser
        print(FunctionCallParser.ToolCallParserEnum["xmlcall"].__module__)""",
    "sglang: the launcher": """
        import types
        class Options:  # of which none is set
            resolve_once = lambda self: None
            __getattr__ = lambda self, name: None
        def prepare_server_args(given):
            from sglang.srt.function_call.function_call_parser import FunctionCallParser
            print("xmlcall" in FunctionCallParser.ToolCallParserEnum, *given)
            return Options()
        ends = {"launch_server": lambda options: print("served"), "kill_process_tree": lambda *_, **__: print("ended")}
        for module, names in {
            "arg_groups": {}, "arg_groups.overrides": {"resolving_view": lambda options: options},
            "server_args": {"prepare_server_args": prepare_server_args}, "entrypoints.http_server": ends, "utils": ends,
            "utils.common": {"suppress_noisy_warnings": lambda: None},
        }.items():
            sys.modules[f"sglang.srt.{module}"] = types.ModuleType(module)
            sys.modules[f"sglang.srt.{module}"].__dict__.update(names)
        from xmlcall.integrations.sglang import main
        main(["--model-path", "m"])""",
}
PRINTED = {
    "vllm: a module": "xmlcall.integrations.vllm_parser",
    "vllm: a file": "vllm_parser",
    "vllm: an entry point": "False xmlcall.integrations.vllm_parser",
    "vllm: the wrong file": "0 None",
    "sglang: an entry point": "xmlcall.integrations.sglang_detector",
    "sglang: the launcher": "True --model-path m\nserved\nended",
}
ENTRY_POINTS = """[vllm.general_plugins]
xmlcall = xmlcall.integrations.vllm:register
[sglang.srt.plugins]
xmlcall = xmlcall.integrations.sglang:register
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("way", "engine", "version"), [(way, *each) for way in WAYS for each in RELEASES if way.startswith(each[0])]
)
def test_ways_to_make_it_known(way: str, engine: str, version: str, tmp_path: Path) -> None:
    if not folder_of(engine, version).exists():
        pytest.skip(f"no files of {engine} {version}: python tests/engines/fetch.py {engine}=={version}")
    declared = tmp_path / "declared-1.dist-info"
    declared.mkdir()
    (declared / "METADATA").write_text("Metadata-Version: 2.1\nName: declared\nVersion: 1\n")
    (declared / "entry_points.txt").write_text(ENTRY_POINTS)
    prepared = f"""
        import sys
        sys.path[:0] = [{str(tmp_path)!r}, {str(ENGINES.parent)!r}]
        from engines.fetch import folder_of
        from engines.stand_ins import prepare
        prepare({engine!r}, folder_of({engine!r}, {version!r}))"""
    program = textwrap.dedent(prepared) + textwrap.dedent(WAYS[way])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == PRINTED[way], done.stderr
    assert way != "vllm: the wrong file" or "xmlcall.integrations.vllm_parser" in done.stderr
