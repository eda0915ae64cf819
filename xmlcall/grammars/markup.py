"""Text that holds no markup of a wire format: what a value may be, so that nothing in it is taken for its end.

Strategy: what may begin a tag is asked of the row's own patterns, by partial matching, one character after the other: `<invoke`,
`</parameter`, in any case. A text may hold none of these beginnings. That is the automaton of Aho and Corasick (Efficient String
Matching, 1975), one rule a state.

This is narrower than what the parser reads: `<invoke` without the rest of a tag would be text to it. A value that needs such a
text is written as a CDATA section, as the prompt asks for. Cost: a rule for each character of the words, about 60 a format.
"""

import functools
from collections.abc import Collection, Iterable
from typing import Final

import regex

from ..dialects import INVISIBLE, Dialect
from ..dialects.tag_patterns import EXOTIC, WHITE
from .expressions import ANY, EMPTY, NOTHING, Characters, Expression, Rule, Rules, both, characters, choice, sequence, without

__all__ = ["beginnings_of_tags", "holds", "text_without"]

LENGTHS: Final = (40, 8, 4)  # characters of a word; shorter ones where there are many
MOST_STATES: Final = 150
MOST_LETTERS: Final = 4  # with which a word may go on; where more are possible, it is complete
CDATA: Final = "<![cdata["
ENTITIES: Final = ("&amp;", "&lt;", "&gt;", "&quot;", "&apos;", "&#")
_UNSEEN: Final = INVISIBLE[0]  # stands for each of them
_SAMPLES: Final = "".join(map(chr, range(128)))


def beginnings_of_tags(row: Dialect) -> frozenset[str]:
    """Return with what the tags of a format begin, in lower case, and what else decides how its values are read.

    Args:
        row: the wire format; where parameters are elements, anything in `<` may be a tag.
    """
    entities = frozenset(ENTITIES if row.open_entities else ())
    if row.parameter_elements:
        return entities | {"<"}
    tags = (tag for kind, tag in row.tags.items() if kind != "json_open")
    words = frozenset(entities.union({CDATA}, *map(_beginnings, tags)))
    shortened = (frozenset(word[:length] for word in words) for length in LENGTHS)
    return next((each for each in shortened if len(_prefixes(each)) <= MOST_STATES), frozenset({"<"}))


@functools.lru_cache(maxsize=512)
def _beginnings(source: str) -> frozenset[str]:
    """Return words, so that every match of a pattern begins with one of them, in any case."""
    pattern = regex.compile(source)
    samples = {*_SAMPLES, *source, *EXOTIC, *WHITE} - {*INVISIBLE}

    def following(text: str) -> set[str]:
        """Return the few characters that may follow; none where that is open."""
        found = {each for each in samples if pattern.match(text + each, partial=True)}
        is_open = any(each in EXOTIC or each.isspace() for each in found) or len({*map(str.lower, found)}) > MOST_LETTERS
        return set() if is_open else found

    words, begun = set[str](), {""}
    while begun:
        text = begun.pop()
        more = following(text) if len(text) < LENGTHS[0] else set()
        if not more:
            words.add(text.lower())
        elif text and pattern.match(text + _UNSEEN, partial=True):
            words.add(text.lower() + _UNSEEN)
        begun |= {text + min(each for each in more if each.lower() == letter) for letter in {*map(str.lower, more)}}
    return frozenset(words)


def holds(text: str, words: Collection[str]) -> bool:
    """Say whether one of some words stands in a text, in any case.

    Args:
        text: any.
        words: as `beginnings_of_tags` gives them.
    """
    lowered = text.lower().translate(dict.fromkeys(map(ord, INVISIBLE), _UNSEEN))
    return any(word in lowered for word in words)


def text_without(words: frozenset[str], rules: Rules, *, plain: Characters = ANY, others: Expression = NOTHING) -> Rule:
    """Return any text that holds none of some words.

    Args:
        words: as `beginnings_of_tags` gives them.
        rules: where the automaton's states are kept.
        plain: the characters of the text.
        others: what else may stand in it, of which no word has a part.
    """
    states = {prefix: rules.reserve((words, plain, others, prefix), "text") for prefix in _prefixes(words)}
    start, is_new = states[""]
    for prefix, (state, _) in states.items() if is_new else ():
        moves = _moves(prefix, words, states)
        on = [sequence(both(_characters_of(found), plain), states[target][0]) for target, found in moves.items() if target]
        back = without(plain, _characters_of(symbol for found in moves.values() for symbol in found))
        rules.set(state, choice(EMPTY, sequence(back, start), *on, sequence(others, start)))
    return start


def _prefixes(words: frozenset[str]) -> list[str]:
    return sorted({word[:end] for word in words for end in range(len(word))} | {""})


def _moves(prefix: str, words: frozenset[str], prefixes: Collection[str]) -> dict[str, list[str]]:
    """Return prefixes of words -> the symbols that lead there; to "" lead those that complete a word, all others to the start."""
    moves: dict[str, list[str]] = {}
    for symbol in sorted({*"".join(words)}):
        text = prefix + symbol
        is_word = any(text.endswith(word) for word in words)
        target = next((text[at:] for at in range(len(text)) if text[at:] in prefixes), "")
        if is_word or target:
            moves.setdefault("" if is_word else target, []).append(symbol)
    return moves


def _characters_of(symbols: Iterable[str]) -> Characters:
    """Return the characters that a text has where a word, in lower case, has one of some symbols."""
    return characters("".join(INVISIBLE if each == _UNSEEN else each + each.upper() for each in symbols))
