"""Kept replies, read again by the parser of now: without a model, nothing runs.

Each reply is read as it came, and its calls are bound to the tools that were on offer then. What the loop decides behind the
parser is left as it was: a call that was an echo or had to wait stays what it was, and what stands behind the place where the
loop ended a reply does not count.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..binding.bind import bind
from ..parsing.parser import Parser
from ..parsing.repetition import once
from ..parsing.reply import reply_of
from ..prompting.format import FAMILIES
from ..records.as_json import raw_from_json
from ..records.store import KeptEvent, Store
from ..tools.catalog import Catalog
from ..turn.generate import Binder
from ..types.calls import InvalidCall, Tool, ToolCall

__all__ = ["replayed"]


def replayed(store: Store, events: Sequence[KeptEvent]) -> Iterator[dict[str, Any]]:
    """Read the replies of a conversation again.

    Yields:
        For each reply its number in the conversation, from 1, and what differs: `was` and `is` of each call.
    """
    asked: Mapping[str, Any] = {}
    catalog, number = Catalog(()), 0
    for event in events:
        if event.kind == "asked":
            if event.body["tools"] != asked.get("tools"):
                catalog = Catalog([Tool.from_mcp(tool) for tool in store.tools(event.body["tools"])])
            asked = event.body
        elif event.kind == "reply":
            number += 1
            yield {"reply": number, "differences": _differences(event.body, asked, catalog)}


def _differences(kept: Mapping[str, Any], asked: Mapping[str, Any], catalog: Catalog) -> list[dict[str, Any]]:
    was = [_told_of_kept(call) for call in kept["calls"]]
    read = [_told(call) for call in _read(kept, asked, catalog)]
    content = (kept["message"] or {}).get("content", "")
    if len(read) > len(was) and len(content) < len(kept["raw"]):
        read = read[: len(was)]  # the loop ended the reply behind these
    differences = []
    for place in range(max(len(was), len(read))):
        before, now = was[place] if place < len(was) else None, read[place] if place < len(read) else None
        if before != now and not (before and "echo" in before.get("issues", ())):
            differences.append({"call": place + 1, "was": before, "is": now})
    return differences


def _read(kept: Mapping[str, Any], asked: Mapping[str, Any], catalog: Catalog) -> Sequence[ToolCall | InvalidCall]:
    """Read a reply; calls that the model server itself had found are not in the text, and are only bound."""
    if kept["calls"] and not any(call["raw"]["text"] and call["raw"]["text"] in kept["raw"] for call in kept["calls"]):
        return [bind(raw_from_json(call["raw"]), catalog) for call in kept["calls"]]
    unsaid = FAMILIES[asked["family"]].unsaid if asked["mode"] == "xml" and asked["family"] in FAMILIES else ""
    binder = Binder(catalog=catalog, unsaid=unsaid)
    parser = Parser(catalog, reasoning_open=asked["reasoning_open"])
    events = binder.bound([*parser.feed(kept["raw"]), *parser.close(kept["finish_reason"])])
    reply, _ = once(reply_of(events, catalog, finish_reason=kept["finish_reason"]), asked["text"])
    return reply.calls


def _told(call: ToolCall | InvalidCall) -> dict[str, Any]:
    told: dict[str, Any] = {"name": call.name}
    if isinstance(call, InvalidCall):
        return told | {"issues": [issue.code for issue in call.issues]}
    return told | {"arguments": call.arguments, "repairs": [repair.code for repair in call.repairs]}


def _told_of_kept(call: Mapping[str, Any]) -> dict[str, Any]:
    if "issues" in call:
        return {"name": call["name"], "issues": [issue["code"] for issue in call["issues"]]}
    return {name: call[name] for name in ("name", "arguments", "repairs")}
