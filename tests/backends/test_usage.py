"""What a reply has used, also where it was closed before the server told: most replies with calls are."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scored import generated
from servers.fake_openai import DONE, FakeOpenAI, Step, chunk, final, llama_props
from servers.run_server import Stage

from xmlcall.backends.openai import OpenAIBackend
from xmlcall.tools.catalog import Catalog
from xmlcall.turn.generate import Binder, Generated
from xmlcall.types.calls import Message, Tool
from xmlcall.types.completion import Chunk, CompletionRequest, PromptProgress, Usage, UsageCount

CATALOG = Catalog([Tool(name="now", input_schema={"type": "object", "properties": {}})])
REQUEST = CompletionRequest(messages=(Message(role="user", content="What time is it?"),))
CALL = ["<function_calls>\n", '<invoke name="now">\n', "</invoke>\n", "</function_calls>"]
INVENTED = ["\n\n", "It", " is", " noon", "."]
TOLD = final(prompt_tokens=32, completion_tokens=9, prompt_tokens_details={"cached_tokens": 30})


def streamed(texts: list[str], *, timings: bool, end: list[Step]) -> list[Step]:
    """A reply of one token a chunk; with llama.cpp's counts, which `timings_per_token` asks for."""
    fields: list[dict[str, Any]] = [
        {"timings": {"cache_n": 30, "prompt_n": 2, "predicted_n": number}} if timings else {}
        for number in range(1, len(texts) + 1)
    ]
    return [*(chunk({"content": text}, **more) for text, more in zip(texts, fields, strict=True)), *end]


WHOLE: list[Step] = [chunk({}, "stop"), TOLD, DONE]
UNTOLD: list[Step] = [chunk({}, "stop"), DONE]
# A reply that is closed after its call, or not; whether the server is llama.cpp; how it ends its replies; what is counted.
REPLIES = {
    "llama.cpp, whole": (CALL, True, WHOLE, Usage(prompt_tokens=32, completion_tokens=9, cached_tokens=30)),
    "llama.cpp, closed": (
        CALL + INVENTED,
        True,
        WHOLE,
        Usage(prompt_tokens=32, completion_tokens=6, cached_tokens=30, is_estimated=True),
    ),
    "another, whole": (CALL, False, WHOLE, Usage(prompt_tokens=32, completion_tokens=9, cached_tokens=30)),
    "another, closed": (CALL + INVENTED, False, WHOLE, Usage(completion_tokens=6, is_estimated=True)),
    "another, which tells nothing": (CALL, False, UNTOLD, Usage(completion_tokens=4, is_estimated=True)),
}


@pytest.mark.parametrize(("texts", "is_llama", "end", "usage"), REPLIES.values(), ids=REPLIES)
async def test_a_reply_tells_what_it_used(
    texts: list[str], is_llama: bool, end: list[Step], usage: Usage, stage: tuple[Stage, str]
) -> None:
    fake = FakeOpenAI(steps=streamed(texts, timings=is_llama, end=end), props=llama_props() if is_llama else None)
    played, url = stage
    played.app = fake.app
    async with OpenAIBackend(f"{url}/v1") as backend:
        *_, last = [event async for event in generated(backend, REQUEST, Binder(catalog=CATALOG))]
    assert isinstance(last, Generated)
    assert [call.name for call in last.reply.calls] == ["now"]
    assert last.usage is not None
    assert usage.completion_tokens is not None
    tokens = range(usage.completion_tokens, len(texts) + 1 if usage.is_estimated else usage.completion_tokens + 1)
    assert last.usage.completion_tokens in tokens, "a stream is closed after what has arrived with the end of the call"
    assert replace(last.usage, completion_tokens=usage.completion_tokens) == usage
    assert fake.bodies[0].get("timings_per_token") == (True if is_llama else None)


TEXT, THOUGHT, NOTHING = Chunk(text="a"), Chunk(reasoning="a"), Chunk(progress=PromptProgress(read=1, total=2))
COUNTED = Usage(prompt_tokens=5, completion_tokens=3)
FOLDS: list[tuple[list[Chunk], Usage | None]] = [
    ([], None),
    ([NOTHING, Chunk(finish_reason="stop")], None),
    ([TEXT, THOUGHT, NOTHING], Usage(completion_tokens=2, is_estimated=True)),
    ([TEXT, Chunk(finish_reason="stop", usage=COUNTED)], COUNTED),
    ([Chunk(text="a", usage=COUNTED), TEXT], Usage(prompt_tokens=5, completion_tokens=4, is_estimated=True)),
]


@pytest.mark.parametrize(("chunks", "usage"), FOLDS)
def test_chunks_are_counted_where_the_server_does_not(chunks: list[Chunk], usage: Usage | None) -> None:
    count = UsageCount()
    for each in chunks:
        count.take(each)
    assert count.usage == usage


counts = st.none() | st.integers(0, 10**6)
usages = st.builds(Usage, prompt_tokens=counts, completion_tokens=counts, cached_tokens=counts, is_estimated=st.booleans())


@given(usages, usages, usages)
def test_a_sum_is_the_same_in_whatever_order(first: Usage, second: Usage, third: Usage) -> None:
    assert first + second == second + first
    assert (first + second) + third == first + (second + third)
    assert first + Usage() == first
    assert (first + second).is_estimated == (first.is_estimated or second.is_estimated)
