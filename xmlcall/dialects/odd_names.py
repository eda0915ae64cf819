"""Parameters whose names the pattern of a format's tags does not read: each of their tags is known as a whole text.

A property may be called `StartTime<` or `a"b`. In a call of its tool the tag with that name, as it is written, means it and
nothing else, so the prompt shows the name as it is, and a model may copy it. Known are only the tags of declared names, which are
few and of one length each: a reader waits for no more than that.

A name has no tag where a part of its tag is one of another declared parameter: nothing could tell the two apart.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import regex

from .dialect import Body, Dialect, element_tags
from .tag_patterns import ZERO_WIDTH, attributes_of

__all__ = ["OddTag", "odd_tags"]

_ORDINARY = regex.compile(r"[\w.\-]{1,64}")  # of these every format can read the tag
_LONGEST = 256
_MOST = 64  # of one tool
_LINE = regex.escape("\n")


@dataclass(frozen=True, slots=True)
class OddTag:
    """A tag of a parameter with such a name: the pattern of its text, its kind, and what a reader has to know of it."""

    pattern: str
    kind: str
    attributes: Mapping[str, str]
    pair: str


def odd_tags(row: Dialect, names: Iterable[str]) -> tuple[OddTag, ...]:
    """Return the tags of the names that a format's own patterns do not read."""
    if row.body is not Body.TAGS or row.json_body:
        return ()
    declared = frozenset(names)
    odd = sorted(name for name in declared if not _ORDINARY.fullmatch(name) and 0 < len(name) <= _LONGEST)
    unread = itertools.islice((name for name in odd if not _reads(row, name)), _MOST)
    found = [tag for name in unread for tag in _tags_of(row, name)]
    texts = [tag.attributes["name"] for tag in found]
    others = declared.difference(texts)
    return tuple(tag for tag in found if not _hides(row, tag.attributes["name"], texts, others))


def _tags_of(row: Dialect, name: str) -> Iterator[OddTag]:
    if row.parameter_elements:
        for part in ("open", "close"):
            yield OddTag(
                _pattern(row.written[f"parameter_{part}"], name), f"parameter_{part}", {"name": name}, f"parameter {name}"
            )
        return
    marked = [(mark.written, {mark.attribute: mark.value}) for mark in (row.json_mark, row.string_mark) if mark]
    for written, attributes in [*marked, (row.written["parameter_open"], {})]:
        yield OddTag(_pattern(written, name), "parameter_open", {"name": name, **attributes}, "parameter")


def _pattern(written: str, name: str) -> str:
    before, _, after = written.partition("{name}")
    return "".join((_loose(before), regex.escape(name), _loose(after)))


def _loose(written: str) -> str:
    """Return the pattern of what a row writes; where it begins a line, models may not."""
    return regex.escape(written).replace(_LINE, r"\s{0,16}")


def _reads(row: Dialect, name: str) -> bool:
    """Say whether the format's own pattern reads the tag of a name."""
    if set(name) & set(ZERO_WIDTH):
        return False
    if row.parameter_elements:
        return bool(element_tags([name]))
    tag = row.written["parameter_open"].replace("{name}", name)
    found = regex.match(row.tags["parameter_open"], tag)
    return found is not None and found.end() == len(tag) and attributes_of(tag, row.name_in_tag).get("name") == name


def _hides(row: Dialect, name: str, odd: list[str], others: frozenset[str]) -> bool:
    """Say whether the beginning of a name's tag is the whole tag of another parameter."""
    before, _, after = row.written["parameter_open"].partition("{name}")
    ends = (end for end in range(1, len(name)) if name.startswith(after.strip() or after, end))
    beginnings = {name[:end] for end in ends}
    return bool(beginnings & (others | set(odd))) or (before.endswith("<") and name.startswith("/"))
