"""Calls with values that nobody said, in turns of the loop and of the proxy: the model looks them up, asks, or insists."""

import math
from dataclasses import replace
from typing import Any

import pytest
from proxy_harness import block, body, function
from turn_harness import answer_of

from xmlcall import InvalidCall, LocalHost, Message, Tool, ToolLoop
from xmlcall.agent.asking_person import AskingPerson, PersonAnswer, Question
from xmlcall.agent.policy import Decision, Proposal
from xmlcall.agent.rules import Rule, Ruling, allowing
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import beginning
from xmlcall.proxy.engine.engine import Engine
from xmlcall.proxy.formats.contract import whole_response
from xmlcall.proxy.formats.openai_chat import CHAT
from xmlcall.tools.catalog import may_write
from xmlcall.turn.attempts import RepairPolicy
from xmlcall.turn.events import CallFinished, CallRejected, LoopEvent
from xmlcall.types.completion import Capabilities, Chunk

CONTINUES = Capabilities(server="llama.cpp", continues=True, most_logprobs=77)
ASKS = RepairPolicy(asks_for_unsaid=True)
BERKELEY, PARIS = block(("weather", {"city": "Berkeley, CA"})), block(("weather", {"city": "Paris"}))


def weather(city: str) -> str:
    """Get the weather of a city."""
    return f"{city}: 21 degrees"


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return weather(city)


def home_of(person: str) -> str:
    """Look up where a person lives."""
    return f"{person} lives in Berkeley, CA"


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def buy_ticket(show: str = "") -> str:
    """Buy a ticket."""
    return "bought"


def first(text: str) -> list[Chunk]:
    """Make the answer to a request for one token, of which the model is sure."""
    return [Chunk(text=text, top_logprobs=((text, -0.001),)), Chunk(finish_reason="length")]


async def events_of(backend: ScriptedBackend, said: str, **options: Any) -> list[LoopEvent]:
    given: dict[str, Any] = {"policy": ["*"], "repair": ASKS, **options}
    async with ToolLoop(backend, [LocalHost([weather, home_of])], **given) as loop:
        return [event async for event in loop.run([Message(role="user", content=said)])]


# the request, log-odds of a call, values -> how the question begins that the person is asked; "" where plain words are asked for
TAKEN_BACK: dict[str, tuple[str, float, dict[str, str], str]] = {
    "a value that nobody said": ("How is it there?", 9.0, {"city": "Berkeley, CA"}, "Please tell me the city"),
    "in Chinese": ("那里怎么样？", 9.0, {"city": "北京"}, "请告诉我"),
    "in doubt": ("How is it there?", -2.0, {"city": "Berkeley, CA"}, ""),
    "in doubt, with a word of the name": ("How is the weather?", -2.0, {"city": "Berkeley, CA"}, "Please tell me the city"),
    "in doubt, in Chinese, about what the tool is for": ("天气怎么样？", -2.0, {"city": "Paris"}, "请告诉我"),
    "in doubt, in Chinese, without such a word": ("那里怎么样？", -2.0, {"city": "Paris"}, ""),
    "a value of our example": ("How is it there?", 9.0, {"city": "city value"}, ""),
    "the same, with a word of the name": ("How is the weather?", -2.0, {"city": "city value"}, "Please tell me the city"),
}


@pytest.mark.parametrize("case", TAKEN_BACK)
async def test_a_begun_call_is_taken_back_and_the_person_is_asked(case: str) -> None:
    request, odds, values, question = TAKEN_BACK[case]
    begun = beginning(DIALECTS["function_calls"], "get_weather")
    share = 1 / (1 + math.exp(-odds))
    sure = [Chunk(text="<", top_logprobs=(("<", math.log(share)), ("No", math.log(1 - share)))), Chunk(finish_reason="length")]
    backend = ScriptedBackend([sure, block(("get_weather", values)).removeprefix(begun), " name."], capabilities=CONTINUES)
    async with ToolLoop(backend, [LocalHost([get_weather])], policy=["*"], repair=ASKS, call_threshold=0.0) as loop:
        answer = await loop.ask(request)
    assert [message.content for message in answer.messages] == [request, f"{question} name."]
    asked = backend.requests[2].messages
    assert [message.role for message in asked] == ["user", *(["assistant"] if question else [])], "no tool is offered again"
    if question:
        assert asked[-1].content == question
        assert "city" in asked[0].content.removeprefix(request), "it is named"


@pytest.mark.parametrize(("found", "runs"), [("Ann lives in Berkeley, CA", True), ("not known", False)])
@pytest.mark.parametrize("again", [BERKELEY, "Take Berkeley, CA."], ids=["in a call", "in words"])
async def test_what_only_we_have_said_again_is_nobodys(again: str, *, found: str, runs: bool) -> None:
    told = f'<function_results>\n<result name="home_of">\n{found}\n</result>\n</function_results>\n\n{again}'
    said = ["Where is Ann?", block(("home_of", {"person": "Ann"})), told, "I cannot tell.", "How is the weather?"]
    before = [Message(role="assistant" if place % 2 else "user", content=text) for place, text in enumerate(said)]
    async with ToolLoop(ScriptedBackend([BERKELEY, "Well."]), [LocalHost([weather])], policy=["*"], repair=ASKS) as loop:
        events = [event async for event in loop.run(before)]
    assert any(isinstance(event, CallFinished) for event in events) == runs


async def test_a_begun_call_that_cannot_run_because_of_a_placeholder_is_taken_back() -> None:
    begun = beginning(DIALECTS["function_calls"], "multiply")
    call = block(("multiply", {"a": 12, "b": "? (required) The number to multiply by"}))
    backend = ScriptedBackend([first("<"), call.removeprefix(begun), " number."], capabilities=CONTINUES)
    async with ToolLoop(backend, [LocalHost([multiply])], policy=["*"], repair=ASKS, call_threshold=0.0) as loop:
        answer = await loop.ask("Multiply 12 by a number.")
    assert answer.text == "Please tell me the number."
    assert "(This needs b, and nobody said that." in backend.requests[2].messages[0].content


@pytest.mark.parametrize(("told", "runs"), [("```python\nsum([1, 2, 3])  # 6\n```", False), ("Shall I take 3?", True)])
async def test_the_numbers_of_the_models_own_code_are_said_by_nobody(told: str, *, runs: bool) -> None:
    said = ["Sum a list in Python.", told, "Multiply 12 by a number."]
    before = [Message(role="assistant" if place % 2 else "user", content=text) for place, text in enumerate(said)]
    backend = ScriptedBackend([block(("multiply", {"a": 12, "b": 3})), "By which number?"])
    async with ToolLoop(backend, [LocalHost([multiply])], policy=["*"], repair=ASKS) as loop:
        events = [event async for event in loop.run(before)]
    assert any(isinstance(event, CallFinished) for event in events) == runs


@pytest.mark.parametrize(("words", "called"), [("Find out if there is a concert.", "home_of"), ("Buy a ticket.", "buy_ticket")])
async def test_a_tool_that_writes_is_not_chosen_where_only_finding_is_asked_for(words: str, called: str) -> None:
    choice = [Chunk(text="buy", top_logprobs=(("buy", -0.001), ("home", -9.0))), Chunk(finish_reason="length")]
    asked: list[Any] = [first("<")] if called == "home_of" else [first("<"), choice]
    backend = ScriptedBackend([*asked, "\n</invoke>\n</function_calls>", "No."], capabilities=CONTINUES)
    async with ToolLoop(backend, [LocalHost([buy_ticket, home_of])], policy=["*"], call_threshold=0.0) as loop:
        await loop.ask(words)
    assert backend.requests[len(asked)].messages[-1].content == beginning(DIALECTS["function_calls"], called)


async def test_where_every_tool_writes_plain_words_are_asked_for_by_who_wants_to_find_something_out() -> None:
    backend = ScriptedBackend([first("<"), "I do not know."], capabilities=CONTINUES)
    async with ToolLoop(backend, [LocalHost([buy_ticket])], policy=["*"], call_threshold=0.0) as loop:
        answer = await loop.ask("Find out if there is a concert.")
    assert answer.text == "I do not know."
    assert [message.content for message in backend.requests[1].messages] == ["Find out if there is a concert."]


@pytest.mark.parametrize(("threshold", "others"), [(0.0, ""), (8.0, ""), (0.0, "\nAnn B.: ann.b@nordlicht.io")])
async def test_an_address_is_looked_up_with_the_tool_that_may_tell_it(threshold: float, others: str) -> None:
    def send_mail(to: str) -> str:
        """Send a mail to an address."""
        return f"sent to {to}"

    def find_contact(name: str) -> str:
        """Look up the mail address of a person."""
        return f"{name}: ann@nordlicht.io{others}"

    def rest(name: str, value: str) -> str:
        return f'<parameter name="{name}">{value}</parameter>\n</invoke>\n</function_calls>'

    begun = '<function_calls>\n<invoke name="send_mail">\n'
    sends = (begun if others else "") + rest("to", "ann@nordlicht.io")
    said: list[Any] = [
        first("<"),
        *([first("no number")] if threshold else []),
        first("send"),
        first("send"),
        rest("to", "ann@example.com"),
        rest("name", "Ann"),
        sends,
        "Sent.",
    ]
    backend = ScriptedBackend(said, capabilities=CONTINUES)
    async with ToolLoop(
        backend, [LocalHost([send_mail, find_contact, weather])], policy=["*"], repair=ASKS, call_threshold=threshold
    ) as loop:
        answer = await loop.ask("Mail Ann that I am late.")
    assert answer.text == "Sent."
    assert backend.requests[-3].messages[-1].content.startswith('<function_calls>\n<invoke name="find_contact">')
    is_begun = backend.requests[-2].messages[-1].content == begun
    assert is_begun is not bool(others), "of several one has to be chosen first"
    assert "ann@example.com" not in "".join(message.content for message in answer.messages)


async def test_the_model_is_told_and_asks() -> None:
    backend = ScriptedBackend([BERKELEY, "Which city do you mean?"])
    events = await events_of(backend, "How is the weather?")
    [rejected] = [event.call for event in events if isinstance(event, CallRejected)]
    assert isinstance(rejected, InvalidCall)
    assert [(issue.code, issue.path, issue.got) for issue in rejected.issues] == [("not-said", "$.city", "'Berkeley, CA'")]
    told = backend.requests[1].messages[-1].content
    assert "city: Nobody said this value." in told
    assert "ask the person for it in one short question" in told
    assert "..." not in told, "no call to fill in"
    [_, answer] = answer_of(events).messages
    assert answer.content == "Which city do you mean?", "nothing of the call is kept"


async def test_what_is_looked_up_is_said() -> None:
    backend = ScriptedBackend([BERKELEY, block(("home_of", {"person": "Sarah"})), BERKELEY, "21 degrees."])
    events = await events_of(backend, "How is the weather where Sarah lives?")
    assert [event.call.name for event in events if isinstance(event, CallFinished)] == ["home_of", "weather"]
    assert answer_of(events).text == "21 degrees."


async def test_a_model_that_insists_is_left_to_the_policy() -> None:
    asked: list[Any] = []

    async def policy(proposal: Proposal) -> Decision:
        asked.append(proposal.call.arguments)
        return Decision(allowed=True)

    events = await events_of(ScriptedBackend([BERKELEY, BERKELEY, "21 degrees."]), "How is the weather?", policy=policy)
    assert asked == [{"city": "Berkeley, CA"}]
    assert [event.call.name for event in events if isinstance(event, CallFinished)] == ["weather"]


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("How is it in Paris?", {}),
        ("How is the weather?", {"repair": None}),
        ("How is the weather?", {"repair": replace(ASKS, max_replies=1)}),
    ],
    ids=["it was said", "off", "nothing could follow"],
)
async def test_what_runs_at_once(said: str, options: dict[str, Any]) -> None:
    events = await events_of(ScriptedBackend([PARIS, "21 degrees."]), said, **options)
    assert [event.call.name for event in events if isinstance(event, CallFinished)] == ["weather"]


WEATHER = function("weather", "Get the weather.", city={"type": "string"})


NOTE = function("note", "Keep a note.", text={"type": "string"})
PAY = function("pay", "Pay.", account={"type": "integer"}, amount={"type": "integer"})


# -- a model that insists ------------------------------------------------------------------------------------------------------


def send_mail(to: str, body: str) -> str:
    """Send a mail."""
    return "sent"


MAIL = block(("send_mail", {"to": "sarah@example.com", "body": "See you at 9."}))


@pytest.mark.parametrize(
    "text", ["{{result}}", "It is {{ results[0].value }}.", "${calculator.result}", "{result}", "<<result>>", "{{结果}}"]
)
async def test_a_placeholder_for_a_result_never_reaches_a_tool(text: str) -> None:
    def note(text: str) -> str:
        """Keep a note."""
        return "kept"

    backend = ScriptedBackend([block(("note", {"text": text}))] * 4 + ["What is it?"])
    async with ToolLoop(backend, [LocalHost([note])], policy=["*"], repair=ASKS) as loop:
        events = [event async for event in loop.run([Message(role="user", content="Note one plus two")])]
    assert not [event for event in events if isinstance(event, CallFinished)]


async def ran_by(policy: Any) -> tuple[list[str], ScriptedBackend]:
    backend = ScriptedBackend([MAIL, MAIL, "What is her address?"])
    async with ToolLoop(backend, [LocalHost([send_mail])], policy=policy, repair=ASKS) as loop:
        events = [event async for event in loop.run([Message(role="user", content="Tell Sarah that we meet at 9.")])]
    return [event.call.name for event in events if isinstance(event, CallFinished)], backend


async def test_no_rule_allows_a_call_that_sends_to_an_address_nobody_said() -> None:
    assert (await ran_by(["*"]))[0] == []


class Person:
    """Somebody who may be asked."""

    lang = "en"

    def __init__(self, *, is_there: bool) -> None:
        self.is_asked_about: list[tuple[str, ...]] = []
        self._is_there = is_there

    def is_there(self) -> bool:
        return self._is_there

    async def ask(self, question: Question) -> PersonAnswer:
        self.is_asked_about.append(question.ruling.unsaid)
        return PersonAnswer(choice="yes")

    def tell_denied(self, proposal: Proposal, rule: Rule) -> None:
        raise AssertionError

    def tell_nobody(self, proposal: Proposal, ruling: Ruling) -> None:
        self.is_asked_about.append(("nobody", *ruling.unsaid))


@pytest.mark.parametrize("yes", [False, True])
@pytest.mark.parametrize(
    ("is_there", "asked", "ran"), [(True, [("to",)], ["send_mail"]), (False, [("nobody", "to")], [])], ids=["a person", "nobody"]
)
async def test_a_person_decides_about_it(is_there: bool, asked: list[tuple[str, ...]], ran: list[str], yes: bool) -> None:
    person = Person(is_there=is_there)
    found, backend = await ran_by(AskingPerson(allowing(["*"]), person, yes=yes))
    assert (found, person.is_asked_about) == (ran, asked)
    assert is_there or "Nobody said to, and nobody can be asked about it here." in backend.requests[-1].messages[-1].content


async def test_a_caller_of_the_proxy_never_gets_it() -> None:
    properties = {"to": {"type": "string"}, "body": {"type": "string"}}
    backend = ScriptedBackend([MAIL, MAIL, MAIL, "What is her address?"])
    request = CHAT.read(
        body("Tell Sarah that we meet at 9.", tools=[function("send_mail", "Send a mail.", **properties)])
    ).request
    async with Engine(backend, mode="xml", repair=ASKS) as engine:
        answer = whole_response([event async for event in engine.respond(request)])
    assert (answer.text, answer.calls) == ("What is her address?", ())


@pytest.mark.parametrize(
    ("name", "annotations", "expected"),
    [
        ("send_mail", None, True),
        ("sendMail", None, True),
        ("Payment_1_RequestPayment", None, True),
        ("order_pizza", None, True),
        ("get_order", None, False),
        ("weather", None, False),
        ("list_sent_mail", None, False),
        ("weather", {"readOnlyHint": False}, True),
        ("weather", {"destructiveHint": True}, True),
        ("send_mail", {"readOnlyHint": True}, False),
    ],
)
def test_a_tool_that_writes(name: str, annotations: dict[str, Any] | None, expected: bool) -> None:
    assert may_write(Tool(name=name, annotations=annotations)) is expected
