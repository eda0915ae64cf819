"""References inside a JSON Schema (`$ref`, `$defs`, `$anchor`), resolved without fetching anything, and the schemas in it.

`Places` finds everything in one walk, so that a schema of many references costs no more than its size. A reference leads to a
schema or nowhere. It leads nowhere if its target is data (`default`, `enum`), a circle of references, or outside the schema.
"""

import contextlib
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from typing import Any, Final, Literal, TypeVar, cast
from urllib.parse import unquote

import regex

from ..types.calls import MISSING

# -- how much work a walk through a schema may be, by its written size, however much its references expand it ----------
# A part with many references counts each time that a walk reaches it: forty alternatives that each lead to the next forty are
# sixty million parts after five levels, in a schema of seven kilobytes. So each walk through a schema has a depth, and its
# steps are counted. If there are too many, the walk is repeated with less depth.


CHARACTERS: Final = 16
"""How many characters of a text count as one step."""

KEYS: Final = 16
"""How many keys of an object are copied in one step."""

_LEAST: Final = 2_000  # steps, whatever the size
_EACH: Final = 4  # steps for each part that is written
_MOST: Final = 20_000  # a microsecond or two each; a larger schema is refused for its calls

_left: ContextVar[list[int] | None] = ContextVar("_left", default=None)

T = TypeVar("T")
Level = TypeVar("Level")


class TooMuchWork(Exception):
    """A schema takes more steps than it may."""


def spend(steps: int = 1) -> None:
    """Count steps, if a limit is active."""
    left = _left.get()
    if left is not None:
        left[0] -= steps
        if left[0] < 0:
            raise TooMuchWork


@contextmanager
def at_most(steps: int) -> Iterator[None]:
    """Count the steps inside; a limit inside another one counts for itself."""
    token = _left.set([steps])
    try:
        yield
    finally:
        _left.reset(token)


def as_deep_as_pays(schema: Mapping[str, Any], levels: Sequence[Level], walk: Callable[[Level], T], otherwise: T) -> T:
    """Walk through a schema, only as deep as its size justifies. Inside another such walk, the outer one counts the steps."""
    if _left.get() is not None:
        return walk(levels[0])
    steps = min(_LEAST + _EACH * size_of(schema, _MOST), _MOST)
    for level in levels:
        try:
            with at_most(steps):
                return walk(level)
        except TooMuchWork:
            continue
    return otherwise


def size_of(value: Any, enough: float = inf) -> int:
    """Count the parts of a JSON value; a long text counts as several."""
    size, stack = 0, [value]
    while stack and size < enough:
        node = stack.pop()
        size += 1 + (len(node) // CHARACTERS if isinstance(node, str) else 0)
        if isinstance(node, Mapping):
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return size


# -- references --------------------------------------------------------------------------------------------------------


MAX_DEPTH = 64
"""Levels of a schema, and steps of a chain of references, that are followed."""

_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_SINGLE_BRANCHES: Final = ("then", "else")

MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependencies", "dependentSchemas"})
"""Keywords that hold schemas by name; in `dependencies` also lists of names."""
LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SINGLES: Final = frozenset(
    {"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames"}
    | {"then", "unevaluatedItems", "unevaluatedProperties"}
)
DATA: Final = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords that hold values, in which nothing is a schema."""

_WITH_TUPLES: Final = regex.compile(r"json-schema\.org/draft(-0[67]|/2019-09)\b")
_MAX_POINTER: Final = 1_000  # characters of a reference that is written here


def nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object inside a JSON value, without recursion."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def resolve(schema: Any, root: Mapping[str, Any]) -> Any:
    """Follow local `$ref`s to a schema without one, keeping sibling keywords; MISSING for a dead end or a circle."""
    spend()
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            return schema
        target = pointed(root, schema["$ref"])
        if not isinstance(target, Mapping):
            return target if isinstance(target, bool) else MISSING
        if len(schema) > 1:
            spend(1 + (len(target) + len(schema)) // KEYS)
            target = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        schema = target
    return MISSING


def declared(schema: Any, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the `properties` of a schema and of its branches (JSON Schema 2020-12, core, section 10.2), each once, in order."""
    seen: set[int] = set()
    stack = [schema]
    while stack:
        part = stack.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(properties := part.get("properties"), Mapping):
            yield properties
        reference = part.get("$ref")
        target = pointed(root, reference) if isinstance(reference, str) and reference != "#" else None
        listed = [branch for key in _BRANCHES if isinstance(part.get(key), list) for branch in part[key]]
        stack += reversed([target, *listed, *(part.get(key) for key in _SINGLE_BRANCHES)])
        if reference == "#":
            stack.append(root)


def pointed(root: Mapping[str, Any], reference: str) -> Any:
    """Return what a local reference points to, MISSING if nothing; `#` is the root without a reference of its own."""
    if reference == "#":
        return {key: value for key, value in root.items() if key != "$ref"}
    node: Any = root
    for step in reference.removeprefix("#/").split("/"):
        if (node := _member(node, step)) is MISSING:
            name = reference.removeprefix("#")
            return _anchors(_Whole(root)).get(name, MISSING) if name else MISSING
    return node


def _member(node: Any, step: str) -> Any:
    """Return what one step of a JSON pointer leads to; MISSING if nothing."""
    key = _unescaped(step)
    if isinstance(node, Mapping):
        return node.get(key, MISSING)
    is_place = isinstance(node, list) and key.isascii() and key.isdigit() and len(key) < 9 and int(key) < len(node)
    return node[int(key)] if is_place else MISSING


@dataclass(frozen=True, slots=True, eq=False)
class _Whole:
    """A schema by its identity, since it has no hash."""

    schema: Mapping[str, Any]

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Whole) and other.schema is self.schema


@functools.lru_cache(maxsize=64)
def _anchors(whole: _Whole) -> Mapping[str, Any]:
    """Find the anchors of a schema once: a search for each reference would be quadratic."""
    found: dict[str, Any] = {}
    for node in nodes(whole.schema):
        if isinstance(name := node.get("$anchor"), str):
            found.setdefault(name, node)
    return found


def deeper_than(levels: int, value: Any) -> bool:
    """Say whether a JSON value is nested deeper; what validates, shows or stores it recurses."""
    return bool(next(islice(layers(value), levels, None), ()))


def layers(value: Any) -> Iterator[list[Any]]:
    """Yield what is inside a JSON value, level by level."""
    around = [value] if isinstance(value, (dict, list)) else []
    while around:
        inside = [child for node in around for child in (node.values() if isinstance(node, dict) else node)]
        yield inside
        around = [child for child in inside if isinstance(child, (dict, list))]


class Places:
    """The schemas inside a schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.declared: set[str] = set()  # names of properties
        draft = root.get("$schema")  # in some drafts `items` may be a list
        self.has_tuples = isinstance(draft, str) and _WITH_TUPLES.search(draft) is not None
        self._root = root
        self._ids: set[int] = set()
        self._named: dict[str, list[_Place]] = {}  # name of a definition -> its places
        self._anchors: dict[str, Mapping[str, Any]] = {}
        self._dynamic: set[str] = set()
        self._leads: dict[str, bool] = {}
        walked = list(_walk(root))
        for node, place, is_schema in walked:
            self._note(node, place, has_anchors=is_schema)  # elsewhere no validator looks for anchors
        references = {each for node, _, _ in walked if isinstance(each := node.get("$ref"), str)}
        self.referenced = {id(self._target(found)) for each in references if (found := self.local(each))}
        self.schemas = [node for node, _, is_schema in walked if is_schema or id(node) in self.referenced]

    def _note(self, node: Mapping[str, Any], place: "_Place | None", *, has_anchors: bool) -> None:
        self._ids.add(id(node))
        properties = node.get("properties")
        self.declared.update(properties if isinstance(properties, Mapping) else ())
        for key in ("$defs", "definitions"):
            for name in node[key] if isinstance(node.get(key), Mapping) else ():
                self._named.setdefault(name, []).append((place, f"{key}/{_escaped(name)}"))
        if has_anchors and isinstance(anchor := node.get("$anchor"), str):
            self._anchors.setdefault(anchor, node)
        if has_anchors and isinstance(dynamic := node.get("$dynamicAnchor"), str):
            self._dynamic.add(dynamic)

    def local(self, reference: str) -> str | None:
        """Return a reference that leads to the intended schema: the same one if it does, None if there is none.

        The schema's own address is removed. If it leads nowhere, but exactly one definition has its name, that one is meant.
        """
        address = self._root.get("$id")
        if isinstance(address, str) and address.strip("#"):
            reference = reference.removeprefix(address.rstrip("#"))
        if not reference.startswith("#"):
            return None
        plain = unquote(reference)
        if self._arrives(plain):
            return plain
        places = self._named.get(_unescaped(plain.rpartition("/")[2]), [])
        meant = _pointer(places[0]) if len(places) == 1 else ""
        return meant if len(meant) <= _MAX_POINTER and self._arrives(meant) else None

    def is_dynamic(self, reference: Any) -> bool:
        return isinstance(reference, str) and reference.startswith("#") and reference[1:] in self._dynamic

    def _arrives(self, reference: str) -> bool:
        """Say whether a chain of references ends in a schema; one whose next link is dropped ends there."""
        if reference not in self._leads:
            self._leads[reference] = False  # the value inside a circle, until the answer is known
            self._leads[reference] = unquote(reference) == reference and self._ends(reference)
        return self._leads[reference]

    def _ends(self, reference: str) -> bool:
        seen: set[str] = set()
        target = self._target(reference)
        while reference not in seen and len(seen) < MAX_DEPTH:
            seen.add(reference)
            if isinstance(target, bool):
                return True
            if not isinstance(target, Mapping) or id(target) not in self._ids:
                return False
            following = target.get("$ref")
            if not isinstance(following, str) or (target := self._target(following)) is MISSING:
                return True
            reference = following
        return False

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#/"):
            return self._root if reference == "#" else self._anchors.get(reference[1:], MISSING)
        return functools.reduce(_member, reference[2:].split("/"), self._root)


_Place = tuple[Any, str]
"""The place above (None for the root) and the step from it; turned into a pointer only on demand."""


def _pointer(place: _Place | None) -> str:
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(step)
    return "/".join(["#", *reversed(steps)])


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


_Role = Literal["schema", "by name", "unknown"]


def _walk(root: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], _Place | None, bool]]:
    """Yield each schema with its place and True, and each object in an unknown keyword, which may be a schema, with False."""
    stack: list[tuple[Any, _Place | None, _Role]] = [(root, None, "schema")]
    while stack:
        node, place, role = stack.pop()
        if isinstance(node, list):
            stack.extend((child, (place, str(number)), role) for number, child in enumerate(node))
        if not isinstance(node, Mapping):
            continue
        if role != "by name":
            yield node, place, role == "schema"
        for key, child in node.items():
            if isinstance(child, Mapping | list) and not (role == "schema" and key in DATA):
                stack.append((child, (place, _escaped(key)), _role_below(role, key)))


def _role_below(role: _Role, key: str) -> _Role:
    if role == "schema":
        return "by name" if key in MAPS else "schema" if key in LISTS or key in SINGLES else "unknown"
    return "schema" if role == "by name" else "unknown"


# -- keywords ----------------------------------------------------------------------------------------------------------
# The keywords of JSON Schema under limits of time and work, and the type `integer`.
#
# A tool server writes the pattern and a model the text, so both are hostile: `(a+)+$` on forty characters runs for hours in `re`.
# `regex` stops a search (`_TRIES`); a pattern that was stopped once is not run again in this process, so that an array of
# many strings costs no more. What could not be checked does not count as valid.
#
# A schema that refers to itself in two branches doubles the work with each level of the value. The model writes the value, and
# forty levels run for hours. So every keyword that is evaluated for a call is counted.


_SECONDS = 0.05
# Time limits of a search in seconds, each with its cost in steps: quick searches cost little, and many slow ones are stopped
# together.
_TRIES = ((0.000_05, 1), (0.002, 150), (_SECONDS, 3_500))
_STEPS = 100_000  # most keywords evaluated for one call, 10 to 20 microseconds each
_MEMBERS = 100  # how many members of a keyword count as one step
_COMPARED = 20  # how many compared values count as one step
_CHARACTERS = 1_000  # how many written characters count as one step: `jsonschema` writes the value into each error


class _Work:
    def __init__(self) -> None:
        self._left = _STEPS
        self._sizes: dict[int, int] = {}

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooMuchWork

    def size_of(self, value: Any) -> int:
        """Estimate how many characters a value has; the size of each list or object is computed once."""
        if not isinstance(value, list | dict):
            return len(value) if isinstance(value, str) else 1
        if id(value) not in self._sizes:
            members = value if isinstance(value, list) else (*value, *value.values())
            self._sizes[id(value)] = 1 + sum(1 + self.size_of(each) for each in members)
        return self._sizes[id(value)]


_work: ContextVar[_Work | None] = ContextVar("_work", default=None)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Count the keywords that are evaluated inside. A limit inside another one does nothing: the outer one counts."""
    token = _work.set(_work.get() or _Work())
    try:
        yield
    finally:
        _work.reset(token)


def _spend(steps: int) -> None:
    if (work := _work.get()) is not None:
        work.spend(steps)


def _count_steps(keyword: Callable[..., Any]) -> Callable[..., Any]:
    def counted(validator: Any, asked: Any, instance: Any, schema: Any) -> Any:
        _spend(1 + (len(asked) // _MEMBERS if isinstance(asked, list | dict) else 0))
        errors = keyword(validator, asked, instance, schema)
        return errors and _weigh(errors, instance, asked)

    return counted


def _weigh(errors: Iterable[Any], instance: Any, asked: Any) -> Iterator[Any]:
    """Count each error by the texts in it: the value and the requirement. Errors of parts, counted already, have a keyword."""
    for error in errors:
        if (work := _work.get()) is not None and not isinstance(error.validator, str):
            work.spend(1 + (work.size_of(instance) + work.size_of(asked)) // _CHARACTERS)
        yield error


class _Pattern:
    """A compiled pattern that remembers whether it was too slow."""

    def __init__(self, pattern: str) -> None:
        self._compiled = regex.compile(pattern)
        self._slow = False

    def search(self, text: str) -> bool | None:
        """Say whether it occurs in the text; None if that took too long."""
        for seconds, steps in () if self._slow else _TRIES:
            _spend(steps)
            with contextlib.suppress(TimeoutError):
                return self._compiled.search(text, timeout=seconds) is not None
        self._slow = True
        return None


_pattern = functools.lru_cache(maxsize=4096)(_Pattern)

_MAX_CHARACTERS = 10_000  # the longest pattern
_LITERAL = regex.compile(r"/(\^.*\$)/([dgimsuvy]*)", regex.DOTALL)  # `/^a$/i`, a pattern as JavaScript's source has it
_HALVES = regex.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")  # half of a surrogate pair, which no text here contains
# Syntax that only ECMA-262 has. Any escaped character is a piece, so that `u{1}` after an escaped backslash is none.
_PIECES = regex.compile(r"\\u\{([0-9a-fA-F]{1,6})\}|\\k<(\w+)>|\[\^\]|\\c([A-Za-z])|\\.", regex.DOTALL)


def usable_pattern(pattern: str) -> str | None:
    """Translate a pattern of ECMA-262 into the syntax of `regex`, unchanged where possible; None if it cannot be used."""
    if len(pattern) > _MAX_CHARACTERS or _HALVES.search(pattern):
        return None
    if literal := _LITERAL.fullmatch(pattern):
        pattern = f"(?i){literal[1]}" if "i" in literal[2] else literal[1]
    return next((each for each in (pattern, _PIECES.sub(_translate, pattern)) if _compiles(each)), None)


def _translate(piece: regex.Match[str]) -> str:
    code, group, control = piece.groups()
    if code:
        return f"\\U{int(code, 16):08X}"
    if group:
        return f"(?P={group})"
    if control:
        return f"\\x{ord(control) % 32:02X}"
    return r"[\s\S]" if piece[0] == "[^]" else piece[0]


def _compiles(pattern: str) -> bool:
    try:
        _pattern(pattern)
    except (regex.error, OverflowError, RecursionError, ValueError):
        return False
    return True


@functools.cache
def with_time_limit(validator_class: Any) -> Any:
    """Return the validator class of a draft with keywords that cannot hang."""
    from jsonschema import validators

    original = validator_class.VALIDATORS["additionalProperties"]

    def additional(validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if not schema.get("patternProperties"):
            yield from original(validator, allowed, instance, schema) or ()
        elif validator.is_type(instance, "object"):
            rest = {name: value for name, value in instance.items() if not is_covered(name, schema)}
            bare = {key: value for key, value in schema.items() if key != "patternProperties"}
            yield from original(validator, allowed, rest, bare) or ()

    keywords = {
        "additionalProperties": additional,
        "enum": partial(_check_values, validator_class.VALIDATORS["enum"]),
        "pattern": _check_pattern,
        "patternProperties": _check_properties,
        "type": _check_type,
        "uniqueItems": _check_unique,
    }
    counted = {name: _count_steps(keyword) for name, keyword in {**validator_class.VALIDATORS, **keywords}.items()}
    # 3.0 is an integer to JSON Schema but not to the programs that implement tools: it is converted first.
    types = validator_class.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    return cast(Any, validators).extend(validator_class, counted, type_checker=types)


def _error(message: str) -> Exception:
    from jsonschema.exceptions import ValidationError

    return ValidationError(message)


def _check_pattern(validator: Any, pattern: str, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if not validator.is_type(instance, "string"):
        return
    found = _pattern(pattern).search(instance)
    if not found:
        yield _error("it does not match" if found is not None else "it could not be checked in time")


def _check_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, below in patterns.items():
        for name, value in instance.items():
            if _pattern(pattern).search(name) is not False:
                yield from validator.descend(value, below, path=name, schema_path=pattern)


def _check_type(validator: Any, kinds: Any, instance: Any, schema: Any) -> Iterator[Any]:
    def is_of(kind: Any) -> bool:  # a schema in draft 3
        return bool(
            validator.is_type(instance, kind) if isinstance(kind, str) else validator.evolve(schema=kind).is_valid(instance)
        )

    if not any(map(is_of, kinds if isinstance(kinds, list) else [kinds])):
        yield _error("it is of another type")


def _check_values(compare: Callable[..., Any], validator: Any, values: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Look for a value among those that are listed; most are texts, which Python finds fast."""
    if isinstance(instance, str):
        is_listed = instance in values
    else:
        _spend(len(values) // (1 if isinstance(instance, list | dict) else _COMPARED))
        is_listed = not any(compare(validator, values, instance, schema) or ())
    if not is_listed:
        yield _error("it is not one of the values")


def _check_unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Look for an item that comes twice, in one pass: `jsonschema` compares each with each."""
    if wanted and validator.is_type(instance, "array"):
        keys = {json.dumps(_even(item), sort_keys=True, default=str) for item in instance}
        if len(keys) < len(instance):
            yield _error("it has an item twice")


def _even(value: Any) -> Any:
    """Return a form of a value that all equal values share: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, list):
        return [_even(each) for each in value]
    if isinstance(value, dict):
        return {name: _even(each) for name, each in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def covering(name: str, patterns: Mapping[str, Any]) -> list[Any]:
    """Return the schemas whose pattern fits a name; an unusable pattern, or one that takes too much work, fits none."""
    found = []
    with contextlib.suppress(TooMuchWork), limited():
        for pattern, below in patterns.items():
            if usable_pattern(pattern) == pattern and _pattern(pattern).search(name):
                found.append(below)
    return found


def is_covered(name: str, schema: Mapping[str, Any]) -> bool:
    """Say whether a pattern of `patternProperties` fits a name."""
    return any(_pattern(pattern).search(name) for pattern in schema.get("patternProperties", ()))
