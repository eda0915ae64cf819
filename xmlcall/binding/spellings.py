"""Gives one key to the many spellings of a word, number, date or time, so that a value is found in another spelling.

A text is split into atoms in one pass. Each atom has a key, and further keys under which it may be found: "1.5 million" has
1500000 and 1.5, "20%" has 20 and 0.2, "2 pm" has the time 14:00 and the numbers 2 and 14. A value is looked up only by the first,
narrow key of its atoms, so that "1.5 million" is not found in "1.5 billion". Values that would have to be computed (a sum,
"tomorrow", another currency) have no key and are not found.

Cost: linear. The pattern has no alternatives that overlap under a repetition, and every number has a bounded length.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ..text_forms import normalized

_LONG_WORD: Final = 64  # characters; longer ones are not kept
_DIGITS: Final = 18  # most digits of a number; a longer run is compared as text
_MINUS: Final = "-\u2212"
_NEGATIVE: Final = frozenset({"minus", "negative"})
_LONGEST_RUN: Final = 20  # words of one number
_ENDINGS: Final = (
    *(("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")),
    *(("ss", "ss"), ("us", "us"), ("is", "is"), ("s", "")),
)

# In scripts without spaces between words (Thai to Myanmar, Khmer, Kana, Han), each letter is an atom.
_ALONE: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HALF_OF_DAY: Final = r"(?:\s?([ap])\.?m\b\.?)"
_ATOM: Final = re.compile(
    rf"(?P<word>[^\W\d_{_ALONE}][^\W_{_ALONE}]*)"
    r"|(?P<date>([0-9]{4})[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})(?:(?![0-9])|(?=t[0-9])))"
    r"|(?P<short>([0-9]{1,2})([-/.])([0-9]{1,2})\8([0-9]{4}|[0-9]{2})(?![0-9.]))"
    rf"|(?P<time>([0-9]{{1,2}}):([0-9]{{2}})(?::[0-9]{{2}}(?:\.[0-9]{{1,9}})?)?{_HALF_OF_DAY}?(?![0-9]))"
    rf"|(?P<hour>([0-9]{{1,2}}){_HALF_OF_DAY})"
    r"|(?P<number>(?:(?<![^\W_])[-\u2212] ?)?[0-9]+(?:[.,][0-9]+)*)(?:(?:st|nd|rd|th)\b)?"
    rf"|(?P<alone>[{_ALONE}])"
    rf"|(?P<sign>[%$€£¥°])"
    rf"|(?P<digits>\d[^\W_{_ALONE}]*)"
)
_TIME_AFTER_DATE: Final = re.compile(r"(?<=[0-9])t(?=[0-9]{2}:[0-9]{2})")
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")

_ACCENTS: Final = re.compile("[\u0300-\u036f]+")
_INNER_NUMBER: Final = re.compile(f"[0-9]{{1,{_DIGITS}}}")

_ONES: Final = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
_ORDINALS: Final = (
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth"
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBERS: Final[Mapping[str, float]] = {
    **{word: number for number, word in enumerate(f"{_ONES} eighteen nineteen".split())},
    **{word: number for number, word in enumerate(_ORDINALS.split())},
    **{word: 10 * number for number, word in enumerate(_TENS.split(), start=2)},
    **{f"{word[:-1]}ieth": 10 * number for number, word in enumerate(_TENS.split(), start=2)},
}
_SCALES: Final[Mapping[str, float]] = {
    **dict.fromkeys(("%", "percent", "pct"), 0.01),
    **dict.fromkeys(("thousand", "k"), 1e3),
    **dict.fromkeys(("million", "mn", "m"), 1e6),
    **dict.fromkeys(("billion", "bn", "b"), 1e9),
    "hundred": 1e2,
    "lakh": 1e5,
    "crore": 1e7,
    "trillion": 1e12,
}
# Words that may mean a number besides their other meaning.
_COUNTS: Final[Mapping[str, float]] = {
    **dict.fromkeys(("midnight", "no"), 0),
    **dict.fromkeys(("single", "once", "alone"), 1),
    **dict.fromkeys(("double", "twice", "pair", "couple", "both"), 2),
    **dict.fromkeys(("triple", "thrice"), 3),
    **dict.fromkeys(("dozen", "noon"), 12),
    "half": 0.5,
    "quarter": 0.25,
    **dict(zip("零一二三四五六七八九十两", (*range(11), 2), strict=True)),
}
_TIMES: Final = {"noon": "12:00", "midnight": "00:00"}
_YEAR: Final = "january february march april may june july august september october november december"
_MONTHS: Final = _YEAR.split()
_DAYS: Final = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

# Each line: the key, and other ways to write it.
_SAME: Final = """
km kilometer kilometre kms|m meter metre|cm centimeter centimetre|mm millimeter millimetre|mi mile|ft foot feet|in inch inches
kg kilogram kilo|g gram gramme|lb pound lbs|oz ounce|l liter litre|ml milliliter millilitre|h hr hour hrs|min minute mins
s sec second secs|kb kilobyte|mb megabyte|gb gigabyte|tb terabyte|kmh kph|mph|celsius c|fahrenheit f|kelvin k
usd $ dollar buck|eur € euro|gbp £ sterling|jpy ¥ yen|cny yuan renminbi rmb|inr rupee|% percent pct percentage
us usa america american|uk britain british|st street|ave avenue|rd road|blvd boulevard|dr drive|apt apartment|mt mount
"""
_KEY_OF: Final[Mapping[str, str]] = {
    **{word: words.split()[0] for line in _SAME.split("\n") for words in line.split("|") if words for word in words.split()},
    **{name[:3]: name for name in (*_DAYS, *_MONTHS)},
    "sept": "september",
    "tues": "tuesday",
    "thur": "thursday",
    "thurs": "thursday",
}
_SMALL_WORDS: Final = (
    "a an the of in on at to for from and or by with is are be was were my your his her its our their this that these those it "
    "as into about i you he she we they me please t z s"
)
_EMPTY: Final = frozenset(_SMALL_WORDS.split())


@dataclass(frozen=True, slots=True)
class Atom:
    """A word, a number, or a part of a date or time."""

    key: str
    others: tuple[str, ...] = ()  # further keys, used only for texts in which a value is looked up
    weight: int = 0  # how significant it is, in characters; 0 for words such as "the"
    text: str = ""


def atoms(text: str) -> list[Atom]:
    if not text.isascii():  # one Unicode form, without accents over letters
        text = normalized("NFC", _ACCENTS.sub("", normalized("NFKD", text)))
    lowered = text.lower()
    shown = text if len(lowered) == len(text) else lowered  # capitals are known only if the offsets are the same
    found: list[Atom] = []
    for match in _ATOM.finditer(_TIME_AFTER_DATE.sub(" ", lowered)):
        kind = match.lastgroup
        found += [_word(match[0], shown[match.start() : match.end()])] if kind == "word" else _READERS[kind or ""](match)
    return _with_numbers(found)


def _word(word: str, shown: str) -> Atom:
    known = _known(word) if len(word) <= _LONG_WORD else _known.__wrapped__(word)
    if shown == word or len(parts := _CAMEL.split(shown)) == 1:
        return known
    return Atom(known.key, (*known.others, *(_known(part.lower()).key for part in parts)), known.weight, word)


@lru_cache(maxsize=65_536)
def _known(word: str) -> Atom:
    others = [number_key(_COUNTS[word])] if word in _COUNTS else []
    if word in _TIMES:
        others.append(_TIMES[word])
    if word in _NUMBERS:
        return Atom(number_key(_NUMBERS[word]), (word, *others), len(word), word)
    others += [number_key(float(digits)) for digits in _INNER_NUMBER.findall(word)]
    return Atom(_KEY_OF.get(word) or _stem(word), tuple(others), 0 if word in _EMPTY else len(word), word)


def _stem(word: str) -> str:
    """Remove a plural ending, from every word in the same way; the result need not be a word."""
    if (known := _KEY_OF.get(word.removesuffix("s"))) is not None:
        return known
    for ending, instead in _ENDINGS:
        if word.endswith(ending):
            return word.removesuffix(ending) + instead if len(word) > len(ending) + 2 else word
    return word


@lru_cache(maxsize=16_384)
def _sign(sign: str, weight: int = 0) -> tuple[Atom, ...]:
    others = (number_key(_COUNTS[sign]),) if sign in _COUNTS else ()
    return (Atom(_KEY_OF.get(sign, sign), others, weight, sign),)


def _date(year: str, months: Sequence[str], days: Sequence[str]) -> list[Atom]:
    """Return the parts of a date as separate atoms; in 03/05/2024 either number may be the month. The year has no weight."""
    century = 0 if len(year) == 4 else 2000 if int(year) < 70 else 1900
    month, *other_months = [_MONTHS[int(month) - 1] for month in months if 1 <= int(month) <= 12] or ["no month"]
    day, *other_days = [number_key(int(day)) for day in days]
    return [
        Atom(number_key(century + int(year)), (), 0, year),
        Atom(month, tuple(other_months), 3, months[0]),
        Atom(day, tuple(other_days), 3, days[0]),
    ]


def _time(text: str, hours: str, minutes: str, half: str | None) -> Atom:
    """Read a time; without am or pm it may be either."""
    hour, minute = int(hours), int(minutes)
    numbers = [number_key(hour), number_key(minute)]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
        numbers.append(number_key(hour))
    first, *others = [f"{each:02d}:{minute:02d}" for each in ([hour] if half or hour > 12 else [hour, (hour + 12) % 24])]
    return Atom(first, (*others, *numbers), 4 if half or first != "00:00" else 0, text)


def _read_signed(digits: str) -> Sequence[Atom]:
    """Read a number that may have a minus sign; the sign may be a dash, so the number without it gets a key, too."""
    found = _read_number(digits.lstrip(_MINUS).lstrip())
    first, negative = found[0], number_key(-float(found[0].key[1:])) if found[0].key.startswith("#") else ""
    if digits[0] not in _MINUS or not negative:
        return found
    return (Atom(negative, (first.key, *first.others), first.weight, first.text), *found[1:])


@lru_cache(maxsize=16_384)
def _read_number(digits: str) -> tuple[Atom, ...]:
    """Read a number; a comma or a point may be the decimal sign, or separate thousands or numbers."""
    if len(digits) > _DIGITS:
        return (Atom(digits, (), len(digits), digits),)
    *before, last = re.split("[.,]", digits)
    if not before:
        return (Atom(number_key(float(digits)), (), len(digits), digits),)
    sign, groups = digits[-len(last) - 1], [*before[1:], last]
    decimal = number_key(float(f"{''.join(before)}.{last}"))
    if len(groups) == 1 and (sign == "." or len(last) != 3):
        parts = [number_key(float(part)) for part in (*before, last)] if sign == "," else []
        return (Atom(decimal, tuple(parts), len(digits), digits),)
    if all(len(group) == 3 for group in groups):
        return (Atom(number_key(float("".join((*before, last)))), (decimal,), len(digits), digits),)
    if digits.count(sign) == 1 and all(len(group) == 3 for group in groups[:-1]):
        return (Atom(decimal, (), len(digits), digits),)
    return tuple(Atom(number_key(float(part)), (), len(part), part) for part in (*before, last))  # 1.2.3, or 1,2,3


# Kind of atom -> the function that reads it.
_READERS: Final[Mapping[str, Callable[[re.Match[str]], Sequence[Atom]]]] = {
    "date": lambda match: _date(match[3], (match[4],), (match[5],)),
    "short": lambda match: _date(match[10], (match[7], match[9]), (match[9], match[7])),
    "time": lambda match: [_time(match[0], match[12], match[13], match[14])],
    "hour": lambda match: [_time(match[0], match[16], "0", match[17])],
    "number": lambda match: _read_signed(match["number"]),
    "alone": lambda match: _sign(match[0], 2),
    "sign": lambda match: _sign(match[0]),
    "digits": lambda match: (_known(match[0]),),
}


def number_key(value: float) -> str:
    """Return the key of a number: its first 12 digits, so that decimals that differ only by rounding are the same."""
    return f"#{value:.12g}"


def _with_numbers(found: list[Atom]) -> list[Atom]:
    """Join the words of one number: "twenty-five", "two hundred and ten", "1.5 million", "20 %"."""
    joined: list[Atom] = []
    at = 0
    while at < len(found):
        run = _run(found, at) if found[at].key.startswith("#") else 1
        atom = _join(found[at : at + run]) if run > 1 else found[at]
        if at and atom.key.startswith("#") and found[at - 1].text in _NEGATIVE:
            atom = Atom(atom.key, (*atom.others, number_key(-float(atom.key[1:]))), atom.weight, atom.text)
        joined.append(atom)
        at += run
    return joined


def _run(found: Sequence[Atom], at: int) -> int:
    room = _room(found[at])  # a number below this may follow
    end = at + 1
    while end < len(found) and end - at < _LONGEST_RUN:
        word = found[end].text.lower()
        if word in _SCALES:
            room = _SCALES[word]
        elif found[end].key.startswith("#") and word in _NUMBERS and 0 < _NUMBERS[word] < room:
            room = _room(found[end])
        elif not (
            word == "and" and room >= 100 and end + 1 < len(found) and 0 < _NUMBERS.get(found[end + 1].text.lower(), 0) < room
        ):
            break
        end += 1
        if _SCALES.get(word, 1) < 1:  # percent ends a number
            break
    return end - at


def _room(atom: Atom) -> float:
    return 10 if _NUMBERS.get(atom.text.lower(), 0) >= 20 else 0


def _join(run: Sequence[Atom]) -> Atom:
    total, current, share = 0.0, 0.0, 0.0
    for atom in run:
        scale = _SCALES.get(atom.text.lower())
        if scale is None:
            current += float(atom.key[1:]) if atom.key.startswith("#") else 0
        elif scale < 1:
            share = scale
        elif scale == 100:
            current *= scale
        else:
            total, current = total + current * scale, 0.0
    number = total + current
    parts = tuple(key for atom in run for key in (atom.key, *atom.others))
    others = (*parts, number_key(number * share)) if share else parts
    return Atom(number_key(number), others, max(atom.weight for atom in run), run[0].text)


# -- names in another script -------------------------------------------------------------------------------------------
# The words of requests (`request_words.toml`): patterns of its tables, and what in a script other than Latin may be a name.
#
# A value in Latin letters may stand for such a name (巴黎, Paris). A translation cannot be looked up, so all that is known is
# whether the request has room for a name (docs/decisions/grounds.md).


WORDS: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("request_words.toml").read_text("utf-8"))
_MARKED: Final = re.compile(r"[0-9@\\]|^[/~.]")
_LATIN: Final = re.compile(r"[A-Za-z]")
_OTHER_SCRIPT: Final = re.compile(r"[\u0370-\u1fff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_MAY_BE_NAME: Final = re.compile(r"[\u3400-\u9fff]{2}|[\u0370-\u1fff\u3040-\u30ff\uac00-\ud7af]")
IN_ENGLISH: Final[Mapping[str, str]] = WORDS["in_english"]
_NO_NAME: Final = re.compile("|".join([*IN_ENGLISH, *WORDS["chinese"]["no_names"]]))


def pattern(name: str) -> re.Pattern[str]:
    row = WORDS[name]
    endings = f"(?:{'|'.join(row['endings'])})?" if "endings" in row else ""
    english = rf"\b(?:{'|'.join(row['english'])}){endings}\b"
    return re.compile(f"{english}|{row['other']}" if "other" in row else english, re.IGNORECASE)


_POINTS_BACK: Final = pattern("points_back")


def has_other_script(text: str) -> bool:
    """Say whether a text contains a script other than Latin."""
    return bool(_OTHER_SCRIPT.search(text))


def may_have_name(text: str) -> bool:
    """Say whether a text has what may be a name in a script other than Latin."""
    return has_other_script(text) and bool(_MAY_BE_NAME.search(_NO_NAME.sub(" ", text)))


def may_be_translation(value: str) -> bool:
    """Say whether a value may be a name in Latin letters; numbers, paths and addresses are not translated."""
    return bool(_LATIN.search(value) and not _MARKED.search(value))


def points_back(request: str) -> bool:
    """Say whether a request refers to what was said before it."""
    return bool(_POINTS_BACK.search(request))
