"""JSON values of a schema, as they stand in a call.

Objects have their declared properties in the declared order, those that are not required may be left out. A list of named rules
is kept by content, so that a schema that refers to itself becomes a rule that does.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..dialects import Dialect
from ..dialects.write import json_texts
from ..schema.validation import is_valid
from ..tools.catalog import Catalog
from ..types.tool import Tool
from .branches import ANYTHING, ENUMERATED, Loosened, branches
from .expressions import (
    EMPTY,
    NOTHING,
    Characters,
    Expression,
    Rules,
    characters,
    choice,
    complement,
    optional,
    repeat,
    sequence,
    without,
)
from .markup import beginnings_of_tags, text_without
from .patterns import FORMATS, MOST_TIMES, expression_of

__all__ = ["SPACE", "Values", "string_limits"]

SPACE: Final = choice(EMPTY, " ", sequence("\n", repeat(characters(" \t"), 0, 20)))
"""White space between the parts of a call."""

DIGITS: Final = 17  # behind the first one of a number
TWICE: Final = "a name may come twice in an object"
MOST_OPTIONAL: Final = 40  # properties of an object of which any may come first
_DIGIT: Final = characters(("0", "9"))
_HEX: Final = characters(("0", "9"), ("a", "f"), ("A", "F"))
_CONTROL: Final = characters(("\0", "\x1f"))
_QUOTED: Final = without(complement(_CONTROL), characters('"\\'))
# A half of a surrogate pair is no character.
_CODE: Final = sequence(
    "u",
    choice(
        sequence(without(_HEX, characters("dD")), repeat(_HEX, 3, 3)),
        sequence(characters("dD"), characters(("0", "7")), _HEX, _HEX),
    ),
)
_ESCAPE: Final = sequence("\\", choice(characters('"\\/bfnrt'), _CODE))
_WHOLE: Final = choice("0", sequence(characters(("1", "9")), repeat(_DIGIT, 0, DIGITS)))
_EXPONENT: Final = sequence(characters("eE"), optional(characters("+-")))
_NUMBER: Final = sequence(
    optional("-"),
    choice(
        sequence(_WHOLE, optional(sequence(".", repeat(_DIGIT, 1, DIGITS))), optional(sequence(_EXPONENT, repeat(_DIGIT, 1, 2)))),
        # With three digits of an exponent the number has to stay one that a double holds.
        sequence(_DIGIT, optional(sequence(".", repeat(_DIGIT, 1, DIGITS))), _EXPONENT, characters("12"), _DIGIT, _DIGIT),
    ),
)


def string_limits(schema: Mapping[str, Any], path: str, loosened: Loosened) -> tuple[int, int | None]:
    """Return how many characters a string may have, as far as they can be counted.

    Args:
        schema: of the string.
        path: of the value.
        loosened: what is not held is noted there.
    """
    return _limits(schema, ("minLength", "maxLength"), path, loosened)


def _limits(schema: Mapping[str, Any], keywords: tuple[str, str], path: str, loosened: Loosened) -> tuple[int, int | None]:
    least, most = (schema.get(keyword) for keyword in keywords)
    for keyword, value in zip(keywords, (least, most), strict=True):
        if value is not None and value > MOST_TIMES:
            loosened.note(path, f"{keyword} of more than {MOST_TIMES}")
    return (int(least) if least and least <= MOST_TIMES else 0), (int(most) if most is not None and most <= MOST_TIMES else None)


class Values:
    """JSON values of one tool's schema.

    Args:
        tool: one of the catalog's.
        catalog: that it is in; its schema is usable.
        row: the wire format.
        rules: where rules are kept.
        loosened: what is not held is noted there.
    """

    def __init__(self, tool: Tool, catalog: Catalog, row: Dialect, rules: Rules, loosened: Loosened) -> None:
        self._tool = tool
        self._validator = catalog.validator(tool.name)
        self._row = row
        self._rules = rules
        self._loosened = loosened
        self._space = rules.define("space", SPACE)
        self._words = frozenset() if row.is_json else beginnings_of_tags(row)
        entity = characters("<>&") if row.entities else characters("<") if self._words else Characters(())
        self._bounded = without(_QUOTED, entity)
        self._plain = self._bounded if row.entities else _QUOTED
        self._others = choice(_ESCAPE, "&amp;", "&#60;", "&#62;") if row.entities else _ESCAPE
        self._kinds: dict[str, Callable[[Mapping[str, Any], str], Expression]] = {
            "string": self._string,
            "integer": lambda schema, path: integers(*_range_of(schema)),
            "number": lambda schema, path: _NUMBER,
            "boolean": lambda schema, path: choice("true", "false"),
            "null": lambda schema, path: sequence("null"),
            "array": self._array,
            "object": self._object,
            ENUMERATED: lambda schema, path: choice(*map(self.text, self.enumerated(schema))),
            ANYTHING: lambda schema, path: self._anything(path),
        }

    def of(self, schema: Any, path: str) -> Expression:
        """Return the values that a schema admits.

        Args:
            schema: a part of the tool's.
            path: of the value, for what is told.
        """
        key = (self._tool.name, json.dumps(schema, sort_keys=True, default=str))
        rule, is_new = self._rules.reserve(key, "value")
        if is_new:
            found = branches(schema, self._tool.input_schema, path, self._loosened)
            self._rules.set(rule, choice(*(self.of_kind(kind, each, path) for kind, each in found)))
        return NOTHING if self._rules.expressions[rule.name] == NOTHING else rule

    def of_kind(self, kind: str, schema: Mapping[str, Any], path: str) -> Expression:
        """Return the values of one of a schema's branches.

        Args:
            kind: of the branch.
            schema: of the branch.
            path: of the value.
        """
        return self._kinds[kind](schema, path)

    def enumerated(self, schema: Mapping[str, Any]) -> list[Any]:
        """Return the values of an enumeration that its other keywords admit."""
        listed = [schema["const"]] if "const" in schema else schema["enum"]
        return [value for value in listed if is_valid(self._validator, value, schema)]

    def text(self, value: Any) -> Expression:
        """Write a JSON value."""
        return choice(*json_texts(value, self._row))

    def _string(self, schema: Mapping[str, Any], path: str) -> Expression:
        return self._rules.define("string", sequence('"', self._inside(schema, path), '"'))

    def _inside(self, schema: Mapping[str, Any], path: str) -> Expression:
        held = patterned(schema, self._bounded, path, self._loosened)
        if held is not None:
            return held
        least, most = string_limits(schema, path, self._loosened)
        if (least, most) == (0, None):
            return text_without(self._words, self._rules, plain=self._plain, others=self._others)
        unit = self._rules.define("character", choice(self._bounded, self._others))
        return repeat(unit, least, most)

    def _array(self, schema: Mapping[str, Any], path: str) -> Expression:
        items = schema.get("items", True) if "prefixItems" not in schema and not isinstance(schema.get("items"), list) else True
        least, most = _limits(schema, ("minItems", "maxItems"), path, self._loosened)
        item, space = self.of(items, f"{path}[]"), self._space
        more = repeat(
            self._rules.define("item", sequence(",", space, item)), max(least - 1, 0), None if most is None else most - 1
        )
        listed = sequence(space, item, more) if most != 0 else EMPTY
        return sequence("[", listed if least else optional(listed), space, "]")

    def _object(self, schema: Mapping[str, Any], path: str) -> Expression:
        if not schema.get("properties") and not schema.get("required"):
            return self._free(schema, path)
        members = [(self._member(name, each, path), required) for name, each, required in properties_of(schema)]
        return sequence("{", self._space, self._in_order(members, path), self._space, "}")

    def _member(self, name: str, schema: Any, path: str) -> Expression:
        return self._rules.define("member", sequence(self.text(name), ":", self._space, self.of(schema, f"{path}.{name}")))

    def _in_order(self, members: list[tuple[Expression, bool]], path: str) -> Expression:
        """Return members with commas between them, in their order."""
        comma = sequence(",", self._space)
        first = next((at for at, (_, required) in enumerate(members) if required), None)
        behind = [sequence(comma, member) if required else optional(sequence(comma, member)) for member, required in members]
        if first is not None:
            before = [optional(sequence(member, comma)) for member, _ in members[:first]]
            return sequence(*before, members[first][0], *behind[first + 1 :])
        if len(members) > MOST_OPTIONAL:
            self._loosened.note(path, f"more than {MOST_OPTIONAL} optional properties")
            return optional(sequence(self._any_member(True, path), repeat(sequence(comma, self._any_member(True, path)))))
        return optional(choice(*(sequence(member, *behind[at + 1 :]) for at, (member, _) in enumerate(members))))

    def _free(self, schema: Mapping[str, Any], path: str) -> Expression:
        """Return objects of any names; a name that comes twice is not held off."""
        allowed = schema.get("additionalProperties", not schema.get("properties"))
        if allowed is False and not schema.get("patternProperties"):
            return sequence("{", self._space, "}")
        self._loosened.note(path, TWICE)
        member = self._any_member(allowed if not schema.get("patternProperties") else True, path)
        listed = optional(sequence(member, repeat(sequence(",", self._space, member))))
        return sequence("{", self._space, listed, self._space, "}")

    def _any_member(self, schema: Any, path: str) -> Expression:
        return self._rules.define("member", sequence(self._string({}, path), ":", self._space, self.of(schema, f"{path}.*")))

    def _anything(self, path: str) -> Expression:
        self._loosened.note(path, TWICE)
        rule, is_new = self._rules.reserve("anything", "anything")
        if not is_new:
            return rule
        kinds = ("string", "number", "boolean", "null")
        scalars = [self.of_kind(kind, {}, "") for kind in kinds]
        item = sequence(",", self._space, rule)
        array = sequence("[", optional(sequence(self._space, rule, repeat(item))), self._space, "]")
        member = self._rules.define("member", sequence(self._string({}, ""), ":", self._space, rule))
        listed = optional(sequence(member, repeat(sequence(",", self._space, member))))
        return self._rules.set(rule, choice(*scalars, array, sequence("{", self._space, listed, self._space, "}")))


def patterned(schema: Mapping[str, Any], plain: Characters, path: str, loosened: Loosened) -> Expression | None:
    """Return the strings of a schema with a pattern or a format, as far as one can be held; None if neither can.

    Args:
        schema: of the string.
        plain: the characters that it may have.
        path: of the value.
        loosened: what is not held is noted there.
    """
    found: Expression | None = None
    for keyword, source in (("pattern", schema.get("pattern")), ("format", FORMATS.get(str(schema.get("format"))))):
        if source is None or found is not None:
            held = source is None and (keyword == "pattern" or "format" not in schema)
        else:
            found = expression_of(source, plain)
            held = found is not None
        if not held:
            loosened.note(path, f"{keyword} {schema[keyword]!r:.80}")
    if found is not None and ("minLength" in schema or "maxLength" in schema):
        loosened.note(path, "a length beside a pattern or a format")
    return found


def properties_of(schema: Mapping[str, Any]) -> Iterable[tuple[str, Any, bool]]:
    """Yield an object's properties in the declared order: name, schema, whether it is required."""
    declared, required = schema.get("properties") or {}, schema.get("required") or []
    for name, each in declared.items():
        yield name, each, name in required
    for name in required:
        if name not in declared:
            yield name, schema.get("additionalProperties", True), True


# -- whole numbers between two others --------------------------------------------------------------------------------------


def _range_of(schema: Mapping[str, Any]) -> tuple[int | None, int | None]:
    lows = [-(-schema["minimum"] // 1)] if "minimum" in schema else []
    lows += [schema["exclusiveMinimum"] // 1 + 1] if "exclusiveMinimum" in schema else []
    highs = [schema["maximum"] // 1] if "maximum" in schema else []
    highs += [-(-schema["exclusiveMaximum"] // 1) - 1] if "exclusiveMaximum" in schema else []
    return (int(max(lows)) if lows else None), (int(min(highs)) if highs else None)


def integers(low: int | None, high: int | None) -> Expression:
    """Return the whole numbers between two others.

    Args:
        low: the smallest; None for any of up to 18 digits.
        high: the largest; None for any of up to 18 digits.
    """
    if low is None and high is None:
        return sequence(optional("-"), _WHOLE)
    most = 10 ** (DIGITS + 1) - 1
    low, high = -most if low is None else low, most if high is None else high
    negative = _between(max(-high, 1), -low) if low < 0 else NOTHING
    positive = _between(max(low, 0), high) if high >= 0 else NOTHING
    return choice(sequence("-", negative), positive)


def _between(low: int, high: int) -> Expression:
    """Return numbers that are not negative, for each count of digits apart."""
    options = []
    for digits in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (digits - 1) if digits > 1 else 0)
        last = min(high, 10**digits - 1)
        if first <= last:
            options.append(_digits(str(first), str(last)))
    return choice(*options)


def _digits(low: str, high: str) -> Expression:
    """Return the texts of digits between two of the same length."""
    if not low:
        return EMPTY
    rest = len(low) - 1
    if low[1:] == "0" * rest and high[1:] == "9" * rest:
        return sequence(characters((low[0], high[0])), repeat(_DIGIT, rest, rest))
    if low[0] == high[0]:
        return sequence(low[0], _digits(low[1:], high[1:]))
    middle = characters((chr(ord(low[0]) + 1), chr(ord(high[0]) - 1))) if ord(high[0]) - ord(low[0]) > 1 else NOTHING
    return choice(
        sequence(low[0], _digits(low[1:], "9" * rest)),
        sequence(middle, repeat(_DIGIT, rest, rest)),
        sequence(high[0], _digits("0" * rest, high[1:])),
    )
