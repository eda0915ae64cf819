"""Which values of a call nobody said: cases as data."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from xmlcall.binding.grounds import (
    Said,
    groundless,
    names_somebody,
    only_asks_to_find,
    said_before,
    stands_on,
    tools_that_may_tell,
)
from xmlcall.tools.catalog import Catalog
from xmlcall.types.calls import RawCall, Tool, ToolCall

ROWS = tomllib.loads(Path(__file__).with_name("grounds.toml").read_text(encoding="utf-8"))
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


@pytest.mark.parametrize("case", ROWS["case"], ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    schemas = {name: {"type": TYPES[type(value)]} for name, value in case["arguments"].items()} | case.get("schema", {})
    required = [name for name, schema in schemas.items() if not schema.get("optional")]
    name, about = case.get("tool", ["do", ""])
    tool = Tool(name=name, description=about, input_schema={"type": "object", "properties": schemas, "required": required})
    assert list(groundless(case["arguments"], tool, Said(case["said"]))) == case.get("made_up", [])


@pytest.mark.parametrize(
    ("before", "request_", "result", "made_up"),
    [
        ("你好，你能做什么？", "天气怎么样？", "", ["city"]),
        ("用Python写一个判断素数的函数", "天气怎么样？", "", ["city"]),
        ("我在巴黎", "天气怎么样？", "", ["city"]),  # the model is asked to check, and may insist
        ("我在巴黎", "那边天气怎么样？", "", []),
        ("天气怎么样？", "巴黎", "", []),
        ("你好，你能做什么？", "我家的天气怎么样？", "地址：巴黎", []),
    ],
)
def test_a_name_in_another_script_comes_from_the_request_or_its_results(
    before: str, request_: str, result: str, made_up: list[str]
) -> None:
    texts = [before, request_, *filter(None, [result])]
    said = said_before(texts, request_, texts[2:], (), texts)
    assert list(groundless({"city": "Paris"}, WEATHER, said)) == made_up


ANALYZE = Tool(name="text_analyzer", input_schema={"type": "object", "properties": {"text": {}}, "required": ["text"]})
WEATHER = Tool(name="weather", input_schema={"type": "object", "properties": {"city": {}}, "required": ["city"]})
SEARCH = Tool(name="search", input_schema={"type": "object", "properties": {"query": {}}, "required": ["query"]})
GRAPH = Tool(name="read_graph", input_schema={"type": "object"})
READ = Tool(name="read_file", input_schema={"type": "object", "properties": {"path": {}, "tail": {}}, "required": ["path"]})
SHARES = Tool(
    name="stock_price", input_schema={"type": "object", "properties": {"symbol": {}, "date": {}}, "required": ["symbol"]}
)


CLOCK = Tool(
    name="convert_time", input_schema={"type": "object", "properties": {"time": {}, "zone": {}}, "required": ["time", "zone"]}
)
ADD_NOTE = Tool(
    name="add_note",
    description="Add a note to the list.",
    input_schema={"type": "object", "properties": {"entity": {}}, "required": ["entity"]},
)


@pytest.mark.parametrize(("request_", "expected"), [("In which country is Berlin?", False), ("And in Berlin now?", True)])
def test_what_was_answered_is_not_called_again_in_doubt(request_: str, expected: bool) -> None:
    earlier = ToolCall(id="a", name="weather", arguments={"city": "Berlin"}, raw=RawCall(index=0, name="weather"))
    said = Said(["Berlin: 14 degrees", request_])
    assert stands_on({"city": "Berlin"}, WEATHER, said, request_, [earlier]) is expected
    assert stands_on({"city": "Berlin"}, WEATHER, said, request_)


ADD = Tool(name="plus", input_schema={"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]})
TOOLS = {tool.name: tool for tool in (ADD, ANALYZE, WEATHER, SEARCH, GRAPH, READ, SHARES, CLOCK, ADD_NOTE)}


@pytest.mark.parametrize(("earlier", "request_", "name", "arguments", "expected"), ROWS["begun"])
def test_a_call_that_was_begun_in_doubt(earlier: str, request_: str, name: str, arguments: Any, expected: bool) -> None:
    assert stands_on(arguments, TOOLS[name], Said([earlier, request_]), request_) is expected


@pytest.mark.parametrize(("request_", "name", "description", "expected"), ROWS["finding"])
def test_a_tool_that_writes_where_only_finding_is_asked_for(request_: str, name: str, description: str, expected: bool) -> None:
    assert only_asks_to_find(request_, Tool(name=name, description=description)) is expected


TELLS = {
    "send_mail": "Send a mail to an address.",
    "find_contact": "Look up the mail address of a person.",
    "delete_mail": "Delete a mail.",
    "cancel_order": "Cancel an order.",
    "list_orders": "List the orders of a customer.",
    "get_order": "Get an order.",
    "get_order_status": "Get the status of an order.",
    "get_train_times": "Get the next trains from one station to another.",
    "weather": "Get the weather of a city.",
}


@pytest.mark.parametrize(
    ("names", "called", "others", "expected"),
    [
        (["to"], "send_mail", ["find_contact", "list_orders"], ("find_contact",)),
        (["order_id"], "cancel_order", ["list_orders", "get_order", "find_contact"], ("list_orders", "get_order")),
        (["to"], "send_mail", ["delete_mail", "weather"], ()),
        (["to"], "send_mail", [], ()),
        (["city"], "weather", ["find_contact"], ()),
        (["to_mail"], "send_mail", ["find_contact"], ("find_contact",)),
        (["to_city"], "send_mail", ["find_contact"], ()),
        (["order_id"], "get_order_status", ["get_train_times", "find_contact"], ()),
        (["order_id"], "get_order_status", ["get_train_times", "list_orders"], ("list_orders",)),
    ],
)
def test_the_tools_that_may_tell_a_value(names: list[str], called: str, others: list[str], expected: tuple[str, ...]) -> None:
    tools = {name: Tool(name=name, description=TELLS[name]) for name in (called, *others)}
    assert tools_that_may_tell(names, [tools[called]], Catalog(tools.values())) == expected


def a_tool(name: str, parameter: str, description: str = "") -> Tool:
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return Tool(name=name, description=description, input_schema=schema)


DELETE, READ_FILE, WRITE = (a_tool(f"{verb}_file", "path") for verb in ("delete", "read", "write"))
MAIL, MESSAGE = a_tool("send_mail", "to", "Send a mail to an address."), a_tool("post_message", "to", "Post in a channel.")
PAY = a_tool("pay_invoice", "invoice_id")


FLIGHT = a_tool("book_flight", "to", "Book a flight and mail the ticket.")
WRITERS = {tool.name: tool for tool in (DELETE, READ_FILE, WRITE, MAIL, MESSAGE, PAY, FLIGHT)}


@pytest.mark.parametrize(
    ("said", "tool", "value", "made_up"), [*ROWS["written_to"], ("Book a flight to Rome.", "book_flight", "Rome", False)]
)
def test_what_a_tool_writes_to_was_said_as_a_whole(said: str, tool: str, value: str, made_up: bool) -> None:
    [name] = WRITERS[tool].input_schema["required"]
    assert bool(groundless({name: value}, WRITERS[tool], Said([said]))) is made_up


@pytest.mark.parametrize(
    ("request_", "results", "made_up"),
    [
        ("Multiply 12 by a number.", [], ["b"]),
        ("Multiply 12 by it, halved.", [], []),
        ("Multiply 12 by the number of rows.", ["7 rows"], []),
        ("Multiply 12 by the days of last week.", [], []),
    ],
)
def test_a_number_is_worked_out_from_the_request_and_its_results(request_: str, results: list[str], made_up: list[str]) -> None:
    number = {"type": "integer"}
    schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
    earlier = ["1234 times 5678", "7006652", "Paris, today: 14 degrees"]
    said = said_before([*earlier, request_, *results], request_, results)
    assert list(groundless({"a": 12, "b": 3}, Tool(name="multiply", input_schema=schema), said)) == made_up


@pytest.mark.parametrize(
    ("request_", "value", "names"),
    [
        ("Tell Tom by mail that I am ill.", "tom@example.com", True),
        ("Write Maria Rossi a mail.", "Maria", True),
        ("Write a mail to my boss.", "boss@example.com", False),
        ("Mail somebody that I am late.", "mail@example.com", False),
        ("I am late, tell them.", "I", False),
    ],
)
def test_a_request_names_somebody(request_: str, value: str, names: bool) -> None:
    assert names_somebody(request_, [value, "5"]) is names


def test_a_call_of_the_models_own_does_not_tell_what_exists() -> None:
    said = said_before(["Delete the minutes."], "Delete the minutes.", [], ["list_files /home/ana/minutes"])
    assert groundless({"path": "/home/ana/minutes"}, DELETE, said) == ("path",)
    assert not groundless({"path": "/home/ana/minutes"}, READ_FILE, said)
