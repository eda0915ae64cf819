"""Cases as data: reading the corpus, and ways of cutting a text."""

import functools
import itertools
import os
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import regex
from profiles import is_deep

from xmlcall import Catalog

CORPUS = Path(__file__).parent / "corpus"
_READ: dict[str, list[dict[str, Any]]] = tomllib.loads((CORPUS / "tools.toml").read_text(encoding="utf-8"))
TOOLS = {name: Catalog(tools) for name, tools in _READ.items()}


@functools.cache  # several test modules load all of them
def _cases(path: Path) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["case"]
    return cases


def load(pattern: str, quick: int = 1) -> list[Any]:
    """Return the cases of the matching files as pytest parameters would name them: (id, case).

    Outside the deep profile only each `quick`-th case of a file is taken: for tests that look at more than how a case is read.
    """
    files = sorted(CORPUS.glob(pattern))
    assert files, f"no corpus file matches {pattern}"
    cases = [(f"{path.stem}: {case['name']}", case) for path in files for case in _cases(path)[:: 1 if is_deep() else quick]]
    names = [name for name, _ in cases]
    assert len(set(names)) == len(names), "two cases of one name"
    return cases


MOST = int(os.environ.get("XMLCALL_CUTS", "60"))  # 3-way cuts a case; `make fuzz` takes 1,000
SHORT = 40  # characters of a text that is cut at each place in any profile
_EDGE = regex.compile(r"\w+|\s+|[^\w\s]")  # what tokens of any format are made of


def cuts(text: str, most: int = MOST) -> Iterator[list[str]]:
    """Yield the text whole, by character, and cut in other ways.

    In the deep profile: at every 2-way cut and at `most` 3-way cuts spread over all of them. Else every 2-way cut only of a short
    text; of a longer one all edges of tokens at once, each place one or two characters beside them, and pieces of a few sizes.
    """
    yield [text]
    yield list(text)
    if is_deep():
        yield from _two_way(text)
        yield from _three_way(text, most)
    elif len(text) <= SHORT:
        yield from _two_way(text)
    else:
        edges = [match.end() for match in _EDGE.finditer(text)]
        yield from (_pieces(text, [edge + beside for edge in edges]) for beside in (-1, 0, 1, 2))
        yield from (_pieces(text, range(first, len(text), size)) for size in (2, 7) for first in {1, size})
        yield from _three_way(text, 3)


def _two_way(text: str) -> Iterator[list[str]]:
    return ([text[:place], text[place:]] for place in range(1, len(text)))


def _three_way(text: str, most: int) -> Iterator[list[str]]:
    pairs = list(itertools.combinations(range(1, len(text)), 2))
    step = max(1, len(pairs) // most)
    return ([text[:first], text[first:second], text[second:]] for first, second in pairs[::step])


def _pieces(text: str, places: Iterable[int]) -> list[str]:
    inside = sorted({place for place in places if 0 < place < len(text)})
    return [text[start:end] for start, end in itertools.pairwise([0, *inside, len(text)])]
