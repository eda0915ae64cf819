"""Collects a call's arguments, tolerances and doubts while it is read, and builds the RawCall from them."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import regex

from ..dialects import Dialect
from ..dialects.tag_patterns import ZERO_WIDTH
from ..loosejson import reader as jsonish
from ..types.calls import Issue, RawArgument, RawCall, Repair
from ..types.events import Event, Repaired, ToolCallEnd, ToolCallStart
from .json_call import arguments_of, unreadable
from .scanner import Token, has_hidden_in_name
from .value_text import Value

# Attributes of a call that say nothing about its arguments.
_ATTRIBUTES = frozenset({"name", "id", "call_id", "tool_call_id", "type", "index", "xmlns"})


@dataclass(slots=True, eq=False)
class CallDraft:
    """What is known of a call so far."""

    index: int  # the call's number in the reply
    opener: Token
    dialect: Dialect
    declared: frozenset[str] | None  # the tool's parameter names; None if any name is possible
    emit: Callable[[Event], None]
    names: set[str] = field(default_factory=set)  # parameters given so far
    given: bool = False  # whether any was given, or a body
    _arguments: list[RawArgument] = field(default_factory=list)
    _issues: list[Issue] = field(default_factory=list)
    _repairs: list[Repair] = field(default_factory=list)
    _complete: bool = True

    def __post_init__(self) -> None:
        """Emit the call's start."""
        name, span = self.opener.attributes["name"], self.opener.span
        self.emit(ToolCallStart(index=self.index, name=name, span=span, dialect=self.dialect.name))
        self.check_style(self.opener)

    def keep(self, argument: RawArgument) -> None:
        """Add a parameter."""
        self._arguments.append(argument)
        self.names.add(argument.name)
        self.given = True

    def keep_body(self, body: RawArgument, *, closed: bool = True) -> bool:
        """Add all parameters, given as one JSON object; return False if neither a tag nor its last bracket ended it."""
        read = jsonish.read(body.text, kinds={"object"}, complete=closed)
        if isinstance(read, jsonish.Unreadable) and not closed:
            return False
        self.given = True
        if not self.dialect.json_body:
            self.repair("json-body", (body.span[0], body.span[0]))
        if isinstance(read, jsonish.Unreadable):
            self._issues.append(unreadable(read))
            return True
        for code in read.codes:
            self.repair(code, body.span)
        values = {} if read.value is None else read.value
        if not isinstance(values, dict):
            self._issues.append(unreadable(jsonish.Unreadable(position=0, expected="an object", got=body.text.strip()[:30])))
            return True
        for argument in arguments_of(values, body.span):
            self.keep(argument)
        return True

    def check_style(self, opener: Token) -> None:
        """Note an opener that is not written as the format asks."""
        element = " " in opener.pair
        if element and opener.kind == "parameter_open" and not self.dialect.parameter_elements:
            self.repair("parameter-element", opener.span)
        if element or self.dialect.tool_elements:
            return
        words = _words(self.dialect.written.get(opener.kind, ""))
        is_named = not words or any(word in opener.text for word in words)
        if not self._is_whole(opener) or not is_named or any(character in opener.text for character in ZERO_WIDTH):
            self.repair("tag-style", opener.span)
        if has_hidden_in_name(opener, self.dialect):
            self.repair("parameter-name" if opener.kind == "parameter_open" else "tool-name", opener.span)
        if self.dialect.name_in_tag:
            return
        written_as_asked = f'name="{opener.attributes["name"]}"' in opener.text
        known = {"name", self.dialect.json_mark.attribute if self.dialect.json_mark else "name"}
        if not (written_as_asked and opener.attributes.keys() <= known):
            self.repair("attribute-style", opener.span)
        self._check_attributes(opener)

    def _check_attributes(self, opener: Token) -> None:
        """Refuse arguments that are written as attributes, because dropping them would change the call."""
        lost = opener.attributes.keys() - _ATTRIBUTES
        if opener.kind == "parameter_open":
            lost &= {"value"}
        elif self.declared is not None:
            lost &= self.declared
        for name in sorted(lost):
            tag = _tail(opener.text)
            message = f"A value stands between <parameter> tags, found the attribute {name!r} in {tag}"
            self._issues.append(Issue(code="malformed-value", path=f"$.{name}", got=tag, message=message))

    def _is_whole(self, opener: Token) -> bool:
        """Say whether the tag ends in its bracket, and whether GLM's key has its closer."""
        if self.dialect.name_after:
            return opener.kind == "call_open" or "</" in opener.text
        return opener.text.endswith(self.dialect.written.get(opener.kind, "").rpartition("{name}")[2][-1:])

    def check_closer(self, closer: Token) -> None:
        """Note a closer that is not written as the format asks."""
        words = _words(self.dialect.written.get("parameter_close", ""))
        is_named = not words or any(word in closer.text for word in words)
        if " " not in closer.pair and (not is_named or any(character in closer.text for character in ZERO_WIDTH)):
            self.repair("wrong-closer", closer.span)

    def repair(self, code: str, span: tuple[int, int]) -> None:
        """Note a tolerance."""
        self._repairs.append(Repair(code=code, span=span))
        self.emit(Repaired(code=code, span=span))

    def doubt(self, name: str, *readings: str, message: str = "") -> None:
        """Note that the call can be read in two ways at a parameter, so it will not run."""
        message = message or f"The call can be read in two ways: {readings[0]}; or {readings[1]}."
        self._issues.append(Issue(code="ambiguous", path=f"$.{name}", message=message, readings=readings))

    def doubt_parameter(self, value: Value, name: str, *, is_declared: bool) -> None:
        """Note that a parameter is in or after a value: it may be one, or be text of the value, perhaps closed too late."""
        message = f"The tool has no parameter {name!r}. Leave it out; markup in a value goes into a CDATA section."
        readings = f"{name!r} is a parameter of its own", f"the markup of {name!r} is part of the value of {value.name!r}"
        self.doubt(value.name if is_declared else name, *readings, message="" if is_declared else message)

    def doubt_entities(self, name: str) -> None:
        """Note that a value is written in entities throughout: they may stand for the characters or be text."""
        message = f"Does `&lt;` in {name!r} mean `<`? Write the character, or put the whole value into a CDATA section."
        self.doubt(name, "the entities stand for characters", "the entities are text", message=message)

    def wrong_closer(self, value: Value, closer: Token) -> None:
        """Note a closing tag of another name; it may be text if the value itself opened that tag."""
        self.repair("wrong-closer", closer.span)
        if f"<{closer.text.strip('</> ')}".lower() in value.text.lower():
            self.doubt(value.name, f"{closer.text} ends the value", f"{closer.text} belongs to the value, which has no end")

    def doubt_end(self, value: Value) -> None:
        """Note that a value without a closing tag contains tags that may have been its end."""
        name, first = value.name, value.tags[0].text
        self.doubt(name, f"{name} ends before {first}: {_tail(value.before_first_tag)}", f"{name} holds {first} as text")

    def truncated(self, reason: str) -> None:
        """Note that the reply ended inside the call."""
        self._complete = False
        self._issues.append(Issue(code="truncated-call", message=f"The reply ended inside the call: {reason}."))

    def end(self, source: Sequence[str], stray: str, closer: tuple[int, int]) -> None:
        """Emit the call; `source` has the texts of the tokens after the opener, at least up to the call's end."""
        if stray:
            message = f"Only <parameter> elements may stand in a call, found text: {_tail(stray)}"
            self._issues.append(Issue(code="malformed-value", got=_tail(stray), message=message))
        start = self.opener.start
        raw = RawCall(
            index=self.index,
            name=self.opener.attributes["name"],
            dialect=self.dialect.name,
            arguments=tuple(self._arguments),
            text=(self.opener.text + "".join(source))[: closer[1] - start],
            span=(start, closer[1]),
            complete=self._complete,
            issues=tuple(self._issues),
            repairs=tuple(self._repairs),
        )
        self.emit(ToolCallEnd(raw=raw, span=closer))


def _tail(text: str, limit: int = 120) -> str:
    return repr(text if len(text) <= limit else f"...{text[-limit:]}")


@functools.cache
def _words(tags: str) -> tuple[str, ...]:
    """Return the names of tags as they are written, without their prefix."""
    return tuple(regex.findall(r"(?:<|&lt;)/?(?:\w+:|\uff5c\w+\uff5c)?(\w+)", tags))
