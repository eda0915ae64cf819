"""From options to the chats of a page: the model, the servers, what may run, what is kept; the same as for `chat`."""

import argparse
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from ..agent.loop import ToolLoop
from ..backends.base import Backend
from ..backends.connect import connect
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
from .requests import page_features
from .servers import hosts_of, servers_of
from .session import Session, loop_of, opening_messages
from .sign_in import sign_in_where_wanted
from .waiting import OpeningStatus

__all__ = ["open_room"]


@asynccontextmanager
async def open_room(options: argparse.Namespace, display: Display, recorder: Recorder) -> AsyncIterator[ChatRoom]:
    """Open the model and the servers for chats in a page."""
    await sign_in_where_wanted(servers_of(options))
    async with AsyncExitStack() as stack:
        store = stack.enter_context(Store(None if options.no_record else store_path()))
        path = options.audit or (None if options.no_record else audit_path())
        news = News()
        questions = OpenQuestions(news)
        room: list[ChatRoom] = []
        opening = OpeningStatus(display.console, display.say)
        backend = SharedBackend(connect(options.model, context_length=options.context, progress=opening.progress))
        opening.model = backend.model or opening.model
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
