"""Writes a tool's result as text for a text model: content that it cannot see is named, never dropped silently.

The model receives only the beginning and the end of a long result, and requests the rest piece by piece. The conversation keeps
every result whole; only the messages that are sent are cut (`fit_context`). So nothing is stored here: a handle is a digest of
the result's text, and the text is found in the conversation, even in one that was saved and continues elsewhere.

A picture is sent, to a model that can see, only if its first bytes match its declared type.
"""

import base64
import binascii
import difflib
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import regex

from ..dialects.call_signs import inert_frame, inert_text
from ..dialects.dialect import ERROR_WORDS
from ..dialects.write import named_results, write
from ..errors import FailureReason
from ..tools.catalog import Catalog, Tools, match_name
from ..tools.outline import alternatives_of, parameters_of, rules_for
from ..types.calls import (
    MISSING,
    AudioContent,
    Content,
    EmbeddedResource,
    ImageContent,
    InvalidCall,
    Issue,
    Message,
    OtherContent,
    ResourceLink,
    Speaker,
    TextContent,
    Tool,
    ToolCall,
    ToolReply,
    ToolResult,
    Written,
)
from ..types.served import Resource, ResourceTemplate
from .format import ENGLISH, PromptFormat
from .system import CHARACTERS_A_TOKEN, tokens_of

_LONGEST_DESCRIPTION = 200  # characters

Reader = Literal["user", "assistant"]

LONG: Final = 2000
"""Characters from which a result may be sent only in part, so that the model may request the rest."""

_HANDLE_DIGITS: Final = 6
_NEAR: Final = 4  # cut at a line end only in the last quarter of the kept text, so that no more than that is lost

LARGEST_PICTURE: Final = 5_000_000
MOST_PICTURES: Final = 4

# Type -> its first bytes and its file suffix. "\0" means any byte.
PICTURES: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n", ".png"),
    "image/jpeg": (b"\xff\xd8\xff", ".jpg"),
    "image/gif": (b"GIF8", ".gif"),
    "image/webp": (b"RIFF\0\0\0\0WEBP", ".webp"),
}


def result_text(result: ToolResult, format: PromptFormat = ENGLISH, *, reader: Reader = "assistant") -> str:
    """Write a result as text, for the model (`assistant`) or the person (`user`), without content that is only for the other one.

    Structured content is added unless a text block repeats it, as servers should (MCP 2025-11-25, annotations and tools).
    """
    blocks = [block for block in result.content if not block.audience or reader in block.audience]
    parts = [_WRITERS[type(block)](block, format) for block in blocks]
    if result.structured_content is not MISSING and not _is_said(result.structured_content, blocks):
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts) if parts else _named("hidden" if result.content else "nothing", format)


def _is_said(structured: Any, blocks: Iterable[Content]) -> bool:
    """Say whether text blocks already contain a structured value as JSON.

    FastMCP wraps values other than objects in `{"result": ...}`, and server-filesystem wraps a text in `{"content": ...}`. The
    text block then has the bare value, and a list has a text block for each item.
    """
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    bare = next(iter(structured.values())) if isinstance(structured, dict) and len(structured) == 1 else structured
    if isinstance(bare, str) and (bare in texts or bare == "\n".join(texts)):
        return True
    values = [_json_of(text) for text in texts]
    if any(value in (structured, bare) for value in values):
        return True
    if not isinstance(bare, list) or not 0 < len(bare) <= len(texts):
        return False
    pairs = zip(bare, texts, values, strict=False)
    return all(item in (text, value) for item, text, value in pairs)


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return MISSING


def mismatch(problem: str, format: PromptFormat) -> str:
    """Render that a structured result violates its tool's output schema."""
    return _named("mismatch", format, problem=problem)


def unchecked(format: PromptFormat) -> str:
    """Render that a structured result could not be checked, because its tool's output schema is unusable."""
    return _named("unchecked", format)


def resource_list(
    resources: Sequence[Resource],
    templates: Sequence[ResourceTemplate],
    notices: Iterable[str],
    format: PromptFormat,
    *,
    limit: int,
) -> str:
    """List resources for a model, one on each line."""

    def words(part: str, **values: Any) -> str:
        return format.render("own_tools", part=part, **values).strip()

    def lines(items: Sequence[tuple[str, Resource | ResourceTemplate]]) -> list[str]:
        shown = [_resource_line(uri, item) for uri, item in items[:limit]]
        return [*shown, *([words("not_shown", count=len(items) - limit)] if len(items) > limit else [])]

    rows = lines([(resource.uri, resource) for resource in resources])
    if templates:
        rows += [words("template"), *lines([(template.uri_template, template) for template in templates])]
    return "\n".join([*(rows or [words("none")]), *notices])


def _resource_line(uri: str, item: Resource | ResourceTemplate) -> str:
    name = item.title or item.name
    details = (item.mime_type, " ".join(item.description.split())[:_LONGEST_DESCRIPTION])
    label = ": ".join(part for part in (name if name != uri else "", ", ".join(filter(None, details))) if part)
    return f"- {uri}{f' {label}' if label else ''}"


def denial(kind: str, format: PromptFormat, *, count: int = 0, why: str = "") -> str:
    """Render why a valid call did not run.

    Args:
        kind: `not_allowed`, `said_no` (by the person), `no_answer` (from the person), `nobody` (there is no person to ask),
            `nobody_rule` (a rule requires asking, but there is no person), `unsaid` (values, and no person to ask for them),
            `repeated` or `gone` (the tool).
        why: the person's reason for a no, in their words; without a person, the line that would allow the call, the rule,
            or the parameters.
    """
    return format.render("denied_call", kind=kind, count=count, why=why).strip()


def failure(kind: FailureReason, format: PromptFormat, *, said: str = "") -> str:
    """Render, in place of a result, that a tool's server failed, without anything that the server printed."""
    return format.render("failed_call", kind=kind, said=said).strip()


def not_run(reason: str, format: PromptFormat) -> str:
    """Render, in place of a result, that a call did not run."""
    return format.render("not_run", reason=reason).strip()


def stopped(kind: str, format: PromptFormat) -> str:
    """Render what became of a call (`running`, `not_begun`, or `cancelled` by its server) or an `answer` when its turn ended."""
    return format.render("stopped", kind=kind).strip()


def _named(kind: str, format: PromptFormat, **values: Any) -> str:
    return format.render("content", kind=kind, **values).strip()


def _size(base64_text: str) -> int:
    return len(base64_text) * 3 // 4


def _link(block: ResourceLink, format: PromptFormat) -> str:
    details = ", ".join(part for part in (block.mime_type, block.description) if part)
    return _named("link", format, name=block.name or block.uri, uri=block.uri, details=details)


def _embedded(block: EmbeddedResource, format: PromptFormat) -> str:
    if block.text is not None:
        return f"{_named('embedded', format, uri=block.uri)}\n{block.text}"
    return _named("binary", format, uri=block.uri, type=block.mime_type, size=_size(block.blob or ""), path=block.path)


_WRITERS: dict[type[Content], Callable[[Any, PromptFormat], str]] = {
    TextContent: lambda block, format: block.text,
    ImageContent: lambda block, format: _named("image", format, type=block.mime_type, size=_size(block.data), path=block.path),
    AudioContent: lambda block, format: _named("audio", format, type=block.mime_type, size=_size(block.data), path=block.path),
    ResourceLink: _link,
    EmbeddedResource: _embedded,
    OtherContent: lambda block, format: json.dumps(dict(block.raw), ensure_ascii=False, default=str),
}


def handle_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HANDLE_DIGITS]


def texts_of(messages: Iterable[Message]) -> list[str]:
    return [text for message in messages for _, text in named_results(message)]


def result_with(handle: str, messages: Sequence[Message]) -> str | None:
    texts = (text for text in reversed(texts_of(messages)) if len(text) > _HANDLE_DIGITS)
    return next((text for text in texts if handle_of(text) == handle.strip().lower()), None)


def piece_tokens(context_length: int | None) -> int:
    """Return the maximum length of a piece in tokens: an eighth of the context."""
    return 1024 if context_length is None else max(context_length // 8, 128)


def piece(text: str, start: int, tokens: int) -> str:
    """Return as much of a text as `tokens` allows, up to a line end if one is near."""
    found = text[start : start + round(tokens * CHARACTERS_A_TOKEN)]
    while (size := tokens_of(found)) > tokens and len(found) > 1:
        found = found[: max(int(len(found) * tokens / size), 1)]
    whole = start + len(found) == len(text)
    return found if whole else found[: line_end(found, len(found))]


def line_end(text: str, end: int) -> int:
    """Return where to end a text's beginning: after the last line end before `end` if one is near, else at `end`."""
    found = text.rfind("\n", end - end // _NEAR, end)
    return end if found < 0 else found + 1


def line_start(text: str, start: int) -> int:
    """Return where to begin a text's end: after the first line end from `start` if one is near, else at `start`."""
    found = text.find("\n", start, start + (len(text) - start) // _NEAR)
    return start if found < 0 else found + 1


def pictures(results: Iterable[ToolResult]) -> tuple[str, ...]:
    """Return the pictures in results for a model that can see, as `data:` URLs, except those only for the person."""
    blocks = [block for result in results for block in result.content if isinstance(block, ImageContent)]
    shown = (block for block in blocks if not block.audience or "assistant" in block.audience)
    urls = [f"data:{block.mime_type};base64,{block.data}" for block in shown if _is_picture(block)]
    return tuple(urls[:MOST_PICTURES])


def _is_picture(block: ImageContent) -> bool:
    data = decoded(block.data, LARGEST_PICTURE) if block.mime_type in PICTURES else None
    return data is not None and begins(data, PICTURES[block.mime_type][0])


def begins(data: bytes, begin: bytes) -> bool:
    """Say whether data has these first bytes; a zero in `begin` matches any byte."""
    return len(data) >= len(begin) and all(wanted in (0, byte) for wanted, byte in zip(begin, data, strict=False))


def decoded(text: str, largest: int) -> bytes | None:
    """Decode base64; return None if it is invalid or larger than allowed."""
    if not text or len(text) * 3 // 4 > largest + 2:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


# -- feedback ----------------------------------------------------------------------------------------------------------
# Reports the outcome of a reply's calls to the model: results, and what is wrong with calls that cannot run.
#
# The answer to a call that cannot run has its issues, the parameters of the tool that was meant, the person's request once more,
# and the call as it should look: correct parts are kept, and dots replace missing or wrong values. A small model copies what it
# sees. With example values in place of the dots, it called with those; without the request in view, it made values up (measured,
# benchmarks/results/repair.md).


Answered = list[tuple[ToolCall | InvalidCall, ToolResult | None]]
"""The calls of a reply in order, each with its result; a call that cannot run has none."""

_DOTS = "..."
_LONGEST_REQUEST = 2000  # characters; a longer one is not repeated
_LIKENESS = 0.6  # least similarity of names, by difflib; below this, another tool is meant

_MEMBER = regex.compile(r"\$(?:\.([^.\[]+)|\['([^']*)'\])")


def results(
    answered: Iterable[tuple[ToolCall | InvalidCall, ToolResult | None]],
    tools: Tools = (),
    format: PromptFormat = ENGLISH,
    *,
    again: Collection[str] = (),
    repeated: Collection[str] = (),
    request: str = "",
    waiting: tuple[ToolCall, Sequence[str]] | None = None,
) -> Message:
    """Write the outcome of a reply's calls, in their order, as a message of role `user`; an InvalidCall gets feedback.

    `again` are ids of calls that the model wrote again after feedback about the same mistake, `repeated` of those that it wrote
    more than once and that ran once. `waiting` is a call that waited for these results, and the JSON paths of the values that it
    must take from them.
    """
    catalog, answered = Catalog.of(tools), list(answered)

    def item(call: ToolCall | InvalidCall, result: ToolResult | None) -> tuple[str, str, bool]:
        if isinstance(call, InvalidCall):
            return _item(call, _issues(call, catalog, format, again=call.id in again), format, failed=True)
        assert result is not None
        text = inert_text(result_text(result, format), catalog, format.row.results)
        text = f"{text}\n{format.render('repeated')}" if call.id in repeated else text
        return _item(call, text, format, failed=result.is_error)

    items = [item(call, result) for call, result in answered]
    invalid = [call for call, _ in answered if isinstance(call, InvalidCall)]
    asked = [_retry(invalid, catalog, format, request)] if invalid else []
    asked += [_again(*waiting, catalog, format)] if waiting else []
    frame = format.row.results.write(items)
    text = format.render("results", frame=frame.text, retry="\n\n".join(asked))
    replies = (replace(reply, by=_by(result)) for reply, (_, result) in zip(frame.replies, answered, strict=True))
    return Message(role="user", content=text, written=replace(frame, text=text, replies=tuple(replies)))


def native_results(
    answered: Iterable[tuple[ToolCall | InvalidCall, ToolResult | None]],
    tools: Tools = (),
    format: PromptFormat = ENGLISH,
    *,
    again: Collection[str] = (),
    request: str = "",
) -> list[Message]:
    """Write the outcome of native calls, as one message of role `tool` for each; see `results`."""

    def message(call: ToolCall | InvalidCall, result: ToolResult | None) -> Message:
        if isinstance(call, InvalidCall):
            text = feedback(call, tools, format, again=call.id in again, request=request, is_native=True)
        else:
            text = result_text(result, format) if result is not None else ""
        written = Written(text=text, replies=(ToolReply(name=call.name, start=0, end=len(text), by=_by(result)),))
        return Message(role="tool", content=text, tool_call_id=call.id, name=call.name, written=written)

    return [message(call, result) for call, result in answered]


def _by(result: ToolResult | None) -> Speaker:
    return "program" if result is None else result.by


def _item(call: ToolCall | InvalidCall, text: str, format: PromptFormat, *, failed: bool) -> tuple[str, str, bool]:
    """Return a result as it is written; if the form has no mark for errors, a word marks them."""
    if failed and not format.row.results.error_open:
        text = f"{ERROR_WORDS[format.lang]} {text}"
    return inert_frame(call.name, format.row.results), text, failed


def feedback(
    call: InvalidCall,
    tools: Tools = (),
    format: PromptFormat = ENGLISH,
    *,
    again: bool = False,
    request: str = "",
    is_native: bool = False,
) -> str:
    """Render what is wrong with a call, and how it should be written; if the model wrote it `again`, with the tool's description.

    If the server writes calls in the model's own format, no wire format of ours is shown.
    """
    catalog = Catalog.of(tools)
    retry = _retry([call], catalog, format, request, is_native=is_native)
    return f"{_issues(call, catalog, format, again=again)}\n\n{retry}"


def _issues(call: InvalidCall, catalog: Catalog, format: PromptFormat, *, again: bool) -> str:
    is_copied = _is_copied(call)
    tool = None if is_copied else _meant(call, catalog)
    parameters = parameters_of(tool) if tool else ()
    names = [part.name for part in parameters]
    sentences = (_sentence(issue, call, names, format) for issue in call.issues)
    rules = rules_for(tool) if tool else ()
    values = {"tool": tool, "parameters": parameters, "rules": rules, "again": again and not is_copied}
    text = format.render("feedback", issues=list(sentences), **values)
    return inert_text(text.strip(), catalog, format.row.results)


def _sentence(issue: Issue, call: InvalidCall, names: Sequence[str], format: PromptFormat) -> str:
    """Describe an issue from its code and fields; in English this is its message, which people read, too."""
    place = "" if issue.path == "$" else f"{issue.path}: "
    is_of_text, is_declared = issue in call.raw.issues, issue.path.removeprefix("$.") in names
    return place + format.render("issue", issue=issue, is_of_text=is_of_text, is_declared=is_declared).strip()


def _retry(calls: Iterable[InvalidCall], catalog: Catalog, format: PromptFormat, request: str, *, is_native: bool = False) -> str:
    """Render the request to write calls again, or to drop a call that was copied from somebody else's text."""
    calls = list(calls)
    copied = any(map(_is_copied, calls))
    unsaid = _unsaid(calls)
    shown = [] if is_native or unsaid else [found for call in calls if (found := _correct(call, _meant(call, catalog)))]
    example = _example(shown, catalog, format) if shown else ""
    request = inert_text(request.strip() if len(request) <= _LONGEST_REQUEST else "", catalog, format.row.results)
    has_dots = any(_DOTS in arguments.values() for _, arguments in shown)
    form = {"has_dots": has_dots, "is_native": is_native, "catalog": catalog}
    return format.render("retry", request=request, example=example, unsaid=unsaid, copied=copied, **form).strip()


def _example(calls: Iterable[tuple[str, Mapping[str, Any]]], catalog: Catalog, format: PromptFormat) -> str:
    """Write calls as they should look; values are the model's own, but parameter names come from a server and are made inert."""
    form = format.row.results
    shown = [(name, {inert_text(key, catalog, form): value for key, value in arguments.items()}) for name, arguments in calls]
    return write(shown, catalog, format.row)


def _unsaid(calls: Iterable[InvalidCall]) -> list[str]:
    issues = [issue for call in calls for issue in call.issues]
    names = dict.fromkeys(issue.path.removeprefix("$.") for issue in issues)
    return list(names) if all(issue.code == "not-said" for issue in issues) else []


def _again(call: ToolCall, paths: Iterable[str], catalog: Catalog, format: PromptFormat) -> str:
    found = (_MEMBER.match(path) for path in paths)
    open_names = {match[1] or match[2] for match in found if match}
    arguments = {name: _DOTS if name in open_names else value for name, value in call.arguments.items()}
    example = _example([(call.name, arguments)], catalog, format)
    return format.render("waiting", name=call.name, example=example, catalog=catalog).strip()


def _meant(call: InvalidCall, catalog: Catalog) -> Tool | None:
    """Return the tool that a call probably means; a similar name is enough, because this only asks the model and runs nothing."""
    names = catalog.names()
    near = difflib.get_close_matches(call.name, names, n=1, cutoff=_LIKENESS) if len(names) > 1 else list(names)
    return catalog.get(catalog.meant_by(call.name) or (near[0] if near else ""))


def _is_copied(call: InvalidCall) -> bool:
    """Say whether a whole call was copied: asking for it again would do what somebody else wants."""
    return any(issue.code == "echo" and issue.path == "$" for issue in call.issues)


def _correct(call: InvalidCall, tool: Tool | None) -> tuple[str, Mapping[str, Any]] | None:
    """Return the call as it should look; None if that is unknown."""
    codes = {issue.code for issue in call.issues}
    if tool is None or _is_copied(call):
        return None
    found = (_MEMBER.match(issue.path) for issue in call.issues)
    wrong = {match[1] or match[2] for match in found if match}
    if "truncated-call" in codes and call.raw.arguments:
        wrong.add(call.raw.arguments[-1].name)  # the value that was cut
    declared = parameters_of(tool)
    names = [part.name for part in declared]
    kept: dict[str, Any] = {}
    for each in call.raw.arguments:
        name = each.name if each.name in names else match_name(each.name, names)
        if name and not {name, each.name} & wrong:
            kept.setdefault(name, each.text if each.value is MISSING else each.value)
    needed = {part.name for part in declared if part.name in wrong or (part.required and part.name not in kept)}
    if whole := any(issue.path == "$" and issue.code == "invalid-value" for issue in call.issues):
        needed |= _settle(kept, alternatives_of(tool))
    shown = {name: kept.get(name, _DOTS) for name in names if name in kept or name in needed}
    return None if whole and shown.keys() == {each.name for each in call.raw.arguments} - wrong else (tool.name, shown)


def _settle(kept: dict[str, Any], alternatives: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the missing parameters of the alternative nearest to a call; remove from `kept` those of other complete ones."""
    if not alternatives:
        return frozenset()
    nearest = max(alternatives, key=lambda each: (each <= kept.keys(), len(each & kept.keys()), -len(each)))
    if nearest <= kept.keys():
        for name in frozenset().union(*(each for each in alternatives if each <= kept.keys())) - nearest:
            del kept[name]
    return nearest - kept.keys()
