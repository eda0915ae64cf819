"""A reply while it comes, and behind that: what is kept of it, as little as possible.

Events wait until somebody looks, or until there are enough to be folded together; of a reply that has ended there is none left.
Where its raw text is heard, word by word, pieces of one text or value that follow each other cost an offset each.
"""

from dataclasses import replace

from ..turn.events import TurnEnded
from ..types.calls import Message
from ..types.events import Event, Markup, ReasoningDelta, TextDelta, ToolArgumentDelta, ToolCallEnd, ToolCallStart
from .model import ReplyRecord
from .places import SaidBefore
from .reading import Reading

__all__ = ["ReplyUnderWay"]


class ReplyUnderWay:
    """A reply while it comes, and behind that."""

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.asked_at = now
        self.first_at: float | None = None
        self.ended_at: float | None = None
        self.prompt: tuple[Message, ...] = ()
        self.conversation: tuple[Message, ...] = ()
        self.pending: list[Event] = []
        self.run_end = 0  # of the last of them, which may stand for several that followed each other
        self.reading = Reading()
        self.begun = ""  # the model's own words at the end of the prompt
        self.is_begun = False  # they are the beginning of the reply, and not words that a caller put there
        self.wrote: list[str] = []
        self.is_heard = False  # `wrote` is called
        self.told: list[str] = []  # text put together from events
        self.told_end = 0
        self.raw = ""  # once it is known as a whole
        self.finish_reason = ""
        self.reasoning: str | None = None
        self.is_kept = True
        self.refusal = ""
        self.tokens: dict[str, int | None] = {}
        self.counting: frozenset[str] | None = None  # ids of the calls that count; None until the reply has ended
        self.said: SaidBefore | None = None
        self.record: ReplyRecord | None = None  # until something changes

    @property
    def has_come(self) -> bool:
        """Whether anything of it is there."""
        return bool(self.pending) or self.reading.end > 0 or bool(self.reading.reasoning or self.reading.calls or self.raw)

    def goes_on_with(self, event: TextDelta | ToolArgumentDelta) -> bool:
        """Let the last event stand for one that only goes on with it; of a text that was heard the events' own is not needed."""
        last = self.pending[-1] if self.pending else None
        if type(last) is not type(event) or event.span[0] != self.run_end:
            return False
        if isinstance(last, ToolArgumentDelta) and isinstance(event, ToolArgumentDelta) and last.parameter != event.parameter:
            return False
        self.run_end = event.span[1]
        return True

    def end_run(self) -> None:
        """Give the last event the place of all that it stands for."""
        if self.pending and self.pending[-1].span[1] < self.run_end:
            last = self.pending[-1]
            self.pending[-1] = replace(last, span=(last.span[0], self.run_end))

    def fold(self) -> None:
        """Work out what has come, and let go of it."""
        self.end_run()
        events, self.pending = self.pending, []
        self.reading.take(events)
        if not self.is_heard and self.counting is None:
            for event in events:
                self._put_together(event)

    def _put_together(self, event: Event) -> None:
        start, end = event.raw.span if isinstance(event, ToolCallEnd) else event.span
        if isinstance(event, ToolCallEnd) and start <= self.told_end < end and len(event.raw.text) == end - start:
            text = event.raw.text[self.told_end - start :]
        elif isinstance(event, TextDelta | ReasoningDelta | ToolArgumentDelta) and start == self.told_end:
            text = event.text if len(event.text) == end - start else ""
        else:
            return
        self.told.append(text)
        self.told_end += len(text)

    def text(self) -> str:
        """Return its raw text, as far as it is known."""
        if self.counting is not None:
            return self.raw
        pieces = self.wrote if self.is_heard else self.told
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]
        written = pieces[0] if pieces else ""
        return self.begun + written if self.is_begun and self.is_heard else written

    def note_first(self, event: Event, now: float) -> None:
        """Take in the first event: a reply that was begun for the model begins with the markup of a call."""
        self.first_at = now
        if self.begun and isinstance(event, Markup | ToolCallStart) and event.span[1] <= len(self.begun):
            self.is_begun = not "".join(self.wrote).startswith(self.begun[: event.span[1]])

    def goes_on(self, begun: str) -> bool:
        """Say whether a request asks for the rest of this reply."""
        return self.has_come or bool(begun and self.wrote and begun in (self.text(), self.begun + self.text()))

    def end(self, event: TurnEnded) -> None:
        """Take in the end of the reply."""
        self.fold()
        self.raw = event.raw or self.text()
        self.counting = frozenset(call.id for call in event.reply.calls)
        self.reading.settle(event.reply)
        own = sum(span.end - span.start for span in self.reading.spans(len(self.raw)) if span.kind == "reasoning")
        if not self.reading.reasoning and event.reply.reasoning and not own:
            self.reading.reasoning.append(event.reply.reasoning)
        self.finish_reason, self.is_kept = event.reply.finish_reason, event.message is not None
        usage = event.usage
        self.tokens = {name: getattr(usage, name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
        if self.is_begun and self.raw.startswith(self.begun):
            self.prompt = self.prompt[:-1]
        self.wrote, self.told, self.begun = [], [], ""
