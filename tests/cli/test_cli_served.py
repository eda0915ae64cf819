"""`xmlcall resources` and `xmlcall prompts`: lists, one of them, and what was asked wrongly."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_harness import run_cli, run_here
from servers.started import printed_url

LIBRARY = str(Path(__file__).parents[1] / "servers" / "library.py")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A configuration of one server that all tests share."""
    path = tmp_path_factory.mktemp("library") / "mcp.json"
    with printed_url(LIBRARY, "--http") as (url, _):
        path.write_text(json.dumps({"mcpServers": {"library": {"url": url}}}))
        yield str(path)


PRINTED: dict[str, tuple[list[str], str]] = {
    "resources": (
        ["resources"],
        "library  note://today  Today, text/plain, What was noted.\nlibrary  data://bytes  data, application/octet-stream\n"
        "library  book://{title}/{chapter}  chapter, text/plain, A chapter.\n",
    ),
    "a resource": (["resources", "note://today"], "[resource note://today]\nfirst\n"),
    "data": (
        ["resources", "data://bytes"],
        "[resource data://bytes: application/octet-stream, 3 bytes, cannot be shown as text]\n",
    ),
    "prompts": (["prompts"], "library.summarize(title, style?)  Summarize a book: Ask for a summary.\n"),
    "a prompt": (["prompts", "summarize", "title=Emma = Emma"], "user: Summarize Emma = Emma, short.\n"),
}


@pytest.mark.parametrize("case", PRINTED)
def test_what_is_printed(case: str, library: str) -> None:
    arguments, expected = PRINTED[case]
    done = run_here(*arguments, "--mcp", library)
    assert (done.stdout, done.stderr, done.returncode) == (expected, "", 0)


@pytest.mark.parametrize("kind", ["resources", "prompts"])
def test_a_list_of_nothing_says_so(kind: str) -> None:
    done = run_here(kind)  # of the demo server
    assert (done.stdout, done.stderr, done.returncode) == ("", f"xmlcall: no server has {kind}\n", 0)


def test_json(library: str, tmp_path: Path) -> None:
    listed = json.loads(run_cli("resources", "--mcp", library, "--json", home=tmp_path).stdout)
    assert [(each["server"], each["resource"].get("uri")) for each in listed["resources"]][:1] == [("library", "note://today")]
    text = json.loads(run_cli("prompts", "summarize", "title=Emma", "--mcp", library, "--json", home=tmp_path).stdout)
    assert text["messages"][0]["content"]["text"] == "Summarize Emma, short."


WRONG: dict[str, tuple[list[str], int, str]] = {
    "no pair": (["prompts", "summarize", "Emma"], 2, "expected ARGUMENT=VALUE, got 'Emma'"),
    "no such prompt": (["prompts", "nothing"], 2, "expected the name of a prompt, got 'nothing'"),
    "no such server": (["resources", "--server", "x", "note://today"], 2, "expected --server .*: library"),
    "no such resource": (["resources", "note://none"], 1, "library: .*reading 'note://none'"),
    "an argument is missing": (["prompts", "summarize"], 1, "library: .*filling in 'summarize'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_asked_wrongly_is_one_sentence(case: str, library: str) -> None:
    arguments, code, message = WRONG[case]
    done = run_here(*arguments, "--mcp", library)
    assert done.returncode == code
    assert done.stdout == ""
    assert re.match(f"xmlcall: {message}", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
