"""Which tools fit a request, without a model."""

import sqlite3
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xmlcall import Tool, UsageError
from xmlcall.tools.ranking import LONGEST_TEXT, Ranking, words_in


def tool(name: str, description: str = "", **parameters: str) -> Tool:
    properties = {each: {"type": "string", "description": about} for each, about in parameters.items()}
    return Tool(name=name, description=description, input_schema={"type": "object", "properties": properties})


TOOLS = [
    tool("getWeatherForecast", "Say how warm it will be.", city="Name of a town"),
    tool("git_checkout", "Switch branches.", repo_path="Where the repository is", branch_name=""),
    tool("send-mail", "Write to somebody.", recipient="Who gets the letter"),
    tool("查询列车", "查询两个城市之间的火车时刻", 出发城市="出发地"),
    tool("noop"),
    *(tool(f"filler_{number}", "Does something else.") for number in range(20)),
]
RANKING = Ranking(TOOLS)

# Words of a request -> the tool that fits it best.
REQUESTS = {
    "What will the weather be like?": "getWeatherForecast",
    "how warm is it": "getWeatherForecast",
    "which TOWNS are there": "getWeatherForecast",
    "please check out the branch main": "git_checkout",
    "repositories": "git_checkout",
    "mails": "send-mail",
    "a letter to my aunt": "send-mail",
    "明天去上海的火车几点开？": "查询列车",
    "call noop": "noop",
    "getweatherforecast forecast": "getWeatherForecast",
}


@pytest.mark.parametrize(("request_", "name"), REQUESTS.items())
def test_the_tool_that_fits_comes_first(request_: str, name: str) -> None:
    assert RANKING.best(request_, 3)[:1] == (name,)


def test_what_has_no_word_in_common_is_not_among_them() -> None:
    assert RANKING.best("Thanks!", 5) == ()
    assert RANKING.best("", 5) == ()
    assert RANKING.best("weather", 5) == ("getWeatherForecast",)


def test_of_equals_the_first_of_the_catalog_comes_first() -> None:
    assert RANKING.best("something else", 4) == ("filler_0", "filler_1", "filler_2", "filler_3")


WORDS = {
    "getHTTPResponse": ["get", "http", "response"],
    "get_weather-now/v2": ["get", "weather", "now", "v", "2"],
    "Straße ÉTÉ": ["straße", "été"],
    "查天气": ["查天", "天气"],
    "查": ["查"],
    'a" OR name:* NEAR(x) -- \x00': ["a", "or", "name", "near", "x"],
}


@pytest.mark.parametrize(("text", "words"), WORDS.items())
def test_words(text: str, words: list[str]) -> None:
    assert list(words_in(text)) == words


HOSTILE = [
    '"',
    "a OR",
    "name:x",
    "NEAR(a b)",
    "* ^",
    "a AND NOT b",
    "\x00",
    "';--",
    "{a b}:c",
    "\ud800",
    "+",
    "a" * 100_000,
    "x y " * 100_000,
]


@pytest.mark.parametrize("request_", HOSTILE)
def test_nothing_in_a_request_is_a_query(request_: str) -> None:
    assert set(RANKING.best(request_, 3)) <= {tool.name for tool in TOOLS}
    assert RANKING.best(f"{request_[:900]} weather", 30)[0] == "getWeatherForecast"


@settings(deadline=None)
@given(st.text(), st.integers(0, 9))
def test_any_text_is_a_request(text: str, count: int) -> None:
    found = RANKING.best(text, count)
    assert len(found) <= count
    assert len(set(found)) == len(found)
    assert found == Ranking(TOOLS).best(text, count)


def test_long_descriptions_are_cut() -> None:
    tools = [
        tool("a", "weather " * 130_000),
        tool("b", f"{'x ' * LONGEST_TEXT} umbrella"),
        tool("c", **{f"p{n}": "y" * 50 for n in range(20_000)}),
    ]
    ranking = Ranking(tools)
    assert ranking.best("weather", 1) == ("a",)
    assert ranking.best("umbrella", 1) == ()


def test_many_tools() -> None:
    tools = [tool(f"tool_{number}", f"Does task number {number}.") for number in range(10_000)]
    ranking = Ranking(tools)
    assert ranking.best("task 7777", 1) == ("tool_7777",)
    assert ranking.best("task", 2) == ("tool_0", "tool_1")


def test_a_python_that_cannot_search_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Without(sqlite3.Connection):
        def execute(self, *_: Any) -> sqlite3.Cursor:
            raise sqlite3.OperationalError("no such module: fts5")

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: connect(path, **options, factory=Without))
    with pytest.raises(UsageError, match="whose SQLite has FTS5"):
        Ranking(TOOLS)
