"""What `run` and `chat` share: from options to an open loop with its display."""

import argparse
import copy
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from ..agent.asking_person import Asker, asking_person, asking_person_of_repeats
from ..agent.audited import Audit
from ..agent.loop import ToolLoop
from ..agent.policy_file import load_rules
from ..agent.rules import Rule, Rules
from ..backends.base import Backend
from ..backends.connect import connect
from ..hosts.base import Host
from ..prompting.grades import ToolPrompt
from ..turn.attempts import RepairPolicy
from ..turn.events import Answer
from ..turns.keeping import Keeper, keep_question
from ..types.calls import Message
from .approval import TerminalAsker
from .call_panel import CallLog
from .display import Display
from .inputs import checked_text
from .keeping import chosen, kept
from .lines import is_interactive
from .notices import model_notices
from .options import asking_of
from .plain import visible
from .profile_option import profile_json, profile_words, use_profile
from .requests import features_of
from .servers import described, hosts_of, servers_of
from .sign_in import sign_in_where_wanted
from .waiting import OpeningStatus
from .words import Say

__all__ = ["Session", "loop_of", "open_session", "opening_messages", "stop_message"]

_DEMO_ONLY = ("demo.*",)


class Session:
    """An open loop and its display.

    Attributes:
        mode: in which the model is asked: `xml` or `native`.
        profile: by which it is asked, as JSON; None for none.
    """

    def __init__(self, loop: ToolLoop, display: Display, options: argparse.Namespace, keeper: Keeper) -> None:
        self.loop, self.display, self.keeper = loop, display, keeper
        self._given = options
        self._told: set[tuple[str, int]] = set()
        self.ask_by_profile()

    def ask_by_profile(self) -> None:
        """Ask the model as its profile says, where the options do not, and tell what is known of it."""
        options, backend, display = copy.copy(self._given), self.loop.backend, self.display
        found = use_profile(options, backend.capabilities.fingerprints)
        self.loop.ask_by(**asking_of(options, "xml"))
        self.mode: str = options.mode or "xml"
        self.profile = profile_json(options, found)
        if found is not None:
            display.line("", display.say("profile", words=visible(profile_words(options, found))), style="dim")
        length = backend.capabilities.context_length
        if options.verbose and length:
            display.line("", display.say("context", count=f"{length:,}"), style="dim")
        if options.verbose and (family := backend.capabilities.family):
            display.line("", display.say("family", name=visible(family)), style="dim")

    def tell_of_model(self) -> None:
        """Say what is likely to go wrong with the model."""
        for notice in model_notices(self.loop.backend, self.mode, self.display.say):
            self.display.notice(notice)

    async def change_model(self, name: str) -> None:
        """Go on with another model; if it does not open, the one before stays."""
        opening = OpeningStatus(self.display.console, self.display.say)
        backend = connect(name, context_length=self._given.context, progress=opening.progress)
        opening.model = backend.model or opening.model
        async with opening:
            await self.loop.change_model(backend)
        self.ask_by_profile()
        self.tell_of_model()

    async def tell_notices(self) -> None:
        """List the tools, and say what there is to know about the servers that was not said before."""
        await self.loop.catalog()
        for notice in self.loop.router.news():
            self.display.notice(notice)
        if self.mode == "xml":
            self._tell_grade(await self.loop.tool_prompt())

    async def asked(self, messages: Sequence[Message]) -> None:
        """Keep what the person asks, with the tools that are on offer, before the model is asked."""
        await keep_question(self.keeper, self.loop, messages)

    def _tell_grade(self, offered: ToolPrompt) -> None:
        """Say that tools are shown in part, once for each number of them."""
        count = len(offered.catalog) - 1
        if offered.own and (offered.grade, count) not in self._told:
            self._told.add((offered.grade, count))
            self.display.notice(self.display.say(f"shown_{offered.grade}", count=count))


@asynccontextmanager
async def open_session(
    options: argparse.Namespace, *, answers: bool = True, calls: CallLog | None = None
) -> AsyncIterator[Session]:
    """Open the model and the servers."""
    display = Display(live=sys.stdout.isatty(), answers=answers, verbose=options.verbose, lang=options.lang, calls=calls)
    opening = OpeningStatus(display.console, display.say)
    await sign_in_where_wanted(servers_of(options))
    async with AsyncExitStack() as stack:
        keeper = stack.enter_context(kept(options))
        await chosen(keeper, options, display)
        loop = _loop(options, display, opening, keeper)
        async with opening:
            await stack.enter_async_context(loop)
        stack.callback(display.settle)
        session = Session(loop, display, options, keeper)
        await session.tell_notices()
        session.tell_of_model()
        yield session


def _loop(options: argparse.Namespace, display: Display, opening: OpeningStatus, keeper: Keeper) -> ToolLoop:
    servers = servers_of(options)
    backend = connect(options.model, context_length=options.context, progress=opening.progress)
    opening.model = backend.model or opening.model
    if options.verbose or (is_interactive() and options.mcp):
        for server in servers:
            display.line("", described(server), style="dim")
    hosts = hosts_of(servers, options, features_of(options, display, lambda: backend))
    return loop_of(options, display, backend, hosts, asker=TerminalAsker(display), audit=keeper.audit)


def loop_of(
    options: argparse.Namespace, display: Display, backend: Backend, hosts: list[Host], *, asker: Asker, audit: Audit | None
) -> ToolLoop:
    """Make a loop as the options say."""
    free = {"may_flow": options.flow == "allow", "repaired": options.repaired == "allow"}
    rules = _rules(options, display).freed(**free)
    return ToolLoop(
        backend,
        hosts,
        policy=asking_person(rules, asker, yes=options.yes, **free),
        repair=RepairPolicy(on_repeat=asking_person_of_repeats(rules, asker), asks_for_unsaid=True),
        max_turns=options.max_turns,
        parallel=options.parallel,
        reminder=options.reminder,
        lang=options.lang,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        seed=options.seed,
        timeout=options.timeout,
        tool_tokens=options.tool_tokens,
        audit=audit,
        files=_files(),
        **asking_of(options, "xml"),
    )


def _rules(options: argparse.Namespace, display: Display) -> Rules:
    """Return the rules of files and options; calls of the built-in demo server need no question, those of a configured one do."""
    loaded = load_rules(options.policy)
    if path := loaded.passed_over:
        display.notice(display.say("strict_here", file=path, name=path.name))
    given = [Rule(effect="allow", tools=(glob,), source="--allow") for glob in options.allow]
    demo = [] if options.mcp else [Rule(effect="allow", tools=_DEMO_ONLY, repaired=True, may_flow=True)]
    return Rules(rules=(*loaded.rules.rules, *given, *demo))


def _files() -> Path:
    """Say where pictures and other data of results go: `$XMLCALL_FILES`, else a folder of the user's data."""
    if chosen := os.environ.get("XMLCALL_FILES"):
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_data_path("xmlcall") / "files"


def opening_messages(options: argparse.Namespace) -> list[Message]:
    """Return what stands before the person's first question."""
    if options.system is None:
        return []
    return [Message(role="system", content=checked_text(options.system, "a system message"))]


_TEXT_OF = ("invalid_calls", "tool_errors", "invented_results", "own_words", "repetition", "repeated_call", "length")


def stop_message(answer: Answer, max_turns: int, say: Say) -> str:
    """Say why a run did not end in a whole answer, and what to do; empty if it did."""
    if answer.stop_reason == "end":
        return "" if answer.text.strip() else say("empty")
    if answer.stop_reason in _TEXT_OF:
        return say(answer.stop_reason)
    if answer.stop_reason == "max_turns":
        return say("max_turns", count=max_turns)
    return say("ended_early", reason=repr(answer.stop_reason))
