"""What `run` and `chat` share: they make an open loop and its display from the options, keep the conversation, and resume one.

A conversation can be resumed even if its program was killed. Whether a call that had started ran is unknown, unless its server
runs it as a task, because then the server can be asked. Ctrl-C during that ends the program, and the next one asks again.
"""

import argparse
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from typing import Final

from ..agent.asking_person import Asker, AskingPerson, asking_person_of_repeats
from ..agent.loop import ToolLoop
from ..agent.policy_file import load_rules
from ..agent.rules import Rule, Rules
from ..agent.run_call import Audit
from ..backends.base import Backend
from ..errors import UsageError
from ..hosts.base import Host
from ..private_folders import user_path
from ..prompting.results import result_text
from ..prompting.system import ToolPrompt
from ..records.audit import AuditFile
from ..records.folder import audit_path, store_path
from ..records.store import Store
from ..turn.attempts import RepairPolicy
from ..turn.events import Answer, CallFinished
from ..turn_records.keeping import Keeper, TaskMoment, checked_text, recovered
from ..types.calls import Message
from .approval import TerminalAsker
from .call_panel import CallLog
from .display import Display
from .lines import LineReader, is_interactive
from .open_model import asking_of, connected, model_notices, profile_json, profile_of, profile_words
from .plain import shortened, visible
from .server_requests import features_of
from .servers import described, hosts_of, servers_of, sign_in_where_wanted
from .waiting import OpeningStatus
from .words import Say

_DEMO_ONLY = ("demo.*",)
_TEXT_OF = ("invalid_calls", "tool_errors", "invented_results", "own_words", "repetition", "repeated_call", "length")
_SAYS_NO_TOOLS: Final = re.compile(
    r"\bI\b[^.!?\n]{0,40}?(?:n['’]t|\bnot|\bno|\bunable|\bcannot|\black)\b[^.!?\n]{0,40}?"
    r"\b(?:access(?: to)?|tools?|function calls?|real-?time|internet|browse|live (?:data|information))\b"
    r"|(?:无法|不能|没有|没法|不具备)[^。，；！？\n]{0,12}(?:访问|工具|实时|联网|上网|互联网|浏览|函数)",
    re.IGNORECASE,
)  # in 7 of 5,450 recorded answers without a call, all of which needed a tool
_CHOICES: Final = 10  # conversations to choose from
_WIDTH: Final = 200  # characters that are shown of a result of a task


class Session:
    def __init__(self, loop: ToolLoop, display: Display, options: argparse.Namespace, keeper: Keeper) -> None:
        self.loop, self.display, self.keeper = loop, display, keeper
        self._given = options
        self._named: str = options.model or loop.backend.model
        self._warned_of: set[tuple[str, int]] = set()
        self.ask_by_profile()

    def ask_by_profile(self) -> None:
        """Set how the model is asked, by the options or else its profile, and show what is known about the model."""
        options, backend, display = self._given, self.loop.backend, self.display
        found = profile_of(options, backend.capabilities.fingerprints)
        asking = asking_of(options, found)
        self.loop.ask_by(**asdict(asking))
        self.mode: str = asking.mode
        self.profile = profile_json(asking, found)
        if found is not None:
            display.line("", display.say("profile", words=visible(profile_words(asking, found))), style="dim")
        length = backend.capabilities.context_length
        if options.verbose and length:
            display.line("", display.say("context", count=f"{length:,}"), style="dim")
        if options.verbose and (family := backend.capabilities.family):
            display.line("", display.say("family", name=visible(family)), style="dim")

    def tell_of_model(self) -> None:
        for notice in model_notices(self.loop.backend, self.mode, self.display.say):
            self.display.notice(notice)

    async def change_model(self, name: str) -> None:
        """Continue with another model; if it does not open, the current one stays."""
        opening = OpeningStatus(self.display.console, self.display.say)
        backend = connected(name, self._given.context, opening)
        async with opening:
            await self.loop.change_model(backend)
        self._named = name
        self.ask_by_profile()
        await self.settle_way()
        self.tell_of_model()

    async def tell_notices(self) -> None:
        """List the tools, and show what is new about the servers."""
        await self.loop.catalog()
        for notice in self.loop.router.news():
            self.display.notice(notice)
        await self.settle_way()
        self._tell_grade(await self.loop.tool_prompt())

    async def settle_way(self) -> None:
        """Check the model server, if the mode depends on that, and say what was found."""
        way = await self.loop.way()
        self.mode = way.mode
        if way.finding and self._given.verbose:
            why = self.display.say(f"way_{way.finding}")
            self.display.line("", self.display.say("way", mode=way.mode, why=why), style="dim")

    async def tell_of_answer(self, answer: Answer) -> None:
        """Point to `doctor` if the model says that it cannot look something up, and called none of the tools on offer."""
        if answer.replies == 1 and says_no_tools(answer.text) and len(await self.loop.catalog()):
            named = "MODEL" if "@" in self._named else visible(shlex.quote(self._named))
            self.display.notice(self.display.say("says_no_tools", model=named))

    def _tell_grade(self, offered: ToolPrompt) -> None:
        """Report that tools are shown in part, once for each number of tools."""
        count = len(offered.catalog) - 1
        if offered.own and (offered.grade, count) not in self._warned_of:
            self._warned_of.add((offered.grade, count))
            self.display.notice(self.display.say(f"shown_{offered.grade}", count=count))


@asynccontextmanager
async def open_session(
    options: argparse.Namespace, *, answers: bool = True, calls: CallLog | None = None
) -> AsyncIterator[Session]:
    display = Display(
        live=sys.stdout.isatty(), answers=answers, verbose=options.verbose, lang=asking_of(options).lang, calls=calls
    )
    opening = OpeningStatus(display.console, display.say)
    servers = servers_of(options)
    await sign_in_where_wanted(servers)
    async with AsyncExitStack() as stack:
        store = None if options.no_record else stack.enter_context(Store(store_path()))
        path = options.audit or (None if options.no_record else audit_path())
        keeper = Keeper(store, AuditFile(path) if path else None)
        await _take_chosen(keeper, options, display)
        backend = connected(options.model, options.context, opening)
        if options.verbose or (is_interactive() and options.mcp):
            for server in servers:
                display.line("", described(server), style="dim")
        hosts = hosts_of(servers, options, features_of(options, display, lambda: backend))
        loop = loop_of(options, display, backend, hosts, asker=TerminalAsker(display), audit=keeper.audit)
        async with opening:
            await stack.enter_async_context(loop)
        stack.callback(display.settle)
        session = Session(loop, display, options, keeper)
        await session.tell_notices()
        session.tell_of_model()
        yield session


def loop_of(
    options: argparse.Namespace, display: Display, backend: Backend, hosts: list[Host], *, asker: Asker, audit: Audit | None
) -> ToolLoop:
    free = {"may_flow": options.flow == "allow", "repaired": options.repaired == "allow"}
    rules = _rules(options, display).freed(**free)
    return ToolLoop(
        backend,
        hosts,
        policy=AskingPerson(rules, asker, yes=options.yes, **free),
        repair=RepairPolicy(
            max_replies=options.max_turns, on_repeat=asking_person_of_repeats(rules, asker), asks_for_unsaid=True
        ),
        asking=asking_of(options),
        timeout=options.timeout,
        audit=audit,
        files=None if options.no_record else user_path("data", "files", "XMLCALL_FILES"),  # pictures and the like in results
    )


def _rules(options: argparse.Namespace, display: Display) -> Rules:
    """Return the rules of files and options; calls of the built-in demo server need no question, those of a configured one do."""
    loaded = load_rules(options.policy)
    if path := loaded.passed_over:
        display.notice(display.say("strict_here", file=path, name=path.name))
    given = [Rule(effect="allow", tools=(glob,), source="--allow") for glob in options.allow]
    demo = [] if options.mcp else [Rule(effect="allow", tools=_DEMO_ONLY, repaired=True, may_flow=True)]
    return Rules(rules=(*loaded.rules.rules, *given, *demo))


def opening_messages(options: argparse.Namespace) -> list[Message]:
    if options.system is None:
        return []
    return [Message(role="system", content=checked_text(options.system, "a system message"))]


def says_no_tools(text: str) -> bool:
    """Say whether an answer is that the model cannot look something up or has no tools."""
    return _SAYS_NO_TOOLS.search(text[:2000]) is not None


def stop_message(answer: Answer, max_turns: int, say: Say) -> str:
    """Return why a run ended without a complete answer and what to do about it; "" if the answer is complete."""
    if answer.stop_reason == "end":
        return "" if answer.text.strip() else say("empty")
    if answer.stop_reason in _TEXT_OF:
        return say(answer.stop_reason)
    if answer.stop_reason == "max_turns":
        return say("max_turns", count=max_turns)
    return say("ended_early", reason=repr(answer.stop_reason))


def add_record_options(parser: argparse.ArgumentParser, *, resumes: bool = False) -> None:
    records = parser.add_argument_group("records")
    which = records.add_mutually_exclusive_group()
    which.add_argument(
        "--no-record",
        action="store_true",
        help="keep nothing: neither conversation nor calls (see `xmlcall log`), pictures of results, or what you type",
    )
    if resumes:
        which.add_argument(
            "--resume",
            nargs="?",
            const="",
            metavar="ID",
            help="continue a conversation from `xmlcall log list`; without ID choose one (without a terminal: the newest)",
        )
        which.add_argument("--continue", dest="continues", action="store_true", help="continue the newest conversation")
    records.add_argument(
        "--audit",
        metavar="FILE",
        help="append a line to this file before and after each call (default: audit.jsonl in the folder of records; none with "
        "--no-record)",
    )


async def _take_chosen(keeper: Keeper, options: argparse.Namespace, display: Display) -> None:
    """Choose the conversation to resume, if any; ask the user if they named none."""
    asked_for = getattr(options, "resume", None)
    if keeper.store is None or (asked_for is None and not getattr(options, "continues", False)):
        return
    if options.system is not None:
        raise UsageError("--system starts a new conversation, so it cannot be combined with --resume or --continue")
    if asked_for:
        keeper.resume(keeper.store.find(asked_for).id)
        return
    found = keeper.store.listed(_CHOICES)
    if not found:
        raise UsageError("there is no conversation to continue yet")
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


async def taken_up(session: Session, start: list[Message]) -> list[Message]:
    """Return the messages that a chat starts with, and show what is known of a turn that was cut off."""
    keeper, display = session.keeper, session.display
    if keeper.store is None or not keeper.is_resumed:
        return list(start)
    found = keeper.store.find(keeper.id)
    display.notice(display.say("resumed", id=found.id, count=found.messages, title=visible(found.title)))

    def on_task(moment: TaskMoment, target: str, what: CallFinished | str) -> None:
        outcome = what if isinstance(what, str) else what.failure or result_text(what.result)
        text = shortened(outcome, lines=1, width=_WIDTH)
        display.notice(display.say(moment, target=visible(target), why=text, text=text))

    messages, cut = await recovered(keeper, keeper.store, session.loop, on_task)
    for target in cut.unknown if cut else ():
        display.notice(display.say("unknown_run", target=visible(target)))
    if cut and (cut.reply is None or cut.calls):
        display.notice(display.say("cut_off"))
    return messages
