"""`xmlcall run`: one question, answered with the help of tools."""

import argparse
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from ..hosts.router import Router
from ..prompting.results import result_text
from ..turn.events import Answer, CallDenied, CallFinished, CallHeld, CallRejected, LoopEvent
from ..turn.tool_need import ToolNeed
from ..turn.turn_setup import OURS
from ..turn_records.keeping import checked_text, keep_question
from ..types.calls import InvalidCall, Message, ToolCall
from .exits import FAILED, OK, complain, run_async
from .inputs import read_text
from .lines import is_interactive
from .options import add_model_options
from .plain import json_text
from .session import add_record_options, open_session, opening_messages, stop_message

DESCRIPTION = "Answer one question. Only the answer goes to standard output."
EPILOG = """examples:
  xmlcall run "What is 1234 times 5678?"
  xmlcall run --model ollama:gemma3:4b --mcp servers.json "What is new?"
  xmlcall run --no-tools --ask temperature=0.8 "Write a haiku about rain."
  echo "Is it raining in London?" | xmlcall run - > answer.txt

You are asked before a call runs, except for tools of the demo server.
"""

COMMON = "--model --mcp --no-tools --profile --ask --system --yes --allow --json --verbose"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("question", metavar="QUESTION", help="the question, in quotes; - reads it from standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON object: answer, calls, usage and more")
    add_model_options(parser)
    add_record_options(parser)


def execute(options: argparse.Namespace) -> int:
    text = read_text("-", "a question") if options.question == "-" else options.question
    return run_async(_run(options, checked_text(text, "a question").strip()))


async def _run(options: argparse.Namespace, question: str) -> int:
    messages = [*opening_messages(options), Message(role="user", content=question)]
    async with open_session(options, answers=not options.json) as session:
        record = Record(session.loop.router)
        await keep_question(session.keeper, session.loop, messages)
        async with aclosing(session.loop.run(messages)) as events:
            async for event in events:
                session.keeper.note(event)
                session.display.show(event)
                record.note(event)
        assert record.answer is not None
        session.keeper.keep(record.answer.messages)
        await session.tell_of_answer(record.answer)
    if options.json:
        print(json_text({**record.to_json(), "profile": session.profile}))
    if problem := stop_message(record.answer, options.max_turns, session.display.say):
        complain(problem)
        return FAILED
    # Without a terminal, a denied call is a failure that a script has to see. A call that a person refuses is not a failure.
    return FAILED if record.was_denied and not is_interactive() else OK


class Record:
    def __init__(self, router: Router) -> None:
        self.answer: Answer | None = None
        self._router = router
        self._calls: list[dict[str, Any]] = []
        self._need: ToolNeed | None = None

    def note(self, event: LoopEvent) -> None:
        match event:
            case ToolNeed():
                self._need = event
            case CallFinished(call=call, result=result):
                self._add(call, event.outcome, result=result_text(result))
            case CallDenied(call=call, reason=reason):
                self._add(call, "denied", result=reason)
            case CallRejected(call=call):
                self._add(call, "rejected")
            case CallHeld(call=call):
                self._add(call, "held")
            case Answer():
                self.answer = event

    @property
    def was_denied(self) -> bool:
        return any(call["outcome"] == "denied" for call in self._calls)

    def to_json(self) -> dict[str, Any]:
        """Return the object for `--json`; the run must have ended."""
        answer = self.answer
        assert answer is not None
        return {
            "answer": answer.text,
            "stop_reason": answer.stop_reason,
            "replies": answer.replies,
            "turns": answer.replies,  # its name in 0.2.0
            "calls": self._calls,
            "usage": asdict(answer.usage),
            "tool_need": self._need and {name: getattr(self._need, name) for name in ("log_odds", "number", "threshold", "tool")},
        }

    def _add(self, call: ToolCall | InvalidCall, outcome: str, *, result: str | None = None) -> None:
        origin = self._router.find(call.name)
        self._calls.append(
            {
                "name": call.name,
                "server": origin[0].name if origin else OURS if isinstance(call, ToolCall) else None,
                "arguments": call.arguments if isinstance(call, ToolCall) else None,
                "outcome": outcome,
                "result": result,
                "issues": [asdict(issue) for issue in call.issues] if isinstance(call, InvalidCall) else [],
                "repairs": [repair.code for repair in (call.repairs if isinstance(call, ToolCall) else call.raw.repairs)],
            }
        )
