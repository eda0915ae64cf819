"""Calls on their way to the caller: whole once they are bound, or in fragments as the model writes them.

A call whose beginning went out and that then turned out invalid stays unfinished: calls after it wait, and the model's next try
has to complete it with what was sent (`arguments.py`), or the answer is broken off. On a retry, a call that was sent already is
not sent again: the model was asked to write one call once more and wrote them all.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace

from ...agent.drive import new_id
from ...dialects import DIALECTS
from ...tools.catalog import Catalog
from ...types.calls import ToolCall
from ...types.events import ToolArgumentDelta, ToolCallStart
from ..formats.contract import ApiError, ArgumentsPiece, CallClosed, CallOpened, ResponseEvent
from .arguments import CallText, MayBeMadeUp

__all__ = ["Sender", "broken_off"]


class Sender:
    """What the caller is given of an answer's calls.

    Args:
        unsaid: the word that the prompt asks for where the request says nothing of a parameter; "" if it asks for none.
        may_be_made_up: says of a parameter's value whether the call may not run because of it; None where no value is looked at.
        may_be_copied: says of a tool and a wire format whether the call may be somebody's; None where none is looked for.

    Attributes:
        sent: the calls that went out whole.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        stream_arguments: bool,
        unsaid: str = "",
        may_be_made_up: MayBeMadeUp | None = None,
        may_be_copied: Callable[[str, str], bool] | None = None,
    ) -> None:
        self.sent: list[ToolCall] = []
        self._catalog = catalog
        self._streams = stream_arguments
        self._unsaid = unsaid
        self._may_be_made_up = may_be_made_up
        self._may_be_copied = may_be_copied
        self._text: CallText | None = None
        self._identity = ""
        self._unfinished = False
        self._waiting: list[ToolCall] = []
        self._names: set[str] = set()  # of tools that this reply called
        self._earlier: list[ToolCall] = []  # of earlier replies, not yet written again in this one

    @property
    def unfinished(self) -> str:
        """The tool of a call whose beginning went out and whose end did not; else ""."""
        return self._text.name if self._unfinished and self._text else ""

    def begin(self) -> None:
        """Note that a reply begins."""
        self._earlier = [*self.sent, *self._waiting]
        self._names.clear()

    def start(self, event: ToolCallStart) -> None:
        """Note that the model has begun a call.

        Values that are written in entities cannot go out before they are whole; nor can a second call of a tool, which may turn
        out to be the first once more; nor a call that may turn out to be copied.
        """
        if not self._streams or self._unfinished:
            return
        is_first = event.name not in self._names
        self._names.add(event.name)
        tool = self._catalog.get(event.name)
        is_plain = event.dialect in DIALECTS and not DIALECTS[event.dialect].entities
        is_own = self._may_be_copied is None or not self._may_be_copied(event.name, event.dialect)
        is_certain = tool is not None and is_plain and is_first and is_own
        self._text = CallText(tool, self._catalog, self._unsaid, self._may_be_made_up) if tool and is_certain else None
        self._identity = new_id()

    def add(self, delta: ToolArgumentDelta) -> list[ResponseEvent]:
        """Take a piece of a parameter; return what goes out."""
        if self._text is None or self._unfinished:
            return []
        begun = self._text.begun
        return self._fragment(self._text.add(delta), begun)

    def end_parameter(self) -> list[ResponseEvent]:
        """Note that a parameter is closed; return what goes out."""
        if self._text is None or self._unfinished:
            return []
        begun = self._text.begun
        return self._fragment(self._text.end_parameter(), begun)

    def _fragment(self, text: str, begun: bool) -> list[ResponseEvent]:
        if not text or self._text is None:
            return []
        return [*([] if begun else [self._opening(self._text.name, self._identity)]), *self._pieces(text)]

    def drop(self) -> None:
        """Note that the call that was begun is not valid."""
        if self._text is not None:
            self._unfinished = self._unfinished or self._text.begun
            self._text = self._text if self._unfinished else None

    def end(self, call: ToolCall, *, is_retry: bool) -> list[ResponseEvent]:
        """Take a valid call; return what goes out."""
        same = next((each for each in self._earlier if (each.name, each.arguments) == (call.name, call.arguments)), None)
        if is_retry and same is not None:
            self._earlier.remove(same)
            return []
        if self._unfinished and not is_retry:
            self._waiting.append(call)
            return []
        text, self._text, self._unfinished = self._text, None, False
        begun = text is not None and text.begun
        rest = text.end(call) if text else json.dumps(call.arguments, ensure_ascii=False)
        if rest is None:
            raise broken_off(call.name)
        call = replace(call, id=self._identity) if begun else call
        opening = [] if begun else [self._opening(call.name, call.id)]
        events = [*opening, *self._pieces(rest), CallClosed(index=len(self.sent), call=call)]
        self.sent.append(call)
        return events + self._release()

    def _release(self) -> list[ResponseEvent]:
        waiting, self._waiting = self._waiting, []
        return [event for call in waiting for event in self.end(call, is_retry=False)]

    def _opening(self, name: str, identity: str) -> ResponseEvent:
        return CallOpened(index=len(self.sent), id=identity, name=name)

    def _pieces(self, text: str) -> Iterable[ResponseEvent]:
        return [ArgumentsPiece(index=len(self.sent), text=text)] if text else []


def broken_off(name: str) -> ApiError:
    """Make the error of a call whose beginning went out and that does not come to an end that fits it."""
    message = (
        f"the beginning of a call of {name!r} was sent as the model wrote it, and the call was cut off or cannot run: "
        "ask again, or do without --stream-arguments"
    )
    return ApiError(message, status=502, kind="server_error", code="invalid_tool_call")
