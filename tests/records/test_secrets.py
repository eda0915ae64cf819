"""Secrets are masked by the names of their parameters, in arguments and in the text of a call, in whatever format."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmlcall import Tool, ToolCall, parse, render
from xmlcall.dialects import DIALECTS
from xmlcall.errors import UsageError
from xmlcall.records.audit import MASK, is_secret, masked, masked_text

SECRET = "hunter2-x"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "password",
            "PASSWORD",
            "dbPassword",
            "token",
            "github_token",
            "api_key",
            "apiKey",
            "API-Key",
            "Authorization",
            "secret",
        ),
        *("client_secret", "private-key", "passwd", "Set-Cookie", "credentials", "access_token", "密码"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["path", "text", "tokens", "max_tokens", "author", "key", "keyword", "passenger", "monkey", ""])
def test_names_of_other_things(name: str) -> None:
    assert not is_secret(name)


def test_values_are_masked_at_any_depth() -> None:
    given = {"url": "u", "headers": {"Authorization": "Bearer x", "list": [{"api_key": {"deep": [1]}}]}, "token": None}
    told = {"url": "u", "headers": {"Authorization": MASK, "list": [{"api_key": MASK}]}, "token": MASK}
    assert masked(given) == told


LOGIN = Tool(
    name="login",
    input_schema={
        "type": "object",
        "properties": {"user": {"type": "string"}, "password": {"type": "string"}, "options": {"type": "object"}},
    },
)


def text_of(arguments: dict[str, Any], dialect: str) -> str | None:
    [call] = parse(render([{"name": "login", "arguments": arguments}], [LOGIN], dialect=dialect), [LOGIN], dialect=dialect).calls
    assert isinstance(call, ToolCall)
    assert call.arguments == arguments
    return masked_text(call.raw, call.arguments)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_secret_is_masked_in_the_text_of_a_call(dialect: str) -> None:
    text = text_of({"user": "ann", "password": SECRET, "options": {"a": [{"Token": "deep-secret"}]}}, dialect)
    assert text is not None
    assert SECRET not in text
    assert "deep-secret" not in text
    assert text.count(MASK) == 2
    assert "ann" in text


SECRETS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


@given(SECRETS, SECRETS, st.sampled_from([*DIALECTS]))
def test_no_secret_is_left_whatever_it_is(top: str, nested: str, dialect: str) -> None:
    """Between marks that nothing else has, so that what is found can only be the secret."""
    top, nested = f"<<{top}&&", f'(("{nested}\\'
    try:
        text = text_of({"user": "ann", "password": top, "options": {"secret": nested}}, dialect)
    except UsageError:  # the format cannot carry it
        return
    assert text is None or (top not in text and nested not in text)


@pytest.mark.parametrize(
    "written",
    [
        '<function_calls><invoke name="login"><parameter name="password">hunter2-x</parameter><parameter name="x">1',
        '<function_calls><invoke name="login"><parameter name="options">{"token": "hunter2-x", ]</parameter></invoke>',
        '<tool_call>{"name": "login", "arguments": {"password": "hunter2-x"</tool_call>',
        "<function_calls><invoke name=\"login\"><parameter name=\"options\">{'token': 'hunter2-x'</parameter></invoke>",
    ],
)
def test_a_call_that_cannot_run_keeps_its_secrets(written: str) -> None:
    reply = parse(written, [LOGIN], finish_reason="length")
    assert reply.calls
    for call in reply.calls:
        assert SECRET not in (masked_text(call.raw, {}) or "")


def test_a_short_secret_is_not_looked_for_in_words() -> None:
    """It may stand anywhere, so that the whole text is left out."""
    assert text_of({"user": "an1", "password": "n1"}, "function_calls") is None


def test_a_long_text_is_read_in_linear_time() -> None:
    text = text_of({"user": "a" * 200_000 + '"' * 200_000, "password": SECRET}, "function_calls")
    assert text is not None
    assert SECRET not in text
