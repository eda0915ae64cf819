"""What is asked of one value many times is worked out once."""

import json
from typing import Any

import pytest

from xmlcall import Catalog, RawArgument, RawCall, Tool, bind
from xmlcall.binding import convert
from xmlcall.loosejson import reader


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    calls, real = [0], getattr(module, name)

    def counting(*args: Any, **named: Any) -> Any:
        calls[0] += 1
        return real(*args, **named)

    monkeypatch.setattr(module, name, counting)
    return calls


ROWS = json.dumps([["x"]] * 50)
ALTERNATIVES = {"anyOf": [{"type": "array", "items": {"type": "object", "maxProperties": each}} for each in range(30)]}
MEMBERS = {"type": "array", "items": {"enum": [f"m{each}" for each in range(500)]}}


@pytest.mark.parametrize(
    ("schema", "text", "module", "name"),
    [(ALTERNATIVES, ROWS, reader, "read"), (MEMBERS, '[{"a": 1}]', convert, "_plain")],
    ids=["a text for each of many alternatives", "a value for each of many members"],
)
def test_it_is_worked_out_once(monkeypatch: pytest.MonkeyPatch, schema: Any, text: str, module: Any, name: str) -> None:
    tool = Tool(name="f", input_schema={"type": "object", "properties": {"a": schema}, "required": ["a"]})
    raw = RawCall(index=0, name="f", arguments=(RawArgument(name="a", text=text),), complete=True)
    catalog = Catalog([tool])
    calls = counted(monkeypatch, module, name)
    bind(raw, catalog)
    assert 0 < calls[0] < 20
