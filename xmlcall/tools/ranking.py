"""Find the tools that fit a request best, without a model: BM25 over their names, descriptions and parameters.

SQLite's full-text index (FTS5, https://sqlite.org/fts5.html) counts and weighs. Texts are split into words first: names at case
changes and separators (`getWeather`, `get_weather` and `get-weather` are the same two words), and Chinese, which has no spaces,
into pairs of neighbouring characters. The index reduces English words to their stems (Porter).

Input is untrusted. Texts are truncated, and a request becomes quoted words, so that no part of it acts as a query. Tools that fit
equally well keep the order of the catalog, so the same request always gives the same tools.

Cost: the index is built once for a catalog; a request takes milliseconds (10,000 tools: benchmarks/ranking.py).
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import regex

from ..errors import UsageError
from ..types.calls import Tool
from .outline import ShownParameter, parameters_of

WEIGHTS: Final = {"name": 3.0, "description": 1.0, "parameters": 1.0, "details": 0.5}
"""Columns of the index and their weights; other weights find as many tools (docs/decisions/prompt.md)."""

LONGEST_TEXT: Final = 4000  # characters of one column of a tool
LONGEST_REQUEST: Final = 2000  # characters; a longer one is reduced to its beginning and its end
MOST_WORDS: Final = 200  # most words of a request

_WORD = regex.compile(
    r"(?P<pairs>[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]+)"
    r"|\p{Lu}+(?!\p{Ll})|\p{Lu}?\p{Ll}+|\p{L}+|\p{N}+"
)


class Ranking:
    """An index of tools."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        tools = tuple(tools)
        self._names = [tool.name for tool in tools]
        self._index = sqlite3.connect(":memory:", check_same_thread=False)  # serialized by SQLite; only read from now on
        columns = ", ".join(WEIGHTS)
        try:
            self._index.execute(f"CREATE VIRTUAL TABLE tools USING fts5({columns}, content='', tokenize='porter unicode61')")
        except sqlite3.OperationalError as error:
            raise UsageError(
                f"tools cannot be searched: expected a Python whose SQLite has FTS5, got {sqlite3.sqlite_version} without it"
            ) from error
        rows = ((place, *_columns(tool)) for place, tool in enumerate(tools))
        self._index.executemany(f"INSERT INTO tools (rowid, {columns}) VALUES (?, ?, ?, ?, ?)", rows)

    def best(self, request: str, count: int) -> tuple[str, ...]:
        """Return the names of the tools that share words with a request, the best first."""
        half = LONGEST_REQUEST // 2
        request = request if len(request) <= LONGEST_REQUEST else f"{request[:half]} {request[-half:]}"
        words = list(dict.fromkeys(words_in(request)))[:MOST_WORDS]
        if not words:
            return ()
        query = " OR ".join(f'"{word}"' for word in words)
        weights = ", ".join(map(str, WEIGHTS.values()))
        found = self._index.execute(
            f"SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, {weights}), rowid LIMIT ?", (query, count)
        )
        return tuple(self._names[row] for (row,) in found)


def words_in(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case, letters and digits only; for Chinese, pairs of characters."""
    for found in _WORD.finditer(text):
        word = found[0].lower()
        if found["pairs"] and len(word) > 1:
            yield from (word[place : place + 2] for place in range(len(word) - 1))
        else:
            yield word


def _columns(tool: Tool) -> Sequence[str]:
    parameters = list(_every(parameters_of(tool)))
    names = " ".join(part.name for part in parameters)
    details = " ".join(f"{part.description} {part.kind}" for part in parameters)
    return [" ".join(words_in(text[:LONGEST_TEXT])) for text in (tool.name, tool.description, names, details)]


def _every(parameters: Iterable[ShownParameter]) -> Iterator[ShownParameter]:
    """Yield parameters and their fields; the outline bounds the depth."""
    for part in parameters:
        yield part
        yield from _every(part.children)
