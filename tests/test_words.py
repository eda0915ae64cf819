"""Docstrings and comments use plain words: the worst phrases of translated English are listed here with better ones."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from xmlcall.cli.words import texts_of
from xmlcall.errors import ISSUES, REPAIRS

PACKAGE = Path(__file__).parents[1] / "xmlcall"

BETTER = {
    r"\ball else\b": "everything else",
    r"\ball that came\b": "the full output",
    r"\bas (?:the )?\w+ \w+ bears?\b": "limited by",
    r"\basked for anew\b|\banew\b": "again",
    r"\bas well as (?:it|one|they) can\b": "as far as possible",
    r"\bbehind\b(?! (?:(?:a|an|the) (?:[\w-]+ )?(?:gateway|proxy|server)|nginx)\b)": "after; of a process, still running",
    r"\bby what (?:the|a) \w+ is known\b": "how ... is identified",
    r"\bfor good\b": "permanently",
    r"(?<!`)\b(?:go|goes|going|gone|went) (?:on|before)\b": "continues, comes first",
    r"\b(?:is|are|was|were) begun\b": "starts",
    r"\b(?:is|are|was|were|be|been) looked at\b": "is checked",
    r"\b(?:is|are|was|were|be|been|gets?) told\b|\btold (?:how|of|that|to|what|why)\b": "gets, is notified",
    r"(?<![`~])\bnobody\b(?: said)?": "no client, no other program; appears nowhere in the conversation",
    r"\bnot quite as\b": "differently",
    r"\bput right\b": "corrected",
    r"\bsince half is not whole\b": "so the client sees a truncated response",
    r"\bso that none\b": "so no ...",
    r"\bst(?:ands?|ood) (?:above|alone|around|before|behind|below|beside|between|elsewhere|in|inside|nowhere|outside|under)\b": (
        "is in, comes before, surrounds"
    ),
    r"\btells? (?:all|how|it|none|of|that|the|them|what|whether|which|why)\b": "reports, says, shows, logs",
    r"\bwhere(?:ver)? \w+(?: \w+)? st(?:ands?|ood)\b": "where ... is",
    r"\btaken for\b": "treated as",
    r"\bthat there (?:are|is) not\b": "unknown, missing",
    r"\bthere (?:are|is) of\b": "the available ...",
    r"\b(?:those|what|whatever|else which) (?:that )?there (?:are|is)\b": "the available ones",
    r"\bwhat (?:came|comes of it)\b": "the output, the result",
}
"""Pattern of a phrase -> what to write for it."""

_PHRASES = [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in BETTER.items()]
_ANY = re.compile("|".join(BETTER), re.IGNORECASE)


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
    source = path.read_text(encoding="utf-8")
    if not _ANY.search(_flat(source.replace("#", " "))):  # parsing takes longer than this search
        return []
    return [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {found[0]!r} -> {better}"
        for line, text in prose(source)
        for pattern, better in _PHRASES
        for found in pattern.finditer(text)
    ]


def test_docstrings_and_comments_use_plain_words() -> None:
    assert [each for file in sorted(PACKAGE.rglob("*.py")) for each in findings(file)] == []


ROOT = PACKAGE.parent
READ = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/reference").glob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md"]
MESSAGES = {
    "errors.py": [*ISSUES.values(), *REPAIRS.values()],
    "cli/words.py": [*texts_of("en").values()],
    **{name: [(PACKAGE / name).read_text(encoding="utf-8")] for name in ("bench/page.html.j2", "ui/static/i18n_en.js")},
    **{str(path.relative_to(ROOT)): [re.sub(r"\(\S+\)", "", path.read_text(encoding="utf-8"))] for path in READ},
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_people_read_names_what_is_missing_and_not_nobody(name: str) -> None:
    """Prompts have their own words, which models were measured with."""
    assert [found[0] for text in MESSAGES[name] for found in re.finditer(r"(?i)[^.|\n]*\b(?:no|some)body\b[^.|\n]*", text)] == []


def test_each_phrase_is_found_wherever_prose_breaks_its_line() -> None:
    source = 'def f():\n    """Return what\n    came."""\n    x = 1  # nobody\n    # said it\n    return "what came"\n'
    found = [(line, found[0]) for line, text in prose(source) for pattern, _ in _PHRASES for found in pattern.finditer(text)]
    assert found == [(2, "what came"), (4, "nobody said")]
