"""The page of `xmlcall ui`, with its chats: from options to the model, the servers, what may run, what is kept; as for `chat`."""

import argparse
import os
import secrets
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from ..proxy.http.access import Guard
from ..records.audit import AuditFile
from ..records.folder import audit_path, private_folder, store_path
from ..records.store import Store
from ..turn_records.builder import Recorder
from ..turn_records.keeping import Keeper
from ..turn_records.record import TurnRecord
from ..ui.access import kept_secret
from ..ui.api import ShownPage
from ..ui.app import UiPage, app_of_page, facts_of_room, page_of
from ..ui.asking import routes as asking_routes
from ..ui.chat import ChatRoom, PageAudit, SharedBackend
from ..ui.chat import routes as chat_routes
from ..ui.questions import News, OpenQuestions, PageAsker, ServerRequests
from ..ui.recorded import Recorded, named_paths, turn_at
from ..ui.recorded import routes as recorded_routes
from .display import Display
from .exits import OK, complain
from .listening import listening, serve_app, url_of
from .open_model import asking_of, connected, model_notices
from .serve_observed import recording
from .server_requests import declared
from .servers import hosts_of, servers_of, sign_in_where_wanted
from .session import Session, loop_of, opening_messages
from .waiting import OpeningStatus


async def serve_page(options: argparse.Namespace) -> int:
    runs, files = named_paths(options.paths)
    recorded = Recorded(store_path(), runs, files)
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(listening(options.host, options.port))
        url = url_of(listener)
        recorder = await stack.enter_async_context(recording(options, []))
        assert recorder is not None  # `ui` is set
        room = None if options.no_chat else await stack.enter_async_context(_room(options, recorder))
        page = _page(url, recorder, recorded, room)

        def announce() -> None:
            address = page.address(url)
            complain(f"the page: {address} (keep this address secret: whoever has it can act as you there); Ctrl-C stops it")
            print(address, flush=True)
            _open_browser(page.address_for_once(url), options)

        def stop() -> None:
            recorder.close()
            if room is not None:
                room.news.close()  # a server that stops waits for the streams of its pages

        await serve_app(app_of_page(page), listener, stop, announce=announce)
    return OK


@asynccontextmanager
async def _room(options: argparse.Namespace, recorder: Recorder) -> AsyncIterator[ChatRoom]:
    """Open the model and the servers for chats in the page, as `chat` does."""
    display = Display(live=False, answers=False, verbose=options.verbose, lang=asking_of(options).lang)
    servers = servers_of(options)
    await sign_in_where_wanted(servers)
    async with AsyncExitStack() as stack:
        store = stack.enter_context(Store(None if options.no_record else store_path()))
        path = options.audit or (None if options.no_record else audit_path())
        news = News()
        questions = OpenQuestions(news)
        opening = OpeningStatus(display.console, display.say)
        backend = SharedBackend(connected(options.model, options.context, opening), news)
        is_asked, limit = options.sampling == "ask", asking_of(options).max_tokens
        requests = ServerRequests(questions, lambda: backend, max_tokens=limit, is_asked=is_asked)
        features = declared(
            options,
            display,
            elicit=requests.elicit,
            sample=requests.sample if options.sampling in ("ask", "allow") else None,
            sign_in=requests.sign_in,
            notice=news.notice,
        )
        asker = PageAsker(questions, display.lang, recorder.changed)
        audit = PageAudit(AuditFile(path)) if path else None
        loop = loop_of(options, display, backend, hosts_of(servers, options, features), asker=asker, audit=audit)
        async with opening:
            await stack.enter_async_context(loop)
        session = Session(loop, display, options, Keeper(None, None))
        await session.tell_notices()
        session.tell_of_model()
        for notice in model_notices(backend, session.mode, display.say):
            news.notice(notice)
        yield await stack.enter_async_context(ChatRoom(loop, store, recorder, questions, start=opening_messages(options)))


def _page(url: str, recorder: Recorder, recorded: Recorded, room: ChatRoom | None) -> UiPage:
    shown = ShownPage(
        recorder=recorder,
        about=lambda: facts_of_room(room),
        url=url,
        instance=secrets.token_hex(4),
        news=room.news.watch if room else None,
        find=room.kept_turn if room else lambda id: None,
        recorded=partial(turn_at, recorded),
    )

    def live(id: str) -> TurnRecord | None:
        builder = recorder.find(id)
        return builder.record() if builder else None

    more = [*recorded_routes(recorded, live)]
    if room is not None:
        more += [*chat_routes(room), *asking_routes(shown, lambda: room.loop.backend)]
    return page_of(shown, Guard(), more, secret=kept_secret(private_folder()))


def _open_browser(address: str, options: argparse.Namespace) -> None:
    """Open the person's browser where there is a screen; a program without one would open a text browser in the terminal."""
    has_screen = sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if not options.no_browser and has_screen:
        webbrowser.open(address)
