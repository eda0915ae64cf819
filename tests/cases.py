"""Cases as data: reading the corpus, and every way of cutting a text."""

import itertools
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xmlcall import Catalog

CORPUS = Path(__file__).parent / "corpus"
_READ: dict[str, list[dict[str, Any]]] = tomllib.loads((CORPUS / "tools.toml").read_text(encoding="utf-8"))
TOOLS = {name: Catalog(tools) for name, tools in _READ.items()}


def load(pattern: str) -> list[Any]:
    """Return the cases of the matching files as pytest parameters would name them: (id, case)."""
    files = sorted(CORPUS.glob(pattern))
    assert files, f"no corpus file matches {pattern}"
    cases = [
        (f"{path.stem}: {case['name']}", case)
        for path in files
        for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]
    ]
    names = [name for name, _ in cases]
    assert len(set(names)) == len(names), "two cases of one name"
    return cases


MOST = int(os.environ.get("XMLCALL_CUTS", "150"))  # 3-way cuts a case; `make fuzz` takes 1,000


def cuts(text: str, most: int = MOST) -> Iterator[list[str]]:
    """Yield the text whole, by character, at every 2-way cut and at `most` 3-way cuts spread over all of them."""
    yield [text]
    yield list(text)
    places = range(1, len(text))
    yield from ([text[:place], text[place:]] for place in places)
    pairs = list(itertools.combinations(places, 2))
    step = max(1, len(pairs) // most)
    yield from ([text[:first], text[first:second], text[second:]] for first, second in pairs[::step])
