"""What was said in a turn so far, and what follows from it: values that nobody said, answers that stand on nothing.

A call with such a value is told to the model once (`binding.grounds`), and an answer once (`answer_check`): it may know better.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from ..binding.grounds import Said, asks_for_change, groundless, is_grounded, said_before, stands_for_another, stands_on
from ..binding.provenance import SaidIndex, ValueSource
from ..prompting.leaks import Refusal
from ..tools.effects import may_write, only_reads
from ..types.calls import InvalidCall, ToolCall
from ..types.tool import Tool
from .answer_check import claims_a_deed, found_nothing, repeats, unfounded
from .turn_setup import Offer, Words

__all__ = ["SaidSoFar"]

_CODE: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_NUMBER: Final = re.compile(r"(?<![\w/.:-])[0-9]+(?:\.[0-9]+)?(?![\w/.:-])")  # no part of a path, a time or a version


class SaidSoFar:
    """What people, results and the model have said in a turn.

    Attributes:
        results: texts of what tools returned.
        heard: what was said before the reply under way.
    """

    def __init__(self, words: Words, *, asks: bool) -> None:
        self.results: list[str] = []
        self.heard = Said(())
        self._words = words
        self._asks = asks
        self._own: Sequence[str] = ()  # what the model said in earlier turns
        self._ran: list[str] = []  # calls as they were written
        self._outcomes: list[str | None] = []  # of calls that could run, the text of the result; None for a failure
        self._told: set[tuple[str, str]] = set()  # tools and parameters of which the model was told that nobody said them
        self._new: set[tuple[str, str]] = set()  # in this reply
        self._bound: list[str] = []  # tools of the calls of the reply under way
        self._has_only_read = True  # the calls that ran
        self._has_doubted = False  # an answer was asked for again

    def begin_reply(self, own: Sequence[str]) -> None:
        """Note that the model writes its next reply.

        Args:
            own: what it said in earlier turns, as far as it is shown that.
        """
        self._own, self._bound, self._told = [*map(_without_examples, own)], [], self._told | self._new
        self.heard = said_before(self._texts(), self._words.request, self.results, self._ran)

    def ran(self, call: ToolCall, result: str, tool: Tool | None) -> None:
        """Note that a call ran.

        Args:
            tool: that was called; None if it is not on offer any more.
        """
        self._has_only_read = self._has_only_read and tool is not None and only_reads(tool)
        self._ran.append(call.raw.text)
        self.results.append(result)

    def came_of_calls(self, outcomes: Sequence[str | None]) -> None:
        """Note what came of a reply's calls, other than those that only tell what is known."""
        self._outcomes += outcomes

    def _texts(self) -> list[str]:
        """Return what people, results, the program and the model in earlier turns said."""
        return [*self._words.sources.said, *self._words.sources.instructions, *self.results, *self._own]

    def index(self) -> SaidIndex:
        """Return all that the model may have a value from: what others said, and what it said itself in earlier replies."""
        index = SaidIndex()
        for text in (*self._texts(), *self._ran, *self._words.sources.described):
            index.add(text, ValueSource(kind="system"))
        return index

    # -- calls -----------------------------------------------------------------------------------------------------------------

    def groundless(self, call: ToolCall, offer: Offer) -> tuple[str, ...]:
        """Return the parameters of a call whose values nobody said."""
        tool = offer.catalog.get(call.name)
        if tool is None or not self._asks or call.name in offer.own:
            return ()
        return groundless(call.arguments, tool, self.heard)

    def to_be_told(self, call: ToolCall, offer: Offer, *, is_last: bool) -> tuple[str, ...]:
        """Return the parameters for which a call does not run, once each: a model that insists may know better."""
        is_after_another = any(each != call.name for each in self._bound)  # whose result may have the values (`waiting`)
        self._bound.append(call.name)
        tool, names = offer.catalog.get(call.name), self.groundless(call, offer)
        if tool is None or not names:
            return ()
        new = {(call.name, name) for name in names} - self._told
        is_told = bool(new) and not is_last and not is_after_another
        self._new |= new if is_told else set()
        return names if is_told or _never_runs_unsaid(tool, offer) else ()

    def stand_ins(self, call: InvalidCall, offer: Offer) -> list[str]:
        """Return the parameters of a call that cannot run for which it has a placeholder, or what the schema says of them."""
        tool = offer.catalog.get(offer.catalog.meant_by(call.name) or "")
        if tool is None or not self._asks:
            return []
        return [each.name for each in call.raw.arguments if stands_for_another(each.text.strip(), each.name, tool, self.heard)]

    def may_be_made_up(self, tool: Tool, name: str, value: Any, offer: Offer, *, is_last: bool) -> bool:
        """Say whether a call under way may not run because of a value, whatever else it will have."""
        is_open = ((tool.name, name) not in self._told and not is_last) or _never_runs_unsaid(tool, offer)
        return is_open and not is_grounded(name, value, tool, self.heard)

    def is_ground_for(self, call: ToolCall, tool: Tool) -> bool:
        """Say whether the values of a call that was begun in doubt come from what was said."""
        earlier = (each for message in self._words.conversation for each in message.tool_calls)
        return stands_on(call.arguments, tool, self.heard, self._words.request, earlier)

    # -- answers ---------------------------------------------------------------------------------------------------------------

    @property
    def may_doubt(self) -> bool:
        """Whether an answer may be asked for again because of what it says."""
        return self._asks and bool(self._outcomes) and not self._has_doubted

    @property
    def is_empty_handed(self) -> bool:
        """Whether no call found anything, so that an answer may state nothing that nobody said."""
        return self.may_doubt and found_nothing(self._outcomes)

    def may_claim(self, offer: Offer) -> bool:
        """Say whether an answer may claim a deed that no call did: the request asks for a change, and calls only read."""
        is_due = self.may_doubt and self._has_only_read and asks_for_change(self._words.request)
        return is_due and any(map(may_write, offer.catalog))

    @property
    def found_one_thing(self) -> bool:
        """Whether the last call told something, and not several of which one has to be chosen: its result is one line."""
        last = self._outcomes[-1:]
        return (
            bool(last)
            and not found_nothing(last)
            and all(text and "\n" not in text.strip() and text.count("{") < 2 for text in last)
        )

    def may_repeat(self, text: str) -> bool:
        """Say whether an answer under way may be an earlier one."""
        begun = " ".join(text.split())
        return self.may_doubt and any(" ".join(each.split()).startswith(begun) for each in self._earlier_answers())

    def doubts(self, text: str, offer: Offer) -> tuple[Refusal, tuple[str, ...]]:
        """Return why an answer is asked for again, "" if it is not, and the values in it that nobody said."""
        values = unfounded(text, self.heard) if self.is_empty_handed else ()
        why: Refusal = "unfounded" if values else ""
        if not why and self.may_claim(offer) and claims_a_deed(text, self.results):
            why = "undone"
        if not why and repeats(text, self._earlier_answers(), self.results):
            why = "repeated_answer"
        self._has_doubted = self._has_doubted or bool(why)
        return why, values

    def _earlier_answers(self) -> list[str]:
        return [message.content for message in self._words.conversation if message.role == "assistant" and message.content]


def _without_examples(text: str) -> str:
    """Leave out the numbers of code that the model wrote: `sum([1, 2, 3])` says 3 to nobody."""
    return _CODE.sub(lambda code: _NUMBER.sub("", code[0]), text)


def _never_runs_unsaid(tool: Tool, offer: Offer) -> bool:
    """Say whether a model may not insist: the call would go to a caller, where perhaps no person sees it, and it writes."""
    return tool.name in offer.of_caller and may_write(tool)
