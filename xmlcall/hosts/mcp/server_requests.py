"""What an MCP server may request from its client, in our own types: user input, a completion, folders, logging.

    features = ClientFeatures(elicit=ask_the_person, roots=("/srv/project",))
    async with McpHost(server, features=features) as host: ...

Passing a callback declares the capability to the server (MCP 2025-11-25, lifecycle); without one nothing is declared, and a
request by the server is refused. A form or a completion can only be asked for while a call of ours runs. The callbacks are the
same for all revisions: servers before 2026-07-28 send requests, later ones answer that input is required.

Everything in a request is the server's text, and thus untrusted input.
"""

import datetime
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from ...addresses import host_readings
from ...schema.validation import compiled, find_issues
from ...types.calls import MISSING, Message
from ...types.completion import FinishReason
from .wire import string_in

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""The level of a log message (RFC 5424, as in MCP)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormRequest:
    """A server asks the user to fill in a form (MCP elicitation, form mode)."""

    server: str
    message: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlRequest:
    """A server asks the user to visit an address, for data that must not pass through the client (MCP elicitation, URL mode)."""

    server: str
    message: str
    url: str  # it MUST NOT be opened or fetched before the user has seen all of it and agreed
    is_awaited: bool = False  # whether the call is repeated once the user is done there, which `accept` means

    @property
    def spelled_host(self) -> str:
        """The host as the network reads it, which reveals letters of other scripts and odd numbers (MCP: warn of look-alikes)."""
        spelled = host_readings(urlsplit(self.url).hostname or "")[-1]
        return spelled.encode("ascii", "backslashreplace").decode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitAnswer:
    """The user's answer: `decline` means that the user said no, `cancel` that there was no answer."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict)  # a form's; missing fields get the schema's defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """A server asks for a completion (MCP sampling)."""

    server: str
    messages: tuple[Message, ...]  # the server's system prompt first if there is one; text only
    max_tokens: int
    temperature: float | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleReply:
    text: str
    model: str
    finish_reason: FinishReason = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMessage:
    server: str
    level: LogLevel
    logger: str
    data: Any
    left_out: int = 0  # messages before this one that exceeded the limit per second


Elicit = Callable[[FormRequest | UrlRequest], Awaitable[ElicitAnswer]]
"""Asks the user. It is cancelled when the call ends, or the server withdraws its question."""

Sample = Callable[[SampleRequest], Awaitable[SampleReply | None]]
"""Asks the model; None if the user refuses. It is cancelled when the call ends."""

OnLog = Callable[[LogMessage], None]  # receives a log message


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFeatures:
    """What servers may request. Only what is given is declared."""

    elicit: Elicit | None = None
    sample: Sample | None = None
    roots: tuple[str, ...] = ()  # absolute paths of the folders to report to servers that ask where they may work
    log: OnLog | None = None  # a server may send a limited number of messages each second
    log_level: LogLevel = "info"  # the least severe that servers are asked to send
    refused: Callable[[str, str], None] | None = None  # receives a server and the method of a request that is not supported
    # Asks the user to sign in if a server requires it while a call runs; gets its name and the address, which MUST be shown in
    # full, and returns whether the user agreed.
    sign_in: Callable[[str, str], Awaitable[bool]] | None = None


NO_FEATURES: Final = ClientFeatures()  # nothing is declared or answered

# -- the forms that a server may ask the user to fill in: their fields, and how a typed line is read -------------------
# A form is an object of strings, numbers, booleans, choices of one value and choices of several (MCP 2025-11-25 and
# 2026-07-28, elicitation, requested schema; SEP-1330 for choices, SEP-1034 for defaults). Pure functions: other modules ask
# the user.


MAX_FIELDS: Final = 100  # the most fields of one form
_YES: Final = frozenset({"yes", "y", "true", "1", "是"})
_NO: Final = frozenset({"no", "n", "false", "0", "否"})
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_COMMA: Final = re.compile("[,，]")


class FormProblem(ValueError):
    """A text that does not fit a field; the message says what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a form; `choices` is a list of some of `options`, and `description` is "" if the server gives none."""

    name: str
    kind: Literal["text", "number", "integer", "boolean", "choice", "choices"]
    title: str
    description: str
    is_required: bool
    default: Any
    options: tuple[tuple[str, str], ...]
    schema: Mapping[str, Any]


def fields(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        return ()
    needed = required if isinstance(required, list) else []
    return tuple(_field(name, each, name in needed) for name, each in properties.items() if isinstance(each, Mapping))


def unusable(schema: Mapping[str, Any]) -> str:
    """Return why a form cannot be filled in; "" if it can."""
    count = len(fields(schema))
    if count > MAX_FIELDS:
        return f"expected a form of at most {MAX_FIELDS} fields, got {count}"
    validator = compiled(schema)
    return validator if isinstance(validator, str) else ""


def _field(name: str, schema: Mapping[str, Any], is_required: bool) -> Field:
    kind, options = schema.get("type"), _options(schema)
    if kind == "array":
        items = schema.get("items")
        kind, options = "choices", _options(items if isinstance(items, Mapping) else {})
    elif options:
        kind = "choice"
    return Field(
        name=name,
        kind=kind if kind in ("number", "integer", "boolean", "choice", "choices") else "text",
        title=string_in(schema, "title") or name,
        description=string_in(schema, "description"),
        is_required=is_required,
        default=MISSING if schema.get("default") is None else schema["default"],
        options=options,
        schema=schema,
    )


def _options(schema: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Read `oneOf` or `anyOf` of titled constants, or an `enum`, whose titles may be in `enumNames` (the older form)."""
    titled = schema.get("oneOf", schema.get("anyOf"))
    if isinstance(titled, list):
        found = ((each.get("const"), each.get("title")) for each in titled if isinstance(each, Mapping))
        return tuple((value, title if isinstance(title, str) else value) for value, title in found if isinstance(value, str))
    values, names = schema.get("enum"), schema.get("enumNames")
    if not isinstance(values, list):
        return ()
    titles = names if isinstance(names, list) and len(names) == len(values) else values
    return tuple((value, str(title)) for value, title in zip(values, titles, strict=True) if isinstance(value, str))


def read(field: Field, text: str) -> Any:
    """Read a line that a person typed into a field; an empty one takes the default, or leaves the field out."""
    text = text.strip()
    if not text:
        if field.default is MISSING and field.is_required:
            raise FormProblem("expected a value: this one is required")
        return field.default
    value = _READERS[field.kind](field, text)
    if found := problems({"properties": {field.name: field.schema}}, {field.name: value}):
        raise FormProblem(found[0])
    return value


def _number(field: Field, text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        raise FormProblem(f"expected {'an integer' if field.kind == 'integer' else 'a number'}, got {text[:60]!r}")
    return int(value) if field.kind == "integer" and value == int(value) else value


def _boolean(field: Field, text: str) -> bool:
    word = text.lower()
    if word not in _YES | _NO:
        raise FormProblem(f"expected yes or no, got {text[:60]!r}")
    return word in _YES


def _choice(field: Field, text: str) -> str:
    """Find a choice by its value, its title, or its number in the list."""
    for value, title in field.options:
        if text == value or text.casefold() == title.casefold():
            return value
    if re.fullmatch("[0-9]{1,9}", text) and 1 <= int(text) <= len(field.options):
        return field.options[int(text) - 1][0]
    raise FormProblem(f"expected one of the {len(field.options)} choices or its number, got {text[:60]!r}")


def _choices(field: Field, text: str) -> list[str]:
    return list(dict.fromkeys(_choice(field, part.strip()) for part in _COMMA.split(text) if part.strip()))


_READERS: Final = {
    "text": lambda field, text: text,
    "number": _number,
    "integer": _number,
    "boolean": _boolean,
    "choice": _choice,
    "choices": _choices,
}


def with_defaults(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of fields that have no value (SEP-1034)."""
    defaults = {field.name: field.default for field in fields(schema) if field.default is not MISSING}
    return defaults | dict(content)


def problems(schema: Mapping[str, Any], content: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each problem that keeps a form from being sent."""
    validator = compiled(schema)
    if isinstance(validator, str):
        return (validator,)
    issues = [f"{issue.path.removeprefix('$.')}: {issue.message}" for issue in find_issues(validator, dict(content))]
    known = {field.name: field.schema.get("format") for field in fields(schema)}
    for name, value in content.items():
        if name not in known:
            issues.append(f"{name}: there is no such field")
        elif isinstance(value, str) and not _has_format(value, known[name]):
            issues.append(f"{name}: expected the format {known[name]}, got {value[:60]!r}")
    return tuple(dict.fromkeys(issues))


def _has_format(value: str, name: Any) -> bool:
    check = _FORMATS.get(name) if isinstance(name, str) else None
    try:
        return check is None or check(value)
    except ValueError:
        return False


_FORMATS: Final = {  # the four that a requested schema may name
    "email": lambda value: _EMAIL.fullmatch(value) is not None,
    "uri": lambda value: bool(urlsplit(value).scheme) and not re.search(r"\s", value),
    "date": lambda value: len(value) == 10 and datetime.date.fromisoformat(value) is not None,
    # RFC 3339 requires a time zone.
    "date-time": lambda value: "T" in value.upper() and datetime.datetime.fromisoformat(value).tzinfo is not None,
}
