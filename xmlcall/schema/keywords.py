"""The keywords of JSON Schema under limits of time and work, and the type `integer`.

A tool server writes the pattern and a model the text, so both are hostile: `(a+)+$` on forty characters runs for hours in `re`.
`regex` stops a search (`_TRIES`); a pattern that was stopped once is not run again in this process, so that an array of
many strings costs no more. What could not be checked does not count as valid.

A schema that refers to itself in two branches doubles the work with each level of the value. The model writes the value, and
forty levels run for hours. So every keyword that is evaluated for a call is counted.
"""

import contextlib
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

import regex

from .references import TooMuchWork

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
        _spend(len(values) // _COMPARED)
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
