"""Which slot of llama.cpp a request goes to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlcall import Message
from xmlcall.backends.embedded import SLOTS, Slots
from xmlcall.types.completion import CompletionRequest

Asked = tuple[str, bool]
TALK: Asked = ("Tools.", False)
ASIDE: Asked = ("Tools.", True)
BARE: Asked = ("", False)
NUMBER: Asked = ("", True)


def request_of(asked: Asked) -> CompletionRequest:
    system, aside = asked
    before = (Message(role="system", content=system),) if system else ()
    return CompletionRequest(messages=(*before, Message(role="user", content="Hi")), aside=aside)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([TALK, TALK], [(0, None), (0, None)]),
        ([ASIDE, TALK, ASIDE, TALK], [(0, None), (1, 0), (0, None), (1, None)]),
        ([TALK, ASIDE, NUMBER], [(0, None), (1, 0), (2, None)]),
        ([BARE, NUMBER], [(0, None), (1, None)]),  # nothing is shared without a system message
        ([ASIDE, NUMBER, BARE, TALK, ASIDE], [(0, None), (1, None), (2, None), (3, 0), (0, None)]),
        ([TALK, ASIDE, BARE, NUMBER, ("Other.", False), TALK], [(0, None), (1, 0), (2, None), (3, None), (0, None), (2, 1)]),
    ],
)
def test_each_use_has_a_slot_of_its_own(asked: list[Asked], expected: list[tuple[int, int | None]]) -> None:
    slots = Slots()
    assert [slots.place(request_of(each)) for each in asked] == expected


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.booleans()), max_size=30))
def test_a_slot_is_copied_from_what_begins_alike(asked: list[Asked]) -> None:
    slots, held = Slots(), dict[int, Asked]()
    for each in asked:
        slot, source = slots.place(request_of(each))
        assert 0 <= slot < SLOTS
        if source is not None:
            assert source != slot
            assert held[source] == (each[0], not each[1])
            assert held.get(slot) != each
        held[slot] = each
