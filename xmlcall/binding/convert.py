"""A value that violates its schema -> the one value that was clearly meant, and the liberties that this took.

Strategy: a valid value is never changed. For an invalid one, each type that the schema admits is tried, and so is each branch of
`anyOf` and `oneOf`. The valid reading with the fewest liberties wins. If several different readings tie, the result is an issue
that lists them. Arrays and objects are repaired member by member. Every liberty is recorded as a repair with the path that it
changed.

Cost: each level of a value is validated once for each branch. `MAX_DEPTH` bounds the depth, `_MAX_BRANCHES` the branches, and
`_MAX_STEPS` the total: a value that is not repaired by then stays an issue.

Models that write parameters as tags continue in tags if the schema asks for an array or an object:
`<item>a</item><item>b</item>`, `<name>x</name><size>1</size>`. The schema decides which JSON value these mean. lxml reads the
text strictly: only XML's own five entities are resolved, a DTD or a processing instruction is refused, nothing is fetched, and
malformed text is not repaired. `MAX_DEPTH` bounds the depth, because validating a value recurses.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import regex

from ..loosejson import reader as jsonish
from ..schema.references import MAX_DEPTH, resolve
from ..schema.validation import is_valid, types_of
from ..tools.outline import other_than_string
from ..types.calls import MISSING, is_of_type

_MAX_BRANCHES = 32
_MAX_STEPS = 2_000  # for one call: schemas that refer to themselves multiply
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NULLS = frozenset({"", "null", "none", "nil"})
_NOTHING = _NULLS | {"n/a"}  # never an item of a list: `None` for a list of strings means that there are none
# Words that mean "not given" for an optional parameter whose schema does not admit them.
_UNASKED = _NOTHING | {"undefined", "unspecified", "not specified", "not provided", "dontcare", "don't care", "any"}
_NUMBER = regex.compile(r"[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
_MAX_DIGITS = 300  # a double has no more
_INTEGER = rf"[+-]?\d{{1,{_MAX_DIGITS}}}"
_ITEMS = frozenset({"item", "element", "entry", "value", "li", "string"})

_DECIMAL_COMMA = regex.compile(r"[+-]?\d+,\d+")
_BULLET = regex.compile(r"^[ \t]*[-*][ \t]+")

_BARE_AMPERSAND = regex.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});)")


@dataclass(frozen=True, slots=True)
class Fit:
    """A reading: the value, and the (code, path) of each liberty."""

    value: Any
    liberties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Several different readings, none of them better than the others."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _XmlNode:
    """An element: its children, or its text if it has none."""

    name: str
    text: str
    children: tuple["_XmlNode", ...]


class Fitter:
    """Repairs values for one tool."""

    def __init__(self, validator: Any, root: Mapping[str, Any]) -> None:
        self._validator = validator
        self._root = root
        self._steps = 0
        self._read: dict[tuple[Callable[..., Any], str], Any] = {}  # a thousand alternatives may read the same text
        self._entered: set[tuple[int, int]] = set()  # (value, schema) in progress: stops schemas that lead to themselves

    def fit(self, value: Any, schema: Any, path: str, depth: int = MAX_DEPTH) -> Fit | Ambiguous | None:
        """Return the reading of a value that its schema admits; None if there is none."""
        if isinstance(value, _UntypedText) and (other := other_than_string(value, schema, self._validator)) is not MISSING:
            return Fit(other)
        if is_valid(self._validator, value, schema):
            return Fit(value)
        schema = resolve(schema, self._root)
        here = (id(value), id(schema))
        if not isinstance(schema, Mapping) or not depth or here in self._entered or self._steps >= _MAX_STEPS:
            return None
        self._steps += 1
        self._entered.add(here)
        try:
            found: list[Fit] = []
            for reading in self._readings(value, schema, path, depth):
                if isinstance(reading, Ambiguous):
                    return reading
                if reading is not None and is_valid(self._validator, reading.value, schema):
                    found.append(reading)
            return _best(found)
        finally:
            self._entered.remove(here)

    def _readings(self, value: Any, schema: Mapping[str, Any], path: str, depth: int) -> Iterator[Fit | Ambiguous | None]:
        for key in ("anyOf", "oneOf", "allOf"):
            branches = schema.get(key)
            for branch in branches[:_MAX_BRANCHES] if isinstance(branches, list) else ():
                yield self.fit(value, branch, path, depth - 1)
        if "enum" in schema or "const" in schema:
            members = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
            yield _fit(_member(value, members), path)
        for kind in types_of(schema):
            if kind in _SCALARS:
                yield _fit(_SCALARS[kind](value), path)
            else:
                yield from (self._array if kind == "array" else self._object)(value, schema, path, depth)

    def _array(self, value: Any, schema: Mapping[str, Any], path: str, depth: int) -> Iterator[Fit | Ambiguous | None]:
        listed = schema.get("prefixItems")  # the schemas of a tuple; in draft-07 also under `items`
        items = listed if isinstance(listed, list) else schema.get("items", True)
        if isinstance(value, list):
            yield self._all(value, items, path, depth)
        elif isinstance(value, _Elements) and len(value) == 1:
            yield self._all(value.members(), items, path, depth)
        elif value is None or (isinstance(items, list) and not isinstance(value, str)):  # a single value is not a tuple
            return
        elif not isinstance(value, str):
            yield self._liberty("single-item", path, self._all([value], items, path, depth))
        else:
            yield from self._array_of_text(value, items, path, depth)

    def _array_of_text(self, text: str, items: Any, path: str, depth: int) -> Iterator[Fit | Ambiguous | None]:
        parsed = self._once(_array_in, text)
        if parsed is not None:
            yield self._liberty("json-double-encoding", path, self._all(parsed, items, path, depth))
        elif (nodes := self._once(_read_xml, text)) and self._are_items(nodes, items):
            yield _unquote(self._liberty("xml-elements", path, self._all([_tree(node) for node in nodes], items, path, depth)))
        elif text.strip() and not text.lstrip().startswith(("[", "<", "{")) and self._are_scalars(items):
            for code, parts in _splits(text, self._enumerated(items)):
                yield _unquote(self._liberty(code, path, self._all(list(map(_UntypedText, parts)), items, path, depth)))

    def _once(self, read: Callable[[str], Any], text: str) -> Any:
        if (read, text) not in self._read:
            self._read[read, text] = read(text)
        return self._read[read, text]

    def _are_items(self, nodes: tuple[_XmlNode, ...], items: Any) -> bool:
        """Say whether elements are the items of a list: all have one name, which must not be HTML if the items are strings."""
        names = {node.name for node in nodes}
        kinds = types_of(resolve(items, self._root))
        return len(names) == 1 and (bool(names & _ITEMS) or bool(kinds and "string" not in kinds))

    def _are_scalars(self, items: Any) -> bool:
        items = resolve(items, self._root)
        kinds = set(types_of(items))
        return (bool(kinds) and kinds <= _SCALARS.keys()) or (isinstance(items, Mapping) and not kinds and "enum" in items)

    def _enumerated(self, items: Any) -> list[Any]:
        items = resolve(items, self._root)
        members = items.get("enum") if isinstance(items, Mapping) else None
        return members if isinstance(members, list) else []

    def _all(self, values: list[Any], items: Any, path: str, depth: int) -> Fit | Ambiguous | None:
        fits = []
        known = self._enumerated(items)
        for place, value in enumerate(values):
            schema = items if not isinstance(items, list) else items[place] if place < len(items) else True
            fit = self.fit(value, schema, f"{path}[{place}]", depth - 1)
            if not isinstance(fit, Fit):
                return fit
            if isinstance(value, _UntypedText) and isinstance(fit.value, str) and _says_nothing(value, known):
                return None
            fits.append(fit)
        return Fit([fit.value for fit in fits], tuple(each for fit in fits for each in fit.liberties))

    def _object(self, value: Any, schema: Mapping[str, Any], path: str, depth: int) -> Iterator[Fit | Ambiguous | None]:
        if isinstance(value, dict):
            yield self._members(value, schema, path, depth)
        elif isinstance(value, str) and (parsed := self._once(_object_in, value)) is not None:
            yield self._liberty("json-double-encoding", path, self._members(parsed, schema, path, depth))
        elif isinstance(value, str) and (nodes := self._once(_read_xml, value)):
            yield _unquote(self._liberty("xml-elements", path, self._members(_group(nodes), schema, path, depth)))

    def _members(self, value: dict[str, Any], schema: Mapping[str, Any], path: str, depth: int) -> Fit | Ambiguous | None:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = schema["required"] if isinstance(schema.get("required"), list) else ()
        found: dict[str, Any] = {}
        liberties: list[tuple[str, str]] = []
        for name, member in value.items():
            below = properties.get(name, schema.get("additionalProperties", True))
            fit = self.fit(member, below, f"{path}.{name}", depth - 1)
            if fit is None and member is None and name in properties and name not in required:
                liberties.append(("empty-argument", f"{path}.{name}"))
                continue
            if not isinstance(fit, Fit):
                return fit
            found[name] = fit.value
            liberties += fit.liberties
        return Fit(found, tuple(liberties))

    @staticmethod
    def _liberty(code: str, path: str, fit: Fit | Ambiguous | None) -> Fit | Ambiguous | None:
        return Fit(fit.value, ((code, path), *fit.liberties)) if isinstance(fit, Fit) else fit


class _UntypedText(str):
    """A text of unknown type: from an element, or a part of a list."""

    __slots__ = ()


class _Elements(dict[str, Any]):
    """XML elements as an object, although an array may be meant."""

    def members(self) -> list[Any]:
        """Return the contents of the elements, which all have one name."""
        values = list(self.values())
        return values[0] if isinstance(values[0], list) else values


def _unquote(fit: Fit | Ambiguous | None) -> Fit | Ambiguous | None:
    """Drop the repairs of quoted numbers: text that is not JSON has no quotes."""
    if not isinstance(fit, Fit):
        return fit
    return Fit(json.loads(json.dumps(fit.value)), tuple(liberty for liberty in fit.liberties if liberty[0] != "quoted-value"))


def _fit(read: "_Read", path: str) -> Fit | None:
    return Fit(read[0], ((read[1], path),)) if read else None


def _best(found: list[Fit]) -> Fit | Ambiguous | None:
    if not found:
        return None
    fewest = min(len(fit.liberties) for fit in found)
    best = {json.dumps(fit.value, sort_keys=True, default=str): fit for fit in found if len(fit.liberties) == fewest}
    return next(iter(best.values())) if len(best) == 1 else Ambiguous(tuple(fit.value for fit in best.values()))


def _json_of(kind: str, text: str) -> Any:
    read = jsonish.read(text, kinds={kind}, complete=True)
    return read.value if isinstance(read, jsonish.JsonReading) and is_of_type(read.value, [kind]) else None


_array_in, _object_in = partial(_json_of, "array"), partial(_json_of, "object")


def _tree(node: _XmlNode) -> Any:
    return _group(node.children) if node.children else _UntypedText(node.text)


def _group(nodes: tuple[_XmlNode, ...]) -> Any:
    """Turn elements into an object; several elements with the same name become an array."""
    found: dict[str, list[Any]] = {}
    for node in nodes:
        found.setdefault(node.name, []).append(_tree(node))
    return _Elements({name: values if len(values) > 1 else values[0] for name, values in found.items()})


def _splits(text: str, known: list[Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the ways to read a text as a list of scalars: one item a line, split at commas, or the whole text as the only item.

    If both of the last two are valid, nothing decides between them: `Paris, France` may be one place, and `Doe, John` one name.
    So a list with commas is read only if the schema of the items rules one of the two out, as numbers, an enum or a pattern do.
    """
    text = text.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1:
        bulleted = all(_BULLET.match(line) for line in lines)
        yield "line-list", [_BULLET.sub("", line) for line in lines] if bulleted else lines
        return
    if "," in text and (_NUMBER.fullmatch(text) or _DECIMAL_COMMA.fullmatch(text)):
        return  # 1,000 may be two numbers or one thousand, 1,5 two numbers or one and a half
    parts = [part.strip() for part in text.split(",")]
    if any(_says_nothing(part, known) for part in parts):
        return
    if len(parts) > 1:
        yield "comma-list", parts
    yield "single-item", [text]


def _says_nothing(text: str, known: list[Any]) -> bool:
    """Say whether a text is a word for "nothing" and not one of the values that the schema lists."""
    return text.strip().strip("\"'`").strip().casefold() in _NOTHING and text not in known


def is_word_for_nothing(value: Any, kinds: frozenset[str] | None) -> bool:
    """Say whether a value that violates its schema is a word for "nothing", such as `N/A` for a number or for an enum without it.

    For lists and objects only the empty text counts, because `None` for a list may mean that it is empty.
    """
    if not isinstance(value, str):
        return False
    text = value.strip()
    return not text or (not (kinds or frozenset()) & {"array", "object"} and text.casefold() in _UNASKED)


_Read = tuple[Any, str] | None
"""A value and the liberty that reading it took; None if it cannot be read."""


def _member(value: Any, members: list[Any]) -> _Read:
    """Return the one enum member that a value means, ignoring quotes and white space, then letter case, then separators."""
    if not isinstance(value, str):
        same = str.casefold if isinstance(value, bool) else str  # as Python writes `True`
        plain = _plain(value)
        found = [member for member in members if isinstance(member, str) and same(member) == plain]
        return (found[0], "to-string") if len(found) == 1 else None
    text = value.strip().strip("\"'`").strip()
    if not text:
        return None
    for fold in (str, str.casefold, *((_fold,) if text[0].isalpha() else ())):  # -1 is not 1
        found = [member for member in members if fold(_plain(member)) == fold(text)]
        if found:
            return (found[0], "enum-spelling") if len(found) == 1 else None
    return None


def _fold(text: str) -> str:
    return regex.sub(r"[\s_\-]+", "", text).casefold()


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _number(value: Any) -> _Read:
    if not isinstance(value, str) or not _NUMBER.fullmatch(text := value.strip()):
        return None
    if "," in text and not ("." in text or text.count(",") > 1):
        return None  # 1,000 may be one thousand or, with a decimal comma, one
    digits = text.replace(",", "")
    number = int(digits) if regex.fullmatch(_INTEGER, digits) else float(digits)
    return (number, _number_code(text)) if math.isfinite(float(digits)) else None


def _integer(value: Any) -> _Read:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value), "number-format"
    if not isinstance(value, str) or not _NUMBER.fullmatch(text := value.strip()):
        return None
    digits = text.replace(",", "")
    if regex.fullmatch(_INTEGER, digits):
        return int(digits), _number_code(text)
    exact = Decimal(digits)
    is_whole = exact.adjusted() <= _MAX_DIGITS and exact == exact.to_integral_value()
    return (int(exact), "number-format") if is_whole else None


def _number_code(text: str) -> str:
    return "number-format" if "," in text or text.startswith("+") else "quoted-value"


def _boolean(value: Any) -> _Read:
    word = value.strip().strip("\"'").casefold() if isinstance(value, str) else ""
    return (_BOOLEANS[word], "boolean-word") if word in _BOOLEANS else None


_SCALARS: dict[str, Callable[[Any], _Read]] = {
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
    "null": lambda value: (None, "null-word") if isinstance(value, str) and value.strip().casefold() in _NULLS else None,
    # But not 1.10, which JSON has reduced to 1.1.
    "string": lambda value: (_plain(value), "to-string") if isinstance(value, int) else None,
}


def _read_xml(text: str) -> tuple[_XmlNode, ...] | None:
    """Read XML elements; None if malformed or too deep, or if they have a DTD, a comment, an attribute or text between them."""
    stripped = text.strip()
    if not (stripped.startswith("<") and stripped.endswith(">")) or "<!" in text or "<?" in text:
        return None
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(f"<v>{_BARE_AMPERSAND.sub('&amp;', text)}</v>".encode(), parser)
    except (etree.XMLSyntaxError, UnicodeEncodeError):
        return None
    return _children(root, MAX_DEPTH)


def _children(parent: Any, depth: int) -> tuple[_XmlNode, ...] | None:
    if (parent.text or "").strip() or not depth:
        return None
    nodes = []
    for child in parent:
        below = _children(child, depth - 1) if len(child) else ()
        if below is None or child.attrib or (child.tail or "").strip():
            return None
        nodes.append(_XmlNode(child.tag, "" if below else child.text or "", below))
    return tuple(nodes)


# -- a city as a time zone ---------------------------------------------------------------------------------------------
# A parameter that wants an IANA name ("Europe/Berlin") gets "Berlin" from small models, or a wrong region
# ("America/Honolulu"), and the call fails. Each city is in `time_zones.txt` once.


_RULES: Final = frozenset({"enum", "const", "pattern"})
_LONGEST: Final = 64  # characters


def wants_zone(schema: Any) -> bool:
    """Say whether a parameter's description asks for the IANA name of a time zone, and no other rule says which ones."""
    if not isinstance(schema, Mapping) or not schema.keys().isdisjoint(_RULES):
        return False
    about = schema.get("description")
    return isinstance(about, str) and "IANA" in about


def zone_of(text: str) -> str:
    """Return the IANA name of the time zone of a city; "" if the text is not a city."""
    region, _, city = text.strip().replace(" ", "_").rpartition("/") if len(text) <= _LONGEST else ("", "", "")
    regions, zones = _zones()
    return zones.get(city.casefold(), "") if not region or region in regions else ""


@cache
def _zones() -> tuple[frozenset[str], dict[str, str]]:
    names = [line.split("/") for line in Path(__file__).with_name("time_zones.txt").read_text("utf-8").splitlines()[1:]]
    # Without "America/Argentina/San_Juan" and the like: these cities share their names with larger ones.
    return frozenset(each[0] for each in names), {each[1].casefold(): "/".join(each) for each in names if len(each) == 2}
