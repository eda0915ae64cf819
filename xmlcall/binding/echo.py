"""Calls that the model only copied: they do not run, in loop and proxy alike.

*Somebody's call.* Whoever can put text before the model (a person quoting, a web page in a tool's result, a server's description)
could put a call there; a model that copies it must not run it. The comparison is by skeletons: models undo entities and the
escapes of JSON, and fold white space. Our own prompt, feedback and reminder do not count: they are written to be followed. What
they show of a server's words does, names and values of a schema, too.

*Our example's values.* Small models also call with the values that the prompt's example shows, `2.5` or `city value`. Such a call
is a copy if everything that its tool's example invents is in it, and nobody said any of it. What comes from the schema (an enum,
a default, a limit) or could be anybody's choice (true, one whole number) is no evidence. A text that is a placeholder, `city
value` for the parameter `city`, is one in every call, because models carry the pattern over to other tools.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import regex

from ..dialects import DIALECTS, Body
from ..dialects.write import write
from ..schema.references import nodes
from ..tools.catalog import Catalog
from ..tools.outline import invented_arguments, placeholder
from ..types.calls import MISSING, InvalidCall, Issue, RawCall, Tool, ToolCall
from .skeleton import READINGS, letters, of_keys, readings, skeleton, skeletons, unquoted

__all__ = ["Sources", "echo_of", "examples_of", "has_placeholder", "may_be_placeholder", "words_of"]

_COPIED: Final = "This call repeats text from the conversation."
_EXAMPLE_VALUE: Final = (
    "This value only stood in the example, and nobody said it. Use a value of the request. "
    "If the request needs no tool, answer in plain words."
)

_ENOUGH: Final = 8  # letters of a notation, such as `parameter`
_SHORT: Final = 4
_SIGNS: Final = {Body.PYTHON: "[]()=", Body.LINES: "()=", Body.KEYED: "[]{}:"}  # of notations without words
# Calls in formats of models that only servers read.
_NATIVE: Final = (
    '"name": "NAME", "arguments": ARGUMENTS',
    '{"arguments": ARGUMENTS, "name": "NAME"',
    "[TOOL_CALLS]NAMEARGUMENTS",
    "<function=NAME>ARGUMENTS",
    "<｜tool▁sep｜>NAME json ARGUMENTS",
)

_NUMBER = regex.compile(r"[0-9]+(?:[.,][0-9]+)?")
_WHOLE = regex.compile(r"[0-9]+")
# Numbers of examples as a person may say them; what is said in another way is only asked for once more.
_SPOKEN: Final[Mapping[float, tuple[str, ...]]] = {
    2.5: ("two and a half", "two point five", "两个半", "二点五"),
    3: ("three", "third", "triple", "三"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Texts by others that stand before the model.

    Args:
        instructions: by the program that asks; it may show calls to be followed.
        offered: the tools that the prompt shows, callable or not; None if they are those that may be called.
        shown: what stands before the model of all these as it is shown, where a call may be made of several words.
        known: skeletons and readings of these texts, kept from one reply to the next.
    """

    said: Iterable[str] = ()
    described: Iterable[str] = ()
    instructions: Iterable[str] = ()
    offered: Catalog | None = None
    shown: Iterable[str] = ()
    known: dict[tuple[str | None, str], tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)

    def have(self, raw: RawCall, catalog: Catalog) -> bool:
        """Say whether a call stands in what people, tools or servers wrote, in whatever way it is written there.

        Args:
            catalog: of the tools that may be called: all that their schemas name is shown to the model.
        """
        others, bare = self._others(catalog), self._bare(_signs_of(raw))
        written, wordy = _forms(raw, catalog, bare)
        if any(form in text for form in written for text in others):
            return True
        as_written = [skeleton(each.text) for each in raw.arguments if _has_sign(each.text)]
        is_same = all(any(value in text for text in others) for value in as_written)
        return is_same and any(form in text for form in wordy for text in bare)

    def show(self, name: str, dialect: str, catalog: Catalog) -> bool:
        """Say whether the beginning of a call of a tool stands in what others wrote."""
        others, bare = self._others(catalog), self._bare("")
        if any(skeleton(sign + name) in text for sign in "<>=" for text in others):
            return True
        begun, found, _ = write([(name, {})], catalog, DIALECTS[dialect]).removeprefix(_block(dialect)).partition(name)
        opener = letters(begun + found)
        return len(opener) - len(letters(name)) >= _ENOUGH and any(opener in text for text in bare)

    def _others(self, catalog: Catalog) -> list[str]:
        """Return skeletons of all texts, one behind the other, because a call may be spread over results."""
        said = "".join(each for text in self._texts() for each in self._known(text, None))
        return [said, *(_on_offer(each) for each in (catalog, self.offered) if each is not None)]

    def _bare(self, signs: str) -> list[str]:
        """Return the letters of all texts, and some signs, for each way to read them."""
        texts = self._texts()
        known = [self._known(text, signs) for text in texts]
        return [*("".join(text[at] for text in known) for at in range(READINGS)), *of_keys(texts, signs)]

    def _texts(self) -> tuple[str, ...]:
        return (*self.said, *self.described, *self.shown)

    def _known(self, text: str, signs: str | None) -> tuple[str, ...]:
        if (signs, text) not in self.known:
            self.known[signs, text] = skeletons(text) if signs is None else readings(text, signs)
        return self.known[signs, text]


def _forms(raw: RawCall, catalog: Catalog, bare: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return how a call may stand in a text: skeletons of it, and its letters."""
    written = {skeleton(raw.text), skeleton(unquoted(raw.text))} - {""}
    if raw.dialect != "native":
        return written, set(_letters_of(raw))
    # The server has read the call out of what the model wrote, in a format that nobody tells.
    arguments = {each.name: each.text if each.value is MISSING else each.value for each in raw.arguments}
    if catalog.get(raw.name) is None or not all(any(part in text for text in bare) for part in _named(raw)):
        return written, set()
    as_json = json.dumps(arguments, ensure_ascii=False)
    written |= {skeleton(form.replace("NAME", raw.name).replace("ARGUMENTS", as_json)) for form in _NATIVE}
    calls = {key: write([(raw.name, arguments)], catalog, each) for key, each in DIALECTS.items()}
    written.add(skeleton(calls["pythonic"]))
    others = [replace(raw, dialect=key, text=text.removeprefix(_block(key))) for key, text in calls.items()]
    return written, {form for other in others if not _own_signs(other) for form in _letters_of(other)}


def _block(dialect: str) -> str:
    return DIALECTS[dialect].written.get("block_open", "")


def _has_sign(value: str) -> bool:
    """Say whether a value is another one without its signs: `-5`, `2.5`, `a/b`, `+`."""
    bare = letters(value)
    return bare != value.strip().casefold() and (len(bare) <= _SHORT or bare.isdigit())


def _signs_of(raw: RawCall) -> str:
    """Return the signs that count: of a call without arguments, the empty object, which tells it from the tool's description."""
    return _own_signs(raw) or ("" if raw.arguments else "{}")


def _own_signs(raw: RawCall) -> str:
    return _SIGNS.get(DIALECTS[raw.dialect].body, "") if raw.dialect in DIALECTS else ""


def _named(raw: RawCall) -> list[str]:
    return [letters(raw.name), *(letters(part) for each in raw.arguments for part in (each.name, each.text))]


def _letters_of(raw: RawCall) -> Iterator[str]:
    """Yield the letters of a call up to its last value, if its notation has words enough to be told from plain words."""
    all_of_it = readings(raw.text, _signs_of(raw))[:2]
    if _own_signs(raw):
        yield from all_of_it
        return
    named = _named(raw)
    enough, last = sum(map(len, named)) + _ENOUGH, next(filter(None, reversed(named)), "-")
    for bare in all_of_it:
        begun, found, _ = bare.rpartition(last)
        up_to_last = begun + found if raw.arguments else bare
        if len(bare) >= enough:
            yield up_to_last if len(up_to_last) >= enough else bare


@functools.lru_cache(maxsize=32)
def _on_offer(catalog: Catalog) -> str:
    """Return the skeleton of what tools are called, and of their schemas: a prompt may show all of that."""
    shown = (json.dumps([tool.name, tool.input_schema], ensure_ascii=False, default=str) for tool in catalog)
    return "".join(part for text in shown for part in skeletons(text))


def echo_of(call: ToolCall | InvalidCall, catalog: Catalog, sources: Sources) -> InvalidCall | None:
    """Find a call that the model copied.

    Returns:
        The call as an InvalidCall with issues `echo`, at `$` if the call was somebody's, else at each value of our example; or
        None.
    """
    if sources.have(call.raw, catalog):
        issues = [Issue(code="echo", message=_COPIED)]
    elif isinstance(call, ToolCall) and (tool := catalog.get(call.name)):
        names = _example_values(call, tool, (*sources.said, *sources.instructions))
        issues = [Issue(code="echo", path=f"$.{name}", message=_EXAMPLE_VALUE) for name in names]
    else:
        return None
    return InvalidCall(id=call.id, name=call.name, issues=tuple(issues), raw=call.raw) if issues else None


def words_of(tool: Tool) -> str:
    """Return what a server says of a tool: its description and those of its parameters, from which no call is copied."""
    values = (value for node in nodes(tool.input_schema) for value in node.values())
    return "\n".join([tool.description, *(value for value in values if isinstance(value, str))])


def may_be_placeholder(name: str, text: str) -> bool:
    """Say whether a text that is still being written can become a placeholder, or is one."""
    return placeholder(name).startswith(text)


def has_placeholder(name: str, value: Any) -> bool:
    """Say whether a value holds a placeholder of its parameter, or of a field in it."""
    return any(_placeholders_in(name, value))


def examples_of(tool: Tool) -> list[dict[str, Any]]:
    """Return what the example of a tool invents, parameter -> value; none where that is no evidence."""
    shown = invented_arguments(tool)
    return [{name: value for name, (value, _) in shown.items()}] if _is_evidence(_values(shown)) else []


def _example_values(call: ToolCall, tool: Tool, said: Iterable[str]) -> list[str]:
    """Return the parameters whose values were copied from the example."""
    shown = invented_arguments(tool)
    invented = _values(shown)
    is_copy = all(name in call.arguments and call.arguments[name] == value for name, (value, _) in shown.items())
    if is_copy and _is_evidence(invented) and not any(_is_said(value, said) for value in invented):
        return list(shown)
    return [
        name for name, value in call.arguments.items() if any(not _is_said(word, said) for word in _placeholders_in(name, value))
    ]


def _values(shown: Mapping[str, tuple[Any, list[str | int | float]]]) -> list[str | int | float]:
    return [value for _, invented in shown.values() for value in invented]


def _is_evidence(invented: list[str | int | float]) -> bool:
    """Say whether nobody would choose these values by chance: one whole number may well be a choice."""
    return len(invented) > 1 or any(isinstance(value, str | float) for value in invented)


def _placeholders_in(name: str, value: Any) -> Iterator[str]:
    """Yield the strings in a value that are placeholders of its parameter, or of the field that they stand in."""
    open_values = [(name, value)]
    while open_values:
        name, value = open_values.pop()
        if isinstance(value, str) and value == placeholder(name):
            yield value
        elif isinstance(value, dict):
            open_values += value.items()
        elif isinstance(value, list):
            open_values += [(name, item) for item in value]


def _is_said(value: str | int | float, said: Iterable[str]) -> bool:
    if isinstance(value, str):
        return any(value.casefold() in text.casefold() for text in said)
    words = _SPOKEN.get(value, ())
    return any(value in _numbers(text) or any(word in text.casefold() for word in words) for text in said)


def _numbers(text: str) -> set[float]:
    """Return the numbers in a text; a comma may be a decimal one, or part two numbers."""
    text = text.replace("½", ".5")
    return {float(each.replace(",", ".")) for each in (*_NUMBER.findall(text), *_WHOLE.findall(text))}
