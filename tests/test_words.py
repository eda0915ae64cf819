"""Docstrings and comments use plain words: the worst phrases of translated English are listed here with better ones."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "xmlcall"

HELD = ["types", "schema", "loosejson", "tools", "dialects", "parsing", "binding", "prompting"]
"""The folders and modules of `xmlcall/` that are free of these phrases; add yours once it is."""

BETTER = {
    r"\ball else\b": "everything else",
    r"\ball that came\b": "the full output",
    r"\bas (?:the )?\w+ \w+ bears?\b": "limited by",
    r"\basked for anew\b|\banew\b": "again",
    r"\bbehind\b(?! (?:a|an|the|nginx|several)\b)": "after",
    r"\bby what (?:the|a) \w+ is known\b": "how ... is identified",
    r"\bfor good\b": "permanently",
    r"\bgoe?s? (?:on|before)\b": "continues, comes first",
    r"\b(?:is|are|was|were) begun\b": "starts",
    r"\b(?:is|are|was|were|be|been) looked at\b": "is checked",
    r"\b(?:is|are|was|were|be|been|gets?) told\b": "gets, is notified, or name who reports it",
    r"\bnobody (?:has )?said\b|\bnobody wrote\b": "appears nowhere in the conversation",
    r"\bnot quite as\b": "differently",
    r"\bput right\b": "corrected",
    r"\bsince half is not whole\b": "so the client sees a truncated response",
    r"\bstands? (?:alone|around|before|behind|beside|between|in|inside|nowhere|under)\b": "is in, comes before, surrounds",
    r"\btaken for\b": "treated as",
    r"\bthat there (?:are|is) not\b": "unknown, missing",
    r"\bthere (?:are|is) of\b": "the available ...",
    r"\b(?:those|what|whatever|else which) (?:that )?there (?:are|is)\b": "the available ones",
    r"\bwhat (?:came|comes of it)\b": "the output, the result",
}
"""Pattern of a phrase -> what to write for it."""

_PHRASES = [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in BETTER.items()]


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield each docstring and each run of comments with its first line, on one line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, _flat(node.value.value)
    last, run = 0, list[tuple[int, str]]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("# ")
            if run and token.start[0] == last + 1:
                run[-1] = (run[-1][0], f"{run[-1][1]} {text}")
            else:
                run.append((token.start[0], text))
            last = token.start[0]
    yield from run


def _flat(text: str) -> str:
    return " ".join(text.split())


def findings(path: Path) -> list[str]:
    """Return a line for each phrase in a file: where it is, and the better word."""
    return [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {found[0]!r} -> {better}"
        for line, text in prose(path.read_text(encoding="utf-8"))
        for pattern, better in _PHRASES
        for found in pattern.finditer(text)
    ]


@pytest.mark.parametrize("held", HELD)
def test_docstrings_and_comments_use_plain_words(held: str) -> None:
    path = PACKAGE / held
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    assert [each for file in files for each in findings(file)] == []


def test_each_phrase_is_found_wherever_prose_breaks_its_line() -> None:
    source = 'def f():\n    """Return what\n    came."""\n    x = 1  # nobody\n    # said it\n    return "what came"\n'
    found = [(line, found[0]) for line, text in prose(source) for pattern, _ in _PHRASES for found in pattern.finditer(text)]
    assert found == [(2, "what came"), (4, "nobody said")]
