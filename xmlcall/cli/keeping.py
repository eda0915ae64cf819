"""What `run` and `chat` keep: the conversation and the audit of its calls; and which conversation is gone on with."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from ..errors import UsageError
from ..records.audit import AuditFile
from ..records.folder import audit_path, store_path
from ..records.store import Store
from ..turns.keeping import Keeper
from .display import Display
from .lines import LineReader, is_interactive
from .plain import visible

__all__ = ["add_record_options", "audit_path", "chosen", "kept", "store_path"]

_CHOICES: Final = 10  # conversations to choose from


def add_record_options(parser: argparse.ArgumentParser, *, resumes: bool = False) -> None:
    """Declare what is kept, and with what a conversation goes on."""
    records = parser.add_argument_group("records")
    which = records.add_mutually_exclusive_group()
    which.add_argument(
        "--no-record", action="store_true", help="keep nothing of the conversation and its calls (see `xmlcall log`)"
    )
    if resumes:
        which.add_argument(
            "--resume",
            nargs="?",
            const="",
            metavar="ID",
            help="go on with a conversation of `xmlcall log list`; without ID choose one (without a terminal: the newest)",
        )
        which.add_argument("--continue", dest="continues", action="store_true", help="go on with the newest conversation")
    records.add_argument(
        "--audit",
        metavar="FILE",
        help="append a line for each call, before it runs and after, to this file (default: audit.jsonl in the folder of "
        "records; --no-record has none)",
    )


@contextmanager
def kept(options: argparse.Namespace) -> Iterator[Keeper]:
    """Open what a command keeps."""
    with ExitStack() as stack:
        store = None if options.no_record else stack.enter_context(Store(store_path()))
        path = options.audit or (None if options.no_record else audit_path())
        yield Keeper(store, AuditFile(path) if path else None)


async def chosen(keeper: Keeper, options: argparse.Namespace, display: Display) -> None:
    """Take the conversation that is to be gone on with, if one is; the person is asked where they named none."""
    asked_for = getattr(options, "resume", None)
    if keeper.store is None or (asked_for is None and not getattr(options, "continues", False)):
        return
    if options.system is not None:
        raise UsageError("--system begins a new conversation: it does not go with --resume and --continue")
    if asked_for:
        keeper.resume(keeper.store.find(asked_for).id)
        return
    found = keeper.store.listed(_CHOICES)
    if not found:
        raise UsageError("there is no conversation to go on with yet")
    place = 1
    if asked_for is not None and is_interactive() and len(found) > 1:
        for number, each in enumerate(found, start=1):
            display.line("", visible(f"{number:2}  {each.changed[:16].replace('T', ' ')}  {each.title}"))
        display.ask(display.say("choose", count=len(found)))
        typed = ((await LineReader().line()) or "").strip()
        if typed and not (typed.isdecimal() and len(typed) < 9 and 1 <= int(typed) <= len(found)):
            raise UsageError(f"expected a number from 1 to {len(found)}, got {typed[:80]!r}")
        place = int(typed or 1)
    keeper.resume(found[place - 1].id)
