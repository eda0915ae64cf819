"""An answer whose form the caller demands, where tools are on offer: calls pass as ever, and what is no call has to be JSON.

The schema stands behind the person's words. What the model says without a call is held until it is whole, and checked; a value
in a fence or between words is taken out of them. If none fits, the model is asked once more, with the reply constrained to the
schema where the server can do that, so that no call can come of it. Agents need both at once: openai-agents' `output_type`,
LangChain's `ProviderStrategy`, the AI SDK's `Output.object`.

Words beside a call are left out: the SDKs of OpenAI and Anthropic read all text of such an answer as JSON, and fail at them.
"""

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from ...schema.validation import compiled_as_mended, is_valid
from ..formats.contract import CallOpened, ResponseEnded, ResponseEvent, TextPiece

__all__ = ["formed", "value_in", "wordless"]


async def formed(
    events: AsyncGenerator[ResponseEvent], schema: Mapping[str, Any], again: Callable[[], AsyncGenerator[ResponseEvent]]
) -> AsyncGenerator[ResponseEvent]:
    """Pass an answer on, what it says without a call as JSON."""
    held, called, ended = "", False, None
    async with aclosing(events):
        async for event in events:
            match event:
                case TextPiece(text=text):
                    held += text
                case ResponseEnded():
                    ended = event
                case _:
                    called = called or isinstance(event, CallOpened)
                    yield event
    assert ended is not None
    if called:
        yield ended
        return
    found = value_in(held, schema)
    if found is not None or ended.finish_reason == "length":
        if text := held if found is None else found:
            yield TextPiece(text=text)
        yield ended
        return
    async with aclosing(again()) as repeated:
        async for event in repeated:
            yield _with_both(ended, event) if isinstance(event, ResponseEnded) else event


async def wordless(events: AsyncGenerator[ResponseEvent]) -> AsyncGenerator[ResponseEvent]:
    """Pass an answer on that has to be a call, without what is said beside it."""
    async with aclosing(events):
        async for event in events:
            if not isinstance(event, TextPiece):
                yield event


def _with_both(first: ResponseEnded, last: ResponseEnded) -> ResponseEnded:
    """Count both answers: the last prompt, and all that was generated."""
    whole = (first.all_usage or first.usage) + last.usage
    return replace(last, usage=replace(last.usage, completion_tokens=whole.completion_tokens), all_usage=whole)


def value_in(text: str, schema: Mapping[str, Any]) -> str | None:
    """Return the JSON value in a text that fits a schema, as it is written; None if there is none.

    Args:
        schema: a JSON Schema; one that cannot be used is fitted by any value.
    """
    validator = compiled_as_mended(schema)
    for candidate in _candidates(text):
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(validator, str) or is_valid(validator, value, validator.schema):
            return candidate
    return None


def _candidates(text: str) -> Iterator[str]:
    """Yield what may be the value: all of it, the inside of its first fence, from its first bracket to its last."""
    yield text.strip()
    _, fenced, rest = text.partition("```")
    if fenced:
        inside = rest.partition("```")[0]
        yield inside.partition("\n")[2].strip() if "\n" in inside else inside.strip()
    for opened, closed in ("{}", "[]"):
        start, end = text.find(opened), text.rfind(closed)
        if 0 <= start < end:
            yield text[start : end + 1]
