"""What is noted of a call, before it runs and after: the material of an audit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .calls import InvalidCall, ToolCall, ToolResult

__all__ = ["CallNote", "Moment"]

Moment = Literal["starts", "ended", "interrupted", "denied", "rejected"]
"""`starts` comes before the call runs, and `ended` or `interrupted` behind it; `denied` and `rejected` stand alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNote:
    """What is known of a call at one moment.

    Args:
        moment: which.
        call: as bound, or as a person changed it; `call.raw` is what the model wrote.
        host: name of the server; "" where no server has the tool.
        host_tool: the tool's own name there.
        by: who or what decided, as in `Decision.by`.
        reason: of the decision, or why the call was denied.
        sources: JSON path of a value of the call -> where it came from, as the fields of a `ValueSource`.
        result: once there is one.
        failure: what happened, if the server failed and not the tool.
        seconds: that the call took.
    """

    moment: Moment
    call: ToolCall | InvalidCall
    host: str = ""
    host_tool: str = ""
    by: str = ""
    reason: str = ""
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    result: ToolResult | None = None
    failure: str = ""
    seconds: float | None = None
