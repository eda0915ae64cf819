"""Tools of our own in whole runs: resources under the policy, the rest of a long result, checked results, data in files."""

import base64
import re
import stat
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from cli_harness import call
from servers.started import printed_url

from xmlcall import Answer, CallDenied, CallFinished, CallStarted, LocalHost, Message, ToolLoop
from xmlcall.agent.policy import Decision, Proposal
from xmlcall.agent.rules import allow
from xmlcall.agent.run_call import checked, kept
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.hosts.base import Host
from xmlcall.hosts.mcp.host import McpHost
from xmlcall.hosts.server import HttpServer
from xmlcall.prompting.format import ENGLISH
from xmlcall.prompting.results import pictures, result_text
from xmlcall.turn.events import LoopEvent
from xmlcall.types.calls import AudioContent, EmbeddedResource, ImageContent, TextContent, Tool, ToolResult
from xmlcall.types.completion import Capabilities, Chunk, CompletionRequest
from xmlcall.types.served import Listing, Resource, ResourceTemplate

LIBRARY = Path(__file__).parents[1] / "servers" / "library.py"
QUESTION = Message(role="user", content="What is in the note note://today? Read it from library.")


@pytest.fixture(scope="module")
def library() -> Iterator[HttpServer]:
    with printed_url(str(LIBRARY), "--http") as (url, _):
        yield HttpServer(name="library", url=url)


def capable(**fields: Any) -> Capabilities:
    return Capabilities(server="scripted", **fields)


async def run(
    replies: Any, hosts: list[Host], *, capabilities: Capabilities | None = None, **options: Any
) -> tuple[list[LoopEvent], ScriptedBackend]:
    backend = ScriptedBackend(replies, capabilities=capabilities or capable())
    async with ToolLoop(backend, hosts, **{"policy": ["*"], **options}) as loop:
        return [event async for event in loop.run([QUESTION])], backend


def finished(events: list[LoopEvent]) -> list[str]:
    return [result_text(event.result) for event in events if isinstance(event, CallFinished)]


async def test_resources_are_listed_and_read_under_the_policy(library: HttpServer) -> None:
    asked: list[Proposal] = []

    async def policy(proposal: Proposal) -> Decision:
        asked.append(proposal)
        return Decision(allowed=True)

    replies = [call("list_resources"), call("read_resource", uri="note://today"), "It says first."]
    events, backend = await run(replies, [McpHost(library)], policy=policy)
    listed, read = finished(events)
    assert listed.split("\n") == [
        "- note://today Today: text/plain, What was noted.",
        "- data://bytes data: application/octet-stream",
        "Addresses to fill in:",
        "- book://{title}/{chapter} chapter: text/plain, A chapter.",
    ]
    assert read == "[resource note://today]\nfirst"
    assert [proposal.target for proposal in asked] == ["library.list_resources", "library.read_resource"]
    places = [(event.host, event.host_tool) for event in events if isinstance(event, CallStarted)]
    assert places == [("library", "list_resources"), ("library", "read_resource")]
    assert "read_resource" in backend.requests[0].messages[0].content
    assert '<result name="read_resource">' in backend.requests[2].messages[-1].content


class Shelf(LocalHost):
    """A host with one resource, and nothing to start."""

    def says(self, capability: str) -> bool:
        return capability == "resources"

    @property
    def served(self) -> Any:
        return self

    async def resources(self) -> Listing[Resource]:
        return Listing(items=(Resource(uri="note://today"),))

    async def resource_templates(self) -> Listing[ResourceTemplate]:
        return Listing()

    async def read_resource(self, uri: str) -> ToolResult:
        return ToolResult(content=(EmbeddedResource(uri=uri, text=f"the code of {self.name} is 4711"),))


@pytest.mark.parametrize(
    ("allowed", "runs"), [(["library.read_resource"], True), (["other.*", "library.note"], False), ([], False)]
)
async def test_globs_match_the_server_and_read_resource(allowed: list[str], runs: bool) -> None:
    reply = call("read_resource", server="library", uri="note://today")
    events, _ = await run([reply, "Done."], [Shelf((), name="library"), Shelf((), name="other")], policy=allowed)
    assert finished(events) == (["[resource note://today]\nthe code of library is 4711"] if runs else [])
    assert any(isinstance(event, CallDenied) for event in events) is not runs


@pytest.mark.parametrize(("changed_to", "runs"), [("library", True), ("other", False)])
async def test_a_server_that_a_person_puts_into_the_arguments_is_judged_too(changed_to: str, runs: bool) -> None:
    async def edits(proposal: Proposal) -> Decision:
        given = {"server": changed_to, "uri": "note://today"}
        return Decision(allowed=proposal.host == "library", arguments=given, by="person")

    reply = call("read_resource", server="library", uri="note://today")
    events, _ = await run([reply, "Done."], [Shelf((), name="library"), Shelf((), name="other")], policy=edits)
    assert any(isinstance(event, CallStarted) for event in events) is runs
    assert any(isinstance(event, CallDenied) for event in events) is not runs


@pytest.mark.parametrize("flows", [True, False])
async def test_what_was_read_may_not_flow_to_another_server(flows: bool) -> None:
    sent: list[str] = []

    def send(text: str) -> str:
        """Send a text."""
        sent.append(text)
        return "sent"

    replies = [
        call("read_resource", server="library", uri="note://today"),
        call("send", text="the code of library is 4711"),
        "Done.",
    ]
    hosts: list[Host] = [Shelf((), name="library"), Shelf([send], name="other")]
    policy = allow(["*"], may_flow=flows)
    events, _ = await run(replies, hosts, policy=policy)
    assert sent == (["the code of library is 4711"] if flows else [])
    assert any(isinstance(event, CallDenied) for event in events) is not flows


async def test_a_resource_that_there_is_not_is_an_error_for_the_model(library: HttpServer) -> None:
    events, _ = await run([call("read_resource", uri="note://none"), "There is none."], [McpHost(library)])
    (ended,) = (event for event in events if isinstance(event, CallFinished))
    assert ended.result.is_error
    assert ended.failure.startswith("library: ")
    assert isinstance(events[-1], Answer)


async def test_where_no_server_has_resources_nothing_is_offered() -> None:
    _, backend = await run(["Hello."], [LocalHost([read_report])])
    assert "list_resources" not in backend.requests[0].messages[0].content


def read_report() -> str:
    """Read the report."""
    return "\n".join(f"line {number} of the report" for number in range(2000))


REPORT = read_report()
NOTE = re.compile(r'call read_more with handle "(\w+)" and start (\d+)')


@pytest.mark.parametrize("mode", ["xml", "native"])
async def test_the_rest_of_a_long_result_is_read_piece_by_piece(mode: str) -> None:
    asked: list[str] = []

    async def policy(proposal: Proposal) -> Decision:
        asked.append(proposal.target)
        return Decision(allowed=True)

    def reply(request: CompletionRequest, number: int) -> str:
        if number == 0:
            return call("read_report")
        found = NOTE.findall(request.messages[-1].content)
        return call("read_more", handle=found[-1][0], start=found[-1][1]) if found and number < 4 else "Read."

    backend = Reading(reply, capabilities=capable(context_length=4096))
    async with ToolLoop(backend, [LocalHost([read_report])], policy=policy, mode=mode) as loop:  # type: ignore[arg-type]
        events = [event async for event in loop.run([QUESTION])]
    whole, *pieces = finished(events)
    assert whole == REPORT, "the conversation keeps it"
    assert len(pieces) == 3
    places = []
    for piece in pieces:
        text = piece.partition("\n[...")[0]
        assert text in REPORT
        assert text.startswith("line ")
        places.append(REPORT.index(text))
    assert places == sorted(set(places))
    assert asked == ["local.read_report"]
    assert [event.host for event in events if isinstance(event, CallStarted)] == ["local", *["xmlcall"] * 3]
    if mode == "xml":
        assert "read_more" not in str([message.content for message in backend.requests[0].messages])
        assert len({request.messages[0] for request in backend.requests}) == 1, "the cache holds"


async def test_another_model_reads_pieces_of_its_own_size() -> None:
    handles: list[str] = []

    def reply(request: CompletionRequest, number: int) -> str:
        handles.extend(handle for handle, _ in NOTE.findall(request.messages[-1].content))
        return [call("read_report"), call("read_more", handle=handles[0] if handles else "", start="0"), "Read."][number]

    first, second = (Reading(reply, capabilities=capable(context_length=context)) for context in (4096, 32768))
    async with ToolLoop(first, [LocalHost([read_report])], policy=["*"]) as loop:
        small = finished([event async for event in loop.run([QUESTION])])[1]
        await loop.change_model(second)
        large = finished([event async for event in loop.run([QUESTION])])[1]
    assert len(large) > 4 * len(small)


class Reading(ScriptedBackend):
    """Answers what a function makes of the request."""

    def __init__(self, reply: Any, **options: Any) -> None:
        super().__init__((), **options)
        self._reply = reply

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk]:
        self._replies.append([self._reply(request, len(self.requests))])
        async with aclosing(super().stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk


async def test_an_unknown_handle_is_told() -> None:
    events, _ = await run(
        [call("read_report"), call("read_more", handle="abcdef", start="3"), "Done."], [LocalHost([read_report])]
    )
    assert finished(events)[1].startswith("There is no result with this handle.")


async def test_a_short_result_brings_no_tool_to_read_on() -> None:
    def short() -> str:
        """Be short."""
        return "short"

    events, _ = await run([call("short"), call("read_more", handle="abcdef", start="0"), "Done."], [LocalHost([short])])
    assert finished(events) == ["short"]


# -- checked results -------------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TYPED = Tool(name="typed", output_schema=SCHEMA)
CHECKS: dict[str, tuple[Any, ToolResult, str]] = {
    "as promised": (SCHEMA, ToolResult(structured_content={"n": 1}), ""),
    "of another type": (SCHEMA, ToolResult(structured_content={"n": "many"}), "$.n: Expected integer"),
    "incomplete": (SCHEMA, ToolResult(structured_content={}), "$.n: "),
    "missing": (SCHEMA, ToolResult(), "it is missing"),
    "an error promises nothing": (SCHEMA, ToolResult(is_error=True), ""),
    "nothing promised": (None, ToolResult(structured_content={"n": "many"}), ""),
    "a schema that is none": ({"type": "strin"}, ToolResult(structured_content={"n": "many"}), ""),
    "a mark of draft 3": (
        {"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"n": {"type": "integer", "required": True}}},
        ToolResult(structured_content={}),
        "$.n: ",
    ),
    "a list, where one is promised": ({"type": "array", "items": {"type": "INTEGER"}}, ToolResult(structured_content=[1]), ""),
    "a schema of the network": ({"$ref": "https://example.com/s.json"}, ToolResult(structured_content=1), ""),
}


@pytest.mark.parametrize("case", CHECKS)
def test_a_result_is_held_against_the_promise_and_never_lost(case: str) -> None:
    schema, result, problem = CHECKS[case]
    told = checked(result, Tool(name="typed", output_schema=schema), ENGLISH)
    assert (told == result) is not bool(problem)
    assert told.structured_content == result.structured_content
    if problem:
        (note,) = told.content
        assert isinstance(note, TextContent)
        assert f"[The structured content is not what the tool promises: {problem}" in note.text


def test_of_a_result_whose_schema_cannot_be_used_the_model_is_told_that_nobody_checked_it() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"items": deep}
    told = checked(ToolResult(structured_content={"n": 1}), Tool(name="typed", output_schema=deep), ENGLISH)
    (note,) = told.content
    assert isinstance(note, TextContent)
    assert "cannot be checked" in note.text


# -- data ------------------------------------------------------------------------------------------------------------------

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()
DATA: dict[str, tuple[Any, str]] = {
    "a picture": (ImageContent(data=PNG, mime_type="image/png"), ".png"),
    "a picture of another type": (ImageContent(data=PNG, mime_type="image/jpeg"), ".bin"),
    "a program that says it is a picture": (ImageContent(data="TVqQAAM=", mime_type="image/png"), ".bin"),
    "a type that is a path": (ImageContent(data=PNG, mime_type="../../x/../sh"), ".bin"),
    "sound": (AudioContent(data=base64.b64encode(b"OggS...").decode(), mime_type="audio/ogg"), ".ogg"),
    "a blob": (EmbeddedResource(uri="file:///../../etc/passwd", blob="AAEC", mime_type="application/x-sh"), ".bin"),
    "no base64": (ImageContent(data="%%%", mime_type="image/png"), ""),
    "nothing": (ImageContent(data="", mime_type="image/png"), ""),
    "text": (EmbeddedResource(uri="x://1", text="hi"), ""),
}


@pytest.mark.parametrize("case", DATA)
def test_data_is_written_under_a_name_of_ours(case: str, tmp_path: Path) -> None:
    block, ending = DATA[case]
    folder = tmp_path / "files"
    (written,) = kept(ToolResult(content=(block,)), folder).content
    path = getattr(written, "path", "")
    assert [str(file) for file in folder.glob("*")] == ([path] if ending else [])
    if ending:
        assert re.fullmatch(rf"[0-9a-f]{{16}}\{ending}", Path(path).name)
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert kept(ToolResult(content=(block,)), folder).content == (written,), "the same data is the same file"
    assert kept(ToolResult(content=(block,)), None).content == (block,)


def test_data_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xmlcall.agent.run_call.LARGEST_FILE", 100)
    large = ImageContent(data=base64.b64encode(b"x" * 200).decode(), mime_type="image/png")
    many = [ImageContent(data=base64.b64encode(bytes([number])).decode(), mime_type="x") for number in range(50)]
    result = kept(ToolResult(content=(large, *many)), tmp_path / "files")
    assert [bool(getattr(block, "path", "")) for block in result.content] == [False, *[True] * 20, *[False] * 30]


def test_data_that_cannot_be_written_is_only_named(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("a file in the place of the folder")
    result = ToolResult(content=(ImageContent(data=PNG, mime_type="image/png"),))
    assert kept(result, tmp_path / "files") == result


def test_pictures_for_a_model_are_what_they_say_and_few() -> None:
    good = ImageContent(data=PNG, mime_type="image/png")
    bad = (
        ImageContent(data="TVqQAAM=", mime_type="image/png"),
        ImageContent(data=PNG, mime_type="image/svg+xml"),
        ImageContent(data=PNG, mime_type="image/png", audience=("user",)),
        TextContent(text="x"),
    )
    assert pictures([ToolResult(content=(*bad, good)), ToolResult(content=(good,) * 9)]) == (f"data:image/png;base64,{PNG}",) * 4


@pytest.mark.parametrize("sees", [True, False, None])
async def test_a_picture_goes_to_a_model_that_sees_and_to_a_file(sees: bool | None, tmp_path: Path) -> None:
    def cover() -> ToolResult:
        """Show a cover."""
        remark = TextContent(text="for the person", audience=("user",))
        return ToolResult(content=(ImageContent(data=PNG, mime_type="image/png"), remark, TextContent(text="for the model")))

    replies, folder = [call("cover"), "Blue."], tmp_path / "files"
    events, backend = await run(replies, [LocalHost([cover])], capabilities=capable(sees=sees), files=folder)
    message = backend.requests[1].messages[-1]
    (file,) = (tmp_path / "files").glob("*.png")
    assert f"written to the file {file}]" in message.content
    assert "for the model" in message.content
    assert "for the person" not in message.content
    assert len(message.images) == (1 if sees else 0)
    assert all(url.startswith("data:image/png;base64,iVBOR") for url in message.images)
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert answer.text == "Blue."
