"""Shows what a call would change in a text, as a diff: of a file that it writes, or of a passage that it replaces.

The old text of a file comes from a read tool of the same server. That tool runs only if the rules allow exactly this read without
asking, its server declares it read-only, and it takes the same path. Otherwise the old text is what the conversation has shown of
the file, and a row says so. The passages are in the arguments. None of this is trusted: the amount compared and the rows are
limited, and the code that prints them makes them `visible`.

The conversation has shown a file in the result of an earlier call that read it, or in the text that was written to it. Calls are
stored beside the model's text, or are known to be in it (`Message.written`). Their results are in the next message, in order;
some formats leave out the names of the tools. If a call cannot be matched with its result with certainty, its result is unknown.
Results of native calls do not say whether they are errors, so they count. After a later call with the same path that neither
reads nor writes a whole text, the file is unknown again. The file itself may have changed since, so whoever shows such a text has
to say where it comes from.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..dialects.replies import replies_of
from ..errors import ToolHostError
from ..prompting.results import result_text
from ..types.calls import Message, RawCall, ToolCall, WrittenCall
from .policy import Proposal
from .rules import Rules

__all__ = ["difference", "file_change", "passages"]

_READERS: Final = frozenset({"read_file", "read_text_file", "get_file_contents", "view_file", "get_file"})
_WRITES: Final = ("write", "create", "save", "update", "put", "overwrite")  # how the names of tools that write files begin
_PATHS: Final = ("path", "file_path", "filepath", "filename", "file")
_TEXTS: Final = ("content", "contents", "text", "file_text", "data")
_PAIRS: Final = (("oldText", "newText"), ("old_text", "new_text"), ("old_str", "new_str"), ("old_string", "new_string"))
_MOST_LINES: Final = 1000  # of either text; comparing takes quadratic time
_MOST_CHARACTERS: Final = 200_000  # of either text
_ROWS: Final = 60
_ROW_WIDTH: Final = 300  # characters
_SECONDS: Final = 5.0


def difference(old: str, new: str) -> list[str]:
    """Return the rows of a unified diff, limited in number; none if nothing changes."""
    if old == new:
        return []
    if max(len(old), len(new)) > _MOST_CHARACTERS:
        return [f"({len(old):,} characters become {len(new):,}: too many to compare)"]
    before, after = old.split("\n"), new.split("\n")
    if max(len(before), len(after)) > _MOST_LINES:
        return [f"({len(before):,} lines become {len(after):,}: too many to compare)"]
    compared = [*difflib.unified_diff(before, after, lineterm="", n=1)][2:]  # without the header with the file names
    rows = [row if len(row) <= _ROW_WIDTH else f"{row[:_ROW_WIDTH]}... ({len(row):,} characters)" for row in compared]
    return rows if len(rows) <= _ROWS else [*rows[:_ROWS], f"... ({len(rows) - _ROWS} more rows)"]


def passages(arguments: Mapping[str, Any]) -> list[str]:
    """Return the diff of the passages that a call replaces, with pairs of texts in its arguments; none if it replaces none."""
    rows: list[str] = []
    edits = [arguments, *(each for value in arguments.values() for each in (value if isinstance(value, list) else [value]))]
    for edit in edits:
        for old, new in _PAIRS:
            if isinstance(edit, Mapping) and isinstance(edit.get(old), str) and isinstance(edit.get(new), str):
                rows += difference(edit[old], edit[new])
    return rows[:_ROWS]


async def file_change(proposal: Proposal, rules: Rules) -> list[str]:
    """Return the diff of writing a file; none if the call writes no file, or the old text is unknown."""
    arguments = proposal.call.arguments
    path = next((name for name in _PATHS if isinstance(arguments.get(name), str)), None)
    text = next((name for name in _TEXTS if isinstance(arguments.get(name), str)), None)
    if path is None or text is None or not proposal.host_tool.startswith(_WRITES):
        return []
    for name, tool in proposal.beside.items():
        properties = tool.input_schema.get("properties", {})
        given = {key: value for key, value in arguments.items() if key in properties and key != text}
        if name not in _READERS or path not in given or {*tool.input_schema.get("required", ())} - given.keys():
            continue
        raw = RawCall(index=0, name=tool.name)
        call = ToolCall(id=f"{proposal.call.id}_before", name=tool.name, arguments=given, raw=raw)
        ruling = rules.judge(replace(proposal, call=call, tool=tool, host_tool=name))
        if (tool.annotations or {}).get("readOnlyHint") is not True or ruling.effect != "allow" or ruling.rule is None:
            continue
        try:
            result = await proposal.run_beside(call, ruling.rule.name, _SECONDS)
        except ToolHostError:
            return []
        return [] if result.is_error else difference(result_text(result), arguments[text])
    shown = _shown_before(proposal, _READERS, path, text)
    if shown is None:
        return []
    rows = difference(shown.text, arguments[text])
    return rows and [f"(the old text is from an earlier {shown.tool}: the file was not read again)", *rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The text of a file, and the tool call that showed it."""

    tool: str
    text: str


def _shown_before(proposal: Proposal, readers: Collection[str], path: str, text: str) -> _Shown | None:
    """Find the last known text of the file that a call is about to write."""
    wanted, own = proposal.call.arguments[path], {tool.name: name for name, tool in proposal.beside.items()}
    known: _Shown | None = None
    for called, arguments, result in _calls(proposal.conversation):
        name = own.get(called, "")
        if not name or wanted not in arguments.values():
            continue
        if name in readers:
            is_whole = result is not None and list(arguments.values()) == [wanted]
            known = _Shown(tool=name, text=result or "") if is_whole else known
        else:
            is_write = name == proposal.host_tool and result is not None and isinstance(arguments.get(text), str)
            known = _Shown(tool=name, text=arguments[text]) if is_write else None
    return known


def _calls(messages: Sequence[Message]) -> Iterator[tuple[str, Mapping[str, Any], str | None]]:
    """Yield name, arguments and result of each call in a conversation; the result is None if it is unknown."""
    for place, message in enumerate(messages):
        if message.tool_calls:
            result_of = {each.tool_call_id: each.content for each in messages[place + 1 :] if each.role == "tool"}
            yield from ((call.name, call.arguments, result_of.get(call.id)) for call in message.tool_calls)
        elif message.role == "assistant" and message.written is not None and message.written.text == message.content:
            calls = message.written.calls
            results = zip(calls, _results(calls, messages[place + 1 : place + 2]), strict=True)
            yield from ((call.name, call.arguments, result) for call, result in results if call.arguments is not None)


def _results(calls: Sequence[WrittenCall], later: Sequence[Message]) -> list[str | None]:
    """Return the result of each call, from the next message; all are None if calls and results do not match."""
    replies = replies_of(later[0]) if later and later[0].role == "user" else ()
    pairs = zip(replies, calls, strict=False)
    if len(replies) != len(calls) or any(not reply.is_ended or reply.name not in ("", call.name) for reply, call in pairs):
        return [None] * len(calls)
    return [None if reply.is_error else reply.text_in(later[0].content) for reply in replies]
