"""`xmlcall log`: lists, searches and exports the kept conversations.

The Markdown is written from the records of the turns (`turn_records.record`), as the page and the JSON are. Texts by models,
tools and servers are put in fences that are longer than any run of backticks in them, so that they end where they end.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial
from typing import Any, Final

from ..dialects.write import says
from ..errors import UsageError
from ..records.folder import audit_path, store_path
from ..records.store import ConversationSummary, Store, message_to_json
from ..turn_records.kept import turns_of
from ..turn_records.record import CallRecord, MarkRecord, ReplyRecord, SourceRecord, TurnRecord, ValueRecord, record_to_json
from ..types.calls import Message
from .exits import FAILED, OK, complain
from .options import Action, takes
from .plain import fenced, json_text, plain, shortened, visible

DESCRIPTION = "List, show, search, export and delete the conversations of `run` and `chat`."
EPILOG = """examples:
  xmlcall log list
  xmlcall log search london weather
  xmlcall log export 3f2a > conversation.md
  xmlcall log delete 3f2a
  xmlcall chat --resume 3f2a

ID is the beginning of an id of the list. Conversations and the audit of their calls are kept in $XMLCALL_RECORDS, else in the
user's data folder: `xmlcall log path`. Only you can read them. --no-record of `run` and `chat` keeps nothing.
"""

_SNIPPET = 160  # characters of a message that was found
_SHOWN = 20  # lines of arguments and results in `show`; `export` has all
_WIDTH: Final = 1000  # characters of a line, where not all is shown
_OUTCOMES: Final = {
    "unknown": "unknown whether it ran",
    "held": "not run, it has to wait for results",
    "failed": "its server failed",
    "writing": "not written to its end",
}
_SOURCES: Final = {
    "person": "said by the person",
    "system": "in the instructions of the program",
    "schema": "in the tool's own description",
    "assistant": "from an earlier reply of the model",
    "invented": "nowhere in the conversation; the model made it up or worked it out",
}


def execute(options: argparse.Namespace) -> int:
    with Store(store_path()) as store:
        return ACTIONS[options.action].run(options, store)


def _list(options: argparse.Namespace, store: Store) -> int:
    found = store.listed()
    if options.json:
        print(json_text([asdict(each) for each in found]))
        return OK
    for each in found:
        print(_line(each))
    if not found:
        complain("no conversation is kept yet")
    return OK


def _line(found: ConversationSummary) -> str:
    return visible(f"{found.id}  {found.changed[:16].replace('T', ' ')}  {found.messages:4}  {found.title}")


def _show(options: argparse.Namespace, store: Store) -> int:
    found = store.find(options.id)
    if options.json:
        print(json_text(_all_of(found, store)))
    else:
        lines = _SHOWN if options.action == "show" else None
        print(_markdown(found, turns_of(store, found.id), lines=lines), end="")
    return OK


def _all_of(found: ConversationSummary, store: Store) -> dict[str, Any]:
    events = store.events(found.id)
    tools = {event.body["tools"]: store.tools(event.body["tools"]) for event in events if event.kind == "asked"}
    messages = [message_to_json(message) for message in store.messages(found.id)]
    turns = [record_to_json(turn) for turn in turns_of(store, found.id)]
    return asdict(found) | {"messages": messages, "turns": turns, "events": [asdict(event) for event in events], "tools": tools}


def _search(options: argparse.Namespace, store: Store) -> int:
    shown, rows = "", []
    questions_of = cache(partial(_questions, store))
    try:
        for found, place, message in store.search(options.words):
            content = _said(message, questions_of(found.id))
            folded = content.casefold()
            if not all(word.casefold() in folded for word in options.words):
                continue
            is_first, shown = found.id != shown, found.id
            if options.json:
                rows.append({"id": found.id, "message": place, "role": message.role, "content": content})
                continue
            start = max(folded.find(options.words[0].casefold()) - _SNIPPET // 4, 0)
            snippet = plain(content)[start : start + _SNIPPET].replace("\n", " ")
            heading = f"{_line(found)}\n" if is_first else ""
            print(f"{heading}    {place} {message.role}: {shortened(snippet, lines=1, width=_SNIPPET)}")
    finally:  # also where a conversation is damaged, which is reported after the others
        if options.json:
            print(json_text(rows))
    return OK if shown else FAILED


def _questions(store: Store, conversation: str) -> list[str]:
    asked = (event.body.get("text") for event in store.events(conversation) if event.kind == "asked")
    return [text for text in asked if isinstance(text, str) and text]


def _said(message: Message, questions: Sequence[str]) -> str:
    """Return a message's text; of a person's, the question without the reminder below it."""
    if message.role != "user":
        return message.content
    return max((text for text in questions if says(message, text)), key=len, default=message.content)


def _delete(options: argparse.Namespace, store: Store) -> int:
    if bool(options.id) == options.all:
        raise UsageError("expected the ids of conversations, or --all (see `xmlcall log list`)")
    ids = [each.id for each in (store.listed() if options.all else map(store.find, options.id))]
    for each in ids:
        store.hold(each)
    store.delete(ids)
    audit = audit_path()
    if options.json:
        print(json_text({"deleted": ids, "audit": str(audit)}))
        return OK
    print(f"deleted {len(ids)}: {', '.join(ids)}" if ids else "there is nothing to delete")
    if audit.exists():
        print(f"the audit is never changed and keeps its lines; to delete it, delete {audit}*", file=sys.stderr)
    return OK


def _path(options: argparse.Namespace, store: Store) -> int:
    paths = {"conversations": str(store.path), "audit": str(audit_path())}
    print(json_text(paths) if options.json else "\n".join(paths.values()))
    return OK


def _takes_several(parser: argparse.ArgumentParser) -> None:
    takes("id", nargs="*", help=_AN_ID)(parser)
    parser.add_argument("--all", action="store_true", help="all conversations")


_AN_ID: Final = "the beginning of an id from `xmlcall log list`"
ACTIONS: Final = {
    "list": Action(_list, "list the conversations, the last one first: id, time (UTC), number of messages, first words"),
    "show": Action(
        _show,
        "show a conversation: what was asked, what was called, how it was read, where values came from, and the outcome",
        takes("id", help=_AN_ID),
    ),
    "search": Action(
        _search,
        "find messages by words",
        takes("words", metavar="WORD", nargs="+", help="words that must all be in one message, upper or lower case"),
    ),
    "export": Action(
        _show, "print a conversation as Markdown, or with --json with all that is kept of it", takes("id", help=_AN_ID)
    ),
    "delete": Action(_delete, "delete conversations", _takes_several),
    "path": Action(_path, "print where conversations and audit are"),
}


def _markdown(found: ConversationSummary, turns: Sequence[TurnRecord], *, lines: int | None = None) -> str:
    """Write a conversation as Markdown, with at most `lines` of arguments and results."""
    parts = [f"# {_inline(found.title)}", f"{found.id}, begun {found.begun}, {_inline(found.model)}"]
    parts += [part for turn in turns for part in _turn(turn, lines)]
    return "\n\n".join(parts) + "\n"


def _turn(turn: TurnRecord, lines: int | None) -> Iterator[str]:
    yield f"## The person, {turn.began}"
    yield plain(turn.question).strip()
    for reply in turn.replies:
        yield from reply_in_markdown(reply, lines)
    if turn.outcome == "left":
        yield "The turn has no answer: it was stopped, or the program ended in the middle of it."
    elif turn.outcome not in ("", "end"):
        yield f"The turn ended without an answer: {_inline(turn.outcome)}."


def reply_in_markdown(reply: ReplyRecord, lines: int | None = None) -> Iterator[str]:
    why = f": {_inline(reply.refusal)}" if reply.refusal else ""
    yield "### The model" if reply.is_kept else f"### The model (not kept: it was asked again{why})"
    if text := plain(reply.text).strip():
        yield text
    in_calls = {mark.code for call in reply.calls for mark in call.repairs}
    if repairs := [mark for mark in reply.repairs if mark.code not in in_calls]:
        yield "\n".join(_repairs(repairs))
    for call in reply.calls:
        yield from _call(call, lines)


def _call(call: CallRecord, lines: int | None) -> Iterator[str]:
    target = f"{call.server}.{call.tool}" if call.server else call.name
    by = f" ({_inline(call.by)})" if call.by else ""
    took = f", {call.seconds:.2f} s" if call.seconds is not None else ""
    yield f"Call of `{_inline(target)}`: {_OUTCOMES.get(call.outcome, call.outcome)}{by}{took}"
    if call.arguments is None:
        yield _fenced(call.text, lines)
    else:
        yield _fenced(json_text(call.arguments), lines, "json")
    if call.ran_with is not None:
        yield "It ran with other arguments, as a person changed them:"
        yield _fenced(json_text(call.ran_with), lines, "json")
    if notes := [*_repairs(call.repairs), *_issues(call.issues), *_sources(call.values, lines)]:
        yield "\n".join(notes)
    for text in (call.result, call.reason, call.failure):
        if text:
            yield _fenced(text, lines)


def _repairs(repairs: Sequence[MarkRecord]) -> Iterator[str]:
    for code, why in {mark.code: mark.why for mark in repairs}.items():
        paths = dict.fromkeys(mark.path for mark in repairs if mark.code == code and mark.path)
        at = f" of `{_inline(', '.join(paths))}`" if paths else ""
        yield f"- Repair `{_inline(code)}`{at}: {_inline(why)}"


def _issues(issues: Sequence[MarkRecord]) -> Iterator[str]:
    for mark in issues:
        at = f" at `{_inline(mark.path)}`" if mark.path not in ("", "$") else ""
        yield f"- Mistake `{_inline(mark.code)}`{at}: {_inline(mark.why)}"


def _sources(values: Sequence[ValueRecord], lines: int | None) -> Iterator[str]:
    shown = [(value.path, value.source) for value in values if value.source and value.source.kind != "trivial"]
    for path, source in shown[:lines]:
        yield f"- `{_inline(path)}`: {_source(source)}"
    if lines is not None and len(shown) > lines:
        yield f"- ... and {len(shown) - lines} more values"


def _source(source: SourceRecord) -> str:
    if source.kind != "result":
        words = _SOURCES.get(source.kind, _inline(source.kind))
        return f"may be a translation of what the person wrote; if not: {words}" if source.may_be_translation else words
    of = f" of `{_inline(source.tool)}`" if source.tool else ""
    return f"from the result{of} (call {source.call})"


def _inline(text: str) -> str:
    return visible(text).replace("`", "'")


def _fenced(text: str, lines: int | None, language: str = "") -> str:
    return fenced(plain(text).strip("\n") if lines is None else shortened(text, lines=lines, width=_WIDTH), language)
