"""What `xmlcall serve` records of its traffic: for the page (`--ui`), and in files (`--record`)."""

import argparse
import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..private_folders import make_private
from .exits import complain

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from ..proxy.engine.engine import Engine
    from ..proxy.http.access import Guard
    from ..turns.lines import LineThread
    from ..turns.recorder import Recorder

__all__ = ["add_page_options", "page_beside", "recording"]

_KEYS = ("XMLCALL_API_KEY", "OPENAI_API_KEY", "OLLAMA_API_KEY")  # variables whose values are in no record


def add_page_options(page: argparse._ArgumentGroup) -> None:
    """Declare the arguments."""
    page.add_argument(
        "--ui",
        action="store_true",
        help="show all requests on a page of this server: what the model wrote and how it was read; its address is printed to "
        "standard error and holds a token, without which nobody sees it",
    )
    page.add_argument(
        "--record",
        metavar="DIR",
        help="append each request to a file in this folder, a JSON object a line; values of calls whose names mean a secret are "
        "masked, all else is kept as it was said",
    )


@contextlib.asynccontextmanager
async def recording(options: argparse.Namespace, keys: Iterable[str]) -> AsyncIterator["Recorder | None"]:
    """Make what records the requests; None if nothing is to be recorded. At its end, what waits is written."""
    if not options.ui and not options.record:
        yield None
        return
    from ..turns.recorder import MOST_TURNS, Recorder

    lines = _lines_in(Path(options.record)) if options.record else None
    hidden = [*keys, *(os.environ.get(name, "") for name in _KEYS)]
    recorder = Recorder(most_turns=MOST_TURNS if options.ui else 1, keep=lines.append if lines else None, hidden=hidden)
    try:
        yield recorder
    finally:
        recorder.close()
        if lines:
            await asyncio.to_thread(lines.close)


def _lines_in(folder: Path) -> "LineThread":
    """Begin a new file in a folder that is there, or can be made, and can be written."""
    from ..turns.lines import LineThread

    try:
        make_private(folder)
    except OSError as error:
        raise UsageError(f"--record {folder}: {error.strerror or error}: expected a folder") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--record {folder}: nothing can be written there: choose another folder")
    return LineThread(folder / f"turns-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}.jsonl", complain)


def page_beside(engine: "Engine", guard: "Guard", url: str) -> Sequence["BaseRoute"]:
    """Return the routes of the page, and tell the person its address."""
    from ..records.folder import private_folder
    from ..ui.app import page_routes
    from ..ui.entry import kept_secret

    assert engine.recorder is not None
    page = page_routes(recorder=engine.recorder, guard=guard, engine=engine, url=url, secret=kept_secret(private_folder()))
    complain(f"the page: {page.address(url)} (who has this address sees all requests)")
    return page.routes
