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

CASES = tomllib.loads(Path(__file__).with_name("grounds.toml").read_text(encoding="utf-8"))["case"]
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    schemas = {name: {"type": TYPES[type(value)]} for name, value in case["arguments"].items()} | case.get("schema", {})
    required = [name for name, schema in schemas.items() if not schema.get("optional")]
    tool = Tool(name="do", input_schema={"type": "object", "properties": schemas, "required": required})
    assert list(groundless(case["arguments"], tool, Said(case["said"]))) == case.get("made_up", [])


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


@pytest.mark.parametrize(
    ("earlier", "request_", "tool", "arguments", "expected"),
    [
        ("", "Write a function that reverses a string.", ANALYZE, {"text": "Hello, world!"}, False),
        ("", "How do I list files in bash?", ANALYZE, {"text": "How do I list files in bash?"}, False),
        ("", "How many words has the text 'good morning, Ann'?", ANALYZE, {"text": "good morning, Ann"}, True),
        ("", "Do I need an umbrella in London today?", WEATHER, {"city": "London"}, True),
        ("What is the weather? In which city?", "Oslo", WEATHER, {"city": "Oslo"}, True),
        ("天气怎么样？哪个城市？", "北京", WEATHER, {"city": "北京"}, True),
        ("", "What is the capital of France?", WEATHER, {"city": "Paris"}, False),
        ("Is it warm in Berlin?", "What is the capital of Germany?", WEATHER, {"city": "Berlin"}, False),
        ("Is it warm in Berlin?", "Is it raining there?", WEATHER, {"city": "Berlin"}, True),
        ("", "那伦敦呢？", WEATHER, {"city": "London"}, True),
        ("伦敦天气怎么样？ London: 14", "大本钟有多高？", WEATHER, {"city": "London"}, False),
        ("巴黎天气怎么样？", "那里下雨吗？", WEATHER, {"city": "Paris"}, True),
        ("", "Translate 'good morning' into French.", ANALYZE, {"text": "good morning"}, False),
        ("", "What is the chemical symbol of gold?", SEARCH, {"query": "gold"}, False),
        ("", "Search for 'gold'.", SEARCH, {"query": "gold"}, True),
        ("", "What do you remember about Anna?", SEARCH, {"query": "Anna"}, True),
        ("", "关于 Anna 你记得什么？", SEARCH, {"query": "Anna"}, True),
        ("", "“床前明月光”这句诗是谁写的？", SEARCH, {"query": "床前明月光"}, False),
        ("list /home/ada", "Write an SQL query that gets all users.", READ, {"path": "/home/ada/users.sql"}, False),
        ("list /home/ada", "Please read /home/ada/trip.txt", READ, {"path": "/home/ada/trip.txt", "tail": 10}, True),
        ("/home/ada/todo.txt", "Read it to me.", READ, {"path": "/home/ada/todo.txt"}, True),
        ("", "水在标准大气压下多少度沸腾？", SHARES, {"symbol": "水", "date": "2023-04-15"}, False),
        ("", "What does a share of Apple cost?", SHARES, {"symbol": "Apple"}, True),
        ("", "Suggest three names for a cat.", SHARES, {}, False),
        ("", "Show me what you remember.", GRAPH, {}, True),
        ("", "Translate 'good morning' into French.", SHARES, {"symbol": "AAPL"}, False),
        ("", "How is Apple doing today?", SHARES, {"symbol": "AAPL"}, True),
        ("", "苹果的股价是多少？", SHARES, {"symbol": "AAPL"}, True),
        ("", "And how many hours do two days have?", CLOCK, {"time": "24:00", "zone": "UTC"}, False),
        ("", "12:00 in New York is what here?", CLOCK, {"time": "12:00", "zone": "America/New_York"}, True),
        ("", "What time is it tomorrow at 15:00 in Oslo?", CLOCK, {"time": "15:00", "zone": "Europe/Oslo"}, True),
        ("", "And how many hours do two days have?", ADD_NOTE, {"entity": "days"}, False),
        ("", "Remember that two days have 48 hours.", ADD_NOTE, {"entity": "days"}, True),
        ("", "Remember that two days have 48 hours.", ADD_NOTE, {"name": "days"}, True),
        ("", "Suggest three names for a gray cat.", ADD_NOTE, {"name": "gray cat"}, False),
        ("", "两天有多少个小时？", ADD_NOTE, {"entity": "两天"}, False),
        ("", "记住两天有48个小时。", ADD_NOTE, {"entity": "两天"}, True),
    ],
)
def test_a_call_that_was_begun_in_doubt(earlier: str, request_: str, tool: Tool, arguments: Any, expected: bool) -> None:
    assert stands_on(arguments, tool, Said([earlier, request_]), request_) is expected


BUY = Tool(name="Events_3_BuyEventTickets")
REMIND = Tool(name="add_reminder")


@pytest.mark.parametrize(
    ("request_", "tool", "expected"),
    [
        ("Find out if there are any music events in Portland on March 9th.", BUY, True),
        ("Are there concerts in Oslo next week?", BUY, True),
        ("And which movies are on? What is on tonight?", BUY, True),
        ("帮我找一下周末的音乐会", BUY, True),
        ("Find me two tickets for a show around 8:30 pm.", BUY, False),
        ("Can you find me an event? Buy a seat, too.", BUY, False),
        ("Find a seat and reserve it.", Tool(name="reserve_seat"), False),
        ("Tell me when it is noon.", REMIND, False),
        ("Remind me to look for my keys.", REMIND, False),
        ("Find the log.", Tool(name="execute_command"), False),
        ("Tell me what 2 and 3 make.", Tool(name="add", description="Add two numbers."), False),
        ("Find books by Orwell.", Tool(name="book_search", description="Search for books."), False),
        ("What is the share price of Acme?", Tool(name="share_price"), False),
        ("Find a house in Oslo.", Tool(name="BookHouse", description="Books the selected house."), True),
        ("Find the log.", Tool(name="search_files"), False),
        ("Dim any lights which are on.", Tool(name="set_brightness"), False),
        ("Suche Konzerte in Oslo.", BUY, False),
    ],
)
def test_a_tool_that_writes_where_only_finding_is_asked_for(request_: str, tool: Tool, expected: bool) -> None:
    assert only_asks_to_find(request_, tool) is expected


TELLS = {
    "send_mail": "Send a mail to an address.",
    "find_contact": "Look up the mail address of a person.",
    "delete_mail": "Delete a mail.",
    "cancel_order": "Cancel an order.",
    "list_orders": "List the orders of a customer.",
    "get_order": "Get an order.",
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


@pytest.mark.parametrize(
    ("said", "tool", "value", "made_up"),
    [
        ("Remove the photo of the beach.", DELETE, "/home/ana/Photos/Beach.jpg", True),
        ("Remove the photo of the beach. /home/ana/photos/beach.jpg", DELETE, "/home/ana/photos/beach.jpg", False),
        ("In /home/ana, delete notes.txt", DELETE, "/home/ana/notes.txt", False),
        ("Show me the photo of the beach.", READ_FILE, "/home/ana/Photos/Beach.jpg", False),
        ("Write the list of guests to a file.", WRITE, "/home/ana/guests.txt", False),
        ("Send Sarah a mail.", MAIL, "Sarah", True),
        ("Send Sarah a mail.", MAIL, "sarah@example.com", True),
        ("Send Sarah a mail. sarah@nordlicht.io", MAIL, "sarah@nordlicht.io", False),
        ("Tell Sarah about it.", MESSAGE, "Sarah", False),
        ("Pay the open invoice of Globex.", PAY, "Globex_invoice_id", True),
        ("Pay invoice INV 7781.", PAY, "INV-7781", False),
        ("Pay invoice 123.", PAY, "12", True),
        ("Pay the open bill of Initech.", PAY, "OPENBILL", True),
        ("Move the budget to /home/ana/archive/budget.xlsx", DELETE, "/home/ana/budget.xlsx", True),
        ("Delete notes.txt in /home/ana/docs", DELETE, "/home/ana/docs/notes.txt", False),
        ("Delete ./notes.txt, please.", DELETE, "./notes.txt", False),
        ("Delete notes.txt", DELETE, "./notes.txt", False),
        ("Clean up / tidy my things.", DELETE, "/", True),
        ("Clean up.", DELETE, "~", True),
        ("Book a flight to Rome.", a_tool("book_flight", "to", "Book a flight and mail the ticket."), "Rome", False),
    ],
)
def test_what_a_tool_writes_to_was_said_as_a_whole(said: str, tool: Tool, value: str, made_up: bool) -> None:
    [name] = tool.input_schema["required"]
    assert bool(groundless({name: value}, tool, Said([said]))) is made_up


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
