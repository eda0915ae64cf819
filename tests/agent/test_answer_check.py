"""Answers that do not stand on what a turn found out: after nothing but failures, and earlier ones once more."""

from typing import Any

import pytest
from proxy_harness import add, ask, block, body

from xmlcall import Answer, Chunk, LocalHost, Message, ToolLoop
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.binding.grounds import Said
from xmlcall.turn import turn_setup
from xmlcall.turn.attempts import RepairPolicy
from xmlcall.turn.events import RetryAsked
from xmlcall.turn.turn_setup import claims_a_deed, found_nothing, repeats, says_no_access, unfounded

ASKS = RepairPolicy(asks_for_unsaid=True)
PRICE = block(("stock_price", {"symbol": "ACME"}))

# outcomes of calls, and whether nothing was found
NOTHING: list[list[str | None]] = [[None], ["", " \n"], ["[]"], ['{"results": [], "total": 0}'], ["null"]]
NOTHING += [["No results found for 'ACME'."], ["没有找到相关结果。"]]
SOMETHING: list[list[str | None]] = [
    [],
    [None, "12.5"],
    ['{"results": [{"id": 7}]}'],
    ["0"],
    ["false"],
    ["Nothing was said about it."],
]
OUTCOMES = [*((each, True) for each in NOTHING), *((each, False) for each in SOMETHING)]


@pytest.mark.parametrize(("outcomes", "expected"), OUTCOMES, ids=[str(case[0])[:30] for case in OUTCOMES])
def test_a_result_that_says_nothing(outcomes: list[str | None], expected: bool) -> None:
    assert found_nothing(outcomes) is expected


# an answer to "What does ACME cost on March 3rd?" after "error 503" -> what nobody said
ANSWERS: list[tuple[str, tuple[str, ...]]] = [
    ("I could not look up the price of ACME: error 503.", ()),
    ("ACME costs $142.50.", ("142.50",)),
    ("ACME 的价格是 142.5 元。", ("142.5",)),
    ("On 2024-03-03 nothing is known.", ()),
    ("On March 4th it was closed.", ("4",)),
    ("Two ways:\n1. Try again later.\n2. Ask your broker.", ()),
    ("Dear Customer, on March 3rd 2024 it was closed.", ("Dear Customer",)),
    ("Dear Acme, look it up.", ()),
    ("You may ask John Miller, or write to broker@acme.com.", ("John Miller", "broker@acme.com")),
    ("Canberra.", ()),
]


@pytest.mark.parametrize(("answer", "expected"), ANSWERS, ids=[case[0][:30] for case in ANSWERS])
def test_values_of_an_answer_that_nobody_said(answer: str, expected: tuple[str, ...]) -> None:
    said = Said(["What does ACME cost on March 3rd, 2024?", "error 503"])
    found = unfounded(answer, said)
    assert [each.rstrip("th") for each in found] == list(expected)


@pytest.mark.parametrize(
    ("answer", "results", "expected"),
    [
        ("I like music.", ["-27"], True),
        ("I like  music.\n", ["-27"], True),
        ("It is -27.", ["-27"], False),  # asked once more, and right once more
        ("I like music.", [], False),
        ("I like films.", ["-27"], False),
        ("Done.", [""], False),
    ],
)
def test_an_earlier_answer(answer: str, results: list[str], expected: bool) -> None:
    assert repeats(answer, ["Hello!", "I like music.", "It is -27."], results) is expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The budget file has been deleted.", True),
        ("I've sent the mail to Tom.", True),
        ("The meeting has now been moved to 3 pm. Anything else?", True),
        ("邮件已发送给李伟。", True),
        ("I have not sent the mail.", False),
        ("It could not be deleted. Nothing was removed, since the tool failed.", False),
        ("The mail is sent once you say yes.", False),
        ("文件没有找到，所以未删除。", False),
        ("The invoice was paid on May 3rd.", False),
        ("Its path is /home/ana/budget.xlsx.", False),
        ("I can delete it.", False),
    ],
)
def test_a_deed_of_which_no_result_tells(answer: str, expected: bool) -> None:
    assert claims_a_deed(answer, ["INV-7781: paid on May 3rd", "/home/ana/budget.xlsx"]) is expected


@pytest.mark.parametrize(
    "answer",
    [
        "I'm sorry, but I don't have real-time information about the weather.",
        "As an AI developed by Alibaba Cloud, I don't have real-time access to external information.",
        "As an AI language model, I don't have personal memories or experiences.",
        "I am an AI language model and I do not have access to your calendar.",
        "Unfortunately, I can’t provide current weather.",
        "I'm currently unable to browse the web.",
        "I cannot directly read files on your computer. However, you can ...",
        "对不起，我是一个语言模型，没有个人记忆。",
        "抱歉，我目前无法查询实时天气。",
        "作为一个AI语言模型，我无法获取实时信息。",
    ],
)
def test_an_answer_that_says_no_access_may_say_so_from_its_first_letter_on(answer: str) -> None:
    assert says_no_access(answer)
    assert all(says_no_access(answer[:end], partial=True) for end in range(len(answer)))


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ("I'm sorry, but I can't assist with that.", 25),
        ("I'm sorry to hear that you are sad.", 11),
        ("I don't have any siblings, said the joke.", 26),
        ("I can't believe it.", 10),
        ("As an example, take 3.", 22),
        ("Here is the poem: I cannot see ...", 1),
        ("抱歉，我不能帮助你做这件事。", 7),
        ("北京是中国的首都。", 1),
    ],
)
def test_a_refusal_for_another_reason_is_no_lack_of_access(answer: str, known: int) -> None:
    """The number is of characters after which the answer is passed on."""
    assert not says_no_access(answer)
    assert next(end for end in range(len(answer) + 1) if not says_no_access(answer[:end], partial=True)) == known


@pytest.mark.parametrize("chunk_size", [None, 1])
async def test_a_deed_that_no_call_did_is_asked_for_again(chunk_size: int | None) -> None:
    def list_files() -> str:
        """List the files."""
        return "budget.xlsx, beach.jpg"

    def delete_file(path: str) -> str:
        """Delete a file."""
        return "gone"

    lists, deletes = block(("list_files", {})), block(("delete_file", {"path": "budget.xlsx"}))
    replies = [lists, "The budget file has been deleted.", deletes, "The budget file has been deleted."]
    backend = ScriptedBackend(replies, chunk_size=chunk_size)
    hosts = [LocalHost([list_files, delete_file])]
    async with ToolLoop(backend, hosts, policy=["*"], repair=ASKS) as loop:
        answer = await loop.ask("Delete the file with the budget.")
    assert (answer.text, len(backend.requests)) == ("The budget file has been deleted.", 4)
    assert "No tool has done that" in backend.requests[2].messages[-1].content
    given: dict[str, Any] = {"hosts": hosts, "allowed": ["*"], "repair": ASKS}
    backend = ScriptedBackend([lists, "It has been deleted.", "Nothing was deleted: which file?"], chunk_size=chunk_size)
    asked = await ask(backend, body("Delete the file with the budget.", tools=()), **given)
    assert asked.text == "Nothing was deleted: which file?", "and nothing of the first answer"


@pytest.mark.parametrize(
    ("said", "answer", "is_asked_again"),
    [
        ("Save 42 in n.txt.", "I have saved it in n.txt.", True),
        ("把42存进 n.txt", "好的，我已经将42写入了 n.txt 文件中。", True),
        ("Can you save 42 in n.txt?", "I have saved it in n.txt.", False),
        ("Save 42 in n.txt.", "I cannot save files.", False),
        ("Change this to a question: It rains.", "I have changed it:\n\nDoes it rain?", False),
        ("Correct the tense: Yesterday I buy two books.", "Yesterday I have bought two books.", False),
        ("Correct the tense. Yesterday I buy two books", "Yesterday I bought two books.", False),
        ("Who wrote Hamlet?", "It was written by Shakespeare.", False),
    ],
)
@pytest.mark.parametrize("chunk_size", [None, 1])
async def test_a_deed_without_any_call_is_asked_for_again(
    said: str, answer: str, is_asked_again: bool, chunk_size: int | None
) -> None:
    def write_file(path: str, content: str) -> str:
        """Write a file."""
        return "done"

    written = block(("write_file", {"path": "n.txt", "content": "42"}))
    hosts, asked = [LocalHost([write_file])], body(said, tools=())
    backend = ScriptedBackend([answer, *([written, "Done.", answer] if is_asked_again else [])], chunk_size=chunk_size)
    async with ToolLoop(backend, hosts, policy=["*"], repair=ASKS) as loop:
        assert (await loop.ask(said)).text == ("Done." if is_asked_again else answer)
        if is_asked_again:
            assert (await loop.ask(said)).text == answer, "it may be of what the earlier call did"
    backend = ScriptedBackend([answer, written, "Done."], chunk_size=chunk_size)
    whole = await ask(backend, asked, hosts=hosts, allowed=["*"], repair=ASKS)
    assert whole.text == ("Done." if is_asked_again else answer), "and nothing of the first answer"


async def test_a_claim_of_an_answer_without_tools_gets_the_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_file(path: str, content: str) -> str:
        """Write a file."""
        return "done"

    looked: list[str] = []

    def asks_for_change(request: str) -> bool:
        looked.append(request)
        return True

    monkeypatch.setattr(turn_setup, "asks_for_change", asks_for_change)
    needs_none = Chunk(text="The", top_logprobs=(("The", -0.0001), ("<", -9.2)))
    written = block(("write_file", {"path": "n.txt", "content": "42"}))
    backend = ScriptedBackend([[needs_none], "I have saved it in n.txt.", written, "Done."], chunk_size=1)
    request = body("Save 42 in n.txt.", tools=())
    whole = await ask(
        backend, request, hosts=[LocalHost([write_file])], allowed=["*"], repair=ASKS, mode="xml", call_threshold=0.0
    )
    assert whole.text == "Done."
    assert [[message.role for message in each.messages] for each in backend.requests[1:3]] == [["user"], ["system", "user"]]
    assert "No tool has done that" in backend.requests[2].messages[-1].content
    assert len(looked) <= 2, "not for each piece"


async def test_what_is_only_read_may_be_told() -> None:
    def find_mail(about: str) -> str:
        """Find a mail."""
        return "from Ann, about the budget"

    backend = ScriptedBackend([block(("find_mail", {"about": "budget"})), "It was sent by Ann."])
    async with ToolLoop(backend, [LocalHost([find_mail])], policy=["*"], repair=ASKS) as loop:
        assert (await loop.ask("Find the mail about the budget.")).text == "It was sent by Ann."


def stock_price(symbol: str) -> str:
    """Look up the price of a share."""
    raise ValueError("the exchange does not answer")


def subtract(a: int, b: int) -> int:
    """Subtract two numbers."""
    return a - b


async def run(replies: list[str], *said: str, repair: RepairPolicy = ASKS) -> tuple[list[Any], ScriptedBackend]:
    backend, roles = ScriptedBackend(replies), ("user", "assistant")
    messages = [Message(role=roles[at % 2], content=text) for at, text in enumerate(said)]  # type: ignore[arg-type]
    async with ToolLoop(backend, [LocalHost([stock_price, subtract])], policy=["*"], repair=repair) as loop:
        return [event async for event in loop.run(messages)], backend


def answer_of(events: list[Any]) -> Answer:
    assert isinstance(events[-1], Answer)
    return events[-1]


async def test_a_price_that_no_tool_gave_is_asked_for_again() -> None:
    events, backend = await run([PRICE, "ACME costs $142.50.", "The exchange does not answer."], "What does ACME cost?")
    assert answer_of(events).text == "The exchange does not answer."
    assert [(event.refusal, event.retry, event.limit) for event in events if isinstance(event, RetryAsked)] == [
        ("unfounded", 1, 1)
    ]
    assert "nobody knows 142.50" in backend.requests[-1].messages[-1].content
    assert "142.50" not in str(answer_of(events).messages)


async def test_it_is_asked_for_once() -> None:
    events, backend = await run([PRICE, "ACME costs $142.50.", "It costs $142.50."], "What does ACME cost?")
    assert (answer_of(events).text, answer_of(events).stop_reason, len(backend.requests)) == ("It costs $142.50.", "end", 3)


async def test_without_the_setting_it_is_not() -> None:
    events, _ = await run([PRICE, "ACME costs $142.50."], "What does ACME cost?", repair=RepairPolicy())
    assert answer_of(events).text == "ACME costs $142.50."


async def test_an_earlier_answer_is_asked_for_again_after_a_new_result() -> None:
    replies = [block(("subtract", {"a": 3, "b": 30})), "I like music.", "It is -27."]
    events, backend = await run(replies, "What do you like?", "I like music.", "What is 3 minus 30?")
    assert answer_of(events).text == "It is -27."
    assert "You gave this answer before." in backend.requests[-1].messages[-1].content


async def test_another_call_may_follow() -> None:
    replies = [PRICE, "ACME costs $142.50.", block(("subtract", {"a": 3, "b": 30})), "It is -27."]
    events, _ = await run(replies, "What does ACME cost, and what is 3 minus 30?")
    assert answer_of(events).text == "It is -27."


@pytest.mark.parametrize("chunk_size", [None, 1])
async def test_a_caller_of_the_proxy_sees_only_the_answer_that_stays(chunk_size: int | None) -> None:
    given: dict[str, Any] = {"hosts": [LocalHost([stock_price, subtract])], "allowed": ["*"], "repair": ASKS}
    backend = ScriptedBackend([PRICE, "ACME costs $142.50.", "The exchange does not answer."], chunk_size=chunk_size)
    assert (await ask(backend, body("What does ACME cost?", tools=()), **given)).text == "The exchange does not answer."
    said = [{"role": "user", "content": "What do you like?"}, {"role": "assistant", "content": "I like music."}]
    messages = [*said, {"role": "user", "content": "What is 3 minus 30?"}]
    replies = [block(("subtract", {"a": 3, "b": 30})), "I like music.", "I like -27."]
    turn = await ask(ScriptedBackend(replies, chunk_size=chunk_size), body(tools=()) | {"messages": messages}, **given)
    assert turn.text == "I like -27."


async def test_words_before_a_callers_call_reach_it_after_a_failure() -> None:
    given: dict[str, Any] = {"hosts": [LocalHost([stock_price])], "allowed": ["*"], "repair": ASKS}
    turn = await ask(ScriptedBackend([PRICE, f"Then I add.\n{add(1, 2)}"]), body("What does ACME cost, and 1 + 2?"), **given)
    assert (turn.text.strip(), [call.name for call in turn.calls]) == ("Then I add.", ["add"])
