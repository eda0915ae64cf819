"""`xmlcall ui`: the page as a program, with a chat over the configured servers."""

import argparse
import os
import secrets
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ..agent.loop import ToolLoop
from ..backends.base import Backend
from ..backends.http import is_loopback
from ..errors import UsageError
from ..hosts.mcp.requests import ClientFeatures
from ..records.audit import AuditFile
from ..records.folder import audit_path, store_path
from ..records.store import Store
from ..turns.keeping import Keeper
from ..turns.recorder import Recorder
from ..ui.approvals import PageAsker
from ..ui.chat import ChatRoom
from ..ui.chat_turn import PageAudit, SharedBackend
from ..ui.news import News
from ..ui.open_questions import OpenQuestions
from ..ui.server_requests import PageElicitation, PageSampling, PageSignIn
from .display import Display
from .exits import OK, complain, run_async
from .listening import listening, serve_app, url_of
from .open_model import connected
from .options import add_model_options, number
from .requests import page_features
from .serve_observed import recording
from .servers import hosts_of, servers_of, sign_in_where_wanted
from .session import Session, add_record_options, loop_of, opening_messages
from .waiting import OpeningStatus

if TYPE_CHECKING:
    from ..ui.app import UiPage

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

DESCRIPTION = "Open a page that shows what a model writes, how it is read, and why a call runs or does not; with a chat."
EPILOG = """examples:
  xmlcall ui                                             # a small local model, fetched on first use, and the demo server
  xmlcall ui --model ollama:gemma3:4b --mcp servers.json
  xmlcall ui benchmarks/results/runs/talk-0.5b           # a run of `xmlcall bench run`, beside the chat
  xmlcall ui --no-chat replies.jsonl                     # recorded turns or replies only, without a model

PATH is the folder of a run, a file of turns (`--record`) or of replies, a JSON object or string a line, or a folder of
such files. The page is for this machine alone, and its address holds a token: whoever has it can do what the page can.
Calls are asked about on the page as they are in `xmlcall chat`; conversations are kept with those of `chat` (see `xmlcall log`).
To see the traffic of other clients, use `xmlcall serve --ui`.
"""

PORT = 8486


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", nargs="*", metavar="PATH", help="what was recorded, to be opened in the page")
    add_model_options(parser)
    add_record_options(parser)
    page = parser.add_argument_group("the page")
    page.add_argument("--host", default="127.0.0.1", help="address to listen on, of this machine (default: %(default)s)")
    page.add_argument(
        "--port", type=number(int, least=0), default=PORT, metavar="N", help="port; 0 takes a free one (default: %(default)s)"
    )
    page.add_argument("--no-browser", action="store_true", help="do not open a browser; the address is printed in any case")
    page.add_argument("--no-chat", action="store_true", help="no model and no chat: only what was recorded, and reading texts")
    page.add_argument(
        "--record", metavar="DIR", help="append each turn to a file in this folder, a JSON object a line, secrets masked"
    )
    parser.set_defaults(ui=True)


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    if not is_loopback(options.host):
        raise UsageError(f"--host {options.host}: the page is for this machine alone: give an address such as 127.0.0.1")
    return run_async(_ui(options))


async def _ui(options: argparse.Namespace) -> int:
    from ..proxy.http.access import Guard
    from ..ui.app import app_of_page
    from ..ui.recorded import Recorded, named_paths

    runs, files = named_paths(options.paths)
    recorded = Recorded(store_path(), runs, files)
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(listening(options.host, options.port))
        url = url_of(listener)
        recorder = await stack.enter_async_context(recording(options, []))
        assert recorder is not None  # `ui` is set
        room = None if options.no_chat else await stack.enter_async_context(_room(options, recorder))
        page = _page(url, Guard(), recorder, recorded, room)
        complain(f"the page: {page.address(url)} (keep it to yourself: whoever has it can do what you can there); Ctrl-C ends it")
        print(page.address(url), flush=True)
        _open_browser(page.address_for_once(url), options)

        def stop() -> None:
            recorder.close()
            if room is not None:
                room.close()

        await serve_app(app_of_page(page), listener, stop)
    return OK


@asynccontextmanager
async def _room(options: argparse.Namespace, recorder: Recorder) -> AsyncIterator[ChatRoom]:
    """Open the model and the servers for chats in the page, as `chat` does."""
    display = Display(live=False, answers=False, verbose=options.verbose, lang=options.lang)
    await sign_in_where_wanted(servers_of(options))
    async with AsyncExitStack() as stack:
        store = stack.enter_context(Store(None if options.no_record else store_path()))
        path = options.audit or (None if options.no_record else audit_path())
        news = News()
        questions = OpenQuestions(news)
        room: list[ChatRoom] = []
        opening = OpeningStatus(display.console, display.say)
        backend = SharedBackend(connected(options.model, options.context, opening))
        features = _features(options, display, news, questions, lambda: backend, lambda server: room[0].turn_on(server))
        asker = PageAsker(questions, display.lang, recorder.changed)
        audit = PageAudit(AuditFile(path)) if path else None
        loop = loop_of(options, display, backend, hosts_of(servers_of(options), options, features), asker=asker, audit=audit)
        async with opening:
            await stack.enter_async_context(loop)
        await _tell(loop, display, options)
        room.append(ChatRoom(loop, store, recorder, news, questions, start=opening_messages(options)))
        yield await stack.enter_async_context(room[0])


def _features(
    options: argparse.Namespace,
    display: Display,
    news: News,
    questions: OpenQuestions,
    backend: Callable[[], Backend],
    turn_on: Callable[[str], str],
) -> ClientFeatures:
    sampling = PageSampling(questions, news, backend, turn_on, max_tokens=options.max_tokens, is_asked=options.sampling == "ask")
    return page_features(
        options,
        display,
        elicit=PageElicitation(questions, turn_on),
        sample=sampling if options.sampling in ("ask", "allow") else None,
        sign_in=PageSignIn(questions, turn_on),
        notice=news.notice,
    )


async def _tell(loop: ToolLoop, display: Display, options: argparse.Namespace) -> None:
    """Ask the model as its profile says, and say what is likely to go wrong with it and with the servers."""
    session = Session(loop, display, options, Keeper(None, None))
    await session.tell_notices()
    session.tell_of_model()


def _page(url: str, guard: Any, recorder: Recorder, recorded: Any, room: ChatRoom | None) -> "UiPage":
    from ..records.folder import private_folder
    from ..ui.api import ShownPage
    from ..ui.app import facts_of_room, page_of
    from ..ui.asking import routes as asking_routes
    from ..ui.entry import kept_secret
    from ..ui.recorded import routes as recorded_routes
    from ..ui.recorded import turn_at

    shown = ShownPage(
        recorder=recorder,
        about=lambda: facts_of_room(room),
        url=url,
        instance=secrets.token_hex(4),
        news=room.news.watch if room else None,
        find=room.kept_turn if room else lambda id: None,
        recorded=partial(turn_at, recorded),
    )

    def live(id: str) -> Any:
        builder = recorder.find(id)
        return builder.record() if builder else None

    more = [*recorded_routes(recorded, live)]
    if room is not None:
        from ..ui.chat_routes import routes as chat_routes

        more += [*chat_routes(room), *asking_routes(shown, lambda: room.loop.backend)]
    return page_of(shown, guard, more, secret=kept_secret(private_folder()))


def _open_browser(address: str, options: argparse.Namespace) -> None:
    """Open the person's browser where there is a screen; a program without one would open a text browser in the terminal."""
    has_screen = sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if not options.no_browser and has_screen:
        webbrowser.open(address)
