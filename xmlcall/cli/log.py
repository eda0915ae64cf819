"""`xmlcall log`: the conversations that were kept."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..errors import UsageError
from ..records.as_json import message_to_json
from ..records.folder import audit_path, store_path
from ..records.store import ConversationSummary, Store
from ..turns.kept import turns_of
from ..turns.model import turn_to_json
from .exits import FAILED, OK
from .jsonform import json_text
from .log_markdown import markdown
from .plain import plain, shortened, visible

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

DESCRIPTION = "List, show, search, export and delete the conversations of `run` and `chat`, and read their replies again."
EPILOG = """examples:
  xmlcall log list
  xmlcall log search london weather
  xmlcall log export 3f2a > conversation.md
  xmlcall log replay 3f2a
  xmlcall log delete 3f2a
  xmlcall chat --resume 3f2a

ID is the beginning of an id of the list. Conversations and the audit of their calls are kept in $XMLCALL_RECORDS, else in the
user's data folder: `xmlcall log path`. Only you can read them. --no-record of `run` and `chat` keeps nothing.
"""

_SNIPPET = 160  # characters of a message that was found

_SHOWN = 20  # lines of arguments and results in `show`; `export` has all


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list", json=False)
    for action, (_, summary, takes) in _ACTIONS.items():
        added = actions.add_parser(action, description=f"{summary[0].upper()}{summary[1:]}.", help=summary)
        if takes == "ID":
            added.add_argument("id", metavar="ID", help="the beginning of an id of `xmlcall log list`")
        elif takes == "IDS":
            added.add_argument("id", metavar="ID", nargs="*", help="the beginning of an id of `xmlcall log list`")
            added.add_argument("--all", action="store_true", help="all of them")
        elif takes:
            added.add_argument("words", metavar=takes, nargs="+", help="all have to stand in one message, in any case")
        added.add_argument("--json", action="store_true", help="print JSON")


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    with Store(store_path()) as store:
        return _ACTIONS[options.action or "list"][0](options, store)


def _list(options: argparse.Namespace, store: Store) -> int:
    found = store.listed()
    if options.json:
        print(json_text([asdict(each) for each in found]))
        return OK
    for each in found:
        print(_line(each))
    return OK


def _line(found: ConversationSummary) -> str:
    return visible(f"{found.id}  {found.changed[:16].replace('T', ' ')}  {found.messages:4}  {found.title}")


def _show(options: argparse.Namespace, store: Store) -> int:
    found = store.find(options.id)
    if options.json:
        print(json_text(_all_of(found, store)))
    else:
        lines = _SHOWN if options.action == "show" else None
        print(markdown(found, turns_of(store, found.id), lines=lines), end="")
    return OK


def _all_of(found: ConversationSummary, store: Store) -> dict[str, Any]:
    events = store.events(found.id)
    tools = {event.body["tools"]: store.tools(event.body["tools"]) for event in events if event.kind == "asked"}
    messages = [message_to_json(message) for message in store.messages(found.id)]
    turns = [turn_to_json(turn) for turn in turns_of(store, found.id)]
    return asdict(found) | {"messages": messages, "turns": turns, "events": [asdict(event) for event in events], "tools": tools}


def _search(options: argparse.Namespace, store: Store) -> int:
    is_found, told = False, []
    try:
        for found, place, message in store.search(options.words):
            is_found = True
            if options.json:
                told.append({"id": found.id, "message": place, "role": message.role, "content": message.content})
                continue
            folded = message.content.casefold()
            start = max(folded.find(options.words[0].casefold()) - _SNIPPET // 4, 0)
            snippet = plain(message.content)[start : start + _SNIPPET].replace("\n", " ")
            print(f"{_line(found)}\n    {place} {message.role}: {shortened(snippet, lines=1, width=_SNIPPET)}")
    finally:  # also where a conversation is damaged, which is told behind the others
        if options.json:
            print(json_text(told))
    return OK if is_found else FAILED


def _replay(options: argparse.Namespace, store: Store) -> int:
    from .log_replay import replayed

    found = store.find(options.id)
    replies = list(replayed(store, store.events(found.id)))
    changed = [each for each in replies if each["differences"]]
    if options.json:
        print(json_text({"id": found.id, "replies": replies, "changed": len(changed)}))
    else:
        for each in changed:
            for difference in each["differences"]:
                print(f"reply {each['reply']}, call {difference['call']}:")
                for side in ("was", "is"):
                    print(f"  {side:3}  {json_text(difference[side], indent=None) if difference[side] else 'no call'}")
        print(f"{len(replies)} replies read again, {len(changed)} differ")
    return FAILED if changed else OK


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
    told = {"conversations": str(store.path), "audit": str(audit_path())}
    print(json_text(told) if options.json else "\n".join(told.values()))
    return OK


# Action -> what runs it, its summary, what it takes.
_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace, Store], int], str, str]] = {
    "list": (_list, "list the conversations, the last one first: id, time (UTC), number of messages, first words", ""),
    "show": (
        _show,
        "show a conversation: what was asked, what was called, how it was read, where values came from, what came of it",
        "ID",
    ),
    "search": (_search, "find messages by words", "WORD"),
    "export": (_show, "print a conversation as Markdown, or with --json with all that is kept of it", "ID"),
    "replay": (_replay, "read the kept replies of a conversation again, and say what differs; exit 1 if something does", "ID"),
    "delete": (_delete, "delete conversations", "IDS"),
    "path": (_path, "print where conversations and audit are", ""),
}
