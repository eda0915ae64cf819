"""Grammars as objects: expressions over text, named rules, and what may follow a text that stands already.

An expression is a value: equal ones are equal objects to Python, so that a choice holds each of them once. Rules may refer to
each other, also in circles, as long as every circle reads a character first (no left recursion).

`after` is Brzozowski's derivative (Derivatives of Regular Expressions, 1964), taken character by character: the expression of
all texts that make a text of the grammar when they follow what stands already. So one grammar of a whole block serves wherever a
call was begun. Cost: for each character the parts of the expression that may read it, which stays small.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = [
    "ANY",
    "EMPTY",
    "NOTHING",
    "NO_CHARACTER",
    "Characters",
    "Choice",
    "Expression",
    "Literal",
    "Ranges",
    "Repeat",
    "Rule",
    "Rules",
    "Sequence",
    "after",
    "both",
    "characters",
    "choice",
    "complement",
    "is_nullable",
    "optional",
    "repeat",
    "sequence",
    "without",
]

LAST = 0x10FFFF
Ranges = tuple[tuple[int, int], ...]
"""First and last code points, in order, apart from each other."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A text."""

    text: str


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of some."""

    ranges: Ranges

    def __contains__(self, character: str) -> bool:
        code = ord(character)
        return any(first <= code <= last for first, last in self.ranges)


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some; without any, nothing at all is read."""

    options: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same again and again; `most` is None for no limit."""

    part: "Expression"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Rule:
    """What a named rule stands for."""

    name: str


Expression = Literal | Characters | Sequence | Choice | Repeat | Rule

EMPTY = Literal("")
NOTHING = Choice(())
NO_CHARACTER = Characters(())
ANY = Characters(((0, LAST),))


@dataclass(slots=True)
class Rules:
    """Named rules, made once for each key.

    Attributes:
        expressions: by name, in the order in which they were begun.
    """

    expressions: dict[str, Expression] = field(default_factory=dict)
    _names: dict[object, str] = field(default_factory=dict)

    def reserve(self, key: object, about: str) -> tuple[Rule, bool]:
        """Return the rule of a key, and whether it is new, so that its expression has to be set.

        Args:
            key: what the rule is for.
            about: a word for the reader of a grammar: letters, digits and hyphens.
        """
        if key in self._names:
            return Rule(self._names[key]), False
        name = f"{about}-{len(self._names)}"
        self._names[key] = name
        self.expressions[name] = EMPTY  # until it is set
        return Rule(name), True

    def set(self, rule: Rule, expression: Expression) -> Rule:
        """Give a reserved rule its expression."""
        self.expressions[rule.name] = expression
        return rule

    def define(self, about: str, expression: Expression) -> Expression:
        """Return a rule for an expression; equal expressions have one, and NOTHING has none."""
        if expression == NOTHING:
            return NOTHING
        rule, _ = self.reserve((about, expression), about)
        return self.set(rule, expression)


# -- making expressions: the simplest of those that read the same ----------------------------------------------------------


def characters(*given: str | tuple[str, str]) -> Characters:
    """Return one character out of those of texts and of ranges, from a character to another."""
    ranges = [(ord(each[0]), ord(each[1])) for each in given if isinstance(each, tuple)]
    ranges += [(ord(character), ord(character)) for each in given if isinstance(each, str) for character in each]
    return Characters(_merged(ranges))


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def complement(these: Characters) -> Characters:
    """Return all other characters."""
    gaps, start = [], 0
    for first, last in these.ranges:
        if start < first:
            gaps.append((start, first - 1))
        start = last + 1
    return Characters((*gaps, (start, LAST)) if start <= LAST else tuple(gaps))


def without(these: Characters, others: Characters) -> Characters:
    """Return the characters that are not among others."""
    return complement(Characters(_merged((*complement(these).ranges, *others.ranges))))


def both(these: Characters, others: Characters) -> Characters:
    """Return the characters that are among both."""
    return without(these, complement(others))


def sequence(*parts: Expression | str) -> Expression:
    """Return one part after the other; a text stands for itself."""
    flat: list[Expression] = []
    for part in parts:
        each = Literal(part) if isinstance(part, str) else _as_literal(part)
        for inner in each.parts if isinstance(each, Sequence) else (each,):
            if inner in (NOTHING, NO_CHARACTER):
                return NOTHING
            if isinstance(inner, Literal) and flat and isinstance(flat[-1], Literal):
                flat[-1] = Literal(flat[-1].text + inner.text)
            elif inner != EMPTY:
                flat.append(inner)
    flat = [each for each in flat if each != EMPTY]
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat)) if flat else EMPTY


def _as_literal(part: Expression) -> Expression:
    """Return a text in place of one character that can be no other."""
    is_one = isinstance(part, Characters) and len(part.ranges) == 1 and part.ranges[0][0] == part.ranges[0][1]
    return Literal(chr(part.ranges[0][0])) if isinstance(part, Characters) and is_one else part


def choice(*options: Expression | str) -> Expression:
    """Return one of some; a text stands for itself."""
    flat: dict[Expression, None] = {}
    for option in options:
        each = Literal(option) if isinstance(option, str) else option
        flat.update(dict.fromkeys(each.options if isinstance(each, Choice) else (each,)))
    flat.pop(NO_CHARACTER, None)
    return next(iter(flat)) if len(flat) == 1 else Choice(tuple(flat))


def repeat(part: Expression | str, least: int = 0, most: int | None = None) -> Expression:
    """Return the same again and again.

    Args:
        part: what is repeated.
        least: times.
        most: times; None for no limit.
    """
    each = Literal(part) if isinstance(part, str) else part
    if most is not None and most < least:
        return NOTHING
    if most == 0 or each == EMPTY or (each == NOTHING and not least):
        return EMPTY
    return each if (least, most) == (1, 1) or each == NOTHING else Repeat(each, least, most)


def optional(part: Expression | str) -> Expression:
    """Return a part that may be left out."""
    return repeat(part, 0, 1)


# -- what follows a text ---------------------------------------------------------------------------------------------------


def after(expression: Expression, text: str, rules: Mapping[str, Expression]) -> Expression:
    """Return what may follow a text, so that both together are a text of an expression.

    Args:
        expression: of the whole.
        text: that stands already.
        rules: by name.

    Returns:
        NOTHING if no text of the expression begins like that.
    """
    for character in text:
        expression = _after_one(expression, character, rules)
        if expression == NOTHING:
            break
    return expression


def _after_one(expression: Expression, character: str, rules: Mapping[str, Expression]) -> Expression:
    match expression:
        case Literal(text):
            return Literal(text[1:]) if text.startswith(character) else NOTHING
        case Characters():
            return EMPTY if character in expression else NOTHING
        case Rule(name):
            return _after_one(rules[name], character, rules)
        case Choice(options):
            return choice(*(_after_one(option, character, rules) for option in options))
        case Repeat(part, least, most):
            rest = repeat(part, max(least - 1, 0), None if most is None else most - 1)
            return sequence(_after_one(part, character, rules), rest)
        case Sequence(parts):
            return _after_sequence(parts, character, rules)


def _after_sequence(parts: tuple[Expression, ...], character: str, rules: Mapping[str, Expression]) -> Expression:
    found = []
    for at, part in enumerate(parts):
        found.append(sequence(_after_one(part, character, rules), *parts[at + 1 :]))
        if not is_nullable(part, rules):
            break
    return choice(*found)


def is_nullable(expression: Expression, rules: Mapping[str, Expression]) -> bool:
    """Say whether an expression reads the empty text, too.

    Args:
        expression: any.
        rules: by name.
    """
    match expression:
        case Literal(text):
            return not text
        case Characters():
            return False
        case Rule(name):
            return is_nullable(rules[name], rules)
        case Choice(options):
            return any(is_nullable(option, rules) for option in options)
        case Repeat(part, least, _):
            return least == 0 or is_nullable(part, rules)
        case Sequence(parts):
            return all(is_nullable(part, rules) for part in parts)
