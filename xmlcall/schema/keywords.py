"""The keywords of JSON Schema under limits of time and work, and the type `integer`.

A tool server writes the pattern and a model the text, so both are hostile: `(a+)+$` on forty characters runs for hours in `re`.
`regex` stops a search after `_SECONDS`; a pattern that was stopped once is not run again in this process, so that an array of
many strings costs no more. What could not be checked does not count as valid.

A schema that refers to itself in two branches doubles the work with each level of the value. The model writes the value, and
forty levels run for hours. So every keyword that is evaluated for a call is counted.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast

import regex

__all__ = ["TooMuchWork", "fits", "is_covered", "limited", "usable_pattern", "with_time_limit"]

_SECONDS = 0.05
_STEPS = 100_000  # keywords that are evaluated for one call, 10 to 20 microseconds each

_steps: ContextVar[Iterator[int] | None] = ContextVar("_steps", default=None)


class TooMuchWork(Exception):
    """A schema takes more steps than it may on a value."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Count the keywords that are evaluated inside. A limit inside another one does nothing: the outer one counts.

    Raises:
        TooMuchWork: there are too many.
    """
    token = _steps.set(_steps.get() or iter(range(_STEPS)))
    try:
        yield
    finally:
        _steps.reset(token)


def _counted(keyword: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        steps = _steps.get()
        if steps is not None and next(steps, None) is None:
            raise TooMuchWork
        return keyword(*arguments)

    return counted


class _Pattern:
    """A compiled pattern that remembers whether it was too slow."""

    def __init__(self, pattern: str) -> None:
        self._compiled = regex.compile(pattern)
        self._slow = False

    def search(self, text: str) -> bool | None:
        """Say whether it occurs in the text; None if that took too long."""
        if self._slow:
            return None
        try:
            return self._compiled.search(text, timeout=_SECONDS) is not None
        except TimeoutError:
            self._slow = True
            return None


_pattern = functools.lru_cache(maxsize=1024)(_Pattern)

_MAX_CHARACTERS = 10_000  # of a pattern
_LITERAL = regex.compile(r"/(\^.*\$)/([dgimsuvy]*)", regex.DOTALL)  # `/^a$/i`, a pattern as JavaScript's source has it
_HALVES = regex.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")  # of a surrogate pair, which no text here holds
# An escaped character is one piece, so that `\\u{1}` after an escaped backslash is none. What only ECMA-262 has, in `regex`.
_PIECES = regex.compile(r"\\u\{([0-9a-fA-F]{1,6})\}|\\k<(\w+)>|\[\^\]|\\c([A-Za-z])|\\.", regex.DOTALL)


def usable_pattern(pattern: str) -> str | None:
    """Translate a pattern of ECMA-262 into the syntax of `regex`.

    Args:
        pattern: of a schema.

    Returns:
        The same text wherever it can be used as it is; None if there is no way to use it.
    """
    if len(pattern) > _MAX_CHARACTERS or _HALVES.search(pattern):
        return None
    if literal := _LITERAL.fullmatch(pattern):
        pattern = f"(?i){literal[1]}" if "i" in literal[2] else literal[1]
    return next((each for each in (pattern, _PIECES.sub(_translated, pattern)) if _compiles(each)), None)


def _translated(piece: regex.Match[str]) -> str:
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
    """Return the validator class of a draft with keywords that cannot hang.

    Args:
        validator_class: from `jsonschema`.
    """
    from jsonschema import validators

    original = validator_class.VALIDATORS["additionalProperties"]

    def additional(validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if not schema.get("patternProperties"):
            yield from original(validator, allowed, instance, schema) or ()
        elif validator.is_type(instance, "object"):
            rest = {name: value for name, value in instance.items() if not is_covered(name, schema)}
            bare = {key: value for key, value in schema.items() if key != "patternProperties"}
            yield from original(validator, allowed, rest, bare) or ()

    keywords = {"pattern": _check_pattern, "patternProperties": _check_properties, "additionalProperties": additional}
    counted = {name: _counted(keyword) for name, keyword in {**validator_class.VALIDATORS, **keywords}.items()}
    types = validator_class.TYPE_CHECKER.redefine("integer", _is_integer)
    return cast(Any, validators).extend(validator_class, counted, type_checker=types)


def _is_integer(checker: Any, value: Any) -> bool:
    """3.0 is an integer to JSON Schema, and not to the programs behind tools: it is converted first."""
    return isinstance(value, int) and not isinstance(value, bool)


def _check_pattern(validator: Any, pattern: str, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(instance, "string"):
        return
    found = _pattern(pattern).search(instance)
    if not found:
        reason = "does not match" if found is not None else "could not be checked in time against"
        yield ValidationError(f"{instance!r:.80} {reason} {pattern!r:.80}")


def _check_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, below in patterns.items():
        for name, value in instance.items():
            if _pattern(pattern).search(name) is not False:
                yield from validator.descend(value, below, path=name, schema_path=pattern)


def fits(pattern: str, name: str) -> bool:
    """Say whether a pattern of a schema fits a name; one that cannot be used fits none."""
    return usable_pattern(pattern) == pattern and bool(_pattern(pattern).search(name))


def is_covered(name: str, schema: Mapping[str, Any]) -> bool:
    """Say whether a pattern of `patternProperties` fits a name."""
    return any(_pattern(pattern).search(name) for pattern in schema.get("patternProperties", ()))
