"""`xmlcall run`: one question, answered with the help of tools."""

import argparse
from contextlib import aclosing

from ..types.calls import Message
from .exits import FAILED, OK, complain, run_async
from .inputs import checked_text, read_text
from .jsonform import json_text
from .keeping import add_record_options
from .lines import is_interactive
from .options import add_model_options
from .record import Record
from .session import open_session, opening_messages, stop_message

__all__ = ["DESCRIPTION", "EPILOG", "configure", "execute"]

DESCRIPTION = "Answer one question. The answer goes to standard output; calls, progress and questions to standard error."
EPILOG = """examples:
  xmlcall run "What is 1234 times 5678?"
  xmlcall run --model ollama:gemma3:4b --mcp servers.json --allow 'files.read_*' "What is in notes.txt?"
  xmlcall run --mcp my_server.py "What can you do?"
  xmlcall run --no-tools "Write a haiku about rain."
  echo "Is it raining in London?" | xmlcall run - > answer.txt

A call of a configured server is shown and asked about before it runs. Tools of the built-in demo server run without asking.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("question", metavar="QUESTION", help="in quotes; - reads it from standard input")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object: answer, stop_reason, turns, calls, usage, tool_need, profile"
    )
    add_model_options(parser)
    add_record_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command."""
    text = read_text("-", "a question") if options.question == "-" else options.question
    return run_async(_run(options, checked_text(text, "a question").strip()))


async def _run(options: argparse.Namespace, question: str) -> int:
    messages = [*opening_messages(options), Message(role="user", content=question)]
    async with open_session(options, answers=not options.json) as session:
        record = Record(session.loop.router)
        await session.asked(messages)
        async with aclosing(session.loop.run(messages)) as events:
            async for event in events:
                session.keeper.note(event)
                session.display.show(event)
                record.note(event)
        assert record.answer is not None
        session.keeper.keep(record.answer.messages)
    if options.json:
        print(json_text({**record.to_json(), "profile": session.profile}))
    if problem := stop_message(record.answer, options.max_turns, session.display.say):
        complain(problem)
        return FAILED
    # Nobody could be asked, and what did not run was told; a script has to see it. What a person refuses is no failure.
    return FAILED if record.was_denied and not is_interactive() else OK
