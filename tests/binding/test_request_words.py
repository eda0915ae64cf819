"""What in a request may be a name in another script, for which a value in Latin letters may stand."""

from typing import Any

import pytest

from xmlcall import Catalog, Message, RawCall, Tool, ToolCall, provenance
from xmlcall.binding.grounds import said_before
from xmlcall.binding.spellings import may_have_name
from xmlcall.dialects.write import said_by_whom
from xmlcall.prompting.format import PromptFormat
from xmlcall.prompting.system import reminder
from xmlcall.prompting.writer import with_reminder
from xmlcall.records.store import message_from_json, message_to_json

FIND = Tool(name="find", input_schema={"properties": {"city": {"type": "string"}}})
OURS: list[Any] = [{}, {"needs_tool": False}, {"needs_tool": False, "has_failed": True}]
OURS += [{"needs_tool": False, "unsaid": ["city"], "step": step} for step in ("look_up", "ask", "")]


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("巴黎天气怎么样", True),
        ("天气怎么样？", False),
        ("Погода?", True),
        ("What?", False),
        ("Weather\n\n（巴黎，还有那些我们昨天一起看过的城市）", True),
        ("", False),
    ],
)
def test_what_may_be_a_name(text: str, has: bool) -> None:
    assert may_have_name(text) is has


@pytest.mark.parametrize("is_kept", [False, True], ids=["new", "kept"])
@pytest.mark.parametrize("kind", OURS, ids=str)
def test_our_reminder_after_the_words_of_a_person_names_nothing(kind: Any, is_kept: bool) -> None:
    """It stays in the conversation, to which a later request may point back, also in a database."""
    words = reminder(Catalog([FIND]), PromptFormat(lang="zh"), **kind)
    (asked,) = with_reminder(words, [Message(role="user", content="Hello")])
    if is_kept:
        asked = message_from_json(message_to_json(asked))
    request = "And the weather there?"
    assert words in asked.content
    messages = [asked, Message(role="assistant", content="Hi."), Message(role="user", content=request)]
    said = [text for _, role, _, text in said_by_whom(messages) if role == "user"]
    assert said == ["Hello", request]
    assert not said_before(said, request, []).may_name_in_other_script
    call = ToolCall(id="1", name="find", arguments={"city": "Paris"}, raw=RawCall(index=0, name="find"))
    assert not provenance(call, messages, [FIND])["$.city"].may_be_translation
