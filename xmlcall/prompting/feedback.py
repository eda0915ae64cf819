"""What came of a reply's calls, told to the model: results, and what is wrong with calls that cannot run.

A call that cannot run is answered with its issues, the parameters of the tool that was meant, the person's request once more,
and the call as it should look: what was right is kept, and dots stand where a value is missing or wrong. A small model copies
what it sees: given example values in place of the dots, it called with those, and without the request before its eyes it made
values up (measured, benchmarks/results/repair.md).
"""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import regex

from ..dialects import select
from ..dialects.write import write
from ..tools.catalog import Catalog, Tools
from ..tools.names import match_name
from ..tools.outline import parameters_of
from ..types.calls import MISSING, InvalidCall, Tool, ToolCall, ToolResult
from .results import result_text
from .system import form, template

__all__ = ["feedback", "results"]

_DOTS = "..."
_LONGEST_REQUEST = 2000  # characters; a longer one is not said again
_LIKENESS = 0.6  # of names, by difflib; less is another tool

_MEMBER = regex.compile(r"\$(?:\.([^.\[]+)|\['([^']*)'\])")


def results(
    answered: Iterable[tuple[ToolCall | InvalidCall, ToolResult | None]],
    tools: Tools = (),
    *,
    dialect: str = "function_calls",
    lang: str = "en",
    again: Collection[str] = (),
    repeated: Collection[str] = (),
    request: str = "",
) -> str:
    """Render what came of a reply's calls, for a message of role `user`.

    Args:
        answered: each call with its result, in call order; an InvalidCall has none and gets feedback instead.
        tools: the catalog, for feedback.
        dialect: the wire format.
        lang: `en` or `zh`.
        again: ids of calls that the model had written before, although it was told what is wrong with them.
        repeated: ids of calls that the model wrote more than once and that ran once.
        request: the person's words, said again if there is feedback.
    """
    catalog, answered = Catalog.of(tools), list(answered)
    items = [
        _told_wrong(call, _issues(call, catalog, lang, again=call.id in again))
        if isinstance(call, InvalidCall)
        else _told(call, result, template(lang, "repeated").render() if call.id in repeated else "")
        for call, result in answered
    ]
    invalid = [call for call, _ in answered if isinstance(call, InvalidCall)]
    retry = _retry(invalid, catalog, dialect, lang, request) if invalid else ""
    return template(lang, "results").render(items=items, retry=retry)


def _told_wrong(call: InvalidCall, text: str) -> dict[str, Any]:
    return {"name": call.name, "error": True, "invalid": True, "text": text}


def _told(call: ToolCall, result: ToolResult | None, remark: str) -> dict[str, Any]:
    assert result is not None
    text = f"{result_text(result)}\n{remark}" if remark else result_text(result)
    return {"name": call.name, "error": result.is_error, "invalid": False, "text": text}


def feedback(
    call: InvalidCall,
    tools: Tools = (),
    *,
    dialect: str = "function_calls",
    lang: str = "en",
    again: bool = False,
    request: str = "",
) -> str:
    """Render what is wrong with a call, and how it should be written.

    Args:
        call: the call that did not run.
        tools: the catalog; the tool's parameters are shown again.
        dialect: the wire format.
        lang: `en` or `zh`.
        again: whether the model wrote the same call before; then the tool's description is shown, too.
        request: the person's words.
    """
    catalog = Catalog.of(tools)
    issues = _issues(call, catalog, lang, again=again)
    return f"{issues}\n\n{_retry([call], catalog, dialect, lang, request)}"


def _issues(call: InvalidCall, catalog: Catalog, lang: str, *, again: bool) -> str:
    tool = _meant(call, catalog)
    parameters = parameters_of(tool) if tool else ()
    return template(lang, "feedback").render(call=call, tool=tool, parameters=parameters, again=again).strip()


def _retry(calls: Iterable[InvalidCall], catalog: Catalog, dialect: str, lang: str, request: str) -> str:
    """Render the request to write calls once more."""
    shown = [found for call in calls if (found := _corrected(call, _meant(call, catalog)))]
    example = write(shown, catalog, select(dialect)[0]) if shown else ""
    request = _shown(request)
    has_dots = any(_DOTS in arguments.values() for _, arguments in shown)
    shown_form = form(dialect)
    return template(lang, "retry").render(request=request, example=example, has_dots=has_dots, form=shown_form).strip()


def _shown(request: str) -> str:
    """Return the person's words if they are short enough to be said again."""
    return request.strip() if len(request) <= _LONGEST_REQUEST else ""


def _meant(call: InvalidCall, catalog: Catalog) -> Tool | None:
    """Return the tool that a call is about, also if its name is not quite one of them: the model is asked, nothing runs."""
    names = catalog.names()
    near = difflib.get_close_matches(call.name, names, n=1, cutoff=_LIKENESS) if len(names) > 1 else list(names)
    return catalog.get(catalog.meant_by(call.name) or (near[0] if near else ""))


def _corrected(call: InvalidCall, tool: Tool | None) -> tuple[str, Mapping[str, Any]] | None:
    """Return the call as it should look; None if that cannot be said."""
    codes = {issue.code for issue in call.issues}
    copied = any(issue.code == "echo" and issue.path == "$" for issue in call.issues)
    if tool is None or copied:  # a call that was copied whole is not to be written again
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
    return tool.name, {name: kept.get(name, _DOTS) for name in names if name in kept or name in needed}
