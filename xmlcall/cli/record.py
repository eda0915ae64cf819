"""What a run did, as one JSON object for `xmlcall run --json`."""

from dataclasses import asdict
from typing import Any

from ..hosts.router import Router
from ..prompting.results import result_text
from ..turn.builtin_tools import OURS
from ..turn.events import Answer, CallDenied, CallFinished, CallHeld, CallRejected, LoopEvent
from ..turn.tool_need import ToolNeed
from ..types.calls import InvalidCall, ToolCall

__all__ = ["Record"]


class Record:
    """Gathers the events of a run."""

    def __init__(self, router: Router) -> None:
        self.answer: Answer | None = None
        self._router = router
        self._calls: list[dict[str, Any]] = []
        self._need: ToolNeed | None = None

    def note(self, event: LoopEvent) -> None:
        """Take the next event."""
        match event:
            case ToolNeed():
                self._need = event
            case CallFinished(call=call, result=result, failure=failure):
                outcome = "failed" if failure else "error" if result.is_error else "ok"
                self._add(call, outcome, result=result_text(result))
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
        """Whether a call was not allowed to run."""
        return any(call["outcome"] == "denied" for call in self._calls)

    def to_json(self) -> dict[str, Any]:
        """Return the object; the run must have ended."""
        answer = self.answer
        assert answer is not None
        return {
            "answer": answer.text,
            "stop_reason": answer.stop_reason,
            "turns": answer.turns,
            "calls": self._calls,
            "usage": asdict(answer.usage),
            "tool_need": self._need and {name: getattr(self._need, name) for name in ("log_odds", "number", "threshold", "tool")},
        }

    def _server_of(self, call: ToolCall | InvalidCall) -> str | None:
        """Return the name of a tool's server; that of this program where the tool is its own."""
        if isinstance(call, InvalidCall):
            return None
        return origin[0].name if (origin := self._router.find(call.name)) else OURS

    def _add(self, call: ToolCall | InvalidCall, outcome: str, *, result: str | None = None) -> None:
        self._calls.append(
            {
                "name": call.name,
                "server": self._server_of(call),
                "arguments": call.arguments if isinstance(call, ToolCall) else None,
                "outcome": outcome,
                "result": result,
                "issues": [asdict(issue) for issue in call.issues] if isinstance(call, InvalidCall) else [],
                "repairs": [repair.code for repair in (call.repairs if isinstance(call, ToolCall) else call.raw.repairs)],
            }
        )
