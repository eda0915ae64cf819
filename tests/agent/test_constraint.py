"""The rest of a call that is begun for a model is held by a grammar; nothing else is."""

from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

import xmlcall
from xmlcall import Answer, Capabilities, Catalog, Chunk, CompletionRequest, LocalHost, Message, Tool, ToolLoop
from xmlcall.agent.constraint import Constraint
from xmlcall.turn.generate import Binder, generate, generate_begun
from xmlcall.backends import ollama_wire, openai_wire
from xmlcall.backends.scripted import ScriptedBackend
from xmlcall.dialects import DIALECTS
from xmlcall.dialects.write import beginning, write
from xmlcall.errors import BackendStatusError
from xmlcall.prompting.format import PromptFormat

DIALECT = DIALECTS["function_calls"]
CONTINUES = Capabilities(server="llama.cpp", continues=True, most_logprobs=77)
REFUSED = BackendStatusError("this template ends in no message of the assistant's", status_code=400)


def plus(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def first(token: str) -> list[Chunk]:
    """Answer a request for one token."""
    return [Chunk(text=token, top_logprobs=((token, 0.0),), finish_reason="length")]


HOLDS = replace(CONTINUES, grammars=True)
CATALOG = Catalog([Tool.from_function(plus)])
BEGUN = beginning(DIALECT, "plus")
REST = write([("plus", {"a": 1, "b": 2})], CATALOG, DIALECT).removeprefix(BEGUN)
CONSTRAINT = Constraint(CATALOG, PromptFormat())
REQUEST = CompletionRequest(messages=(Message(role="user", content="1 + 2?"),))


async def grammars(replies: list[Any], capabilities: Capabilities = HOLDS, **options: Any) -> list[str]:
    """Generate a reply and return the grammar of each request."""
    backend = ScriptedBackend(replies, capabilities=capabilities)
    options = {"prefix": BEGUN, "constraint": CONSTRAINT, "continuations": 1, **options}
    async with aclosing(generate(backend, REQUEST, Binder(catalog=CATALOG), **options)) as events:
        async for _ in events:
            pass
    return [request.grammar for request in backend.requests]


async def test_the_rest_is_held_and_the_rest_of_a_cut_rest_too() -> None:
    found = await grammars([[REST[:20], Chunk(finish_reason="length")], REST[20:]])
    assert found == [xmlcall.grammar(CATALOG, begun=BEGUN), xmlcall.grammar(CATALOG, begun=BEGUN + REST[:20])]
    assert len({*found}) == 2


@pytest.mark.parametrize(
    ("capabilities", "options"),
    [(CONTINUES, {}), (HOLDS, {"constraint": None}), (HOLDS, {"prefix": ""}), (HOLDS, {"prefix": "Sure: "})],
    ids=["a server without grammars", "not asked for", "the model begins", "no call is begun"],
)
async def test_where_nothing_is_held(capabilities: Capabilities, options: dict[str, Any]) -> None:
    assert await grammars([REST], capabilities, **options) == [""]


@pytest.mark.parametrize(
    "text", ["", "<", "<function_calls>\n", "Let me see. " + BEGUN, BEGUN + "<param name='a'>", BEGUN + REST + "!"]
)
def test_texts_that_go_on_without_a_grammar(text: str) -> None:
    assert CONSTRAINT.after(text) == ""


async def test_a_reply_that_is_asked_for_otherwise_is_not_held() -> None:
    backend = ScriptedBackend([REFUSED, "3."], capabilities=HOLDS)
    events = generate_begun(backend, REQUEST, BEGUN, REQUEST, Binder(catalog=CATALOG), constraint=CONSTRAINT)
    async with aclosing(events):
        async for _ in events:
            pass
    assert [bool(request.grammar) for request in backend.requests] == [True, False]


@pytest.mark.parametrize("constrain", [True, False])
async def test_a_loop_holds_what_it_begins(constrain: bool) -> None:
    backend = ScriptedBackend([first("<"), first('plus">\n'), REST, "3."], capabilities=HOLDS)
    loop = ToolLoop(backend, [LocalHost([plus])], call_threshold=0.0, policy=["*"], constrain=constrain)
    async with loop:
        answer = await loop.ask("What is 1 + 2?")
    assert isinstance(answer, Answer)
    assert answer.text == "3."
    assert [bool(request.grammar) for request in backend.requests if request.messages[-1].content == BEGUN] == [constrain]
    assert sum(bool(request.grammar) for request in backend.requests) == constrain


def test_only_llama_cpp_is_sent_a_grammar() -> None:
    asking = replace(REQUEST, grammar='root ::= "a"')
    assert openai_wire.request_body(asking, "m")["grammar"] == 'root ::= "a"'
    assert "grammar" not in openai_wire.request_body(REQUEST, "m")
    assert "grammar" not in ollama_wire.chat_body(asking, "m", num_ctx=10)
