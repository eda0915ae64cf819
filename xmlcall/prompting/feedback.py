"""Reports the outcome of a reply's calls to the model: results, and what is wrong with calls that cannot run.

The answer to a call that cannot run has its issues, the parameters of the tool that was meant, the person's request once more,
and the call as it should look: correct parts are kept, and dots replace missing or wrong values. A small model copies what it
sees. With example values in place of the dots, it called with those; without the request in view, it made values up (measured,
benchmarks/results/repair.md).
"""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import regex

from ..dialects.inert import inert_frame, inert_text
from ..dialects.result_form import ERROR_WORDS
from ..dialects.write import write
from ..tools.catalog import Catalog, Tools
from ..tools.names import match_name
from ..tools.outline import alternatives_of, parameters_of, rules_for
from ..types.calls import MISSING, InvalidCall, Issue, Message, Speaker, Tool, ToolCall, ToolReply, ToolResult, Written
from .format import ENGLISH, PromptFormat
from .results import result_text

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
