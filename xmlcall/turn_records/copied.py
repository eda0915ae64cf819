"""Exports a reply for use elsewhere: as a case of the parser's corpus, as a request, or as a case of the benchmark.

A corpus case states what the parser reads now; whoever adds the case checks that this is right. A request holds the conversation
as its client sent it, as far as the prompt shows it: without the description of the tools, and without the reminder after a
question. All content may be hostile, so it is escaped and cannot leave its TOML string, its JSON or its quotes.
"""

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..dialects.replies import says
from ..errors import UsageError
from ..parsing.reply import parse
from ..tools.catalog import Catalog
from ..types.calls import InvalidCall, ToolCall
from ..wire.openai import tool_dict
from .places import is_tool_prompt
from .reading import as_messages, readable_tools
from .record import ReplyRecord, TurnRecord

_LONGEST_NAME: Final = 60  # characters of a case's name
_TOOL_FIELDS: Final = ("name", "description", "input_schema", "title", "output_schema", "annotations")
_BARE_KEY: Final = re.compile("[A-Za-z0-9_-]+")
_UNSAFE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")
_HALF: Final = re.compile(r"[\ud800-\udfff]")


def as_corpus_case(turn: TurnRecord, reply_number: int) -> str:
    """Write a reply as a case of `tests/corpus`, with its tools as a comment for `tools.toml` there."""
    reply, catalog = _reply(turn, reply_number), readable_tools(turn.tools)
    finish_reason, reasoning_open = reply.finish_reason or "stop", bool(reply.spans) and reply.spans[0].kind == "reasoning"
    raw = _HALF.sub("\ufffd", reply.raw)  # TOML has no half characters
    found = parse(raw, catalog, finish_reason=finish_reason, reasoning_open=reasoning_open)
    name = "recorded_" + re.sub(r"[^A-Za-z0-9]", "_", turn.id)[:_LONGEST_NAME]
    first = (turn.question.strip().splitlines() or ["a reply"])[0][:_LONGEST_NAME]
    case: dict[str, Any] = {"name": f"{first} ({turn.id}, reply {reply_number})"}
    case |= {"tools": name} if len(catalog) else {}
    case |= {"input": raw}
    case |= {"finish_reason": finish_reason} if finish_reason != "stop" else {}
    case |= {"reasoning_open": True} if reasoning_open else {}
    case |= {"text": found.text}
    case |= {"reasoning": found.reasoning} if found.reasoning else {}
    if found.calls:
        dialects = {call.raw.dialect for call in found.calls}
        case |= {"dialect": dialects.pop()} if len(dialects) == 1 and dialects != {"function_calls"} else {}
        case |= {"calls": [_written(call) for call in found.calls]}
    case |= {"repairs": [repair.code for repair in found.repairs]} if found.repairs else {}
    lines = ["[[case]]", *(f"{key} = {_toml(value)}" for key, value in case.items())]
    return "\n".join([*_tool_set(name, catalog), *lines, ""])


def as_curl(turn: TurnRecord, reply_number: int, base_url: str) -> str:
    """Write the request that a reply answers, for the OpenAI API of a proxy."""
    reply, catalog = _reply(turn, reply_number), readable_tools(turn.tools)
    body: dict[str, Any] = {"model": turn.model, "messages": _messages(turn, reply, catalog)}
    if len(catalog):
        body["tools"] = [tool_dict(tool) for tool in catalog]
    url = shlex.quote(f"{base_url.rstrip('/')}/v1/chat/completions")
    head = f"curl -sS {url} -H 'Content-Type: application/json' --data-binary @- <<'JSON'"
    return f"{head}\n{json.dumps(body)}\nJSON\n"


def as_bench_case(turn: TurnRecord, reply_number: int) -> str:
    """Write a reply as a line of a run's `cases.jsonl`, with its calls as the expected ones."""
    reply, catalog = _reply(turn, reply_number), readable_tools(turn.tools)
    calls = [call for call in reply.calls if call.arguments is not None]
    case = {
        "id": f"{turn.id}-{reply_number}",
        "category": "recorded",
        "messages": _messages(turn, reply, catalog),
        "tools": [{name: getattr(tool, name) for name in _TOOL_FIELDS} for tool in catalog],
        "expects": "calls" if calls else "no_call",
        "answers": [],
        "exact": [[call.name, call.arguments if call.ran_with is None else call.ran_with] for call in calls],
        "disputed": False,
    }
    return f"{json.dumps(case)}\n"


def _reply(turn: TurnRecord, number: int) -> ReplyRecord:
    if not 1 <= number <= len(turn.replies):
        raise UsageError(f"expected the number of one of the turn's {len(turn.replies)} replies, got {number}")
    return turn.replies[number - 1]


def _messages(turn: TurnRecord, reply: ReplyRecord, catalog: Catalog) -> list[dict[str, str]]:
    """Return the conversation that a reply answers, without what this program adds to it."""
    prompt = as_messages(reply.prompt)
    messages = [each for each in prompt if not (each.role == "system" and is_tool_prompt(each.content, catalog))]
    if not messages:
        return [{"role": "user", "content": turn.question}]
    asked = next(
        (place for place in reversed(range(len(messages))) if turn.question and says(messages[place], turn.question)), None
    )
    contents = [turn.question if place == asked else message.content for place, message in enumerate(messages)]
    # As any API accepts them: a result whose call is unknown becomes a user message.
    roles = ["user" if message.role == "tool" else message.role for message in messages]
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]


def _written(call: ToolCall | InvalidCall) -> dict[str, Any]:
    if isinstance(call, InvalidCall):
        return {"name": call.name, "issues": [issue.code for issue in call.issues]}
    return {"name": call.name, "arguments": [[argument.name, argument.text] for argument in call.raw.arguments]}


# -- TOML --------------------------------------------------------------------------------------------------------------------


def _tool_set(name: str, catalog: Catalog) -> Iterator[str]:
    """Yield lines of comments: the tools as a set of tests/corpus/tools.toml."""
    if not len(catalog):
        return
    yield "# A set for tests/corpus/tools.toml:"
    for tool in catalog:
        yield f"# [[{name}]]"
        yield f"# name = {_toml(tool.name)}"
        if tool.description:
            yield f"# description = {_toml(tool.description)}"
        yield f"# inputSchema = {_toml(tool.input_schema)}"
    yield ""


def _toml(value: Any) -> str:
    """Write a JSON value as TOML on one line; what TOML does not have (null) is left out."""
    if isinstance(value, Mapping):
        items = ((str(key), each) for key, each in value.items() if each is not None)
        parts = (f"{key if _BARE_KEY.fullmatch(key) else _toml(key)} = {_toml(each)}" for key, each in items)
        return f"{{ {', '.join(parts)} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(each) for each in value if each is not None)}]"
    if isinstance(value, str) or (isinstance(value, float) and not math.isfinite(value)):
        value = _HALF.sub("\ufffd", str(value))
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
