"""A full-text index in memory, ranked by BM25: SQLite's FTS5, which Python brings along."""

import re
import sqlite3

_CHINESE = re.compile(r"([\u3400-\u9fff])")


class TextIndex:
    """Texts that can be searched; each has a title."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute("create virtual table texts using fts5(title, words, text unindexed, tokenize='porter unicode61')")

    def add(self, title: str, text: str) -> None:
        self._database.execute("insert into texts values (?, ?, ?)", (title, _spaced(f"{title} {text}"), text))

    def search(self, query: str, count: int) -> list[tuple[str, str]]:
        """Return (title, text) of those that share words with the query, best first."""
        words = re.findall(r"\w+", _spaced(query))
        if not words:
            return []
        wanted = " OR ".join(f'"{word}"' for word in words)
        rows = self._database.execute(
            "select title, text from texts where words match ? order by bm25(texts) limit ?", (wanted, count)
        )
        return list(rows)


def _spaced(text: str) -> str:
    """Make each Chinese character a word of its own: FTS5 splits at spaces only."""
    return _CHINESE.sub(r" \1 ", text)
