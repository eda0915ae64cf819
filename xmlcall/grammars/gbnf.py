r"""A grammar as GBNF, llama.cpp's notation (grammars/README.md, b11549).

What llama.cpp cannot take is refused here: it copies what is repeated as often as is counted, and refuses more than 2,000 copies.
Names have letters, digits and hyphens; escapes are `\n`, `\r`, `\t`, `\\`, `\"`, `\]`, `\xHH`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from ..errors import UsageError
from .expressions import LAST, Characters, Choice, Expression, Literal, Repeat, Rule, Sequence, complement

__all__ = ["LONGEST", "rendered"]

LONGEST: Final = 400_000  # characters of a grammar
MOST_COPIES: Final = 1_000  # of one repeated part
_ESCAPES: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\"}
_IN_CLASS: Final = {**_ESCAPES, "]": r"\]", "[": r"\[", "-": r"\x2D", "^": r"\x5E", '"': r"\x22"}
_IN_LITERAL: Final = {**_ESCAPES, '"': r"\""}


def rendered(root: Expression, rules: Mapping[str, Expression]) -> str:
    """Write a grammar, with the rules that it needs.

    Args:
        root: of all texts.
        rules: by name.

    Raises:
        UsageError: the grammar is too large for a model server.
    """
    lines, length = [], 0
    for name, expression in _reachable(root, rules):
        lines.append(f"{name} ::= {_alternatives(expression)}\n")
        length += len(lines[-1])
        if length > LONGEST:
            raise UsageError(f"expected a grammar of at most {LONGEST} characters, got more: offer fewer tools, or name the tool")
    return "".join(lines)


def _reachable(root: Expression, rules: Mapping[str, Expression]) -> Iterator[tuple[str, Expression]]:
    """Yield the root and each rule that is needed, in the order in which they are named."""
    yield "root", root
    seen, waiting = set[str](), [root]
    while waiting:
        for name in dict.fromkeys(_named(waiting.pop(0))):
            if name not in seen:
                seen.add(name)
                waiting.append(rules[name])
                yield name, rules[name]


def _named(expression: Expression) -> Iterator[str]:
    match expression:
        case Rule(name):
            yield name
        case Repeat(part, _, _):
            yield from _named(part)
        case Sequence(parts) | Choice(parts):
            for part in parts:
                yield from _named(part)


def _alternatives(expression: Expression) -> str:
    if isinstance(expression, Choice) and expression.options:
        return " | ".join(map(_sequence, expression.options))
    return _sequence(expression)


def _sequence(expression: Expression) -> str:
    return " ".join(map(_single, expression.parts)) if isinstance(expression, Sequence) else _single(expression)


def _single(expression: Expression) -> str:
    match expression:
        case Literal(text):
            return f'"{"".join(_escaped(character, _IN_LITERAL) for character in text)}"'
        case Characters(ranges):
            return _class(ranges)
        case Rule(name):
            return name
        case Repeat(part, least, most):
            return f"{_single(part)}{_counted(least, most)}"
        case Choice(()):
            raise UsageError("expected a text that a call can go on from, got one that none begins with")
        case _:
            return f"({_alternatives(expression)})"


def _counted(least: int, most: int | None) -> str:
    if most is None and least <= 1:
        return "+" if least else "*"
    if (least, most) == (0, 1):
        return "?"
    if max(least, most or 0) > MOST_COPIES:
        raise UsageError(f"expected at most {MOST_COPIES} repetitions in a grammar, got {max(least, most or 0)}")
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"


def _class(ranges: tuple[tuple[int, int], ...]) -> str:
    is_rest = bool(ranges) and ranges[-1][1] == LAST
    shown = complement(Characters(ranges)).ranges if is_rest else ranges
    if is_rest and not shown:
        return "."
    return f"[{'^' if is_rest else ''}{''.join(map(_range, shown))}]"


def _range(ends: tuple[int, int]) -> str:
    first, last = (_escaped(chr(code), _IN_CLASS) for code in ends)
    return first if first == last else f"{first}{last}" if ends[1] == ends[0] + 1 else f"{first}-{last}"


def _escaped(character: str, escapes: Mapping[str, str]) -> str:
    code = ord(character)
    return escapes.get(character) or (f"\\x{code:02X}" if code < 32 or code == 127 else character)
