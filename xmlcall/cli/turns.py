"""A conversation of the suite `talk`, shown turn by turn for `xmlcall bench show`."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import UsageError
from .jsonform import json_text
from .plain import plain, visible

__all__ = ["causes_told", "show_turns"]


def show_turns(verdicts: Iterable[Any], asked: str, way: str) -> None:
    """Print the turns of a conversation, or one of them."""
    turns = [verdict for verdict in verdicts if asked in (verdict.case.id, verdict.case.id.rpartition("#")[0])]
    if not turns and "#" in asked:
        raise UsageError(f"expected CONVERSATION or CONVERSATION#NUMBER with a number of its turns from 1 on, got {asked!r}")
    for verdict in turns:
        _show_turn(verdict, way)


def _show_turn(verdict: Any, way: str) -> None:
    from ..bench.difference import expected_of

    (played,) = verdict.row["outcome"]["turns"]
    print(f"===== {visible(verdict.case.id)}, {way}: {visible(verdict.case.turns[0].get('kind', ''))}\n")
    print(f"--- the person\n{plain(verdict.case.messages[-1]['content'])}\n")
    for number, reply in enumerate(played["replies"], 1):
        print(f"--- raw reply {number}\n{plain(reply)}\n")
    for call in played["calls"]:
        print(f"--- call\n{plain(_call(call))}\n")
    print(f"--- answer ({visible(played['stop_reason'])})\n{plain(played['answer'])}\n")
    expected = expected_of(verdict.case)
    print("\n".join(["--- expected", *filter(None, [plain(expected["text"])]), expected["note"]]))
    print(f"\nverdict: {visible(verdict.failure or 'right')}{causes_told(verdict)}\n")


def causes_told(verdict: Any) -> str:
    """Return what stands behind a verdict: its causes, the main one first."""
    from ..bench.failures import causes_of

    try:
        causes = causes_of(verdict)
    except UsageError as error:  # SciPy is not installed
        return f" (no causes: {error})"
    return f" (causes: {', '.join(causes)})" if causes else ""


def _call(call: Mapping[str, Any]) -> str:
    """Write a call and its outcome: the result, why it was denied, or what is wrong with it."""
    issues = "; ".join(issue["message"] for issue in call.get("issues", ()))
    told = call.get("result") or call.get("denied") or issues
    return f"{call['name']} {json_text(call.get('arguments', {}))}\n-> {'error: ' if call.get('is_error') else ''}{told}"
