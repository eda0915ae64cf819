"""A person's TOML file as it is written."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from xmlcall.toml_file import toml_text

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SIMPLE = WORDS | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.lists(WORDS, max_size=3)
TABLES = st.recursive(
    st.dictionaries(WORDS, SIMPLE, max_size=3),
    lambda inner: st.dictionaries(WORDS, SIMPLE | inner | st.lists(inner, min_size=1, max_size=2), max_size=3),
    max_leaves=6,
)


@given(TABLES)
def test_what_is_written_reads_back_the_same(table: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(table)) == table


def test_tables_are_written_for_people() -> None:
    rows = {"a": 1, "t": {"x": "y", "rows": [{"n": 0.5}, {"n": True}]}, "b": ["p", "q"]}
    written = 'a = 1\nb = ["p", "q"]\n\n[t]\nx = "y"\n\n[[t.rows]]\nn = 0.5\n\n[[t.rows]]\nn = true\n'
    assert toml_text(rows) == written
